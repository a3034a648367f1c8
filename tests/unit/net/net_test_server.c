/* SPDX-License-Identifier: Apache-2.0 */
/* A server for the tests: what it does is chosen by the path, and what it hears it prints, one line an event.
 *
 *   net_test_server ADDRESS… [limit=value…]
 *
 *   /echo          reads the body, then answers with the request line, Host, the names of fields and the body
 *   /pause         the same, but pauses after every piece until the next turn but one
 *   /now           answers at once and never reads the body; ?code= ?size= ?close=1 to end the connection
 *   /later         the same, but after ?ms=
 *   /begin         an answer in pieces: ?code= ?size= ?piece= ?length=1 to announce it ?cut= to end it too early
 *   /duplex        sends every piece of the body back as it comes
 *   /tunnel        101, then an echo      /abort  half an answer      /drop  no answer      /hold  never answers
 *   /stats         connections and resident KiB */
#include "base/check.h"
#include "base/memory/list.h"
#include "base/loop/loop_uv.h"
#include "base/program/process.h"
#include "net/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

static hx_server *server;
static hx_loop *loop;
static bool quiet;
static char filler[64 * 1024];

typedef struct {
    hx_stream *stream;
    hx_buf body;
    hx_timer timer;
    unsigned code;
    size_t left, piece;
    bool tunnel;
} work;

#define say(...)                                                                                                       \
    do {                                                                                                               \
        if (quiet) break;                                                                                              \
        (void)printf(__VA_ARGS__);                                                                                     \
        (void)fflush(stdout);                                                                                          \
    } while (0)

static uint64_t number(hx_slice query, const char *name, uint64_t otherwise)
{
    hx_slice part, rest = query;
    while (hx_slice_next(&rest, '&', &part)) {
        size_t is = hx_slice_find(part, '=');
        uint64_t value;
        if (is == SIZE_MAX || !hx_slice_eq(hx_slice_first(part, is), hx_slice_of(name))) continue;
        if (hx_slice_to_u64(hx_slice_from(part, is + 1), &value)) return value;
    }
    return otherwise;
}

static void answer_text(hx_stream *stream, unsigned status, hx_slice body)
{
    hx_stream_answer(stream, status, HX_EMPTY, HX_LIT("Content-Type: text/plain\r\n"), body, true);
    hx_stream_release(stream);
}

static void answer_echo(work *w)
{
    const hx_request_head *request = &w->stream->request;
    hx_buf out;
    hx_buf_init(&out, &w->stream->arena, SIZE_MAX / 2);
    bool fits = hx_buf_printf(&out, "%.*s %.*s path=%.*s query=%.*s%s host=%.*s peer=%.*s keep=%d\n",
                              HX_FMT(request->method), HX_FMT(request->target), HX_FMT(request->path),
                              HX_FMT(request->query), request->has_query ? "" : "(none)",
                              HX_FMT(hx_fields_get(&request->fields, HX_FIELD_HOST)),
                              HX_FMT(hx_peer_text(&w->stream->peer)), request->keep_alive);
    HX_CHECK(fits);
    for (size_t i = 0; i < request->fields.count; i++) {
        const hx_field *field = &request->fields.items[i];
        fits = hx_buf_printf(&out, "%.*s=<%.*s>%s\n", HX_FMT(field->name), HX_FMT(field->value),
                             field->flags & HX_FIELD_HOP ? " hop" : "");
        HX_CHECK(fits);
    }
    hx_buf_puts(&out, "\n");
    hx_buf_put(&out, hx_buf_slice(&w->body));
    answer_text(w->stream, 200, hx_buf_slice(&out));
}

static void resume_later(hx_timer *timer)
{
    hx_stream_resume(HX_OWNER(timer, work, timer)->stream);
}

static void body_came(hx_stream *stream, hx_slice piece, bool last)
{
    work *w = stream->user;
    hx_buf_put(&w->body, piece);
    if (last) {
        say("body %zu\n", w->body.len);
        hx_timer_stop(loop, &w->timer);
        answer_echo(w);
    } else if (hx_slice_eq(stream->request.path, HX_LIT("/pause"))) {
        hx_stream_pause(stream);
        hx_timer_start(loop, &w->timer, 1, resume_later);
    }
}

static void body_broken(hx_stream *stream, unsigned status, const char *detail)
{
    work *w = stream->user;
    say("broken %u %s\n", status, detail);
    hx_timer_stop(loop, &w->timer);
    if (status == 0 || stream->answered)
        hx_stream_release(stream);
    else
        answer_text(stream, status, hx_slice_of(detail));
}

static void client_left(hx_stream *stream)
{
    work *w = stream->user;
    say("closed %.*s\n", HX_FMT(stream->request.target));
    hx_timer_stop(loop, &w->timer);
    hx_stream_release(stream);
}

static void write_more(hx_stream *stream)
{
    work *w = stream->user;
    while (w->left > 0) {
        size_t bytes = w->piece < w->left ? w->piece : w->left;
        w->left -= bytes;
        if (!hx_stream_write(stream, (hx_slice){filler, bytes})) return;
    }
    hx_stream_end(stream);
    hx_stream_release(stream);
}

static void drained(hx_stream *stream)
{
    say("drained\n");
    write_more(stream);
}

static void begin(work *w)
{
    hx_stream *stream = w->stream;
    hx_slice query = stream->request.query;
    uint64_t size = number(query, "size", 0);
    bool announced = number(query, "length", 0);
    w->piece = number(query, "piece", 16384);
    w->left = size - number(query, "cut", 0);
    hx_stream_begin(stream, (unsigned)number(query, "code", 200), HX_EMPTY, HX_EMPTY, announced ? (int64_t)size : -1);
    stream->events.drained = drained;
    write_more(stream);
}

static void now(work *w)
{
    hx_slice query = w->stream->request.query;
    uint64_t size = number(query, "size", 3);
    char *body = hx_arena_alloc(&w->stream->arena, size);
    memset(body, 'n', size);
    w->stream->close = number(query, "close", 0);
    answer_text(w->stream, (unsigned)number(query, "code", 200), (hx_slice){body, size});
}

static void later(hx_timer *timer)
{
    now(HX_OWNER(timer, work, timer));
}

static void send_back(hx_stream *stream, hx_slice piece, bool last)
{
    if (!hx_stream_write(stream, piece)) hx_stream_pause(stream);
    if (!last) return;
    hx_stream_end(stream);
    hx_stream_release(stream);
}

static void go_on(hx_stream *stream)
{
    hx_stream_resume(stream);
}

static void talk_back(work *w, unsigned status)
{
    hx_stream *stream = w->stream;
    hx_slice lines = status == 101 ? HX_LIT("Upgrade: echo\r\n") : HX_EMPTY;
    hx_stream_begin(stream, status, HX_EMPTY, lines, -1);
    stream->events.body = send_back;
    stream->events.drained = go_on;
    if (status == 101)
        hx_stream_tunnel(stream);
    else
        hx_stream_read(stream);
}

static void stats(work *w)
{
    char line[128];
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || !fgets(line, sizeof line, file)) abort();
    (void)fclose(file);
    hx_slice rest = hx_slice_of(line), part;
    uint64_t pages;
    for (int skip = 0; skip < 2; skip++)
        if (!hx_slice_next(&rest, ' ', &part)) abort();
    if (!hx_slice_to_u64(part, &pages)) abort();
    uint64_t resident = pages * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
    hx_slice text = hx_arena_printf(&w->stream->arena, "%u %lu\n", hx_server_connections(server), resident);
    answer_text(w->stream, 200, text);
}

static void request_came(void *app, hx_stream *stream)
{
    (void)app;
    hx_slice path = stream->request.path;
    say("request %.*s %.*s\n", HX_FMT(stream->request.method), HX_FMT(stream->request.target));
    if (hx_slice_eq(path, HX_LIT("/fast"))) { /* for measuring */
        answer_text(stream, 200, HX_LIT("hello, world"));
        return;
    }
    work *w = hx_arena_zalloc(&stream->arena, sizeof *w);
    w->stream = stream;
    hx_buf_init(&w->body, &stream->arena, SIZE_MAX / 2);
    stream->user = w;
    stream->events.broken = body_broken;
    stream->events.closed = client_left;
    if (hx_slice_eq(path, HX_LIT("/now"))) {
        now(w);
    } else if (hx_slice_eq(path, HX_LIT("/later"))) {
        hx_timer_start(loop, &w->timer, (hx_ms)number(stream->request.query, "ms", 10), later);
    } else if (hx_slice_eq(path, HX_LIT("/begin"))) {
        begin(w);
    } else if (hx_slice_eq(path, HX_LIT("/duplex"))) {
        talk_back(w, 200);
    } else if (hx_slice_eq(path, HX_LIT("/tunnel"))) {
        talk_back(w, 101);
    } else if (hx_slice_eq(path, HX_LIT("/stats"))) {
        stats(w);
    } else if (hx_slice_eq(path, HX_LIT("/abort"))) {
        hx_stream_begin(stream, 200, HX_EMPTY, HX_EMPTY, -1);
        (void)hx_stream_write(stream, (hx_slice){filler, 5000});
        hx_stream_abort(stream);
        hx_stream_release(stream);
    } else if (hx_slice_eq(path, HX_LIT("/drop"))) {
        hx_stream_release(stream);
    } else if (!hx_slice_eq(path, HX_LIT("/hold"))) {
        stream->events.body = body_came;
        hx_stream_read(stream);
    }
}

static void malformed(void *app, hx_stream *stream, unsigned status, const char *detail)
{
    (void)app;
    say("malformed %u %s\n", status, detail);
    answer_text(stream, status, hx_slice_of(detail));
}

static void all_gone(void *app)
{
    (void)app;
    say("all gone\n");
    hx_loop_stop(loop);
}

static void told_to_end(uv_signal_t *signal, int which)
{
    (void)signal;
    (void)which;
    say("draining\n");
    hx_server_drain(server, all_gone);
}

static void set_limit(hx_server_limits *limits, hx_slice name, uint64_t value)
{
    if (hx_slice_eq(name, HX_LIT("connections"))) limits->connections_max = (uint32_t)value;
    if (hx_slice_eq(name, HX_LIT("head"))) limits->head_timeout = (hx_ms)value;
    if (hx_slice_eq(name, HX_LIT("idle"))) limits->idle_timeout = (hx_ms)value;
    if (hx_slice_eq(name, HX_LIT("rate"))) limits->body_rate_min = (uint32_t)value;
    if (hx_slice_eq(name, HX_LIT("send"))) limits->send_timeout = (hx_ms)value;
    if (hx_slice_eq(name, HX_LIT("quiet"))) quiet = value;
}

int main(int count, char **arguments)
{
    hx_process_init();
    hx_server_limits limits = {.connections_max = 100000,
                               .head_bytes_max = 32 * 1024,
                               .fields_max = 100,
                               .chunk_extension_bytes_max = 4096,
                               .head_timeout = HX_HOUR, /* far beyond what a test waits for: none may pass by one */
                               .idle_timeout = HX_HOUR,
                               .body_rate_min = 0,
                               .send_timeout = HX_HOUR};
    memset(filler, 'f', sizeof filler);
    for (int i = 1; i < count; i++) {
        hx_slice argument = hx_slice_of(arguments[i]);
        size_t is = hx_slice_find(argument, '=');
        uint64_t value;
        if (is != SIZE_MAX && hx_slice_to_u64(hx_slice_from(argument, is + 1), &value))
            set_limit(&limits, hx_slice_first(argument, is), value);
    }
    loop = hx_loop_new();
    uv_signal_t term;
    uv_signal_init(hx_loop_uv(loop), &term);
    uv_signal_start(&term, told_to_end, SIGTERM);
    hx_server_handler handler = {.request = request_came, .malformed = malformed};
    server = hx_server_new(loop, &limits, &handler, NULL);
    for (int i = 1; i < count; i++) {
        if (strchr(arguments[i], '=')) continue;
        char bound[HX_ADDRESS_BYTES];
        hx_error_text error;
        int listening = hx_listen(hx_slice_of(arguments[i]), bound, error);
        if (listening < 0) {
            (void)fprintf(stderr, "%s\n", error);
            return HX_EXIT_ADDRESS;
        }
        hx_server_accept(server, listening, hx_slice_of(bound));
        printf("listening %s\n", bound);
    }
    (void)fflush(stdout);
    hx_loop_run(loop);
    hx_server_free(&server);
    hx_loop_free(&loop);
    hx_arena_pool_drain();
    return 0;
}
