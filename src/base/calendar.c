/* SPDX-License-Identifier: Apache-2.0 */
/* Years are counted from 0000-03-01 here, so that the leap day is the last of its year. An era is the 400 years after
 * which the calendar repeats. Every response carries a date or two, and gmtime would cost more than the rest of it. */
#include "base/calendar.h"

#define ERA_DAYS 146097
#define DAYS_TO_1970 719468 /* from 0000-03-01 */

/* The era of a year or day, rounded down before year 0, too. */
static int64_t era_of(int64_t at, int64_t length)
{
    return (at >= 0 ? at : at - (length - 1)) / length;
}

int64_t hx_calendar_day(int64_t year, int64_t month, int64_t day)
{
    if (month <= 2) year--;
    int64_t era = era_of(year, 400), of_era = year - era * 400;
    int64_t of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - DAYS_TO_1970;
}

hx_date hx_calendar_date(int64_t day)
{
    day += DAYS_TO_1970;
    int64_t era = era_of(day, ERA_DAYS);
    uint32_t of_era = (uint32_t)(day - era * ERA_DAYS);
    uint32_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    uint32_t of_year = of_era - (365 * year + year / 4 - year / 100);
    uint32_t shifted = (5 * of_year + 2) / 153; /* March is 0 */
    uint32_t month = shifted < 10 ? shifted + 3 : shifted - 9;
    return (hx_date){.year = (int32_t)(era * 400 + year + (month <= 2)),
                     .month = (uint8_t)month,
                     .day = (uint8_t)(of_year - (153 * shifted + 2) / 5 + 1)};
}

bool hx_calendar_is_leap(int64_t year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

int64_t hx_calendar_month_days(int64_t year, int64_t month)
{
    return month == 2 ? 28 + hx_calendar_is_leap(year) : 30 + ((month + month / 8) & 1);
}

unsigned hx_calendar_weekday(int64_t day)
{
    int64_t weekday = (day + 4) % 7; /* 1970 began on a Thursday */
    return (unsigned)(weekday < 0 ? weekday + 7 : weekday);
}
