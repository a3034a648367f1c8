/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/receiver.h"

#include "base/check.h"
#include "base/memory/list.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct hx_receiver {
    const hx_receiver_handler *handler;
    void *app;
    hx_loop *loop;
    hx_server *server;
    int descriptor; /* listening; -1 once the server has it */
    int signals;
    hx_timer last_call; /* runs from hx_receiver_end on */
    uint64_t held_bytes;
    char url[HX_ADDRESS_BYTES + sizeof "http://"];
};

typedef struct {
    hx_receiver *receiver;
    hx_buf body;
} call;

static void give_back(void *what)
{
    call *c = what;
    c->receiver->held_bytes -= c->body.len;
}

static void refuse(void *app, hx_stream *stream, unsigned status, const char *detail)
{
    hx_receiver *receiver = app;
    receiver->handler->refused(receiver->app, stream, status, detail);
}

static void body_broken(hx_stream *stream, unsigned status, const char *detail)
{
    const call *c = stream->user;
    stream->events = (hx_stream_events){0};
    refuse(c->receiver, stream, status, detail);
}

static void take_body(hx_stream *stream, hx_slice piece, bool last)
{
    call *c = stream->user;
    hx_receiver *receiver = c->receiver;
    const hx_receiver_handler *handler = receiver->handler;
    size_t space = handler->body_max - c->body.len;
    if (piece.len > space && !handler->drops_rest) {
        body_broken(stream, 413, "The body is longer than the limit.");
        return;
    }
    piece = hx_slice_first(piece, space);
    if (receiver->held_bytes + piece.len > handler->held_max) {
        body_broken(stream, 503, "Other requests hold all the memory that bodies may have; try again.");
        return;
    }
    hx_buf_put(&c->body, piece);
    receiver->held_bytes += piece.len;
    if (!last) return;
    stream->events = (hx_stream_events){0};
    handler->request(receiver->app, stream, c->body.len > 0 ? hx_buf_slice(&c->body) : HX_EMPTY);
}

static void start_call(void *app, hx_stream *stream)
{
    hx_receiver *receiver = app;
    const hx_receiver_handler *handler = receiver->handler;
    const hx_request_head *request = &stream->request;
    if (!request->has_body) {
        handler->request(receiver->app, stream, HX_EMPTY);
        return;
    }
    if (!handler->drops_rest && request->content_length > (int64_t)handler->body_max) {
        refuse(receiver, stream, 413, "The body is longer than the limit.");
        return;
    }
    call *c = hx_arena_zalloc(&stream->arena, sizeof *c);
    c->receiver = receiver;
    hx_buf_init(&c->body, &stream->arena, handler->body_max);
    hx_arena_at_end(&stream->arena, give_back, c);
    stream->user = c;
    stream->events = (hx_stream_events){.body = take_body, .broken = body_broken};
    hx_stream_read(stream);
}

static void drained(void *app)
{
    hx_receiver *receiver = app;
    hx_timer_stop(receiver->loop, &receiver->last_call);
    hx_loop_stop(receiver->loop);
}

static void cut(hx_timer *timer)
{
    hx_server_cut(HX_OWNER(timer, hx_receiver, last_call)->server);
}

void hx_receiver_end(hx_receiver *receiver)
{
    if (hx_timer_running(&receiver->last_call)) return;
    hx_timer_start(receiver->loop, &receiver->last_call, HX_SECOND, cut);
    hx_server_drain(receiver->server, drained);
}

static void take_signal(void *context, unsigned events)
{
    hx_receiver *receiver = context;
    struct signalfd_siginfo about;
    (void)events;
    if (read(receiver->signals, &about, sizeof about) != (ssize_t)sizeof about) return;
    hx_server_drain(receiver->server, drained);
    hx_server_cut(receiver->server);
}

static void complain(const char *command, const char *error, bool in_use)
{
    (void)fprintf(stderr, "hapax %s: %s%s\n", command, error,
                  in_use ? ". Stop it, or choose another port with --listen; port 0 is any that is free." : "");
}

hx_receiver *hx_receiver_open(const char *command, const char *address)
{
    char bound[HX_ADDRESS_BYTES];
    hx_error_text error;
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    int descriptor = hx_listen(hx_slice_of(address), bound, error);
    if (descriptor < 0) {
        complain(command, error, errno == EADDRINUSE);
        return NULL;
    }
    hx_receiver *receiver = calloc(1, sizeof *receiver);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    int signals = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
    if (!receiver || signals < 0) hx_fatal(HX_EXIT_BUG, "can't wait for signals: %s", strerror(errno));
    bool is_unix = hx_slice_starts(hx_slice_of(bound), HX_LIT("unix:"));
    (void)snprintf(receiver->url, sizeof receiver->url, "%s%s", is_unix ? "" : "http://", bound);
    receiver->loop = hx_loop_new();
    receiver->descriptor = descriptor;
    receiver->signals = signals;
    return receiver;
}

const char *hx_receiver_url(const hx_receiver *receiver)
{
    return receiver->url;
}

void hx_receiver_run(hx_receiver *receiver, const hx_receiver_handler *handler, void *app)
{
    static const hx_server_handler events = {.request = start_call, .malformed = refuse};
    receiver->handler = handler;
    receiver->app = app;
    receiver->server = hx_server_new(receiver->loop, &handler->limits, &events, receiver);
    hx_slice url = hx_slice_of(receiver->url);
    hx_slice bound = hx_slice_starts(url, HX_LIT("http://")) ? hx_slice_from(url, strlen("http://")) : url;
    hx_server_accept(receiver->server, receiver->descriptor, bound);
    receiver->descriptor = -1;
    hx_poll *signals = hx_poll_new(receiver->loop, receiver->signals, take_signal, receiver);
    hx_poll_for(signals, HX_POLL_READ);
    hx_loop_run(receiver->loop);
    hx_poll_free(&signals);
    hx_server_free(&receiver->server);
}

void hx_receiver_free(hx_receiver **owned)
{
    hx_receiver *receiver = *owned;
    if (!receiver) return;
    *owned = NULL;
    if (receiver->descriptor >= 0) hx_unlisten(receiver->descriptor);
    hx_loop_free(&receiver->loop);
    (void)close(receiver->signals);
    free(receiver);
}
