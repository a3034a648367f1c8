/* SPDX-License-Identifier: Apache-2.0 */
/* The listener runs on a thread of its own, so that the main thread can wait for signals. A request is explained as
 * soon as its body is complete, within one callback. */
#include "cmd/explain/listen.h"

#include "base/check.h"
#include "cmd/keys.h"
#include "net/server.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#define PATH_SHOWN 200u

typedef struct {
    const hx_config *config;
    hx_jwks *jwks;
    hx_loop *loop;
    hx_server *server;
    hx_task stop;
    bool as_json;
    size_t body_max;     /* bytes beyond it change no explanation: they are read and dropped */
    uint64_t held_bytes; /* of all bodies; at most limits.memory */
} listener;

typedef struct {
    listener *listener;
    hx_buf body;
} call;

static bool wants_json(const listener *l, const hx_fields *fields)
{
    if (l->as_json) return true;
    const hx_field *accept = hx_fields_find(fields, HX_LIT("Accept"));
    hx_slice rest = accept ? accept->value : HX_EMPTY, type;
    while (hx_slice_next(&rest, ',', &type))
        if (hx_slice_starts_nocase(hx_slice_trim(type), HX_LIT("application/json"))) return true;
    return false;
}

static hx_slice text_of(const hx_dry_run *run, const hx_explanation *explanation, hx_arena *arena)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    if (!out) hx_fatal(HX_EXIT_BUG, "out of memory (an explanation)");
    hx_explain_text(run, explanation, out);
    if (fclose(out) != 0) hx_fatal(HX_EXIT_BUG, "out of memory (an explanation)");
    hx_slice copy = hx_arena_copy(arena, (hx_slice){text, len});
    free(text);
    return copy;
}

/* One line on the terminal: a client may show its user nothing of the answer. */
static void print_summary(const hx_explanation *e, hx_slice path, hx_arena *arena)
{
    (void)printf("%s %s: %s: %.*s\n", e->method.len > 0 ? hx_keys_clean(e->method, arena) : "?",
                 hx_keys_clean(hx_slice_first(path, PATH_SHOWN), arena), e->does, HX_FMT(e->why));
    (void)fflush(stdout);
}

static void answer(listener *l, hx_stream *stream, unsigned status, hx_dry_run *run)
{
    hx_explanation explanation;
    hx_slice body, lines = HX_LIT("Content-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n");
    hx_explain(run, &explanation);
    if (wants_json(l, &stream->request.fields)) {
        hx_buf json;
        hx_buf_init(&json, &stream->arena, hx_explain_json_max(l->config));
        hx_explain_json(run, &explanation, &json);
        body = hx_buf_slice(&json);
        lines = HX_LIT("Content-Type: application/json\r\nCache-Control: no-store\r\n");
    } else {
        body = text_of(run, &explanation, &stream->arena);
    }
    print_summary(&explanation, stream->request.path, &stream->arena);
    hx_dry_run_free(&run);
    hx_stream_answer(stream, status, HX_EMPTY, lines, body, true);
    hx_stream_release(stream);
}

static void answer_malformed(void *app, hx_stream *stream, unsigned status, const char *detail)
{
    listener *l = app;
    answer(l, stream, status, hx_dry_run_malformed(l->config, (hx_h1_fault){.status = status, .detail = detail}));
}

static void end_call(hx_stream *stream, call *c)
{
    c->listener->held_bytes -= c->body.len;
    stream->events = (hx_stream_events){0};
}

static void body_broken(hx_stream *stream, unsigned status, const char *detail)
{
    call *c = stream->user;
    end_call(stream, c);
    if (status == 0)
        hx_stream_release(stream); /* the client is gone */
    else
        answer_malformed(c->listener, stream, status, detail);
}

static void take_body(hx_stream *stream, hx_slice piece, bool last)
{
    call *c = stream->user;
    listener *l = c->listener;
    piece = hx_slice_first(piece, l->body_max - c->body.len);
    if (l->held_bytes + piece.len > l->config->limits.memory) {
        body_broken(stream, 503, "Other requests hold all of limits.memory; try again.");
        return;
    }
    hx_buf_put(&c->body, piece);
    l->held_bytes += piece.len;
    if (!last) return;
    hx_slice body = c->body.len > 0 ? hx_buf_slice(&c->body) : HX_EMPTY;
    end_call(stream, c);
    answer(l, stream, 200, hx_dry_run_parsed(l->config, l->jwks, &stream->request, body));
}

static void start_call(void *app, hx_stream *stream)
{
    listener *l = app;
    if (!stream->request.has_body) {
        answer(l, stream, 200, hx_dry_run_parsed(l->config, l->jwks, &stream->request, HX_EMPTY));
        return;
    }
    call *c = hx_arena_zalloc(&stream->arena, sizeof *c);
    c->listener = l;
    hx_buf_init(&c->body, &stream->arena, l->body_max);
    stream->user = c;
    stream->events = (hx_stream_events){.body = take_body, .broken = body_broken};
    hx_stream_read(stream);
}

static void drained(void *app)
{
    hx_loop_stop(((listener *)app)->loop);
}

static void stop(hx_task *task)
{
    listener *l = HX_OWNER(task, listener, stop);
    hx_server_drain(l->server, drained);
    hx_server_cut(l->server);
}

static void serve(listener *l, int descriptor, const char *bound, const sigset_t *ends)
{
    static const hx_server_handler handler = {.request = start_call, .malformed = answer_malformed};
    const hx_limits *limits = &l->config->limits;
    const hx_server_limits for_clients = hx_worker_server_limits(limits, limits->connections);
    bool is_unix = hx_slice_starts(hx_slice_of(bound), HX_LIT("unix:"));
    int number = 0;
    l->loop = hx_loop_new();
    l->stop.run = stop;
    l->server = hx_server_new(l->loop, &for_clients, &handler, l);
    hx_server_accept(l->server, descriptor, hx_slice_of(bound));
    pthread_t thread = hx_loop_start(l->loop);
    (void)printf("Listening on %s%s: every request is answered with its explanation; nothing is forwarded, nothing is "
                 "stored. Ctrl-C ends it.\n",
                 is_unix ? "" : "http://", bound);
    (void)fflush(stdout);
    while (sigwait(ends, &number) != 0) continue;
    hx_loop_post(l->loop, &l->stop);
    (void)pthread_join(thread, NULL);
    hx_server_free(&l->server);
    hx_loop_free(&l->loop);
}

int hx_explain_listen(const hx_config *config, const char *address, bool as_json)
{
    listener l = {.config = config, .as_json = as_json, .body_max = hx_dry_run_body_max(config)};
    char bound[HX_ADDRESS_BYTES];
    hx_error_text error;
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, NULL); /* before any thread exists: they inherit it */
    if (!hx_dry_run_open_keys(config, &l.jwks, error)) {
        (void)fprintf(stderr, "hapax explain: %s\n", error);
        return HX_EXIT_USAGE;
    }
    int descriptor = hx_listen(hx_slice_of(address), bound, error);
    if (descriptor >= 0)
        serve(&l, descriptor, bound, &ends);
    else
        (void)fprintf(stderr, "hapax explain: %s\n", error);
    hx_jwks_free(&l.jwks);
    return descriptor >= 0 ? HX_EXIT_OK : HX_EXIT_ADDRESS;
}
