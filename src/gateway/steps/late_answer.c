/* SPDX-License-Identifier: Apache-2.0 */
/* The end of every claim. Where the client was answered that the outcome is unknown and the exchange is still open, its
 * late answer is still taken for `grace`, and settles the operation for every later request. */
#include "gateway/request.h"

static bool is_final(const hx_request *r)
{
    return r->record.state != HX_UNKNOWN;
}

static hx_step_result let_go(hx_request *r)
{
    bool has_ended = r->exchange_state == HX_EXCHANGE_NONE || r->exchange_state >= HX_EXCHANGE_WHOLE;
    if (has_ended) return hx_request_go(r, HX_STEP_finish);
    hx_request_call_off(r, HX_UPSTREAM_CANCELLED);
    return HX_PARKED;
}

hx_step_result hx_step_late_answer(hx_request *r)
{
    if (is_final(r) || r->basis != HX_BASIS_SILENCE || r->operation == HX_OPERATION_GIVEN_UP) return let_go(r);
    if (hx_request_is_answered(r)) return hx_request_go(r, HX_STEP_judge);
    bool is_silent = r->exchange_state == HX_EXCHANGE_NONE || r->exchange_state == HX_EXCHANGE_FAILED;
    if (is_silent || r->timer_rang) return let_go(r);
    if (!hx_timer_running(&r->timer)) hx_request_start_timer(r, r->policy->grace);
    return HX_PARKED;
}
