/* SPDX-License-Identifier: Apache-2.0 */
#include "core/time/rfc3339.h"

#include "base/calendar.h"

static bool take_number(hx_slice *text, size_t digits, int64_t low, int64_t high, int64_t *out)
{
    uint64_t number;
    if (text->len < digits || !hx_slice_to_u64(hx_slice_first(*text, digits), &number)) return false;
    *text = hx_slice_from(*text, digits);
    *out = (int64_t)number;
    return *out >= low && *out <= high;
}

static bool take_byte(hx_slice *text, char byte)
{
    if (text->len == 0 || hx_lower(text->ptr[0]) != byte) return false;
    *text = hx_slice_from(*text, 1);
    return true;
}

/* ".25" is 250 milliseconds; digits after the third are dropped. */
static bool take_fraction(hx_slice *text, int64_t *ms)
{
    *ms = 0;
    if (!take_byte(text, '.')) return true;
    int64_t worth = 100;
    size_t digits = 0;
    for (; text->len > 0 && text->ptr[0] >= '0' && text->ptr[0] <= '9'; digits++) {
        *ms += (text->ptr[0] - '0') * worth;
        worth /= 10;
        *text = hx_slice_from(*text, 1);
    }
    return digits > 0;
}

static bool take_offset(hx_slice *text, int64_t *minutes)
{
    int64_t h = 0, m = 0;
    *minutes = 0;
    if (take_byte(text, 'z')) return true;
    bool west = take_byte(text, '-');
    if (!west && !take_byte(text, '+')) return false;
    if (!take_number(text, 2, 0, 23, &h) || !take_byte(text, ':') || !take_number(text, 2, 0, 59, &m)) return false;
    *minutes = (west ? -1 : 1) * (h * 60 + m);
    return true;
}

bool hx_rfc3339_read(hx_slice text, hx_ms *at)
{
    int64_t year, month, day, hour, minute, second, ms, offset;
    if (!take_number(&text, 4, 1970, 9999, &year) || !take_byte(&text, '-') || !take_number(&text, 2, 1, 12, &month) ||
        !take_byte(&text, '-') || !take_number(&text, 2, 1, 31, &day))
        return false;
    if (!take_byte(&text, 't') && !take_byte(&text, ' ')) return false;
    if (!take_number(&text, 2, 0, 23, &hour) || !take_byte(&text, ':') || !take_number(&text, 2, 0, 59, &minute) ||
        !take_byte(&text, ':') || !take_number(&text, 2, 0, 60, &second))
        return false;
    if (!take_fraction(&text, &ms) || !take_offset(&text, &offset) || text.len > 0) return false;
    if (day > hx_calendar_month_days(year, month)) return false; /* 31 April */
    *at = hx_calendar_day(year, month, day) * HX_DAY + hour * HX_HOUR + (minute - offset) * HX_MINUTE +
          second * HX_SECOND + ms;
    return true;
}
