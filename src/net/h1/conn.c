/* SPDX-License-Identifier: Apache-2.0 */
/* Reads from a client, and decides what happens to its connection.
 *
 * One loop, run(), is called whenever something has happened to a connection, and takes steps until none is left.
 * Handlers are called only from there, so never from inside a function of server.h: those note what is wanted and call
 * hx_h1_conn_kick. Steps don't recurse, so a hundred pipelined requests need no stack. */
#include "net/h1/conn.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLANK_LINES_MAX 2u
#define BODY_RATE_WINDOW (10 * HX_SECOND)
#define DISCARD_TIME (5 * HX_SECOND)
/* After our side is closed, how long the client may be silent, and how many such periods there are in all. */
#define LINGER_TIME (5 * HX_SECOND)
#define LINGER_TIMES 6u
/* A connection that was just made when a drain began gets this long to send its first request. */
#define DRAIN_GRACE HX_SECOND

static void run(hx_h1_conn *conn);

static void free_if_done(hx_h1_conn *conn)
{
    if (!conn->closed || conn->queued_task || conn->running || conn->stream) return;
    hx_buf_free(&conn->held);
    free(conn);
}

static void run_task(hx_task *task)
{
    hx_h1_conn *conn = HX_OWNER(task, hx_h1_conn, task);
    conn->queued_task = false;
    run(conn);
    free_if_done(conn);
}

void hx_h1_conn_kick(hx_h1_conn *conn)
{
    if (conn->running || conn->queued_task) return;
    conn->queued_task = true;
    hx_loop_defer(conn->base.server->loop, &conn->task);
}

static hx_h1_conn *conn_of(hx_transport *transport)
{
    return HX_OWNER(transport, hx_h1_conn, base.transport);
}

static void closed(hx_transport *transport)
{
    hx_h1_conn *conn = conn_of(transport);
    hx_server *server = conn->base.server;
    conn->closed = true;
    hx_list_remove(&conn->base.link);
    free_if_done(conn);
    server->count--;
    hx_server_gone(server);
}

void hx_h1_conn_lose(hx_h1_conn *conn, bool reset)
{
    if (conn->lost) return;
    conn->lost = true;
    hx_timer_stop(conn->base.server->loop, &conn->timer);
    hx_transport_close(&conn->base.transport, reset);
    if (conn->stream) hx_h1_conn_kick(conn);
}

void hx_h1_conn_sink(hx_h1_conn *conn)
{
    conn->in = HX_IN_SINK;
    conn->close = true;
    conn->input = HX_EMPTY;
}

bool hx_h1_conn_must_close(const hx_h1_conn *conn)
{
    const hx_h1_stream *stream = conn->stream;
    const hx_request_head *request = &stream->pub.request;
    if (conn->close || stream->pub.close || conn->base.server->draining || !request->keep_alive) return true;
    if (conn->in != HX_IN_BODY || hx_h1_body_whole(&conn->body)) return false;
    /* A client that got no 100 Continue may send its body or not: the next bytes are ambiguous. */
    if (request->expects_continue && !stream->continued && conn->input.len == 0) return true;
    uint64_t left = hx_h1_body_left(&conn->body);
    return left != UINT64_MAX && left > HX_DISCARD_BYTES + conn->input.len;
}

void hx_h1_conn_answer_ended(hx_h1_conn *conn)
{
    if (conn->in != HX_IN_BODY) return;
    if (hx_h1_body_whole(&conn->body)) {
        conn->in = HX_IN_WHOLE;
    } else if (conn->close) {
        hx_h1_conn_sink(conn);
    } else {
        conn->in = HX_IN_DISCARD;
        conn->discarded = 0;
    }
}

/* Closing while the client still sends would reset the connection, and the client could lose the response: so our side
 * is closed first, and input is dropped until the client has closed its own. */
static void close_gently(hx_h1_conn *conn, bool client_expects_it)
{
    bool nothing_comes = conn->eof || (client_expects_it && conn->in == HX_IN_WHOLE && conn->input.len == 0);
    if (nothing_comes) {
        hx_h1_conn_lose(conn, false);
        return;
    }
    hx_transport_shut(&conn->base.transport);
    hx_h1_conn_sink(conn);
    conn->strikes = 0;
}

/* The response was sent: on to the next request, or to the end. */
static void finish(hx_h1_conn *conn)
{
    hx_h1_stream *stream = conn->stream;
    bool client_expects_close = !stream->pub.request.keep_alive;
    conn->stream = NULL;
    hx_h1_stream_detach(stream);
    conn->deadline = HX_DEADLINE_NONE;
    if (conn->close)
        close_gently(conn, client_expects_close);
    else if (conn->in != HX_IN_DISCARD)
        conn->in = HX_IN_HEAD;
}

/* Reports a lost connection to its stream: as a broken body while the body is being read, else as closed. */
static bool report_lost(hx_h1_conn *conn)
{
    hx_h1_stream *stream = conn->stream;
    if (!stream) return false;
    bool mid_body = conn->in == HX_IN_BODY && stream->reading && !hx_h1_body_whole(&conn->body);
    conn->stream = NULL;
    stream->conn = NULL;
    if (stream->released) {
        hx_h1_stream_detach(stream);
        return false;
    }
    if (stream->aborted) return false;
    if (mid_body && stream->pub.events.broken)
        stream->pub.events.broken(&stream->pub, 0, "The client left before its request was whole.");
    else if (stream->pub.events.closed)
        stream->pub.events.closed(&stream->pub);
    return false;
}

static void refuse(hx_h1_conn *conn, hx_h1_stream *stream, hx_h1_fault fault)
{
    hx_h1_conn_sink(conn);
    stream->continued = true;
    stream->pub.request.keep_alive = false;
    stream->is_head = hx_slice_eq(stream->pub.request.method, HX_LIT("HEAD"));
    conn->base.server->handler.malformed(conn->base.server->app, &stream->pub, fault.status, fault.detail);
}

static hx_h1_stream *begin_stream(hx_h1_conn *conn)
{
    hx_h1_stream *stream = hx_h1_stream_new(conn);
    conn->stream = stream;
    conn->close = conn->late = false;
    conn->blank_lines = 0;
    conn->requests++;
    return stream;
}

static void begin_request(hx_h1_conn *conn)
{
    const hx_server_limits *limits = &conn->base.server->limits;
    hx_h1_scan scan = conn->scan;
    hx_h1_stream *stream = begin_stream(conn);
    hx_stream *pub = &stream->pub;
    hx_slice head = hx_arena_copy(&pub->arena, hx_slice_first(conn->input, scan.at));
    conn->input = hx_slice_from(conn->input, scan.at);
    conn->scan = (hx_h1_scan){0};
    hx_h1_fault fault;
    if (!hx_h1_parse_request(&pub->request, &pub->arena, head, scan.lines, limits->fields_max, &fault)) {
        refuse(conn, stream, fault);
        return;
    }
    stream->is_head = hx_slice_eq(pub->request.method, HX_LIT("HEAD"));
    conn->in = HX_IN_BODY;
    hx_h1_body_init(&conn->body, &pub->request, limits->chunk_extension_bytes_max, limits->head_bytes_max);
    conn->base.server->handler.request(conn->base.server->app, pub);
}

static void skip_blank_lines(hx_h1_conn *conn)
{
    while (conn->scan.at == 0 && conn->blank_lines < BLANK_LINES_MAX && hx_slice_starts(conn->input, HX_LIT("\r\n"))) {
        conn->blank_lines++;
        conn->input = hx_slice_from(conn->input, 2);
    }
}

static bool step_head(hx_h1_conn *conn)
{
    skip_blank_lines(conn);
    hx_h1_fault fault = {408, "The request's head did not come in time."};
    hx_h1_result result = conn->input.len == 0 ? HX_H1_MORE
                                               : hx_h1_scan_head(&conn->scan, conn->input,
                                                                 conn->base.server->limits.head_bytes_max, &fault);
    if (result == HX_H1_WHOLE) {
        begin_request(conn);
        return true;
    }
    if (result == HX_H1_MORE) {
        if (conn->eof || (conn->late && conn->input.len == 0)) {
            hx_h1_conn_lose(conn, false);
            return true;
        }
        if (!conn->late) return false;
    }
    refuse(conn, begin_stream(conn), fault);
    return true;
}

static void break_body(hx_h1_conn *conn, hx_h1_fault fault)
{
    hx_h1_stream *stream = conn->stream;
    hx_h1_conn_sink(conn);
    stream->continued = true;
    if (stream->released) return;
    if (stream->pub.events.broken)
        stream->pub.events.broken(&stream->pub, fault.status, fault.detail);
    else
        hx_h1_conn_lose(conn, true);
}

static void give_body(hx_h1_conn *conn, hx_slice piece, bool last)
{
    hx_h1_stream *stream = conn->stream;
    if (last) conn->in = HX_IN_WHOLE;
    stream->continued = true;
    if (stream->pub.events.body && !stream->released) stream->pub.events.body(&stream->pub, piece, last);
}

static bool step_body(hx_h1_conn *conn)
{
    hx_h1_stream *stream = conn->stream;
    HX_CHECK(stream); /* a body is read for its stream alone */
    if (!stream->reading || stream->paused) return false;
    hx_slice piece = HX_EMPTY;
    hx_h1_fault fault;
    switch (hx_h1_body_next(&conn->body, &conn->input, &piece, &fault)) {
    case HX_H1_BODY_PIECE: give_body(conn, piece, hx_h1_body_whole(&conn->body)); return true;
    case HX_H1_BODY_END: give_body(conn, HX_EMPTY, true); return true;
    case HX_H1_BODY_BAD: break_body(conn, fault); return true;
    case HX_H1_BODY_MORE: break;
    }
    if (conn->eof) {
        hx_h1_conn_lose(conn, false);
        return true;
    }
    if (!conn->late) return false;
    break_body(conn, (hx_h1_fault){408, "The request's body came too slowly."});
    return true;
}

static bool step_discard(hx_h1_conn *conn)
{
    hx_slice piece = HX_EMPTY;
    hx_h1_fault fault;
    switch (hx_h1_body_next(&conn->body, &conn->input, &piece, &fault)) {
    case HX_H1_BODY_PIECE:
        conn->discarded += (uint32_t)piece.len;
        if (conn->discarded <= HX_DISCARD_BYTES) return true;
        break;
    case HX_H1_BODY_END:
        conn->in = conn->stream ? HX_IN_WHOLE : HX_IN_HEAD;
        conn->deadline = HX_DEADLINE_NONE;
        return true;
    case HX_H1_BODY_MORE:
        if (!conn->eof) return false;
        break;
    case HX_H1_BODY_BAD: break;
    }
    hx_h1_conn_sink(conn);
    if (!conn->stream) close_gently(conn, false);
    return true;
}

static bool step_tunnel(hx_h1_conn *conn)
{
    hx_h1_stream *stream = conn->stream;
    HX_CHECK(stream);
    if (stream->paused) return false;
    if (conn->input.len > 0) {
        hx_slice piece = conn->input;
        conn->input = HX_EMPTY;
        give_body(conn, piece, false);
        return true;
    }
    if (!conn->eof) return false;
    give_body(conn, HX_EMPTY, true);
    return true;
}

static bool step_answer(hx_h1_conn *conn)
{
    hx_h1_stream *stream = conn->stream;
    if (stream->held_back && conn->base.transport.unsent < HX_WAITING_LOW) {
        stream->held_back = false;
        if (stream->pub.events.drained && !stream->released) stream->pub.events.drained(&stream->pub);
        return true;
    }
    if (conn->base.transport.unsent > 0) return false;
    if (stream->out == HX_OUT_FILE) {
        hx_h1_stream_send_file(stream);
        return true;
    }
    if (stream->out != HX_OUT_ENDED) return false;
    if (conn->in == HX_IN_TUNNEL && !stream->released) { /* the client may still send */
        hx_transport_shut(&conn->base.transport);
        return false;
    }
    finish(conn);
    return true;
}

/* Takes one step; false when there is none to take. */
static bool step(hx_h1_conn *conn)
{
    if (conn->lost) return report_lost(conn);
    if (conn->stream && step_answer(conn)) return true;
    switch (conn->in) {
    case HX_IN_HEAD: return step_head(conn);
    case HX_IN_BODY: return step_body(conn);
    case HX_IN_TUNNEL: return step_tunnel(conn);
    case HX_IN_DISCARD: return step_discard(conn);
    case HX_IN_WHOLE: return false;
    case HX_IN_SINK:
        conn->input = HX_EMPTY;
        if (!conn->eof || conn->stream) return false;
        hx_h1_conn_lose(conn, false);
        return true;
    }
    return false;
}

/* Input that isn't used yet moves out of the buffer that all connections share. */
static void keep_input(hx_h1_conn *conn)
{
    if (conn->input.len == 0) {
        conn->input = HX_EMPTY;
        hx_buf_free(&conn->held);
    } else if (conn->input_is_lent) {
        conn->held.len = 0;
        hx_buf_put(&conn->held, conn->input);
        conn->input = hx_buf_slice(&conn->held);
    }
    conn->input_is_lent = false;
}

static void deadline_passed(hx_timer *timer);

/* What only lies in the kernel's buffer doesn't count as read: the kernel takes it in lumps of megabytes, and a client
 * that reads slowly but steadily would seem to make no progress in between. */
static bool reads_too_slowly(const hx_h1_conn *conn)
{
    const hx_server_limits *limits = &conn->base.server->limits;
    uint64_t least = limits->send_rate_min * (uint64_t)limits->send_timeout / HX_SECOND;
    return hx_transport_confirmed(&conn->base.transport) - conn->progress_at < (least > 0 ? least : 1);
}

static hx_deadline wanted_deadline(const hx_h1_conn *conn)
{
    if (conn->base.transport.unsent > 0) return HX_DEADLINE_SEND;
    switch (conn->in) {
    case HX_IN_HEAD: return conn->input.len == 0 ? HX_DEADLINE_IDLE : HX_DEADLINE_HEAD;
    case HX_IN_BODY:
        return conn->stream->reading && !conn->stream->paused && conn->base.server->limits.body_rate_min > 0
                   ? HX_DEADLINE_BODY
                   : HX_DEADLINE_NONE;
    case HX_IN_DISCARD: return conn->stream ? HX_DEADLINE_NONE : HX_DEADLINE_DISCARD;
    case HX_IN_SINK: return conn->base.transport.is_shut ? HX_DEADLINE_LINGER : HX_DEADLINE_NONE;
    case HX_IN_WHOLE:
    case HX_IN_TUNNEL: break;
    }
    return HX_DEADLINE_NONE;
}

/* A deadline that is no longer wanted is only forgotten: its timer fires without effect, or is moved before. */
static void set_deadline(hx_h1_conn *conn)
{
    const hx_server_limits *limits = &conn->base.server->limits;
    hx_deadline wanted = wanted_deadline(conn);
    if (wanted == conn->deadline) return;
    conn->deadline = wanted;
    hx_ms delay = 0;
    switch (wanted) {
    case HX_DEADLINE_NONE: return;
    case HX_DEADLINE_IDLE: delay = conn->base.server->draining ? DRAIN_GRACE : limits->idle_timeout; break;
    case HX_DEADLINE_HEAD: delay = limits->head_timeout; break;
    case HX_DEADLINE_BODY:
        delay = BODY_RATE_WINDOW;
        conn->progress_at = conn->received;
        break;
    case HX_DEADLINE_SEND:
        delay = limits->send_timeout;
        conn->progress_at = hx_transport_confirmed(&conn->base.transport);
        break;
    case HX_DEADLINE_DISCARD: delay = DISCARD_TIME; break;
    case HX_DEADLINE_LINGER:
        delay = LINGER_TIME;
        conn->progress_at = conn->received;
        break;
    }
    hx_timer_start(conn->base.server->loop, &conn->timer, delay, deadline_passed);
}

static void deadline_passed(hx_timer *timer)
{
    hx_h1_conn *conn = HX_OWNER(timer, hx_h1_conn, timer);
    hx_deadline passed = conn->deadline;
    conn->deadline = HX_DEADLINE_NONE;
    switch (passed) {
    case HX_DEADLINE_NONE: return;
    case HX_DEADLINE_IDLE:
    case HX_DEADLINE_DISCARD: hx_h1_conn_lose(conn, false); break;
    case HX_DEADLINE_HEAD: conn->late = true; break;
    case HX_DEADLINE_BODY: {
        uint64_t least = (uint64_t)conn->base.server->limits.body_rate_min * (uint64_t)(BODY_RATE_WINDOW / HX_SECOND);
        conn->late = conn->received - conn->progress_at < least && conn->stream->reading && !conn->stream->paused;
        break;
    }
    case HX_DEADLINE_SEND:
        if (conn->base.transport.unsent > 0 && reads_too_slowly(conn)) hx_h1_conn_lose(conn, true);
        break;
    case HX_DEADLINE_LINGER:
        if (conn->received == conn->progress_at || ++conn->strikes >= LINGER_TIMES) hx_h1_conn_lose(conn, false);
        break;
    }
    run(conn);
}

static void received(hx_transport *transport, hx_slice bytes)
{
    hx_h1_conn *conn = conn_of(transport);
    conn->received += bytes.len;
    if (conn->input.len == 0) {
        conn->input = bytes;
        conn->input_is_lent = true;
    } else {
        hx_buf_consume(&conn->held, conn->held.len - conn->input.len);
        hx_buf_put(&conn->held, bytes);
        conn->input = hx_buf_slice(&conn->held);
    }
    run(conn);
}

static void ended(hx_transport *transport, int error)
{
    hx_h1_conn *conn = conn_of(transport);
    conn->eof = true;
    if (error != UV_EOF) hx_h1_conn_lose(conn, false);
    run(conn);
}

static void sent(hx_transport *transport, int error)
{
    hx_h1_conn *conn = conn_of(transport);
    if (error)
        hx_h1_conn_lose(conn, false);
    else
        hx_h1_conn_kick(conn);
}

static const hx_transport_events client_events = {.received = received, .ended = ended, .sent = sent, .closed = closed};

static bool is_idle(const hx_h1_conn *conn)
{
    return !conn->lost && !conn->stream && conn->in == HX_IN_HEAD && conn->input.len == 0;
}

static void close_if_idle(hx_h1_conn *conn)
{
    if (!is_idle(conn)) return;
    if (conn->requests == 0 || hx_transport_peek(&conn->base.transport) > 0) {
        conn->deadline = HX_DEADLINE_NONE;
        set_deadline(conn);
        return;
    }
    hx_h1_conn_lose(conn, false);
}

static void run(hx_h1_conn *conn)
{
    conn->running = true;
    while (step(conn)) {}
    conn->running = false;
    if (conn->lost) return;
    if (conn->stream) hx_h1_stream_flush(conn->stream);
    if (conn->lost) return;
    keep_input(conn);
    hx_transport_read(&conn->base.transport, HX_HELD_BYTES - conn->input.len);
    if (conn->base.server->draining && conn->requests > 0 && is_idle(conn))
        close_if_idle(conn);
    else
        set_deadline(conn);
}

static void protocol_close_if_idle(hx_connection *connection)
{
    close_if_idle(HX_OWNER(connection, hx_h1_conn, base));
}

static void protocol_lose(hx_connection *connection, bool reset)
{
    hx_h1_conn_lose(HX_OWNER(connection, hx_h1_conn, base), reset);
}

static void protocol_abandon(hx_connection *connection)
{
    hx_h1_conn *conn = HX_OWNER(connection, hx_h1_conn, base);
    hx_h1_stream *stream = conn->stream;
    conn->stream = NULL;
    if (stream) hx_h1_stream_detach(stream); /* its handler still has to release it */
    hx_h1_conn_lose(conn, false);
}

static const hx_connection_protocol protocol = {.close_if_idle = protocol_close_if_idle,
                                                .lose = protocol_lose,
                                                .abandon = protocol_abandon};

void hx_h1_conn_open(hx_server *server, hx_listener *listener, int descriptor, const hx_peer *peer)
{
    hx_h1_conn *conn = calloc(1, sizeof *conn);
    if (!conn) hx_fatal(HX_EXIT_BUG, "out of memory (a connection)");
    int failed = hx_transport_open(&conn->base.transport, server->loop, &client_events, descriptor);
    if (failed) {
        (void)close(descriptor);
        free(conn);
        return;
    }
    conn->base.protocol = &protocol;
    conn->base.server = server;
    conn->base.listener = listener;
    conn->task.run = run_task;
    conn->input = HX_EMPTY;
    conn->base.peer = *peer;
    hx_buf_init(&conn->held, NULL, HX_HELD_BYTES);
    hx_list_append(&server->connections, &conn->base.link);
    server->count++;
    run(conn);
}
