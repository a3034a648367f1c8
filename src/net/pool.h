/* SPDX-License-Identifier: Apache-2.0 */
/* Inside upstream*.c alone: the connections to an upstream. upstream_pool.c makes, keeps and closes them, upstream.c
 * runs exchanges over them.
 *
 *    (none) --connect [begin]--> CONNECTING --connected [connect_done]--> BUSY or IDLE
 *    IDLE --taken [hx_pool_take]--> BUSY --answer whole, body read [hx_pool_release]--> IDLE
 *    any --[hx_pool_close]--> CLOSING --closed--> (a spare object)
 *
 * An exchange for which no connection is at hand waits in line. Connections are made for the line, not for one
 * exchange: whichever is free first, a new one or one that comes back, takes whoever is first.
 *
 * A connection whose answer has just ended rests, so that bytes behind that answer are seen before anybody could take
 * them for the next one. Nobody gets it in the turn of the loop in which the answer ended, and whoever wants it in the
 * next one looks at the socket first. Afterwards the loop would have reported bytes or an end, and it is idle. */
#ifndef HX_NET_POOL_H
#define HX_NET_POOL_H

#include "net/h1/answer_parser.h"
#include "net/resolve.h"
#include "net/transport.h"
#include "net/upstream.h"

typedef enum { HX_WIRE_CONNECTING, HX_WIRE_IDLE, HX_WIRE_BUSY, HX_WIRE_CLOSING } hx_wire_state;

/* One connection. */
typedef struct hx_wire {
    hx_transport transport;
    hx_upstream *upstream;
    hx_exchange *exchange; /* while BUSY */
    hx_link link;          /* in upstream->idle, resting, busy or connecting */
    struct hx_wire *next_spare;
    hx_wire_state state;
    hx_timer timer; /* of the connect, then of idleness */

    bool under_way;         /* CONNECTING: the kernel is at it, not we at the name or in a pause */
    bool timed_out;         /* CONNECTING: an address didn't answer in time */
    unsigned tried;         /* CONNECTING: addresses before this one */
    unsigned first_address; /* CONNECTING: where they started */
    int refused;            /* CONNECTING: the error of a connect that couldn't even be started */
    hx_ms deadline;         /* CONNECTING: for all addresses together */
    uint64_t connect_failures;

    uint32_t exchanges; /* begun on this connection */
    hx_ms idle_since;
    uint64_t ended_in; /* the turn of the loop; 0: it has rested */
    hx_ms idle_for;    /* how long it may be */

    hx_h1_answer answer;
    uint64_t sent_before; /* what the transport had sent when the exchange began */
    bool early;           /* bytes of the answer came before the request was sent whole */
} hx_wire;

struct hx_upstream {
    hx_loop *loop;
    hx_upstream_limits limits;
    hx_target target;
    hx_resolver resolver;
    hx_link idle;    /* the one used last is at the end */
    hx_link resting; /* the one used last is at the end */
    hx_link busy;
    hx_link connecting;
    uint32_t idle_count; /* in both */
    uint32_t connecting_count;
    uint32_t open_count;   /* connecting, idle and busy */
    struct hx_wire *spare; /* closed, kept for the next ones */
    uint32_t spare_count;
    hx_link line; /* exchanges that wait for a connection */
    uint32_t line_count;
    uint32_t fresh_count; /* of those, the ones that take no connection but a new one */
    hx_link told_later;   /* exchanges whose callback is due */
    uv_idle_t later;
    uv_check_t polled; /* while one is resting */
    unsigned holds;    /* who still needs this memory: the owner, open handles, a lookup */
    bool dying;
};

void hx_pool_init(hx_upstream *upstream);
/* A connection that was idle for at most `idle_max` and is still good, or NULL. It is BUSY then. */
/* must_be_quiet: asks the kernel whether it has ended also when it was used a moment ago, if that was its first use. */
hx_wire *hx_pool_take(hx_upstream *upstream, hx_ms idle_max, bool must_be_quiet);
void hx_pool_take_this(hx_wire *wire);
/* Starts as many connections as the line needs and the limits allow. */
void hx_pool_refill(hx_upstream *upstream);
/* The exchange is over and the connection fit for another one, in a later turn. */
void hx_pool_release(hx_wire *wire, hx_ms idle_max);
/* Closes idle connections, those that were so for longest first, until at most `idle_max` are left. */
void hx_pool_trim(hx_upstream *upstream, uint32_t idle_max);
void hx_pool_close(hx_wire *wire);
void hx_pool_close_all(hx_upstream *upstream);
void hx_upstream_let_go(hx_upstream *upstream);

/* What the connections' transports tell upstream.c, but for `connected` and `closed`. */
void hx_upstream_received(hx_transport *transport, hx_slice bytes);
void hx_upstream_ended(hx_transport *transport, int error);
void hx_upstream_sent(hx_transport *transport, int error);

/* Of upstream.c: a connection was made, and is BUSY without an exchange. */
void hx_upstream_connected(hx_wire *wire);
/* A connection has rested: the first in line that takes one which isn't new gets it. */
void hx_upstream_offer(hx_wire *wire);
/* The loop must not sleep: connections rest, and somebody waits for them. */
void hx_upstream_stay_awake(hx_upstream *upstream);
/* No connection could be made for whoever is first in line. */
void hx_upstream_connect_failed(hx_upstream *upstream, hx_upstream_error error, uint64_t failures, const char *reason);

#endif
