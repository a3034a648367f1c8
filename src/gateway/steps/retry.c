/* SPDX-License-Identifier: Apache-2.0 */
/* Asking again, later: under the class of the route, the client's time and the retry budget of the upstream. Whether
 * the attempt may be repeated at all was decided before. */
#include "gateway/request.h"

#include "base/log.h"
#include "base/rand.h"
#include "core/retry/retry_after.h"
#include "observe/access_log.h"
#include "gateway/parts/transactional.h"
#include "gateway/steps/steps.h"

static void log_attempt(const hx_request *r, hx_log_event event, hx_ms delay)
{
    hx_log_begin(event);
    hx_log_str("path", r->path);
    if (hx_request_is_claimed(r)) hx_log_hex("operation", r->op.bytes, sizeof r->op.bytes);
    hx_log_int("attempt", hx_request_is_claimed(r) ? r->record.attempt : r->attempts);
    hx_upstream_failure failure = hx_request_failure(r);
    if (r->exchange_state == HX_EXCHANGE_FAILED)
        hx_access_log_failure(&failure);
    else if (r->timed_out)
        hx_log_text("error", "no response in time");
    else
        hx_log_int("status", r->answer_status);
    if (delay >= 0)
        hx_log_int("delay_ms", delay);
    else
        hx_log_text("because", hx_retry_verdict_name(r->no_retry_because));
    hx_log_str("correlation_id", r->correlation);
    hx_log_end();
}

static bool give_up(hx_request *r, hx_retry_verdict why)
{
    r->no_retry_because = why;
    hx_worker_count(r->worker, HX_COUNT_RETRIES_EXHAUSTED);
    log_attempt(r, HX_EVENT_retry_exhausted, -1);
    return false;
}

bool hx_request_schedule_retry(hx_request *r)
{
    hx_ms now = hx_loop_now(r->worker->loop);
    bool is_answered = r->exchange_state == HX_EXCHANGE_WHOLE || r->exchange_state == HX_EXCHANGE_ANSWERING;
    hx_retry_question question = {
        .attempts = r->attempts,
        .elapsed = now - r->first_attempt_at,
        .at_once = r->verdict.at_once,
        .retry_after = is_answered ? r->answer_retry_after : HX_RETRY_AFTER_NONE,
        .client_left = hx_request_time_left(r),
    };
    if (r->no_retry_because != HX_RETRY_AGAIN) return false;
    hx_retry_answer next = hx_retry_next(&r->policy->retry, &question, hx_rand_u64());
    if (next.verdict == HX_RETRY_TOLD_LATER) r->retry_after = next.delay;
    if (next.verdict != HX_RETRY_AGAIN) return give_up(r, next.verdict);
    if (r->worker->draining) return give_up(r, HX_RETRY_NO_TIME);
    if (!hx_retry_budget_reserve(hx_request_budget(r), now, &r->reservation)) {
        hx_worker_count(r->worker, HX_COUNT_RETRIES_OVER_BUDGET);
        return give_up(r, HX_RETRY_NO_ROOM);
    }
    log_attempt(r, HX_EVENT_retry_scheduled, next.delay);
    /* A timer counts from the turn's beginning: what has passed of it since is added, so that it is never early. */
    hx_request_start_timer(r, next.delay + (hx_clock_now() - now));
    return true;
}

static hx_step_result end(hx_request *r, bool go_on)
{
    hx_retry_budget_settle(hx_request_budget(r), hx_loop_now(r->worker->loop), &r->reservation, go_on);
    hx_request_stop_timer(r);
    if (!go_on) { /* settling tells whether the operation is another's */
        (void)give_up(r, HX_RETRY_NO_TIME);
        return hx_request_go(r, hx_request_is_claimed(r) ? HX_STEP_settle : HX_STEP_pass);
    }
    hx_worker_count(r->worker, HX_COUNT_RETRIES);
    bool did_nothing = r->verdict.outcome == HX_OUTCOME_NOT_EXECUTED || r->verdict.outcome == HX_OUTCOME_RELEASED;
    hx_earlier this_one = r->verdict.outcome == HX_OUTCOME_UNKNOWN ? HX_EARLIER_UNKNOWN : HX_EARLIER_ANSWERED;
    if (hx_request_is_claimed(r) && !did_nothing && this_one > r->earlier) r->earlier = this_one;
    r->exchange_state = HX_EXCHANGE_NONE;
    r->answer_streamed = false;
    r->basis = HX_BASIS_SILENCE;
    return hx_request_go(r, hx_request_is_claimed(r) ? HX_STEP_forward : HX_STEP_pass);
}

/* The claim must still be ours: its lease may have been lost while we waited, and the operation be another's by now. */
static hx_step_result renew(hx_request *r)
{
    r->lease_until = hx_loop_now(r->worker->loop) + r->policy->lease;
    hx_store_renew(r->worker->gateway->store, hx_request_prepare_call(r), &r->op, r->record.epoch, r->lease_until);
    return HX_PARKED;
}

/* Where the application's mark tells, what may have happened is sent again under a new epoch only: it is called
 * unknown, unless its mark has come by now, and taken over. */
static hx_step_result begin_anew(hx_request *r)
{
    if (hx_request_time_left(r) == 0 || r->worker->draining) return end(r, false);
    hx_retry_budget_settle(hx_request_budget(r), hx_loop_now(r->worker->loop), &r->reservation, true);
    hx_request_stop_timer(r);
    hx_worker_count(r->worker, HX_COUNT_RETRIES);
    hx_settle_begin(r, HX_OPERATION_RECLAIMING);
    return hx_request_go(r, HX_STEP_settle);
}

hx_step_result hx_step_retry(hx_request *r)
{
    if (hx_request_take_result(r)) {
        bool is_too_late = hx_loop_now(r->worker->loop) - r->first_attempt_at > r->policy->retry.total;
        bool is_wanted = hx_request_time_left(r) != 0 && !r->worker->draining && !is_too_late;
        return end(r, is_wanted && r->call->result == HX_STORE_OK);
    }
    if (r->call_state == HX_CALL_PENDING) return HX_PARKED;
    if (r->exchange_state < HX_EXCHANGE_WHOLE) { /* it timed out, or the rest of its response is not needed */
        hx_request_call_off(r, HX_UPSTREAM_CANCELLED);
        r->answer_streamed = false;
        r->basis = HX_BASIS_SILENCE;
        return HX_PARKED;
    }
    bool has_nothing_to_send = !hx_request_is_claimed(r) &&
                               (hx_request_client_is_gone(r) || r->body_state == HX_BODY_BROKEN);
    bool unwanted = r->worker->draining || has_nothing_to_send;
    if (unwanted) return end(r, false);
    if (!r->timer_rang) return HX_PARKED;
    if (hx_mark_may_come(r)) return begin_anew(r);
    return hx_request_is_claimed(r) ? renew(r) : end(r, true);
}
