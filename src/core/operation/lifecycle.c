/* SPDX-License-Identifier: Apache-2.0 */
#include "core/operation/lifecycle.h"

hx_transition hx_lifecycle_claim(hx_stored stored, uint64_t take_over)
{
    if (stored.state == HX_ABSENT) return take_over == 0 ? HX_TRANSITION_WRITE : HX_TRANSITION_STALE;
    bool takes_over = stored.state == HX_UNKNOWN && take_over != 0 && stored.epoch == take_over;
    return takes_over ? HX_TRANSITION_WRITE : HX_TRANSITION_EXISTS;
}

hx_transition hx_lifecycle_settle(hx_stored stored, uint64_t epoch, hx_state to)
{
    hx_state from = stored.epoch == epoch ? stored.state : HX_ABSENT;
    bool is_end = to != HX_PROCESSING && to != HX_EXPIRED;
    bool is_open = from == HX_PROCESSING || (from == HX_UNKNOWN && to != HX_UNKNOWN);
    return is_end && is_open ? HX_TRANSITION_WRITE : HX_TRANSITION_STALE;
}

hx_transition hx_lifecycle_renew(hx_stored stored, uint64_t epoch)
{
    return stored.state == HX_PROCESSING && stored.epoch == epoch ? HX_TRANSITION_WRITE : HX_TRANSITION_STALE;
}

hx_transition hx_lifecycle_forget(hx_stored stored, uint64_t epoch, unsigned states)
{
    if (stored.state == HX_ABSENT || stored.state == HX_PROCESSING) return HX_TRANSITION_STALE;
    bool is_meant = (epoch == 0 || epoch == stored.epoch) && (states == 0 || (states >> stored.state & 1) != 0);
    return is_meant ? HX_TRANSITION_WRITE : HX_TRANSITION_STALE;
}

hx_transition hx_lifecycle_import(hx_stored stored)
{
    return stored.state == HX_ABSENT ? HX_TRANSITION_WRITE : HX_TRANSITION_EXISTS;
}

hx_state hx_lifecycle_state_at(const hx_record *record, hx_ms now)
{
    bool ended = record->state == HX_COMPLETED || record->state == HX_FAILED;
    if (record->state != HX_EXPIRED && !(ended && hx_lifecycle_is_over(record->expires_at, now))) return record->state;
    return hx_lifecycle_is_over(record->tombstone_until, now) ? HX_ABSENT : HX_EXPIRED;
}

hx_state hx_lifecycle_lapse(const hx_record *record, hx_ms now, hx_ms held)
{
    if (record->state == HX_PROCESSING && hx_lifecycle_lease_is_over(record->lease_until, now)) return HX_UNKNOWN;
    return hx_lifecycle_state_at(record, now - held);
}

void hx_lifecycle_change(hx_record *record, hx_state to, hx_slice reason, hx_ms now)
{
    record->from_state = record->state;
    record->state = to;
    record->changed_at = now;
    record->lease_until = 0;
    if (to != HX_EXPIRED) record->expires_at = record->tombstone_until = 0;
    record->reason = reason;
    if (to == HX_EXPIRED) record->answer = (hx_answer){0};
}

void hx_lifecycle_set_end(hx_record *record, const hx_policy *policy)
{
    hx_lifecycle_end_after(record, policy->lifetime, policy->tombstone);
}

void hx_lifecycle_end_after(hx_record *record, hx_ms lifetime, hx_ms tombstone)
{
    bool ends = record->state == HX_COMPLETED || record->state == HX_FAILED;
    record->lease_until = 0;
    record->expires_at = ends ? record->changed_at + lifetime : 0;
    record->tombstone_until = ends && tombstone > 0 ? record->expires_at + tombstone : 0;
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
    if (found->unreadable) return HX_DECIDE_UNKNOWN;          /* there is nothing to compare */
    bool proven = hx_lifecycle_is_proven(found, claimant);
    /* A request without proof learns nothing of the response, nor of how the requests differ. */
    if (!proven && found->state != HX_UNKNOWN) return HX_DECIDE_NOT_AUTHORIZED;
    if (!hx_digest_eq(&found->fingerprint, &claimant->fingerprint))
        return proven ? HX_DECIDE_MISMATCH : HX_DECIDE_NOT_AUTHORIZED;
    switch (found->state) {
    case HX_PROCESSING: return HX_DECIDE_WAIT;
    case HX_UNKNOWN: return HX_DECIDE_UNKNOWN;
    default: return decide_settled(found, policy);
    }
}
