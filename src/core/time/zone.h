/* SPDX-License-Identifier: Apache-2.0 */
/* An IANA time zone, read from the bytes of its TZif file (RFC 9636), version 2 or later, with the rule for the years
 * behind its last transition. Pure: the caller has the bytes and the arena. A zone never changes, so that any
 * thread may use it, and it has an offset for every moment, whatever the bytes were. */
#ifndef HX_CORE_TIME_ZONE_H
#define HX_CORE_TIME_ZONE_H

#include "base/calendar.h"
#include "base/clock.h"
#include "base/memory/arena.h"

typedef struct hx_zone hx_zone;

/* Much larger than any TZif file. */
#define HX_ZONE_FILE_BYTES_MAX (256u * 1024u)

/* Whether it can be the name of a zone, "America/Argentina/Ushuaia": words of letters, digits, "_", "+" and "-" with
 * slashes between them. What it names below the folder of zones is never anywhere else. */
bool hx_zone_is_name(hx_slice name);

/* NULL when the bytes aren't a time zone, or count leap seconds, as the zones below "right/" do: our clock doesn't. */
const hx_zone *hx_zone_read(hx_slice name, hx_slice bytes, hx_arena *arena) HX_MUST_USE;
hx_slice hx_zone_name(const hx_zone *zone);

/* The offset from UTC at that moment, in seconds. */
int32_t hx_zone_offset(const hx_zone *zone, hx_ms at);

hx_date hx_zone_date(const hx_zone *zone, hx_ms at);
/* The moment since which clocks there have shown the date of `at`: its first midnight, or when there is none, the
 * moment at which clocks were put forward over it. Where clocks go back over midnight a date is shown twice, and each
 * time has a begin of its own: a moment before the begin the date was another one, always. */
hx_ms hx_zone_date_began(const hx_zone *zone, hx_ms at);

#endif
