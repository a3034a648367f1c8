/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a store moves the clock of the process only where the host gives it. */
#include "store/harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define FAR (3 * HX_DAY)

/* A store whose last change is days ahead of this machine's clock. */
static void with_a_change_ahead(bench *b, const char *backend)
{
    test_now = hx_clock_now() + FAR;
    bench_begin(b, backend, (hx_store_options){0});
    hx_record record = record_of(1);
    assert_int_equal(claim(b, &record, 0, NULL), HX_STORE_OK);
    bench_close(b);
    b->options.now = NULL;
}

static void opened_by(const char *backend)
{
    bench b;
    with_a_change_ahead(&b, backend);
    bench_open(&b);
    assert_true(hx_clock_now() < hx_clock_wall() + HX_DAY);
    bench_close(&b);
    b.options.moves_clock = true;
    bench_open(&b);
    assert_true(hx_clock_now() >= hx_clock_wall() + FAR - HX_MINUTE);
    bench_end(&b);
    hx_clock_set(hx_clock_wall());
}

static void a_journal_moves_the_clock_only_of_a_host_that_gives_it(void **state)
{
    (void)state;
    opened_by("journal");
}

static void a_sqlite_store_moves_the_clock_only_of_a_host_that_gives_it(void **state)
{
    (void)state;
    opened_by("sqlite");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_journal_moves_the_clock_only_of_a_host_that_gives_it),
        cmocka_unit_test(a_sqlite_store_moves_the_clock_only_of_a_host_that_gives_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
