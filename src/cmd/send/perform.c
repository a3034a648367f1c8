/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/send/perform.h"

#include "base/check.h"
#include "base/program/read_file.h"
#include "base/text.h"
#include "config/address.h"
#include "core/json/json.h"
#include "core/retry/request_timeout.h"
#include "net/client/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEADER_BYTES_MAX (48u << 10)
#define PROGRESS_INTERVAL 100
#define LOOKUP_TIMEOUT (5 * HX_SECOND)
#define ASK_WAIT_MAX (30 * HX_SECOND) /* of the server */

typedef struct {
    hx_intent *intent;
    const hx_send_settings *settings;
    hx_arena *arena;
    hx_loop *loop;
    hx_client *client;
    hx_guard guard;
    hx_network everything[2];
    hx_client_request request;
    bool is_over;
    hx_attempt_reply *result;
    hx_slice asked; /* the response to a question */
} work;

/* One attempt */

static void put_line(hx_buf *lines, hx_slice line)
{
    hx_buf_put(lines, line);
    hx_buf_puts(lines, "\r\n");
}

static bool put_header(work *w, hx_slice header, hx_buf *lines, hx_error_text error)
{
    hx_slice text, why, line;
    if (!hx_slice_starts(header, HX_LIT("@"))) {
        put_line(lines, header);
        return true;
    }
    const char *path = hx_arena_terminated(w->arena, hx_slice_from(header, 1));
    if (!hx_read_file(path, HEADER_BYTES_MAX / 2, w->arena, &text, &why)) return hx_fail(error, "%.*s", HX_FMT(why));
    while (hx_slice_next(&text, '\n', &line))
        if (hx_slice_trim(line).len > 0) put_line(lines, hx_slice_trim(line));
    return true;
}

static bool is_replaced(const work *w, hx_slice header)
{
    hx_text_header old, given;
    for (size_t i = 0; i < w->settings->credentials.count; i++)
        if (hx_text_split_header(header, &old) && hx_text_split_header(w->settings->credentials.items[i], &given) &&
            hx_slice_eq_nocase(old.name, given.name))
            return true;
    return false;
}

static bool put_headers(work *w, hx_ms elapsed, hx_buf *lines, hx_error_text error)
{
    const hx_intent_request *request = &w->intent->request;
    char left[HX_TIMEOUT_BYTES];
    hx_buf_init(lines, w->arena, HEADER_BYTES_MAX * 2);
    for (size_t i = 0; i < request->headers.count; i++)
        if (!is_replaced(w, request->headers.items[i]) && !put_header(w, request->headers.items[i], lines, error))
            return false;
    for (size_t i = 0; i < w->settings->credentials.count; i++)
        if (!put_header(w, w->settings->credentials.items[i], lines, error)) return false;
    if (request->key.len > 0) put_line(lines, hx_arena_printf(w->arena, "Idempotency-Key: %.*s", HX_FMT(request->key)));
    hx_request_timeout budget = {.span = w->settings->budget, .has_unit = true};
    if (w->settings->budget > 0) {
        hx_slice text = hx_timeout_text(budget, elapsed, left);
        if (text.len > 0) put_line(lines, hx_arena_printf(w->arena, "X-Request-Timeout: %.*s", HX_FMT(text)));
    }
    return true;
}

/* What the client shows is its own memory, which ends with this call. */
static void attempt_done(hx_client_request *request, const hx_client_result *got)
{
    work *w = request->user;
    bool has_response = got->error == HX_CLIENT_NONE;
    w->is_over = true;
    hx_loop_stop(w->loop); /* or the turn that this is called in would sleep first */
    *w->result = (hx_attempt_reply){.status = has_response ? got->status : 0,
                                    .nothing_sent = got->bytes_sent == 0,
                                    .is_invalid = got->error == HX_CLIENT_INVALID,
                                    .is_denied = got->error == HX_CLIENT_DENIED,
                                    .reason = got->reason ? hx_arena_printf(w->arena, "%s", got->reason).ptr : NULL,
                                    .head = hx_arena_copy(w->arena, got->head),
                                    .body = hx_arena_copy(w->arena, got->body),
                                    .body_is_cut = got->body_is_cut,
                                    .duration = got->duration};
}

static bool prepare(void *user, hx_ms elapsed, hx_error_text error)
{
    work *w = user;
    hx_buf lines;
    if (!put_headers(w, elapsed, &lines, error)) return false;
    w->request = (hx_client_request){.method = w->intent->request.method,
                                     .url = w->intent->request.url,
                                     .header_lines = hx_buf_slice(&lines),
                                     .body = w->intent->request.body,
                                     .timeout = w->settings->timeout,
                                     .connect_timeout = w->settings->timeout,
                                     .body_kept_max = HX_INTENT_BODY_MAX,
                                     .keeps_head = true,
                                     .user = w,
                                     .done = attempt_done};
    return true;
}

static void send_request(void *user, hx_attempt_reply *result)
{
    work *w = user;
    w->is_over = false;
    w->result = result;
    hx_client_start(w->client, &w->request);
    while (!w->is_over) hx_loop_turn(w->loop, HX_SECOND);
}

/* Between attempts */

/* False: the caller wants no further attempt. */
static bool wait_for(void *user, hx_ms delay, const char *why, unsigned attempts)
{
    const work *w = user;
    const hx_send_settings *settings = w->settings;
    bool is_shown = settings->shows_progress && isatty(STDERR_FILENO), ends = false;
    hx_ms began = hx_loop_now(w->loop), left;
    if (settings->waits) settings->waits(settings->user, why, attempts + 1, delay);
    if (settings->shows_progress && !is_shown)
        fprintf(stderr, "hapax send: %s; attempt %u in %.1f s\n", why, attempts + 1, (double)delay / HX_SECOND);
    while (!ends && (left = delay - (hx_loop_now(w->loop) - began)) > 0) {
        if (is_shown)
            fprintf(stderr, "\r\033[Khapax send: %s; attempt %u in %.1f s", why, attempts + 1,
                    (double)left / HX_SECOND);
        hx_loop_turn(w->loop, left < PROGRESS_INTERVAL ? left : PROGRESS_INTERVAL);
        ends = settings->ends && settings->ends(settings->user);
    }
    if (is_shown) fputs("\r\033[K", stderr);
    return !ends;
}

static bool open_client(work *w, hx_error_text error)
{
    hx_client_limits limits = {.connections_max = 4,
                               .requests_per_host_max = 1,
                               .waiting_max = 1,
                               .lookup_timeout = LOOKUP_TIMEOUT,
                               .idle_timeout = HX_SECOND,
                               .ca_file = w->settings->ca_file};
    bool is_network = hx_network_parse(HX_LIT("0.0.0.0/0"), &w->everything[1], error);
    HX_CHECK(is_network);
    w->guard = (hx_guard){.allowed = w->everything, .allowed_count = 2}; /* the caller's own choice */
    w->loop = hx_loop_new();
    w->client = hx_client_new(w->loop, &limits, w->settings->guard ? w->settings->guard : &w->guard, error);
    return w->client;
}

static void close_client(work *w)
{
    if (w->client) hx_client_free(&w->client);
    hx_loop_free(&w->loop);
}

bool hx_send_perform(hx_intent *intent, const hx_send_settings *settings, hx_arena *arena, hx_send_end *end,
                     hx_error_text error)
{
    work w = {.intent = intent, .settings = settings, .arena = arena};
    hx_attempts how = {.prepare = prepare,
                       .send = send_request,
                       .wait = wait_for,
                       .user = &w,
                       .policy = settings->policy,
                       .budget = settings->budget};
    bool good = open_client(&w, error) && hx_attempts_perform(intent, &how, arena, end, error);
    close_client(&w);
    return good;
}

/* Asking the server */

typedef struct {
    const char *state;
    hx_careful_verdict verdict;
    const char *why;
} told;

static void question_answered(hx_client_request *request, const hx_client_result *got)
{
    work *w = request->user;
    w->is_over = true;
    hx_loop_stop(w->loop);
    if (got->error == HX_CLIENT_NONE && got->status == 200 &&
        hx_slice_starts_nocase(got->content_type, HX_LIT("application/json")))
        w->asked = hx_arena_copy(w->arena, got->body);
}

/* "https://host/.well-known/…?method=POST&path=/refunds" */
static hx_slice question_of(const work *w)
{
    const hx_intent_request *request = &w->intent->request;
    size_t begin = hx_slice_find(request->url, ':') + 3, end = begin, after;
    while (end < request->url.len && !strchr("/?#", request->url.ptr[end])) end++;
    after = end;
    while (after < request->url.len && !strchr("?#", request->url.ptr[after])) after++;
    hx_slice path = hx_slice_from(hx_slice_first(request->url, after), end);
    hx_ms wait = w->settings->budget < ASK_WAIT_MAX ? w->settings->budget : ASK_WAIT_MAX;
    hx_buf url;
    hx_buf_init(&url, w->arena, 3 * request->url.len + 256);
    hx_buf_put(&url, hx_slice_first(request->url, end));
    hx_buf_puts(&url, "/.well-known/idempotency/operation?method=");
    hx_buf_put(&url, request->method);
    hx_buf_puts(&url, "&path=");
    hx_text_percent_put(&url, path.len > 0 ? path : HX_LIT("/"));
    hx_buf_put(&url, hx_arena_printf(w->arena, "&wait=%lldms", (long long)wait));
    return hx_buf_slice(&url);
}

bool hx_send_ask(hx_intent *intent, const hx_send_settings *settings, hx_arena *arena, hx_send_end *end)
{
    static const told words[] = {
        {"completed", HX_CAREFUL_DONE, "the server says that it was done; --resume gets its response"},
        {"failed", HX_CAREFUL_REFUSED, "the server says that it failed; --resume gets its response"},
        {"processing", HX_CAREFUL_UNKNOWN, "the server is at work on it"},
        {"unknown", HX_CAREFUL_UNKNOWN, "the server doesn't know what became of it"},
    };
    work w = {.intent = intent, .settings = settings, .arena = arena, .asked = HX_EMPTY};
    hx_error_text unused;
    hx_buf lines;
    hx_slice state;
    *end = (hx_send_end){.why = HX_EMPTY, .body = HX_EMPTY, .content_type = HX_EMPTY, .original_time = HX_EMPTY};
    if (open_client(&w, unused) && put_headers(&w, 0, &lines, unused)) {
        w.request = (hx_client_request){.method = HX_LIT("GET"),
                                        .url = question_of(&w),
                                        .header_lines = hx_buf_slice(&lines),
                                        .body = HX_EMPTY,
                                        .timeout = settings->timeout + settings->budget,
                                        .connect_timeout = settings->timeout,
                                        .body_kept_max = 4096,
                                        .user = &w,
                                        .done = question_answered};
        hx_client_start(w.client, &w.request);
        while (!w.is_over) hx_loop_turn(w.loop, HX_SECOND);
    }
    close_client(&w);
    end->body = w.asked;
    if (!hx_json_pointer(w.asked, HX_LIT("/state"), &state)) return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!hx_json_value_is(state, hx_slice_of(words[i].state))) continue;
        end->verdict = words[i].verdict;
        end->why = hx_slice_of(words[i].why);
        return true;
    }
    return false;
}

const char *hx_send_directory(hx_arena *arena)
{
    const char *given = getenv("HAPAX_INTENTS"), *store = hx_address_default_store(false, arena);
    if (given && given[0] == '/') return given;
    if (!store) return NULL;
    bool is_unit = getenv("STATE_DIRECTORY") != NULL; /* which may write nowhere else */
    return hx_arena_printf(arena, is_unit ? "%s/intents" : "%s-intents", store + strlen("journal:")).ptr;
}
