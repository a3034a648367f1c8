/* SPDX-License-Identifier: Apache-2.0 */
/* Which rules a store's operations stand under, and retiring those: claims under rules that are no longer in force
 * change nothing. Run with the backend's name, like conformance.c. */
#include "store/harness.h"

#include "core/operation/policy.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

static const char *backend;
static const hx_store_options small = {.segment_bytes = 32 << 10};

#define OK HX_STORE_OK
#define NAMED HX_RULE_NAMED

static hx_record record_under(uint64_t number, const char *route, uint32_t version)
{
    hx_record r = record_of(number);
    r.route = hx_slice_of(route);
    r.rule_version = version;
    return r;
}

static hx_record bring(bench *b, uint64_t number, const char *route, uint32_t version, hx_state state)
{
    hx_record r = record_under(number, route, version);
    assert_int_equal(claim(b, &r, 0, NULL), OK);
    if (state == HX_PROCESSING) return r;
    bool ended = state != HX_UNKNOWN && state != HX_ABSENT;
    r.expires_at = ended ? test_now + HX_MINUTE : 0;
    r.tombstone_until = state == HX_EXPIRED ? test_now + HX_HOUR : 0;
    assert_int_equal(settle(b, &r, state == HX_EXPIRED ? HX_COMPLETED : state, NULL), OK);
    return r;
}

/* That the last retiring has counted. */
static bool is_counted;

static uint64_t live(bench *b, const char *route, uint32_t version)
{
    hx_arena arena = {0};
    hx_store_rules rules;
    uint64_t found = 0;
    unsigned rows = 0;
    if (strcmp(b->backend, "postgres") == 0 && !is_counted) bench_restart(b); /* it counts when it is opened */
    hx_store_rules_of(b->store, &arena, &rules);
    for (size_t i = 0; i < rules.count; i++) {
        assert_true(rules.rules[i].live > 0);
        if (rules.rules[i].version != version || !hx_slice_eq(rules.rules[i].route, hx_slice_of(route))) continue;
        found = rules.rules[i].live;
        rows++;
    }
    assert_true(rows <= 1);
    assert_int_equal(rules.others, 0);
    hx_arena_free(&arena);
    return found;
}

static uint64_t listed(bench *b, const char *route)
{
    uint64_t count = 0;
    hx_store_page page = {.route = hx_slice_of(route), .records_max = 3};
    do {
        waited w;
        wait_start(b, &w);
        hx_store_list(b->store, &w.call, &page);
        wait_for(b, &w);
        for (size_t i = 0; i < page.count; i++) assert_true(hx_slice_eq(page.records[i].route, hx_slice_of(route)));
        count += page.count;
    } while (page.more);
    return count;
}

static void every_live_state_counts_under_its_rules(void **unused)
{
    (void)unused;
    bench b;
    bench_begin(&b, backend, small);
    bring(&b, 1, "refunds", NAMED | 1, HX_UNKNOWN);
    bring(&b, 2, "refunds", NAMED | 1, HX_COMPLETED);
    bring(&b, 3, "refunds", NAMED | 2, HX_FAILED);
    bring(&b, 4, "orders", NAMED | 1, HX_EXPIRED);
    bring(&b, 5, "POST /orders", 1, HX_UNKNOWN);
    bring(&b, 6, "POST /photos", 1, HX_COMPLETED);
    bring(&b, 7, "POST /photos", 2, HX_COMPLETED);
    bring(&b, 8, "refunds", NAMED | 1, HX_ABSENT);
    hx_record running = bring(&b, 9, "refunds", NAMED | 1, HX_PROCESSING);
    assert_int_equal(live(&b, "refunds", NAMED | 1), 3);
    assert_int_equal(settle(&b, &running, HX_UNKNOWN, NULL), OK);
    for (int round = 0; round < 3; round++, bench_restart(&b)) {
        assert_int_equal(live(&b, "refunds", NAMED | 1), 3);
        assert_int_equal(live(&b, "refunds", NAMED | 2), 1);
        assert_int_equal(live(&b, "orders", NAMED | 1), 1);
        assert_int_equal(live(&b, "", 1), 2);
        assert_int_equal(live(&b, "", 2), 1);
        assert_int_equal(live(&b, "refunds", 1), 0);
        assert_int_equal(live(&b, "", NAMED | 1), 0);
    }
    test_now += 2 * HX_MINUTE;
    sweep(&b);
    for (int round = 0; round < 2; round++, bench_restart(&b)) {
        assert_int_equal(live(&b, "refunds", NAMED | 1), 2); /* both unknown */
        assert_int_equal(live(&b, "refunds", NAMED | 2), 0);
        assert_int_equal(live(&b, "orders", NAMED | 1), 1); /* a tombstone */
        assert_int_equal(live(&b, "", 1), 1);
        assert_int_equal(live(&b, "", 2), 0);
    }
    test_now += HX_HOUR;
    sweep(&b);
    assert_int_equal(live(&b, "orders", NAMED | 1), 0);
    assert_int_equal(forget(&b, op_of(1), 0, NULL), OK);
    assert_int_equal(live(&b, "refunds", NAMED | 1), 1);
    bench_end(&b);
}

static void an_operation_may_come_under_other_rules_later(void **unused)
{
    (void)unused;
    bench b;
    bench_begin(&b, backend, small);
    hx_record old = bring(&b, 1, "POST /refunds", 7, HX_UNKNOWN);
    hx_record again = record_under(1, "POST /refunds", NAMED | 7); /* the route has a name now */
    assert_int_equal(claim(&b, &again, old.epoch, NULL), OK);
    assert_int_equal(live(&b, "", 7), 0);
    assert_int_equal(live(&b, "POST /refunds", NAMED | 7), 1);
    again.expires_at = test_now + HX_MINUTE;
    assert_int_equal(settle(&b, &again, HX_COMPLETED, NULL), OK);
    bench_restart(&b);
    assert_int_equal(live(&b, "", 7), 0);
    assert_int_equal(live(&b, "POST /refunds", NAMED | 7), 1);
    test_now += 2 * HX_MINUTE;
    hx_record after = record_under(1, "POST /refunds", NAMED | 8); /* in its place, without a sweep */
    assert_int_equal(claim(&b, &after, 0, NULL), OK);
    sweep(&b);
    assert_int_equal(live(&b, "POST /refunds", NAMED | 7), 0);
    assert_int_equal(live(&b, "POST /refunds", NAMED | 8), 1);
    bench_end(&b);
}

static void one_path_without_a_name_is_found_among_many(void **unused)
{
    (void)unused;
    bench b;
    bench_begin(&b, backend, small);
    char route[64];
    for (uint64_t i = 0; i < 3000; i++) {
        (void)snprintf(route, sizeof route, "PUT /things/%d", (int)i / 2);
        bring(&b, i, route, 1 + (uint32_t)i % 2, HX_UNKNOWN);
    }
    bring(&b, 5000, "PUT /things/7", NAMED | 1, HX_UNKNOWN); /* a route may be called so */
    for (int round = 0; round < 2; round++, bench_restart(&b)) {
        assert_int_equal(live(&b, "", 1), 1500);
        assert_int_equal(live(&b, "", 2), 1500);
        for (int i = 0; i < 1500; i += 123) {
            (void)snprintf(route, sizeof route, "PUT /things/%d", i);
            assert_int_equal(listed(&b, route), 2);
            uint64_t most = hx_store_live_at_most(b.store, hx_slice_of(route));
            assert_true(most >= 2 && (most < 100 || strcmp(backend, "postgres") == 0));
            hx_arena_free(&b.arena);
        }
        assert_int_equal(listed(&b, "PUT /things/7"), 3);
        assert_int_equal(listed(&b, "PUT /things/1500"), 0);
    }
    bench_end(&b);
}

/* How many are listed for these paths. */
static uint64_t listed_on(bench *b, const hx_slice *paths, size_t count)
{
    uint64_t found = 0;
    hx_store_page page = {.paths = paths, .path_count = count, .records_max = 2};
    do {
        waited w;
        wait_start(b, &w);
        hx_store_list(b->store, &w.call, &page);
        wait_for(b, &w);
        for (size_t i = 0; i < page.count; i++) assert_false(page.records[i].rule_version & NAMED);
        found += page.count;
    } while (page.more);
    return found;
}

static void several_paths_are_found_at_once(void **unused)
{
    (void)unused;
    bench b;
    bench_begin(&b, backend, small);
    char route[64];
    for (uint64_t i = 0; i < 2000; i++) {
        (void)snprintf(route, sizeof route, "PUT /things/%d", (int)i);
        bring(&b, i, route, 1, HX_UNKNOWN);
    }
    bring(&b, 5000, "PUT /things/7", 2, HX_PROCESSING);
    bring(&b, 5001, "PUT /things/7", NAMED | 1, HX_UNKNOWN);
    bring(&b, 5002, "refunds", NAMED | 1, HX_UNKNOWN);
    const hx_slice paths[] = {HX_LIT("PUT /things/7"), HX_LIT("PUT /things/1999"), HX_LIT("PUT /things/2000"),
                              HX_LIT("refunds")};
    for (int round = 0; round < 2; round++, bench_restart(&b)) {
        assert_int_equal(listed_on(&b, paths, 4), 3);
        assert_int_equal(listed_on(&b, paths, 1), 2);
        assert_int_equal(listed_on(&b, &paths[2], 2), 0);
    }
    bench_end(&b);
}

static void records_that_move_on_stay_under_their_rules(void **unused)
{
    (void)unused;
    bench b;
    bench_begin(&b, backend, (hx_store_options){.segment_bytes = 16 << 10});
    bring(&b, 1, "refunds", NAMED | 1, HX_UNKNOWN);
    bring(&b, 2, "POST /orders", 4, HX_UNKNOWN);
    for (uint64_t i = 100; i < 500; i++) bring(&b, i, "noise", NAMED | 1, HX_ABSENT);
    for (int i = 0; i < 4; i++) sweep(&b);
    for (int round = 0; round < 2; round++, bench_restart(&b)) {
        assert_int_equal(live(&b, "refunds", NAMED | 1), 1);
        assert_int_equal(live(&b, "", 4), 1);
        assert_int_equal(live(&b, "noise", NAMED | 1), 0);
    }
    bench_end(&b);
}

static void retire(bench *b, const hx_store_rules *rules)
{
    waited w;
    wait_start(b, &w);
    hx_store_retire(b->store, &w.call, rules);
    assert_false(w.done);
    wait_for(b, &w);
    assert_int_equal(w.call.result, OK);
}

static hx_store_result try(bench *b, uint64_t number, const char *route, uint32_t version)
{
    hx_record r = record_under(number, route, version);
    return claim(b, &r, 0, NULL);
}

static void claims_under_retired_rules_change_nothing(void **unused)
{
    (void)unused;
    bench b;
    bench_begin(&b, backend, small);
    hx_record before = bring(&b, 1, "refunds", NAMED | 1, HX_PROCESSING);
    hx_store_rule gone[] = {{HX_LIT("refunds"), NAMED | 1, 0}, {HX_LIT("POST /orders"), 3, 0}};
    hx_store_rules first = {.rules = gone, .count = 2};
    retire(&b, &first);
    assert_int_equal(try(&b, 2, "refunds", NAMED | 1), HX_STORE_RETIRED);
    assert_int_equal(peek(&b, op_of(2), NULL), HX_ABSENT);
    assert_int_equal(try(&b, 2, "refunds", NAMED | 2), OK);
    assert_int_equal(try(&b, 3, "POST /orders", 3), HX_STORE_RETIRED);
    assert_int_equal(try(&b, 3, "POST /orders", NAMED | 3), OK);
    assert_int_equal(try(&b, 4, "POST /photos", 3), OK);
    assert_int_equal(try(&b, 1, "refunds", NAMED | 1), HX_STORE_EXISTS); /* the existing record is returned */
    assert_int_equal(renew(&b, before.op, before.epoch, test_now + HX_HOUR, NULL), OK);
    before.expires_at = test_now + HX_HOUR;
    assert_int_equal(settle(&b, &before, HX_COMPLETED, NULL), OK); /* and what was claimed may end */
    hx_store_rule all[] = {{HX_EMPTY, 3, 0}};
    hx_store_rules second = {.rules = all, .count = 1};
    retire(&b, &second);
    assert_int_equal(try(&b, 5, "refunds", NAMED | 1), OK);
    assert_int_equal(try(&b, 6, "POST /photos", 3), HX_STORE_RETIRED);
    assert_int_equal(try(&b, 6, "POST /photos", NAMED | 3), OK);
    retire(&b, NULL);
    assert_int_equal(try(&b, 7, "POST /photos", 3), OK);
    bench_end(&b);
}

#define AT_ONCE 50u

/* A claim either is counted when the retiring has ended, or it has failed. */
static void claims_made_before_a_retiring_are_counted_after_it(void **unused)
{
    (void)unused;
    bench b;
    static waited calls[AT_ONCE];
    static hx_record records[AT_ONCE];
    bench_begin(&b, backend, small);
    hx_store_rule gone[] = {{HX_LIT("refunds"), NAMED | 1, 0}};
    hx_store_rules rules = {.rules = gone, .count = 1};
    waited w;
    for (uint64_t i = 0; i < AT_ONCE; i++) {
        if (i == AT_ONCE / 2) {
            wait_start(&b, &w);
            hx_store_retire(b.store, &w.call, &rules);
        }
        records[i] = record_under(i, "refunds", NAMED | 1);
        wait_start(&b, &calls[i]);
        hx_store_claim(b.store, &calls[i].call, &records[i], 0);
    }
    wait_for(&b, &w);
    is_counted = true;
    uint64_t counted = live(&b, "refunds", NAMED | 1), won = 0;
    is_counted = false;
    bool has_order = !hx_store_about(b.store)->shared || strcmp(backend, "sqlite") == 0;
    for (uint64_t i = 0; i < AT_ONCE; i++) {
        wait_for(&b, &calls[i]);
        won += calls[i].call.result == OK;
        assert_true(calls[i].call.result == OK || calls[i].call.result == HX_STORE_RETIRED);
        if (has_order) assert_int_equal(calls[i].call.result, i < AT_ONCE / 2 ? OK : HX_STORE_RETIRED);
    }
    assert_int_equal(counted, won);
    bench_end(&b);
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    backend = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_live_state_counts_under_its_rules),
        cmocka_unit_test(an_operation_may_come_under_other_rules_later),
        cmocka_unit_test(one_path_without_a_name_is_found_among_many),
        cmocka_unit_test(several_paths_are_found_at_once),
        cmocka_unit_test(records_that_move_on_stay_under_their_rules),
        cmocka_unit_test(claims_under_retired_rules_change_nothing),
        cmocka_unit_test(claims_made_before_a_retiring_are_counted_after_it),
    };
    return cmocka_run_group_tests_name(backend, tests, NULL, NULL);
}
