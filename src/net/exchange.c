/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of upstream.h: which connection of pool.c carries which exchange, and what becomes of an exchange when
 * its connection fails. How requests and responses are written is up to the version of HTTP (hx_wire_protocol).
 *
 * What must hold: bytes_sent is the number of bytes of the request that the kernel took, at any time. So it is copied
 * from the transport wherever that may have sent something: after each call that sends, and in hx_upstream_sent.
 *
 * Events of an exchange are called from the loop only. An exchange that fails inside a call (the line is full, it was
 * cancelled) goes to upstream->due. */
#include "net/pool.h"

#include "base/check.h"
#include "base/loop/loop_uv.h"

#include <stdlib.h>
#include <string.h>

#define HIGH_BYTES (256u * 1024u)
#define LOW_BYTES (64u * 1024u)
#define HELD_BYTES_MAX (64u * 1024u * 1024u)

enum {
    IN_LINE = 1,   /* waits for a connection */
    FAILING = 2,   /* failed() is due, with own.error */
    DRAINING = 4,  /* drained() is due */
    HELD_BACK = 8, /* hx_exchange_write returned false */
    FINISHED = 16, /* hx_exchange_finish was called */
    CARRIED = 32,  /* a connection took a byte of it */
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

void hx_wire_fail(hx_wire *wire, hx_upstream_error error)
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

bool hx_wire_has_sent_all(const hx_wire *wire)
{
    const hx_exchange *exchange = wire->exchange;
    return wire->transport.unsent == 0 && wire->transport.send_error == 0 &&
           (!exchange->body_streamed || (exchange->own.flags & FINISHED));
}

static void begin_exchange(hx_wire *wire, hx_exchange *exchange, bool reused)
{
    wire->exchange = exchange;
    wire->exchanges++;
    wire->sent_before = wire->transport.sent;
    exchange->own.connection = wire;
    exchange->own.flags &= ~(uint32_t)IN_LINE;
    exchange->reused = reused;
    exchange->bytes_sent = 0;
    exchange->connect_failures += wire->connect_failures;
    wire->connect_failures = 0;
}

/* False: the connection took nothing and is closed; the exchange is as it was. A connection at rest that takes nothing
 * at once isn't worth waiting for, and a request that is queued before its first byte is sent would be neither sent nor
 * unsent. */
static bool send_request(hx_wire *wire, hx_exchange *exchange, bool reused)
{
    hx_slice pieces[HX_TRANSPORT_PIECES_MAX];
    begin_exchange(wire, exchange, reused);
    unsigned count = exchange->own.protocol->begin(wire, pieces);
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

static void start(hx_upstream *upstream, hx_exchange *exchange, hx_buf *held, uint32_t flags)
{
    HX_CHECK(!upstream->dying && exchange->method.len > 0);
    memset(&exchange->own, 0, sizeof exchange->own);
    exchange->own.upstream = upstream;
    exchange->own.protocol = upstream->protocol;
    exchange->own.held = held;
    exchange->own.flags = flags;
    hx_list_init(&exchange->own.link);
    exchange->bytes_sent = exchange->connect_failures = 0;
    exchange->reused = false;
    exchange->reason = NULL;
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

/* The first exchange in line that takes a connection which was idle for so long; 0: for a moment. */
static hx_exchange *first_for_idle(hx_upstream *upstream, hx_ms idle)
{
    HX_EACH(link, &upstream->line)
    {
        hx_exchange *exchange = of_link(link);
        if (exchange->pooled_idle_max > 0 && idle <= exchange->pooled_idle_max) return exchange;
    }
    return NULL;
}

void hx_upstream_offer(hx_wire *wire)
{
    hx_upstream *upstream = wire->upstream;
    hx_exchange *next = first_for_idle(upstream, hx_loop_now(upstream->loop) - wire->idle_since);
    if (!next || !hx_pool_take_this(wire, !next->repeatable)) return;
    leave_line(next);
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

void hx_wire_end(hx_wire *wire, bool reusable, hx_ms idle_max)
{
    hx_upstream *upstream = wire->upstream;
    hx_exchange *exchange = detach(wire);
    if (reusable && wire->transport.read_max > 0 && !exchange->own.is_tunnel)
        hx_pool_release(wire, idle_max);
    else
        hx_pool_close(wire);
    hx_pool_refill(upstream);
    exchange->events->end(exchange);
}

void hx_upstream_received(hx_transport *transport, hx_slice bytes)
{
    hx_wire *wire = HX_OWNER(transport, hx_wire, transport);
    if (wire->state == HX_WIRE_IDLE)
        close_now(wire); /* these bytes belong to no exchange */
    else
        wire->upstream->protocol->received(wire, bytes);
}

void hx_upstream_ended(hx_transport *transport, int error)
{
    hx_wire *wire = HX_OWNER(transport, hx_wire, transport);
    if (wire->state == HX_WIRE_IDLE) {
        close_now(wire);
        return;
    }
    HX_CHECK(wire->state == HX_WIRE_BUSY && wire->exchange);
    hx_exchange *exchange = wire->exchange;
    bool in_order = error == UV_EOF;
    if (!in_order) exchange->reason = uv_strerror(error);
    hx_arrival arrived = exchange->own.is_tunnel ? HX_ARRIVED_WHOLE : exchange->own.protocol->arrived(wire);
    if (in_order && arrived == HX_ARRIVED_WHOLE)
        hx_wire_end(wire, false, -1);
    else if (exchange->repeatable && exchange->reused && arrived == HX_ARRIVED_NOTHING)
        start_again(wire);
    else
        hx_wire_fail(wire, in_order && arrived != HX_ARRIVED_NOTHING ? HX_UPSTREAM_CUT_SHORT : HX_UPSTREAM_RESET);
}

void hx_upstream_connected(hx_wire *wire)
{
    hx_upstream *upstream = wire->upstream;
    hx_transport_read(&wire->transport, HX_TRANSPORT_READ_BYTES);
    if (hx_list_empty(&upstream->line)) {
        hx_pool_release(wire, -1);
    } else {
        hx_exchange *next = of_link(upstream->line.next);
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

bool hx_exchange_send(hx_exchange *exchange, hx_slice *parts, unsigned count)
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
    bool is_tunnel = exchange->own.is_tunnel;
    HX_CHECK((exchange->body_streamed || is_tunnel) && !(flags & FINISHED));
    if (bytes.len == 0) return !(flags & HELD_BACK);
    if (is_tunnel ? hx_exchange_send(exchange, &bytes, 1) : exchange->own.protocol->write(exchange, bytes)) return true;
    exchange->own.flags |= HELD_BACK;
    return false;
}

void hx_exchange_finish(hx_exchange *exchange)
{
    hx_wire *wire = exchange->own.connection;
    bool is_tunnel = exchange->own.is_tunnel;
    HX_CHECK((exchange->body_streamed || is_tunnel) && !(exchange->own.flags & FINISHED));
    exchange->own.flags |= FINISHED;
    if (!is_tunnel)
        (void)exchange->own.protocol->write(exchange, HX_EMPTY);
    else if (wire)
        hx_transport_shut(&wire->transport);
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
    exchange->own.is_tunnel = true;
    /* A streamed request was finished before; in the tunnel the caller may write and finish again. */
    exchange->own.flags &= ~(uint32_t)FINISHED;
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
    upstream->protocol = &hx_h1_wire_protocol;
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
