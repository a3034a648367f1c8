/* SPDX-License-Identifier: Apache-2.0 */
/* The clock of the process: boot time plus the wall time at start. Setting the wall clock later doesn't change it;
 * time during which the machine is suspended counts. */
#ifndef HX_BASE_CLOCK_H
#define HX_BASE_CLOCK_H

#include "base/slice.h"

typedef int64_t hx_ms; /* milliseconds since 1970, or a span of them */

#define HX_SECOND ((hx_ms)1000)
#define HX_MINUTE (60 * HX_SECOND)
#define HX_HOUR (60 * HX_MINUTE)
#define HX_DAY (24 * HX_HOUR)

hx_ms hx_clock_now(void);
/* The wall clock, which may be set while the process runs. Only for times that others write or read by it: tokens,
 * Date fields and log lines. */
hx_ms hx_clock_wall(void);
int64_t hx_clock_mono_ns(void);
/* Moves the clock forward to `stamp`, unless it is there already. Called once at start with the last stamp in the
 * store, before other threads exist. */
void hx_clock_raise(hx_ms stamp);
/* The date of the sources of this build; 0: unknown. */
hx_ms hx_clock_built_at(void);
/* Whether the kernel reports the wall clock as synchronised, by NTP or the like. */
bool hx_clock_is_synchronised(void);

/* How far lifetimes run behind hx_clock_now, so that a wall clock that was wrong at start ends none of them. Nearly
 * always 0. */
hx_ms hx_clock_held(void);
#define HX_CLOCK_HOLD_MAX (10 * HX_MINUTE)
/* Holds lifetimes back by this much, until hx_clock_settle ends the hold, or with for_good as long as the process
 * lives. Called once at start. */
void hx_clock_hold(hx_ms by, bool for_good);
/* Ends the hold once the kernel reports the clock as synchronised, or HX_CLOCK_HOLD_MAX has passed, and then returns
 * true, once. A clock that proved wrong by more than a day stays held by that much. Called now and then. */
bool hx_clock_settle(void);

/* Sets the clock to the time of a shared store. Called once at start, before other threads exist. */
void hx_clock_set(hx_ms now);

#define HX_RFC3339_BYTES 32
#define HX_HTTP_DATE_BYTES 30
/* Writes "2026-02-19T12:00:00.000Z"; returns the text inside `out`. */
hx_slice hx_rfc3339(hx_ms at, char out[HX_RFC3339_BYTES]);
/* Writes "Thu, 19 Feb 2026 12:00:00 GMT". */
hx_slice hx_http_date(hx_ms at, char out[HX_HTTP_DATE_BYTES]);

#endif
