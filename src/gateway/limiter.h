/* SPDX-License-Identifier: Apache-2.0 */
/* `rate` and `quota`: how much one principal may ask of one route. Shared by all workers; bounded in memory, whatever
 * comes. Who asks is given as the MAC of route and principal. */
#ifndef HX_GATEWAY_LIMITER_H
#define HX_GATEWAY_LIMITER_H

#include "core/mac.h"
#include "core/policy.h"

typedef struct hx_limiter hx_limiter;

hx_limiter *hx_limiter_new(void);
void hx_limiter_free(hx_limiter **owned);

/* Takes one request off what `rate` allows. False: none is left; *retry_after is when there is one again. Without a
 * lock. */
bool hx_limiter_take(hx_limiter *limiter, const hx_digest *who, hx_rate rate, hx_ms now,
                     hx_ms *retry_after) HX_MUST_USE;

/* Live keys. Before a claim: counts one more, unless that would be more than `quota`. Every success is followed by one
 * of the two below, as soon as the claim has ended. */
bool hx_limiter_begin(hx_limiter *limiter, const hx_digest *who, uint32_t quota, hx_ms now,
                      hx_ms *retry_after) HX_MUST_USE;
/* It lives until then; 0: until it is settled otherwise (unknown). */
void hx_limiter_lives_until(hx_limiter *limiter, const hx_digest *who, hx_ms until);
/* It is gone: released, forgotten, never claimed. */
void hx_limiter_gone(hx_limiter *limiter, const hx_digest *who);
/* An operation of an earlier start, found in the store. */
void hx_limiter_found(hx_limiter *limiter, const hx_digest *who, hx_ms until);

#endif
