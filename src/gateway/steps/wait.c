/* SPDX-License-Identifier: Apache-2.0 */
/* A duplicate that came while the first request is under way waits for its outcome. It never makes a claim of its own
 * out of waiting: when the first was released, it gets the same answer. */
#include "gateway/steps/claim.h"
#include "gateway/request.h"

/* The first request was released: its answer is this one's too, unless it speaks of the first one's credential or was
 * too large to keep for anyone else. */
static hx_step_result share_released(hx_request *r, const hx_record *found)
{
    unsigned status = found->answer.status;
    if (status == 0 || status == 401 || status == 403 || !found->answer.retained) return hx_request_refuse_in_flight(r);
    r->reply_kind = HX_REPLY_ANSWER;
    r->reply_answer = found->answer;
    r->idempotency = HX_IDEMPOTENCY_RELEASED;
    return hx_request_go(r, HX_STEP_reply);
}

static hx_step_result outcome_came(hx_request *r)
{
    const hx_record *found = &r->call->found;
    if (found->state == HX_ABSENT) return share_released(r, found);
    if (found->state == HX_PROCESSING) return hx_request_refuse_in_flight(r); /* another epoch already */
    /* The caller was compared before the wait; by now there may be no record left to compare with. */
    if (found->state == HX_UNKNOWN && found->epoch == r->found.epoch) return hx_request_refuse_unknown(r);
    /* A probe or a take-over is left to the next request. */
    if (hx_lifecycle_decide(found, &r->claimant, r->policy) == HX_DECIDE_UNKNOWN) return hx_request_refuse_unknown(r);
    return hx_claim_decide(r, found);
}

static hx_step_result watch_done(hx_request *r)
{
    hx_request_stop_timer(r);
    switch (r->call->result) {
    case HX_STORE_OK: return outcome_came(r);
    case HX_STORE_FULL: r->retry_after = HX_SECOND; return hx_request_refuse(r, HX_ERROR_WAITERS_FULL, HX_EMPTY);
    case HX_STORE_UNAVAILABLE:
        r->retry_after = HX_SECOND;
        return hx_request_refuse(r, HX_ERROR_STORE_UNAVAILABLE, HX_EMPTY);
    default: return hx_request_refuse_in_flight(r);
    }
}

hx_step_result hx_step_wait(hx_request *r)
{
    if (hx_request_take_result(r)) return watch_done(r);
    if (r->policy->dialect != HX_DIALECT_PLAIN) return hx_request_refuse_in_flight(r); /* they promise 409 at once */
    if (r->call_state == HX_CALL_IDLE) {
        hx_store_watch(r->worker->gateway->store, hx_request_prepare_call(r), &r->op, r->found.epoch);
        hx_ms left = hx_request_time_left(r);
        bool shorter = left != HX_TIMEOUT_NONE && left < r->policy->wait;
        hx_request_start_timer(r, shorter ? left : r->policy->wait);
        return HX_PARKED;
    }
    if ((r->timer_rang || hx_request_client_is_gone(r)) && r->call_state == HX_CALL_PENDING) {
        r->call_state = HX_CALL_CANCELLED;
        hx_store_cancel(r->worker->gateway->store, r->call);
    }
    return HX_PARKED;
}
