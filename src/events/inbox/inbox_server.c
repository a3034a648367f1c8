/* SPDX-License-Identifier: Apache-2.0 */
#include "events/inbox/inbox_server.h"

#include "base/check.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/rand.h"
#include "core/json/json.h"
#include "core/json/json_writer.h"
#include "core/operation/template.h"

#include <stdatomic.h>
#include <stdlib.h>

#define PATH_PREFIX "/inbox/"
#define RETRY_AFTER "Retry-After: 2\r\n"
#define PROBLEM_BYTES_MAX (8u << 10)
#define BODIES_BYTES_MAX (64u << 20) /* of all requests at a time */

struct hx_inbox_server {
    hx_loop *loop;
    hx_engine *engine;
    const hx_source *sources;
    size_t source_count;
    hx_server *server;
    hx_mac *mac;
    _Atomic size_t body_bytes; /* of the requests under way */
    hx_slice path;             /* of requests that a gateway hands over; empty: none */
    void (*stopped)(void *context);
    void *stopped_context;
};

typedef struct {
    unsigned status;
    hx_slice lines, body;
} reply;

typedef struct {
    hx_inbox_server *server;
    hx_stream *stream;
    const hx_source *source;
    hx_arena *arena; /* of the thread that works on the call: the stream's, or `own` */
    hx_buf body;
    hx_receipt receipt;
    /* of a call that a gateway has handed over */
    void (*ended)(void *of);
    void *ended_of;
    bool is_away; /* it is on the engine's thread, and the stream stays on its own */
    hx_task task;
    hx_arena own; /* of the engine's thread */
    reply reply;  /* one allocation of the heap, on its way back */
} call;

typedef enum {
#define X(id, code, status, retryable, title, hint) PROBLEM_##id,
#include "events/inbox/problems.def"
#undef X
} problem;

static const struct {
    const char *code;
    unsigned status;
    bool retryable;
    const char *title;
    const char *hint;
} problems[] = {
#define X(id, code, status, retryable, title, hint) {code, status, retryable, title, hint},
#include "events/inbox/problems.def"
#undef X
};

static reply problem_reply(hx_inbox_server *server, const hx_stream *stream, hx_arena *arena, problem what,
                           unsigned status, const char *detail)
{
    hx_buf lines, body;
    hx_buf_init(&lines, arena, 512);
    hx_buf_init(&body, arena, PROBLEM_BYTES_MAX);
    if (status == 0) status = problems[what].status;
    hx_buf_puts(&lines, "Content-Type: application/problem+json\r\nContent-Language: en\r\nError-Code: ");
    hx_buf_puts(&lines, problems[what].code);
    hx_buf_puts(&lines, "\r\n");
    if (problems[what].retryable) hx_buf_puts(&lines, RETRY_AFTER);
    if (what == PROBLEM_METHOD) hx_buf_puts(&lines, "Allow: POST\r\n");
    hx_json_open(&body, NULL, '{');
    hx_json_put_text(&body, "type", HX_LIT("about:blank"));
    hx_json_put_number(&body, "status", status);
    hx_json_put_text(&body, "title", hx_slice_of(problems[what].title));
    hx_json_put_text(&body, "detail", hx_slice_first(hx_slice_of(detail), 1024));
    hx_json_put_text(&body, "error_code", hx_slice_of(problems[what].code));
    hx_json_put_bool(&body, "retryable", problems[what].retryable);
    hx_json_put_text(&body, "hint", hx_slice_of(problems[what].hint));
    hx_json_close(&body, '}');
    hx_buf_puts(&body, "\n");
    hx_engine_note_refused(server->engine);
    hx_log_begin(HX_EVENT_webhook_refused);
    hx_log_str("path", stream->request.path);
    hx_log_text("error_code", problems[what].code);
    hx_log_text("detail", detail);
    hx_log_str("client", hx_peer_text(&stream->peer));
    hx_log_end();
    return (reply){.status = status, .lines = hx_buf_slice(&lines), .body = hx_buf_slice(&body)};
}

static void send_reply(hx_stream *stream, const reply *r)
{
    hx_stream_answer(stream, r->status, HX_EMPTY, r->lines, r->body, true);
}

static void refuse(hx_inbox_server *server, hx_stream *stream, problem what, unsigned status, const char *detail)
{
    reply r = problem_reply(server, stream, &stream->arena, what, status, detail);
    send_reply(stream, &r);
}

static void end_call(call *c)
{
    void (*ended)(void *of) = c->ended;
    void *of = c->ended_of;
    c->server->body_bytes -= c->body.len;
    hx_stream_release(c->stream); /* the call goes with it */
    if (ended) ended(of);
}

/* On the stream's thread. */
static void come_back(hx_task *task)
{
    call *c = HX_OWNER(task, call, task);
    char *bytes = (char *)c->reply.lines.ptr;
    c->reply.lines = hx_arena_copy(&c->stream->arena, c->reply.lines);
    c->reply.body = hx_arena_copy(&c->stream->arena, c->reply.body);
    free(bytes);
    send_reply(c->stream, &c->reply);
    end_call(c);
}

/* Answers the call, which is over for this thread. */
static void answer_with(call *c, reply r)
{
    if (!c->is_away) {
        send_reply(c->stream, &r);
        end_call(c);
        return;
    }
    char *bytes = malloc(r.lines.len + r.body.len + 1);
    if (!bytes) hx_fatal(HX_EXIT_BUG, "out of memory");
    if (r.lines.len > 0) memcpy(bytes, r.lines.ptr, r.lines.len);
    if (r.body.len > 0) memcpy(bytes + r.lines.len, r.body.ptr, r.body.len);
    c->reply = (reply){.status = r.status, .lines = {bytes, r.lines.len}, .body = {bytes + r.lines.len, r.body.len}};
    hx_arena_free(&c->own);
    c->task.run = come_back;
    hx_loop_post(c->stream->loop, &c->task);
}

static void refuse_call(call *c, problem what, const char *detail)
{
    answer_with(c, problem_reply(c->server, c->stream, c->arena, what, 0, detail));
}

static void answer(call *c, const char *status_line)
{
    answer_with(c, (reply){.status = 200,
                           .lines = hx_arena_printf(c->arena, "Content-Type: application/json\r\n%s", status_line),
                           .body = HX_LIT("{\"received\": true}\n")});
}

static void answer_as_handler(call *c)
{
    const hx_attempt_result *response = &c->receipt.response;
    if (response->status == 0) {
        refuse_call(c, PROBLEM_HANDLER, response->error ? response->error : "No response came.");
        return;
    }
    hx_slice type = response->content_type;
    hx_slice lines = hx_arena_printf(c->arena, "%s%.*s%sIdempotency-Status: stored\r\n",
                                     type.len > 0 ? "Content-Type: " : "", HX_FMT(type), type.len > 0 ? "\r\n" : "");
    answer_with(c, (reply){.status = response->status,
                           .lines = lines,
                           .body = hx_arena_copy(c->arena, response->response)});
}

static void receive_done(hx_receipt *receipt)
{
    call *c = HX_OWNER(receipt, call, receipt);
    switch (receipt->result) {
    case HX_INBOX_RECEIVED: answer(c, "Idempotency-Status: stored\r\n"); break;
    case HX_INBOX_DUPLICATE: answer(c, "Idempotency-Status: replayed\r\n"); break;
    case HX_INBOX_HELD:
        if (c->source->is_strict)
            refuse_call(c, receipt->is_replay ? PROBLEM_REPLAY : PROBLEM_CONTRADICTION,
                        hx_arena_terminated(receipt->arena, receipt->delivery.reason));
        else
            answer(c, "");
        break;
    case HX_INBOX_ANSWERED: answer_as_handler(c); break;
    case HX_INBOX_BUSY: refuse_call(c, PROBLEM_BUSY, "An earlier request with this event has not ended."); break;
    case HX_INBOX_FULL: refuse_call(c, PROBLEM_FULL, "The store is full."); break;
    case HX_INBOX_UNAVAILABLE: refuse_call(c, PROBLEM_UNAVAILABLE, "The store can't be reached."); break;
    }
}

static size_t find_header(const void *user, hx_slice name, hx_slice *value)
{
    const hx_fields *fields = user;
    size_t lines = 0;
    for (size_t i = 0; i < fields->count; i++) {
        if (!hx_slice_eq_nocase(fields->items[i].name, name)) continue;
        if (lines++ == 0) *value = fields->items[i].value;
    }
    return lines;
}

static unsigned template_header(const void *user, hx_slice name, hx_slice *value)
{
    return (unsigned)find_header(user, name, value);
}

static bool is_json(const hx_fields *fields)
{
    hx_slice type = hx_fields_get(fields, HX_FIELD_CONTENT_TYPE);
    size_t end = hx_slice_find(type, ';');
    if (end != SIZE_MAX) type = hx_slice_trim(hx_slice_first(type, end));
    return hx_slice_eq_nocase(type, HX_LIT("application/json")) || hx_slice_ends(type, HX_LIT("+json"));
}

static bool id_by_template(call *c, hx_slice body, const char **why)
{
    hx_template_result result;
    hx_template_input in = {.header = template_header,
                            .user = &c->stream->request.fields,
                            .path = c->stream->request.path,
                            .path_template = HX_EMPTY,
                            .query = c->stream->request.query,
                            .principal = HX_EMPTY,
                            .body_is_json = is_json(&c->stream->request.fields),
                            .body = body,
                            .body_hashed = body,
                            .now = hx_engine_now(c->server->engine)};
    if (!hx_template_key(c->source->dedupe_key, &in, c->server->mac, c->arena, &result)) {
        *why = hx_arena_printf(c->arena, "%.*s: %s", HX_FMT(result.wrong), result.why).ptr;
        return false;
    }
    hx_buf hex;
    hx_buf_init(&hex, c->arena, 2 * sizeof result.key.bytes);
    hx_buf_put_hex(&hex, result.key.bytes, sizeof result.key.bytes);
    c->receipt.event.id = hx_buf_slice(&hex);
    c->receipt.id_is_signed = true; /* of a request whose signature is valid; a header in it is the operator's choice */
    return true;
}

static bool id_by_place(call *c, hx_slice body, const char **why)
{
    const hx_source *source = c->source;
    hx_slice raw, *id = &c->receipt.event.id;
    if (source->id_header.len > 0) {
        *why = hx_arena_printf(c->arena, "It must be in one header %.*s.", HX_FMT(source->id_header)).ptr;
        return find_header(&c->stream->request.fields, source->id_header, id) == 1;
    }
    *why = hx_arena_printf(c->arena, "It must be at %.*s in the body.", HX_FMT(source->id_pointer)).ptr;
    if (!hx_json_pointer(body, source->id_pointer, &raw)) return false;
    c->receipt.id_is_signed = source->secret_count > 0;
    if (raw.ptr[0] == '"') return hx_json_string(raw, c->arena, id);
    *id = raw;
    return raw.ptr[0] != '{' && raw.ptr[0] != '[' && raw.ptr[0] != 'n';
}

static bool id_is_usable(hx_slice id)
{
    for (size_t i = 0; i < id.len; i++)
        if (id.ptr[i] <= ' ' || id.ptr[i] > '~') return false;
    return id.len > 0 && id.len <= HX_WEBHOOK_ID_BYTES_MAX;
}

static bool find_id(call *c, const hx_webhook_request *request, const char **why)
{
    const hx_source *source = c->source;
    bool found;
    *why = "The request has none where the scheme expects it.";
    if (source->dedupe_key)
        found = id_by_template(c, request->body, why);
    else if (source->id_header.len > 0 || source->id_pointer.len > 0)
        found = id_by_place(c, request->body, why);
    else
        found = hx_webhook_event_id(&source->scheme, request, c->arena, &c->receipt.event.id, &c->receipt.id_is_signed);
    if (found && !id_is_usable(c->receipt.event.id)) {
        *why = "It must have 1 to 255 visible ASCII characters.";
        found = false;
    }
    return found;
}

/* The application gets what the sender sent, but for what only concerns this connection, or speaks in our name. */
static void keep_headers(call *c)
{
    static const hx_slice ours[] = {{"Host", 4},
                                    {"Content-Length", 14},
                                    {"Content-Type", 12},
                                    {"Expect", 6},
                                    {"Idempotency-Key", 15},
                                    {"X-Correlation-Id", 16},
                                    {"Accept-Encoding", 15},
                                    {"User-Agent", 10}};
    const hx_fields *fields = &c->stream->request.fields;
    hx_texts *kept = &c->receipt.event.headers;
    kept->items = hx_arena_alloc(c->arena, (fields->count + 1u) * sizeof *kept->items);
    for (size_t i = 0; i < fields->count; i++) {
        const hx_field *field = &fields->items[i];
        bool goes_on = hx_field_goes_on(field) && (field->flags & (HX_FIELD_FRAMING | HX_FIELD_ODD)) == 0 &&
                       !hx_slice_starts_nocase(field->name, HX_LIT("hapax-"));
        for (size_t o = 0; o < sizeof ours / sizeof ours[0]; o++)
            goes_on = goes_on && !hx_slice_eq_nocase(field->name, ours[o]);
        if (!goes_on) continue;
        kept->items[kept->count++] = hx_arena_printf(c->arena, "%.*s: %.*s", HX_FMT(field->name), HX_FMT(field->value));
    }
}

static hx_slice correlation_of(call *c)
{
    hx_slice given = HX_EMPTY;
    if (find_header(&c->stream->request.fields, HX_LIT("X-Correlation-Id"), &given) == 1 && hx_is_event_name(given))
        return given;
    uint8_t random[16];
    hx_buf hex;
    hx_rand_bytes(random, sizeof random);
    hx_buf_init(&hex, c->arena, 2 * sizeof random);
    hx_buf_put_hex(&hex, random, sizeof random);
    return hx_buf_slice(&hex);
}

static void handle(call *c)
{
    const hx_source *source = c->source;
    hx_slice body = c->body.len > 0 ? hx_buf_slice(&c->body) : HX_EMPTY;
    hx_webhook_request request = {.find_header = find_header, .user = &c->stream->request.fields, .body = body};
    const char *why;
    if (source->place_count > 0) {
        hx_webhook_result result;
        hx_webhook_rules rules = {.scheme = &source->scheme,
                                  .secrets = source->secrets,
                                  .secret_count = source->secret_count,
                                  .tolerance = source->tolerance};
        hx_webhook_error wrong = hx_webhook_verify(&rules, &request, hx_clock_wall(), c->arena, &result);
        if (wrong != HX_WEBHOOK_OK) {
            const char *header = result.header ? result.header : "";
            refuse_call(c, PROBLEM_SIGNATURE,
                        hx_arena_printf(c->arena, "%s%s%s", hx_webhook_error_text(wrong), *header ? " Header: " : "",
                                        header)
                            .ptr);
            return;
        }
    }
    c->receipt = (hx_receipt){.arena = c->arena, .source = source, .done = receive_done};
    c->receipt.event = (hx_event){.type = HX_EMPTY, .data = body};
    c->receipt.event.content_type = hx_fields_get(&c->stream->request.fields, HX_FIELD_CONTENT_TYPE);
    c->receipt.event.correlation_id = correlation_of(c);
    if (!find_id(c, &request, &why)) {
        refuse_call(c, PROBLEM_ID_MISSING, why);
        return;
    }
    keep_headers(c);
    hx_engine_receive(c->server->engine, &c->receipt);
}

static void go_away(hx_task *task)
{
    handle(HX_OWNER(task, call, task));
}

/* The request is whole: the engine's thread handles it. */
static void hand_over(call *c)
{
    if (!c->ended) {
        handle(c);
        return;
    }
    c->is_away = true;
    c->arena = &c->own;
    c->task.run = go_away;
    hx_loop_post(c->server->loop, &c->task);
}

static void body_broken(hx_stream *stream, unsigned status, const char *detail)
{
    call *c = stream->user;
    stream->events = (hx_stream_events){0};
    if (status != 0) refuse(c->server, stream, PROBLEM_MALFORMED, status, detail);
    end_call(c);
}

static const char too_large[] = "The body is longer than the limit of this source.";

static void take_body(hx_stream *stream, hx_slice piece, bool last)
{
    call *c = stream->user;
    bool has_room = c->server->body_bytes + piece.len <= BODIES_BYTES_MAX;
    bool fits = has_room && hx_buf_append(&c->body, piece);
    if (fits) c->server->body_bytes += piece.len;
    if (fits && !last) return;
    stream->events = (hx_stream_events){0};
    if (!has_room)
        refuse_call(c, PROBLEM_FULL, "Other requests hold all the memory that bodies may have.");
    else if (!fits)
        refuse_call(c, PROBLEM_TOO_LARGE, too_large);
    else
        hand_over(c);
}

static const hx_source *find_source(const hx_inbox_server *server, hx_slice prefix, hx_slice path)
{
    if (!hx_slice_starts(path, prefix)) return NULL;
    hx_slice name = hx_slice_from(path, prefix.len);
    for (size_t i = 0; i < server->source_count; i++)
        if (hx_slice_eq(name, server->sources[i].name)) return &server->sources[i];
    return NULL;
}

/* A request that its head alone refuses. */
static void refuse_head(hx_inbox_server *server, hx_stream *stream, problem what, const char *detail,
                        void (*ended)(void *of), void *of)
{
    refuse(server, stream, what, 0, detail);
    hx_stream_release(stream);
    if (ended) ended(of);
}

/* `ended`: NULL, or a gateway's, which has handed the stream over. */
static void begin(hx_inbox_server *server, hx_stream *stream, hx_slice prefix, void (*ended)(void *of), void *of)
{
    const hx_request_head *head = &stream->request;
    const hx_source *source = find_source(server, prefix, head->path);
    if (!source) {
        refuse_head(server, stream, PROBLEM_SOURCE_UNKNOWN, "The path names no configured source.", ended, of);
        return;
    }
    if (!hx_slice_eq(head->method, HX_LIT("POST"))) {
        refuse_head(server, stream, PROBLEM_METHOD, "Another method came.", ended, of);
        return;
    }
    if (head->content_length > 0 && (uint64_t)head->content_length > source->body_bytes_max) {
        refuse_head(server, stream, PROBLEM_TOO_LARGE, too_large, ended, of);
        return;
    }
    call *c = hx_arena_zalloc(&stream->arena, sizeof *c);
    c->server = server;
    c->stream = stream;
    c->source = source;
    c->arena = &stream->arena;
    c->ended = ended;
    c->ended_of = of;
    hx_buf_init(&c->body, &stream->arena, source->body_bytes_max);
    stream->user = c;
    if (!head->has_body) {
        hand_over(c);
        return;
    }
    stream->events = (hx_stream_events){.body = take_body, .broken = body_broken};
    hx_stream_read(stream);
}

static void request(void *app, hx_stream *stream)
{
    begin(app, stream, HX_LIT(PATH_PREFIX), NULL, NULL);
}

void hx_inbox_server_take(void *context, hx_stream *stream, void (*ended)(void *of), void *of)
{
    hx_inbox_server *server = context;
    begin(server, stream, server->path, ended, of);
}

static void malformed(void *app, hx_stream *stream, unsigned status, const char *detail)
{
    refuse(app, stream, PROBLEM_MALFORMED, status, detail);
    hx_stream_release(stream);
}

hx_inbox_server *hx_inbox_server_new(hx_loop *loop, hx_engine *engine, const hx_source *sources, size_t count)
{
    static const hx_server_handler handler = {.request = request, .malformed = malformed};
    static const hx_server_limits limits = {.connections_max = 1024,
                                            .head_bytes_max = 16u * 1024u,
                                            .fields_max = 100,
                                            .chunk_extension_bytes_max = 4096,
                                            .head_timeout = 10 * HX_SECOND,
                                            .idle_timeout = 60 * HX_SECOND,
                                            .body_rate_min = 1024,
                                            .send_timeout = 10 * HX_SECOND};
    hx_inbox_server *server = calloc(1, sizeof *server);
    if (!server) hx_fatal(HX_EXIT_BUG, "out of memory");
    server->loop = loop;
    server->engine = engine;
    server->sources = sources;
    server->source_count = count;
    server->mac = hx_engine_new_mac(engine);
    server->server = hx_server_new(loop, &limits, &handler, server);
    for (size_t i = 0; i < count; i++) hx_engine_add_source(engine, &sources[i]);
    return server;
}

void hx_inbox_server_set_path(hx_inbox_server *server, hx_slice path)
{
    server->path = path;
}

hx_slice hx_inbox_server_path(const hx_inbox_server *server)
{
    return server->path;
}

bool hx_inbox_server_listen(hx_inbox_server *server, hx_slice address, char bound[HX_ADDRESS_BYTES],
                            hx_error_text error)
{
    int descriptor = hx_listen(address, bound, error);
    if (descriptor < 0) return false;
    hx_server_accept(server->server, descriptor, hx_slice_of(bound));
    return true;
}

static void drained(void *app)
{
    hx_inbox_server *server = app;
    server->stopped(server->stopped_context);
}

void hx_inbox_server_stop(hx_inbox_server *server, void (*stopped)(void *context), void *context)
{
    server->stopped = stopped;
    server->stopped_context = context;
    hx_server_drain(server->server, drained);
}

void hx_inbox_server_free(hx_inbox_server **owned)
{
    hx_inbox_server *server = *owned;
    if (!server) return;
    *owned = NULL;
    hx_server_free(&server->server);
    hx_mac_free(&server->mac);
    free(server);
}
