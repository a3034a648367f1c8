/* SPDX-License-Identifier: Apache-2.0 */
/* Answering: the functions of server.h that a handler calls on its stream, and sending.
 *
 * A whole answer leaves in one write. An answer in pieces is corked: its head and what is small wait in the arena until
 * the end of the turn, so that an answer that is begun, written and ended in one turn leaves in one write too. */
#include "net/h1/conn.h"

#include "base/check.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* Small pieces gather up to here behind a head. */
#define CORK_BYTES 1024u
/* A body up to this size is copied behind its head: one buffer is cheaper to send than two. */
#define COPIED_BODY_BYTES 1024u
/* Status line, framing, Connection and Date, without reason and header lines. */
#define HEAD_EXTRA_BYTES 192u
#define PIECES_MAX HX_TRANSPORT_PIECES_MAX

static hx_own_stream *own(hx_stream *stream)
{
    return HX_OWNER(stream, hx_own_stream, pub);
}

hx_own_stream *hx_stream_new(hx_conn *conn)
{
    hx_arena arena = {0};
    hx_own_stream *stream = hx_arena_zalloc(&arena, sizeof *stream);
    stream->conn = conn;
    stream->pub.request.method = stream->pub.request.target = HX_EMPTY;
    stream->pub.request.path = stream->pub.request.query = HX_EMPTY;
    stream->pub.request.content_length = -1;
    stream->pub.loop = conn->server->loop;
    stream->pub.scheme = conn->transport.io->is_encrypted ? HX_LIT("https") : HX_LIT("http");
    stream->pub.peer = hx_arena_copy(&arena, (hx_slice){conn->peer, conn->peer_len});
    stream->pub.listener = hx_listener_address(conn->listener);
    stream->pub.arena = arena;
    return stream;
}

static void free_if_done(hx_own_stream *stream)
{
    if (!stream->released || stream->conn) return;
    hx_arena arena = stream->pub.arena; /* which holds the stream itself */
    hx_arena_free(&arena);
}

void hx_stream_detach(hx_own_stream *stream)
{
    stream->conn = NULL;
    free_if_done(stream);
}

void hx_conn_send(hx_conn *conn, hx_slice *pieces, unsigned count, unsigned how)
{
    if (conn->lost) return;
    int error = hx_transport_send(&conn->transport, pieces, count, how);
    if (error) hx_conn_lose(conn, error == UV_ENOBUFS); /* the handler wrote on although hx_stream_write said false */
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
    unsigned status;
    hx_slice reason;
    hx_slice lines;
    int64_t content_length; /* -1: none to announce */
    bool chunked;
    bool date;
} head_parts;

static size_t head_bytes_max(const head_parts *parts)
{
    return HEAD_EXTRA_BYTES + parts->reason.len + parts->lines.len;
}

static char *put_head(char *at, const hx_own_stream *stream, const head_parts *parts)
{
    const hx_conn *conn = stream->conn;
    at = put(at, HX_LIT("HTTP/1.1 "));
    at = put_number(at, parts->status);
    at = put(at, HX_LIT(" "));
    at = put(at, parts->reason);
    at = put(at, HX_LIT("\r\n"));
    at = put(at, parts->lines);
    if (parts->date) {
        at = put(at, HX_LIT("Date: "));
        at = put(at, date_of_turn(conn->server));
        at = put(at, HX_LIT("\r\n"));
    }
    if (parts->content_length >= 0) {
        at = put(at, HX_LIT("Content-Length: "));
        at = put_number(at, (uint64_t)parts->content_length);
        at = put(at, HX_LIT("\r\n"));
    } else if (parts->chunked) {
        at = put(at, HX_LIT("Transfer-Encoding: chunked\r\n"));
    }
    if (parts->status == 101)
        at = put(at, HX_LIT("Connection: upgrade\r\n"));
    else if (conn->close)
        at = put(at, HX_LIT("Connection: close\r\n"));
    else if (stream->pub.request.is_http10)
        at = put(at, HX_LIT("Connection: keep-alive\r\n"));
    return put(at, HX_LIT("\r\n"));
}

static bool has_no_body(const hx_own_stream *stream, unsigned status)
{
    return stream->is_head || status < 200 || status == 204 || status == 304;
}

void hx_stream_answer(hx_stream *stream, unsigned status, hx_slice reason, hx_slice header_lines, hx_slice body,
                      bool date)
{
    hx_own_stream *mine = own(stream);
    hx_conn *conn = mine->conn;
    HX_CHECK(!stream->answered && !mine->released);
    HX_CHECK(status >= 200 && status <= 999);
    stream->answered = true;
    if (!conn) return;
    conn->close = hx_conn_must_close(conn);
    bool bodiless = has_no_body(mine, status);
    bool announce = status != 204 && (status != 304 || body.len > 0);
    head_parts parts = {.status = status,
                        .reason = reason.len > 0 ? reason : hx_status_reason(status),
                        .lines = header_lines,
                        .content_length = announce ? (int64_t)body.len : -1,
                        .date = date};
    if (bodiless) body = HX_EMPTY;
    bool copied = body.len <= COPIED_BODY_BYTES;
    char *head = hx_arena_alloc(&stream->arena, head_bytes_max(&parts) + (copied ? body.len : 0));
    char *end = put_head(head, mine, &parts);
    if (copied) end = put(end, body);
    hx_slice pieces[2] = {{head, (size_t)(end - head)}, body};
    hx_conn_send(conn, pieces, copied ? 1 : 2, HX_SEND_STAYS);
    mine->out = HX_OUT_ENDED;
    hx_conn_answer_ended(conn);
    hx_conn_kick(conn);
}

void hx_stream_answer_file(hx_stream *stream, unsigned status, hx_slice reason, hx_slice header_lines, hx_extent body,
                           bool date)
{
    hx_own_stream *mine = own(stream);
    hx_conn *conn = mine->conn;
    HX_CHECK(!stream->answered && !mine->released);
    HX_CHECK(status >= 200 && status <= 999);
    stream->answered = true;
    if (!conn) return;
    conn->close = hx_conn_must_close(conn);
    head_parts parts = {.status = status,
                        .reason = reason.len > 0 ? reason : hx_status_reason(status),
                        .lines = header_lines,
                        .content_length = status == 204 ? -1 : (int64_t)body.len,
                        .date = date};
    char *head = hx_arena_alloc(&stream->arena, head_bytes_max(&parts));
    hx_slice piece = {head, (size_t)(put_head(head, mine, &parts) - head)};
    hx_conn_send(conn, &piece, 1, HX_SEND_STAYS);
    mine->file = body;
    mine->out = has_no_body(mine, status) || body.len == 0 ? HX_OUT_ENDED : HX_OUT_FILE;
    hx_conn_answer_ended(conn);
    hx_conn_kick(conn);
}

void hx_stream_send_file(hx_own_stream *stream)
{
    hx_conn *conn = stream->conn;
    hx_extent *file = &stream->file;
    char *bytes = conn->server->file_buffer;
    size_t len = file->len < HX_FILE_PIECE_BYTES ? (size_t)file->len : HX_FILE_PIECE_BYTES;
    if (!hx_extent_read(file, bytes, len)) {
        hx_log(HX_EVENT_response_cut);
        hx_conn_lose(conn, true);
        return;
    }
    file->at += len;
    file->len -= len;
    if (file->len == 0) stream->out = HX_OUT_ENDED;
    hx_slice piece = {bytes, len};
    hx_conn_send(conn, &piece, 1, 0);
}

void hx_stream_begin(hx_stream *stream, unsigned status, hx_slice reason, hx_slice header_lines, int64_t content_length)
{
    hx_own_stream *mine = own(stream);
    hx_conn *conn = mine->conn;
    HX_CHECK(!stream->answered && !mine->released);
    HX_CHECK(status == 101 || (status >= 200 && status <= 999));
    stream->answered = true;
    if (!conn) return;
    bool bodiless = has_no_body(mine, status), to_close = false;
    if (bodiless)
        mine->out = HX_OUT_BODILESS;
    else if (content_length >= 0)
        mine->out = HX_OUT_LENGTH;
    else if (stream->request.is_http10)
        mine->out = HX_OUT_TO_CLOSE, to_close = true;
    else
        mine->out = HX_OUT_CHUNKED;
    mine->left = content_length;
    conn->close = hx_conn_must_close(conn) || to_close || status == 101;
    head_parts parts = {.status = status,
                        .reason = reason.len > 0 ? reason : hx_status_reason(status),
                        .lines = header_lines,
                        .content_length = status == 101 || status == 204 ? -1 : content_length,
                        .chunked = mine->out == HX_OUT_CHUNKED};
    size_t room = head_bytes_max(&parts) + CORK_BYTES;
    char *head = hx_arena_alloc(&stream->arena, room);
    size_t len = (size_t)(put_head(head, mine, &parts) - head);
    mine->cork = (hx_buf){.data = head, .len = len, .cap = room, .max = room, .arena = &stream->arena};
    hx_conn_kick(conn); /* which flushes it */
}

void hx_stream_flush(hx_own_stream *stream)
{
    if (stream->cork.len == 0) return;
    hx_slice piece = hx_buf_slice(&stream->cork);
    stream->cork.len = 0;
    hx_conn_send(stream->conn, &piece, 1, 0);
}

/* Sends the cork and the piece behind it; what doesn't fit into the cork any more leaves at once. */
static void write_framed(hx_own_stream *stream, hx_slice before, hx_slice bytes, hx_slice after)
{
    hx_buf *cork = &stream->cork;
    if (before.len + bytes.len + after.len <= cork->cap - cork->len) {
        hx_buf_put(cork, before);
        hx_buf_put(cork, bytes);
        hx_buf_put(cork, after);
        hx_conn_kick(stream->conn);
        return;
    }
    hx_slice pieces[PIECES_MAX];
    unsigned count = 0;
    const hx_slice parts[PIECES_MAX] = {hx_buf_slice(cork), before, bytes, after};
    for (unsigned i = 0; i < PIECES_MAX; i++)
        if (parts[i].len > 0) pieces[count++] = parts[i];
    cork->len = 0;
    hx_conn_send(stream->conn, pieces, count, 0);
}

bool hx_stream_write(hx_stream *stream, hx_slice bytes)
{
    hx_own_stream *mine = own(stream);
    hx_conn *conn = mine->conn;
    HX_CHECK(stream->answered && mine->out != HX_OUT_ENDED);
    if (!conn || conn->lost || bytes.len == 0 || mine->out == HX_OUT_BODILESS) return true;
    if (mine->out == HX_OUT_LENGTH) {
        if ((uint64_t)bytes.len > (uint64_t)mine->left) {
            hx_stream_abort(stream);
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
    if (conn->transport.unsent <= HX_WAITING_HIGH) return true;
    mine->held_back = true;
    return false;
}

void hx_stream_end(hx_stream *stream)
{
    hx_own_stream *mine = own(stream);
    hx_conn *conn = mine->conn;
    HX_CHECK(stream->answered && mine->out != HX_OUT_ENDED);
    if (!conn || conn->lost) return;
    if (mine->out == HX_OUT_LENGTH && mine->left > 0) {
        hx_stream_abort(stream);
        return;
    }
    if (mine->out == HX_OUT_CHUNKED) write_framed(mine, HX_EMPTY, HX_LIT("0\r\n\r\n"), HX_EMPTY);
    hx_stream_flush(mine);
    mine->out = HX_OUT_ENDED;
    hx_conn_answer_ended(conn);
    hx_conn_kick(conn);
}

void hx_stream_abort(hx_stream *stream)
{
    hx_own_stream *mine = own(stream);
    mine->aborted = true;
    if (mine->conn) hx_conn_lose(mine->conn, true);
}

void hx_stream_tunnel(hx_stream *stream)
{
    hx_own_stream *mine = own(stream);
    hx_conn *conn = mine->conn;
    HX_CHECK(stream->answered);
    if (!conn || conn->lost) return;
    HX_CHECK(mine->out == HX_OUT_BODILESS);
    if (!hx_h1_body_whole(&conn->body)) { /* bytes of its body can't be told from those of the tunnel */
        hx_stream_abort(stream);
        return;
    }
    mine->out = HX_OUT_TUNNEL;
    mine->reading = true;
    conn->in = HX_IN_TUNNEL;
    hx_conn_kick(conn);
}

void hx_stream_read(hx_stream *stream)
{
    hx_own_stream *mine = own(stream);
    hx_conn *conn = mine->conn;
    if (mine->reading || !conn || conn->lost) return;
    mine->reading = true;
    if (stream->request.expects_continue && !mine->continued && !stream->answered && conn->input.len == 0) {
        hx_slice piece = HX_LIT("HTTP/1.1 100 Continue\r\n\r\n");
        hx_conn_send(conn, &piece, 1, HX_SEND_STAYS);
    }
    mine->continued = true;
    hx_conn_kick(conn);
}

void hx_stream_pause(hx_stream *stream)
{
    hx_own_stream *mine = own(stream);
    mine->paused = true;
    if (mine->conn) hx_conn_kick(mine->conn); /* a body that isn't wanted now can't be late */
}

void hx_stream_resume(hx_stream *stream)
{
    hx_own_stream *mine = own(stream);
    mine->paused = false;
    if (mine->conn) hx_conn_kick(mine->conn);
}

bool hx_stream_peer_user(hx_stream *stream, uint32_t *uid, int32_t *pid)
{
    const hx_conn *conn = own(stream)->conn;
    return conn && !conn->lost && hx_transport_peer_user(&conn->transport, uid, pid);
}

void hx_stream_release(hx_stream *stream)
{
    hx_own_stream *mine = own(stream);
    HX_CHECK(!mine->released);
    mine->released = true;
    hx_conn *conn = mine->conn;
    if (!conn) {
        free_if_done(mine);
        return;
    }
    if (mine->out != HX_OUT_ENDED && mine->out != HX_OUT_FILE)
        hx_conn_lose(conn, true);
    else
        hx_conn_kick(conn);
}
