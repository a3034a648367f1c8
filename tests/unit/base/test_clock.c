/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/timex.h>
#include <time.h>
#include <cmocka.h>

static hx_ms boot = HX_HOUR, wall = 1000 * HX_DAY;
static bool is_synchronised;

/* Instead of libc's. */
int clock_gettime(clockid_t id, struct timespec *out)
{
    hx_ms at = id == CLOCK_REALTIME ? wall : boot;
    *out = (struct timespec){.tv_sec = at / 1000, .tv_nsec = at % 1000 * 1000000};
    return 0;
}

int adjtimex(struct timex *asked)
{
    asked->status = is_synchronised ? 0 : STA_UNSYNC;
    return is_synchronised ? TIME_OK : TIME_ERROR;
}

static void pass(hx_ms span)
{
    boot += span;
    wall += span;
}

static void what_is_held_ends_after_ten_minutes(void **state)
{
    (void)state;
    assert_true(hx_clock_now() == wall && hx_clock_held() == 0 && !hx_clock_settle());
    hx_clock_hold(30 * HX_DAY, false);
    pass(HX_CLOCK_HOLD_MAX - 1);
    assert_false(hx_clock_settle());
    assert_true(hx_clock_held() == 30 * HX_DAY);
    pass(1);
    assert_true(hx_clock_settle());
    assert_true(hx_clock_held() == 0 && !hx_clock_settle());
}

static void what_is_held_ends_when_the_clock_is_right(void **state)
{
    (void)state;
    hx_clock_hold(30 * HX_DAY, false);
    is_synchronised = true;
    assert_true(hx_clock_settle() && hx_clock_held() == 0);
    is_synchronised = false;
}

static void a_clock_that_is_set_back_meanwhile_stays_held_by_so_much(void **state)
{
    (void)state;
    hx_ms now = hx_clock_now();
    hx_clock_hold(30 * HX_DAY, false);
    wall -= 29 * HX_DAY;
    assert_true(hx_clock_now() == now);
    assert_false(hx_clock_settle());
    is_synchronised = true;
    assert_true(hx_clock_settle() && hx_clock_held() == 29 * HX_DAY);
    pass(HX_DAY);
    assert_false(hx_clock_settle());
    assert_true(hx_clock_held() == 29 * HX_DAY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_held_ends_after_ten_minutes),
        cmocka_unit_test(what_is_held_ends_when_the_clock_is_right),
        cmocka_unit_test(a_clock_that_is_set_back_meanwhile_stays_held_by_so_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
