/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include "base/build_date.h"
#include "base/calendar.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/timex.h>
#include <time.h>

/* wall time at start minus boot time at start */
static _Atomic int64_t offset_ms;
static atomic_bool started;
static _Atomic int64_t held_ms;
static _Atomic int64_t hold_ends_at; /* boot time at which the hold ends; 0: there is no hold, or it never ends */

static hx_ms read_ms(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (hx_ms)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void start(void)
{
    hx_ms offset = read_ms(CLOCK_REALTIME) - read_ms(CLOCK_BOOTTIME);
    int64_t unset = 0;
    atomic_compare_exchange_strong(&offset_ms, &unset, offset);
    atomic_store_explicit(&started, true, memory_order_release);
}

hx_ms hx_clock_now(void)
{
    if (!atomic_load_explicit(&started, memory_order_acquire)) start();
    return read_ms(CLOCK_BOOTTIME) + atomic_load_explicit(&offset_ms, memory_order_relaxed);
}

hx_ms hx_clock_wall(void)
{
    return read_ms(CLOCK_REALTIME);
}

int64_t hx_clock_mono_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void hx_clock_raise(hx_ms stamp)
{
    hx_ms behind = stamp - hx_clock_now();
    if (behind > 0) atomic_fetch_add(&offset_ms, behind);
}

void hx_clock_set(hx_ms now)
{
    atomic_fetch_add(&offset_ms, now - hx_clock_now());
}

hx_ms hx_clock_built_at(void)
{
    return (hx_ms)HAPAX_BUILD_DATE * HX_SECOND;
}

bool hx_clock_is_synchronised(void)
{
    struct timex asked = {.modes = 0};
    int state = adjtimex(&asked);
    return state >= 0 && state != TIME_ERROR && (asked.status & STA_UNSYNC) == 0;
}

hx_ms hx_clock_held(void)
{
    return atomic_load_explicit(&held_ms, memory_order_relaxed);
}

void hx_clock_hold(hx_ms by, bool for_good)
{
    atomic_store(&hold_ends_at, for_good ? 0 : read_ms(CLOCK_BOOTTIME) + HX_CLOCK_HOLD_MAX);
    atomic_store(&held_ms, by);
}

bool hx_clock_settle(void)
{
    hx_ms end = atomic_load_explicit(&hold_ends_at, memory_order_relaxed);
    if (end == 0) return false;
    bool is_right = hx_clock_is_synchronised();
    if (!is_right && read_ms(CLOCK_BOOTTIME) < end) return false;
    hx_ms ahead = hx_clock_now() - hx_clock_wall();
    atomic_store(&held_ms, is_right && ahead > HX_DAY ? ahead : 0);
    atomic_store(&hold_ends_at, 0);
    return true;
}

typedef struct {
    hx_date date;
    unsigned weekday; /* Sunday is 0 */
    unsigned hour, minute, second, ms;
} civil;

/* Times before 1970 are written as 1970, and years have four digits. */
static civil civil_of(hx_ms at)
{
    uint64_t ms = at > 0 ? (uint64_t)at : 0;
    uint64_t days = ms / (uint64_t)HX_DAY, rest = ms % (uint64_t)HX_DAY;
    civil c = {.date = hx_calendar_date((int64_t)days),
               .weekday = hx_calendar_weekday((int64_t)days),
               .hour = (unsigned)(rest / (uint64_t)HX_HOUR),
               .minute = (unsigned)(rest / (uint64_t)HX_MINUTE % 60),
               .second = (unsigned)(rest / (uint64_t)HX_SECOND % 60),
               .ms = (unsigned)(rest % 1000)};
    c.date.year %= 10000;
    return c;
}

static char *put_digits(char *at, unsigned number, int count)
{
    for (int i = count - 1; i >= 0; i--, number /= 10) at[i] = (char)('0' + number % 10);
    return at + count;
}

static char *put_clock(char *at, const civil *c)
{
    at = put_digits(at, c->hour, 2);
    *at++ = ':';
    at = put_digits(at, c->minute, 2);
    *at++ = ':';
    return put_digits(at, c->second, 2);
}

hx_slice hx_rfc3339(hx_ms at, char out[HX_RFC3339_BYTES])
{
    civil c = civil_of(at);
    char *to = put_digits(out, (unsigned)c.date.year, 4);
    *to++ = '-';
    to = put_digits(to, c.date.month, 2);
    *to++ = '-';
    to = put_digits(to, c.date.day, 2);
    *to++ = 'T';
    to = put_clock(to, &c);
    *to++ = '.';
    to = put_digits(to, c.ms, 3);
    *to++ = 'Z';
    return (hx_slice){out, (size_t)(to - out)};
}

hx_slice hx_http_date(hx_ms at, char out[HX_HTTP_DATE_BYTES])
{
    static const char days[] = "Sun, Mon, Tue, Wed, Thu, Fri, Sat, ";
    static const char months[] = " Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec ";
    civil c = civil_of(at);
    char *to = out;
    memcpy(to, days + (size_t)c.weekday * 5, 5);
    to = put_digits(to + 5, c.date.day, 2);
    memcpy(to, months + (size_t)(c.date.month - 1) * 4, 5);
    to = put_digits(to + 5, (unsigned)c.date.year, 4);
    *to++ = ' ';
    to = put_clock(to, &c);
    memcpy(to, " GMT", 5);
    return (hx_slice){out, (size_t)(to - out) + 4};
}
