/* SPDX-License-Identifier: Apache-2.0 */
/* One suite over every store: the guarantees of store.h, by their numbers. Run with the backend's name. */
#include "store/harness.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

static const char *backend;
static const hx_store_options small = {.segment_bytes = 64 << 10};

#define OK HX_STORE_OK

static hx_answer answer_of(const char *body)
{
    return (hx_answer){201, true, HX_LIT("Content-Type: text/plain\r\nETag: \"1\"\r\n"), hx_slice_of(body)};
}

/* Claims and settles operation `number`. */
static hx_record complete(bench *b, uint64_t number, hx_state state, hx_ms lifetime)
{
    hx_record r = record_of(number);
    assert_int_equal(claim(b, &r, 0, NULL), OK);
    r.answer = answer_of("done");
    if (lifetime > 0) r.expires_at = test_now + lifetime;
    assert_int_equal(settle(b, &r, state, NULL), OK);
    return r;
}

static void g1_what_was_acknowledged_reads_back_whole_also_after_a_restart(void **state)
{
    (void)state;
    bench b;
    hx_record found;
    bench_begin(&b, backend, small);
    hx_record r = complete(&b, 1, HX_COMPLETED, HX_DAY);
    for (int round = 0; round < 2; round++, bench_restart(&b)) {
        assert_int_equal(peek(&b, r.op, &found), HX_COMPLETED);
        assert_int_equal(found.epoch, r.epoch);
        assert_int_equal(found.created_at, r.created_at);
        assert_int_equal(found.expires_at, r.expires_at);
        assert_int_equal(found.attempt, r.attempt);
        assert_int_equal(found.answer.status, 201);
        assert_true(found.answer.retained);
        assert_true(hx_slice_eq(found.answer.headers, r.answer.headers));
        assert_true(hx_slice_eq(found.answer.body, r.answer.body));
        assert_true(hx_slice_eq(found.route, r.route));
        assert_memory_equal(&found.fingerprint, &r.fingerprint, sizeof r.fingerprint);
        assert_memory_equal(&found.principal, &r.principal, sizeof r.principal);
        assert_memory_equal(&found.proof, &r.proof, sizeof r.proof);
        assert_memory_equal(found.parts, r.parts, sizeof r.parts);
    }
    bench_end(&b);
}

static void g2_a_second_claim_sees_the_first(void **state)
{
    (void)state;
    bench b;
    hx_record found, first = record_of(1), second = record_of(1);
    bench_begin(&b, backend, small);
    assert_int_equal(peek(&b, first.op, NULL), HX_ABSENT);
    assert_int_equal(claim(&b, &first, 0, NULL), OK);
    assert_true(first.epoch > 0);
    assert_int_equal(claim(&b, &second, 0, &found), HX_STORE_EXISTS);
    assert_int_equal(found.state, HX_PROCESSING);
    assert_int_equal(found.epoch, first.epoch);
    assert_int_equal(found.lease_until, first.lease_until);
    bench_end(&b);
}

#define RACES 400

typedef struct {
    hx_store *store;
    hx_loop *loop;
    hx_arena arena;
    hx_store_call calls[RACES];
    hx_record records[RACES];
    int left;
} racer;

static void raced(hx_store_call *call)
{
    racer *r = (racer *)(void *)((char *)(call - (size_t)call->lease_until) - offsetof(racer, calls));
    if (--r->left == 0) hx_loop_stop(r->loop);
}

static void *race(void *context)
{
    racer *r = context;
    for (int i = 0; i < RACES; i++) hx_store_claim(r->store, &r->calls[i], &r->records[i], 0);
    hx_loop_run(r->loop);
    hx_arena_pool_drain();
    return NULL;
}

static void g2_of_claims_that_race_on_two_loops_one_wins(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, backend, small);
    racer *racers = calloc(2, sizeof *racers);
    pthread_t threads[2];
    for (int t = 0; t < 2; t++) {
        racers[t].store = b.store;
        racers[t].loop = hx_loop_new();
        racers[t].left = RACES;
        hx_store_attach(b.store, racers[t].loop);
        for (int i = 0; i < RACES; i++) {
            racers[t].records[i] = record_of((uint64_t)(t == 0 ? i : RACES - 1 - i));
            racers[t].calls[i] = (hx_store_call){.loop = racers[t].loop,
                                                 .arena = &racers[t].arena,
                                                 .done = raced,
                                                 .lease_until = i /* for raced() */};
        }
    }
    for (int t = 0; t < 2; t++) pthread_create(&threads[t], NULL, race, &racers[t]);
    for (int t = 0; t < 2; t++) pthread_join(threads[t], NULL);
    uint64_t seen[2 * RACES];
    for (int i = 0; i < RACES; i++) {
        const hx_store_call *one = &racers[0].calls[i], *other = &racers[1].calls[RACES - 1 - i];
        assert_true((one->result == OK) != (other->result == OK));
        const hx_store_call *won = one->result == OK ? one : other, *lost = one->result == OK ? other : one;
        assert_int_equal(lost->result, HX_STORE_EXISTS);
        assert_int_equal(lost->found.epoch, won->record->epoch);
        seen[i] = won->record->epoch;
        for (int k = 0; k < i; k++) assert_int_not_equal(seen[k], seen[i]);
    }
    for (int t = 0; t < 2; t++) hx_arena_free(&racers[t].arena);
    hx_store_close(&b.store);
    for (int t = 0; t < 2; t++) hx_loop_free(&racers[t].loop);
    free(racers);
    bench_end(&b);
}

static void g3_a_stale_epoch_changes_nothing(void **state)
{
    (void)state;
    bench b;
    hx_record found, r = record_of(1), stale;
    bench_begin(&b, backend, small);
    assert_int_equal(claim(&b, &r, 0, NULL), OK);
    stale = r;
    stale.epoch--;
    assert_int_equal(settle(&b, &stale, HX_COMPLETED, &found), HX_STORE_STALE);
    assert_int_equal(found.state, HX_PROCESSING);
    assert_int_equal(renew(&b, r.op, r.epoch + 1, test_now + HX_HOUR, &found), HX_STORE_STALE);
    assert_int_equal(found.lease_until, r.lease_until);
    assert_int_equal(peek(&b, r.op, NULL), HX_PROCESSING);
    hx_store_counts counts;
    hx_store_count(b.store, &counts);
    assert_int_equal(counts.stale_writes, 2);
    bench_end(&b);
}

static void g3_an_epoch_is_stale_after_release_expiry_and_forgetting_too(void **state)
{
    (void)state;
    bench b;
    hx_record found, released = record_of(1), again = record_of(1);
    bench_begin(&b, backend, small);
    assert_int_equal(claim(&b, &released, 0, NULL), OK);
    hx_record late = released;
    assert_int_equal(settle(&b, &released, HX_ABSENT, NULL), OK);
    assert_int_equal(settle(&b, &late, HX_COMPLETED, &found), HX_STORE_STALE);
    assert_int_equal(found.state, HX_ABSENT);
    assert_int_equal(claim(&b, &again, 0, NULL), OK);
    assert_true(again.epoch > late.epoch);
    assert_int_equal(settle(&b, &late, HX_FAILED, &found), HX_STORE_STALE);
    assert_int_equal(found.state, HX_PROCESSING);
    assert_int_equal(found.epoch, again.epoch);

    hx_record expired = complete(&b, 2, HX_COMPLETED, HX_MINUTE);
    test_now += HX_HOUR;
    assert_int_equal(settle(&b, &expired, HX_FAILED, &found), HX_STORE_STALE);
    assert_int_equal(found.state, HX_ABSENT);

    hx_record gone = complete(&b, 3, HX_UNKNOWN, 0);
    assert_int_equal(forget(&b, gone.op, gone.epoch, NULL), OK);
    assert_int_equal(settle(&b, &gone, HX_COMPLETED, &found), HX_STORE_STALE);
    assert_int_equal(found.state, HX_ABSENT);
    bench_end(&b);
}

static void g4_epochs_grow_over_release_expiry_and_restart(void **state)
{
    (void)state;
    bench b;
    uint64_t last = 0;
    bench_begin(&b, backend, small);
    for (int i = 0; i < 60; i++) {
        hx_record r = record_of((uint64_t)i % 3);
        assert_int_equal(claim(&b, &r, 0, NULL), OK);
        assert_true(r.epoch > last);
        last = r.epoch;
        r.expires_at = test_now + HX_SECOND;
        assert_int_equal(settle(&b, &r, i % 2 ? HX_ABSENT : HX_COMPLETED, NULL), OK);
        test_now += 2 * HX_SECOND;
        if (i % 7 == 0) sweep(&b);
        if (i % 10 == 0) bench_restart(&b);
    }
    bench_end(&b);
}

static void g5_the_first_outcome_of_an_epoch_wins(void **state)
{
    (void)state;
    bench b;
    hx_record found;
    bench_begin(&b, backend, small);
    const hx_state finals[] = {HX_COMPLETED, HX_FAILED};
    const hx_state tries[] = {HX_COMPLETED, HX_FAILED, HX_UNKNOWN, HX_ABSENT};
    for (uint64_t f = 0; f < 2; f++) {
        hx_record r = complete(&b, f, finals[f], HX_DAY);
        for (int t = 0; t < 4; t++) {
            hx_record second = r;
            second.answer = answer_of("another");
            assert_int_equal(settle(&b, &second, tries[t], &found), HX_STORE_STALE);
            assert_int_equal(found.state, finals[f]);
            assert_true(hx_slice_eq(found.answer.body, HX_LIT("done")));
        }
    }
    bench_end(&b);
}

static void g5_unknown_may_become_completed_failed_absent_or_be_taken_over(void **state)
{
    (void)state;
    bench b;
    hx_record found;
    bench_begin(&b, backend, small);
    const hx_state ends[] = {HX_COMPLETED, HX_FAILED, HX_ABSENT};
    for (uint64_t i = 0; i < 3; i++) {
        hx_record r = complete(&b, i, HX_UNKNOWN, 0);
        hx_record again = r;
        assert_int_equal(settle(&b, &again, HX_UNKNOWN, &found), HX_STORE_STALE);
        r.expires_at = test_now + HX_DAY;
        assert_int_equal(settle(&b, &r, ends[i], NULL), OK);
        assert_int_equal(peek(&b, r.op, NULL), ends[i]);
    }
    hx_record unknown = complete(&b, 9, HX_UNKNOWN, 0), next = record_of(9);
    assert_int_equal(claim(&b, &next, 0, &found), HX_STORE_EXISTS);
    assert_int_equal(found.state, HX_UNKNOWN);
    assert_int_equal(claim(&b, &next, unknown.epoch + 1, &found), HX_STORE_EXISTS);
    assert_int_equal(claim(&b, &next, unknown.epoch, NULL), OK);
    assert_true(next.epoch > unknown.epoch);
    assert_int_equal(settle(&b, &unknown, HX_COMPLETED, &found), HX_STORE_STALE);
    assert_int_equal(found.state, HX_PROCESSING);
    assert_int_equal(claim(&b, &next, unknown.epoch, &found), HX_STORE_EXISTS);
    bench_end(&b);
}

static void g6_an_expired_key_is_free_and_unknown_never_expires(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, backend, small);
    hx_record done = complete(&b, 1, HX_COMPLETED, HX_MINUTE);
    complete(&b, 2, HX_FAILED, HX_MINUTE);
    hx_record unknown = complete(&b, 3, HX_UNKNOWN, HX_SECOND);
    hx_record running = record_of(4), again = record_of(1);
    assert_int_equal(claim(&b, &running, 0, NULL), OK);
    assert_int_equal(renew(&b, running.op, running.epoch, test_now + 300 * HX_DAY, NULL), OK);
    test_now += HX_MINUTE - 1;
    assert_int_equal(peek(&b, done.op, NULL), HX_COMPLETED);
    assert_int_equal(sweep(&b), 0);
    test_now += HX_SECOND;
    assert_int_equal(peek(&b, done.op, NULL), HX_ABSENT);
    assert_int_equal(peek(&b, op_of(2), NULL), HX_ABSENT);
    assert_int_equal(claim(&b, &again, 0, NULL), OK);
    assert_true(again.epoch > done.epoch);
    assert_int_equal(renew(&b, again.op, again.epoch, test_now + 300 * HX_DAY, NULL), OK);
    test_now += 200 * HX_DAY;
    sweep(&b);
    assert_int_equal(peek(&b, unknown.op, NULL), HX_UNKNOWN);
    assert_int_equal(peek(&b, running.op, NULL), HX_PROCESSING);
    assert_int_equal(peek(&b, again.op, NULL), HX_PROCESSING);
    bench_restart(&b);
    assert_int_equal(peek(&b, unknown.op, NULL), HX_UNKNOWN);
    bench_end(&b);
}

static void g6_a_lapsed_lease_becomes_unknown_and_a_renewed_one_does_not(void **state)
{
    (void)state;
    bench b;
    hx_record found, lapsed = record_of(1), renewed = record_of(2);
    bench_begin(&b, backend, small);
    assert_int_equal(claim(&b, &lapsed, 0, NULL), OK);
    assert_int_equal(claim(&b, &renewed, 0, NULL), OK);
    waited watching;
    wait_start(&b, &watching);
    hx_store_watch(b.store, &watching.call, &lapsed.op, lapsed.epoch);
    assert_int_equal(renew(&b, renewed.op, renewed.epoch, test_now + HX_HOUR, NULL), OK);
    assert_int_equal(peek(&b, renewed.op, &found), HX_PROCESSING);
    assert_int_equal(found.lease_until, test_now + HX_HOUR);
    test_now += 2 * HX_MINUTE;
    assert_int_equal(peek(&b, lapsed.op, NULL), HX_PROCESSING);
    assert_int_equal(sweep(&b), 0);
    assert_int_equal(peek(&b, lapsed.op, &found), HX_UNKNOWN);
    assert_int_equal(found.epoch, lapsed.epoch);
    assert_int_equal(found.from_state, HX_PROCESSING);
    assert_true(hx_slice_eq(found.reason, HX_LIT("lease")));
    assert_memory_equal(&found.fingerprint, &lapsed.fingerprint, sizeof found.fingerprint);
    assert_int_equal(peek(&b, renewed.op, NULL), HX_PROCESSING);
    wait_for(&b, &watching);
    assert_int_equal(watching.call.found.state, HX_UNKNOWN);
    lapsed.expires_at = test_now + HX_DAY; /* its own late answer is still taken */
    assert_int_equal(settle(&b, &lapsed, HX_COMPLETED, NULL), OK);
    bench_end(&b);
}

static void g6_a_tombstone_keeps_the_bare_key(void **state)
{
    (void)state;
    bench b;
    hx_record found, r = record_of(1), again = record_of(1);
    bench_begin(&b, backend, small);
    assert_int_equal(claim(&b, &r, 0, NULL), OK);
    r.answer = answer_of("kept for a minute");
    r.expires_at = test_now + HX_MINUTE;
    r.tombstone_until = test_now + HX_HOUR;
    assert_int_equal(settle(&b, &r, HX_COMPLETED, NULL), OK);
    test_now += 2 * HX_MINUTE;
    assert_int_equal(sweep(&b), 0);
    for (int round = 0; round < 2; round++, bench_restart(&b)) {
        assert_int_equal(peek(&b, r.op, &found), HX_EXPIRED);
        assert_int_equal(found.answer.status, 0);
        assert_int_equal(found.answer.body.len, 0);
        assert_int_equal(claim(&b, &again, 0, &found), HX_STORE_EXISTS);
        assert_int_equal(found.state, HX_EXPIRED);
        assert_int_equal(settle(&b, &r, HX_FAILED, &found), HX_STORE_STALE);
        assert_int_equal(found.state, HX_EXPIRED);
    }
    test_now += HX_HOUR;
    assert_int_equal(peek(&b, r.op, NULL), HX_ABSENT);
    assert_int_equal(sweep(&b), 1);
    assert_int_equal(claim(&b, &again, 0, NULL), OK);
    bench_end(&b);
}

static void g7_a_watch_ends_with_what_its_operation_became(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, backend, small);
    const hx_state ends[] = {HX_COMPLETED, HX_FAILED, HX_UNKNOWN, HX_ABSENT};
    for (uint64_t i = 0; i < 4; i++) {
        hx_record r = record_of(i), unrelated = record_of(100 + i);
        waited w[3];
        assert_int_equal(claim(&b, &r, 0, NULL), OK);
        for (int k = 0; k < 3; k++) {
            wait_start(&b, &w[k]);
            hx_store_watch(b.store, &w[k].call, &r.op, r.epoch);
        }
        assert_int_equal(claim(&b, &unrelated, 0, NULL), OK);
        for (int k = 0; k < 3; k++) assert_false(w[k].done);
        r.answer = answer_of("for all who wait");
        r.expires_at = test_now + HX_DAY;
        assert_int_equal(settle(&b, &r, ends[i], NULL), OK);
        for (int k = 0; k < 3; k++) {
            wait_for(&b, &w[k]);
            assert_int_equal(w[k].call.result, OK);
            assert_int_equal(w[k].call.found.state, ends[i]);
            assert_int_equal(w[k].call.found.epoch, r.epoch);
            assert_memory_equal(&w[k].call.found.proof, &r.proof, sizeof r.proof);
            assert_true(hx_slice_eq(w[k].call.found.answer.body, r.answer.body)); /* a released answer, too */
            assert_int_equal(w[k].call.found.answer.status, 201);
        }
        assert_int_equal(peek(&b, r.op, NULL), ends[i]);
    }
    hx_store_counts counts;
    hx_store_count(b.store, &counts);
    assert_int_equal(counts.watchers, 0);
    bench_end(&b);
}

static void g7_a_watch_of_what_is_not_processing_in_its_epoch_ends_at_once(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, backend, small);
    hx_record done = complete(&b, 1, HX_COMPLETED, HX_DAY), running = record_of(2);
    assert_int_equal(claim(&b, &running, 0, NULL), OK);
    const struct {
        hx_op op;
        uint64_t epoch;
        hx_state becomes;
    } cases[] = {{done.op, done.epoch, HX_COMPLETED},
                 {running.op, running.epoch + 1, HX_PROCESSING},
                 {op_of(3), 1, HX_ABSENT}};
    for (int i = 0; i < 3; i++) {
        waited w;
        wait_start(&b, &w);
        hx_store_watch(b.store, &w.call, &cases[i].op, cases[i].epoch);
        assert_false(w.done);
        wait_for(&b, &w);
        assert_int_equal(w.call.result, OK);
        assert_int_equal(w.call.found.state, cases[i].becomes);
        assert_int_equal(w.call.found.answer.status, cases[i].becomes == HX_COMPLETED ? 201 : 0);
    }
    bench_end(&b);
}

static void g7_watchers_are_bounded_per_operation_and_in_all(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, backend, (hx_store_options){.waiters_per_op_max = 2, .waiters_max = 3});
    hx_record r[2] = {record_of(0), record_of(1)};
    waited w[2][3];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(claim(&b, &r[i], 0, NULL), OK);
        for (int k = 0; k < 3; k++) {
            wait_start(&b, &w[i][k]);
            hx_store_watch(b.store, &w[i][k].call, &r[i].op, r[i].epoch);
        }
        wait_for(&b, &w[i][2]);
        assert_int_equal(w[i][2].call.result, HX_STORE_FULL);
    }
    wait_for(&b, &w[1][1]); /* the fourth in all */
    assert_int_equal(w[1][1].call.result, HX_STORE_FULL);
    for (int i = 0; i < 2; i++) assert_int_equal(settle(&b, &r[i], HX_ABSENT, NULL), OK);
    for (int k = 0; k < 2; k++) wait_for(&b, &w[0][k]);
    wait_for(&b, &w[1][0]);
    assert_int_equal(w[1][0].call.result, OK);
    bench_end(&b);
}

static void g8_a_cancelled_watch_ends_once_and_a_late_cancel_changes_nothing(void **state)
{
    (void)state;
    bench b;
    hx_record r = record_of(1);
    waited early, parked, late;
    bench_begin(&b, backend, small);
    assert_int_equal(claim(&b, &r, 0, NULL), OK);
    wait_start(&b, &early);
    hx_store_watch(b.store, &early.call, &r.op, r.epoch);
    hx_store_cancel(b.store, &early.call); /* before it was handed over */
    assert_false(early.done);
    wait_for(&b, &early);
    assert_int_equal(early.call.result, HX_STORE_CANCELLED);
    wait_start(&b, &parked);
    wait_start(&b, &late);
    hx_store_watch(b.store, &parked.call, &r.op, r.epoch);
    hx_store_watch(b.store, &late.call, &r.op, r.epoch);
    assert_int_equal(renew(&b, r.op, r.epoch, test_now + HX_HOUR, NULL), OK);
    hx_store_cancel(b.store, &parked.call);
    hx_store_cancel(b.store, &parked.call);
    assert_false(parked.done);
    wait_for(&b, &parked);
    assert_int_equal(parked.call.result, HX_STORE_CANCELLED);
    waited outcome;
    wait_start(&b, &outcome);
    r.state = HX_FAILED;
    r.expires_at = test_now + HX_DAY;
    hx_store_settle(b.store, &outcome.call, &r);
    hx_store_cancel(b.store, &late.call); /* the outcome was first, but for a store that is far away */
    wait_for(&b, &late);
    wait_for(&b, &outcome);
    bool was_told = late.call.result == OK && late.call.found.state == HX_FAILED;
    assert_true(was_told || (hx_store_about(b.store)->shared && late.call.result == HX_STORE_CANCELLED));
    hx_store_counts counts;
    hx_store_count(b.store, &counts);
    assert_int_equal(counts.watchers, 0);
    bench_end(&b);
}

static void g8_calls_of_one_loop_take_effect_in_their_order(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, backend, small);
    for (uint64_t i = 0; i < 50; i++) {
        hx_record first = record_of(i), second = record_of(i);
        waited one, two;
        wait_start(&b, &one);
        wait_start(&b, &two);
        hx_store_claim(b.store, &one.call, &first, 0);
        hx_store_claim(b.store, &two.call, &second, 0);
        assert_false(one.done || two.done); /* never inside the call */
        wait_for(&b, &two);
        assert_true(one.done);
        assert_int_equal(one.call.result, OK);
        assert_int_equal(two.call.result, HX_STORE_EXISTS);
        assert_int_equal(two.call.found.epoch, first.epoch);
    }
    bench_end(&b);
}

static void g8_release_and_claim_again_in_one_turn(void **state)
{
    (void)state;
    bench b;
    hx_record r = record_of(1), again = record_of(1);
    waited out, in;
    bench_begin(&b, backend, small);
    assert_int_equal(claim(&b, &r, 0, NULL), OK);
    wait_start(&b, &out);
    wait_start(&b, &in);
    r.state = HX_ABSENT;
    hx_store_settle(b.store, &out.call, &r);
    hx_store_claim(b.store, &in.call, &again, 0);
    wait_for(&b, &in);
    assert_int_equal(out.call.result, OK);
    assert_int_equal(in.call.result, OK);
    assert_true(again.epoch > r.epoch);
    assert_int_equal(peek(&b, r.op, NULL), HX_PROCESSING);
    bench_end(&b);
}

static void g9_what_an_earlier_start_left_in_processing_is_unknown(void **state)
{
    (void)state;
    if (strcmp(backend, "memory") == 0) return; /* it has no earlier start */
    bench b;
    hx_record found;
    bench_begin(&b, backend, small);
    uint64_t epochs[100];
    for (uint64_t i = 0; i < 100; i++) {
        hx_record r = record_of(i);
        assert_int_equal(claim(&b, &r, 0, NULL), OK);
        epochs[i] = r.epoch;
    }
    bench_restart(&b);
    if (hx_store_about(b.store)->shared) { /* whoever claimed them may still be at work: their leases decide */
        for (uint64_t i = 0; i < 100; i++) assert_int_equal(peek(&b, op_of(i), NULL), HX_PROCESSING);
        hx_record late = record_of(50);
        late.epoch = epochs[50];
        late.expires_at = test_now + HX_DAY;
        assert_int_equal(settle(&b, &late, HX_COMPLETED, NULL), OK); /* as it is */
        test_now += 2 * HX_MINUTE;
        sweep(&b);
        for (uint64_t i = 0; i < 100; i++) {
            assert_int_equal(peek(&b, op_of(i), &found), i == 50 ? HX_COMPLETED : HX_UNKNOWN);
            assert_int_equal(found.epoch, epochs[i]);
        }
        bench_end(&b);
        return;
    }
    hx_store_counts counts;
    hx_store_count(b.store, &counts);
    assert_int_equal(counts.processing, 0);
    assert_int_equal(counts.unknown, 100);
    for (uint64_t i = 0; i < 100; i++) {
        hx_record expected = record_of(i);
        assert_int_equal(peek(&b, op_of(i), &found), HX_UNKNOWN);
        assert_int_equal(found.epoch, epochs[i]);
        assert_true(hx_slice_eq(found.reason, HX_LIT("restart")));
        assert_memory_equal(&found.fingerprint, &expected.fingerprint, sizeof found.fingerprint);
    }
    bench_end(&b);
}

static void forgetting_spares_what_is_processing_or_has_another_epoch(void **state)
{
    (void)state;
    bench b;
    hx_record found, running = record_of(1);
    bench_begin(&b, backend, small);
    assert_int_equal(claim(&b, &running, 0, NULL), OK);
    assert_int_equal(forget(&b, running.op, 0, &found), HX_STORE_STALE);
    assert_int_equal(found.state, HX_PROCESSING);
    hx_record done = complete(&b, 2, HX_COMPLETED, HX_DAY);
    assert_int_equal(forget(&b, done.op, done.epoch - 1, &found), HX_STORE_STALE);
    assert_int_equal(found.state, HX_COMPLETED);
    assert_int_equal(forget(&b, op_of(3), 0, &found), HX_STORE_STALE);
    assert_int_equal(found.state, HX_ABSENT);
    assert_int_equal(forget(&b, done.op, 0, NULL), OK);
    assert_int_equal(peek(&b, done.op, NULL), HX_ABSENT);
    bench_restart(&b);
    assert_int_equal(peek(&b, done.op, NULL), HX_ABSENT);
    bench_end(&b);
}

/* The answer of an unknown operation comes while somebody forgets what is unknown: it has the same epoch. */
static void forgetting_what_is_unknown_spares_an_answer_that_came_first(void **state)
{
    (void)state;
    bench b;
    waited settled, forgotten;
    bench_begin(&b, backend, small);
    for (int early = 0; early < 2; early++) {
        hx_record r = record_of(1 + (uint64_t)early), found;
        assert_int_equal(claim(&b, &r, 0, NULL), OK);
        assert_int_equal(settle(&b, &r, HX_UNKNOWN, NULL), OK);
        hx_record answered = r;
        answered.state = HX_COMPLETED;
        answered.expires_at = test_now + HX_DAY;
        answered.answer = (hx_answer){201, true, HX_EMPTY, HX_LIT("late")};
        wait_start(&b, &settled);
        wait_start(&b, &forgotten);
        forgotten.call.states = 1u << HX_UNKNOWN;
        if (early) hx_store_forget(b.store, &forgotten.call, &r.op, r.epoch, HX_LIT("lost"));
        hx_store_settle(b.store, &settled.call, &answered);
        if (!early) hx_store_forget(b.store, &forgotten.call, &r.op, r.epoch, HX_LIT("lost"));
        wait_for(&b, &settled);
        wait_for(&b, &forgotten);
        assert_int_equal(settled.call.result, early ? HX_STORE_STALE : OK);
        assert_int_equal(forgotten.call.result, early ? OK : HX_STORE_STALE);
        assert_int_equal(peek(&b, r.op, &found), early ? HX_ABSENT : HX_COMPLETED);
        if (!early) assert_int_equal(forgotten.call.found.state, HX_COMPLETED);
    }
    bench_end(&b);
}

static void sweeping_counts_what_it_cleaned(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, backend, small);
    for (uint64_t i = 0; i < 300; i++) complete(&b, i, i % 3 ? HX_COMPLETED : HX_FAILED, i < 200 ? HX_MINUTE : HX_DAY);
    for (uint64_t i = 300; i < 310; i++) complete(&b, i, HX_UNKNOWN, 0);
    hx_store_counts counts;
    assert_int_equal(sweep(&b), 0); /* a shared store counts when it sweeps */
    hx_store_count(b.store, &counts);
    assert_int_equal(counts.live, 310);
    test_now += HX_HOUR;
    assert_int_equal(sweep(&b), 200);
    assert_int_equal(sweep(&b), 0);
    hx_store_count(b.store, &counts);
    assert_int_equal(counts.live, 110);
    assert_int_equal(counts.unknown, 10);
    assert_int_equal(counts.cleaned, 200);
    for (uint64_t i = 0; i < 310; i++) assert_int_equal(peek(&b, op_of(i), NULL) == HX_ABSENT, i < 200);
    bench_end(&b);
}

static void large_answers_come_back_whole(void **state)
{
    (void)state;
    bench b;
    hx_record found;
    bench_begin(&b, backend, small);
    size_t sizes[] = {0, 1, 32 << 10, 60 << 10, 1 << 20, 8 << 20};
    char *body = malloc(8 << 20);
    for (size_t i = 0; i < 8u << 20; i++) body[i] = (char)(i * 31 >> 3);
    for (uint64_t i = 0; i < 6; i++) {
        hx_record r = record_of(i);
        assert_int_equal(claim(&b, &r, 0, NULL), OK);
        r.answer = (hx_answer){200, true, HX_LIT("A: b\r\n"), {body, sizes[i]}};
        r.expires_at = test_now + HX_DAY;
        assert_int_equal(settle(&b, &r, HX_COMPLETED, NULL), OK);
    }
    for (int round = 0; round < 2; round++, bench_restart(&b)) {
        for (uint64_t i = 0; i < 6; i++) {
            assert_int_equal(peek(&b, op_of(i), &found), HX_COMPLETED);
            assert_int_equal(found.answer.body.len, sizes[i]);
            assert_true(hx_slice_eq(found.answer.body, (hx_slice){body, sizes[i]}));
        }
    }
    free(body);
    bench_end(&b);
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    backend = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(g1_what_was_acknowledged_reads_back_whole_also_after_a_restart),
        cmocka_unit_test(g2_a_second_claim_sees_the_first),
        cmocka_unit_test(g2_of_claims_that_race_on_two_loops_one_wins),
        cmocka_unit_test(g3_a_stale_epoch_changes_nothing),
        cmocka_unit_test(g3_an_epoch_is_stale_after_release_expiry_and_forgetting_too),
        cmocka_unit_test(g4_epochs_grow_over_release_expiry_and_restart),
        cmocka_unit_test(g5_the_first_outcome_of_an_epoch_wins),
        cmocka_unit_test(g5_unknown_may_become_completed_failed_absent_or_be_taken_over),
        cmocka_unit_test(g6_an_expired_key_is_free_and_unknown_never_expires),
        cmocka_unit_test(g6_a_lapsed_lease_becomes_unknown_and_a_renewed_one_does_not),
        cmocka_unit_test(g6_a_tombstone_keeps_the_bare_key),
        cmocka_unit_test(g7_a_watch_ends_with_what_its_operation_became),
        cmocka_unit_test(g7_a_watch_of_what_is_not_processing_in_its_epoch_ends_at_once),
        cmocka_unit_test(g7_watchers_are_bounded_per_operation_and_in_all),
        cmocka_unit_test(g8_a_cancelled_watch_ends_once_and_a_late_cancel_changes_nothing),
        cmocka_unit_test(g8_calls_of_one_loop_take_effect_in_their_order),
        cmocka_unit_test(g8_release_and_claim_again_in_one_turn),
        cmocka_unit_test(g9_what_an_earlier_start_left_in_processing_is_unknown),
        cmocka_unit_test(forgetting_spares_what_is_processing_or_has_another_epoch),
        cmocka_unit_test(forgetting_what_is_unknown_spares_an_answer_that_came_first),
        cmocka_unit_test(sweeping_counts_what_it_cleaned),
        cmocka_unit_test(large_answers_come_back_whole),
    };
    return cmocka_run_group_tests_name(backend, tests, NULL, NULL);
}
