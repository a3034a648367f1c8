/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/steps/claim.h"
#include "gateway/steps/shadow.h"

#include "base/check.h"
#include "base/log.h"
#include "gateway/parts/memory_budget.h"
#include "gateway/messages/answer_headers.h"
#include "gateway/steps/steps.h"

static const char *would_text(hx_would would)
{
    static const char *const texts[] = {[HX_WOULD_FORWARD] = "would-forward",
                                        [HX_WOULD_REPLAY] = "would-replay",
                                        [HX_WOULD_WAIT] = "would-wait",
                                        [HX_WOULD_ASK] = "would-ask",
                                        [HX_WOULD_REFUSE] = "would-refuse"};
    return texts[would];
}

static void would(hx_request *r, hx_would what)
{
    r->shadow.would = what;
}

static void would_refuse(hx_request *r, hx_error error)
{
    r->shadow.would = HX_WOULD_REFUSE;
    r->shadow.error = error;
}

static hx_decision decide(const hx_request *r, hx_record *found)
{
    if (found->state == HX_FAILED && found->answer.status == 0) found->state = HX_UNKNOWN; /* see settle */
    return hx_lifecycle_decide(found, &r->claimant, r->policy);
}

static void judge_unknown(hx_request *r)
{
    if (hx_guarantee_repeats(r->policy->guarantee))
        would(r, HX_WOULD_FORWARD);
    else if (r->policy->on_unknown == HX_ON_UNKNOWN_PROBE)
        would(r, HX_WOULD_ASK);
    else
        would_refuse(r, HX_ERROR_OUTCOME_UNKNOWN);
}

/* Decides what protection would do with this request. `found`: a copy of the record, which is changed; NULL: none. */
static void foresee(hx_request *r, hx_record *found)
{
    const hx_policy *policy = r->policy;
    bool waits = policy->dialect == HX_DIALECT_PLAIN && policy->wait > 0;
    switch (found ? decide(r, found) : HX_DECIDE_CLAIM) {
    case HX_DECIDE_CLAIM: would(r, HX_WOULD_FORWARD); return;
    case HX_DECIDE_REPLAY:
    case HX_DECIDE_NOOP: would(r, HX_WOULD_REPLAY); return;
    case HX_DECIDE_WAIT:
        if (waits)
            would(r, HX_WOULD_WAIT);
        else
            would_refuse(r, HX_ERROR_IN_FLIGHT);
        return;
    case HX_DECIDE_NOT_AUTHORIZED:
        if (policy->authorize_method.len > 0)
            would(r, HX_WOULD_ASK);
        else
            would_refuse(r, HX_ERROR_REPLAY_NOT_AUTHORIZED);
        return;
    case HX_DECIDE_UNKNOWN: judge_unknown(r); return;
    case HX_DECIDE_REJECT: would_refuse(r, HX_ERROR_DUPLICATE_REJECTED); return;
    case HX_DECIDE_FAILED_BEFORE: would_refuse(r, HX_ERROR_FAILED_BEFORE); return;
    case HX_DECIDE_NOT_RETAINED: would_refuse(r, HX_ERROR_NOT_RETAINED); return;
    case HX_DECIDE_MISMATCH: would_refuse(r, HX_ERROR_PAYLOAD_MISMATCH); return;
    case HX_DECIDE_EXPIRED: would_refuse(r, HX_ERROR_EXPIRED); return;
    }
}

/* Kept under no rule of a route: a change of rules orphans nothing that anybody relies on. */
static void claim(hx_request *r)
{
    hx_claim_fill(r, false);
    r->record.route = hx_slice_first(hx_arena_printf(r->arena, "shadow:%.*s", HX_FMT(r->identity)), HX_RECORD_TEXT_MAX);
    r->record.rule_version = HX_RULE_SHADOW;
    r->shadow.claim = HX_SHADOW_CLAIMING;
    hx_store_claim(r->worker->gateway->store, hx_request_prepare_call(r), &r->record, 0);
}

/* From here on the request is one without a key: it passes. */
static hx_step_result begin(hx_request *r)
{
    r->pass_kind = HX_PASS_SHADOW;
    if (r->key.len > 0 && r->shadow.would != HX_WOULD_REFUSE) {
        hx_peek peek = hx_memory_peek(r, &r->op);
        foresee(r, peek == HX_PEEK_FOUND ? &r->found : NULL);
        if (peek != HX_PEEK_FOUND || r->found.state == HX_ABSENT) claim(r);
    }
    r->key = HX_EMPTY;
    return hx_request_go(r, HX_STEP_pass);
}

bool hx_shadow_takes(const hx_request *r, hx_error error)
{
    if (r->policy->mode != HX_MODE_SHADOW) return false;
    bool is_cut_short = r->body_state == HX_BODY_BROKEN && r->shadow.rest_state == HX_REST_NONE;
    bool is_unreadable = r->body_state == HX_BODY_WHOLE && error == HX_ERROR_OVERLOADED; /* from where it is spooled */
    return !is_cut_short && !is_unreadable;
}

hx_step_result hx_shadow_refuse(hx_request *r, hx_error error)
{
    would_refuse(r, error);
    r->retry_after = 0;
    return hx_request_go(r, HX_STEP_shadow);
}

void hx_shadow_overflow(hx_request *r, hx_slice piece, bool last)
{
    r->shadow.rest = hx_arena_copy(r->arena, piece);
    r->shadow.rest_state = last ? HX_REST_LAST : HX_REST_MORE_FOLLOWS;
}

void hx_shadow_look(hx_request *r)
{
    if (r->shadow.claim != HX_SHADOW_CLAIMING || !hx_request_take_result(r)) return;
    r->shadow.claim = HX_SHADOW_IDLE;
    switch (r->call->result) {
    case HX_STORE_OK:
        r->shadow.claim = HX_SHADOW_CLAIMED;
        hx_worker_keep_lease(r);
        break;
    case HX_STORE_EXISTS: foresee(r, &r->call->found); break; /* someone came in between */
    case HX_STORE_FULL: would_refuse(r, HX_ERROR_STORE_FULL); break;
    default: would_refuse(r, HX_ERROR_STORE_UNAVAILABLE); break;
    }
}

void hx_shadow_answered(hx_request *r, const hx_answer_head *head)
{
    uint64_t max = r->policy->answer_bytes_max;
    hx_slice type = hx_fields_get(&head->fields, HX_FIELD_CONTENT_TYPE);
    r->answer_retry_after = hx_answer_retry_after(r, &head->fields);
    if (!hx_outcome_word_parse(hx_fields_get(&head->fields, HX_FIELD_HAPAX_OUTCOME), &r->answer_word))
        r->answer_word = HX_WORD_NONE;
    r->answer_streamed = (head->content_length > 0 && (uint64_t)head->content_length > max) ||
                         hx_slice_starts_nocase(type, HX_LIT("text/event-stream"));
}

/* An answer whose client left in the middle of it: protected, it would have been taken whole. */
static hx_outcome outcome_of(hx_request *r)
{
    if (r->attempts == 0) return HX_OUTCOME_NOT_EXECUTED;
    bool is_answered = r->exchange_state == HX_EXCHANGE_WHOLE || (hx_request_client_is_gone(r) && r->answer_status > 0);
    r->basis = is_answered ? HX_BASIS_RESPONSE : HX_BASIS_SILENCE;
    return hx_judge_attempt(r).outcome;
}

static void settle(hx_request *r)
{
    hx_record *record = &r->record;
    hx_outcome outcome = outcome_of(r);
    bool frees = outcome == HX_OUTCOME_RELEASED || outcome == HX_OUTCOME_NOT_EXECUTED;
    record->from_state = HX_PROCESSING;
    record->state = frees ? HX_ABSENT : outcome == HX_OUTCOME_COMPLETED ? HX_COMPLETED : HX_FAILED;
    record->changed_at = hx_loop_now(r->worker->loop);
    /* An unknown one is kept as failed without a status: the state `unknown` would outlive its lifetime. */
    bool is_unknown = outcome == HX_OUTCOME_UNKNOWN;
    record->reason = is_unknown ? HX_LIT("unknown") : r->answer_streamed ? HX_LIT("not retained") : HX_EMPTY;
    record->answer = (hx_answer){.status = is_unknown ? 0 : r->answer_status,
                                 .retained = !r->answer_streamed, /* as it would be where the route protects */
                                 .headers = HX_EMPTY,
                                 .body = HX_EMPTY};
    hx_lifecycle_set_end(record, r->policy);
    hx_worker_drop_lease(r);
    r->shadow.claim = HX_SHADOW_SETTLING;
    hx_store_settle(r->worker->gateway->store, hx_request_prepare_call(r), record);
}

static void count(hx_request *r)
{
    static const hx_count_id counts[] = {[HX_WOULD_FORWARD] = HX_COUNT_SHADOW_FORWARD,
                                         [HX_WOULD_REPLAY] = HX_COUNT_SHADOW_REPLAY,
                                         [HX_WOULD_WAIT] = HX_COUNT_SHADOW_WAIT,
                                         [HX_WOULD_ASK] = HX_COUNT_SHADOW_ASK,
                                         [HX_WOULD_REFUSE] = HX_COUNT_SHADOW_REFUSE};
    hx_worker_count(r->worker, counts[r->shadow.would]);
}

hx_step_result hx_step_shadow(hx_request *r)
{
    if (r->pass_kind != HX_PASS_SHADOW) return begin(r);
    hx_shadow_look(r);
    if (r->shadow.claim == HX_SHADOW_SETTLING && hx_request_take_result(r)) r->shadow.claim = HX_SHADOW_IDLE;
    if (r->shadow.claim == HX_SHADOW_CLAIMED) settle(r);
    if (r->shadow.claim != HX_SHADOW_IDLE) return HX_PARKED;
    count(r);
    return hx_request_go(r, HX_STEP_finish);
}

void hx_shadow_line(hx_request *r, hx_buf *out)
{
    hx_shadow_look(r);
    hx_buf_puts(out, "Hapax-Shadow: ");
    hx_buf_puts(out, would_text(r->shadow.would));
    if (r->shadow.would == HX_WOULD_REFUSE) {
        hx_buf_puts(out, "; error_code=");
        hx_buf_puts(out, hx_error_about(r->shadow.error)->code);
    }
    hx_buf_puts(out, "\r\n");
}

void hx_shadow_summarize(const hx_request *r, hx_summary *out)
{
    out->shadow = would_text(r->shadow.would);
    if (r->shadow.would == HX_WOULD_REFUSE) out->shadow_error_code = hx_error_about(r->shadow.error)->code;
}
