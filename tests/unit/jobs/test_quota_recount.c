/* SPDX-License-Identifier: Apache-2.0 */
/* Every live operation of a route with a quota is found once, and nothing else. */
#include "jobs/quota_recount.h"

#include "store/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define OPERATIONS 500u /* of each route: more than a page */
#define FAR ((hx_ms)4000000000000)

typedef struct {
    hx_loop *loop;
    hx_store *store;
    hx_arena arena;
    unsigned calls; /* under way */
    unsigned found[4][OPERATIONS];
    unsigned found_in_all;
    bool stopped;
} world;

static world w;

static void call_done(hx_store_call *call)
{
    assert_int_equal(call->result, HX_STORE_OK);
    w.calls--;
}

static void wait_for_calls(void)
{
    while (w.calls > 0) hx_loop_turn(w.loop, 10);
}

static void add(const char *route, uint32_t version, uint8_t route_number, uint16_t number, hx_state state)
{
    hx_store_call call = {.loop = w.loop, .arena = &w.arena, .done = call_done};
    hx_record record = {.state = HX_PROCESSING,
                        .created_at = 1,
                        .changed_at = 1,
                        .lease_until = FAR,
                        .rule_version = version,
                        .route = hx_slice_of(route),
                        .correlation = HX_EMPTY,
                        .reason = HX_EMPTY,
                        .result = HX_EMPTY};
    record.answer.headers = record.answer.body = HX_EMPTY;
    record.op.bytes[0] = (uint8_t)(number * 37);
    record.op.bytes[1] = route_number;
    memcpy(&record.op.bytes[2], &number, sizeof number);
    w.calls = 1;
    hx_store_claim(w.store, &call, &record, 0);
    wait_for_calls();
    if (state == HX_PROCESSING) return;
    call = (hx_store_call){.loop = w.loop, .arena = &w.arena, .done = call_done};
    record.state = state;
    record.from_state = HX_PROCESSING;
    record.lease_until = 0;
    if (state == HX_COMPLETED) {
        record.expires_at = number % 5 == 0 ? 1000 : FAR; /* a fifth is over long since */
        record.tombstone_until = number % 10 == 0 ? FAR : 0;
        record.answer.status = 201;
    }
    w.calls = 1;
    hx_store_settle(w.store, &call, &record);
    wait_for_calls();
}

static int set_up(void **state)
{
    (void)state;
    w = (world){.loop = hx_loop_new()};
    w.store = hx_store_memory_open(&(hx_store_options){0});
    hx_store_attach(w.store, w.loop);
    static const char *const routes[] = {"charges", "refunds", "voids", "POST /other"};
    for (uint8_t r = 0; r < 4; r++)
        for (uint16_t i = 0; i < OPERATIONS; i++)
            add(routes[r], r < 3 ? HX_RULE_NAMED | 5 : 5, r, i,
                i % 7 == 0    ? HX_PROCESSING
                : i % 11 == 0 ? HX_UNKNOWN
                              : HX_COMPLETED);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    hx_store_close(&w.store);
    hx_loop_free(&w.loop);
    hx_arena_free(&w.arena);
    hx_arena_pool_drain();
    return 0;
}

static bool is_live(unsigned number)
{
    return number % 7 == 0 || number % 11 == 0 || number % 5 != 0;
}

static void note(void *context, const hx_record *record)
{
    uint16_t number;
    assert_ptr_equal(context, &w);
    memcpy(&number, &record->op.bytes[2], sizeof number);
    w.found[record->op.bytes[1]][number]++;
    w.found_in_all++;
}

static void stopped(void *context)
{
    *(bool *)context = true;
}

static void run_to_its_end(hx_quota_recount *recount)
{
    while (recount->busy || hx_timer_running(&recount->timer)) hx_loop_turn(w.loop, 10);
}

static void expect(const bool routes[4])
{
    for (unsigned r = 0; r < 4; r++)
        for (unsigned i = 0; i < OPERATIONS; i++) assert_int_equal(w.found[r][i], routes[r] && is_live(i) ? 1 : 0);
}

static hx_policy_set policies_with(hx_policy routes[3], uint32_t charges, uint32_t refunds, uint32_t voids,
                                   uint32_t rest)
{
    static hx_slice formerly[] = {{"voids", 5}};
    routes[0] = (hx_policy){.name = HX_LIT("refunds"), .quota = refunds};
    routes[1] = (hx_policy){.name = HX_LIT("charges"), .quota = charges};
    routes[2] = (hx_policy){.name = HX_LIT("cancellations"), .formerly = formerly, .formerly_count = 1, .quota = voids};
    return (hx_policy_set){.routes = routes, .count = 3, .defaults = {.name = HX_EMPTY, .quota = rest}};
}

static void run(uint32_t charges, uint32_t refunds, uint32_t voids, uint32_t rest)
{
    hx_policy routes[3];
    hx_policy_set set = policies_with(routes, charges, refunds, voids, rest);
    hx_quota_recount recount = {0};
    w.found_in_all = 0;
    memset(w.found, 0, sizeof w.found);
    w.stopped = false;
    hx_quota_recount_start(&recount, w.loop, w.store, &set, note, &w);
    memset(routes, 0xff, sizeof routes); /* the rules are gone by now */
    run_to_its_end(&recount);
    hx_quota_recount_stop(&recount, stopped, &w.stopped);
    assert_true(w.stopped);
    expect((bool[4]){charges > 0, refunds > 0, voids > 0, rest > 0});
}

static void routes_with_a_quota_are_counted(void **state)
{
    (void)state;
    run(0, 0, 0, 0);
    assert_int_equal(w.found_in_all, 0);
    run(0, 9, 0, 0);
    assert_true(w.found_in_all > 300);
    run(9, 9, 0, 0);
    run(0, 0, 9, 0); /* known by its first name */
    run(0, 0, 0, 9);
    run(9, 0, 0, 9);
    run(9, 9, 9, 9);
}

static const hx_store_ops *real;
static unsigned lists_until_outage;

static void end_unavailable(hx_task *task)
{
    hx_store_call *call = HX_OWNER(task, hx_store_call, own.task);
    call->result = HX_STORE_UNAVAILABLE;
    call->done(call);
}

static void submit_with_an_outage(hx_store *store, hx_store_call *call)
{
    if (lists_until_outage-- != 1) {
        real->submit(store, call);
        return;
    }
    call->own.task.run = end_unavailable;
    hx_loop_defer(call->loop, &call->own.task);
}

static void an_outage_only_delays_it(void **state)
{
    (void)state;
    real = w.store->ops;
    hx_store_ops failing = *real;
    failing.submit = submit_with_an_outage;
    w.store->ops = &failing;
    for (unsigned list = 1; list <= 2; list++) { /* the first page, and one behind which some were counted */
        lists_until_outage = list;
        run(0, 9, 0, 0);
    }
    w.store->ops = real;
}

static void beginning_anew_leaves_nothing_of_what_was(void **state)
{
    (void)state;
    hx_policy before[3], after[3];
    hx_policy_set first = policies_with(before, 9, 9, 9, 9), then = policies_with(after, 0, 9, 0, 0);
    hx_quota_recount recount = {0};
    memset(w.found, 0, sizeof w.found);
    hx_quota_recount_start(&recount, w.loop, w.store, &first, note, &w);
    hx_quota_recount_start(&recount, w.loop, w.store, &then, note, &w); /* while its first page is under way */
    run_to_its_end(&recount);
    expect((bool[4]){false, true, false, false});
    hx_quota_recount_start(&recount, w.loop, w.store, &first, note, &w);
    hx_quota_recount_start(&recount, w.loop, w.store, &(hx_policy_set){0}, note, &w); /* no route has one any more */
    memset(w.found, 0, sizeof w.found);
    run_to_its_end(&recount);
    expect((bool[4]){false, false, false, false});
    hx_quota_recount_stop(&recount, stopped, &w.stopped);
}

static void stopping_waits_for_the_page_under_way(void **state)
{
    (void)state;
    hx_policy routes[3];
    hx_policy_set set = policies_with(routes, 9, 9, 9, 9);
    hx_quota_recount recount = {0};
    memset(w.found, 0, sizeof w.found);
    w.stopped = false;
    hx_quota_recount_start(&recount, w.loop, w.store, &set, note, &w);
    hx_quota_recount_stop(&recount, stopped, &w.stopped);
    assert_false(w.stopped);
    while (!w.stopped) hx_loop_turn(w.loop, 10);
    expect((bool[4]){false, false, false, false});
    assert_false(recount.busy);
    hx_quota_recount never_started = {0};
    w.stopped = false;
    hx_quota_recount_stop(&never_started, stopped, &w.stopped);
    assert_true(w.stopped);
}

static void a_reload_counts_again_only_for_a_new_quota(void **state)
{
    (void)state;
    hx_policy a[3], b[3];
    hx_policy_set none = policies_with(a, 0, 0, 0, 0), one = policies_with(b, 0, 5, 0, 0);
    assert_true(hx_quota_recount_needed(&none, &one));
    assert_false(hx_quota_recount_needed(&one, &none));
    assert_false(hx_quota_recount_needed(&one, &one));
    hx_policy c[3], d[3];
    hx_policy_set other = policies_with(c, 0, 7, 0, 0), more = policies_with(d, 0, 7, 0, 1);
    assert_false(hx_quota_recount_needed(&one, &other));
    assert_true(hx_quota_recount_needed(&other, &more));
    assert_true(hx_quota_recount_needed(&(hx_policy_set){0}, &one));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_with_a_quota_are_counted),
        cmocka_unit_test(an_outage_only_delays_it),
        cmocka_unit_test(beginning_anew_leaves_nothing_of_what_was),
        cmocka_unit_test(stopping_waits_for_the_page_under_way),
        cmocka_unit_test(a_reload_counts_again_only_for_a_new_quota),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
