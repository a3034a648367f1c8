/* SPDX-License-Identifier: Apache-2.0 */
/* An IANA time zone, read from the bytes of its TZif file (RFC 9636), version 2 or later, with the rule for the years
 * behind its last transition. Pure: whoever has the bytes makes one, in an arena. */
#ifndef HX_CORE_ZONE_H
#define HX_CORE_ZONE_H

#include "base/arena.h"
#include "base/clock.h"

typedef struct hx_zone hx_zone;

/* NULL when the bytes aren't a time zone. */
const hx_zone *hx_zone_read(hx_slice name, hx_slice bytes, hx_arena *arena) HX_MUST_USE;
hx_slice hx_zone_name(const hx_zone *zone);

/* What is added to UTC at that moment, in seconds. */
int32_t hx_zone_offset(const hx_zone *zone, hx_ms at);

typedef struct {
    int32_t year;
    uint8_t month, day; /* from 1 */
} hx_date;

hx_date hx_zone_date(const hx_zone *zone, hx_ms at);
/* The first moment of the date on which `at` falls: the earliest at which clocks there showed it, also where midnight
 * is skipped or comes twice. */
hx_ms hx_zone_date_began(const hx_zone *zone, hx_ms at);

#endif
