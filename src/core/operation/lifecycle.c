/* SPDX-License-Identifier: Apache-2.0 */
#include "core/operation/lifecycle.h"

bool hx_lifecycle_may_settle(hx_state from, hx_state to)
{
    if (to == HX_PROCESSING || to == HX_EXPIRED) return false;
    return from == HX_PROCESSING || (from == HX_UNKNOWN && to != HX_UNKNOWN);
}

void hx_lifecycle_set_end(hx_record *record, const hx_policy *policy)
{
    bool ends = record->state == HX_COMPLETED || record->state == HX_FAILED;
    record->lease_until = 0;
    record->expires_at = ends ? record->changed_at + policy->lifetime : 0;
    record->tombstone_until = ends && policy->tombstone > 0 ? record->expires_at + policy->tombstone : 0;
}

bool hx_lifecycle_is_proven(const hx_record *found, const hx_claimant *claimant)
{
    bool same_caller = claimant->verified && hx_digest_eq(&found->principal, &claimant->principal);
    return same_caller || hx_digest_eq(&found->proof, &claimant->proof);
}

static hx_decision decide_settled(const hx_record *found, const hx_policy *policy)
{
    hx_on_duplicate on_duplicate = policy ? policy->on_duplicate : HX_DUPLICATE_REPLAY;
    if (found->state == HX_COMPLETED && on_duplicate == HX_DUPLICATE_REJECT) return HX_DECIDE_REJECT;
    if (found->state == HX_COMPLETED && on_duplicate == HX_DUPLICATE_NOOP) return HX_DECIDE_NOOP;
    if (found->state == HX_FAILED && policy && policy->on_failed_reject) return HX_DECIDE_FAILED_BEFORE;
    return found->answer.retained ? HX_DECIDE_REPLAY : HX_DECIDE_NOT_RETAINED;
}

hx_decision hx_lifecycle_decide(const hx_record *found, const hx_claimant *claimant, const hx_policy *policy)
{
    if (!found || found->state == HX_ABSENT) return HX_DECIDE_CLAIM;
    if (found->state == HX_EXPIRED) return HX_DECIDE_EXPIRED; /* a tombstone keeps nothing to compare */
    /* A store that can't read a record back says unknown, and knows nothing else of it. */
    if (found->state == HX_UNKNOWN && found->created_at == 0) return HX_DECIDE_UNKNOWN;
    bool proven = hx_lifecycle_is_proven(found, claimant);
    /* Whoever can't prove to be the one who asked learns nothing of the answer, nor of how the requests differ. */
    if (!proven && found->state != HX_UNKNOWN) return HX_DECIDE_NOT_AUTHORIZED;
    if (!hx_digest_eq(&found->fingerprint, &claimant->fingerprint))
        return proven ? HX_DECIDE_MISMATCH : HX_DECIDE_NOT_AUTHORIZED;
    switch (found->state) {
    case HX_PROCESSING: return HX_DECIDE_WAIT;
    case HX_UNKNOWN: return HX_DECIDE_UNKNOWN;
    default: return decide_settled(found, policy);
    }
}
