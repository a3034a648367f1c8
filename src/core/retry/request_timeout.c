/* SPDX-License-Identifier: Apache-2.0 */
#include "core/retry/request_timeout.h"

#include "base/check.h"

bool hx_timeout_parse(hx_slice value, hx_request_timeout *out)
{
    *out = (hx_request_timeout){.span = HX_TIMEOUT_NONE};
    value = hx_slice_trim(value);
    size_t digits = 0;
    uint64_t number = 0;
    while (digits < value.len && value.ptr[digits] >= '0' && value.ptr[digits] <= '9') {
        /* past the bound it can only be longer than allowed */
        if (number <= (uint64_t)HX_TIMEOUT_MAX) number = number * 10 + (uint64_t)(value.ptr[digits] - '0');
        digits++;
    }
    hx_slice unit = hx_slice_from(value, digits);
    bool seconds = hx_slice_eq_nocase(unit, HX_LIT("s"));
    bool known = unit.len == 0 || seconds || hx_slice_eq_nocase(unit, HX_LIT("ms"));
    if (!known || number == 0) return false;
    uint64_t most = (uint64_t)(seconds ? HX_TIMEOUT_MAX / 1000 : HX_TIMEOUT_MAX);
    if (number > most) number = most;
    *out = (hx_request_timeout){.span = (hx_ms)number * (seconds ? 1000 : 1), .has_unit = unit.len > 0};
    return true;
}

hx_ms hx_timeout_left(hx_request_timeout budget, hx_ms elapsed)
{
    if (budget.span == HX_TIMEOUT_NONE) return HX_TIMEOUT_NONE;
    if (elapsed <= 0) return budget.span; /* a budget never grows */
    return elapsed < budget.span ? budget.span - elapsed : 0;
}

hx_slice hx_timeout_text(hx_request_timeout budget, hx_ms elapsed, char out[HX_TIMEOUT_BYTES])
{
    hx_ms left = hx_timeout_left(budget, elapsed);
    if (left == HX_TIMEOUT_NONE || left == 0) return HX_EMPTY;
    HX_CHECK(left <= HX_TIMEOUT_MAX);
    char *end = out + HX_TIMEOUT_BYTES, *begin = end;
    if (budget.has_unit) {
        *--begin = 's';
        *--begin = 'm';
    }
    for (; left > 0; left /= 10) *--begin = (char)('0' + left % 10);
    return (hx_slice){begin, (size_t)(end - begin)};
}
