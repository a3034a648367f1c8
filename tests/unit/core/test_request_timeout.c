/* SPDX-License-Identifier: Apache-2.0 */
/* Contract §6: "The client's budget X-Request-Timeout (1500, 1500ms, 10s) ends waiting and new attempts … What is left
 * is sent upstream in the same header." */
#include "core/retry/request_timeout.h"

#include "base/rand.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#define CASES 20000

static void takes(const char *value, hx_ms span, bool has_unit)
{
    hx_request_timeout budget;
    if (!hx_timeout_parse(hx_slice_of(value), &budget)) fail_msg("\"%s\" is refused", value);
    if (budget.span != span) fail_msg("\"%s\": %lld", value, (long long)budget.span);
    assert_int_equal(budget.has_unit, has_unit);
}

static void the_three_forms_are_taken(void **state)
{
    (void)state;
    takes("1500", 1500, false);
    takes("1500ms", 1500, true);
    takes("10s", 10000, true);
    takes(" 1500 ", 1500, false);
    takes("1", 1, false);
    takes("001s", 1000, true);
    takes("250MS", 250, true);
    takes("10S", 10000, true);
}

static void what_is_longer_than_a_day_is_cut_to_a_day(void **state)
{
    (void)state;
    takes("86400000", HX_DAY, false);
    takes("86400001", HX_DAY, false);
    takes("86400s", HX_DAY, true);
    takes("86401s", HX_DAY, true);
    takes("18446744073709551617", HX_DAY, false); /* 2^64 + 1 */
    takes("99999999999999999999999999999999999999999s", HX_DAY, true);
}

static void nonsense_and_zero_are_none(void **state)
{
    (void)state;
    static const char *const bad[] = {"",        " ",    "s",     "ms",     "-1",    "+1",   "1.5s",
                                      "1500 ms", "10 s", "10sec", "10m",    "10h",   "10us", "1e3",
                                      "0x10",    "abc",  "10s,",  "10s 5s", "1,500", "0",    "0s",
                                      "000ms",   "inf",  "NaN",   "10ss",   "10sm",  "ms10", "\xd9\xa1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hx_request_timeout budget = {.span = 5, .has_unit = true};
        if (hx_timeout_parse(hx_slice_of(bad[i]), &budget)) fail_msg("\"%s\" is taken", bad[i]);
        assert_int_equal(budget.span, HX_TIMEOUT_NONE);
        assert_false(budget.has_unit);
    }
    hx_request_timeout budget;
    assert_false(hx_timeout_parse((hx_slice){"10s\0", 4}, &budget));
    assert_false(hx_timeout_parse((hx_slice){NULL, 0}, &budget));
}

static void what_is_left_is_never_negative_and_never_grows(void **state)
{
    (void)state;
    hx_request_timeout budget = {.span = 1500};
    assert_int_equal(hx_timeout_left(budget, 0), 1500);
    assert_int_equal(hx_timeout_left(budget, 1499), 1);
    assert_int_equal(hx_timeout_left(budget, 1500), 0);
    assert_int_equal(hx_timeout_left(budget, INT64_MAX), 0);
    assert_int_equal(hx_timeout_left(budget, -1), 1500);
    assert_int_equal(hx_timeout_left(budget, INT64_MIN), 1500);
    budget.span = HX_TIMEOUT_NONE;
    assert_int_equal(hx_timeout_left(budget, 1500), HX_TIMEOUT_NONE);
}

static void sends(hx_request_timeout budget, hx_ms elapsed, const char *expected)
{
    char out[HX_TIMEOUT_BYTES];
    hx_slice text = hx_timeout_text(budget, elapsed, out);
    if (!hx_slice_eq(text, hx_slice_of(expected))) fail_msg("\"%.*s\", not \"%s\"", HX_FMT(text), expected);
}

static void what_is_left_goes_upstream_with_a_unit_if_it_came_with_one(void **state)
{
    (void)state;
    sends((hx_request_timeout){.span = 1500}, 250, "1250");
    sends((hx_request_timeout){.span = 1500, .has_unit = true}, 250, "1250ms");
    sends((hx_request_timeout){.span = HX_DAY, .has_unit = true}, 0, "86400000ms");
    sends((hx_request_timeout){.span = 1500}, 1500, "");
    sends((hx_request_timeout){.span = 1500, .has_unit = true}, 1500, "");
    sends((hx_request_timeout){.span = HX_TIMEOUT_NONE}, 0, "");
}

static void the_next_hop_reads_exactly_what_is_left(void **state)
{
    (void)state;
    hx_rand_seed(1500);
    for (int i = 0; i < CASES; i++) {
        hx_request_timeout budget = {.span = 1 + (hx_ms)hx_rand_below((uint64_t)HX_DAY), .has_unit = i % 2};
        hx_ms elapsed = (hx_ms)hx_rand_below((uint64_t)budget.span);
        char out[HX_TIMEOUT_BYTES];
        hx_request_timeout next;
        assert_true(hx_timeout_parse(hx_timeout_text(budget, elapsed, out), &next));
        assert_int_equal(next.span, budget.span - elapsed);
        assert_int_equal(next.has_unit, budget.has_unit);
    }
}

static void any_bytes_give_none_or_a_budget_within_bounds(void **state)
{
    (void)state;
    static const char alphabet[] = "0123456789999mss. -";
    hx_rand_seed(10);
    for (int i = 0; i < CASES; i++) {
        char text[24];
        size_t len = hx_rand_below(sizeof text);
        for (size_t k = 0; k < len; k++) text[k] = alphabet[hx_rand_below(sizeof alphabet)];
        hx_request_timeout budget;
        if (hx_timeout_parse((hx_slice){text, len}, &budget))
            assert_true(budget.span >= 1 && budget.span <= HX_TIMEOUT_MAX);
        else
            assert_int_equal(budget.span, HX_TIMEOUT_NONE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_three_forms_are_taken),
        cmocka_unit_test(what_is_longer_than_a_day_is_cut_to_a_day),
        cmocka_unit_test(nonsense_and_zero_are_none),
        cmocka_unit_test(what_is_left_is_never_negative_and_never_grows),
        cmocka_unit_test(what_is_left_goes_upstream_with_a_unit_if_it_came_with_one),
        cmocka_unit_test(the_next_hop_reads_exactly_what_is_left),
        cmocka_unit_test(any_bytes_give_none_or_a_budget_within_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
