/* SPDX-License-Identifier: Apache-2.0 */
/* Failures that must not be survived reach the host's handler, and nothing else ends the process. */
#include "base/check.h"
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static jmp_buf escape;
static int code;
static char message[1100];

static void leave(int exit_code, const char *text)
{
    code = exit_code;
    (void)snprintf(message, sizeof message, "%s", text);
    longjmp(escape, 1);
}

static void a_host_survives_a_fatal_failure(void **state)
{
    (void)state;
    static char large[2000];
    memset(large, 'x', sizeof large - 1);
    hx_fatal_to(leave);
    if (setjmp(escape) == 0) hx_fatal(HX_EXIT_STORE, "disk %d failed", 7);
    assert_int_equal(code, HX_EXIT_STORE);
    assert_string_equal(message, "disk 7 failed");
    if (setjmp(escape) == 0) hx_fatal(HX_EXIT_STORE, "%s", large);
    assert_int_equal(strlen(message), 1023); /* cut, and terminated */
}

static void a_failed_assertion_says_what_was_in_hand(void **state)
{
    (void)state;
    hx_fatal_to(leave);
    hx_check_in_hand(HX_LIT("POST /refunds"));
    if (setjmp(escape) == 0) HX_CHECK(code == -1);
    hx_check_in_hand(HX_EMPTY);
    assert_int_equal(code, HX_EXIT_BUG);
    assert_non_null(strstr(message, "(code == -1) does not hold while handling POST /refunds"));
}

static char logged[256];

static void keep(const char *line, size_t len, hx_log_level level)
{
    assert_int_equal(level, HX_LOG_WARN);
    (void)snprintf(logged, sizeof logged, "%.*s", (int)len, line);
}

static void lines_go_to_the_sink_of_the_host_or_nowhere(void **state)
{
    (void)state;
    hx_log(HX_EVENT_log_lines_dropped);
    hx_log_to(keep);
    hx_log(HX_EVENT_lease_lost);
    assert_non_null(strstr(logged, "lease_lost"));
    assert_true(logged[strlen(logged) - 1] == '\n');
    hx_log_to(NULL);
    hx_log(HX_EVENT_log_lines_dropped);
    assert_non_null(strstr(logged, "lease_lost"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_survives_a_fatal_failure),
        cmocka_unit_test(a_failed_assertion_says_what_was_in_hand),
        cmocka_unit_test(lines_go_to_the_sink_of_the_host_or_nowhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
