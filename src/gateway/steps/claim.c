/* SPDX-License-Identifier: Apache-2.0 */
/* Claiming the key: a look first, because most duplicates come long after the first request; then the claim, which is
 * durable before anything is sent; and the decision on what was found. */
#include "gateway/steps/claim.h"

#include "base/check.h"
#include "base/log.h"
#include "gateway/parts/aliases.h"
#include "gateway/parts/memory_budget.h"
#include "gateway/parts/fingerprinting.h"
#include "gateway/parts/transactional.h"
#include "gateway/steps/steps.h"

/* As the client wrote it. */
static hx_slice key_field(const hx_request *r)
{
    return hx_fields_get(&r->stream->request.fields, HX_FIELD_IDEMPOTENCY_KEY);
}

void hx_claim_fill(hx_request *r, bool take_over)
{
    const hx_policy *policy = r->policy;
    hx_ms now = hx_loop_now(r->worker->loop);
    r->record = (hx_record){
        .op = r->op,
        .state = HX_PROCESSING,
        .from_state = take_over ? HX_UNKNOWN : HX_ABSENT,
        .created_at = take_over ? r->found.created_at : now,
        .changed_at = now,
        .lease_until = now + policy->lease,
        .owner = hx_store_about(r->worker->gateway->store)->owner,
        .fingerprint = r->claimant.fingerprint,
        .proof = r->claimant.proof,
        .principal = r->claimant.principal,
        .key = hx_request_mac(r, HX_TAG_KEY, r->key),
        .rule_version = policy->rule_version,
        .key_quoted = take_over ? r->found.key_quoted : hx_slice_starts(key_field(r), HX_LIT("\"")),
        .key_parameters = take_over    ? r->found.key_parameters
                          : r->natural ? HX_EMPTY
                                       : hx_key_parameters(key_field(r)),
        .attempt = take_over && r->found.attempt < UINT16_MAX ? (uint16_t)(r->found.attempt + 1) : 1,
        .route = hx_slice_first(r->identity, HX_RECORD_TEXT_MAX),
        .correlation = r->correlation,
        .reason = HX_EMPTY,
        .result = HX_EMPTY,
        .answer = {.headers = HX_EMPTY, .body = HX_EMPTY},
        .lifetime = policy->lifetime,
        .tombstone = policy->tombstone,
    };
    hx_fingerprinting_parts(r, r->record.parts);
}

/* Says which parts differ, from the short MAC of each that the record keeps. */
static hx_slice mismatch_detail(hx_request *r, const hx_record *found)
{
    uint64_t parts[HX_PART_COUNT];
    hx_fingerprinting_parts(r, parts);
    hx_buf text;
    hx_buf_init(&text, r->arena, 512);
    hx_buf_puts(&text, "This key was first used for a request with another ");
    unsigned differing = 0;
    for (unsigned i = 0; i < HX_PART_COUNT; i++) {
        if (parts[i] == found->parts[i]) continue;
        if (differing++ > 0) hx_buf_puts(&text, ", ");
        hx_buf_puts(&text, hx_fingerprint_part_text((hx_fingerprint_part)i));
    }
    if (differing == 0) hx_buf_puts(&text, "content");
    hx_buf_puts(&text, ".");
    return hx_buf_slice(&text);
}

static hx_step_result refuse_not_retained(hx_request *r, const hx_record *found)
{
    r->idempotency = HX_IDEMPOTENCY_REPLAYED;
    return hx_request_refuse(r, HX_ERROR_NOT_RETAINED,
                             hx_arena_printf(r->arena, "The operation was executed and answered with status %u.",
                                             (unsigned)found->answer.status));
}

static hx_step_result refuse_failed_before(hx_request *r)
{
    char time[HX_RFC3339_BYTES];
    r->error_original_time = r->found.created_at;
    return hx_request_refuse(r, HX_ERROR_FAILED_BEFORE,
                             hx_arena_printf(r->arena, "The first request, at %.*s, failed with status %u.",
                                             HX_FMT(hx_rfc3339(r->found.created_at, time)),
                                             (unsigned)r->found.answer.status));
}

static hx_party party_of(const hx_request *r)
{
    return hx_limiter_party(hx_policy_identity(r->policy), &r->claimant.principal);
}

/* Whether the claim is a further live key of its caller; an unknown operation that is taken over is counted already. */
static bool takes_quota(const hx_request *r)
{
    return r->policy->quota > 0 && r->taken_over_epoch == 0;
}

static bool has_quota(hx_request *r)
{
    return !takes_quota(r) || hx_limiter_begin(r->worker->gateway->limiter, party_of(r), &r->op, r->policy->quota,
                                               hx_loop_now(r->worker->loop), &r->retry_after);
}

/* The claim has ended. From here on its key counts by the state of the operation. */
static void end_quota(hx_request *r)
{
    bool is_ours = r->call->result == HX_STORE_OK;
    if (!takes_quota(r)) return;
    hx_limiter_claimed(r->worker->gateway->limiter, party_of(r), &r->record.op, is_ours, hx_loop_now(r->worker->loop));
}

void hx_claim_count_key(hx_request *r)
{
    hx_limiter *limiter = r->worker->gateway->limiter;
    const hx_record *record = &r->record; /* the claimant's, even if someone else settles it */
    hx_ms now = hx_loop_now(r->worker->loop);
    if (r->policy->quota > 0)
        hx_limiter_settled(limiter, hx_limiter_party_of(record), record->state, record->expires_at, now);
    else
        hx_limiter_settled_unlimited(limiter, record, now);
}

/* The error for a client whose request timeout ran out before this claim was granted. */
static hx_error timeout_error(hx_request *r)
{
    if (r->attempts > 0) r->idempotency = HX_IDEMPOTENCY_UNKNOWN;
    return r->attempts > 0 ? HX_ERROR_UPSTREAM_TIMEOUT : HX_ERROR_BUDGET_OVER;
}

static hx_step_result submit(hx_request *r, bool take_over)
{
    if (hx_request_time_left(r) == 0) return hx_request_refuse(r, timeout_error(r), HX_EMPTY);
    r->taken_over_epoch = take_over ? r->found.epoch : 0;
    if (!has_quota(r)) return hx_request_refuse(r, HX_ERROR_QUOTA_EXCEEDED, HX_EMPTY);
    hx_claim_fill(r, take_over);
    /* Under a new epoch nothing of an old one can be committed any more, where the application's mark is. */
    bool is_open = take_over && r->policy->guarantee != HX_GUARANTEE_TRANSACTIONAL;
    r->earlier = is_open ? HX_EARLIER_UNKNOWN : HX_EARLIER_NOTHING;
    r->lease_until = r->record.lease_until;
    hx_store_claim(r->worker->gateway->store, hx_request_prepare_call(r), &r->record, r->taken_over_epoch);
    hx_request_start_client_timer(r);
    return HX_PARKED;
}

/* Whether the upstream can be asked about another credential of the same caller. Never for unauthenticated ones. */
static bool may_be_vouched_for(const hx_request *r)
{
    bool is_same = r->principal.len > 0 && hx_digest_eq(&r->found.principal, &r->claimant.principal);
    return is_same && r->policy->authorize_method.len > 0 && r->authorize_state == HX_AUTHORIZE_NONE;
}

/* Takes a way out of unknown, if this request may. The caller must be the one of the first request: another
 * credential of the same caller learns nothing here, unless the application vouches for it. */
static hx_step_result decide_unknown(hx_request *r)
{
    bool may_repeat = hx_guarantee_repeats(r->policy->guarantee) && !hx_mark_is_missing(r, &r->found);
    bool may_probe = r->policy->on_unknown == HX_ON_UNKNOWN_PROBE && r->probe_state == HX_PROBE_NONE;
    if (r->found.unreadable || !(may_repeat || may_probe)) return hx_request_refuse_unknown(r);
    if (!hx_lifecycle_is_proven(&r->found, &r->claimant))
        return may_be_vouched_for(r) ? hx_request_go(r, HX_STEP_authorize) : hx_request_refuse_unknown(r);
    return may_repeat ? submit(r, true) : hx_request_go(r, HX_STEP_probe);
}

static hx_step_result decide_other_credential(hx_request *r)
{
    return may_be_vouched_for(r) ? hx_request_go(r, HX_STEP_authorize)
                                 : hx_request_refuse(r, HX_ERROR_REPLAY_NOT_AUTHORIZED, HX_EMPTY);
}

hx_step_result hx_claim_decide(hx_request *r, const hx_record *found)
{
    hx_decision decision = hx_lifecycle_decide(found, &r->claimant, r->policy);
    if (found && found != &r->found) r->found = *found;
    switch (decision) {
    case HX_DECIDE_CLAIM: return submit(r, false);
    case HX_DECIDE_WAIT: return hx_request_go(r, HX_STEP_wait);
    case HX_DECIDE_REPLAY: return hx_request_go(r, HX_STEP_replay);
    case HX_DECIDE_REJECT:
        r->idempotency = HX_IDEMPOTENCY_REPLAYED;
        return hx_request_refuse(r, HX_ERROR_DUPLICATE_REJECTED, HX_EMPTY);
    case HX_DECIDE_FAILED_BEFORE: return refuse_failed_before(r);
    case HX_DECIDE_NOOP:
        r->idempotency = HX_IDEMPOTENCY_REPLAYED;
        r->reply_kind = HX_REPLY_NOOP;
        return hx_request_go(r, HX_STEP_reply);
    case HX_DECIDE_NOT_RETAINED: return refuse_not_retained(r, &r->found);
    case HX_DECIDE_MISMATCH: return hx_request_refuse(r, HX_ERROR_PAYLOAD_MISMATCH, mismatch_detail(r, &r->found));
    case HX_DECIDE_NOT_AUTHORIZED: return decide_other_credential(r);
    case HX_DECIDE_UNKNOWN: return decide_unknown(r);
    case HX_DECIDE_EXPIRED: return hx_request_refuse(r, HX_ERROR_EXPIRED, HX_EMPTY);
    }
    HX_CHECK(!"every decision has a row");
    return HX_PARKED;
}

/* Only an operation that was not found before passes unrecorded: any other would be executed again, knowingly. */
hx_step_result hx_claim_refuse_unavailable(hx_request *r)
{
    bool may_be_new = r->found.state == HX_ABSENT && r->attempts == 0;
    if (r->policy->on_store_down_pass && may_be_new && !hx_request_is_replied(r)) {
        r->pass_kind = HX_PASS_BYPASS;
        r->idempotency = HX_IDEMPOTENCY_BYPASSED;
        hx_worker_count(r->worker, HX_COUNT_BYPASSED);
        return hx_request_go(r, HX_STEP_pass);
    }
    r->retry_after = HX_SECOND;
    return hx_request_refuse(r, HX_ERROR_STORE_UNAVAILABLE, HX_EMPTY);
}

hx_step_result hx_claim_give_back(hx_request *r)
{
    hx_request_set_operation(r, HX_OPERATION_CLAIMED);
    if (r->unsent == HX_UNSENT_NOT) r->unsent = HX_UNSENT_LEASE_OVER;
    hx_worker_keep_lease(r);
    r->verdict = (hx_verdict){.outcome = r->earlier == HX_EARLIER_NOTHING ? HX_OUTCOME_NOT_EXECUTED
                                                                          : HX_OUTCOME_UNKNOWN};
    return hx_request_go(r, HX_STEP_settle);
}

hx_step_result hx_claim_use(hx_request *r)
{
    hx_request_set_operation(r, HX_OPERATION_CLAIMED);
    r->attempts_of_claim = 0;
    if (r->taken_over_epoch > 0) hx_worker_count(r->worker, HX_COUNT_TAKEN_OVER);
    hx_worker_keep_lease(r);
    return hx_request_go(r, HX_STEP_forward);
}

/* A claim that takes over is never released: its operation may have happened. */
static hx_step_result granted(hx_request *r)
{
    bool may_yield = hx_aliases_may_collide(r) && r->taken_over_epoch == 0;
    return may_yield ? hx_request_go(r, HX_STEP_yield) : hx_claim_use(r);
}

/* The rules of this request are not in force. Another generation's may be, or, on a store that others use, too, those
 * of another node, which this one has to read first. */
static hx_step_result refuse_retired(hx_request *r)
{
    bool is_newest = r->use->is_current && hx_store_about(r->worker->gateway->store)->shared;
    r->retry_after = HX_SECOND;
    if (!is_newest)
        return hx_request_refuse(r, HX_ERROR_STORE_UNAVAILABLE,
                                 HX_LIT("The configuration of this route changed while the request was in flight."));
    hx_store_health *health = r->worker->gateway->outage;
    if (health) {
        atomic_store(&health->older_policies, r->use->rules->policies);
        atomic_store(&health->older_policy, r->policy);
        hx_health_failed(health, HX_STORE_HEALTH_RULES, r->identity, hx_loop_now(r->worker->loop));
    }
    return hx_request_refuse(r, HX_ERROR_STORE_UNAVAILABLE,
                             HX_LIT("This gateway has an older configuration of the route than other gateways."));
}

/* Nothing of this claim was sent; of an earlier one it may have been, which stays unknown. */
static hx_step_result refuse_claim(hx_request *r)
{
    if (r->attempts > 0) {
        r->retry_after = HX_SECOND;
        r->idempotency = HX_IDEMPOTENCY_UNKNOWN;
        return hx_request_refuse(r, HX_ERROR_NOT_RECORDED,
                                 HX_LIT("The operation could not be claimed again for a retry."));
    }
    switch (r->call->result) {
    case HX_STORE_FULL: r->retry_after = 5 * HX_SECOND; return hx_request_refuse(r, HX_ERROR_STORE_FULL, HX_EMPTY);
    case HX_STORE_RETIRED: return refuse_retired(r);
    default: return hx_claim_refuse_unavailable(r);
    }
}

static hx_step_result claim_done(hx_request *r)
{
    end_quota(r);
    hx_request_stop_timer(r);
    if (hx_request_is_replied(r))
        return r->call->result == HX_STORE_OK ? hx_claim_give_back(r) : hx_request_go(r, HX_STEP_finish);
    switch (r->call->result) {
    case HX_STORE_OK: return granted(r);
    case HX_STORE_EXISTS: return hx_claim_decide(r, &r->call->found);
    case HX_STORE_STALE: /* what was to be taken over is gone: look again */
        r->taken_over_epoch = 0;
        r->earlier = HX_EARLIER_NOTHING;
        return HX_MORE;
    default: return refuse_claim(r);
    }
}

hx_step_result hx_step_claim(hx_request *r)
{
    if (r->call_state == HX_CALL_PENDING) { /* the claim goes on, whether its client waits or not */
        if (hx_request_client_timed_out(r)) {
            r->unsent = HX_UNSENT_TIMEOUT_OVER;
            hx_reply_early(r, timeout_error(r), HX_EMPTY);
        }
        return HX_PARKED;
    }
    if (hx_request_take_result(r)) return claim_done(r);
    if (r->alias.state != HX_ALIAS_OWN) return hx_request_go(r, HX_STEP_locate);
    /* A store that has to be asked is not asked here: the claim itself says what it found. */
    bool is_found = hx_memory_peek(r, &r->op) == HX_PEEK_FOUND;
    return hx_claim_decide(r, is_found ? &r->found : NULL);
}
