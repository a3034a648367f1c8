/* SPDX-License-Identifier: Apache-2.0 */
/* THE state machine: what may become of an operation, and what a request for it gets (contract §2 and §3).
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

/* May a record in `from` be settled as `to` within its epoch? */
bool hx_lifecycle_may_settle(hx_state from, hx_state to);

/* What the request brings that is compared with the record. */
typedef struct {
    hx_digest fingerprint;
    hx_digest proof;
    hx_digest principal;
    bool verified; /* the principal was verified here, or the application vouches for it */
} hx_claimant;

/* Whether this is who executed it, by the same credential or as one that is known to be the same caller. */
bool hx_lifecycle_is_proven(const hx_record *found, const hx_claimant *claimant);

typedef enum {
    HX_DECIDE_CLAIM, /* nothing stands in the way */
    HX_DECIDE_WAIT,  /* the first request is under way */
    HX_DECIDE_REPLAY,
    HX_DECIDE_REJECT,        /* completed, and the route rejects duplicates */
    HX_DECIDE_FAILED_BEFORE, /* failed, and the route rejects duplicates of that */
    HX_DECIDE_NOOP,          /* completed, and the route answers duplicates with 200 {} */
    HX_DECIDE_NOT_RETAINED,
    HX_DECIDE_MISMATCH,
    HX_DECIDE_NOT_AUTHORIZED,
    HX_DECIDE_UNKNOWN,
    HX_DECIDE_EXPIRED
} hx_decision;

/* How long a record lives from record->changed_at on, in the state that it has: its lifetime and its tombstone where it
 * is completed or failed, and for ever otherwise. */
void hx_lifecycle_set_end(hx_record *record, const hx_policy *policy);

/* `found` NULL: there is no record. `policy` NULL: duplicates are replayed. */
hx_decision hx_lifecycle_decide(const hx_record *found, const hx_claimant *claimant, const hx_policy *policy);

#endif
