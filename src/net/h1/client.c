/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges over the connections of pool.c.
 *
 * What must hold: bytes_sent is the number of bytes of the request that the kernel took, at any time. So it is copied
 * from the transport wherever that may have sent something: after each call that sends, and in hx_upstream_sent.
 *
 * Events of an exchange are called from the loop only. An exchange that fails inside a call (the line is full, it was
 * cancelled) goes to upstream->due. */
#include "net/pool.h"

#include "base/check.h"
#include "base/loop/loop_uv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The request line, framing, Connection and Upgrade, without what the caller gives. */
#define HEAD_EXTRA_BYTES 160u
/* A body up to this size is copied behind its head, as header lines are into it: one piece is cheaper to send. */
#define COPIED_BODY_BYTES 1024u
#define HIGH_BYTES (256u * 1024u)
#define LOW_BYTES (64u * 1024u)
#define HELD_BYTES_MAX (64u * 1024u * 1024u)

enum {
    IN_LINE = 1,   /* waits for a connection */
    FAILING = 2,   /* failed() is due, with own.error */
    DRAINING = 4,  /* drained() is due */
    HELD_BACK = 8, /* hx_exchange_write returned false */
    FINISHED = 16, /* hx_exchange_finish was called */
    TUNNEL = 32,
    CARRIED = 64, /* a connection took a byte of it */
};

const char *hx_upstream_error_text(hx_upstream_error error)
{
    static const char *const texts[] = {
#define X(name, text) text,
        HX_UPSTREAM_ERRORS(X)
#undef X
    };
    return texts[error];
}

static hx_exchange *of_link(hx_link *link)
{
    return (hx_exchange *)(void *)((char *)link - offsetof(hx_exchange, own.link));
}

static void call_due(uv_idle_t *later);

static void call_later(hx_exchange *exchange, uint32_t what)
{
    hx_upstream *upstream = exchange->own.upstream;
    exchange->own.flags |= what;
    hx_list_remove(&exchange->own.link);
    hx_list_append(&upstream->due, &exchange->own.link);
    uv_idle_start(&upstream->later, call_due);
}

static void fail_later(hx_exchange *exchange, hx_upstream_error error)
{
    exchange->own.error = error;
    call_later(exchange, FAILING);
}

static void account(hx_wire *wire)
{
    wire->exchange->bytes_sent = wire->transport.sent - wire->sent_before;
}

static hx_exchange *detach(hx_wire *wire)
{
    hx_exchange *exchange = wire->exchange;
    wire->exchange = NULL;
    exchange->own.connection = NULL;
    hx_list_remove(&exchange->own.link); /* a drained() that was due */
    return exchange;
}

static void close_now(hx_wire *wire)
{
    hx_upstream *upstream = wire->upstream;
    hx_pool_close(wire);
    hx_pool_refill(upstream);
}

/* Ends the exchange and the connection. For the transport's events only. */
static void fail_now(hx_wire *wire, hx_upstream_error error)
{
    hx_exchange *exchange = detach(wire);
    close_now(wire);
    exchange->events->failed(exchange, error);
}

/* After an error reading goes on: the upstream may have responded before it stopped reading. */
void hx_upstream_sent(hx_transport *transport, int error)
{
    (void)error;
    hx_wire *wire = HX_OWNER(transport, hx_wire, transport);
    hx_exchange *exchange = wire->exchange;
    account(wire);
    if (!(exchange->own.flags & HELD_BACK) || transport->unsent > LOW_BYTES) return;
    exchange->own.flags &= ~(uint32_t)HELD_BACK;
    if (exchange->events->drained) exchange->events->drained(exchange);
}

/* Whether nothing of the request is left to be sent. */
static bool sent_whole(const hx_wire *wire)
{
    const hx_exchange *exchange = wire->exchange;
    return wire->transport.unsent == 0 && wire->transport.send_error == 0 &&
           (!exchange->body_streamed || (exchange->own.flags & FINISHED));
}

static void begin_exchange(hx_wire *wire, hx_exchange *exchange, bool reused)
{
    const hx_upstream_limits *limits = &wire->upstream->limits;
    wire->exchange = exchange;
    wire->exchanges++;
    wire->sent_before = wire->transport.sent;
    wire->early = false;
    exchange->own.connection = wire;
    exchange->own.flags &= ~(uint32_t)IN_LINE;
    exchange->reused = reused;
    exchange->bytes_sent = 0;
    exchange->connect_failures += wire->connect_failures;
    wire->connect_failures = 0;
    hx_h1_answer_begin(&wire->answer, exchange->arena, limits->head_bytes_max, limits->fields_max,
                       exchange->answer_has_no_body);
}

/* False: the connection took nothing and is closed; the exchange is as it was. A connection at rest that takes nothing
 * at once isn't worth waiting for, and a request that is queued before its first byte is sent would be neither sent nor
 * unsent. */
static bool send_request(hx_wire *wire, hx_exchange *exchange, bool reused)
{
    hx_slice pieces[HX_TRANSPORT_PIECES_MAX] = {exchange->own.head};
    unsigned count = 1;
    begin_exchange(wire, exchange, reused);
    if (exchange->body.len > COPIED_BODY_BYTES) pieces[count++] = exchange->body;
    if (exchange->own.held && exchange->own.held->len > 0) pieces[count++] = hx_buf_slice(exchange->own.held);
    int error = hx_transport_send(&wire->transport, pieces, count, HX_SEND_NOW | HX_SEND_STAYS);
    account(wire);
    if (error) {
        (void)detach(wire);
        hx_pool_close(wire);
        exchange->reused = false;
        return false;
    }
    exchange->own.flags |= CARRIED;
    if ((exchange->own.flags & HELD_BACK) && wire->transport.unsent <= LOW_BYTES) {
        exchange->own.flags &= ~(uint32_t)HELD_BACK;
        if (exchange->events->drained) call_later(exchange, DRAINING);
    }
    return true;
}

/* Tries pooled connections first; one that turns out to be dead before it took a byte costs nothing. */
static bool send_on_pooled(hx_upstream *upstream, hx_exchange *exchange)
{
    for (hx_wire *wire; (wire = hx_pool_take(upstream, exchange->pooled_idle_max, !exchange->repeatable));)
        if (send_request(wire, exchange, true)) return true;
    return false;
}

static void enter_line(hx_exchange *exchange, hx_link *before)
{
    exchange->own.flags |= IN_LINE;
    hx_list_append(before, &exchange->own.link);
    exchange->own.upstream->line_count++;
    exchange->own.upstream->fresh_count += exchange->pooled_idle_max == 0;
}

static void leave_line(hx_exchange *exchange)
{
    exchange->own.upstream->line_count--;
    exchange->own.upstream->fresh_count -= exchange->pooled_idle_max == 0;
    exchange->own.flags &= ~(uint32_t)IN_LINE;
    hx_list_remove(&exchange->own.link);
}

static void start(hx_upstream *upstream, hx_exchange *exchange, hx_buf *held, uint32_t flags);

static void start_again(hx_wire *wire)
{
    hx_exchange *exchange = detach(wire);
    close_now(wire);
    exchange->pooled_idle_max = 0; /* the others may be as stale */
    start(exchange->own.upstream, exchange, NULL, 0);
}

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

static void start(hx_upstream *upstream, hx_exchange *exchange, hx_buf *held, uint32_t flags)
{
    HX_CHECK(!upstream->dying && exchange->method.len > 0);
    memset(&exchange->own, 0, sizeof exchange->own);
    exchange->own.upstream = upstream;
    exchange->own.held = held;
    exchange->own.flags = flags;
    hx_list_init(&exchange->own.link);
    exchange->bytes_sent = exchange->connect_failures = 0;
    exchange->reused = false;
    exchange->reason = NULL;
    compose_head(exchange);
    if (send_on_pooled(upstream, exchange)) return;
    bool room = upstream->open_count < upstream->limits.connections_max || upstream->idle_count > 0;
    if (!room && upstream->line_count >= (uint64_t)upstream->connecting_count + upstream->limits.waiting_max) {
        exchange->reason = "too many requests wait for a connection";
        fail_later(exchange, HX_UPSTREAM_UNREACHABLE);
        return;
    }
    enter_line(exchange, &upstream->line);
    hx_pool_refill(upstream);
}

void hx_exchange_start(hx_upstream *upstream, hx_exchange *exchange)
{
    start(upstream, exchange, NULL, 0);
}

/* The first exchange in line; for a connection that isn't new, the first that doesn't need a new one. */
static hx_exchange *first_for(hx_upstream *upstream, bool reused)
{
    HX_EACH(link, &upstream->line)
    {
        hx_exchange *exchange = of_link(link);
        if (!reused || exchange->pooled_idle_max > 0) return exchange;
    }
    return NULL;
}

void hx_upstream_offer(hx_wire *wire)
{
    hx_upstream *upstream = wire->upstream;
    hx_exchange *next = first_for(upstream, true);
    if (!next) return;
    leave_line(next);
    hx_pool_take_this(wire);
    if (send_request(wire, next, true)) return;
    enter_line(next, upstream->line.next); /* nothing was sent: it goes to the front again */
}

void hx_upstream_connect_failed(hx_upstream *upstream, hx_upstream_error error, uint64_t failures, const char *reason)
{
    if (upstream->line_count > upstream->connecting_count) { /* else another connection is on its way for each */
        hx_exchange *exchange = of_link(upstream->line.next);
        leave_line(exchange);
        exchange->connect_failures += failures;
        exchange->reason = reason;
        fail_later(exchange, error);
    }
    hx_pool_refill(upstream);
}

/* Whether the upstream can be trusted to have read the body. Bytes that it left would be the beginning of the next
 * request on this connection, and the response to that would go to the next client. */
static bool is_read(const hx_wire *wire)
{
    if (wire->early || !sent_whole(wire)) return false;
    switch (wire->exchange->body_kind) {
    case HX_REQUEST_BODY_NONE: return true;
    case HX_REQUEST_BODY_USUAL: return wire->answer.head->status < 400; /* errors are often found before it is read */
    case HX_REQUEST_BODY_UNUSUAL: break;
    }
    return false;
}

/* The response is complete. Decides whether the connection can carry another exchange. */
static void end_now(hx_wire *wire, bool clean)
{
    hx_upstream *upstream = wire->upstream;
    hx_exchange *exchange = wire->exchange;
    bool keep = clean && is_read(wire) && wire->transport.read_max > 0 && wire->answer.keep_alive &&
                !(exchange->own.flags & TUNNEL);
    (void)detach(wire);
    if (keep)
        hx_pool_release(wire, wire->answer.keep_alive_for);
    else
        hx_pool_close(wire);
    hx_pool_refill(upstream);
    exchange->events->end(exchange);
}

/* Handles one event at a time; after each of them the exchange may be gone. */
static void consume(hx_wire *wire, hx_slice in)
{
    hx_exchange *exchange = wire->exchange;
    while (wire->exchange == exchange && wire->state == HX_WIRE_BUSY) {
        hx_slice piece = HX_EMPTY;
        if (exchange->own.flags & TUNNEL) {
            if (in.len > 0) exchange->events->body(exchange, in);
            return;
        }
        if (!wire->answer.any_byte) wire->early = !sent_whole(wire);
        switch (hx_h1_answer_read(&wire->answer, &in, &piece)) {
        case HX_ANSWER_MORE: return;
        case HX_ANSWER_HEAD: exchange->events->head(exchange, wire->answer.head); break;
        case HX_ANSWER_BODY: exchange->events->body(exchange, piece); break;
        case HX_ANSWER_END: end_now(wire, in.len == 0 && wire->answer.head->status != 101); return;
        case HX_ANSWER_BROKEN: fail_now(wire, HX_UPSTREAM_BROKEN); return;
        case HX_ANSWER_TOO_LARGE: fail_now(wire, HX_UPSTREAM_TOO_LARGE); return;
        }
    }
}

void hx_upstream_received(hx_transport *transport, hx_slice bytes)
{
    hx_wire *wire = HX_OWNER(transport, hx_wire, transport);
    if (wire->state == HX_WIRE_IDLE)
        close_now(wire); /* these bytes belong to no exchange */
    else
        consume(wire, bytes);
}

void hx_upstream_ended(hx_transport *transport, int error)
{
    hx_wire *wire = HX_OWNER(transport, hx_wire, transport);
    if (wire->state == HX_WIRE_IDLE) {
        close_now(wire);
        return;
    }
    HX_CHECK(wire->state == HX_WIRE_BUSY && wire->exchange);
    bool in_order = error == UV_EOF;
    if (!in_order) wire->exchange->reason = uv_strerror(error);
    bool over = (wire->exchange->own.flags & TUNNEL) || hx_h1_answer_ends_with_connection(&wire->answer);
    if (in_order && over)
        end_now(wire, false);
    else if (wire->exchange->repeatable && wire->exchange->reused && !wire->answer.any_byte)
        start_again(wire);
    else
        fail_now(wire, in_order && wire->answer.any_byte ? HX_UPSTREAM_CUT_SHORT : HX_UPSTREAM_RESET);
}

void hx_upstream_connected(hx_wire *wire)
{
    hx_upstream *upstream = wire->upstream;
    hx_transport_read(&wire->transport, HX_TRANSPORT_READ_BYTES);
    hx_exchange *next = first_for(upstream, false);
    if (!next) {
        hx_pool_release(wire, -1);
    } else {
        leave_line(next);
        if (!send_request(wire, next, false)) fail_later(next, HX_UPSTREAM_RESET);
    }
    hx_pool_refill(upstream);
}

/* The caller wrote on although hx_exchange_write returned false: it loses the exchange, not the process. */
static bool overflow(hx_exchange *exchange)
{
    exchange->reason = "too much of the request waits to be sent";
    hx_exchange_cancel(exchange);
    return false;
}

static bool hold(hx_exchange *exchange, const hx_slice *parts, unsigned count)
{
    hx_buf *held = exchange->own.held;
    if (!held) {
        held = exchange->own.held = hx_arena_alloc(exchange->arena, sizeof *held);
        hx_buf_init(held, exchange->arena, HELD_BYTES_MAX);
    }
    for (unsigned i = 0; i < count; i++)
        if (!hx_buf_append(held, parts[i])) return overflow(exchange);
    return held->len < HIGH_BYTES;
}

/* Writes parts that belong together. Returns false when the caller shall write no more. */
static bool write_parts(hx_exchange *exchange, hx_slice *parts, unsigned count)
{
    hx_wire *wire = exchange->own.connection;
    if (!wire && !(exchange->own.flags & CARRIED)) return hold(exchange, parts, count);
    if (!wire || (exchange->own.flags & FAILING)) return true;
    int error = hx_transport_send(&wire->transport, parts, count, 0);
    account(wire);
    /* any other error shows when reading */
    return error == UV_ENOBUFS ? overflow(exchange) : wire->transport.unsent < HIGH_BYTES;
}

bool hx_exchange_write(hx_exchange *exchange, hx_slice bytes)
{
    uint32_t flags = exchange->own.flags;
    HX_CHECK((exchange->body_streamed || (flags & TUNNEL)) && !(flags & FINISHED));
    if (bytes.len == 0) return !(flags & HELD_BACK); /* an empty chunk would end the body */
    char size[24];
    hx_slice parts[3] = {bytes};
    unsigned count = 1;
    if (exchange->framing == HX_FRAMING_CHUNKED && !(flags & TUNNEL)) {
        int len = snprintf(size, sizeof size, "%zx\r\n", bytes.len);
        parts[0] = (hx_slice){size, (size_t)len};
        parts[1] = bytes;
        parts[2] = HX_LIT("\r\n");
        count = 3;
    }
    if (write_parts(exchange, parts, count)) return true;
    exchange->own.flags |= HELD_BACK;
    return false;
}

void hx_exchange_finish(hx_exchange *exchange)
{
    uint32_t flags = exchange->own.flags;
    HX_CHECK((exchange->body_streamed || (flags & TUNNEL)) && !(flags & FINISHED));
    exchange->own.flags |= FINISHED;
    hx_slice last = HX_LIT("0\r\n\r\n");
    if (exchange->framing == HX_FRAMING_CHUNKED && !(flags & TUNNEL)) (void)write_parts(exchange, &last, 1);
    hx_wire *wire = exchange->own.connection;
    if (wire && (flags & TUNNEL)) hx_transport_shut(&wire->transport);
}

bool hx_exchange_may_repeat(const hx_exchange *exchange)
{
    return !(exchange->own.flags & CARRIED);
}

void hx_exchange_repeat(hx_upstream *upstream, hx_exchange *exchange)
{
    HX_CHECK(hx_exchange_may_repeat(exchange));
    start(upstream, exchange, exchange->own.held, exchange->own.flags & (FINISHED | HELD_BACK));
}

void hx_exchange_pause(hx_exchange *exchange)
{
    hx_wire *wire = exchange->own.connection;
    if (wire) hx_transport_read(&wire->transport, 0);
}

void hx_exchange_resume(hx_exchange *exchange)
{
    hx_wire *wire = exchange->own.connection;
    if (wire) hx_transport_read(&wire->transport, HX_TRANSPORT_READ_BYTES);
}

void hx_exchange_tunnel(hx_exchange *exchange)
{
    hx_wire *wire = exchange->own.connection;
    HX_CHECK(!wire || (wire->answer.head && wire->answer.head->status == 101));
    /* A streamed request was finished before; in the tunnel the caller may write and finish again. */
    exchange->own.flags = (exchange->own.flags | TUNNEL) & ~(uint32_t)FINISHED;
}

void hx_exchange_cancel(hx_exchange *exchange)
{
    hx_wire *wire = exchange->own.connection;
    hx_upstream *upstream = exchange->own.upstream;
    if (exchange->own.flags & IN_LINE) leave_line(exchange);
    if (wire) {
        (void)detach(wire);
        hx_pool_close(wire);
    }
    fail_later(exchange, HX_UPSTREAM_CANCELLED);
    if (wire) hx_pool_refill(upstream);
}

/* Calls the events that are due by now, not those that become due meanwhile. */
static void call_due(uv_idle_t *later)
{
    hx_upstream *upstream = later->data;
    unsigned due = 0;
    HX_EACH(waiting, &upstream->due) due++;
    for (hx_link *link; due > 0 && (link = hx_list_take(&upstream->due)); due--) {
        hx_exchange *exchange = of_link(link);
        uint32_t flags = exchange->own.flags;
        exchange->own.flags &= ~(uint32_t)(FAILING | DRAINING);
        if (flags & FAILING)
            exchange->events->failed(exchange, exchange->own.error);
        else
            exchange->events->drained(exchange);
    }
    bool line_waits = upstream->line_count > 0 && !hx_list_empty(&upstream->resting);
    if (hx_list_empty(&upstream->due) && !line_waits) uv_idle_stop(later);
}

void hx_upstream_stay_awake(hx_upstream *upstream)
{
    (void)uv_idle_start(&upstream->later, call_due);
}

void hx_upstream_set_limits(hx_upstream *upstream, const hx_upstream_limits *limits)
{
    HX_CHECK(limits->connections_max > 0 && limits->connect_timeout > 0 && limits->head_bytes_max > 0);
    upstream->limits = *limits;
    hx_pool_trim(upstream, limits->idle_max);
}

hx_upstream *hx_upstream_new(hx_loop *loop, hx_slice url, const hx_upstream_limits *limits, hx_error_text error)
{
    hx_target target;
    if (!hx_target_parse(&target, url, error)) return NULL;
    hx_upstream *upstream = calloc(1, sizeof *upstream);
    if (!upstream) hx_fatal(HX_EXIT_BUG, "out of memory (an upstream)");
    HX_CHECK(limits->connections_max > 0 && limits->connect_timeout > 0 && limits->head_bytes_max > 0);
    upstream->loop = loop;
    upstream->limits = *limits;
    upstream->target = target;
    hx_list_init(&upstream->line);
    hx_list_init(&upstream->due);
    uv_idle_init(hx_loop_uv(loop), &upstream->later);
    uv_check_init(hx_loop_uv(loop), &upstream->polled);
    upstream->later.data = upstream->polled.data = upstream;
    upstream->holds = 2;
    hx_pool_init(upstream);
    return upstream;
}

static void handle_closed(uv_handle_t *handle)
{
    hx_upstream_let_go(handle->data);
}

void hx_upstream_free(hx_upstream **owned)
{
    hx_upstream *upstream = *owned;
    if (!upstream) return;
    *owned = NULL;
    upstream->dying = true;
    for (hx_link *link; (link = upstream->line.next) != &upstream->line;) hx_exchange_cancel(of_link(link));
    HX_EACH(link, &upstream->busy)
    {
        hx_exchange *exchange = HX_OWNER(link, hx_wire, link)->exchange;
        if (exchange) hx_exchange_cancel(exchange);
    }
    hx_pool_close_all(upstream);
    for (hx_link *link; (link = hx_list_take(&upstream->due));) {
        hx_exchange *exchange = of_link(link);
        exchange->events->failed(exchange, exchange->own.error);
    }
    if (upstream->resolver.is_busy) (void)uv_cancel((uv_req_t *)&upstream->resolver.request);
    uv_close((uv_handle_t *)&upstream->later, handle_closed);
    uv_close((uv_handle_t *)&upstream->polled, handle_closed);
}

hx_slice hx_upstream_host(const hx_upstream *upstream)
{
    return hx_slice_of(upstream->target.authority);
}
