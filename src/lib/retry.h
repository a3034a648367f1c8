/* SPDX-License-Identifier: Apache-2.0 */
/* The structs of hapax.h about retries, as core and client understand them. False with a message: one is invalid. */
#ifndef HX_LIB_RETRY_H
#define HX_LIB_RETRY_H

#include "client/attempts.h"
#include "lib/structs.h"

/* NULL: the class "user". */
bool hx_lib_policy(const hapax_retry *given, hx_retry_policy *out) HX_MUST_USE;
/* Its slices point to the host's memory. */
bool hx_lib_response(const hapax_response *given, hx_attempt_reply *out) HX_MUST_USE;

_Static_assert((int)HX_CAREFUL_AGAIN == HAPAX_VERDICT_AGAIN && (int)HX_CAREFUL_DONE == HAPAX_VERDICT_DONE &&
                   (int)HX_CAREFUL_REFUSED == HAPAX_VERDICT_REFUSED &&
                   (int)HX_CAREFUL_UNKNOWN == HAPAX_VERDICT_UNKNOWN &&
                   (int)HX_CAREFUL_EXHAUSTED == HAPAX_VERDICT_EXHAUSTED,
               "verdicts are the same numbers");

#endif
