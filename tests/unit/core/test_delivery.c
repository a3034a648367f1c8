/* SPDX-License-Identifier: Apache-2.0 */
#include "core/event/delivery.h"
#include "core/retry/retry_after.h"

#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#define START ((hx_ms)1798761600000)
#define LEASE (30 * HX_SECOND)

static const hx_delivery_rules webhook = {.repeats_safely = true}, once = {0};
static hx_arena arena;

static hx_delivery fresh(void)
{
    return (hx_delivery){.event = HX_LIT("e//evt_1"),
                         .endpoint = HX_LIT("ep_1"),
                         .tenant = HX_EMPTY,
                         .reason = HX_EMPTY,
                         .responses = HX_EMPTY,
                         .created_at = START,
                         .due = START,
                         .round = 1};
}

static hx_attempt_result answered(unsigned status)
{
    return (hx_attempt_result){.status = status, .retry_after = HX_RETRY_AFTER_NONE, .response = HX_EMPTY};
}

static hx_attempt_result no_response(void)
{
    hx_attempt_result result = answered(0);
    result.error = "timeout";
    return result;
}

/* One attempt that begins when it is due and ends at once; returns when that was. */
static hx_ms attempt(hx_delivery *d, const hx_attempt_result *result, uint64_t random)
{
    hx_ms at = d->due;
    hx_delivery_lease(d, at, LEASE, 7);
    assert_int_equal(hx_delivery_settle(d, &webhook, 7, result, at, random, &arena), HX_SETTLED);
    return at;
}

/* Every change survives the store. */
static hx_delivery stored(const hx_delivery *d)
{
    hx_buf meta;
    hx_delivery back;
    hx_buf_init(&meta, &arena, 64 << 10);
    hx_delivery_encode(d, &meta);
    assert_true(hx_delivery_decode(hx_buf_slice(&meta), d->responses, &arena, &back));
    assert_int_equal(back.state, d->state);
    assert_int_equal(back.due, d->due);
    assert_int_equal(back.attempts, d->attempts);
    assert_int_equal(back.kept_count, d->kept_count);
    return back;
}

static void ten_attempts_come_at_their_places_and_then_it_is_dead(void **state)
{
    (void)state;
    static const hx_ms places[] = {
        0,       5 * HX_SECOND, 30 * HX_SECOND, 2 * HX_MINUTE, 10 * HX_MINUTE, 30 * HX_MINUTE,
        HX_HOUR, 6 * HX_HOUR,   12 * HX_HOUR,   24 * HX_HOUR};
    hx_delivery d = fresh();
    hx_attempt_result failed = answered(500);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(d.state, HX_DELIVERY_PENDING);
        assert_int_equal(attempt(&d, &failed, 0), START + places[i]);
        d = stored(&d);
    }
    assert_int_equal(d.state, HX_DELIVERY_DEAD);
    assert_int_equal(d.attempts, 10);
    assert_int_equal(d.kept_count, 10);
}

static void jitter_adds_up_to_a_tenth_and_does_not_accumulate(void **state)
{
    (void)state;
    hx_delivery d = fresh();
    hx_attempt_result failed = answered(503);
    (void)attempt(&d, &failed, 500); /* as late as it may be: the span of 501 values ends with it */
    assert_int_equal(attempt(&d, &failed, 3000), START + 5500);
    assert_int_equal(attempt(&d, &failed, 0), START + 33000);
    assert_int_equal(attempt(&d, &failed, 0), START + 2 * HX_MINUTE);
}

static void after_downtime_one_attempt_comes_at_once_and_the_next_after_the_gap(void **state)
{
    (void)state;
    hx_delivery d = fresh();
    hx_attempt_result failed = no_response();
    for (int i = 0; i < 3; i++) (void)attempt(&d, &failed, 0);
    assert_int_equal(d.due, START + 2 * HX_MINUTE);
    hx_ms back = START + HX_DAY + HX_HOUR;
    hx_delivery_lease(&d, back, LEASE, 7);
    assert_int_equal(hx_delivery_settle(&d, &webhook, 7, &failed, back, 0, &arena), HX_SETTLED);
    assert_int_equal(d.state, HX_DELIVERY_PENDING);
    assert_int_equal(d.due, back + 8 * HX_MINUTE); /* from the step at 2 minutes to the one at 10 */
    for (int i = 4; i < 9; i++) (void)attempt(&d, &failed, 0);
    assert_int_equal(d.state, HX_DELIVERY_PENDING);
    (void)attempt(&d, &failed, 0);
    assert_int_equal(d.state, HX_DELIVERY_DEAD);
    assert_int_equal(d.attempts, 10);
}

static void a_slow_attempt_does_not_make_the_next_one_overlap_or_hurry(void **state)
{
    (void)state;
    hx_delivery d = fresh();
    hx_attempt_result failed = no_response();
    failed.ms = 20 * HX_SECOND;
    hx_delivery_lease(&d, START, LEASE, 7);
    assert_int_equal(hx_delivery_settle(&d, &webhook, 7, &failed, START + 20 * HX_SECOND, 0, &arena), HX_SETTLED);
    assert_int_equal(d.due, START + 20 * HX_SECOND); /* its place at 5 s has passed */
    (void)attempt(&d, &(hx_attempt_result){.status = 500, .retry_after = HX_RETRY_AFTER_NONE, .response = HX_EMPTY}, 0);
    assert_int_equal(d.due, START + 45 * HX_SECOND);
}

static void retry_after_moves_the_next_attempt_and_passed_steps_merge_into_it(void **state)
{
    (void)state;
    hx_delivery d = fresh();
    hx_attempt_result later = answered(429), failed = answered(500);
    later.retry_after = HX_HOUR;
    (void)attempt(&d, &later, 0);
    assert_int_equal(d.due, START + HX_HOUR + 1); /* never early */
    assert_int_equal(d.step, 6);                  /* the step at one hour */
    (void)attempt(&d, &failed, 0);
    assert_int_equal(d.due, START + 6 * HX_HOUR);
    for (int i = 2; i < 9; i++) (void)attempt(&d, &failed, 0);
    assert_int_equal(d.state, HX_DELIVERY_PENDING); /* merged steps are no attempts */
    (void)attempt(&d, &failed, 0);
    assert_int_equal(d.state, HX_DELIVERY_DEAD);
    d = fresh();
    later.retry_after = 40 * HX_DAY;
    (void)attempt(&d, &later, 0);
    assert_int_equal(d.due, START + HX_DAY + 1);
    d = fresh();
    later.retry_after = 0; /* sooner than the schedule: the schedule holds */
    (void)attempt(&d, &later, 0);
    assert_int_equal(d.due, START + 5 * HX_SECOND);
}

static void a_success_settles_it_whatever_its_lease_and_a_failure_only_under_its_own(void **state)
{
    (void)state;
    hx_delivery d = fresh(), before;
    hx_attempt_result good = answered(204), bad = answered(500);
    hx_delivery_lease(&d, START, LEASE, 1);
    assert_false(hx_delivery_lapse(&d, &webhook, START + LEASE - 1, 0, &arena));
    assert_true(hx_delivery_lapse(&d, &webhook, START + LEASE, 0, &arena));
    assert_int_equal(d.state, HX_DELIVERY_PENDING);
    assert_int_equal(d.round_attempts, 1);
    assert_true(hx_slice_eq(d.kept[0].error, HX_LIT("interrupted")));
    before = d;
    assert_int_equal(hx_delivery_settle(&d, &webhook, 1, &bad, START + LEASE + 1, 0, &arena), HX_SETTLED_BEFORE);
    assert_memory_equal(&d, &before, sizeof d);
    hx_delivery_lease(&d, d.due, LEASE, 2);
    before = d;
    assert_int_equal(hx_delivery_settle(&d, &webhook, 1, &bad, d.due, 0, &arena), HX_SETTLED_BEFORE);
    assert_memory_equal(&d, &before, sizeof d);
    assert_int_equal(hx_delivery_settle(&d, &webhook, 1, &good, d.due, 0, &arena), HX_SETTLED);
    assert_int_equal(d.state, HX_DELIVERY_DELIVERED);
    assert_int_equal(hx_delivery_settle(&d, &webhook, 2, &bad, d.due, 0, &arena), HX_SETTLED_BEFORE);
    assert_int_equal(hx_delivery_settle(&d, &webhook, 2, &good, d.due, 0, &arena), HX_SETTLED_BEFORE);
    assert_int_equal(d.state, HX_DELIVERY_DELIVERED);
}

static void what_may_have_happened_is_unknown_where_repeating_was_not_declared_safe(void **state)
{
    (void)state;
    hx_delivery d = fresh();
    hx_attempt_result lost = no_response(), unsent = no_response(), good = answered(200), refused = answered(500);
    unsent.nothing_sent = true;
    hx_delivery_lease(&d, START, LEASE, 1);
    assert_int_equal(hx_delivery_settle(&d, &once, 1, &unsent, START, 0, &arena), HX_SETTLED);
    assert_int_equal(d.state, HX_DELIVERY_PENDING);
    hx_delivery_lease(&d, d.due, LEASE, 2);
    assert_int_equal(hx_delivery_settle(&d, &once, 2, &refused, d.due, 0, &arena), HX_SETTLED);
    assert_int_equal(d.state, HX_DELIVERY_PENDING); /* it has answered: it did not process it */
    hx_delivery_lease(&d, d.due, LEASE, 3);
    assert_int_equal(hx_delivery_settle(&d, &once, 3, &lost, d.due, 0, &arena), HX_SETTLED);
    assert_int_equal(d.state, HX_DELIVERY_UNKNOWN);
    assert_int_equal(hx_delivery_settle(&d, &once, 3, &good, d.due + 1, 0, &arena), HX_SETTLED); /* its late answer */
    assert_int_equal(d.state, HX_DELIVERY_DELIVERED);
    d = fresh();
    hx_delivery_lease(&d, START, LEASE, 1);
    assert_true(hx_delivery_lapse(&d, &once, START + LEASE, 0, &arena));
    assert_int_equal(d.state, HX_DELIVERY_UNKNOWN);
}

static void gone_ends_it_and_disables_the_endpoint(void **state)
{
    (void)state;
    hx_delivery d = fresh();
    hx_attempt_result gone = answered(410), wrong = answered(422);
    hx_delivery_rules strict = {.repeats_safely = true, .dead_on_client_error = true};
    hx_delivery_lease(&d, START, LEASE, 1);
    assert_int_equal(hx_delivery_settle(&d, &webhook, 1, &gone, START, 0, &arena), HX_SETTLED_DISABLES);
    assert_int_equal(d.state, HX_DELIVERY_DEAD);
    d = fresh();
    (void)attempt(&d, &wrong, 0);
    assert_int_equal(d.state, HX_DELIVERY_PENDING);
    hx_delivery_lease(&d, d.due, LEASE, 1);
    assert_int_equal(hx_delivery_settle(&d, &strict, 1, &wrong, d.due, 0, &arena), HX_SETTLED);
    assert_int_equal(d.state, HX_DELIVERY_DEAD);
}

static void a_round_begins_again_under_the_same_event_and_keeps_what_was_tried(void **state)
{
    (void)state;
    hx_delivery d = fresh();
    hx_attempt_result failed = answered(500);
    failed.response = HX_LIT("sorry");
    for (int i = 0; i < 10; i++) (void)attempt(&d, &failed, 0);
    hx_ms later = d.settled_at + HX_DAY;
    assert_true(hx_delivery_rearm(&d, later));
    assert_false(hx_delivery_rearm(&d, later));
    d = stored(&d);
    assert_int_equal(d.due, later);
    assert_int_equal(attempt(&d, &failed, 0), later);
    assert_int_equal(d.due, later + 5 * HX_SECOND);
    assert_int_equal(d.attempts, 11);
    assert_int_equal(d.round, 2);
    assert_int_equal(d.responses.len, 55);
    for (int i = 1; i < 35; i++) {
        if (d.state == HX_DELIVERY_DEAD) assert_true(hx_delivery_rearm(&d, d.settled_at));
        (void)attempt(&d, &failed, 0);
        d = stored(&d);
    }
    assert_int_equal(d.attempts, 45);
    assert_int_equal(d.kept_count, HX_DELIVERY_ATTEMPTS_KEPT);
    assert_int_equal(d.responses.len, 5 * HX_DELIVERY_ATTEMPTS_KEPT);
}

static void what_is_being_sent_is_neither_cancelled_nor_given_up(void **state)
{
    (void)state;
    hx_delivery d = fresh();
    assert_true(hx_delivery_cancel(&d, START, HX_LIT("deleted")));
    assert_false(hx_delivery_cancel(&d, START, HX_LIT("deleted")));
    assert_int_equal(d.state, HX_DELIVERY_CANCELLED);
    d = fresh();
    hx_delivery_lease(&d, START, LEASE, 1);
    assert_false(hx_delivery_cancel(&d, START, HX_LIT("deleted")));
    assert_false(hx_delivery_give_up(&d, START, HX_LIT("disabled")));
    d = fresh();
    assert_true(hx_delivery_give_up(&d, START, HX_LIT("disabled")));
    assert_int_equal(d.state, HX_DELIVERY_DEAD);
}

static void what_is_not_a_delivery_is_refused(void **state)
{
    (void)state;
    hx_delivery d;
    static const char *const metas[] = {
        "",
        "{}",
        "[]",
        "{\"state\":\"pending\"}",
        "{\"event\":\"e\",\"endpoint\":\"x\",\"state\":\"lost\"}",
        "{\"event\":\"e\",\"endpoint\":\"x\",\"state\":\"dead\",\"tries\":[{\"response\":9}]}",
        "{\"event\":\"e\",\"endpoint\":\"x\",\"state\":\"dead\",\"due\":-1}"};
    for (size_t i = 0; i < sizeof metas / sizeof metas[0]; i++)
        assert_false(hx_delivery_decode(hx_slice_of(metas[i]), HX_LIT("12345678"), &arena, &d));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_attempts_come_at_their_places_and_then_it_is_dead),
        cmocka_unit_test(jitter_adds_up_to_a_tenth_and_does_not_accumulate),
        cmocka_unit_test(after_downtime_one_attempt_comes_at_once_and_the_next_after_the_gap),
        cmocka_unit_test(a_slow_attempt_does_not_make_the_next_one_overlap_or_hurry),
        cmocka_unit_test(retry_after_moves_the_next_attempt_and_passed_steps_merge_into_it),
        cmocka_unit_test(a_success_settles_it_whatever_its_lease_and_a_failure_only_under_its_own),
        cmocka_unit_test(what_may_have_happened_is_unknown_where_repeating_was_not_declared_safe),
        cmocka_unit_test(gone_ends_it_and_disables_the_endpoint),
        cmocka_unit_test(a_round_begins_again_under_the_same_event_and_keeps_what_was_tried),
        cmocka_unit_test(what_is_being_sent_is_neither_cancelled_nor_given_up),
        cmocka_unit_test(what_is_not_a_delivery_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return failed;
}
