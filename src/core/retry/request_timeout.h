/* SPDX-License-Identifier: Apache-2.0 */
/* How long the client is willing to wait: `X-Request-Timeout: 1500`, `1500ms` or `10s` (contract §6). It ends waiting
 * and new attempts, never an exchange that was sent. What is left goes upstream in the same header, and is never more
 * than what is left. */
#ifndef HX_CORE_RETRY_REQUEST_TIMEOUT_H
#define HX_CORE_RETRY_REQUEST_TIMEOUT_H

#include "base/clock.h"

#define HX_TIMEOUT_NONE ((hx_ms)-1)
#define HX_TIMEOUT_MAX HX_DAY /* longer ones are cut to it */
#define HX_TIMEOUT_BYTES 16

typedef struct {
    hx_ms span;    /* from the request's arrival; HX_TIMEOUT_NONE: the client didn't say */
    bool has_unit; /* it wrote "ms" or "s": whoever reads it may expect one */
} hx_request_timeout;

/* False for what is none of the three forms, and for zero, which some clients send for "no limit" and which no answer
 * could meet: *out is then "none", and the caller counts a warning. */
bool hx_timeout_parse(hx_slice value, hx_request_timeout *out) HX_MUST_USE;

/* At least 0; HX_TIMEOUT_NONE where there is no budget. */
hx_ms hx_timeout_left(hx_request_timeout budget, hx_ms elapsed);

/* What is left, as "1500" or "1500ms", inside `out`. Empty where there is no budget or nothing is left: no header then
 * (and in the second case no new attempt either). */
hx_slice hx_timeout_text(hx_request_timeout budget, hx_ms elapsed, char out[HX_TIMEOUT_BYTES]);

#endif
