/* SPDX-License-Identifier: Apache-2.0 */
#include "observe/metrics.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define TEXT_BYTES_MAX (64u * 1024u)

static const struct {
    const char *name, *labels;
} rows[] = {
#define WORKER(name, id, kind, unit, labels, help) {id, labels},
#define STORE WORKER
#define LIMITER WORKER
#define LOG WORKER
#include "observe/metrics.def"
};
#define ROW_COUNT (sizeof rows / sizeof rows[0])

static void every_value_is_shown_under_its_own_name(void **state)
{
    (void)state;
    static const uint64_t values[] = {3, 0, UINT64_MAX, 4, 5};
    hx_buf out;
    hx_buf_init(&out, NULL, TEXT_BYTES_MAX);
    hx_metrics_json(&out, HX_METRICS_LIMITS, values);
    hx_slice expected =
        HX_LIT("\"limits\":{\"rate_refused\":3,\"rate_crowded\":0,\"quota_refused\":18446744073709551615,"
               "\"quota_crowded\":4,\"found_crowded\":5}");
    assert_true(hx_slice_eq(hx_buf_slice(&out), expected));
    hx_buf_free(&out);
}

static void no_two_rows_have_one_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROW_COUNT; i++) {
        assert_int_equal(strspn(rows[i].name, "abcdefghijklmnopqrstuvwxyz_"), strlen(rows[i].name));
        for (size_t k = 0; k < i; k++)
            if (strcmp(rows[i].name, rows[k].name) == 0 && strcmp(rows[i].labels, rows[k].labels) == 0)
                fail_msg("%s{%s} is there twice", rows[i].name, rows[i].labels);
    }
}

static void labels_are_part_of_a_name(void **state)
{
    (void)state;
    hx_buf out;
    hx_buf_init(&out, NULL, TEXT_BYTES_MAX);
    hx_metrics_reference(&out);

    char *page = strndup(out.data, out.len);
    assert_non_null(page);
    assert_non_null(strstr(page, "| `workers.shadow_would_wait` | `hapax_shadow_total{would=\"wait\"}` | counter |"));
    assert_non_null(strstr(page, "| `store.idempotent_unknown` | `hapax_idempotent_unknown` | gauge | operations |"));
    free(page);
    hx_buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_is_shown_under_its_own_name),
        cmocka_unit_test(no_two_rows_have_one_name),
        cmocka_unit_test(labels_are_part_of_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
