/* SPDX-License-Identifier: Apache-2.0 */
/* A moment (8 bytes) and a TZif file. Whatever is taken for a time zone has an offset, a date and the date's begin for
 * every moment; from the begin on it is that date, and a moment before it is another. */
#include "base/check.h"
#include "core/time/zone.h"

#include <string.h>

#define MOMENT_MAX (INT64_C(1) << 62)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same(hx_date a, hx_date b)
{
    return a.year == b.year && a.month == b.month && a.day == b.day;
}

static void ask(const hx_zone *zone, hx_ms at)
{
    int32_t offset = hx_zone_offset(zone, at);
    HX_CHECK(offset > -26 * 3600 && offset < 26 * 3600);
    hx_date date = hx_zone_date(zone, at);
    HX_CHECK(date.month >= 1 && date.month <= 12 && date.day >= 1 && date.day <= 31);
    hx_ms began = hx_zone_date_began(zone, at);
    HX_CHECK(began <= at && at - began < 4 * HX_DAY);
    HX_CHECK(same(date, hx_zone_date(zone, began)) && !same(date, hx_zone_date(zone, began - 1)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hx_ms at;
    if (size < sizeof at) return 0;
    memcpy(&at, data, sizeof at);
    hx_arena arena = {0};
    const hx_zone *zone = hx_zone_read(HX_LIT("Test/Zone"),
                                       (hx_slice){(const char *)data + sizeof at, size - sizeof at}, &arena);
    if (zone) {
        (void)hx_zone_date_began(zone, at);
        ask(zone, at % MOMENT_MAX);
        ask(zone, at % (400 * 365 * HX_DAY));
    }
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}
