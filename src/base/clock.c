/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include "base/check.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

/* wall time at start minus boot time at start */
static _Atomic int64_t offset_ms;
static atomic_bool started;

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

static struct tm utc(hx_ms at)
{
    time_t seconds = (time_t)(at / 1000);
    struct tm tm = {0};
    gmtime_r(&seconds, &tm);
    return tm;
}

hx_slice hx_rfc3339(hx_ms at, char out[HX_RFC3339_BYTES])
{
    struct tm tm = utc(at);
    int len = snprintf(out, HX_RFC3339_BYTES, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", (tm.tm_year + 1900) % 10000,
                       tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(at % 1000));
    return (hx_slice){out, (size_t)len};
}

hx_slice hx_http_date(hx_ms at, char out[HX_HTTP_DATE_BYTES])
{
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm tm = utc(at);
    int len = snprintf(out, HX_HTTP_DATE_BYTES, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT", days + tm.tm_wday * 3,
                       tm.tm_mday, months + tm.tm_mon * 3, (tm.tm_year + 1900) % 10000, tm.tm_hour, tm.tm_min,
                       tm.tm_sec);
    return (hx_slice){out, (size_t)len};
}
