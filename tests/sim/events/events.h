/* SPDX-License-Identifier: Apache-2.0 */
/* One simulated world of events: nodes with the daemon's own engine (src/events), and around them a store that delays,
 * loses and fails, receivers that answer as they like, publishers and senders of webhooks that repeat what was not
 * acknowledged, and an operator. The clock, the loops and the choices are those of the gateway's simulator.
 *
 *     actors.c ──► hx_engine ──receiver.c──► endpoints and applications
 *     consumers.c ──► hx_engine: reading, and positions in the store
 *                      │
 *                    store.c: delays, loses, fails ──► src/store/memory.c
 *
 * The oracle (oracle.c) sees every commit as it takes effect, every attempt as it begins and every response as it is
 * told, and ends the run by sim_fail when a promise of core/event/delivery.h or of the contract is broken. */
#ifndef HX_TESTS_SIM_EVENTS_H
#define HX_TESTS_SIM_EVENTS_H

#include "../world.h"
#include "events/inbox/inbox.h"

#define EV_ENDPOINTS 4u
#define EV_SOURCES 4u
#define EV_RECIPIENTS (EV_ENDPOINTS + EV_SOURCES) /* the applications behind sources come last */
#define EV_EVENTS_MAX 16u
#define EV_DELIVERIES_MAX (EV_EVENTS_MAX * EV_RECIPIENTS)
#define EV_TRIES_MAX 128u
#define EV_TIMEOUT (20 * HX_SECOND)
#define EV_PAUSE_MAX (5 * HX_DAY)

typedef struct {
    unsigned index, life; /* what belongs to an earlier life is dead */
    bool up;
    hx_ms skew; /* of its clock */
    hx_ms stalled_until;
    hx_store store;
    hx_loop *loop;
    hx_engine *engine;
} ev_node;

typedef struct {
    hx_slice id, url;
    hx_source source;
    enum { EV_MIXED, EV_FAILING, EV_GOOD } mood;
    bool is_dead_on_4xx;
    bool is_disabled, is_deleted, may_be_deleted;
    hx_ms disabled_at;
    hx_ms paused_until; /* by Retry-After, or until it was enabled; by the time of world.boot */
} ev_recipient;

/* An attempt, from its lease on. */
typedef struct {
    unsigned node, life;
    bool is_sent, is_told;
    bool nothing_sent;
    unsigned status;
    hx_ms pause;
    hx_ms told_until; /* Retry-After, by the node's clock; 0: none */
} ev_try;

typedef struct {
    hx_slice key, event_key;
    ev_recipient *recipient;
    bool is_known;
    bool is_orphan; /* it was committed while its endpoint was being deleted, and nobody ends it: a known gap */
    hx_delivery_state state;
    hx_ms due, expires_at;
    uint64_t attempts, round, round_attempts;
    hx_ms first_at, last_at; /* of this round, by the clocks of the nodes that leased */
    hx_ms not_before;
    ev_try tries[EV_TRIES_MAX]; /* by their number, from 1 */
    uint64_t body_hash, key_hash;
    unsigned rearms, rearm_asks, cancel_asks;
} ev_delivery;

typedef struct ev_event {
    hx_slice id, key, data;
    unsigned number;
    struct ev_event *second; /* published in the same request, after it; NULL: none */
    bool is_second;
    bool is_in_stream;
    uint64_t position; /* as the store has it */
    bool is_received;  /* by the inbox, else published */
    bool is_durable, is_accepted, is_asking;
    hx_ms deliver_in, deliver_at;
    unsigned repeats;
    hx_slice recipients[EV_RECIPIENTS];
    size_t recipient_count;
} ev_event;

enum {
    EV_COUNT_CRASH,
    EV_COUNT_OUTAGE,
    EV_COUNT_SUSPENDED,
    EV_COUNT_STALLED,
    EV_COUNT_CLOCK,
    EV_COUNT_LOST,
    EV_COUNT_DONE,
    EV_COUNT_FULL,
    EV_COUNT_ATTEMPT,
    EV_COUNT_SUCCESS,
    EV_COUNT_LATE_SUCCESS,
    EV_COUNT_LOST_LEASE,
    EV_COUNT_INTERRUPTED,
    EV_COUNT_DEAD,
    EV_COUNT_REARMED,
    EV_COUNT_CANCELLED,
    EV_COUNT_HELD,
    EV_COUNT_UNKNOWN,
    EV_COUNT_FORGOTTEN,
    EV_COUNT_POSITION,
    EV_COUNT_ACK,
    EV_COUNT_SEEK,
    EV_COUNTS
};

typedef struct {
    ev_node nodes[SIM_NODES_MAX];
    unsigned node_count;
    ev_recipient recipients[EV_RECIPIENTS];
    ev_event events[EV_EVENTS_MAX];
    unsigned event_count;
    ev_delivery deliveries[EV_DELIVERIES_MAX];
    unsigned delivery_count;
    struct {
        uint64_t last;                   /* position */
        hx_slice ids[EV_EVENTS_MAX + 1]; /* by their positions */
        /* Its one consumer, which two programs are: */
        uint64_t position, generation;
        uint64_t processed; /* the last that a program has read in this generation, or where that began */
        unsigned seeks;     /* under way */
    } stream;
    hx_link calls;    /* to the store, under way */
    hx_link sendings; /* under way */
    hx_link promised; /* successes that were told and must be settled */
    hx_ms stamp;      /* the latest in the store */
    hx_ms ghost_now;  /* not 0: a crashed engine is being taken apart */
    hx_ms calm_since;
    unsigned asking; /* calls of actors under way */
    struct {
        unsigned lost, done, stall, full, node_stall; /* per mille */
        hx_ms slow_until, failing_until, full_until;
    } store;
} ev_world;

extern ev_world ev;

void ev_count(unsigned what);
hx_ms ev_now(const ev_node *node);
ev_delivery *ev_delivery_at(hx_slice key); /* makes it, unknown yet */
const char *ev_name(const ev_delivery *delivery);

/* run.c */
ev_node *ev_some_node(unsigned by); /* one that is up, or NULL */

/* store.c */
void ev_store_open(ev_node *node);
/* Its node has crashed: what was under way takes effect or never will. */
void ev_store_crash(const ev_node *node);
/* Ends every call of a crashed engine. */
void ev_store_end_ghosts(void);
bool ev_store_is_busy(const ev_node *node, hx_slice key); /* with an item of this key */

/* receiver.c */
hx_sender ev_sender(ev_node *node);
void ev_receiver_end_ghosts(const ev_node *node);

/* actors.c */
void ev_actors_begin(void);
void ev_operator_acts(void);
void ev_enable_all(void);
bool ev_actors_done(void);

/* consumers.c */
#define EV_STREAM "s"
void ev_consumers_begin(void);
void ev_consumer_seeks(void);
bool ev_consumers_done(void);
void ev_oracle_entry(const hx_item *item, const hx_item *items, size_t count);
void ev_oracle_stream(const hx_item *item);
void ev_oracle_consumer(const hx_item *item);

/* oracle.c */
void ev_oracle_commit(const ev_node *node, hx_ms decided_at, const hx_item *items, size_t count);
ev_try *ev_oracle_sends(const ev_node *node, ev_delivery *delivery, uint64_t attempt, const hx_sending *sending);
void ev_oracle_told(const ev_node *node, ev_delivery *delivery, ev_try *try, const hx_attempt_result *result);
void ev_oracle_unavailable(const ev_node *node, const hx_item *items, size_t count);
void ev_oracle_step(void);
bool ev_oracle_is_done(void);
/* When something is due next, by the time of world.boot. */
hx_ms ev_oracle_next(void);

#endif
