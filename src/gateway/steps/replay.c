/* SPDX-License-Identifier: Apache-2.0 */
/* A settled operation's stored answer, byte for byte as it was. */
#include "gateway/parts/memory_budget.h"
#include "gateway/parts/transactional.h"

hx_step_result hx_step_replay(hx_request *r)
{
    if (!hx_memory_load_found(r, &r->found)) {
        r->retry_after = HX_SECOND;
        return hx_request_refuse(r, HX_ERROR_OVERLOADED, HX_LIT("No memory is left to send the stored response."));
    }
    r->reply_kind = HX_REPLY_ANSWER;
    r->reply_answer = hx_mark_answer(r, &r->found);
    r->reply_file = r->found.body_file;
    r->reply_expires_at = r->found.expires_at;
    r->idempotency = HX_IDEMPOTENCY_REPLAYED;
    return hx_request_go(r, HX_STEP_reply);
}
