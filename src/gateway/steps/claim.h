/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of claiming that other steps use. */
#ifndef HX_GATEWAY_STEPS_CLAIM_H
#define HX_GATEWAY_STEPS_CLAIM_H

#include "gateway/request.h"

/* Chooses the next step by what the store has of the operation; NULL: nothing. */
hx_step_result hx_claim_decide(hx_request *r, const hx_record *found);
/* Makes r->record the claim of r->op. take_over: re-claims the unknown operation in r->found, under a new epoch. */
void hx_claim_fill(hx_request *r, bool take_over);
/* The claim is durable and may be used: its lease is renewed from now on, and it is forwarded. */
hx_step_result hx_claim_use(hx_request *r);
/* The claim is durable and can't be used: nothing was sent under it, and it is settled so. */
hx_step_result hx_claim_give_back(hx_request *r);
/* The store can't be reached and says nothing of this key: refused, or passed unrecorded where the route allows it. */
hx_step_result hx_claim_refuse_unavailable(hx_request *r);
/* Our settle of r->record is durable: counts its key for the quota by what it is now. */
void hx_claim_count_key(hx_request *r);

#endif
