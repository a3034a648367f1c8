/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/send/perform.h"

#include "base/check.h"
#include "base/program/read_file.h"
#include "base/rand.h"
#include "base/text.h"
#include "config/address.h"
#include "core/json/json.h"
#include "core/retry/request_timeout.h"
#include "core/retry/retry_after.h"
#include "core/time/rfc3339.h"
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
    hx_ms first_at;    /* of this call */
    unsigned attempts; /* of this call */
    hx_careful_result result;
    hx_careful_answer answer;
    hx_send_end *end;
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

static bool put_headers(work *w, hx_buf *lines, hx_error_text error)
{
    const hx_intent_request *request = &w->intent->request;
    hx_ms now = hx_clock_wall();
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
        hx_slice text = hx_timeout_text(budget, now - w->first_at, left);
        if (text.len > 0) put_line(lines, hx_arena_printf(w->arena, "X-Request-Timeout: %.*s", HX_FMT(text)));
    }
    return true;
}

static hx_slice field(hx_slice head, const char *name)
{
    hx_text_header header;
    while (hx_text_next_header(&head, &header))
        if (hx_slice_eq_nocase(header.name, hx_slice_of(name))) return header.value;
    return HX_EMPTY;
}

/* A problem (RFC 9457) has these in its body, too, where a proxy has dropped the header. */
static void read_problem(work *w, hx_slice body)
{
    hx_slice value;
    if (hx_json_pointer(body, HX_LIT("/retryable"), &value)) w->result.says_retry = hx_slice_eq(value, HX_LIT("true"));
    if (w->result.error_code.len == 0 && hx_json_pointer(body, HX_LIT("/error_code"), &value) && value.len > 2 &&
        value.ptr[0] == '"')
        w->result.error_code = hx_arena_copy(w->arena, (hx_slice){value.ptr + 1, value.len - 2});
}

static void read_response(work *w, const hx_client_result *got, hx_ms now)
{
    hx_ms ends_at;
    w->result.idempotency_status = hx_arena_copy(w->arena, field(got->head, "idempotency-status"));
    w->result.error_code = hx_arena_copy(w->arena, field(got->head, "error-code"));
    if (got->retry_after.len > 0) w->result.retry_after = hx_retry_after(got->retry_after, now, HX_RETRY_AFTER_MAX);
    if (hx_rfc3339_read(field(got->head, "idempotency-expires"), &ends_at)) w->intent->key_ends_at = ends_at;
    if (hx_slice_starts(got->content_type, HX_LIT("application/problem+json"))) read_problem(w, got->body);
    w->end->status = got->status;
    w->end->body = hx_arena_copy(w->arena, got->body);
    w->end->body_is_cut = got->body_is_cut;
    w->end->content_type = hx_arena_copy(w->arena, got->content_type);
    w->end->original_time = hx_arena_copy(w->arena, field(got->head, "original-request-time"));
    w->end->replayed = hx_slice_eq_nocase(field(got->head, "idempotent-replayed"), HX_LIT("true"));
}

static void attempt_done(hx_client_request *request, const hx_client_result *got)
{
    work *w = request->user;
    hx_ms now = hx_clock_wall();
    hx_intent_attempt *attempt = &w->intent->attempts[w->intent->attempt_count - 1];
    bool has_response = got->error == HX_CLIENT_NONE;
    w->is_over = true;
    hx_loop_stop(w->loop); /* or the turn that this is called in would sleep first */
    w->result = (hx_careful_result){.status = has_response ? got->status : 0,
                                    .nothing_sent = got->bytes_sent == 0,
                                    .idempotency_status = HX_EMPTY,
                                    .error_code = HX_EMPTY,
                                    .retry_after = HX_RETRY_AFTER_NONE};
    *w->end = (hx_send_end){.body = HX_EMPTY, .content_type = HX_EMPTY, .original_time = HX_EMPTY};
    if (has_response) read_response(w, got, now);
    hx_ms left = w->settings->budget > 0 ? w->first_at + w->settings->budget - now : HX_TIMEOUT_NONE;
    hx_careful_state state = {.method = w->intent->request.method,
                              .has_key = w->intent->request.key.len > 0,
                              .attempts = w->attempts,
                              .in_doubt = attempt->in_doubt,
                              .first_at = w->first_at,
                              .key_ends_at = hx_intent_key_end(w->intent),
                              .client_left = left == HX_TIMEOUT_NONE || left > 0 ? left : 0};
    w->answer = hx_careful_next(&w->settings->policy, &state, &w->result, now, hx_rand_u64());
    attempt->nothing_sent = w->result.nothing_sent;
    attempt->in_doubt = w->answer.in_doubt;
    attempt->status = w->result.status;
    attempt->ms = (uint64_t)got->duration;
    attempt->code = w->result.error_code;
    attempt->note = has_response ? hx_slice_of(w->answer.why)
                                 : hx_arena_copy(&w->intent->arena, hx_slice_of(got->reason ? got->reason : ""));
    w->end->why = hx_slice_of(w->answer.why);
    if (got->error == HX_CLIENT_INVALID) { /* it never will be valid */
        w->answer = (hx_careful_answer){.verdict = HX_CAREFUL_REFUSED, .why = "it can't be sent as it is"};
        w->end->why = hx_arena_copy(w->arena, attempt->note);
    }
    if (got->error == HX_CLIENT_DENIED) { /* it may be allowed later, but not by waiting */
        w->answer.verdict = w->answer.in_doubt ? HX_CAREFUL_UNKNOWN : HX_CAREFUL_EXHAUSTED;
        w->end->why = hx_arena_copy(w->arena, attempt->note);
    }
}

static bool attempt_once(work *w, hx_ms delay, hx_error_text error)
{
    hx_intent *intent = w->intent;
    hx_buf lines;
    bool in_doubt = hx_intent_in_doubt(intent);
    hx_ms now = hx_clock_wall();
    if (w->attempts++ == 0) w->first_at = now;
    if (!put_headers(w, &lines, error) || !hx_intent_begin(intent, now, delay, error)) return false;
    intent->attempts[intent->attempt_count - 1].in_doubt = in_doubt;
    w->request = (hx_client_request){.method = intent->request.method,
                                     .url = intent->request.url,
                                     .header_lines = hx_buf_slice(&lines),
                                     .body = intent->request.body,
                                     .timeout = w->settings->timeout,
                                     .connect_timeout = w->settings->timeout,
                                     .body_kept_max = HX_INTENT_BODY_MAX,
                                     .keeps_head = true,
                                     .user = w,
                                     .done = attempt_done};
    w->is_over = false;
    hx_client_start(w->client, &w->request);
    while (!w->is_over) hx_loop_turn(w->loop, HX_SECOND);
    return hx_intent_end(intent, error);
}

/* Between attempts */

/* False: the caller wants no further attempt. */
static bool wait_for(const work *w, hx_ms delay)
{
    const hx_send_settings *settings = w->settings;
    bool is_shown = settings->shows_progress && isatty(STDERR_FILENO), ends = false;
    hx_ms began = hx_loop_now(w->loop), left;
    if (settings->waits) settings->waits(settings->user, w->answer.why, w->attempts + 1, delay);
    if (settings->shows_progress && !is_shown)
        fprintf(stderr, "hapax send: %s; attempt %u in %.1f s\n", w->answer.why, w->attempts + 1,
                (double)delay / HX_SECOND);
    while (!ends && (left = delay - (hx_loop_now(w->loop) - began)) > 0) {
        if (is_shown)
            fprintf(stderr, "\r\033[Khapax send: %s; attempt %u in %.1f s", w->answer.why, w->attempts + 1,
                    (double)left / HX_SECOND);
        hx_loop_turn(w->loop, left < PROGRESS_INTERVAL ? left : PROGRESS_INTERVAL);
        ends = settings->ends && settings->ends(settings->user);
    }
    if (is_shown) fputs("\r\033[K", stderr);
    return !ends;
}

static bool repeat(work *w, hx_error_text error)
{
    hx_ms delay = 0;
    for (;;) {
        if (w->intent->request.key.len > 0 && hx_clock_wall() >= hx_intent_key_end(w->intent)) {
            w->answer = (hx_careful_answer){.verdict = HX_CAREFUL_UNKNOWN};
            w->end->why = HX_LIT("the server may have forgotten the key: find out at the server whether it was done");
            return true;
        }
        if (!attempt_once(w, delay, error)) return false;
        if (w->answer.verdict != HX_CAREFUL_AGAIN) return true;
        delay = w->answer.delay;
        if (!wait_for(w, delay)) {
            w->answer.verdict = w->answer.in_doubt ? HX_CAREFUL_UNKNOWN : HX_CAREFUL_EXHAUSTED;
            w->end->why = HX_LIT("the call was cancelled before the next attempt");
            return true;
        }
    }
}

static bool finish(work *w, hx_error_text error)
{
    hx_send_end *end = w->end;
    end->verdict = w->answer.verdict;
    if (end->verdict != HX_CAREFUL_DONE && end->verdict != HX_CAREFUL_REFUSED) return true; /* it can be resumed */
    hx_intent_outcome outcome = {.verdict = hx_slice_of(hx_careful_verdict_name(end->verdict)),
                                 .at = hx_clock_wall(),
                                 .status = end->status,
                                 .replayed = end->replayed,
                                 .original_time = end->original_time,
                                 .content_type = end->content_type,
                                 .note = end->why,
                                 .body = end->body};
    return hx_intent_finish(w->intent, &outcome, error);
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
    work w = {.intent = intent, .settings = settings, .arena = arena, .end = end};
    *end = (hx_send_end){.why = HX_EMPTY, .body = HX_EMPTY, .content_type = HX_EMPTY, .original_time = HX_EMPTY};
    bool good = open_client(&w, error) && repeat(&w, error) && finish(&w, error);
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
        w->end->body = hx_arena_copy(w->arena, got->body);
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
    work w = {.intent = intent, .settings = settings, .arena = arena, .end = end};
    hx_error_text unused;
    hx_buf lines;
    hx_slice state;
    *end = (hx_send_end){.why = HX_EMPTY, .body = HX_EMPTY, .content_type = HX_EMPTY, .original_time = HX_EMPTY};
    if (open_client(&w, unused) && put_headers(&w, &lines, unused)) {
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
    if (!hx_json_pointer(end->body, HX_LIT("/state"), &state)) return false;
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
