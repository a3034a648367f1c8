/* SPDX-License-Identifier: Apache-2.0 */
#include "core/time/units.h"

const hx_unit hx_time_units[] = {{"d", HX_DAY},    {"h", HX_HOUR}, {"m", HX_MINUTE},
                                 {"s", HX_SECOND}, {"ms", 1},      {NULL, 0}};

hx_ms hx_unit_span(hx_slice name)
{
    for (const hx_unit *unit = hx_time_units; unit->name; unit++)
        if (hx_slice_eq(hx_slice_of(unit->name), name)) return (hx_ms)unit->factor;
    return 0;
}

bool hx_unit_read(hx_slice text, hx_ms *out)
{
    size_t digits = 0;
    while (digits < text.len && text.ptr[digits] >= '0' && text.ptr[digits] <= '9') digits++;
    hx_ms span = hx_unit_span(hx_slice_from(text, digits));
    if (digits == 0 || span == 0) return false;
    uint64_t count;
    bool fits = hx_slice_to_u64(hx_slice_first(text, digits), &count) && count <= (uint64_t)(INT64_MAX / span);
    *out = fits ? (hx_ms)count * span : INT64_MAX;
    return true;
}
