/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1 towards an upstream: how a request is written, and how a response is read and judged. exchange.c decides which
 * connection carries which exchange.
 *
 * What must hold: a connection is given back for another exchange only if the upstream can have read all of this
 * request, and sent nothing behind this response. */
#include "net/h1/answer_parser.h"
#include "net/pool.h"

#include "base/check.h"

#include <stdio.h>

/* The request line, framing, Connection and Upgrade, without what the caller gives. */
#define HEAD_EXTRA_BYTES 160u
/* A body up to this size is copied behind its head, as header lines are into it: one piece is cheaper to send. */
#define COPIED_BODY_BYTES 1024u

typedef struct {
    hx_wire base; /* the first member */
    hx_h1_answer answer;
    bool early; /* the response began before the whole request was sent */
} h1_wire;

/* Writes the head, and a small body, once for all the connections that may be asked to carry it. */
static void compose_head(hx_exchange *exchange)
{
    hx_slice body = exchange->body.len <= COPIED_BODY_BYTES ? exchange->body : HX_EMPTY;
    size_t bytes = HEAD_EXTRA_BYTES + exchange->method.len + exchange->target.len + exchange->header_lines.len +
                   exchange->upgrade.len + body.len;
    hx_buf out = {.data = hx_arena_alloc(exchange->arena, bytes), .cap = bytes, .max = bytes, .arena = exchange->arena};
    hx_buf_put(&out, exchange->method);
    hx_buf_puts(&out, " ");
    hx_buf_put(&out, exchange->target);
    hx_buf_puts(&out, " HTTP/1.1\r\n");
    hx_buf_put(&out, exchange->header_lines);
    if (exchange->upgrade.len > 0) {
        hx_buf_puts(&out, "Connection: upgrade\r\n");
        hx_field_write(&out, HX_LIT("Upgrade"), exchange->upgrade);
    } else if (exchange->close) {
        hx_buf_puts(&out, "Connection: close\r\n");
    }
    if (exchange->framing == HX_FRAMING_CHUNKED) {
        hx_buf_puts(&out, "Transfer-Encoding: chunked\r\n");
    } else if (exchange->framing == HX_FRAMING_LENGTH) {
        hx_buf_puts(&out, "Content-Length: ");
        hx_buf_put_decimal(&out, exchange->content_length);
        hx_buf_puts(&out, "\r\n");
    }
    hx_buf_puts(&out, "\r\n");
    if (body.len > 0) hx_buf_put(&out, body);
    exchange->own.head = hx_buf_slice(&out);
    exchange->bytes_all = out.len + (body.len > 0 ? 0 : exchange->body.len);
}

static unsigned begin(hx_wire *wire, hx_slice pieces[HX_REQUEST_PIECES_MAX])
{
    h1_wire *mine = HX_OWNER(wire, h1_wire, base);
    hx_exchange *exchange = wire->exchange;
    const hx_upstream_limits *limits = &wire->upstream->limits;
    mine->early = false;
    hx_h1_answer_begin(&mine->answer, exchange->arena, limits->head_bytes_max, limits->fields_max,
                       exchange->answer_has_no_body);
    if (exchange->own.head.len == 0) compose_head(exchange);
    pieces[0] = exchange->own.head;
    pieces[1] = exchange->body;
    return exchange->body.len > COPIED_BODY_BYTES ? 2 : 1;
}

static bool write_body(hx_exchange *exchange, hx_slice bytes)
{
    char size[24];
    hx_slice parts[3] = {bytes};
    bool is_last = bytes.len == 0;
    if (exchange->framing != HX_FRAMING_CHUNKED) return is_last || hx_exchange_send(exchange, parts, 1);
    if (is_last) {
        parts[0] = HX_LIT("0\r\n\r\n");
        return hx_exchange_send(exchange, parts, 1);
    }
    int len = snprintf(size, sizeof size, "%zx\r\n", bytes.len);
    parts[0] = (hx_slice){size, (size_t)len};
    parts[1] = bytes;
    parts[2] = HX_LIT("\r\n");
    return hx_exchange_send(exchange, parts, 3);
}

/* Whether the upstream can be trusted to have read the body. Bytes that it left would be the beginning of the next
 * request on this connection, and the response to that would go to the next client. */
static bool is_read(const h1_wire *mine)
{
    if (mine->early || !hx_wire_has_sent_all(&mine->base)) return false;
    switch (mine->base.exchange->body_kind) {
    case HX_REQUEST_BODY_NONE: return true;
    case HX_REQUEST_BODY_USUAL: return mine->answer.head->status < 400; /* errors are often found before it is read */
    case HX_REQUEST_BODY_UNUSUAL: break;
    }
    return false;
}

/* The response is complete. Decides whether the connection can carry another exchange. */
static void end(h1_wire *mine, bool clean)
{
    bool reusable = clean && is_read(mine) && mine->answer.keep_alive;
    hx_wire_end(&mine->base, reusable, mine->answer.keep_alive_for);
}

/* Handles one event at a time; after each of them the exchange may be gone. */
static void received(hx_wire *wire, hx_slice in)
{
    h1_wire *mine = HX_OWNER(wire, h1_wire, base);
    hx_exchange *exchange = wire->exchange;
    while (wire->exchange == exchange && wire->state == HX_WIRE_BUSY) {
        hx_slice piece = HX_EMPTY;
        if (exchange->own.is_tunnel) {
            HX_CHECK(mine->answer.head && mine->answer.head->status == 101);
            if (in.len > 0) exchange->events->body(exchange, in);
            return;
        }
        if (!mine->answer.any_byte) mine->early = !hx_wire_has_sent_all(wire);
        switch (hx_h1_answer_read(&mine->answer, &in, &piece)) {
        case HX_ANSWER_MORE: return;
        case HX_ANSWER_HEAD: exchange->events->head(exchange, mine->answer.head); break;
        case HX_ANSWER_BODY: exchange->events->body(exchange, piece); break;
        case HX_ANSWER_END: end(mine, in.len == 0 && mine->answer.head->status != 101); return;
        case HX_ANSWER_BROKEN: hx_wire_fail(wire, HX_UPSTREAM_BROKEN); return;
        case HX_ANSWER_TOO_LARGE: hx_wire_fail(wire, HX_UPSTREAM_TOO_LARGE); return;
        }
    }
}

static hx_arrival arrived(const hx_wire *wire)
{
    const h1_wire *mine = HX_OWNER(wire, h1_wire, base);
    if (hx_h1_answer_ends_with_connection(&mine->answer)) return HX_ARRIVED_WHOLE;
    return mine->answer.any_byte ? HX_ARRIVED_PART : HX_ARRIVED_NOTHING;
}

const hx_wire_protocol hx_h1_wire_protocol = {
    .wire_bytes = sizeof(h1_wire), .begin = begin, .write = write_body, .received = received, .arrived = arrived};
