/* SPDX-License-Identifier: Apache-2.0 */
/* One delivery: an event on its way to one recipient, an endpoint or the application behind the inbox. Every change of
 * its state is one of the functions below. Nothing here reads a clock, draws a random number or writes to a store.
 *
 *              [lease]                [settle]: 2xx
 *    PENDING ───────────► LEASED ───────────────────────────► DELIVERED
 *       ▲  ▲                │ │ │  [settle]: 410, the last attempt, or a refusal that is final
 *       │  └────────────────┘ │ └───────────────────────────► DEAD
 *       │   [settle] failed,  │ [settle], [lapse]: it may have been processed, and the recipient doesn't deduplicate
 *       │   [lapse]           └─────────────────────────────► UNKNOWN
 *       │ [rearm]
 *    DEAD, HELD, UNKNOWN, CANCELLED, DELIVERED                 PENDING ──[cancel]──► CANCELLED
 *
 * What must hold:
 * 1. LEASED is durable before the first byte of an attempt.
 * 2. A success settles the delivery whatever its lease, unless it is settled. A failure counts under its own lease
 *    only.
 * 3. A lease that lapses returns the delivery to its schedule; the attempt counts, as interrupted.
 * 4. Nothing is dead before ten attempts of its round failed, unless the recipient refused it for good.
 * 5. An attempt never begins before its place in the schedule, nor before the moment that Retry-After named.
 *
 * A round is one pass through the ten steps of the schedule; re-arming begins another one, under the same event id. */
#ifndef HX_CORE_EVENT_DELIVERY_H
#define HX_CORE_EVENT_DELIVERY_H

#include "base/memory/arena.h"
#include "base/memory/buf.h"
#include "core/retry/backoff.h"

#define HX_DELIVERY_ATTEMPTS_KEPT 40u /* the latest are kept */
#define HX_DELIVERY_META_MAX (16u << 10)
#define HX_DELIVERY_EXCERPT_MAX (4u << 10) /* of a response */
#define HX_DELIVERY_ERROR_MAX 200u

typedef enum {
#define X(id, name, queue, has_ended, text) HX_DELIVERY_##id,
#include "core/event/states.def"
#undef X
    HX_DELIVERY_STATES
} hx_delivery_state;

typedef struct {
    const char *name;
    const char *queue;
    bool has_ended;
    const char *text;
} hx_delivery_traits;

extern const hx_delivery_traits hx_delivery_states[HX_DELIVERY_STATES];
/* False: there is no such state. */
bool hx_delivery_state_named(hx_slice name, hx_delivery_state *out) HX_MUST_USE;

typedef struct {
    hx_ms at;          /* when it began */
    uint64_t ms;       /* how long it took */
    uint64_t status;   /* 0: no response */
    hx_slice error;    /* why there is no response; "interrupted": its lease lapsed */
    uint64_t response; /* bytes of the response that are kept, in the item's body, after those of earlier attempts */
} hx_attempt;

typedef struct {
    hx_slice event;    /* key of the event's item */
    hx_slice endpoint; /* id of the recipient */
    hx_slice tenant;
    hx_slice stream; /* of the event; empty: none */
    uint64_t place;  /* among those of its stream, for an endpoint that gets them in order; 0: it doesn't */
    hx_delivery_state state;
    hx_ms created_at;
    hx_ms due;               /* PENDING: of the next attempt. LEASED: when the lease lapses */
    uint64_t lease;          /* a random number, drawn for the attempt under way */
    uint64_t attempts;       /* made in all rounds */
    uint64_t round;          /* from 1 */
    uint64_t round_attempts; /* made in this round */
    uint64_t step;           /* of the schedule: of the attempt under way, or the next one. Steps that passed while
                              * Retry-After was obeyed are left out, so it may be ahead of round_attempts */
    hx_ms first_at;          /* start of this round's first attempt; 0: there was none */
    hx_ms last_at;           /* start of the last attempt */
    hx_ms settled_at;
    hx_slice reason; /* why it is in its state, where that isn't plain */
    hx_slice job;    /* id of the last job that has armed it (core/event/redrive.h) */
    hx_attempt kept[HX_DELIVERY_ATTEMPTS_KEPT];
    size_t kept_count;
    hx_slice responses; /* the item's body */
} hx_delivery;

/* Writes the item's meta. */
void hx_delivery_encode(const hx_delivery *delivery, hx_buf *out);
/* False: it isn't the meta of a delivery. Texts point into `meta` or are in the arena. */
bool hx_delivery_decode(hx_slice meta, hx_slice body, hx_arena *arena, hx_delivery *out) HX_MUST_USE;

/* Begins an attempt. */
void hx_delivery_lease(hx_delivery *delivery, hx_ms now, hx_ms lease_ms, uint64_t lease);

/* What is promised of the recipient, and so what a failure means. */
typedef struct {
    bool repeats_safely;       /* it deduplicates by the event's id: the rule for webhooks */
    bool dead_on_client_error; /* its 4xx are meant */
    unsigned attempts_max;     /* 0: ten */
} hx_delivery_rules;

typedef struct {
    unsigned status;   /* 0: no response */
    bool nothing_sent; /* no byte of the request left this machine */
    const char *error; /* why there is no response; NULL with a status */
    hx_ms ms;          /* how long it took */
    hx_ms retry_after; /* HX_RETRY_AFTER_NONE, or from now */
    hx_slice response; /* its first bytes */
    hx_slice content_type;
} hx_attempt_result;

typedef enum {
    HX_SETTLED,          /* the delivery has changed: commit it */
    HX_SETTLED_BEFORE,   /* it was settled already, or the failure came under a lost lease: nothing has changed */
    HX_SETTLED_DISABLES, /* as HX_SETTLED, and the recipient asks for no more events (410) */
} hx_delivery_settled;

/* Ends the attempt of this lease. `random` is any number; `arena` gets the texts that the delivery then points to. */
hx_delivery_settled hx_delivery_settle(hx_delivery *delivery, const hx_delivery_rules *rules, uint64_t lease,
                                       const hx_attempt_result *result, hx_ms now, uint64_t random, hx_arena *arena);
/* Ends an attempt whose lease has lapsed. False: it hasn't, and nothing has changed. */
bool hx_delivery_lapse(hx_delivery *delivery, const hx_delivery_rules *rules, hx_ms now, uint64_t random,
                       hx_arena *arena) HX_MUST_USE;
/* Begins a new round, the first attempt due at once. False: it is pending or being sent. */
bool hx_delivery_rearm(hx_delivery *delivery, hx_ms now) HX_MUST_USE;
/* The same for one that waits for an endpoint that is disabled. False: it isn't pending. */
bool hx_delivery_rearm_paused(hx_delivery *delivery, hx_ms now) HX_MUST_USE;
/* Ends a delivery that isn't being sent. False: it is, or has ended. */
bool hx_delivery_cancel(hx_delivery *delivery, hx_ms now, hx_slice reason) HX_MUST_USE;
/* The same for one that is dead, held or unknown, too: an operator gives it up. False: it is being sent, or over. */
bool hx_delivery_skip(hx_delivery *delivery, hx_ms now, hx_slice reason) HX_MUST_USE;
/* Ends a pending delivery as dead. False: it isn't pending. */
bool hx_delivery_give_up(hx_delivery *delivery, hx_ms now, hx_slice reason) HX_MUST_USE;

/* The name of the queue that its item belongs to, empty for none: "due/TENANT/ENDPOINT/", or of a pending one with a
 * place, "due/TENANT/ENDPOINT/=STREAM/". In the arena. */
hx_slice hx_delivery_queue(const hx_delivery *delivery, hx_arena *arena);
/* The key of the item that marks which delivery of its stream is under way: "o/TENANT/ENDPOINT/=STREAM". It has the
 * delivery's key as its meta, and is the first in the queue of the stream. */
hx_slice hx_delivery_mark_key(const hx_delivery *delivery, hx_arena *arena);
#define HX_DELIVERY_MARKS "o/"

#endif
