/* SPDX-License-Identifier: Apache-2.0 */
/* Deciding what an attempt's response, or its absence, means for the operation: its outcome, another attempt, or a
 * question. */
#include "gateway/parts/memory_budget.h"

#include "core/json/json.h"
#include "core/retry/retry_after.h"
#include "gateway/parts/transactional.h"
#include "gateway/steps/steps.h"

static bool is_provider_duplicate(hx_request *r)
{
    const hx_provider_duplicate *sign = &r->policy->provider_duplicate;
    hx_slice value;
    if (sign->status == 0 || r->answer_status != sign->status || r->answer_streamed) return false;
    if (sign->pointer.len == 0) return true;
    hx_slice body;
    return hx_memory_answer(r, &body) && hx_json_pointer(body, sign->pointer, &value) &&
           hx_json_value_is(value, sign->value);
}

static hx_verdict of_answer(hx_request *r)
{
    if (is_provider_duplicate(r)) {
        hx_worker_count(r->worker, HX_COUNT_PROVIDER_DUPLICATES);
        return (hx_verdict){.outcome = HX_OUTCOME_UNKNOWN, .probe_tells = true};
    }
    const hx_policy *policy = r->policy;
    hx_outcome_input answer = {.status = r->answer_status,
                               .word = r->answer_word,
                               .has_retry_after = r->answer_retry_after != HX_RETRY_AFTER_NONE,
                               .releases_5xx = policy->release_5xx,
                               .releases_4xx = policy->release_4xx && r->natural,
                               .is_delete = hx_slice_eq(r->stream->request.method, HX_LIT("DELETE")),
                               .after_silence = r->earlier == HX_EARLIER_UNKNOWN,
                               .guarantee = policy->guarantee,
                               .rules = policy->outcome_rules,
                               .rule_count = policy->outcome_rule_count};
    return hx_outcome_of_answer(&answer);
}

hx_verdict hx_judge_attempt(hx_request *r)
{
    bool was_sent = r->exchange.bytes_sent > 0;
    bool is_answered = r->basis != HX_BASIS_SILENCE;
    hx_verdict verdict = is_answered
                             ? of_answer(r)
                             : hx_outcome_of_silence(was_sent, r->earlier == HX_EARLIER_UNKNOWN, r->policy->guarantee);
    /* That this attempt did nothing says nothing about the earlier ones. */
    bool frees = verdict.outcome == HX_OUTCOME_RELEASED || verdict.outcome == HX_OUTCOME_NOT_EXECUTED;
    bool is_released_by_word = is_answered && r->answer_word == HX_WORD_RELEASE;
    if (frees && r->earlier != HX_EARLIER_NOTHING && !is_released_by_word) verdict.outcome = HX_OUTCOME_UNKNOWN;
    return verdict;
}

/* Half a request must not be sent on once the operation is called unknown, be it answered already. */
static bool is_cut_off(hx_request *r)
{
    bool goes_on = r->exchange_state == HX_EXCHANGE_ANSWERING && !hx_forward_sent_whole(r);
    if (!goes_on || r->verdict.outcome != HX_OUTCOME_UNKNOWN) return false;
    r->answer_streamed = false;
    hx_request_call_off(r, HX_UPSTREAM_CANCELLED);
    return true;
}

hx_step_result hx_step_judge(hx_request *r)
{
    if (r->exchange_state == HX_EXCHANGE_CANCELLED) return HX_PARKED;
    r->basis = hx_request_is_answered(r) ? HX_BASIS_RESPONSE : HX_BASIS_SILENCE;
    hx_memory_end(r, &r->answer);
    r->verdict = hx_judge_attempt(r);
    if (is_cut_off(r)) return HX_PARKED;
    if (hx_request_is_settled(r)) { /* a late answer: one that says no more than was known changes nothing */
        bool says_more = r->verdict.outcome != HX_OUTCOME_UNKNOWN &&
                         !hx_mark_is_due(r); /* which is in the store by itself */
        return hx_request_go(r, says_more ? HX_STEP_settle : HX_STEP_late_answer);
    }
    if (r->verdict.probe_tells && r->policy->probe.method.len > 0) return hx_request_go(r, HX_STEP_probe);
    if (r->verdict.repeat && hx_request_schedule_retry(r)) return hx_request_go(r, HX_STEP_retry);
    return hx_request_go(r, HX_STEP_settle);
}
