/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for rules, and what lives under each; also when there are more of them than numbers. */
#include "store/journal/route_ids.h"

#include "core/operation/policy.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

#define NAMED HX_RULE_NAMED

static uint16_t number_of(hx_route_ids *book, const char *route, uint32_t version)
{
    hx_route_ids_row row = hx_route_ids_row_of(hx_slice_of(route), version);
    return hx_route_ids_number(book, &row);
}

static uint64_t live_under(const hx_route_ids *book, const char *route, uint32_t version)
{
    hx_arena arena = {0};
    hx_store_rules rules;
    uint64_t live = 0;
    hx_route_ids_report(book, &arena, &rules);
    for (size_t i = 0; i < rules.count; i++)
        if (rules.rules[i].version == version && hx_slice_eq(rules.rules[i].route, hx_slice_of(route)))
            live += rules.rules[i].live;
    hx_arena_free(&arena);
    return live;
}

static void a_named_route_has_a_number_for_each_version(void **state)
{
    (void)state;
    hx_route_ids *book = hx_route_ids_new();
    uint16_t first = number_of(book, "refunds", NAMED | 1), second = number_of(book, "refunds", NAMED | 2);
    uint16_t other = number_of(book, "orders", NAMED | 1);
    assert_int_not_equal(first, 0);
    assert_true(first != second && first != other && second != other);
    assert_int_equal(number_of(book, "refunds", NAMED | 1), first);
    assert_int_equal(number_of(book, "orders", NAMED | 1), other);
    assert_true(hx_slice_eq(hx_route_ids_row_at(book, other).name, HX_LIT("orders")));
    assert_true(hx_route_ids_may_be(book, first, HX_LIT("refunds")));
    assert_true(hx_route_ids_may_be(book, second, HX_LIT("refunds")));
    assert_false(hx_route_ids_may_be(book, other, HX_LIT("refunds")));
    hx_route_ids_count(book, first, 1);
    hx_route_ids_count(book, first, 1);
    hx_route_ids_count(book, other, 1);
    hx_route_ids_count(book, first, -1);
    assert_int_equal(live_under(book, "refunds", NAMED | 1), 1);
    assert_int_equal(live_under(book, "refunds", NAMED | 2), 0);
    assert_int_equal(live_under(book, "orders", NAMED | 1), 1);
    hx_route_ids_free(&book);
}

static void paths_without_a_name_are_counted_by_version(void **state)
{
    (void)state;
    hx_route_ids *book = hx_route_ids_new();
    char route[64];
    for (int i = 0; i < 20000; i++) {
        (void)snprintf(route, sizeof route, "DELETE /things/%d", i);
        uint16_t number = number_of(book, route, 1 + (uint32_t)i % 2);
        assert_int_not_equal(number, 0);
        assert_true(hx_route_ids_may_be(book, number, hx_slice_of(route)));
        hx_route_ids_count(book, number, 1);
    }
    assert_true(hx_route_ids_size(book) <= 1 + 2 * HX_ROUTE_IDS_BUCKETS);
    assert_int_equal(live_under(book, "", 1), 10000);
    assert_int_equal(live_under(book, "", 2), 10000);
    uint64_t most = hx_route_ids_live_at_most(book, HX_LIT("DELETE /things/7"));
    assert_true(most >= 1 && most < 200); /* one of a thousand parts */
    hx_route_ids_free(&book);
}

static void a_path_that_nobody_used_is_ruled_out(void **state)
{
    (void)state;
    hx_route_ids *book = hx_route_ids_new();
    hx_route_ids_count(book, number_of(book, "POST /refunds", 5), 1);
    hx_route_ids_count(book, number_of(book, "POST /orders", NAMED | 5), 1);
    assert_int_equal(hx_route_ids_live_at_most(book, HX_LIT("POST /refunds")), 1);
    assert_int_equal(hx_route_ids_live_at_most(book, HX_LIT("POST /orders")), 0); /* that one has a name */
    assert_int_equal(hx_route_ids_live_at_most(book, HX_LIT("POST /photos")), 0);
    hx_route_ids_free(&book);
}

static void past_the_last_number_all_others_are_counted_together(void **state)
{
    (void)state;
    hx_route_ids *book = hx_route_ids_new();
    char name[32];
    for (unsigned i = 1; i < HX_ROUTE_IDS_ROWS + 100; i++) {
        (void)snprintf(name, sizeof name, "route-%u", i);
        uint16_t number = number_of(book, name, NAMED);
        assert_true(i < HX_ROUTE_IDS_ROWS ? number == i : number == 0);
        if (number == 0) hx_route_ids_count(book, number, 1);
    }
    hx_arena arena = {0};
    hx_store_rules rules;
    hx_route_ids_report(book, &arena, &rules);
    assert_int_equal(rules.others, 100);
    assert_int_equal(hx_route_ids_live_at_most(book, HX_LIT("POST /any")), 100);
    assert_true(hx_route_ids_may_be(book, 0, HX_LIT("anything")));
    assert_int_equal(number_of(book, "route-7", NAMED), 7);
    hx_arena_free(&arena);
    hx_route_ids_free(&book);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_named_route_has_a_number_for_each_version),
        cmocka_unit_test(paths_without_a_name_are_counted_by_version),
        cmocka_unit_test(a_path_that_nobody_used_is_ruled_out),
        cmocka_unit_test(past_the_last_number_all_others_are_counted_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
