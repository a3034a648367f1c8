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
/* The wall's, which may be set while we run: for dates that others write by it, and for nothing else. */
hx_ms hx_clock_wall(void);
int64_t hx_clock_mono_ns(void);
/* The clock never runs below `stamp`: called once at start with the store's last stamp, before other threads exist. */
void hx_clock_raise(hx_ms stamp);
/* It is this time now: called once at start with the time of a shared store, before other threads exist. */
void hx_clock_set(hx_ms now);

#define HX_RFC3339_BYTES 32
#define HX_HTTP_DATE_BYTES 30
/* "2026-02-19T12:00:00.000Z"; returns the text inside `out`. */
hx_slice hx_rfc3339(hx_ms at, char out[HX_RFC3339_BYTES]);
/* "Thu, 19 Feb 2026 12:00:00 GMT" */
hx_slice hx_http_date(hx_ms at, char out[HX_HTTP_DATE_BYTES]);

#endif
