/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1's side of a stream: responses and how they are framed.
 *
 * A whole response is sent by one call. A response in pieces is corked: its head and small pieces wait in the arena
 * until the end of the turn, so that one that is begun, written and ended in one turn is sent by one call too. */
#include "net/h1/conn.h"

#include "base/check.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* Small pieces are gathered up to here behind a head. */
#define CORK_BYTES 1024u
/* A body up to this size is copied behind its head: one buffer is cheaper to send than two. */
#define COPIED_BODY_BYTES 1024u
/* Status line, framing, Connection and Date, without reason and header lines. */
#define HEAD_EXTRA_BYTES 192u
#define PIECES_MAX HX_TRANSPORT_PIECES_MAX

static hx_h1_stream *own(hx_stream *stream)
{
    return HX_OWNER(stream, hx_h1_stream, pub);
}

static void free_if_done(hx_h1_stream *stream)
{
    if (!stream->released || stream->conn) return;
    hx_arena arena = stream->pub.arena; /* a copy: the arena holds the stream itself */
    hx_arena_free(&arena);
}

void hx_h1_stream_detach(hx_h1_stream *stream)
{
    stream->conn = NULL;
    free_if_done(stream);
}

void hx_h1_conn_send(hx_h1_conn *conn, hx_slice *pieces, unsigned count, unsigned how)
{
    if (conn->lost) return;
    int error = hx_transport_send(&conn->base.transport, pieces, count, how);
    if (error) hx_h1_conn_lose(conn, error == UV_ENOBUFS); /* the handler ignored hx_stream_write's false */
}

static char *put(char *at, hx_slice bytes)
{
    if (bytes.len > 0) memcpy(at, bytes.ptr, bytes.len);
    return at + bytes.len;
}

static char *put_number(char *at, uint64_t number)
{
    char digits[20];
    size_t from = sizeof digits;
    do {
        digits[--from] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return put(at, (hx_slice){digits + from, sizeof digits - from});
}

static hx_slice date_of_turn(hx_server *server)
{
    hx_ms second = hx_clock_wall() / HX_SECOND;
    if (second != server->date_second) {
        server->date_second = second;
        (void)hx_http_date(second * HX_SECOND, server->date);
    }
    return (hx_slice){server->date, HX_HTTP_DATE_BYTES - 1};
}

typedef struct {
    const hx_response *response;
    int64_t content_length; /* -1: none to announce */
    bool chunked;
} head_parts;

static size_t head_bytes_max(const hx_response *response)
{
    return HEAD_EXTRA_BYTES + response->reason.len + response->header_lines.len;
}

static char *put_head(char *at, const hx_h1_stream *stream, const head_parts *parts)
{
    const hx_h1_conn *conn = stream->conn;
    const hx_response *response = parts->response;
    at = put(at, HX_LIT("HTTP/1.1 "));
    at = put_number(at, response->status);
    at = put(at, HX_LIT(" "));
    at = put(at, response->reason);
    at = put(at, HX_LIT("\r\n"));
    at = put(at, response->header_lines);
    if (response->date) {
        at = put(at, HX_LIT("Date: "));
        at = put(at, date_of_turn(conn->base.server));
        at = put(at, HX_LIT("\r\n"));
    }
    if (parts->content_length >= 0) {
        at = put(at, HX_LIT("Content-Length: "));
        at = put_number(at, (uint64_t)parts->content_length);
        at = put(at, HX_LIT("\r\n"));
    } else if (parts->chunked) {
        at = put(at, HX_LIT("Transfer-Encoding: chunked\r\n"));
    }
    if (response->status == 101)
        at = put(at, HX_LIT("Connection: upgrade\r\n"));
    else if (conn->close)
        at = put(at, HX_LIT("Connection: close\r\n"));
    else if (stream->pub.request.is_http10)
        at = put(at, HX_LIT("Connection: keep-alive\r\n"));
    return put(at, HX_LIT("\r\n"));
}

static bool has_no_body(const hx_h1_stream *stream, unsigned status)
{
    return stream->is_head || status < 200 || status == 204 || status == 304;
}

static void respond_whole(hx_h1_stream *stream, const hx_response *response)
{
    unsigned status = response->status;
    hx_slice body = response->body;
    bool announce = status != 204 && (status != 304 || body.len > 0);
    head_parts parts = {.response = response, .content_length = announce ? (int64_t)body.len : -1};
    if (has_no_body(stream, status)) body = HX_EMPTY;
    bool copied = body.len <= COPIED_BODY_BYTES;
    char *head = hx_arena_alloc(&stream->pub.arena, head_bytes_max(response) + (copied ? body.len : 0));
    char *end = put_head(head, stream, &parts);
    if (copied) end = put(end, body);
    hx_slice pieces[2] = {{head, (size_t)(end - head)}, body};
    hx_h1_conn_send(stream->conn, pieces, copied ? 1 : 2, HX_SEND_STAYS);
    stream->out = HX_OUT_ENDED;
}

static void respond_file(hx_h1_stream *stream, const hx_response *response)
{
    hx_extent body = response->file;
    head_parts parts = {.response = response, .content_length = response->status == 204 ? -1 : (int64_t)body.len};
    char *head = hx_arena_alloc(&stream->pub.arena, head_bytes_max(response));
    hx_slice piece = {head, (size_t)(put_head(head, stream, &parts) - head)};
    hx_h1_conn_send(stream->conn, &piece, 1, HX_SEND_STAYS);
    stream->file = body;
    stream->out = has_no_body(stream, response->status) || body.len == 0 ? HX_OUT_ENDED : HX_OUT_FILE;
}

/* The head is corked; running the connection flushes it. */
static void respond_in_pieces(hx_h1_stream *stream, const hx_response *response)
{
    hx_h1_conn *conn = stream->conn;
    unsigned status = response->status;
    if (has_no_body(stream, status))
        stream->out = HX_OUT_BODILESS;
    else if (response->content_length >= 0)
        stream->out = HX_OUT_LENGTH;
    else
        stream->out = stream->pub.request.is_http10 ? HX_OUT_TO_CLOSE : HX_OUT_CHUNKED;
    stream->left = response->content_length;
    conn->close = conn->close || stream->out == HX_OUT_TO_CLOSE || status == 101;
    head_parts parts = {.response = response,
                        .content_length = status == 101 || status == 204 ? -1 : response->content_length,
                        .chunked = stream->out == HX_OUT_CHUNKED};
    size_t bytes = head_bytes_max(response) + CORK_BYTES;
    char *head = hx_arena_alloc(&stream->pub.arena, bytes);
    size_t len = (size_t)(put_head(head, stream, &parts) - head);
    stream->cork = (hx_buf){.data = head, .len = len, .cap = bytes, .max = bytes, .arena = &stream->pub.arena};
}

static void respond(hx_stream *stream, const hx_response *response)
{
    hx_h1_stream *mine = own(stream);
    hx_h1_conn *conn = mine->conn;
    HX_CHECK(!mine->released);
    if (!conn) return;
    conn->close = hx_h1_conn_must_close(conn);
    switch (response->kind) {
    case HX_RESPONSE_WHOLE: respond_whole(mine, response); break;
    case HX_RESPONSE_FILE: respond_file(mine, response); break;
    case HX_RESPONSE_PIECES: respond_in_pieces(mine, response); break;
    }
    if (response->kind != HX_RESPONSE_PIECES) hx_h1_conn_answer_ended(conn);
    hx_h1_conn_kick(conn);
}

void hx_h1_stream_send_file(hx_h1_stream *stream)
{
    hx_h1_conn *conn = stream->conn;
    hx_extent *file = &stream->file;
    char *bytes = conn->base.server->file_buffer;
    size_t len = file->len < HX_FILE_PIECE_BYTES ? (size_t)file->len : HX_FILE_PIECE_BYTES;
    if (!hx_extent_read(file, bytes, len)) {
        hx_log(HX_EVENT_response_cut);
        hx_h1_conn_lose(conn, true);
        return;
    }
    file->at += len;
    file->len -= len;
    if (file->len == 0) stream->out = HX_OUT_ENDED;
    hx_slice piece = {bytes, len};
    hx_h1_conn_send(conn, &piece, 1, 0);
}

void hx_h1_stream_flush(hx_h1_stream *stream)
{
    if (stream->cork.len == 0) return;
    hx_slice piece = hx_buf_slice(&stream->cork);
    stream->cork.len = 0;
    hx_h1_conn_send(stream->conn, &piece, 1, 0);
}

/* Adds a piece to the cork; a piece that doesn't fit is sent at once, behind the cork. */
static void write_framed(hx_h1_stream *stream, hx_slice before, hx_slice bytes, hx_slice after)
{
    hx_buf *cork = &stream->cork;
    if (before.len + bytes.len + after.len <= cork->cap - cork->len) {
        hx_buf_put(cork, before);
        hx_buf_put(cork, bytes);
        hx_buf_put(cork, after);
        hx_h1_conn_kick(stream->conn);
        return;
    }
    hx_slice pieces[PIECES_MAX];
    unsigned count = 0;
    const hx_slice parts[PIECES_MAX] = {hx_buf_slice(cork), before, bytes, after};
    for (unsigned i = 0; i < PIECES_MAX; i++)
        if (parts[i].len > 0) pieces[count++] = parts[i];
    cork->len = 0;
    hx_h1_conn_send(stream->conn, pieces, count, 0);
}

static void stream_abort(hx_stream *stream)
{
    hx_h1_stream *mine = own(stream);
    mine->aborted = true;
    if (mine->conn) hx_h1_conn_lose(mine->conn, true);
}

static bool stream_write(hx_stream *stream, hx_slice bytes)
{
    hx_h1_stream *mine = own(stream);
    hx_h1_conn *conn = mine->conn;
    HX_CHECK(mine->out != HX_OUT_ENDED);
    if (!conn || conn->lost || bytes.len == 0 || mine->out == HX_OUT_BODILESS) return true;
    if (mine->out == HX_OUT_LENGTH) {
        if ((uint64_t)bytes.len > (uint64_t)mine->left) {
            stream_abort(stream);
            return true;
        }
        mine->left -= (int64_t)bytes.len;
    }
    if (mine->out == HX_OUT_CHUNKED) {
        char size[20];
        int len = snprintf(size, sizeof size, "%zx\r\n", bytes.len);
        write_framed(mine, (hx_slice){size, (size_t)len}, bytes, HX_LIT("\r\n"));
    } else {
        write_framed(mine, HX_EMPTY, bytes, HX_EMPTY);
    }
    if (conn->base.transport.unsent <= HX_WAITING_HIGH) return true;
    mine->held_back = true;
    return false;
}

static void stream_end(hx_stream *stream)
{
    hx_h1_stream *mine = own(stream);
    hx_h1_conn *conn = mine->conn;
    HX_CHECK(mine->out != HX_OUT_ENDED);
    if (!conn || conn->lost) return;
    if (mine->out == HX_OUT_LENGTH && mine->left > 0) {
        stream_abort(stream);
        return;
    }
    if (mine->out == HX_OUT_CHUNKED) write_framed(mine, HX_EMPTY, HX_LIT("0\r\n\r\n"), HX_EMPTY);
    hx_h1_stream_flush(mine);
    mine->out = HX_OUT_ENDED;
    hx_h1_conn_answer_ended(conn);
    hx_h1_conn_kick(conn);
}

static void stream_tunnel(hx_stream *stream)
{
    hx_h1_stream *mine = own(stream);
    hx_h1_conn *conn = mine->conn;
    if (!conn || conn->lost) return;
    HX_CHECK(mine->out == HX_OUT_BODILESS);
    if (!hx_h1_body_whole(&conn->body)) { /* its rest would be taken for bytes of the tunnel */
        stream_abort(stream);
        return;
    }
    mine->out = HX_OUT_TUNNEL;
    mine->reading = true;
    conn->in = HX_IN_TUNNEL;
    hx_h1_conn_kick(conn);
}

static void stream_read(hx_stream *stream)
{
    hx_h1_stream *mine = own(stream);
    hx_h1_conn *conn = mine->conn;
    if (mine->reading || !conn || conn->lost) return;
    mine->reading = true;
    if (stream->request.expects_continue && !mine->continued && !stream->answered && conn->input.len == 0) {
        hx_slice piece = HX_LIT("HTTP/1.1 100 Continue\r\n\r\n");
        hx_h1_conn_send(conn, &piece, 1, HX_SEND_STAYS);
    }
    mine->continued = true;
    hx_h1_conn_kick(conn);
}

/* A pause runs the connection too: a body that isn't wanted now has no deadline. */
static void stream_pause(hx_stream *stream, bool is_paused)
{
    hx_h1_stream *mine = own(stream);
    mine->paused = is_paused;
    if (mine->conn) hx_h1_conn_kick(mine->conn);
}

static void stream_release(hx_stream *stream)
{
    hx_h1_stream *mine = own(stream);
    HX_CHECK(!mine->released);
    mine->released = true;
    hx_h1_conn *conn = mine->conn;
    if (!conn) {
        free_if_done(mine);
        return;
    }
    if (mine->out != HX_OUT_ENDED && mine->out != HX_OUT_FILE)
        hx_h1_conn_lose(conn, true);
    else
        hx_h1_conn_kick(conn);
}

static const hx_stream_protocol protocol = {.read = stream_read,
                                            .pause = stream_pause,
                                            .respond = respond,
                                            .write = stream_write,
                                            .end = stream_end,
                                            .abort = stream_abort,
                                            .tunnel = stream_tunnel,
                                            .release = stream_release};

hx_h1_stream *hx_h1_stream_new(hx_h1_conn *conn)
{
    hx_arena arena = {0};
    hx_h1_stream *stream = hx_arena_zalloc(&arena, sizeof *stream);
    stream->conn = conn;
    stream->pub.protocol = &protocol;
    stream->pub.request.method = stream->pub.request.target = HX_EMPTY;
    stream->pub.request.path = stream->pub.request.query = HX_EMPTY;
    stream->pub.request.content_length = -1;
    stream->pub.loop = conn->base.server->loop;
    stream->pub.scheme = conn->base.transport.io->is_encrypted ? HX_LIT("https") : HX_LIT("http");
    stream->pub.peer = conn->base.peer;
    stream->pub.listener = hx_listener_address(conn->base.listener);
    stream->pub.arena = arena;
    return stream;
}
