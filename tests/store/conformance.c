/* SPDX-License-Identifier: Apache-2.0 */
/* One suite over every store: the guarantees of store.h, by their numbers. Run with the backend's name. */
#include "store/harness.h"

#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static const char *backend;

static void one_claim_wins_and_the_other_sees_it(void **state)
{
    (void)state;
    bench b;
    hx_record found, first = record_of(1), second = record_of(1);
    bench_begin(&b, backend, (hx_store_options){0});
    assert_int_equal(claim(&b, &first, 0, NULL), HX_STORE_OK);
    assert_true(first.epoch > 0);
    assert_int_equal(claim(&b, &second, 0, &found), HX_STORE_EXISTS);
    assert_int_equal(found.state, HX_PROCESSING);
    assert_int_equal(found.epoch, first.epoch);
    first.answer = (hx_answer){201, true, HX_LIT("A: b\r\n"), HX_LIT("{}")};
    first.expires_at = test_now + HX_DAY;
    assert_int_equal(settle(&b, &first, HX_COMPLETED, NULL), HX_STORE_OK);
    assert_int_equal(peek(&b, first.op, &found), HX_COMPLETED);
    assert_true(hx_slice_eq(found.answer.body, HX_LIT("{}")));
    bench_restart(&b);
    assert_int_equal(peek(&b, first.op, &found), HX_COMPLETED);
    assert_true(hx_slice_eq(found.answer.body, HX_LIT("{}")));
    bench_end(&b);
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    backend = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_claim_wins_and_the_other_sees_it),
    };
    return cmocka_run_group_tests_name(backend, tests, NULL, NULL);
}
