/* SPDX-License-Identifier: Apache-2.0 */
#include "core/retry/retry_after.h"

#include "base/calendar.h"
#include "base/check.h"

#define SECONDS_A_DAY 86400

/* Reads from the front; `ok` goes false at the first byte that doesn't fit and stays so. */
typedef struct {
    hx_slice rest;
    bool ok;
} reader;

typedef struct {
    int64_t year;
    int64_t month; /* 1 to 12 */
    int64_t day;
    int64_t hour, minute, second;
} civil;

static void expect(reader *in, hx_slice text)
{
    in->ok = in->ok && hx_slice_starts_nocase(in->rest, text);
    if (in->ok) in->rest = hx_slice_from(in->rest, text.len);
}

static int64_t read_digits(reader *in, size_t count)
{
    uint64_t value = 0;
    in->ok = in->ok && in->rest.len >= count && hx_slice_to_u64(hx_slice_first(in->rest, count), &value);
    if (in->ok) in->rest = hx_slice_from(in->rest, count);
    return (int64_t)value;
}

/* Reads one of the names; returns its position, from 0. */
static int64_t read_name(reader *in, const char *const *names, size_t count)
{
    for (size_t i = 0; in->ok && i < count; i++) {
        hx_slice name = hx_slice_of(names[i]);
        if (!hx_slice_starts_nocase(in->rest, name)) continue;
        expect(in, name);
        return (int64_t)i;
    }
    in->ok = false;
    return 0;
}

static int64_t read_month(reader *in)
{
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    return read_name(in, months, sizeof months / sizeof *months) + 1;
}

static void read_time(reader *in, civil *at)
{
    at->hour = read_digits(in, 2);
    expect(in, HX_LIT(":"));
    at->minute = read_digits(in, 2);
    expect(in, HX_LIT(":"));
    at->second = read_digits(in, 2);
}

static void read_imf(reader *in, civil *at) /* ", 06 Nov 1994 08:49:37 GMT" */
{
    expect(in, HX_LIT(", "));
    at->day = read_digits(in, 2);
    expect(in, HX_LIT(" "));
    at->month = read_month(in);
    expect(in, HX_LIT(" "));
    at->year = read_digits(in, 4);
    expect(in, HX_LIT(" "));
    read_time(in, at);
    expect(in, HX_LIT(" GMT"));
}

static void read_rfc850(reader *in, civil *at) /* ", 06-Nov-94 08:49:37 GMT" */
{
    expect(in, HX_LIT(", "));
    at->day = read_digits(in, 2);
    expect(in, HX_LIT("-"));
    at->month = read_month(in);
    expect(in, HX_LIT("-"));
    at->year = read_digits(in, 2);
    expect(in, HX_LIT(" "));
    read_time(in, at);
    expect(in, HX_LIT(" GMT"));
}

static void read_asctime(reader *in, civil *at) /* " Nov  6 08:49:37 1994" */
{
    expect(in, HX_LIT(" "));
    at->month = read_month(in);
    expect(in, HX_LIT(" "));
    if (in->ok && hx_slice_starts(in->rest, HX_LIT(" "))) {
        expect(in, HX_LIT(" "));
        at->day = read_digits(in, 1);
    } else {
        at->day = read_digits(in, 2);
    }
    expect(in, HX_LIT(" "));
    read_time(in, at);
    expect(in, HX_LIT(" "));
    at->year = read_digits(in, 4);
}

static bool exists(const civil *at)
{
    /* a minute with a leap second has 61 */
    return at->day >= 1 && at->day <= hx_calendar_month_days(at->year, at->month) && at->hour <= 23 &&
           at->minute <= 59 && at->second <= 60;
}

static int64_t seconds_of(const civil *at)
{
    return hx_calendar_day(at->year, at->month, at->day) * SECONDS_A_DAY + at->hour * 3600 + at->minute * 60 +
           at->second;
}

/* RFC 9110 §5.6.7: what seems to be more than 50 years ahead was meant to be in the past. */
static int64_t year_of_two_digits(const civil *at, int64_t now)
{
    int64_t this_year = hx_calendar_date(now / SECONDS_A_DAY).year;
    int64_t latest = this_year + 50;
    int64_t year = latest - (latest + 100 - at->year) % 100;
    civil this_time_of_year = *at;
    this_time_of_year.year = this_year;
    if (year == latest && seconds_of(&this_time_of_year) > now) year -= 100;
    return year;
}

bool hx_retry_after_date(hx_slice text, hx_ms now, hx_ms *at)
{
    static const char *const long_days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                            "Thursday", "Friday", "Saturday"};
    static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    reader in = {.rest = text, .ok = true};
    civil read = {.month = 1};
    read_name(&in, long_days, 7);
    if (in.ok) {
        read_rfc850(&in, &read);
        if (in.ok) read.year = year_of_two_digits(&read, now > 0 ? now / 1000 : 0);
    } else {
        in.ok = true;
        read_name(&in, days, 7);
        if (hx_slice_starts(in.rest, HX_LIT(",")))
            read_imf(&in, &read);
        else
            read_asctime(&in, &read);
    }
    if (!in.ok || in.rest.len > 0 || !exists(&read)) return false;
    *at = seconds_of(&read) * 1000;
    return true;
}

static bool all_digits(hx_slice value)
{
    for (size_t i = 0; i < value.len; i++)
        if (value.ptr[i] < '0' || value.ptr[i] > '9') return false;
    return value.len > 0;
}

hx_ms hx_retry_after(hx_slice value, hx_ms now, hx_ms cap)
{
    HX_CHECK(cap >= 0);
    value = hx_slice_trim(value);
    uint64_t seconds;
    hx_ms wait;
    if (all_digits(value)) { /* more than fits a number is still a number: the cap */
        if (!hx_slice_to_u64(value, &seconds) || seconds > (uint64_t)(cap / 1000)) return cap;
        return (hx_ms)seconds * 1000;
    }
    if (!hx_retry_after_date(value, now, &wait)) return HX_RETRY_AFTER_NONE;
    if (wait <= now) return 0;
    wait = (wait - now + 999) / 1000 * 1000;
    return wait < cap ? wait : cap;
}
