/* SPDX-License-Identifier: Apache-2.0 */
/* A claim under a natural key is durable, and nothing was sent: if the same operation was claimed in a neighbouring
 * bucket meanwhile, ours is released in favour of that one. */
#include "gateway/parts/aliases.h"
#include "gateway/steps/claim.h"

static hx_step_result release(hx_request *r)
{
    r->record.from_state = HX_PROCESSING;
    r->record.state = HX_ABSENT;
    r->record.changed_at = hx_loop_now(r->worker->loop);
    hx_lifecycle_set_end(&r->record, r->policy);
    r->record.reason = HX_LIT("the same operation began in the bucket next to it");
    hx_store_settle(r->worker->gateway->store, hx_request_prepare_call(r), &r->record);
    return HX_PARKED;
}

static hx_step_result release_done(hx_request *r)
{
    if (r->call->result == HX_STORE_UNAVAILABLE) return hx_claim_give_back(r);
    if (r->call->result == HX_STORE_OK) hx_claim_count_key(r);
    hx_aliases_adopt_rival(r);
    return hx_request_go(r, HX_STEP_locate);
}

hx_step_result hx_step_yield(hx_request *r)
{
    if (r->call_state == HX_CALL_PENDING) return HX_PARKED;
    if (r->call->verb == HX_STORE_SETTLE && hx_request_take_result(r)) return release_done(r);
    switch (hx_aliases_find_rival(r)) {
    case HX_LOOKED_NOTHING: return hx_claim_use(r);
    case HX_LOOKED_FOUND: return release(r);
    case HX_LOOKED_ASKING: return HX_PARKED;
    case HX_LOOKED_FAILED: break;
    }
    return hx_claim_give_back(r);
}
