/* SPDX-License-Identifier: Apache-2.0 */
/* The time that the client is willing to wait: `X-Request-Timeout: 1500`, `1500ms` or `10s` (contract §6). It ends
 * waiting and new attempts, never an exchange that was sent. The time that is left goes upstream in the same header. */
#ifndef HX_CORE_RETRY_REQUEST_TIMEOUT_H
#define HX_CORE_RETRY_REQUEST_TIMEOUT_H

#include "base/clock.h"

#define HX_TIMEOUT_NONE ((hx_ms)-1)
#define HX_TIMEOUT_MAX HX_DAY /* longer ones are cut to it */
#define HX_TIMEOUT_BYTES 16

typedef struct {
    hx_ms span;    /* from the request's arrival; HX_TIMEOUT_NONE: the client didn't say */
    bool has_unit; /* it was written with "ms" or "s", and is forwarded so */
} hx_request_timeout;

/* False for anything but the three forms, and for zero, which some clients send for "no limit" and which no response
 * could meet: *out is then "none", and the caller counts a warning. */
bool hx_timeout_parse(hx_slice value, hx_request_timeout *out) HX_MUST_USE;

/* At least 0; HX_TIMEOUT_NONE where there is no budget. */
hx_ms hx_timeout_left(hx_request_timeout budget, hx_ms elapsed);

/* Writes the time that is left, as "1500" or "1500ms", into `out`. Empty where there is no timeout or no time is
 * left: no header then (and in the second case no new attempt either). */
hx_slice hx_timeout_text(hx_request_timeout budget, hx_ms elapsed, char out[HX_TIMEOUT_BYTES]);

#endif
