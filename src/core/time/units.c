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
