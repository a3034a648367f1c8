/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the operation under its aliases, before it is claimed; and finding again the alias that was adopted, when the
 * request comes back after a question or after its claim gave way. */
#include "gateway/parts/aliases.h"
#include "gateway/steps/claim.h"

/* The adopted alias is gone. */
static hx_step_result start_over(hx_request *r)
{
    /* Both claims gave way to each other: the next request finds neither. */
    if (r->alias.state == HX_ALIAS_YIELDED) return hx_request_refuse_in_flight(r);
    hx_aliases_drop(r);
    return HX_MORE;
}

hx_step_result hx_step_locate(hx_request *r)
{
    if (r->call_state == HX_CALL_PENDING) return HX_PARKED;
    bool is_own = r->alias.state == HX_ALIAS_OWN;
    switch (is_own ? hx_aliases_search(r) : hx_aliases_read_again(r)) {
    case HX_LOOKED_ASKING: return HX_PARKED;
    case HX_LOOKED_FAILED: return hx_claim_refuse_unavailable(r);
    case HX_LOOKED_NOTHING: return is_own ? hx_request_go(r, HX_STEP_claim) : start_over(r);
    case HX_LOOKED_FOUND: break;
    }
    (void)hx_request_go(r, HX_STEP_claim);
    return hx_claim_decide(r, &r->found);
}
