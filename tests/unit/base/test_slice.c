/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/hex.h"
#include "base/slice.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

static void numbers_are_digits_only_and_never_wrap(void **state)
{
    (void)state;
    uint64_t value = 0;
    assert_true(hx_slice_to_u64(HX_LIT("18446744073709551615"), &value));
    assert_true(value == UINT64_MAX);
    assert_false(hx_slice_to_u64(HX_LIT("18446744073709551616"), &value));
    assert_false(hx_slice_to_u64(HX_LIT("+5"), &value));
    assert_false(hx_slice_to_u64(HX_LIT(" 5"), &value));
    assert_false(hx_slice_to_u64(HX_EMPTY, &value));
}

static void parts_between_separators_include_empty_ones(void **state)
{
    (void)state;
    hx_slice rest = HX_LIT("a,,b"), part;
    assert_true(hx_slice_next(&rest, ',', &part) && hx_slice_eq(part, HX_LIT("a")));
    assert_true(hx_slice_next(&rest, ',', &part) && part.len == 0);
    assert_true(hx_slice_next(&rest, ',', &part) && hx_slice_eq(part, HX_LIT("b")));
    assert_false(hx_slice_next(&rest, ',', &part));
}

static void every_byte_is_written_as_the_two_digits_of_printf(void **state)
{
    (void)state;
    uint8_t bytes[256 + 3]; /* an odd length: the last three are written one by one */
    char wanted[2 * sizeof bytes + 1], out[2 * sizeof bytes];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * 7);
        snprintf(wanted + 2 * i, 3, "%02x", (unsigned)bytes[i]);
    }
    hx_hex_write(out, bytes, sizeof bytes);
    assert_memory_equal(out, wanted, sizeof out);
}

static void tokens_are_as_rfc_9110_has_them(void **state)
{
    (void)state;
    assert_true(hx_slice_is_token(HX_LIT("Idempotency-Key")));
    assert_false(hx_slice_is_token(HX_LIT("a b")));
    for (int byte = 0; byte < 256; byte++) { /* RFC 9110 5.6.2 */
        char c = (char)byte;
        bool expected = byte < 128 && (isalnum(byte) || (byte > 0 && strchr("!#$%&'*+-.^_`|~", byte)));
        assert_int_equal(hx_slice_is_token((hx_slice){&c, 1}), expected);
    }
    assert_false(hx_slice_is_token(HX_EMPTY));
    assert_false(hx_slice_is_token((hx_slice){"a\0b", 3}));
}

static void hexadecimal_digits_are_twenty_two(void **state)
{
    (void)state;
    static const char digits[] = "0123456789abcdef", upper[] = "ABCDEF";
    for (int c = -128; c < 128; c++) {
        const char *at = c > 0 ? strchr(digits, c) : NULL, *other = c > 0 ? strchr(upper, c) : NULL;
        int expected = at ? (int)(at - digits) : other ? (int)(other - upper) + 10 : -1;
        if (hx_hex_digit((char)c) != expected) fail_msg("byte %d", c);
    }
}

static void dates_are_written_as_http_and_rfc_3339_have_them(void **state)
{
    (void)state;
    char text[HX_RFC3339_BYTES];
    hx_ms at = 1771502400123;
    assert_true(hx_slice_eq(hx_rfc3339(at, text), HX_LIT("2026-02-19T12:00:00.123Z")));
    assert_true(hx_slice_eq(hx_http_date(at, text), HX_LIT("Thu, 19 Feb 2026 12:00:00 GMT")));
}

static void dates_agree_with_the_libc_on_every_day_of_four_centuries(void **state)
{
    (void)state;
    char ours[HX_RFC3339_BYTES], theirs[40];
    for (hx_ms day = 0; day < 400 * 366; day++) {
        hx_ms at = day * HX_DAY + day * 7919 % HX_DAY;
        time_t seconds = (time_t)(at / 1000);
        struct tm tm;
        gmtime_r(&seconds, &tm);
        (void)strftime(theirs, sizeof theirs, "%a, %d %b %Y %H:%M:%S GMT", &tm);
        hx_slice date = hx_http_date(at, ours);
        assert_true(hx_slice_eq(date, hx_slice_of(theirs)));
        (void)strftime(theirs, sizeof theirs, "%Y-%m-%dT%H:%M:%S", &tm);
        assert_true(hx_slice_starts(hx_rfc3339(at, ours), hx_slice_of(theirs)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_digits_only_and_never_wrap),
        cmocka_unit_test(parts_between_separators_include_empty_ones),
        cmocka_unit_test(every_byte_is_written_as_the_two_digits_of_printf),
        cmocka_unit_test(tokens_are_as_rfc_9110_has_them),
        cmocka_unit_test(hexadecimal_digits_are_twenty_two),
        cmocka_unit_test(dates_are_written_as_http_and_rfc_3339_have_them),
        cmocka_unit_test(dates_agree_with_the_libc_on_every_day_of_four_centuries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
