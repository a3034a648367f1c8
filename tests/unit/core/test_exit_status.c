/* SPDX-License-Identifier: Apache-2.0 */
#include "core/retry/exit_status.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static hx_exit_outcome judge(hx_exit_rules rules, hx_exit_report report)
{
    return hx_exit_judge(&rules, &report).outcome;
}

static void lists_of_codes_are_read_strictly(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", ",", "1,", ",1", "0", "256", "1-", "-1", "5-4", "1 2", "a", "1-2-3", "0x1"};
    hx_exit_codes codes;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(hx_exit_codes_read(hx_slice_of(wrong[i]), &codes));
    assert_true(hx_exit_codes_read(HX_LIT("75,100-110,255"), &codes));
    for (unsigned code = 0; code < 300; code++)
        assert_int_equal(hx_exit_codes_has(&codes, code), code == 75 || (code >= 100 && code <= 110) || code == 255);
}

static void a_command_that_ended_by_itself_is_judged_by_its_code(void **state)
{
    (void)state;
    hx_exit_rules plain = {0}, releases = {.releases_failures = true}, retries = {0};
    assert_true(hx_exit_codes_read(HX_LIT("75"), &retries.retry_on));
    for (unsigned code = 0; code < 256; code++) {
        hx_exit_report report = {.code = code};
        bool is_signal = code >= 129 && code <= 165;
        hx_exit_outcome failed = is_signal ? HX_EXITED_UNKNOWN : HX_EXITED_FAILED;
        assert_int_equal(judge(plain, report), code == 0 ? HX_EXITED_COMPLETED : failed);
        hx_exit_outcome released = is_signal ? HX_EXITED_UNKNOWN : HX_EXITED_RELEASED;
        assert_int_equal(judge(releases, report), code == 0 ? HX_EXITED_COMPLETED : released);
        assert_int_equal(judge(retries, report), code == 75 ? HX_EXITED_AGAIN : judge(plain, report));
        assert_int_equal(judge((hx_exit_rules){.plain_codes = true}, report),
                         code == 0 ? HX_EXITED_COMPLETED : HX_EXITED_FAILED);
        if (!is_signal) assert_int_equal(hx_exit_judge(&plain, &report).code, code);
    }
}

static void what_was_interrupted_is_unknown_whatever_the_rules_say(void **state)
{
    (void)state;
    hx_exit_rules lenient = {.plain_codes = true, .releases_failures = true};
    assert_true(hx_exit_codes_read(HX_LIT("1-255"), &lenient.retry_on));
    for (unsigned code = 0; code < 2; code++) {
        assert_int_equal(judge(lenient, (hx_exit_report){.is_lost = true, .code = code}), HX_EXITED_UNKNOWN);
        assert_int_equal(judge(lenient, (hx_exit_report){.is_orphan = true, .code = code}), HX_EXITED_UNKNOWN);
        assert_int_equal(judge(lenient, (hx_exit_report){.has_left = true, .code = code}), HX_EXITED_UNKNOWN);
        assert_int_equal(judge(lenient, (hx_exit_report){.signal = 15, .code = code}), HX_EXITED_UNKNOWN);
    }
}

static void what_could_not_be_started_is_released_with_the_code_of_shells(void **state)
{
    (void)state;
    hx_exit_rules rules = {0};
    hx_exit_verdict absent = hx_exit_judge(&rules, &(hx_exit_report){.start_error = ENOENT});
    hx_exit_verdict forbidden = hx_exit_judge(&rules, &(hx_exit_report){.start_error = EACCES});
    assert_int_equal(absent.outcome, HX_EXITED_RELEASED);
    assert_int_equal(absent.code, 127);
    assert_int_equal(forbidden.outcome, HX_EXITED_RELEASED);
    assert_int_equal(forbidden.code, 126);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_codes_are_read_strictly),
        cmocka_unit_test(a_command_that_ended_by_itself_is_judged_by_its_code),
        cmocka_unit_test(what_was_interrupted_is_unknown_whatever_the_rules_say),
        cmocka_unit_test(what_could_not_be_started_is_released_with_the_code_of_shells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
