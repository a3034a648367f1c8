/* SPDX-License-Identifier: Apache-2.0 */
/* What a sweep of the journal ends, moves and drops. */
#include "journal_files.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

static void each_lifetime_ends_in_its_own_sweep(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, "journal", small);
    (void)complete(&b, 1, HX_COMPLETED, HX_DAY);
    (void)complete(&b, 2, HX_COMPLETED, 3 * HX_DAY);
    for (int round = 0; round < 2; round++) { /* and nothing is written in between that could remind of the second */
        test_now += 2 * HX_DAY;
        assert_int_equal(sweep(&b), 1);
    }
    bench_end(&b);
}

static void only_the_last_version_of_a_record_is_moved(void **state)
{
    (void)state;
    enum { KEPT = 70 }; /* more than are moved in one step */
    bench b;
    hx_record found, kept[KEPT];
    bench_begin(&b, "journal", (hx_store_options){.segment_bytes = 8 * SEGMENT});
    for (uint64_t i = 0; i < KEPT; i++) { /* all claims lie before all outcomes */
        kept[i] = record_of(3000 + i);
        assert_int_equal(claim(&b, &kept[i], 0, NULL), HX_STORE_OK);
    }
    for (uint64_t i = 0; i < KEPT; i++) {
        kept[i].answer = (hx_answer){201, true, HX_LIT("A: b\r\n"), HX_LIT("an answer")};
        kept[i].expires_at = test_now + 900 * HX_DAY;
        assert_int_equal(settle(&b, &kept[i], HX_COMPLETED, NULL), HX_STORE_OK);
    }
    for (int day = 0; day < 8; day++) {
        for (uint64_t i = 0; i < 150; i++) (void)complete(&b, i, HX_COMPLETED, HX_DAY);
        test_now += 2 * HX_DAY;
        assert_int_equal(sweep(&b), 150);
    }
    bench_close(&b);
    assert_int_equal(access(path_in(&b, "00000001.seg"), F_OK), -1);
    bench_open(&b);
    for (uint64_t i = 0; i < KEPT; i++) {
        assert_int_equal(peek(&b, kept[i].op, &found), HX_COMPLETED);
        assert_true(hx_slice_eq(found.answer.body, HX_LIT("an answer")));
    }
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_lifetime_ends_in_its_own_sweep),
        cmocka_unit_test(only_the_last_version_of_a_record_is_moved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
