/* SPDX-License-Identifier: Apache-2.0 */
#include "base/calendar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void days_count_from_1970(void **state)
{
    (void)state;
    assert_int_equal(hx_calendar_day(1970, 1, 1), 0);
    assert_int_equal(hx_calendar_day(1969, 12, 31), -1);
    assert_int_equal(hx_calendar_day(2000, 2, 29), 11016);
    assert_int_equal(hx_calendar_day(2026, 2, 19), 20503);
    assert_int_equal(hx_calendar_day(0, 1, 1), -719528);
    assert_int_equal(hx_calendar_weekday(0), 4);
    assert_int_equal(hx_calendar_weekday(-5), 6);
    assert_int_equal(hx_calendar_weekday(20503), 4);
}

/* Walks through 1,300 years by the lengths of their months. */
static void every_day_follows_the_one_before(void **state)
{
    (void)state;
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t day = hx_calendar_day(-450, 1, 1);
    for (int year = -450; year < 850; year++) {
        for (int month = 1; month <= 12; month++) {
            int length = lengths[month - 1] + (month == 2 && hx_calendar_is_leap(year));
            assert_int_equal(hx_calendar_month_days(year, month), length);
            for (int of_month = 1; of_month <= length; of_month++, day++) {
                hx_date date = hx_calendar_date(day);
                assert_true(date.year == year && date.month == month && date.day == of_month);
                assert_int_equal(hx_calendar_day(year, month, of_month), day);
            }
        }
    }
}

static void leap_years_follow_the_gregorian_rule(void **state)
{
    (void)state;
    assert_true(hx_calendar_is_leap(2024) && hx_calendar_is_leap(2000) && hx_calendar_is_leap(-400));
    assert_false(hx_calendar_is_leap(2026) || hx_calendar_is_leap(1900) || hx_calendar_is_leap(2100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(days_count_from_1970),
        cmocka_unit_test(every_day_follows_the_one_before),
        cmocka_unit_test(leap_years_follow_the_gregorian_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
