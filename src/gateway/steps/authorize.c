/* SPDX-License-Identifier: Apache-2.0 */
/* Asking the application whether a caller who comes with another credential may see what is stored (contract §3,
 * `authorize`). The question carries the credential that identified the caller, what may have been signed with it,
 * and X-Original-Method and X-Original-URI, so that a signature over the whole request can be checked. 2xx is yes;
 * anything else shows nothing. It is asked only for the same principal: what one caller may do says nothing about
 * another's answer. */
#include "gateway/request.h"
#include "gateway/messages/upstream_head.h"
#include "gateway/steps/steps.h"

static void answer_head(hx_exchange *exchange, const hx_answer_head *head)
{
    hx_request *r = exchange->user;
    r->exchange_state = HX_EXCHANGE_ANSWERING;
    r->authorize_status = head->status;
    if (head->status == 101) hx_request_call_off(r, HX_UPSTREAM_BROKEN);
}

static void answer_body(hx_exchange *exchange, hx_slice piece)
{
    (void)exchange, (void)piece; /* the status says it all */
}

static const hx_exchange_events authorize_events = {.head = answer_head,
                                                    .body = answer_body,
                                                    .end = hx_request_answer_whole,
                                                    .failed = hx_request_answer_failed};

static hx_step_result ask(hx_request *r)
{
    r->exchange = (hx_exchange){
        .arena = r->arena, .events = &authorize_events, .user = r, .repeatable = true, .pooled_idle_max = INT64_MAX};
    const hx_policy *policy = r->policy;
    hx_head_question(r, policy->authorize_method, policy->authorize_target, HX_ASKS_ABOUT_THE_CALLER, &r->exchange);
    r->authorize_state = HX_AUTHORIZE_ASKING;
    r->authorize_status = 0;
    r->exchange_state = HX_EXCHANGE_OPEN;
    hx_worker_count(r->worker, HX_COUNT_AUTHORIZATIONS);
    hx_exchange_start(r->worker->upstreams[r->policy->upstream], &r->exchange);
    hx_forward_expect_answer(r);
    return HX_PARKED;
}

static hx_step_result ask_done(hx_request *r)
{
    bool is_answered = r->exchange_state == HX_EXCHANGE_WHOLE && r->authorize_status < 500;
    bool client_waits = hx_request_time_left(r) != 0;
    hx_request_stop_timer(r);
    r->exchange_state = HX_EXCHANGE_NONE;
    r->authorize_state = HX_AUTHORIZE_DONE;
    if (!is_answered) {
        r->retry_after = HX_SECOND;
        return hx_request_refuse(r, client_waits ? HX_ERROR_NOT_VOUCHED_FOR : HX_ERROR_BUDGET_OVER, HX_EMPTY);
    }
    if (r->authorize_status < 200 || r->authorize_status > 299)
        return hx_request_refuse(r, HX_ERROR_REPLAY_NOT_AUTHORIZED,
                                 hx_arena_printf(r->arena, "Asked about this credential, the upstream answered %u.",
                                                 (unsigned)r->authorize_status));
    r->claimant.verified = true;
    return hx_request_go(r, HX_STEP_claim); /* as the store has it now */
}

hx_step_result hx_step_authorize(hx_request *r)
{
    if (r->authorize_state == HX_AUTHORIZE_NONE) return ask(r);
    if (r->exchange_state >= HX_EXCHANGE_WHOLE) return ask_done(r);
    if (r->timer_rang) hx_request_call_off(r, HX_UPSTREAM_CANCELLED);
    return HX_PARKED;
}
