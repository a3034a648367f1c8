/* SPDX-License-Identifier: Apache-2.0 */
/* Time, as the contract has it: the boot-time clock plus the wall time at start. A wall clock that is set while we run
 * changes nothing here; a suspended machine's time counts. */
#ifndef HX_BASE_CLOCK_H
#define HX_BASE_CLOCK_H

#include "base/slice.h"

typedef int64_t hx_ms; /* milliseconds since 1970, or a span of them */

#define HX_SECOND ((hx_ms)1000)
#define HX_MINUTE (60 * HX_SECOND)
#define HX_HOUR (60 * HX_MINUTE)
#define HX_DAY (24 * HX_HOUR)

hx_ms hx_clock_now(void);
/* The wall's, which may be set while we run: for what others write or read by it (tokens, Date, logs), and for nothing
 * else. */
hx_ms hx_clock_wall(void);
int64_t hx_clock_mono_ns(void);
/* The clock never runs below `stamp`: called once at start with the store's last stamp, before other threads exist. */
void hx_clock_raise(hx_ms stamp);
/* When this was built; 0: that isn't known. */
hx_ms hx_clock_built_at(void);
/* Whether the kernel says that the wall clock is disciplined, by NTP or the like. */
bool hx_clock_is_synchronised(void);

/* A wall clock that was wrong at start must not end lifetimes: they go by a time that is this far behind hx_clock_now.
 * 0 nearly always. */
hx_ms hx_clock_held(void);
#define HX_CLOCK_HOLD_MAX (10 * HX_MINUTE)
/* Called once at start: by so much, until hx_clock_settle ends it, or for as long as the process lives. */
void hx_clock_hold(hx_ms by, bool for_good);
/* Called now and then. True once, when what was held isn't any more: because the kernel vouches for the clock, or
 * because HX_CLOCK_HOLD_MAX has passed. What of the clock proved wrong by more than a day meanwhile stays held. */
bool hx_clock_settle(void);

/* It is this time now: called once at start with the time of a shared store, before other threads exist. */
void hx_clock_set(hx_ms now);

#define HX_RFC3339_BYTES 32
#define HX_HTTP_DATE_BYTES 30
/* "2026-02-19T12:00:00.000Z"; returns the text inside `out`. */
hx_slice hx_rfc3339(hx_ms at, char out[HX_RFC3339_BYTES]);
/* "Thu, 19 Feb 2026 12:00:00 GMT" */
hx_slice hx_http_date(hx_ms at, char out[HX_HTTP_DATE_BYTES]);

#endif
