/* SPDX-License-Identifier: Apache-2.0 */
/* Values of options, as they would be written in a file. */
#include "base/check.h"
#include "cmd/explanation.h"
#include "config/options.h"

hx_slice hx_explain_word(const char *option, unsigned value)
{
    const hx_option *row = hx_option_find(HX_PLACE_ROUTE, hx_slice_of(option));
    HX_CHECK(row != NULL);
    return hx_option_word(row, value);
}

const char *hx_explain_duration(hx_ms span, hx_arena *arena)
{
    const hx_option *row = hx_option_find(HX_PLACE_ROUTE, HX_LIT("lifetime"));
    HX_CHECK(row != NULL);
    return hx_option_write(row, (uint64_t)span, arena);
}

hx_slice hx_explain_rate(hx_rate rate, hx_arena *arena)
{
    static const struct {
        hx_ms per;
        const char *unit;
    } units[] = {{HX_SECOND, "s"}, {HX_MINUTE, "m"}, {HX_HOUR, "h"}, {HX_DAY, "d"}};
    if (rate.count == 0) return HX_EMPTY;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (rate.per == units[i].per) return hx_arena_printf(arena, "%u/%s", rate.count, units[i].unit);
    return hx_arena_printf(arena, "%u/%s", rate.count, hx_explain_duration(rate.per, arena));
}
