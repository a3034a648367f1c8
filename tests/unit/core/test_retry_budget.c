/* SPDX-License-Identifier: Apache-2.0 */
/* Contract §6: "A retry budget per upstream (20 % of recent requests, at least 10 per second) keeps a failing upstream
 * from being hammered." */
#include "core/retry/retry_budget.h"

#include "base/rand.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#define START ((hx_ms)1771502400123)

static unsigned reserve_all(hx_retry_budget *budget, hx_ms now)
{
    unsigned count = 0;
    for (hx_reservation held; hx_retry_budget_reserve(budget, now, &held); count++)
        hx_retry_budget_settle(budget, now, &held, true);
    return count;
}

static void send_requests(hx_retry_budget *budget, unsigned count, hx_ms now)
{
    for (unsigned i = 0; i < count; i++) hx_retry_budget_request(budget, now);
}

static void without_requests_there_are_ten_retries_a_second(void **state)
{
    (void)state;
    hx_retry_budget budget;
    hx_retry_budget_init(&budget, 1, START);
    assert_int_equal(reserve_all(&budget, START), 10);
    assert_int_equal(reserve_all(&budget, START + 99), 0);
    assert_int_equal(reserve_all(&budget, START + 100), 1);
    unsigned made = 0;
    for (hx_ms at = 101; at <= 100100; at++) made += reserve_all(&budget, START + at);
    assert_int_equal(made, 1000); /* not one lost in a hundred thousand readings of the clock */
}

static void every_fifth_request_pays_for_a_retry(void **state)
{
    (void)state;
    hx_retry_budget budget;
    hx_retry_budget_init(&budget, 1, START);
    assert_int_equal(reserve_all(&budget, START), 10);
    send_requests(&budget, 4, START);
    assert_int_equal(reserve_all(&budget, START), 0);
    send_requests(&budget, 1, START);
    assert_int_equal(reserve_all(&budget, START), 1);
    send_requests(&budget, 10000, START);
    assert_int_equal(reserve_all(&budget, START), 2000);
}

static void what_was_paid_in_is_gone_after_ten_seconds(void **state)
{
    (void)state;
    hx_retry_budget budget;
    hx_ms second = START / 1000 * 1000;
    hx_retry_budget_init(&budget, 1, second);
    send_requests(&budget, 500, second);
    assert_int_equal(hx_retry_budget_left(&budget, second), 110);
    assert_int_equal(hx_retry_budget_left(&budget, second + 9999), 110);
    hx_retry_budget other = budget;
    assert_int_equal(reserve_all(&other, second + 9999), 110);
    assert_int_equal(hx_retry_budget_left(&budget, second + 10000), 10);
    send_requests(&budget, 50, second + 10000);
    assert_int_equal(hx_retry_budget_left(&budget, second + 10000), 20);
    assert_int_equal(hx_retry_budget_left(&budget, second + 365 * HX_DAY), 10);
    assert_int_equal(hx_retry_budget_left(&budget, INT64_MAX), 10);
}

static void a_budget_that_ran_dry_refills_within_a_second(void **state)
{
    (void)state;
    hx_retry_budget budget;
    hx_retry_budget_init(&budget, 1, START);
    hx_ms now = START;
    for (int round = 0; round < 1000; round++) {
        send_requests(&budget, (unsigned)round % 7, now);
        reserve_all(&budget, now);
        assert_int_equal(hx_retry_budget_left(&budget, now), 0);
        now += 1000;
        assert_true(hx_retry_budget_left(&budget, now) >= 10);
    }
}

static void retries_that_wait_out_their_delay_count(void **state)
{
    (void)state;
    hx_retry_budget budget;
    hx_reservation held[10];
    hx_retry_budget_init(&budget, 1, START);
    for (size_t i = 0; i < 10; i++) assert_true(hx_retry_budget_reserve(&budget, START, &held[i]));
    assert_int_equal(budget.reserved, 10);
    hx_reservation refused = {.from = HX_RESERVED_FLOOR};
    assert_false(hx_retry_budget_reserve(&budget, START, &refused));
    assert_int_equal(refused.from, HX_RESERVED_NOTHING);
    assert_int_equal(budget.refused, 1);
    for (size_t i = 0; i < 10; i++) hx_retry_budget_settle(&budget, START, &held[i], true);
    assert_int_equal(hx_retry_budget_left(&budget, START), 0); /* spent, whatever the answers were */
    assert_int_equal(budget.spent, 10);
    assert_int_equal(budget.reserved, 0);
}

static void a_retry_that_was_given_up_goes_back_once(void **state)
{
    (void)state;
    hx_retry_budget budget;
    hx_reservation held;
    hx_retry_budget_init(&budget, 1, START);
    reserve_all(&budget, START);
    send_requests(&budget, 5, START);
    assert_true(hx_retry_budget_reserve(&budget, START, &held));
    assert_int_equal(hx_retry_budget_left(&budget, START), 0);
    hx_retry_budget_settle(&budget, START, &held, false);
    hx_retry_budget_settle(&budget, START, &held, false);
    assert_int_equal(hx_retry_budget_left(&budget, START), 1);
    assert_int_equal(budget.spent, 10);
    /* the floor's too, and never above its brim */
    hx_retry_budget_init(&budget, 1, START);
    assert_true(hx_retry_budget_reserve(&budget, START, &held));
    hx_retry_budget_settle(&budget, START, &held, false);
    assert_int_equal(hx_retry_budget_left(&budget, START), 10);
    assert_true(hx_retry_budget_reserve(&budget, START, &held));
    hx_retry_budget_settle(&budget, START + 500, &held, false);
    assert_int_equal(hx_retry_budget_left(&budget, START + 500), 10);
}

static void a_share_given_back_too_late_is_gone(void **state)
{
    (void)state;
    hx_retry_budget budget;
    hx_reservation held;
    hx_retry_budget_init(&budget, 1, START);
    reserve_all(&budget, START);
    send_requests(&budget, 5, START);
    assert_true(hx_retry_budget_reserve(&budget, START, &held));
    hx_retry_budget_settle(&budget, START + HX_MINUTE, &held, false);
    assert_int_equal(hx_retry_budget_left(&budget, START + HX_MINUTE), 10);
}

static void a_clock_that_is_set_back_gives_nothing_and_takes_nothing(void **state)
{
    (void)state;
    hx_retry_budget budget;
    hx_retry_budget_init(&budget, 1, START);
    send_requests(&budget, 50, START);
    assert_int_equal(hx_retry_budget_left(&budget, START - 1), 20);
    assert_int_equal(hx_retry_budget_left(&budget, START - HX_DAY), 20);
    assert_int_equal(reserve_all(&budget, START - HX_DAY), 20);
    assert_int_equal(reserve_all(&budget, START - HX_DAY + HX_HOUR), 0);
    assert_int_equal(reserve_all(&budget, START + 1000), 10);
}

static void the_floors_of_all_workers_add_up_to_ten_a_second(void **state)
{
    (void)state;
    static const unsigned counts[] = {1, 2, 3, 7, 16, 1024};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        unsigned parts = counts[c];
        hx_retry_budget budget;
        hx_retry_budget_init(&budget, parts, START);
        unsigned burst = reserve_all(&budget, START);
        assert_int_equal(burst, parts < 10 ? 10 / parts : 1);
        uint64_t made = 0;
        for (hx_ms at = 10; at <= 1024 * HX_SECOND; at += 10) made += reserve_all(&budget, START + at);
        uint64_t of_all = made * parts; /* 10 a second, but for what didn't make a whole retry yet */
        assert_true(of_all <= 10240 + 10 && of_all + parts + 10 >= 10240);
    }
}

typedef struct {
    hx_ms at;
    int requests, taken; /* taken: reserved minus given back */
} event;

#define EVENTS 600u
#define WAITING_MAX 64u

/* The promise of budget.h, over every window that begins and ends at an event. */
static void check_windows(const event *events, size_t count, uint64_t seed)
{
    for (size_t from = 0; from < count; from++) {
        int64_t fifths = 4, taken = 0;
        for (size_t i = from; i-- > 0 && events[i].at > events[from].at - 10000;) fifths += events[i].requests;
        for (size_t to = from; to < count; to++) {
            fifths += events[to].requests;
            taken += events[to].taken;
            /* retries <= requests / 5 + 10/s * window + 10, times 500 so that it is in whole numbers */
            int64_t bound = fifths * 100 + (events[to].at - events[from].at) * 5 + 5000;
            if (taken * 500 > bound)
                fail_msg("seed %llu: %lld retries from event %zu to %zu", (unsigned long long)seed, (long long)taken,
                         from, to);
        }
    }
}

typedef struct {
    hx_retry_budget budget;
    hx_reservation waiting[WAITING_MAX];
    size_t count;
    uint64_t requests, reserved, sent, given_back;
} run;

static int settle_one(run *r, hx_ms now)
{
    if (r->count == 0) return 0;
    size_t which = hx_rand_below(r->count);
    bool sent = hx_rand_below(2) == 0;
    hx_retry_budget_settle(&r->budget, now, &r->waiting[which], sent);
    r->waiting[which] = r->waiting[--r->count];
    *(sent ? &r->sent : &r->given_back) += 1;
    return sent ? 0 : -1;
}

static int reserve_some(run *r, hx_ms now)
{
    int taken = 0;
    for (uint64_t wanted = hx_rand_below(40); wanted > 0; wanted--) {
        if (r->count == WAITING_MAX) taken += settle_one(r, now);
        if (!hx_retry_budget_reserve(&r->budget, now, &r->waiting[r->count])) continue;
        r->count++;
        r->reserved++;
        taken++;
    }
    return taken;
}

static void over_any_window_retries_stay_within_the_budget(void **state)
{
    (void)state;
    static event events[EVENTS];
    for (uint64_t seed = 1; seed <= 60; seed++) {
        hx_rand_seed(seed);
        uint64_t pace = 1 + hx_rand_below(2000), crowd = 1 + hx_rand_below(300);
        hx_ms now = START;
        run r = {0};
        hx_retry_budget_init(&r.budget, 1, now);
        for (size_t i = 0; i < EVENTS; i++) {
            now += (hx_ms)hx_rand_below(hx_rand_below(50) == 0 ? 15000 : pace);
            events[i] = (event){.at = now};
            uint64_t requests = hx_rand_below(3) ? 0 : hx_rand_below(crowd);
            send_requests(&r.budget, (unsigned)requests, now);
            r.requests += requests;
            events[i].requests = (int)requests;
            if (hx_rand_below(3)) events[i].taken += reserve_some(&r, now);
            if (hx_rand_below(3)) events[i].taken += settle_one(&r, now);
            assert_int_equal(r.budget.reserved, r.count);
            assert_int_equal(r.budget.spent, r.sent);
        }
        check_windows(events, EVENTS, seed);
        /* attempts never exceed 1.2 * requests and the floor */
        assert_true((r.sent - 10) * 500 <= r.requests * 100 + (uint64_t)(now - START) * 5 || r.sent < 10);
        assert_int_equal(r.reserved, r.sent + r.given_back + r.count);
    }
}

static void a_failing_upstream_gets_a_fifth_more_and_the_floor(void **state)
{
    (void)state;
    /* 2,000 requests a second for a minute, every one of which would be retried three times */
    hx_retry_budget budget;
    hx_retry_budget_init(&budget, 1, START);
    uint64_t requests = 0, retries = 0;
    for (hx_ms at = 0; at < HX_MINUTE; at++) {
        for (int i = 0; i < 2; i++, requests++) hx_retry_budget_request(&budget, START + at);
        for (int i = 0; i < 6; i++) {
            hx_reservation held;
            if (!hx_retry_budget_reserve(&budget, START + at, &held)) continue;
            hx_retry_budget_settle(&budget, START + at, &held, true);
            retries++;
        }
    }
    assert_true(retries <= requests / 5 + 610);
    assert_true(retries >= requests / 5 + 600); /* and it is not meaner than it says */
    assert_int_equal(budget.refused, requests * 3 - retries);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_requests_there_are_ten_retries_a_second),
        cmocka_unit_test(every_fifth_request_pays_for_a_retry),
        cmocka_unit_test(what_was_paid_in_is_gone_after_ten_seconds),
        cmocka_unit_test(a_budget_that_ran_dry_refills_within_a_second),
        cmocka_unit_test(retries_that_wait_out_their_delay_count),
        cmocka_unit_test(a_retry_that_was_given_up_goes_back_once),
        cmocka_unit_test(a_share_given_back_too_late_is_gone),
        cmocka_unit_test(a_clock_that_is_set_back_gives_nothing_and_takes_nothing),
        cmocka_unit_test(the_floors_of_all_workers_add_up_to_ten_a_second),
        cmocka_unit_test(over_any_window_retries_stay_within_the_budget),
        cmocka_unit_test(a_failing_upstream_gets_a_fifth_more_and_the_floor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
