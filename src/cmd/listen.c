/* SPDX-License-Identifier: Apache-2.0 */
/* hapax listen: a receiver of webhooks and requests for development. It answers every request, prints it with the
 * verdict on its signature, and counts how often each event id comes. Everything that it holds has a limit. */
#include "base/check.h"
#include "base/log.h"
#include "base/memory/list.h"
#include "base/memory/map.h"
#include "cmd/cli/cmd.h"
#include "cmd/listen/view.h"
#include "cmd/receiver.h"
#include "cmd/webhook/mistakes.h"
#include "config/options.h"
#include "core/json/json.h"
#include "core/json/json_writer.h"
#include "gateway/gateway.h"

#include <stdlib.h>
#include <string.h>

#define CONNECTIONS_MAX 256u
#define HELD_BYTES_MAX (64u * 1024u * 1024u)
#define ID_BYTES_MAX 255u
#define IDS_MAX 10000u /* event ids that are remembered; the one that came first is forgotten first */

typedef struct {
    uint32_t seen;
    bool acknowledged; /* a delivery was answered with 2xx */
    uint8_t id_len;
    char id[ID_BYTES_MAX];
} event;

typedef struct {
    hx_received_view view;
    hx_verify_settings settings; /* if view.scheme is set */
    hx_receiver *receiver;
    uint64_t status, fail, delay, count, body_max; /* as the flags have them; count 0: without end */
    hx_received_counts counts;
    uint64_t taken; /* requests that were numbered, answered or not */
    hx_map *events; /* by their ids */
    event *ring;    /* IDS_MAX of them, in the order in which they first came */
} listener;

/* One request, until it is answered. */
typedef struct {
    listener *listener;
    hx_stream *stream;
    hx_received received;
    hx_timer delay;
} delivery;

static event *remember(listener *l, hx_slice id)
{
    event *e = &l->ring[l->counts.ids++ % IDS_MAX];
    if (e->id_len > 0) (void)hx_map_remove(l->events, (hx_slice){e->id, e->id_len});
    *e = (event){.id_len = (uint8_t)id.len};
    memcpy(e->id, id.ptr, id.len);
    (void)hx_map_put(l->events, (hx_slice){e->id, e->id_len}, e);
    HX_CHECK(hx_map_count(l->events) <= IDS_MAX);
    return e;
}

static bool is_id(hx_slice text)
{
    return text.len > 0 && text.len <= ID_BYTES_MAX;
}

static size_t find_header(const void *user, hx_slice name, hx_slice *value)
{
    const hx_fields *fields = user;
    size_t lines = 0;
    for (size_t i = 0; i < fields->count; i++) {
        if (!hx_slice_eq_nocase(name, fields->items[i].name)) continue;
        if (lines++ == 0) *value = fields->items[i].value;
    }
    return lines;
}

/* The event's id where the scheme has it, or else wherever senders do. Empty: there is none. */
static hx_slice event_id(const listener *l, const hx_webhook_request *request, hx_arena *arena)
{
    static const char *const headers[] = {"webhook-id", "svix-id", "X-GitHub-Delivery", "X-Shopify-Webhook-Id",
                                          "Idempotency-Key"};
    static const char *const pointers[] = {"/id", "/event_id", "/eventId"};
    const hx_webhook_scheme *scheme = &l->settings.scheme;
    hx_slice id;
    bool is_signed;
    if (scheme->id_header || scheme->id_pointer)
        return hx_webhook_event_id(scheme, request, arena, &id, &is_signed) && is_id(id) ? id : HX_EMPTY;
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        if (find_header(request->user, hx_slice_of(headers[i]), &id) > 0 && is_id(id)) return id;
    for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++)
        if (hx_json_pointer(request->body, hx_slice_of(pointers[i]), &id) && hx_json_string(id, arena, &id) &&
            is_id(id))
            return id;
    return HX_EMPTY;
}

static void put_sentence(hx_buf *out, const char *text)
{
    if (out->len > 0) hx_buf_puts(out, " ");
    hx_buf_puts(out, text);
}

/* Why the signature is not verified: which check failed, and by which mistake of the receiver, if one explains it. */
static hx_slice explain(const hx_verify_settings *settings, const hx_webhook_request *request,
                        const hx_webhook_result *result, hx_arena *arena)
{
    hx_arena own = {0}; /* the search for mistakes makes variants of the body */
    hx_verify_diagnosis found;
    hx_buf out;
    hx_verify_diagnose(settings, request, result, &own, &found);
    bool is_about_time = result->error == HX_WEBHOOK_STALE || result->error == HX_WEBHOOK_FUTURE;
    hx_buf_init(&out, arena, 8192);
    put_sentence(&out, hx_webhook_error_text(result->error));
    if (result->header) put_sentence(&out, hx_arena_printf(&own, "It is %s.", result->header).ptr);
    if (is_about_time) {
        long long seconds = llabs((long long)result->age) / HX_SECOND;
        const char *way = result->age < 0 ? "ahead of" : "behind";
        put_sentence(&out, hx_arena_printf(&own, "It is %lld s %s the clock here.", seconds, way).ptr);
    }
    for (size_t i = 0; i < found.mistake_count; i++) put_sentence(&out, found.mistakes[i]->text);
    for (size_t i = 0; i < found.hint_count && !is_about_time; i++) put_sentence(&out, found.hints[i]);
    hx_arena_free(&own);
    return hx_buf_slice(&out);
}

static void verify(const listener *l, const hx_webhook_request *request, hx_received *r, hx_arena *arena)
{
    hx_webhook_rules rules = hx_verify_rules(&l->settings);
    hx_webhook_result result;
    hx_webhook_error wrong = hx_webhook_verify(&rules, request, r->at, arena, &result);
    if (wrong == HX_WEBHOOK_OK) return;
    r->error = hx_webhook_error_word(wrong);
    r->detail = hx_arena_terminated(arena, explain(&l->settings, request, &result, arena));
}

static void answer(hx_stream *stream, unsigned status, const char *error)
{
    hx_buf body;
    hx_buf_init(&body, &stream->arena, 4096);
    hx_json_open(&body, NULL, '{');
    hx_json_put_bool(&body, "received", status < 300);
    if (error) hx_json_put_text(&body, "error", hx_slice_of(error));
    hx_json_close(&body, '}');
    hx_buf_puts(&body, "\n");
    hx_stream_answer(stream, status, HX_EMPTY, HX_LIT("Content-Type: application/json\r\n"), hx_buf_slice(&body), true);
}

/* Prints and counts a request whose fate is known, and releases it. */
static void end_delivery(listener *l, hx_stream *stream, const hx_received *received)
{
    hx_received_counts *counts = &l->counts;
    counts->requests++;
    counts->duplicates += received->is_duplicate;
    counts->refused += received->is_refused;
    counts->verified += l->view.scheme && !received->error;
    counts->not_verified += received->error && !received->is_refused;
    hx_received_show(&l->view, received);
    stream->close = stream->close || l->taken == l->count;
    if (received->status > 0) answer(stream, received->status, received->is_refused ? received->detail : NULL);
    hx_stream_release(stream);
    if (counts->requests == l->count) hx_receiver_end(l->receiver);
}

static void respond(hx_timer *timer)
{
    delivery *d = HX_OWNER(timer, delivery, delay);
    event *e = d->received.attempt > 0 ? hx_map_get(d->listener->events, d->received.id) : NULL;
    if (e && d->received.status < 300) e->acknowledged = true;
    d->stream->events = (hx_stream_events){0};
    end_delivery(d->listener, d->stream, &d->received);
}

static void sender_left(hx_stream *stream)
{
    delivery *d = stream->user;
    hx_timer_stop(stream->loop, &d->delay);
    d->received.status = 0;
    end_delivery(d->listener, stream, &d->received);
}

/* Whether it is one of --count; a later one is answered with 503, so that its sender tries again elsewhere. */
static bool take_number(listener *l, hx_stream *stream)
{
    if (l->count > 0 && l->taken == l->count) {
        stream->close = true;
        answer(stream, 503, "As many requests as --count says were received.");
        hx_stream_release(stream);
        return false;
    }
    l->taken++;
    return true;
}

static void take_refused(void *app, hx_stream *stream, unsigned status, const char *detail)
{
    listener *l = app;
    const hx_received received = {
        .at = hx_clock_wall(),
        .head = &stream->request,
        .body = HX_EMPTY,
        .id = HX_EMPTY,
        .is_refused = true,
        .error = "refused",
        .detail = status > 0 ? detail : "The sender left in the middle of the body.",
        .status = status,
    };
    if (take_number(l, stream)) end_delivery(l, stream, &received);
}

static void take_request(void *app, hx_stream *stream, hx_slice body)
{
    listener *l = app;
    if (!take_number(l, stream)) return;
    delivery *d = hx_arena_zalloc(&stream->arena, sizeof *d);
    hx_received *r = &d->received;
    *d = (delivery){.listener = l, .stream = stream};
    *r = (hx_received){.at = hx_clock_wall(), .head = &stream->request, .body = body, .status = (uint32_t)l->status};
    const hx_webhook_request request = {.find_header = find_header, .user = &stream->request.fields, .body = body};
    if (l->view.scheme) verify(l, &request, r, &stream->arena);
    r->id = event_id(l, &request, &stream->arena);
    if (r->id.len > 0) {
        event *e = hx_map_get(l->events, r->id);
        if (!e) e = remember(l, r->id);
        r->attempt = ++e->seen;
        r->is_duplicate = e->acknowledged;
        if (r->attempt <= l->fail) r->status = 503;
    }
    if (l->delay == 0) {
        respond(&d->delay);
        return;
    }
    stream->user = d;
    stream->events = (hx_stream_events){.closed = sender_left};
    hx_timer_start(stream->loop, &d->delay, (hx_ms)l->delay, respond);
}

/* What the flags say. */
typedef struct {
    listener *listener;
    hx_arena *arena;
    hx_verify_flags signatures;
    bool verifies; /* one of these flags is given */
    const char *address;
    const char *error; /* the first mistake */
} arguments;

static const hx_option numbers[] = {
#define X(name_, field_, type_, low_, high_)                                                                           \
    {.name = (name_),                                                                                                  \
     .type = HX_OPTION_##type_,                                                                                        \
     .offset = offsetof(listener, field_),                                                                             \
     .bytes = sizeof(uint64_t),                                                                                        \
     .low = (low_),                                                                                                    \
     .high = (high_)},
    X("status", status, INTEGER, 200, 599) X("fail", fail, INTEGER, 0, 1000000) X("delay", delay, DURATION, 0, HX_HOUR)
        X("count", count, INTEGER, 1, 1000000000) X("body-max", body_max, BYTES, 1, 16777216)
#undef X
};

static void take(void *user, const char *flag, const char *value)
{
    arguments *given = user;
    listener *l = given->listener;
    if (hx_verify_take(&given->signatures, flag, value)) given->verifies = true;
    if (strcmp(flag, "listen") == 0) given->address = value;
    if (strcmp(flag, "json") == 0) l->view.as_json = true;
    if (strcmp(flag, "bodies") == 0) l->view.bodies = true;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && !given->error; i++) {
        uint64_t number;
        if (strcmp(flag, numbers[i].name) != 0) continue;
        const char *wrong = hx_option_read(&numbers[i], hx_slice_of(value), given->arena, &number);
        if (wrong)
            given->error = hx_arena_printf(given->arena, "--%s %s", flag, wrong).ptr;
        else
            hx_option_store(&numbers[i], l, number);
    }
}

static int listen_until_end(listener *l, const char *address)
{
    hx_limits limits;
    hx_option_defaults(HX_PLACE_LIMITS, &limits);
    const hx_receiver_handler handler = {
        .limits = hx_worker_server_limits(&limits, CONNECTIONS_MAX),
        .body_max = (size_t)l->body_max,
        .held_max = HELD_BYTES_MAX,
        .request = take_request,
        .refused = take_refused,
    };
    l->receiver = hx_receiver_open("listen", address);
    if (!l->receiver) return HX_EXIT_ADDRESS;
    l->events = hx_map_new();
    l->ring = calloc(IDS_MAX, sizeof *l->ring);
    if (!l->ring) hx_fatal(HX_EXIT_BUG, "out of memory (event ids)");
    hx_received_begin(&l->view, hx_receiver_url(l->receiver), (unsigned)l->status, (unsigned)l->fail);
    hx_receiver_run(l->receiver, &handler, l);
    hx_received_end(&l->view, &l->counts);
    hx_map_free(&l->events);
    free(l->ring);
    hx_receiver_free(&l->receiver);
    bool is_whole = l->counts.requests >= l->count && l->counts.not_verified + l->counts.refused == 0;
    return l->count == 0 || is_whole ? HX_EXIT_OK : HX_EXIT_NO;
}

static int run(int argc, char **argv, arguments *given)
{
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 0, take, given, &operands);
    if (code >= 0) return code;
    hx_verify_settings *settings = &given->listener->settings;
    hx_slice error;
    if (!given->error && given->verifies && !hx_verify_read(&given->signatures, given->arena, settings, &error))
        given->error = error.ptr;
    if (given->error) return hx_cmd_misused(argv[0], "%s", given->error);
    if (given->verifies) given->listener->view.scheme = settings->scheme.name;
    hx_log_threshold(HX_LOG_ERROR);
    return listen_until_end(given->listener, given->address);
}

int hx_cmd_listen(int argc, char **argv)
{
    hx_arena arena = {0};
    listener l = {.status = 200, .body_max = 1024u * 1024u};
    arguments given = {.listener = &l, .arena = &arena, .address = "127.0.0.1:8090"};
    int code = run(argc, argv, &given);
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return code;
}
