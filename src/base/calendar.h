/* SPDX-License-Identifier: Apache-2.0 */
/* The Gregorian calendar, extended to all years. A day is its distance from 1970-01-01, negative before it. */
#ifndef HX_BASE_CALENDAR_H
#define HX_BASE_CALENDAR_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int32_t year;
    uint8_t month, day; /* both from 1 */
} hx_date;

/* A `day` past the end of its month is one of the next month. */
int64_t hx_calendar_day(int64_t year, int64_t month, int64_t day);
hx_date hx_calendar_date(int64_t day);
bool hx_calendar_is_leap(int64_t year);
/* How many days the month has. */
int64_t hx_calendar_month_days(int64_t year, int64_t month);
/* 0 is Sunday. */
unsigned hx_calendar_weekday(int64_t day);

#endif
