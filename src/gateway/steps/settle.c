/* SPDX-License-Identifier: Apache-2.0 */
/* Recording what became of the operation, before the client sees a byte. */
#include "gateway/steps/claim.h"
#include "gateway/parts/memory_budget.h"

#include "base/check.h"
#include "base/log.h"
#include "gateway/messages/problem.h"
#include "gateway/parts/transactional.h"
#include "gateway/steps/steps.h"

#define STORE_RETRY_DELAY ((hx_ms)200)
#define RECORD_AGAIN_DELAY ((hx_ms)2)

/* An answer that speaks of an earlier attempt, of one that the provider knows already, or of what the application
 * itself calls unknown, is no outcome; only an error of the application's own may be shown. */
static bool is_answer_withheld(const hx_request *r)
{
    if (r->verdict.outcome != HX_OUTCOME_UNKNOWN || r->basis == HX_BASIS_SILENCE) return false;
    return r->basis == HX_BASIS_UNMARKED || r->verdict.probe_tells || r->answer_status < 500;
}

/* The error that the first client gets when there is no answer of the application's to give. */
static void choose_error(hx_request *r)
{
    r->reply_kind = HX_REPLY_ERROR;
    bool nothing_happened = r->verdict.outcome == HX_OUTCOME_NOT_EXECUTED;
    if (nothing_happened && r->unsent == HX_UNSENT_TIMEOUT_OVER)
        r->error = HX_ERROR_BUDGET_OVER;
    else if (nothing_happened)
        r->error = r->unsent == HX_UNSENT_LEASE_OVER ? HX_ERROR_STORE_UNAVAILABLE : HX_ERROR_UPSTREAM_UNREACHABLE;
    else if (r->basis == HX_BASIS_UNMARKED)
        r->error = HX_ERROR_NOT_MARKED;
    else
        r->error = r->timed_out || r->unsent == HX_UNSENT_TIMEOUT_OVER ? HX_ERROR_UPSTREAM_TIMEOUT
                                                                       : HX_ERROR_UPSTREAM_BROKEN;
    r->reply_status = hx_error_about(r->error)->status;
    if (r->retry_after == 0) r->retry_after = HX_SECOND;
    hx_slice what = HX_LIT("it did not respond in time");
    if (r->basis == HX_BASIS_UNMARKED)
        what = hx_arena_printf(r->arena, "it answered %u without having completed the operation",
                               (unsigned)r->answer_status);
    else if (r->basis != HX_BASIS_SILENCE)
        what = hx_arena_printf(r->arena, "it answered %u%s", (unsigned)r->answer_status,
                               r->earlier != HX_EARLIER_NOTHING
                                   ? " after an attempt whose outcome is unknown"
                                   : ", which does not say whether the operation was executed");
    else if (r->unsent == HX_UNSENT_LEASE_OVER)
        what = HX_LIT("the claim's lease ended before the request could be sent");
    else if (r->unsent == HX_UNSENT_TIMEOUT_OVER)
        what = HX_LIT("the request timeout ended before the request could be sent");
    else if (r->exchange_state == HX_EXCHANGE_FAILED)
        what = hx_slice_of(hx_upstream_error_text(r->exchange_error));
    r->error_detail = hx_arena_printf(r->arena, "Request to the upstream: %.*s.", HX_FMT(what));
    if (r->attempts > 1)
        r->error_detail = hx_arena_printf(r->arena, "%.*s %u attempts were made.", HX_FMT(r->error_detail),
                                          r->attempts);
    if (r->no_retry_because != HX_RETRY_AGAIN)
        r->error_detail = hx_arena_printf(r->arena, "%.*s %s", HX_FMT(r->error_detail),
                                          hx_retry_verdict_text(r->no_retry_because));
}

static hx_slice reason_of(const hx_request *r)
{
    if (r->probe_reason.len > 0) return r->probe_reason;
    if (r->verdict.outcome == HX_OUTCOME_COMPLETED) return HX_EMPTY;
    if (r->basis == HX_BASIS_UNMARKED) return hx_mark_missing_reason(r);
    if (r->basis != HX_BASIS_SILENCE) return hx_arena_printf(r->arena, "answered %u", (unsigned)r->answer_status);
    return hx_slice_of(hx_error_about(r->error)->code);
}

static hx_state state_after(hx_outcome outcome)
{
    switch (outcome) {
    case HX_OUTCOME_COMPLETED: return HX_COMPLETED;
    case HX_OUTCOME_FAILED: return HX_FAILED;
    case HX_OUTCOME_UNKNOWN: return HX_UNKNOWN;
    default: return HX_ABSENT;
    }
}

static void fill_record(hx_request *r)
{
    hx_record *record = &r->record;
    record->from_state = r->operation == HX_OPERATION_RESETTLING ? HX_UNKNOWN : HX_PROCESSING;
    record->state = state_after(r->verdict.outcome);
    record->changed_at = hx_loop_now(r->worker->loop);
    HX_CHECK((record->state != HX_COMPLETED && record->state != HX_FAILED) || r->basis != HX_BASIS_SILENCE);
    hx_lifecycle_set_end(record, r->policy);
    record->reason = reason_of(r);
    record->answer = (hx_answer){.headers = HX_EMPTY, .body = HX_EMPTY};
    if (record->state == HX_UNKNOWN) { /* without anything that could be taken for an outcome */
        bool is_held = r->basis == HX_BASIS_UNMARKED || (r->basis == HX_BASIS_RESPONSE && r->verdict.probe_tells);
        if (is_held) record->answer.status = r->answer_status;
        return;
    }
    if (r->basis == HX_BASIS_SILENCE) {
        hx_problem_answer(r, &record->answer); /* for those who wait: what this client gets */
        return;
    }
    hx_slice body = HX_EMPTY;
    if (!r->answer_streamed && !hx_memory_answer(r, &body)) r->answer_streamed = true; /* it can't be read back whole */
    record->answer.status = r->answer_status;
    record->answer.retained = !r->answer_streamed;
    if (r->answer_streamed) return;
    record->answer.headers = r->lines_kept;
    record->answer.body = body;
    if (record->state != HX_ABSENT)
        record->result = hx_arena_copy(r->arena, hx_record_result(r->policy->result, body, r->arena));
}

static void submit(hx_request *r)
{
    hx_worker_drop_lease(r); /* a renewal behind the outcome would be refused */
    r->settle_tries++;
    hx_store_settle(r->worker->gateway->store, hx_request_prepare_call(r), &r->record);
    hx_request_start_client_timer(r);
}

static hx_idempotency idempotency_of(hx_outcome outcome)
{
    switch (outcome) {
    case HX_OUTCOME_COMPLETED:
    case HX_OUTCOME_FAILED: return HX_IDEMPOTENCY_STORED;
    case HX_OUTCOME_UNKNOWN: return HX_IDEMPOTENCY_UNKNOWN;
    default: return HX_IDEMPOTENCY_RELEASED;
    }
}

/* Our claim has ended. The operation is taken over if it is unknown, as any other request could. */
static hx_step_result take_over(hx_request *r, const hx_record *found)
{
    hx_worker_drop_lease(r);
    hx_request_set_operation(r, HX_OPERATION_NONE);
    r->basis = HX_BASIS_SILENCE;
    r->answer_streamed = false;
    r->exchange_state = HX_EXCHANGE_NONE;
    r->found = *found;
    hx_step_result more = hx_request_go(r, HX_STEP_claim);
    return found->state == HX_ABSENT ? more : hx_claim_decide(r, &r->found);
}

static hx_step_result recorded(hx_request *r)
{
    hx_claim_count_key(r);
    if (r->operation == HX_OPERATION_RECLAIMING && !hx_request_is_replied(r)) return take_over(r, &r->record);
    hx_request_set_operation(r, HX_OPERATION_SETTLED);
    if (hx_request_is_replied(r)) return hx_request_go(r, HX_STEP_late_answer);
    r->idempotency = idempotency_of(r->verdict.outcome);
    if (r->idempotency == HX_IDEMPOTENCY_STORED && (r->answer_streamed || r->call->unretained))
        r->idempotency = HX_IDEMPOTENCY_NOT_RETAINED;
    if (r->basis == HX_BASIS_SILENCE || is_answer_withheld(r))
        return hx_request_go(r, HX_STEP_reply); /* even if one has come since: late_answer takes it */
    r->reply_kind = HX_REPLY_ANSWER;
    r->reply_status = r->answer_status;
    r->reply_expires_at = r->record.expires_at;
    r->retry_after = 0; /* the application's own is among its lines */
    if (r->answer_streamed) return hx_request_go(r, HX_STEP_stream);
    r->reply_answer = (hx_answer){.status = r->answer_status, .retained = true, .headers = r->lines_first};
    r->reply_file = hx_memory_send_answer(r, &r->reply_answer.body);
    return hx_request_go(r, HX_STEP_reply);
}

/* A settle whose result was lost may have been written all the same. A release leaves nothing to recognise it by. */
static bool is_our_own(const hx_record *ours, const hx_record *found)
{
    return found->state != HX_ABSENT && found->epoch == ours->epoch && found->state == ours->state &&
           found->changed_at == ours->changed_at;
}

/* The application completed the operation itself: that is the answer, for this client too. */
static hx_step_result marked(hx_request *r, const hx_record *found)
{
    hx_worker_drop_lease(r);
    hx_request_set_operation(r, HX_OPERATION_SETTLED);
    r->record.state = found->state;
    r->record.expires_at = found->expires_at;
    r->record.result = hx_arena_copy(r->arena, found->result);
    hx_claim_count_key(r);
    if (hx_request_is_replied(r)) return hx_request_go(r, HX_STEP_late_answer);
    r->found = *found;
    r->retry_after = 0;
    r->idempotency = HX_IDEMPOTENCY_STORED;
    r->reply_kind = HX_REPLY_ANSWER;
    (void)hx_memory_load_found(r, &r->found);
    r->reply_answer = hx_mark_first_answer(r, &r->found);
    r->reply_file = r->found.body_file;
    r->reply_expires_at = found->expires_at;
    return hx_request_go(r, HX_STEP_reply);
}

/* Someone else settled the operation meanwhile: this client gets that outcome, never its own response. */
static hx_step_result fenced(hx_request *r)
{
    const hx_record *found = &r->call->found;
    r->call->unretained = !found->answer.retained;
    if (r->settle_tries > 1 && is_our_own(&r->record, found)) return recorded(r);
    if (hx_mark_is_ours(r, found)) return marked(r, found);
    if (r->operation == HX_OPERATION_RECLAIMING && !hx_request_is_replied(r)) return take_over(r, found);
    if (hx_mark_is_withdrawn(r, found)) { /* the application gave it back, and says why */
        r->verdict.outcome = HX_OUTCOME_RELEASED;
        r->record.state = HX_ABSENT;
        r->record.expires_at = 0;
        return recorded(r);
    }
    hx_worker_drop_lease(r);
    hx_worker_count(r->worker, HX_COUNT_STALE_OUTCOMES);
    hx_log_begin(HX_EVENT_outcome_fenced);
    hx_log_hex("operation", r->op.bytes, sizeof r->op.bytes);
    hx_log_int("epoch", (int64_t)r->record.epoch);
    hx_log_text("state", hx_state_name(found->state));
    hx_log_end();
    hx_request_set_operation(r, HX_OPERATION_SETTLED);
    if (hx_request_is_replied(r)) return hx_request_go(r, HX_STEP_late_answer);
    r->retry_after = 0;
    if (hx_lifecycle_decide(found, &r->claimant, NULL) == HX_DECIDE_REPLAY) {
        r->found = *found;
        (void)hx_memory_load_found(r, &r->found);
        r->reply_kind = HX_REPLY_ANSWER;
        r->reply_answer = hx_mark_answer(r, &r->found);
        r->reply_file = r->found.body_file;
        r->reply_expires_at = found->expires_at;
        r->idempotency = HX_IDEMPOTENCY_REPLAYED;
        return hx_request_go(r, HX_STEP_reply);
    }
    return hx_request_refuse_unknown(r);
}

static void say_not_recorded(hx_request *r)
{
    r->idempotency = HX_IDEMPOTENCY_UNKNOWN;
    r->retry_after = HX_SECOND;
    hx_reply_early(r, HX_ERROR_NOT_RECORDED, HX_EMPTY);
}

/* The store can't be reached. The answer is held and the commit tried again, until the client's time is up, who is then
 * answered that the outcome is unknown; and for as long as the claim's lease, which lapses into unknown itself. */
static hx_step_result not_recorded(hx_request *r)
{
    hx_ms now = hx_loop_now(r->worker->loop), tried = now - r->settle_since;
    bool client_waits = hx_request_time_left(r) != 0 && tried < r->policy->wait;
    bool is_hopeless = tried >= r->policy->lease;
    if (is_hopeless) {
        hx_log_begin(HX_EVENT_outcome_not_recorded);
        hx_log_hex("operation", r->op.bytes, sizeof r->op.bytes);
        hx_log_int("epoch", (int64_t)r->record.epoch);
        hx_log_end();
        hx_worker_drop_lease(r);
        hx_request_set_operation(r, HX_OPERATION_GIVEN_UP);
        r->record.state = HX_UNKNOWN;
    } else {
        hx_request_start_timer(r, STORE_RETRY_DELAY);
    }
    if (!hx_request_is_replied(r) && (!client_waits || is_hopeless)) say_not_recorded(r);
    return is_hopeless ? hx_request_go(r, HX_STEP_late_answer) : HX_PARKED;
}

static void fill(hx_request *r)
{
    hx_error said = r->error;
    unsigned status = r->reply_status;
    if (r->basis == HX_BASIS_SILENCE || is_answer_withheld(r)) choose_error(r);
    fill_record(r);
    if (!hx_request_is_replied(r)) return;
    r->error = said; /* the error that its client got before, which the log has, too */
    r->reply_status = status;
}

/* The read has come back: whether the application's mark is in the store. */
static hx_step_result read_done(hx_request *r)
{
    const hx_record *found = &r->call->found;
    if (r->call->result != HX_STORE_OK) return not_recorded(r);
    bool is_open = found->state == HX_PROCESSING || found->state == HX_UNKNOWN;
    if (!is_open || found->epoch != r->record.epoch) return fenced(r);
    r->basis = HX_BASIS_UNMARKED;
    r->verdict = (hx_verdict){.outcome = HX_OUTCOME_UNKNOWN};
    fill(r);
    submit(r);
    return HX_PARKED;
}

static void read_mark(hx_request *r)
{
    hx_store_read(r->worker->gateway->store, hx_request_prepare_call(r), &r->op);
    hx_request_start_client_timer(r);
}

void hx_settle_begin(hx_request *r, hx_operation_state next)
{
    hx_request_stop_timer(r);
    hx_request_set_operation(r, next);
    r->settle_tries = 0;
    r->settle_since = hx_loop_now(r->worker->loop);
    /* An answer that was let go for the sake of another attempt can't be replayed as it was. */
    bool is_outcome = r->verdict.outcome == HX_OUTCOME_COMPLETED || r->verdict.outcome == HX_OUTCOME_FAILED;
    if (is_outcome && r->basis == HX_BASIS_SILENCE) r->verdict.outcome = HX_OUTCOME_UNKNOWN;
    if (!hx_mark_is_due(r)) fill(r);
}

hx_step_result hx_step_settle(hx_request *r)
{
    if (hx_request_take_result(r)) {
        hx_request_stop_timer(r);
        if (r->call->verb == HX_STORE_READ) return read_done(r);
        if (r->call->result == HX_STORE_OK) return recorded(r);
        if (r->call->result == HX_STORE_STALE) return fenced(r);
        return not_recorded(r);
    }
    if (r->call_state == HX_CALL_PENDING) {
        if (hx_request_client_timed_out(r)) say_not_recorded(r);
        return HX_PARKED;
    }
    if (r->operation == HX_OPERATION_CLAIMED || r->operation == HX_OPERATION_SETTLED) {
        if (!hx_memory_may_record(r)) {
            hx_request_start_timer(r, RECORD_AGAIN_DELAY);
            return HX_PARKED;
        }
        hx_settle_begin(r, hx_request_is_settled(r) ? HX_OPERATION_RESETTLING : HX_OPERATION_SETTLING);
    } else if (hx_timer_running(&r->timer) && !r->timer_rang) {
        return HX_PARKED;
    }
    if (hx_mark_is_due(r))
        read_mark(r);
    else
        submit(r);
    return HX_PARKED;
}
