/* SPDX-License-Identifier: Apache-2.0 */
/* Inside net only: the connections to one upstream. pool.c makes, keeps and closes them; exchange.c runs exchanges over
 * them, one at a time on each; a version of HTTP implements hx_wire_protocol (h1/client.c is the only one so far).
 *
 *    (none) --connect [begin]--> CONNECTING --connected [connect_done]--> BUSY or IDLE
 *    IDLE --taken [hx_pool_take_this]--> BUSY --response complete, body read [hx_pool_release]--> IDLE
 *    any --[hx_pool_close]--> CLOSING --closed--> (a spare object)
 *
 * An exchange for which there is no connection waits in line. Connections are made for the line, not for one exchange:
 * the first connection that is free, a new one or one that comes back, serves the first exchange in line.
 *
 * A connection whose response has just ended rests, so that bytes behind that response are seen before they could be
 * taken for the next one. It is not used in the turn of the loop in which the response ended, and in the next turn only
 * after a look at the socket. After that turn the loop would have reported bytes or an end, and it is idle. */
#ifndef HX_NET_POOL_H
#define HX_NET_POOL_H

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
    hx_timer timer; /* connect_timeout, then idle_for */

    bool under_way;         /* CONNECTING: connect() was called; false during a lookup or a pause */
    bool timed_out;         /* CONNECTING: an address didn't respond in time */
    unsigned tried;         /* CONNECTING: number of addresses that have failed */
    unsigned first_address; /* CONNECTING: index of the address that was tried first */
    int refused;            /* CONNECTING: the error of a connect that could not be started */
    hx_ms deadline;         /* CONNECTING: for all addresses together */
    uint64_t connect_failures;

    uint32_t exchanges; /* begun on this connection */
    hx_ms idle_since;
    uint64_t ended_in; /* the turn of the loop in which its last response ended; 0: it has rested */
    hx_ms idle_for;    /* how long it may be idle */

    uint64_t sent_before; /* what the transport had sent when the exchange began */
} hx_wire;

/* The most that `begin` makes; what was written of a streamed body follows it. */
#define HX_REQUEST_PIECES_MAX (HX_TRANSPORT_PIECES_MAX - 1u)

typedef enum { HX_ARRIVED_NOTHING, HX_ARRIVED_PART, HX_ARRIVED_WHOLE } hx_arrival;

/* A version of HTTP. What it must keep:
 *   W1. It sends through `begin` and hx_exchange_send only, so that bytes_sent counts every byte of a request.
 *   W2. It calls the exchange's events `head` and `body` from inside `received` only, and goes on after each of them
 *       only if the wire is BUSY with the same exchange.
 *   W3. A response that is complete or can't be read ends with hx_wire_end or hx_wire_fail, inside `received`. */
struct hx_wire_protocol {
    size_t wire_bytes; /* of the version's own struct, whose first member is an hx_wire; all zero at first */
    /* The wire is about to carry wire->exchange. Points `pieces` to the request, all but a streamed body, sets
     * bytes_all and returns the number of pieces. Called again, on another wire, when this one takes no byte. */
    unsigned (*begin)(hx_wire *wire, hx_slice pieces[HX_REQUEST_PIECES_MAX]);
    /* Sends a piece of a streamed body by hx_exchange_send, and returns what that does; an empty piece ends the body.
     * The exchange may have no wire yet. */
    bool (*write)(hx_exchange *exchange, hx_slice bytes);
    void (*received)(hx_wire *wire, hx_slice bytes);
    /* How much of the response has come, now that nothing more will. */
    hx_arrival (*arrived)(const hx_wire *wire);
};

extern const hx_wire_protocol hx_h1_wire_protocol;

struct hx_upstream {
    hx_loop *loop;
    hx_upstream_limits limits;
    hx_target target;
    const hx_wire_protocol *protocol;
    hx_resolver resolver;
    hx_link idle;    /* the most recently used one last */
    hx_link resting; /* the most recently used one last */
    hx_link busy;
    hx_link connecting;
    uint32_t idle_count; /* idle and resting */
    uint32_t connecting_count;
    uint32_t open_count;   /* connecting, idle and busy */
    struct hx_wire *spare; /* closed wires whose memory is used again */
    uint32_t spare_count;
    hx_link line;         /* exchanges that wait for a connection */
    uint32_t line_count;  /* exchanges in line */
    uint32_t fresh_count; /* exchanges in line that need a new connection */
    hx_link due;          /* exchanges with an event to be called from the loop */
    uv_idle_t later;
    uv_check_t polled; /* runs while a connection rests */
    unsigned holds;    /* uses of this memory: the owner's, open handles, a lookup */
    bool dying;
};

void hx_pool_init(hx_upstream *upstream);
/* Takes an idle connection, which is BUSY then. False: it has ended or holds bytes that nobody asked for; it is closed.
 * With must_be_quiet a connection that was used once is looked at even when that was a moment ago. */
bool hx_pool_take_this(hx_wire *wire, bool must_be_quiet) HX_MUST_USE;
/* Takes the best connection that was idle for at most `idle_max`; NULL when there is none. */
hx_wire *hx_pool_take(hx_upstream *upstream, hx_ms idle_max, bool must_be_quiet);
/* Starts as many connections as the line needs and the limits allow. */
void hx_pool_refill(hx_upstream *upstream);
/* The exchange is over, and the connection can carry another one in a later turn. */
void hx_pool_release(hx_wire *wire, hx_ms idle_max);
/* Closes idle connections, the longest idle first, until at most `idle_max` are left. */
void hx_pool_trim(hx_upstream *upstream, uint32_t idle_max);
void hx_pool_close(hx_wire *wire);
void hx_pool_close_all(hx_upstream *upstream);
void hx_upstream_let_go(hx_upstream *upstream);

/* In exchange.c: the events of a connection's transport, but for `connected` and `closed`. */
void hx_upstream_received(hx_transport *transport, hx_slice bytes);
void hx_upstream_ended(hx_transport *transport, int error);
void hx_upstream_sent(hx_transport *transport, int error);

/* In exchange.c: a connection was made, and is BUSY without an exchange. */
void hx_upstream_connected(hx_wire *wire);
/* A connection has rested: it serves the first exchange in line that needs no new one. */
void hx_upstream_offer(hx_wire *wire);
/* Keeps the loop from sleeping: connections rest, and exchanges wait for them. */
void hx_upstream_stay_awake(hx_upstream *upstream);
/* No connection could be made for the first exchange in line. */
void hx_upstream_connect_failed(hx_upstream *upstream, hx_upstream_error error, uint64_t failures, const char *reason);

/* In exchange.c, for versions of HTTP: whether nothing of the request is left to be sent. */
bool hx_wire_has_sent_all(const hx_wire *wire);
/* Sends parts that belong together, or holds them until there is a connection. False: write no more until `drained`. */
bool hx_exchange_send(hx_exchange *exchange, hx_slice *parts, unsigned count);
/* The response is complete. A reusable connection is kept for `idle_max` at most; -1: for idle_timeout. */
void hx_wire_end(hx_wire *wire, bool reusable, hx_ms idle_max);
/* Ends the exchange and the connection. */
void hx_wire_fail(hx_wire *wire, hx_upstream_error error);

#endif
