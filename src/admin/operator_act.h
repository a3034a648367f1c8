/* SPDX-License-Identifier: Apache-2.0 */
/* An operator's decision about operations: reads it from the body of a request, and applies it to a record. Nothing
 * here calls the store. */
#ifndef HX_ADMIN_OPERATOR_ACT_H
#define HX_ADMIN_OPERATOR_ACT_H

#include "core/operation/policy.h"
#include "core/operation/record.h"

typedef enum { HX_OPERATOR_ACT_RESOLVE, HX_OPERATOR_ACT_FORGET } hx_operator_act_kind;

typedef struct {
    hx_operator_act_kind kind;
    bool is_bulk;
    /* read */
    hx_state to;      /* resolve: HX_COMPLETED, HX_FAILED, or HX_ABSENT to release it */
    uint64_t epoch;   /* epoch that the operation must have; 0: any */
    hx_answer answer; /* resolve as completed or failed: the response */
    hx_slice why;
    hx_slice filter; /* bulk: a raw JSON object; empty when it is missing */
    bool preview;    /* bulk: only count and show what matches */
} hx_operator_act;

/* Reads a body into `act`, whose kind and is_bulk are set. Returns NULL on success, else a sentence that says what is
 * wrong. The slices of `act` point into `arena` or `text`. `now` is for the response's Date. */
const char *hx_operator_act_read(hx_operator_act *act, hx_slice text, hx_arena *arena, hx_ms now) HX_MUST_USE;

/* "operator alice (uid 1000): WHY", the reason of the record. `who` as hx_admin_caller_text has it. */
hx_slice hx_operator_act_reason(hx_slice who, hx_slice why, hx_arena *arena);

/* The policy of the route with this identity (hx_policy_identity); the defaults if there is none. */
const hx_policy *hx_operator_act_policy(const hx_policy_set *policies, hx_slice route);

/* Turns an unknown record into the outcome of a resolve. Its slices point into `act` and `arena`. */
void hx_operator_act_resolve(const hx_operator_act *act, const hx_policy *policy, hx_slice reason, hx_ms now,
                             hx_arena *arena, hx_record *record);

#endif
