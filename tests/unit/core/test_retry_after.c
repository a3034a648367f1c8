/* SPDX-License-Identifier: Apache-2.0 */
/* Contract §6: Retry-After "(seconds, or any of the three HTTP dates) is obeyed, never early". */
#include "core/retry/retry_after.h"

#include "base/rand.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <setjmp.h>
#include <cmocka.h>

#define CASES 20000
#define YEAR_2026 ((hx_ms)1771502400000) /* Thu, 19 Feb 2026 12:00:00 GMT */

static void waits(const char *value, hx_ms now, hx_ms expected)
{
    hx_ms got = hx_retry_after(hx_slice_of(value), now, HX_RETRY_AFTER_MAX);
    if (got != expected) fail_msg("\"%s\": %lld ms, not %lld", value, (long long)got, (long long)expected);
}

static void is_nonsense(const char *value)
{
    waits(value, YEAR_2026, HX_RETRY_AFTER_NONE);
}

static void means(const char *date, hx_ms now, hx_ms expected)
{
    hx_ms at = -1;
    if (!hx_retry_after_date(hx_slice_of(date), now, &at)) fail_msg("\"%s\" is refused", date);
    if (at != expected) fail_msg("\"%s\": %lld, not %lld", date, (long long)at, (long long)expected);
}

static void seconds_are_taken_as_they_are(void **state)
{
    (void)state;
    waits("0", YEAR_2026, 0);
    waits("1", YEAR_2026, 1000);
    waits(" 120\t", YEAR_2026, 120000);
    waits("007", YEAR_2026, 7000);
}

static void the_three_dates_mean_the_same_moment(void **state)
{
    (void)state;
    static const char *const dates[] = {"Thu, 19 Feb 2026 12:00:30 GMT", "Thursday, 19-Feb-26 12:00:30 GMT",
                                        "Thu Feb 19 12:00:30 2026", "thu, 19 feb 2026 12:00:30 gmt"};
    for (size_t i = 0; i < sizeof dates / sizeof *dates; i++) waits(dates[i], YEAR_2026, 30000);
    /* RFC 9110's own examples */
    means("Sun, 06 Nov 1994 08:49:37 GMT", YEAR_2026, 784111777000);
    means("Sunday, 06-Nov-94 08:49:37 GMT", YEAR_2026, 784111777000);
    means("Sun Nov  6 08:49:37 1994", YEAR_2026, 784111777000);
}

static void a_date_in_the_past_is_no_wait(void **state)
{
    (void)state;
    waits("Sun, 06 Nov 1994 08:49:37 GMT", YEAR_2026, 0);
    waits("Thu, 19 Feb 2026 12:00:00 GMT", YEAR_2026, 0);
    waits("Mon, 01 Jan 0000 00:00:00 GMT", YEAR_2026, 0);
    waits("Thu, 01 Jan 1970 00:00:00 GMT", 0, 0);
}

static void part_of_a_second_is_rounded_up(void **state)
{
    (void)state;
    waits("Thu, 19 Feb 2026 12:00:01 GMT", YEAR_2026 + 1, 1000);
    waits("Thu, 19 Feb 2026 12:00:01 GMT", YEAR_2026 + 999, 1000);
    waits("Thu, 19 Feb 2026 12:00:01 GMT", YEAR_2026 - 1, 2000);
}

static void what_is_too_long_is_capped(void **state)
{
    (void)state;
    static const char *const long_ones[] = {"86401",
                                            "99999999999999999999999999999999999999",
                                            "18446744073709551615",
                                            "18446744073709551616",
                                            "9223372036854775",
                                            "Fri, 31 Dec 9999 23:59:59 GMT",
                                            "Fri Dec 31 23:59:59 9999"};
    for (size_t i = 0; i < sizeof long_ones / sizeof *long_ones; i++)
        assert_int_equal(hx_retry_after(hx_slice_of(long_ones[i]), YEAR_2026, HX_DAY), HX_DAY);
    assert_int_equal(hx_retry_after(HX_LIT("86400"), YEAR_2026, HX_DAY), HX_DAY);
    assert_int_equal(hx_retry_after(HX_LIT("2"), YEAR_2026, 1500), 1500);
    assert_int_equal(hx_retry_after(HX_LIT("1"), YEAR_2026, 0), 0);
}

static void two_digits_are_a_year_at_most_50_ahead(void **state)
{
    (void)state;
    means("Thursday, 19-Feb-76 12:00:00 GMT", YEAR_2026, 3349339200000);   /* 2076: 50 years to the second */
    means("Friday, 19-Feb-76 12:00:01 GMT", YEAR_2026, 193579201000);      /* 1976: it would be more */
    means("Tuesday, 19-Feb-77 12:00:00 GMT", YEAR_2026, 225201600000);     /* 1977 */
    means("Friday, 31-Dec-99 23:59:59 GMT", YEAR_2026, 946684799000);      /* 1999 */
    means("Saturday, 01-Jan-00 00:00:00 GMT", YEAR_2026, 946684800000);    /* 2000 */
    means("Friday, 01-Jan-01 00:00:00 GMT", 4070908800000, 4133980800000); /* asked in 2099: 2101, not 2001 */
    means("Sunday, 01-Mar-76 00:00:00 GMT", 1772323200000,
          3350246400000); /* asked on 1 March 2026: 2076, a leap year */
    waits("Thursday, 19-Feb-26 12:00:05 GMT", YEAR_2026, 5000);
}

static void leap_days_and_leap_seconds(void **state)
{
    (void)state;
    means("Thu, 29 Feb 2024 00:00:00 GMT", YEAR_2026, 1709164800000);
    means("Tue, 29 Feb 2000 00:00:00 GMT", YEAR_2026, 951782400000);
    means("Sat, 31 Dec 2016 23:59:60 GMT", YEAR_2026, 1483228800000);
    is_nonsense("Sun, 29 Feb 2026 00:00:00 GMT");
    is_nonsense("Mon, 29 Feb 2100 00:00:00 GMT");
}

static void nonsense_is_none(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        " ",
        "-1",
        "+1",
        "1.5",
        "1,5",
        "1s",
        "1 2",
        "0x10",
        "1e3",
        "soon",
        "NaN",
        "Thu",
        "Thu,",
        "Thursday",
        "Thu, 19 Feb 2026",
        "Thu, 19 Feb 2026 12:00:30",
        "Thu, 19 Feb 2026 12:00:30 UTC",
        "19 Feb 2026 12:00:30 GMT",
        "Thu, 19 Feb 2026 12:00:30 GMT x",
        "Thu, 19 Feb 2026 12:00:30 GMTx",
        "Thu,19 Feb 2026 12:00:30 GMT",
        "Thu, 9 Feb 2026 12:00:30 GMT",
        "Thu, 00 Feb 2026 12:00:30 GMT",
        "Thu, 32 Jan 2026 12:00:30 GMT",
        "Thu, 31 Apr 2026 12:00:30 GMT",
        "Thu, 19 Foo 2026 12:00:30 GMT",
        "Thu, 19 Feb 226 12:00:30 GMT",
        "Thu, 19 Feb 20260 12:00:30 GMT",
        "Thu, 19 Feb 2026 24:00:00 GMT",
        "Thu, 19 Feb 2026 12:60:00 GMT",
        "Thu, 19 Feb 2026 12:00:61 GMT",
        "Thu, 19 Feb 2026 1:00:00 GMT",
        "Thu, 19 Feb -026 12:00:30 GMT",
        "Xyz, 19 Feb 2026 12:00:30 GMT",
        "Thursday, 19 Feb 2026 12:00:30 GMT",
        "Thu, 19-Feb-26 12:00:30 GMT",
        "Thursday, 19-Feb-2026 12:00:30 GMT",
        "Thu Feb 19 12:00:30 26",
        "Thu Feb 6 12:00:30 2026",
        "Thu Feb   6 12:00:30 2026",
        "Thu Feb 19 12:00:30 2026 GMT",
        "2026-02-19T12:00:30Z",
        "\"120\"",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) is_nonsense(bad[i]);
    assert_int_equal(hx_retry_after((hx_slice){"1\0", 2}, 0, HX_DAY), HX_RETRY_AFTER_NONE);
    assert_int_equal(hx_retry_after((hx_slice){NULL, 0}, 0, HX_DAY), HX_RETRY_AFTER_NONE);
}

static const char *const long_days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

/* The three formats as the C library's calendar has them, which shares no code with the parser. */
static void format_date(char out[64], int form, hx_ms at)
{
    time_t seconds = (time_t)(at / 1000);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    const char *day = long_days[tm.tm_wday], *month = months[tm.tm_mon];
    int year = tm.tm_year + 1900;
    if (form == 0)
        snprintf(out, 64, "%.3s, %02d %s %04d %02d:%02d:%02d GMT", day, tm.tm_mday, month, year, tm.tm_hour, tm.tm_min,
                 tm.tm_sec);
    else if (form == 1)
        snprintf(out, 64, "%s, %02d-%s-%02d %02d:%02d:%02d GMT", day, tm.tm_mday, month, year % 100, tm.tm_hour,
                 tm.tm_min, tm.tm_sec);
    else
        snprintf(out, 64, "%.3s %s %2d %02d:%02d:%02d %04d", day, month, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                 year);
}

static void any_date_is_waited_for_and_never_left_early(void **state)
{
    (void)state;
    hx_rand_seed(9110);
    for (int i = 0; i < CASES; i++) {
        hx_ms now = (hx_ms)hx_rand_below(80 * 366 * (uint64_t)HX_DAY); /* 1970 to 2050 */
        hx_ms ahead = (hx_ms)hx_rand_below(i % 2 ? 40 * 365 * (uint64_t)HX_DAY : 100000);
        hx_ms date = (now + ahead) / 1000 * 1000;
        char text[64];
        format_date(text, i % 3, date);
        means(text, now, date);
        hx_ms wait = hx_retry_after(hx_slice_of(text), now, HX_RETRY_AFTER_MAX);
        if (wait != HX_RETRY_AFTER_MAX && (now + wait < date || wait > ahead + 1000 || wait % 1000 != 0))
            fail_msg("\"%s\" at %lld: %lld", text, (long long)now, (long long)wait);
        if (date - now < HX_RETRY_AFTER_MAX) assert_true(now + wait >= date);
    }
}

/* On the heap and without a byte to spare, so that the address sanitizer sees a read past the end. */
static void any_bytes_are_read_within_their_bounds(void **state)
{
    (void)state;
    static const char alphabet[] = "0123456789 ,:-TthuFebGMTSundayJan\0\xff";
    hx_rand_seed(850);
    for (int i = 0; i < CASES; i++) {
        char text[64];
        format_date(text, i % 3, (hx_ms)hx_rand_below(4000000000000u));
        size_t len = hx_rand_below(strlen(text) + 1);
        char *bytes = malloc(len + 1);
        assert_non_null(bytes);
        char *exact = bytes + 1; /* so that `len` 0 is at the end, too */
        memcpy(exact, text, len);
        for (uint64_t changes = hx_rand_below(3); changes > 0 && len > 0; changes--)
            exact[hx_rand_below(len)] = alphabet[hx_rand_below(sizeof alphabet)];
        hx_ms wait = hx_retry_after((hx_slice){exact, len}, YEAR_2026, HX_DAY);
        assert_true(wait == HX_RETRY_AFTER_NONE || (wait >= 0 && wait <= HX_DAY));
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seconds_are_taken_as_they_are),
        cmocka_unit_test(the_three_dates_mean_the_same_moment),
        cmocka_unit_test(a_date_in_the_past_is_no_wait),
        cmocka_unit_test(part_of_a_second_is_rounded_up),
        cmocka_unit_test(what_is_too_long_is_capped),
        cmocka_unit_test(two_digits_are_a_year_at_most_50_ahead),
        cmocka_unit_test(leap_days_and_leap_seconds),
        cmocka_unit_test(nonsense_is_none),
        cmocka_unit_test(any_date_is_waited_for_and_never_left_early),
        cmocka_unit_test(any_bytes_are_read_within_their_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
