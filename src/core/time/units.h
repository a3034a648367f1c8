/* SPDX-License-Identifier: Apache-2.0 */
/* The units in which people write times: ms, s, m, h and d. */
#ifndef HX_CORE_TIME_UNITS_H
#define HX_CORE_TIME_UNITS_H

#include "base/clock.h"
#include "base/slice.h"

typedef struct {
    const char *name;
    uint64_t factor;
} hx_unit;

/* From long to short, in milliseconds; one without a name ends them. */
extern const hx_unit hx_time_units[];

/* The length of a unit; 0: there is none of that name. */
hx_ms hx_unit_span(hx_slice name);
/* Reads a whole number of one unit, such as 30s, 15m or 7d; one that is too large becomes INT64_MAX. False when it
 * isn't a duration. */
bool hx_unit_read(hx_slice text, hx_ms *out) HX_MUST_USE;

#endif
