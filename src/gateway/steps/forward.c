/* SPDX-License-Identifier: Apache-2.0 */
/* Asking the application: one attempt. The claim is durable by now. The answer is collected whole before anything is
 * decided; one that is too large or endless is recorded by its head alone and then handed on.
 * A client that leaves changes nothing here: what was sent is finished and recorded. */
#include "gateway/steps/steps.h"

#include "base/log.h"
#include "gateway/messages/answer_headers.h"
#include "gateway/messages/upstream_head.h"
#include "gateway/parts/memory_budget.h"

static void keep_word(hx_request *r, const hx_fields *fields)
{
    hx_slice value = hx_fields_get(fields, HX_FIELD_HAPAX_OUTCOME);
    if (fields->lines[HX_FIELD_HAPAX_OUTCOME] == 0) return;
    if (fields->lines[HX_FIELD_HAPAX_OUTCOME] == 1 && hx_outcome_word_parse(value, &r->answer_word)) {
        if (r->answer_word == HX_WORD_RELEASE && r->answer_status < 300)
            hx_worker_count(r->worker, HX_COUNT_IGNORED_RELEASE);
        return;
    }
    hx_worker_count(r->worker, HX_COUNT_BAD_OUTCOME_WORD);
    hx_log_begin(HX_EVENT_outcome_header_invalid);
    hx_log_str("value", value);
    hx_log_str("path", r->path);
    hx_log_end();
}

static void keep_head(hx_request *r, const hx_answer_head *head)
{
    r->answer_status = head->status;
    r->answer_length = head->content_length;
    r->answer_retry_after = hx_answer_retry_after(r, &head->fields);
    keep_word(r, &head->fields);
    hx_buf kept = hx_answer_lines(r, &head->fields, false), first = kept;
    bool differ = head->fields.lines[HX_FIELD_SET_COOKIE] > 0 || r->policy->deny_header_count > 0;
    if (differ) first = hx_answer_lines(r, &head->fields, true);
    r->lines_kept = hx_buf_slice(&kept);
    r->lines_first = hx_buf_slice(&first);
}

static bool is_event_stream(const hx_answer_head *head)
{
    return hx_slice_starts_nocase(hx_fields_get(&head->fields, HX_FIELD_CONTENT_TYPE), HX_LIT("text/event-stream"));
}

/* From here on the answer isn't kept: it stops flowing until its outcome is durable and the client can have it. */
static void stop_keeping(hx_request *r)
{
    r->answer_streamed = true;
    hx_exchange_pause(&r->exchange);
    hx_request_run(r);
}

static void answer_head(hx_exchange *exchange, const hx_answer_head *head)
{
    hx_request *r = exchange->user;
    r->exchange_state = HX_EXCHANGE_ANSWERING;
    keep_head(r, head);
    hx_memory_begin_answer(r, head->content_length);
    bool too_large = head->content_length > 0 && (uint64_t)head->content_length > r->policy->answer_bytes_max;
    bool has_body = !exchange->answer_has_no_body && head->status != 204 && head->status != 304;
    if (head->status == 101) {
        hx_request_call_off(r, HX_UPSTREAM_BROKEN); /* a protected request never asks for an upgrade */
    } else if (has_body && (too_large || is_event_stream(head))) {
        stop_keeping(r);
    }
}

/* The most that an exchange may still deliver after it was paused. */
#define REST_BYTES_MAX (256u * 1024u)

static void answer_body(hx_exchange *exchange, hx_slice piece)
{
    hx_request *r = exchange->user;
    if (!r->answer_streamed && hx_body_append(&r->answer, piece) == HX_BODY_OK) return;
    /* A response that is over the limit, or can't be spooled, is streamed: this is its first piece, and waits. */
    if (!r->answer_rest.arena) hx_buf_init(&r->answer_rest, r->arena, REST_BYTES_MAX);
    if (!hx_buf_append(&r->answer_rest, piece)) hx_request_call_off(r, HX_UPSTREAM_BROKEN);
    if (!r->answer_streamed) stop_keeping(r);
}

static const hx_exchange_events forward_events = {.head = answer_head,
                                                  .body = answer_body,
                                                  .end = hx_request_answer_whole,
                                                  .failed = hx_request_answer_failed};

void hx_forward_expect_answer(hx_request *r)
{
    hx_ms now = hx_loop_now(r->worker->loop), timeout = r->policy->upstream_timeout;
    hx_ms left = hx_request_time_left(r);
    bool is_shorter = r->client != HX_CLIENT_ANSWERED_EARLY && left != HX_TIMEOUT_NONE && left < timeout;
    r->answer_due = now + timeout;
    r->timed_out = false;
    hx_request_start_timer(r, is_shorter ? left : timeout);
}

bool hx_forward_client_timed_out(hx_request *r)
{
    return r->timer_rang && !hx_request_is_replied(r) && hx_loop_now(r->worker->loop) < r->answer_due;
}

void hx_forward_answer_early(hx_request *r)
{
    hx_request_start_timer(r, r->answer_due - hx_loop_now(r->worker->loop));
    r->retry_after = HX_SECOND;
    bool is_unsent = r->step == HX_STEP_forward && r->exchange.bytes_sent == 0 && r->earlier == HX_EARLIER_NOTHING;
    hx_reply_early(r, is_unsent ? HX_ERROR_BUDGET_OVER_UNSENT : HX_ERROR_UPSTREAM_TIMEOUT,
                   HX_LIT("The time given by X-Request-Timeout ran out; the operation continues."));
}

bool hx_forward_sent_whole(const hx_request *r)
{
    return r->exchange.bytes_sent > 0 && r->exchange.bytes_sent == r->exchange.bytes_all;
}

void hx_forward_send(hx_request *r, bool repeat)
{
    hx_ms now = hx_loop_now(r->worker->loop);
    hx_worker_count(r->worker, HX_COUNT_ATTEMPTS);
    if (r->attempts++ == 0) {
        r->first_attempt_at = now;
        hx_retry_budget_request(hx_request_budget(r), now);
    }
    r->exchange_state = HX_EXCHANGE_OPEN;
    hx_upstream *upstream = r->worker->upstreams[r->policy->upstream];
    if (repeat)
        hx_exchange_repeat(upstream, &r->exchange);
    else
        hx_exchange_start(upstream, &r->exchange);
}

/* The claim took longer to become durable than its lease, so that it may be another's by now (a store that hung, a
 * process that was stopped), or than the client waits. Nothing of this attempt was sent, and nothing will be. */
static bool is_too_late(hx_request *r)
{
    hx_ms now = hx_loop_now(r->worker->loop);
    bool is_lease_over = now >= r->lease_until;
    bool is_timeout_over = r->attempts == 0 && hx_request_time_left(r) == 0;
    r->unsent = is_timeout_over ? HX_UNSENT_TIMEOUT_OVER : is_lease_over ? HX_UNSENT_LEASE_OVER : HX_UNSENT_NOT;
    return r->unsent != HX_UNSENT_NOT;
}

static hx_step_result give_back(hx_request *r)
{
    hx_outcome first = r->earlier == HX_EARLIER_NOTHING ? HX_OUTCOME_NOT_EXECUTED : HX_OUTCOME_UNKNOWN;
    if (r->attempts == 0) r->verdict = (hx_verdict){.outcome = first};
    return hx_request_go(r, HX_STEP_settle);
}

static hx_step_result start(hx_request *r)
{
    if (is_too_late(r)) return give_back(r);
    if (r->attempts_of_claim++ > 0 && r->record.attempt < UINT16_MAX) r->record.attempt++;
    r->exchange = (hx_exchange){
        .arena = r->arena,
        .events = &forward_events,
        .user = r,
        .body = r->fingerprint_input.body,
        .pooled_idle_max = HX_SECOND, /* a stale keep-alive would be an unknown */
    };
    hx_head_forward(r, true, &r->exchange);
    r->answer_word = HX_WORD_NONE;
    hx_forward_send(r, false);
    hx_forward_expect_answer(r);
    return HX_PARKED;
}

hx_step_result hx_step_forward(hx_request *r)
{
    if (r->exchange_state == HX_EXCHANGE_NONE) return start(r);
    if (r->exchange_state >= HX_EXCHANGE_WHOLE || r->answer_streamed) return hx_request_go(r, HX_STEP_judge);
    if (!r->timer_rang) return HX_PARKED;
    if (hx_forward_client_timed_out(r)) {
        hx_forward_answer_early(r);
        return HX_PARKED;
    }
    r->timed_out = true;
    if (hx_forward_sent_whole(r)) return hx_request_go(r, HX_STEP_judge);
    /* Where not one byte was sent, none will be: provably nothing happened. Where some were, the rest must not follow
     * once the operation is called unknown: half a request can't be executed later. */
    hx_request_call_off(r, r->exchange.bytes_sent > 0 ? HX_UPSTREAM_CANCELLED : HX_UPSTREAM_CONNECT_TIMEOUT);
    return HX_PARKED;
}
