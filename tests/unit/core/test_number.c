/* SPDX-License-Identifier: Apache-2.0 */
#include "core/json/number.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

static void check(const char *text, const char *expected)
{
    hx_buf out;
    hx_buf_init(&out, NULL, 4096);
    bool fine = hx_number_canonical(hx_slice_of(text), &out);
    if (!expected) {
        if (fine) fail_msg("%s was taken as %.*s", text, HX_FMT(hx_buf_slice(&out)));
    } else if (!fine || !hx_slice_eq(hx_buf_slice(&out), hx_slice_of(expected))) {
        fail_msg("%s became %.*s, not %s", text, HX_FMT(hx_buf_slice(&out)), expected);
    }
    hx_buf_free(&out);
}

static void spellings_of_one_number_have_one_text(void **state)
{
    (void)state;
    check("19.99", "19.99");
    check("19.990", "19.99");
    check("1.999e1", "19.99");
    check("1999E-2", "19.99");
    check("0.01999e+3", "19.99");
    check("0.0000199900e0006", "19.99");
    check("1e2", "100");
    check("100.000", "100");
    check("-5.0", "-5");
    check("10", "10");
    check("1000e-3", "1");
    check("100.050", "100.05");
}

static void zero_has_no_sign_and_no_size(void **state)
{
    (void)state;
    check("0", "0");
    check("-0", "0");
    check("0.000", "0");
    check("-0.0e-7", "0");
    check("0e999999", "0");
}

/* The edges of ECMAScript's layout, and what RFC 8785 shows in its appendix B. */
static void the_layout_is_ecmascripts(void **state)
{
    (void)state;
    check("1e20", "100000000000000000000");
    check("1e21", "1e+21");
    check("123456789012345680000", "123456789012345680000");
    check("1234567890123456800000", "1.2345678901234568e+21");
    check("0.000001", "0.000001");
    check("0.0000001", "1e-7");
    check("0.00000123", "0.00000123");
    check("0.000000123", "1.23e-7");
    check("-0.0000033333333333333333e-7", "-3.3333333333333333e-13");
    check("5e-324", "5e-324");
    check("-5e-324", "-5e-324");
    check("1.7976931348623157e308", "1.7976931348623157e+308");
    check("9007199254740992", "9007199254740992");
    check("295147905179352830000", "295147905179352830000");
    check("9.999999999999997e22", "9.999999999999997e+22");
    check("1e23", "1e+23");
    check("333333333.33333325", "333333333.33333325");
    check("1424953923781206.2", "1424953923781206.2");
}

static void a_number_that_no_double_holds_keeps_its_value(void **state)
{
    (void)state;
    check("9007199254740993", "9007199254740993");
    check("1.00000000000000000001", "1.00000000000000000001");
    check("18446744073709551616", "18446744073709551616");
    check("12345678901234567890123456789", "1.2345678901234567890123456789e+28");
    check("123456789012345678901.5", "123456789012345678901.5");
    check("1e400", "1e+400");
    check("1e401", "1e+401");
    check("1e-400", "1e-400");
    check("10e399", "1e+400");
}

static void exponents_are_bounded_work(void **state)
{
    (void)state;
    check("1e1000000000000000", "1e+1000000000000000");
    check("-9.5e-1000000000000000", "-9.5e-1000000000000000");
    check("1e1000000000000001", NULL);
    check("1e999999999999999999999999999999999999", NULL);
    check("1e-99999999999999999999999999999999999", NULL);
    check("1e00000000000000000000000000000000002", "100");
}

static void a_full_buffer_is_said_and_left_alone(void **state)
{
    (void)state;
    hx_buf out;
    hx_buf_init(&out, NULL, 4);
    assert_true(hx_buf_append(&out, HX_LIT("ab")));
    assert_false(hx_number_canonical(HX_LIT("1e20"), &out));
    assert_true(hx_slice_eq(hx_buf_slice(&out), HX_LIT("ab")));
    hx_buf_free(&out);
}

static void a_megabyte_of_digits_is_one_number(void **state)
{
    (void)state;
    size_t len = 1 << 20;
    char *text = malloc(len);
    hx_buf out;
    assert_non_null(text);
    memset(text, '7', len);
    hx_buf_init(&out, NULL, 2 * len);
    assert_true(hx_number_canonical((hx_slice){text, len}, &out));
    assert_true(hx_slice_starts(hx_buf_slice(&out), HX_LIT("7.777")));
    assert_true(hx_slice_ends(hx_buf_slice(&out), HX_LIT("7e+1048575")));
    assert_int_equal(out.len, len + 1 + strlen("e+1048575"));
    hx_buf_free(&out);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spellings_of_one_number_have_one_text),
        cmocka_unit_test(zero_has_no_sign_and_no_size),
        cmocka_unit_test(the_layout_is_ecmascripts),
        cmocka_unit_test(a_number_that_no_double_holds_keeps_its_value),
        cmocka_unit_test(exponents_are_bounded_work),
        cmocka_unit_test(a_full_buffer_is_said_and_left_alone),
        cmocka_unit_test(a_megabyte_of_digits_is_one_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
