/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, keeps and closes connections. What must hold: open_count is the number of wires in the lists connecting, idle
 * and busy; a wire that is CLOSING is in none; every open handle holds the upstream's memory. */
#include "net/pool.h"

#include "base/check.h"
#include "base/memory/list.h"
#include "base/loop/loop_uv.h"

#include <stdlib.h>
#include <string.h>

/* A connection that was idle for less is used without a look at its socket, which costs a system call. */
#define TRUSTED_FOR 10
/* Our idle timeout ends so long before the upstream's: a request must not cross the upstream's close. */
#define KEEP_ALIVE_MARGIN (HX_SECOND / 2)
/* Before the next attempt at a unix socket whose queue is full: connect() fails there instead of waiting. */
#define FULL_QUEUE_PAUSE 5
#define SPARE_MAX 256u

static void move(hx_wire *wire, hx_wire_state state)
{
    hx_upstream *upstream = wire->upstream;
    hx_list_remove(&wire->link);
    if (wire->state == HX_WIRE_CONNECTING) upstream->connecting_count--;
    if (wire->state == HX_WIRE_IDLE) upstream->idle_count--;
    wire->state = state;
    switch (state) {
    case HX_WIRE_IDLE:
        upstream->idle_count++;
        hx_list_append(&upstream->resting, &wire->link);
        break;
    case HX_WIRE_BUSY: hx_list_append(&upstream->busy, &wire->link); break;
    case HX_WIRE_CLOSING: upstream->open_count--; break;
    case HX_WIRE_CONNECTING: hx_check_failed(__FILE__, __LINE__, "a connection is made only once");
    }
}

void hx_upstream_let_go(hx_upstream *upstream)
{
    if (--upstream->holds > 0) return;
    for (hx_wire *wire = upstream->spare, *next; wire; wire = next) {
        next = wire->next_spare;
        free(wire);
    }
    free(upstream);
}

static void recycle(hx_wire *wire)
{
    hx_upstream *upstream = wire->upstream;
    if (upstream->spare_count < SPARE_MAX) {
        upstream->spare_count++;
        wire->next_spare = upstream->spare;
        upstream->spare = wire;
    } else {
#ifndef __clang_analyzer__ /* which doesn't see that move() took it off its list */
        free(wire);
#endif
    }
    hx_upstream_let_go(upstream);
}

static void closed(hx_transport *transport)
{
    recycle(HX_OWNER(transport, hx_wire, transport));
}

void hx_pool_close(hx_wire *wire)
{
    HX_CHECK(wire->state != HX_WIRE_CLOSING && !wire->exchange);
    hx_timer_stop(wire->upstream->loop, &wire->timer);
    move(wire, HX_WIRE_CLOSING);
    if (wire->transport.is_open)
        hx_transport_close(&wire->transport, false);
    else
        recycle(wire); /* connect() was not called yet */
}

void hx_pool_close_all(hx_upstream *upstream)
{
    hx_link *lists[] = {&upstream->connecting, &upstream->idle, &upstream->resting, &upstream->busy};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        while (!hx_list_empty(lists[i])) hx_pool_close(HX_OWNER(lists[i]->next, hx_wire, link));
}

static hx_wire *new_wire(hx_upstream *upstream)
{
    hx_wire *wire = upstream->spare;
    if (wire) {
        upstream->spare = wire->next_spare;
        upstream->spare_count--;
    } else {
        wire = malloc(upstream->protocol->wire_bytes);
        if (!wire) hx_fatal(HX_EXIT_BUG, "out of memory (a connection)");
    }
    memset(wire, 0, upstream->protocol->wire_bytes);
    wire->upstream = upstream;
    wire->state = HX_WIRE_CONNECTING;
    upstream->holds++;
    upstream->open_count++;
    upstream->connecting_count++;
    hx_list_append(&upstream->connecting, &wire->link);
    return wire;
}

static void connect_or_look_up(hx_wire *wire);

/* Tries the next address, on a new wire: a socket can't be connected twice. */
static void try_again(hx_wire *failed, unsigned tried)
{
    hx_wire *next = new_wire(failed->upstream);
    next->tried = tried;
    next->first_address = failed->first_address;
    next->deadline = failed->deadline;
    next->timed_out = failed->timed_out;
    next->connect_failures = failed->connect_failures;
    hx_pool_close(failed);
    connect_or_look_up(next);
}

static void give_up(hx_wire *wire, int why)
{
    hx_upstream *upstream = wire->upstream;
    hx_upstream_error error = wire->timed_out ? HX_UPSTREAM_CONNECT_TIMEOUT : HX_UPSTREAM_UNREACHABLE;
    uint64_t failures = wire->connect_failures;
    hx_resolver_distrust(&upstream->resolver);
    hx_pool_close(wire);
    hx_upstream_connect_failed(upstream, error, failures, uv_strerror(why));
}

static void connect_failed(hx_wire *wire, int error)
{
    hx_upstream *upstream = wire->upstream;
    bool in_time = hx_loop_now(upstream->loop) < wire->deadline;
    wire->connect_failures++;
    if (upstream->target.is_unix) {
        wire->timed_out = error == UV_EAGAIN || error == UV_ETIMEDOUT;
        if (error == UV_EAGAIN && in_time)
            try_again(wire, 1);
        else
            give_up(wire, error);
        return;
    }
    if (error == UV_ETIMEDOUT) wire->timed_out = true;
    if (in_time && wire->tried + 1 < upstream->resolver.count)
        try_again(wire, wire->tried + 1);
    else
        give_up(wire, error);
}

/* The index of the address that this wire connects to. */
static unsigned address_of(const hx_wire *wire)
{
    return (wire->first_address + wire->tried) % wire->upstream->resolver.count;
}

static void connect_done(hx_transport *transport, int error)
{
    hx_wire *wire = HX_OWNER(transport, hx_wire, transport);
    if (error < 0) {
        connect_failed(wire, error);
        return;
    }
    hx_upstream *upstream = wire->upstream;
    if (!upstream->target.is_unix) upstream->resolver.preferred = address_of(wire);
    wire->idle_for = upstream->limits.idle_timeout;
    hx_timer_stop(upstream->loop, &wire->timer);
    move(wire, HX_WIRE_BUSY);
    hx_upstream_connected(wire);
}

static const hx_transport_events wire_events = {.connected = connect_done,
                                                .received = hx_upstream_received,
                                                .ended = hx_upstream_ended,
                                                .sent = hx_upstream_sent,
                                                .closed = closed};

static void connect_now(hx_wire *wire);

static void connect_expired(hx_timer *timer)
{
    hx_wire *wire = HX_OWNER(timer, hx_wire, timer);
    if (wire->refused < 0)
        connect_failed(wire, wire->refused);
    else if (wire->under_way || hx_loop_now(wire->upstream->loop) >= wire->deadline)
        connect_failed(wire, UV_ETIMEDOUT);
    else
        connect_now(wire); /* the pause is over */
}

/* Reports an immediate failure from the loop, so that nothing fails inside the call that started it. */
static void refuse_later(hx_wire *wire, int error)
{
    wire->refused = error;
    hx_timer_start(wire->upstream->loop, &wire->timer, 0, connect_expired);
}

/* The next address gets its share of the time that is left. */
static void connect_now(hx_wire *wire)
{
    hx_upstream *upstream = wire->upstream;
    hx_resolver *resolver = &upstream->resolver;
    hx_ms left = wire->deadline - hx_loop_now(upstream->loop);
    const struct sockaddr *address = (const struct sockaddr *)&upstream->target.address;
    wire->under_way = true;
    if (!upstream->target.is_unix) {
        if (wire->tried == 0) wire->first_address = resolver->preferred;
        left /= (hx_ms)(resolver->count - wire->tried);
        address = (const struct sockaddr *)&resolver->addresses[address_of(wire)];
    }
    int result = hx_transport_connect(&wire->transport, upstream->loop, &wire_events, address);
    if (result < 0)
        refuse_later(wire, result);
    else
        hx_timer_start(upstream->loop, &wire->timer, left > 1 ? left : 1, connect_expired);
}

static void connect_or_look_up(hx_wire *wire)
{
    hx_upstream *upstream = wire->upstream;
    hx_resolver *resolver = &upstream->resolver;
    hx_ms left = wire->deadline - hx_loop_now(upstream->loop);
    if (left < 1) left = 1;
    if (upstream->target.is_unix) {
        if (wire->tried == 0) {
            connect_now(wire);
            return;
        }
        hx_ms pause = left < FULL_QUEUE_PAUSE ? left : FULL_QUEUE_PAUSE;
        hx_timer_start(upstream->loop, &wire->timer, pause, connect_expired);
    } else if (hx_resolver_ready(resolver) || wire->tried > 0) {
        if (wire->tried >= resolver->count) wire->tried = 0; /* a lookup has changed the addresses */
        connect_now(wire);
    } else {
        bool was_busy = resolver->is_busy;
        if (!hx_resolver_look_up(resolver)) {
            refuse_later(wire, UV_EAI_FAIL);
            return;
        }
        if (!was_busy) upstream->holds++;
        hx_timer_start(upstream->loop, &wire->timer, left, connect_expired);
    }
}

static void looked_up(hx_resolver *resolver)
{
    hx_upstream *upstream = HX_OWNER(resolver, hx_upstream, resolver);
    /* Moved to the end one by one: connecting may fail at once and change the list. */
    for (uint32_t left = upstream->connecting_count; left > 0 && !hx_list_empty(&upstream->connecting); left--) {
        hx_wire *wire = HX_OWNER(hx_list_take(&upstream->connecting), hx_wire, link);
        hx_list_append(&upstream->connecting, &wire->link);
        if (wire->under_way) continue;
        if (resolver->count > 0)
            connect_now(wire);
        else
            connect_failed(wire, resolver->error);
    }
    hx_upstream_let_go(upstream);
}

static void begin(hx_upstream *upstream)
{
    hx_wire *wire = new_wire(upstream);
    wire->deadline = hx_loop_now(upstream->loop) + upstream->limits.connect_timeout;
    connect_or_look_up(wire);
}

/* False when there is none. */
static bool close_longest_idle(hx_upstream *upstream)
{
    hx_link *list = hx_list_empty(&upstream->idle) ? &upstream->resting : &upstream->idle;
    if (hx_list_empty(list)) return false;
    hx_pool_close(HX_OWNER(list->next, hx_wire, link));
    return true;
}

void hx_pool_trim(hx_upstream *upstream, uint32_t idle_max)
{
    while (upstream->idle_count > idle_max && close_longest_idle(upstream)) {}
}

void hx_pool_refill(hx_upstream *upstream)
{
    if (upstream->dying) return;
    uint32_t wanted = upstream->line_count;
    if (wanted > 0 && !hx_list_empty(&upstream->resting)) {
        hx_upstream_stay_awake(upstream); /* polled() offers them to the line and calls this again */
        wanted = upstream->fresh_count;   /* these can't use a resting one, and under load one always rests */
    }
    while (upstream->connecting_count < wanted) {
        if (upstream->open_count >= upstream->limits.connections_max && !close_longest_idle(upstream)) return;
        begin(upstream);
    }
}

/* The loop has polled and reported what came: a connection that rests since an earlier turn is quiet. */
static void polled(uv_check_t *check)
{
    hx_upstream *upstream = check->data;
    uint64_t turn = hx_loop_turns(upstream->loop);
    while (!hx_list_empty(&upstream->resting)) {
        hx_wire *wire = HX_OWNER(upstream->resting.next, hx_wire, link);
        if (wire->ended_in == turn) break;
        hx_list_remove(&wire->link);
        hx_list_append(&upstream->idle, &wire->link);
        if (upstream->line_count > 0) hx_upstream_offer(wire);
        wire->ended_in = 0; /* not before: what came since the loop polled is seen only by a look at the socket */
    }
    if (hx_list_empty(&upstream->resting)) uv_check_stop(check);
    hx_pool_refill(upstream);
}

void hx_pool_init(hx_upstream *upstream)
{
    hx_list_init(&upstream->idle);
    hx_list_init(&upstream->resting);
    hx_list_init(&upstream->busy);
    hx_list_init(&upstream->connecting);
    hx_resolver_init(&upstream->resolver, hx_loop_uv(upstream->loop), &upstream->target, looked_up);
}

/* A good idle connection has nothing to read; an end of file or an unexpected byte means that it can't be used. */
static bool is_quiet(const hx_wire *wire)
{
    return hx_transport_peek(&wire->transport) == 0;
}

/* The most recently used idle connection, if it was idle for at most `idle_max`; else the one that rests longest. */
static hx_wire *best(hx_upstream *upstream, hx_ms idle_max)
{
    hx_ms since = hx_loop_now(upstream->loop) - idle_max;
    if (!hx_list_empty(&upstream->idle)) {
        hx_wire *wire = HX_OWNER(upstream->idle.prev, hx_wire, link);
        if (wire->idle_since >= since) return wire;
    }
    if (hx_list_empty(&upstream->resting) || upstream->line_count > 0) return NULL; /* the line comes first */
    hx_wire *wire = HX_OWNER(upstream->resting.next, hx_wire, link);
    return wire->ended_in == hx_loop_turns(upstream->loop) ? NULL : wire;
}

bool hx_pool_take_this(hx_wire *wire, bool must_be_quiet)
{
    hx_ms idle = hx_loop_now(wire->upstream->loop) - wire->idle_since;
    /* An upstream that closes after each response without announcing it shows that after the first one. */
    bool doubted = idle > TRUSTED_FOR || wire->ended_in > 0 || (must_be_quiet && wire->exchanges == 1);
    if (idle > wire->idle_for || (doubted && !is_quiet(wire))) {
        hx_pool_close(wire);
        return false;
    }
    move(wire, HX_WIRE_BUSY);
    return true;
}

hx_wire *hx_pool_take(hx_upstream *upstream, hx_ms idle_max, bool must_be_quiet)
{
    if (idle_max == 0) return NULL;
    hx_wire *wire;
    while ((wire = best(upstream, idle_max)) && !hx_pool_take_this(wire, must_be_quiet)) {}
    return wire;
}

static void idle_expired(hx_timer *timer)
{
    hx_wire *wire = HX_OWNER(timer, hx_wire, timer);
    if (wire->state == HX_WIRE_IDLE) hx_pool_close(wire); /* hx_pool_release starts it again for a busy one */
}

void hx_pool_release(hx_wire *wire, hx_ms idle_max)
{
    hx_upstream *upstream = wire->upstream;
    wire->idle_for = upstream->limits.idle_timeout;
    if (idle_max >= 0 && idle_max - KEEP_ALIVE_MARGIN < wire->idle_for) wire->idle_for = idle_max - KEEP_ALIVE_MARGIN;
    if (wire->idle_for <= 0 || upstream->limits.idle_max == 0) {
        hx_pool_close(wire);
        return;
    }
    hx_pool_trim(upstream, upstream->limits.idle_max - 1);
    wire->idle_since = hx_loop_now(upstream->loop);
    wire->ended_in = hx_loop_turns(upstream->loop);
    move(wire, HX_WIRE_IDLE);
    hx_timer_start(upstream->loop, &wire->timer, wire->idle_for, idle_expired);
    (void)uv_check_start(&upstream->polled, polled);
}
