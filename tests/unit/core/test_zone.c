/* SPDX-License-Identifier: Apache-2.0 */
/* Time zones from bytes that are put together here: every form of the rule, and bytes that are no time zone. What is
 * installed on the machine is compared with Python's reading in test_zone.py. */
#include "core/time/zone.h"

#include "base/memory/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#define HOUR 3600
#define DAY INT64_C(86400)
#define YEAR_2024 INT64_C(1704067200) /* a leap year; it began on a Monday */
#define YEAR_2025 INT64_C(1735689600)
#define YEAR_2100 INT64_C(4102444800) /* not a leap year */
#define FILE_BYTES_MAX 4096u

typedef struct {
    int64_t at;
    uint8_t type;
} transition;

typedef struct {
    char version;
    uint32_t leap;
    const transition *transitions;
    uint32_t count;
    const int32_t *offsets;
    uint32_t type_count;
    const char *rule;
} file;

static void put_number(hx_buf *out, uint64_t number, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--) assert_true(hx_buf_byte(out, (char)(number >> (8 * i) & 0xff)));
}

static void put_header(hx_buf *out, const file *f, uint32_t times, uint32_t types)
{
    hx_buf_put(out, HX_LIT("TZif"));
    put_number(out, (uint8_t)f->version, 1);
    put_number(out, 0, 8);
    put_number(out, 0, 7);
    const uint32_t counts[] = {0, 0, times > 0 ? f->leap : 0, times, types, 4};
    for (size_t i = 0; i < 6; i++) put_number(out, counts[i], 4);
}

static void put_types(hx_buf *out, const file *f, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        put_number(out, (uint32_t)f->offsets[i], 4);
        put_number(out, i & 1, 1);
        put_number(out, 0, 1);
    }
    hx_buf_put(out, (hx_slice){"ABC", 4});
}

static hx_slice bytes_of(const file *f, hx_arena *arena)
{
    hx_buf out;
    hx_buf_init(&out, arena, FILE_BYTES_MAX);
    put_header(&out, f, 0, 1);
    put_types(&out, f, 1);
    put_header(&out, f, f->count, f->type_count);
    for (uint32_t i = 0; i < f->count; i++) put_number(&out, (uint64_t)f->transitions[i].at, 8);
    for (uint32_t i = 0; i < f->count; i++) put_number(&out, f->transitions[i].type, 1);
    put_types(&out, f, f->type_count);
    for (uint32_t i = 0; i < 12 * f->leap; i++) put_number(&out, 0, 1);
    hx_buf_puts(&out, "\n");
    hx_buf_puts(&out, f->rule);
    hx_buf_puts(&out, "\n");
    return hx_buf_slice(&out);
}

static const int32_t new_york[] = {-5 * HOUR, -4 * HOUR};
static const transition spring_and_fall[] = {{1710054000, 1}, {1730613600, 0}}; /* of 2024 */

static file new_york_file(void)
{
    return (file){.version = '2',
                  .transitions = spring_and_fall,
                  .count = 2,
                  .offsets = new_york,
                  .type_count = 2,
                  .rule = "EST5EDT,M3.2.0,M11.1.0"};
}

static const hx_zone *read_file(const file *f, hx_arena *arena)
{
    return hx_zone_read(HX_LIT("Test/Zone"), bytes_of(f, arena), arena);
}

/* A zone that is nothing but its rule. */
static const hx_zone *by_rule(const char *rule, hx_arena *arena)
{
    static const int32_t zero[] = {0};
    file f = {.version = '3', .offsets = zero, .type_count = 1, .rule = rule};
    return read_file(&f, arena);
}

/* That the offset changes at that very second. */
static void changes(const char *rule, int64_t at, int32_t before, int32_t after)
{
    hx_arena arena = {0};
    const hx_zone *zone = by_rule(rule, &arena);
    if (!zone) fail_msg("%s is refused", rule);
    int32_t found_before = hx_zone_offset(zone, at * 1000 - 1), found_after = hx_zone_offset(zone, at * 1000);
    if (found_before != before || found_after != after)
        fail_msg("%s at %lld: from %d to %d", rule, (long long)at, found_before, found_after);
    hx_arena_free(&arena);
}

static void stays(const char *rule, int64_t from, int64_t to, int32_t offset)
{
    hx_arena arena = {0};
    const hx_zone *zone = by_rule(rule, &arena);
    if (!zone) fail_msg("%s is refused", rule);
    for (int64_t at = from; at < to; at += HOUR) {
        if (hx_zone_offset(zone, at * 1000) != offset)
            fail_msg("%s at %lld: %d", rule, (long long)at, hx_zone_offset(zone, at * 1000));
    }
    hx_arena_free(&arena);
}

static void rules_without_summer_time_have_one_offset(void **state)
{
    (void)state;
    stays("UTC0", YEAR_2024, YEAR_2024 + 366 * DAY, 0);
    stays("<-03>3", YEAR_2024, YEAR_2024 + 366 * DAY, -3 * HOUR);
    stays("<+0545>-5:45", YEAR_2024, YEAR_2024 + DAY, 5 * HOUR + 45 * 60);
    stays("LMT+0:01:15", YEAR_2024, YEAR_2024 + DAY, -75);
    stays("Long-24:59:59", YEAR_2024, YEAR_2024 + DAY, 25 * HOUR - 1);
}

static void a_weekday_of_a_month_is_found(void **state)
{
    (void)state;
    const char *rule = "EST5EDT,M3.2.0,M11.1.0";
    changes(rule, YEAR_2024 + 69 * DAY + 7 * HOUR, -5 * HOUR, -4 * HOUR);  /* March 10th */
    changes(rule, YEAR_2024 + 307 * DAY + 6 * HOUR, -4 * HOUR, -5 * HOUR); /* November 3rd */
    changes(rule, YEAR_2025 + 67 * DAY + 7 * HOUR, -5 * HOUR, -4 * HOUR);  /* March 9th */
    changes(rule, YEAR_2025 + 305 * DAY + 6 * HOUR, -4 * HOUR, -5 * HOUR); /* November 2nd */
    /* The fifth is the last, whether there are five or four. */
    changes("CET-1CEST,M3.5.0,M10.5.0/3", YEAR_2024 + 90 * DAY + HOUR, HOUR, 2 * HOUR); /* March 31st */
    changes("CET-1CEST,M3.5.0,M10.5.0/3", YEAR_2025 + 88 * DAY + HOUR, HOUR, 2 * HOUR); /* March 30th */
    changes("AAA0BBB,M2.5.4/0,M12.5.2/0", YEAR_2024 + 59 * DAY, 0, HOUR);               /* February 29th */
    changes("AAA0BBB,M2.5.4/0,M12.5.2/0", YEAR_2024 + 365 * DAY - HOUR, HOUR, 0);       /* December 31st */
}

static void a_day_is_counted_with_the_leap_day_or_without(void **state)
{
    (void)state;
    changes("AAA0BBB,J59/0,J60/0", YEAR_2024 + 58 * DAY, 0, HOUR);        /* February 28th */
    changes("AAA0BBB,J59/0,J60/0", YEAR_2024 + 60 * DAY - HOUR, HOUR, 0); /* March 1st */
    changes("AAA0BBB,J59/0,J60/0", YEAR_2025 + 59 * DAY - HOUR, HOUR, 0);
    changes("AAA0BBB,J59/0,J60/0", YEAR_2100 + 59 * DAY - HOUR, HOUR, 0);
    changes("AAA0BBB,J1/0,J365/0", YEAR_2024, 0, HOUR);
    changes("AAA0BBB,J1/0,J365/0", YEAR_2024 + 365 * DAY - HOUR, HOUR, 0);
    changes("AAA0BBB,0/0,59/0", YEAR_2024, 0, HOUR);
    changes("AAA0BBB,0/0,59/0", YEAR_2024 + 59 * DAY - HOUR, HOUR, 0); /* February 29th */
    changes("AAA0BBB,0/0,59/0", YEAR_2025 + 59 * DAY - HOUR, HOUR, 0); /* March 1st */
    /* The 366th day of a year that has none is the first of the next. */
    changes("AAA0BBB,100/0,365/0", YEAR_2025 + 365 * DAY - HOUR, HOUR, 0);
}

static void times_go_below_midnight_and_beyond_the_day(void **state)
{
    (void)state;
    /* Nuuk: the Saturday before the last Sunday of March, at 22:00. */
    changes("<-02>2<-01>,M3.5.0/-1,M10.5.0/0", YEAR_2024 + 90 * DAY + HOUR, -2 * HOUR, -HOUR);
    /* Gaza: two o'clock on the Saturday after the fourth Thursday. */
    changes("EET-2EEST,M3.4.4/50,M10.4.4/50", YEAR_2024 + 89 * DAY, 2 * HOUR, 3 * HOUR);
    changes("AAA0BBB,J10/-167:59:59,J100/167", YEAR_2025 + 2 * DAY + 1, 0, HOUR);
    changes("AAA0BBB,J10/-167:59:59,J100/167", YEAR_2025 + 99 * DAY + 166 * HOUR, HOUR, 0);
    changes("AAA0BBB,J1/-24,J100", YEAR_2025 - DAY, 0, HOUR); /* in the year before */
    changes("AAA0BBB,J1/0:30:15,J100", YEAR_2025 + 30 * 60 + 15, 0, HOUR);
    changes("AAA0BBB,J1/+3,J100", YEAR_2025 + 3 * HOUR, 0, HOUR);
}

static void summer_time_may_span_the_new_year_or_be_winter_time(void **state)
{
    (void)state;
    const char *south = "AEST-10AEDT,M10.1.0,M4.1.0/3";
    changes(south, YEAR_2024 + 97 * DAY - 8 * HOUR, 11 * HOUR, 10 * HOUR);  /* April 7th */
    changes(south, YEAR_2024 + 279 * DAY - 8 * HOUR, 10 * HOUR, 11 * HOUR); /* October 6th */
    stays(south, YEAR_2025 - 30 * DAY, YEAR_2025 + 30 * DAY, 11 * HOUR);
    const char *ireland = "IST-1GMT0,M10.5.0,M3.5.0/1";
    changes(ireland, YEAR_2024 + 90 * DAY + HOUR, 0, HOUR);
    changes(ireland, YEAR_2024 + 300 * DAY + HOUR, HOUR, 0);
    stays(ireland, YEAR_2025 - 30 * DAY, YEAR_2025 + 30 * DAY, 0);
    changes("AAA5BBB3:30,J10,J100", YEAR_2025 + 9 * DAY + 7 * HOUR, -5 * HOUR, -3 * HOUR - 30 * 60);
}

static void summer_time_that_never_ends_never_ends(void **state)
{
    (void)state;
    static const char *const rules[] = {"EST5EDT,0/0,J365/25", "EST5EDT,0/0,J365/30", "EST5EDT,J1/0,J1/1"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        stays(rules[i], YEAR_2024 - 10 * DAY, YEAR_2025 + 10 * DAY, -4 * HOUR);
}

static void began(const char *rule, int64_t at, int64_t expected)
{
    hx_arena arena = {0};
    const hx_zone *zone = by_rule(rule, &arena);
    assert_non_null(zone);
    hx_ms found = hx_zone_date_began(zone, at * 1000 + 999);
    if (found != expected * 1000)
        fail_msg("%s at %lld: %lld, not %lld", rule, (long long)at, (long long)found, (long long)expected * 1000);
    hx_arena_free(&arena);
}

static void a_date_begins_where_clocks_come_to_show_it(void **state)
{
    (void)state;
    const char *plain = "EST5EDT,M3.2.0,M11.1.0";
    int64_t march_10 = YEAR_2024 + 69 * DAY + 5 * HOUR;
    began(plain, march_10 - 1, march_10 - DAY);
    began(plain, march_10, march_10);
    began(plain, march_10 + 22 * HOUR, march_10); /* after the change, and on a date of 23 hours */
    began(plain, march_10 + 23 * HOUR, march_10 + 23 * HOUR);

    const char *skips_midnight = "EET-2EEST,M3.5.0/0,M10.5.0/0";
    int64_t march_31 = YEAR_2024 + 90 * DAY - 2 * HOUR;
    began(skips_midnight, march_31 - 1, march_31 - DAY);
    began(skips_midnight, march_31, march_31);
    began(skips_midnight, march_31 + 23 * HOUR - 1, march_31);
    int64_t october_27 = YEAR_2024 + 300 * DAY - 2 * HOUR; /* the hour before it comes twice */
    began(skips_midnight, october_27 - 1, october_27 - DAY - HOUR);
    began(skips_midnight, october_27, october_27);

    const char *shows_the_first_hour_twice = "<-01>1<+00>,M3.5.0/0,M10.5.0/1";
    int64_t midnight = YEAR_2024 + 300 * DAY;
    began(shows_the_first_hour_twice, midnight + HOUR - 1, midnight);
    began(shows_the_first_hour_twice, midnight + HOUR, midnight);
    began(shows_the_first_hour_twice, midnight + 24 * HOUR, midnight);

    const char *goes_back_over_midnight = "NST3:30NDT,M3.2.0/0:01,M11.1.0/0:01";
    int64_t first = YEAR_2024 + 307 * DAY + 2 * HOUR + 1800, back = first + 60, again = first + HOUR;
    began(goes_back_over_midnight, first - 1, first - DAY);
    began(goes_back_over_midnight, back - 1, first);
    began(goes_back_over_midnight, back, back);
    began(goes_back_over_midnight, again - 1, back);
    began(goes_back_over_midnight, again, again);
}

static void what_is_no_rule_is_refused(void **state)
{
    (void)state;
    static const char *const rules[] = {
        "E",
        "ES5",
        "EST",
        "5",
        "<-03",
        "<-03>",
        "<>3",
        "<-0 >3",
        "E3T5",
        "EST25",
        "EST5:60",
        "EST5:00:60",
        "EST5:",
        "EST--5",
        "EST5 ",
        "EST5ED",
        "EST5EDT",
        "EST5EDT4",
        "EST5EDT,",
        "EST5EDT,M3.2.0",
        "EST5EDT,M3.2.0,",
        "EST5EDT,M3.2.0,M11.1.0,",
        "EST5EDT,M0.2.0,M11.1.0",
        "EST5EDT,M13.2.0,M11.1.0",
        "EST5EDT,M3.0.0,M11.1.0",
        "EST5EDT,M3.6.0,M11.1.0",
        "EST5EDT,M3.2.7,M11.1.0",
        "EST5EDT,M3.2,M11.1.0",
        "EST5EDT,M3.2.0/,M11.1.0",
        "EST5EDT,M3.2.0/168,M11.1.0",
        "EST5EDT,M3.2.0/-168,M11.1.0",
        "EST5EDT,J0,J365",
        "EST5EDT,J1,J366",
        "EST5EDT,0,366",
        "EST5EDT,-1,1",
        "EST5EDT,J,J1",
        "EST5EDT,M3.2.0,M11.1.0/0001",
        "EST99999999999999999999",
        ":America/New_York",
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        hx_arena arena = {0};
        if (by_rule(rules[i], &arena)) fail_msg("%s is taken", rules[i]);
        hx_arena_free(&arena);
    }
}

static void the_table_counts_until_its_end_and_the_rule_behind_it(void **state)
{
    (void)state;
    hx_arena arena = {0};
    static const transition table[] = {{1000, 1}, {2000, 2}, {YEAR_2024, 0}};
    static const int32_t offsets[] = {HOUR, 2 * HOUR, 3 * HOUR};
    file f = {.version = '2', .transitions = table, .count = 3, .offsets = offsets, .type_count = 3, .rule = ""};
    const hx_zone *zone = read_file(&f, &arena);
    assert_non_null(zone);
    assert_true(hx_slice_eq(hx_zone_name(zone), HX_LIT("Test/Zone")));
    assert_int_equal(hx_zone_offset(zone, 999999), HOUR);
    assert_int_equal(hx_zone_offset(zone, 1000000), 2 * HOUR);
    assert_int_equal(hx_zone_offset(zone, 1999999), 2 * HOUR);
    assert_int_equal(hx_zone_offset(zone, 2000000), 3 * HOUR);
    assert_int_equal(hx_zone_offset(zone, YEAR_2024 * 1000 - 1), 3 * HOUR);
    assert_int_equal(hx_zone_offset(zone, YEAR_2024 * 1000), HOUR);
    assert_int_equal(hx_zone_offset(zone, YEAR_2100 * 1000), HOUR); /* there is no rule */
    assert_int_equal(hx_zone_offset(zone, -1), HOUR);

    /* The rule of 2024 would have ended summer time earlier; it counts from its first change behind the table. */
    f = new_york_file();
    f.rule = "EST5EDT,M3.2.0,M12.1.0";
    zone = read_file(&f, &arena);
    assert_non_null(zone);
    assert_int_equal(hx_zone_offset(zone, spring_and_fall[1].at * 1000), -5 * HOUR);
    assert_int_equal(hx_zone_offset(zone, (YEAR_2024 + 320 * DAY) * 1000), -5 * HOUR);
    assert_int_equal(hx_zone_offset(zone, (YEAR_2025 + 320 * DAY) * 1000), -4 * HOUR);
    hx_arena_free(&arena);
}

static void a_file_of_another_kind_is_refused(void **state)
{
    (void)state;
    hx_arena arena = {0};
    file good = new_york_file(), f = good;
    assert_non_null(read_file(&f, &arena));
    f.version = '\0'; /* version 1 */
    assert_null(read_file(&f, &arena));
    f = good;
    f.version = '4';
    assert_non_null(read_file(&f, &arena));
    f.leap = 1;
    assert_null(read_file(&f, &arena));
    f = good;
    f.type_count = 0;
    assert_null(read_file(&f, &arena));
    f.type_count = 1; /* the table names two */
    assert_null(read_file(&f, &arena));

    static const transition backwards[] = {{2000, 0}, {1000, 1}}, equal[] = {{1000, 0}, {1000, 1}},
                            far[] = {{INT64_MIN, 0}, {1000, 1}};
    const transition *const tables[] = {backwards, equal, far};
    for (size_t i = 0; i < 3; i++) {
        f = good;
        f.transitions = tables[i];
        assert_null(read_file(&f, &arena));
    }
    static const int32_t wild[] = {26 * HOUR, 0};
    f = good;
    f.offsets = wild;
    assert_null(read_file(&f, &arena));
    assert_null(hx_zone_read(HX_LIT("A"), HX_EMPTY, &arena));
    char *longest = hx_arena_zalloc(&arena, HX_ZONE_FILE_BYTES_MAX + 1); /* what follows the footer is ignored */
    hx_slice bytes = bytes_of(&good, &arena);
    memcpy(longest, bytes.ptr, bytes.len);
    assert_non_null(hx_zone_read(HX_LIT("A"), (hx_slice){longest, HX_ZONE_FILE_BYTES_MAX}, &arena));
    assert_null(hx_zone_read(HX_LIT("A"), (hx_slice){longest, HX_ZONE_FILE_BYTES_MAX + 1}, &arena));
    assert_null(hx_zone_read(HX_LIT("A"), HX_LIT("# tzdb data for Europe and environs\n"), &arena));
    hx_arena_free(&arena);
}

static void check_moment(const hx_zone *zone, hx_ms at)
{
    int32_t offset = hx_zone_offset(zone, at);
    assert_in_range(offset + 26 * HOUR, 1, 52 * HOUR - 1);
    hx_date date = hx_zone_date(zone, at);
    hx_ms began = hx_zone_date_began(zone, at);
    assert_true(began <= at && at - began < 4 * HX_DAY);
    hx_date first = hx_zone_date(zone, began), before = hx_zone_date(zone, began - 1);
    assert_memory_equal(&date, &first, sizeof date);
    assert_memory_not_equal(&date, &before, sizeof date);
}

static void check_moments(const hx_zone *zone)
{
    for (size_t i = 0; i < 2; i++)
        for (hx_ms at = -30 * HX_HOUR; at <= 30 * HX_HOUR; at += HX_HOUR)
            check_moment(zone, spring_and_fall[i].at * 1000 + at);
    for (hx_ms at = YEAR_2100 * 1000; at < YEAR_2100 * 1000 + 366 * HX_DAY; at += 11 * HX_DAY) check_moment(zone, at);
    check_moment(zone, 0);
    check_moment(zone, -1);
    check_moment(zone, -YEAR_2100 * 1000);
    check_moment(zone, INT64_C(9000000000000000000)); /* in the year 285 million */
    (void)hx_zone_date_began(zone, INT64_MAX);
    (void)hx_zone_date_began(zone, INT64_MIN);
}

/* Memory of just that size, so that a sanitizer sees a step too far. */
static const hx_zone *read_copy(hx_slice bytes, hx_arena *arena)
{
    char *copy = malloc(bytes.len > 0 ? bytes.len : 1);
    assert_non_null(copy);
    if (bytes.len > 0) memcpy(copy, bytes.ptr, bytes.len);
    const hx_zone *zone = hx_zone_read(HX_LIT("Test/Zone"), (hx_slice){copy, bytes.len}, arena);
    free(copy);
    return zone;
}

static void every_file_that_is_cut_short_is_refused(void **state)
{
    (void)state;
    hx_arena arena = {0};
    file f = new_york_file();
    hx_slice bytes = bytes_of(&f, &arena);
    const hx_zone *whole = read_copy(bytes, &arena);
    assert_non_null(whole);
    check_moments(whole);
    for (size_t len = 0; len < bytes.len; len++) assert_null(read_copy(hx_slice_first(bytes, len), &arena));
    hx_arena_free(&arena);
}

static void whatever_bytes_are_taken_have_an_answer_for_every_moment(void **state)
{
    (void)state;
    hx_arena arena = {0};
    file f = new_york_file();
    hx_slice bytes = bytes_of(&f, &arena);
    char *flipped = hx_arena_alloc(&arena, bytes.len);
    size_t taken = 0, refused = 0;
    for (size_t i = 0; i < bytes.len; i++) {
        for (unsigned value = 0; value < 256; value++) {
            memcpy(flipped, bytes.ptr, bytes.len);
            flipped[i] = (char)value;
            hx_arena one = {0};
            const hx_zone *zone = read_copy((hx_slice){flipped, bytes.len}, &one);
            zone ? taken++ : refused++;
            if (zone) check_moments(zone);
            hx_arena_free(&one);
        }
    }
    assert_true(taken > 1000 && refused > 1000);
    hx_arena_free(&arena);
}

static void a_clock_that_jumps_about_still_has_dates(void **state)
{
    (void)state;
    hx_arena arena = {0};
    enum { COUNT = 400 };
    transition table[COUNT];
    static const int32_t offsets[] = {-26 * HOUR + 1, 26 * HOUR - 1, 0, 90, -90};
    uint32_t random = 12345;
    for (uint32_t i = 0; i < COUNT; i++) {
        random = random * 1664525 + 1013904223;
        table[i] = (transition){(i > 0 ? table[i - 1].at : spring_and_fall[0].at) + 1 + (random >> 20),
                                (uint8_t)(i % 5)};
    }
    for (uint32_t count = 1; count <= COUNT; count += 57) {
        file f = {.version = '2', .transitions = table, .offsets = offsets, .type_count = 5, .rule = "UTC0"};
        f.count = count;
        const hx_zone *zone = read_file(&f, &arena);
        assert_non_null(zone);
        for (uint32_t i = 0; i < count; i++) {
            check_moment(zone, table[i].at * 1000);
            check_moment(zone, table[i].at * 1000 - 1);
        }
    }
    hx_arena_free(&arena);
}

static void names_stay_below_their_folder(void **state)
{
    (void)state;
    static const char *const fine[] = {"UTC",       "Europe/Berlin", "America/Argentina/Ushuaia",
                                       "Etc/GMT+1", "Etc/GMT-14",    "America/Port-au-Prince",
                                       "GB-Eire",   "W-SU",          "EST5EDT"};
    static const char *const bad[] = {"",
                                      "/",
                                      "/etc/localtime",
                                      "../UTC",
                                      "Europe/../UTC",
                                      "Europe/",
                                      "Europe//X",
                                      "Europe/.hidden",
                                      "zone.tab",
                                      "tzdata.zi",
                                      "Europe/Rome ",
                                      " UTC",
                                      "Europe\\Berlin",
                                      "Europe/-x",
                                      "1UTC",
                                      "Zürich"};
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        if (!hx_zone_is_name(hx_slice_of(fine[i]))) fail_msg("%s is refused", fine[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (hx_zone_is_name(hx_slice_of(bad[i]))) fail_msg("%s is taken", bad[i]);
    assert_false(hx_zone_is_name((hx_slice){"UTC\0x", 5}));
    char longest[66];
    memset(longest, 'a', sizeof longest);
    assert_true(hx_zone_is_name((hx_slice){longest, 64}));
    assert_false(hx_zone_is_name((hx_slice){longest, 65}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_without_summer_time_have_one_offset),
        cmocka_unit_test(a_weekday_of_a_month_is_found),
        cmocka_unit_test(a_day_is_counted_with_the_leap_day_or_without),
        cmocka_unit_test(times_go_below_midnight_and_beyond_the_day),
        cmocka_unit_test(summer_time_may_span_the_new_year_or_be_winter_time),
        cmocka_unit_test(summer_time_that_never_ends_never_ends),
        cmocka_unit_test(a_date_begins_where_clocks_come_to_show_it),
        cmocka_unit_test(what_is_no_rule_is_refused),
        cmocka_unit_test(the_table_counts_until_its_end_and_the_rule_behind_it),
        cmocka_unit_test(a_file_of_another_kind_is_refused),
        cmocka_unit_test(every_file_that_is_cut_short_is_refused),
        cmocka_unit_test(whatever_bytes_are_taken_have_an_answer_for_every_moment),
        cmocka_unit_test(a_clock_that_jumps_about_still_has_dates),
        cmocka_unit_test(names_stay_below_their_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
