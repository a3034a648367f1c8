/* SPDX-License-Identifier: Apache-2.0 */
/* "Did it go through?": a caller asks for an operation of its own, by its key and with its own credential, and may wait
 * for it to end. Nothing is executed and nothing of the response is shown: who wants that repeats the request.
 *
 *     GET /.well-known/idempotency/operation?method=POST&path=/refunds&wait=10s
 *     Idempotency-Key: …      Authorization: …
 *
 * The path says by itself that a gateway answers it, so that a server without one answers 404 and does nothing. */
#ifndef HX_GATEWAY_STEPS_ASK_H
#define HX_GATEWAY_STEPS_ASK_H

#include "gateway/request.h"

#define HX_QUESTION_PATH "/.well-known/idempotency/operation"

static inline bool hx_question_is_asked(hx_slice method, hx_slice path)
{
    return hx_slice_eq(path, HX_LIT(HX_QUESTION_PATH)) && hx_slice_eq(method, HX_LIT("GET"));
}
/* Reads the query: r->policy, r->route, r->identity and r->ask_wait become those of the request that it names. NULL, or
 * a sentence that says what is wrong. */
const char *hx_question_read(hx_request *r) HX_MUST_USE;

#endif
