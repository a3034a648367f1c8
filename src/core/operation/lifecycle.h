/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine of an operation, and what a request for it gets (contract §2 and §3).
 *
 *     absent ------claim------> processing --outcome--> completed | failed --lifetime over--> absent, or expired
 *                                  | |                                                        (a tombstone)
 *                                  | '--provably not executed, or released--> absent
 *                                  '--may have been executed, no outcome--> unknown
 *     unknown --its own late answer, a probe, an operator--> completed | failed | absent
 *     unknown --the route declares repeating safe--> processing, under a new epoch
 */
#ifndef HX_CORE_OPERATION_LIFECYCLE_H
#define HX_CORE_OPERATION_LIFECYCLE_H

#include "core/operation/policy.h"
#include "core/operation/record.h"

/* Transitions: the rules by which a store accepts or refuses a call (store.h, G2 to G6). They are pure, so that every
 * backend decides alike. */

/* The state of an operation in its store at the moment of a call. */
typedef struct {
    hx_state state; /* as hx_lifecycle_state_at gives it */
    uint64_t epoch;
} hx_stored;

typedef enum {
    HX_TRANSITION_WRITE,
    HX_TRANSITION_EXISTS, /* refused: the operation exists */
    HX_TRANSITION_STALE,  /* refused: the call names an epoch or a state that is over */
} hx_transition;

/* Decides a claim. take_over: 0, or the epoch of an unknown operation that is executed again. */
hx_transition hx_lifecycle_claim(hx_stored stored, uint64_t take_over);
hx_transition hx_lifecycle_settle(hx_stored stored, uint64_t epoch, hx_state to);
hx_transition hx_lifecycle_renew(hx_stored stored, uint64_t epoch);
/* Decides a forget. epoch 0: any. `states` are bits, as 1u << HX_UNKNOWN; 0: any state. */
hx_transition hx_lifecycle_forget(hx_stored stored, uint64_t epoch, unsigned states);
hx_transition hx_lifecycle_import(hx_stored stored);

/* Whether a lifetime that ends at `at`, rounded up to the second, is over. `at` may be any number. */
static inline bool hx_lifecycle_is_over(hx_ms at, hx_ms now)
{
    return now >= at && now >= (at + HX_SECOND - 1) / HX_SECOND * HX_SECOND;
}
/* Whether a claim's lease has lapsed; a lease_until of 0 is no lease. */
static inline bool hx_lifecycle_lease_is_over(hx_ms lease_until, hx_ms now)
{
    return lease_until > 0 && now >= lease_until;
}
/* The state at `now` of an operation whose newest record this is: an outcome whose lifetime is over is expired while
 * its tombstone is kept, and then absent. */
hx_state hx_lifecycle_state_at(const hx_record *record, hx_ms now);
/* The state in which a sweep leaves the operation; record->state when there is nothing to do. Leases end by `now`,
 * lifetimes `held` later (hx_clock_held). */
hx_state hx_lifecycle_lapse(const hx_record *record, hx_ms now, hx_ms held);
/* Turns the newest record into its successor in state `to`, for a change that no caller has a record for. */
void hx_lifecycle_change(hx_record *record, hx_state to, hx_slice reason, hx_ms now);

/* The properties of a request that are compared with a record. */
typedef struct {
    hx_digest fingerprint;
    hx_digest proof;
    hx_digest principal;
    bool verified; /* the principal was verified here, or the application vouches for it */
} hx_claimant;

/* Whether the request comes from the caller that executed the operation: by the same credential, or as a verified
 * principal. */
bool hx_lifecycle_is_proven(const hx_record *found, const hx_claimant *claimant);

typedef enum {
    HX_DECIDE_CLAIM, /* there is no record, or none that counts */
    HX_DECIDE_WAIT,  /* the first request is in flight */
    HX_DECIDE_REPLAY,
    HX_DECIDE_REJECT,        /* completed, and the route rejects duplicates */
    HX_DECIDE_FAILED_BEFORE, /* failed, and the route rejects duplicates of failures */
    HX_DECIDE_NOOP,          /* completed, and the route answers duplicates with 200 {} */
    HX_DECIDE_NOT_RETAINED,
    HX_DECIDE_MISMATCH,
    HX_DECIDE_NOT_AUTHORIZED,
    HX_DECIDE_UNKNOWN,
    HX_DECIDE_EXPIRED
} hx_decision;

/* Sets the end of a record, from record->changed_at on: by its lifetime and tombstone where it is completed or
 * failed; no end otherwise. */
void hx_lifecycle_set_end(hx_record *record, const hx_policy *policy);
void hx_lifecycle_end_after(hx_record *record, hx_ms lifetime, hx_ms tombstone);

/* Decides what a request gets. `found` NULL: there is no record. `policy` NULL: duplicates are replayed. */
hx_decision hx_lifecycle_decide(const hx_record *found, const hx_claimant *claimant, const hx_policy *policy);

#endif
