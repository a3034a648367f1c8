/* SPDX-License-Identifier: Apache-2.0 */
/* Retry-After (RFC 9110 §10.2.3): seconds, or a date in one of HTTP's three formats. It is obeyed, never early: every
 * rounding here is upwards. Reads no clock and no locale. */
#ifndef HX_CORE_RETRY_RETRY_AFTER_H
#define HX_CORE_RETRY_RETRY_AFTER_H

#include "base/clock.h"

#define HX_RETRY_AFTER_NONE ((hx_ms)-1)
/* The cap to give where nothing smaller is wanted. It is longer than any retry's total time, so that a capped value
 * ends the retries: waiting for a smaller cap would be trying again too early. */
#define HX_RETRY_AFTER_MAX (31 * HX_DAY)

/* How long from `now` on (wall time), in whole seconds but for the cap: 0 for a moment that has passed, at most `cap`.
 * HX_RETRY_AFTER_NONE for what is neither a number nor a date: the caller counts a warning and goes on without. */
hx_ms hx_retry_after(hx_slice value, hx_ms now, hx_ms cap);

/* "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT" or "Sun Nov  6 08:49:37 1994". `now` decides the
 * century of two digits: the latest that is not more than 50 years ahead. Letters of either case are taken; the day of
 * the week must be one, but need not be the right one. */
bool hx_retry_after_date(hx_slice text, hx_ms now, hx_ms *at) HX_MUST_USE;

#endif
