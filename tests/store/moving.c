/* SPDX-License-Identifier: Apache-2.0 */
/* What moving a store builds on, over every backend: records that come from another store as they are, epochs that stay
 * above theirs, and a secret that comes along. Run with the backend's name. */
#include "base/rand.h"
#include "store/harness.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

static const char *backend;
static const hx_store_options small = {.segment_bytes = 64 << 10};

#define OK HX_STORE_OK

static hx_answer answer_of(const char *body)
{
    return (hx_answer){201, true, HX_LIT("Content-Type: text/plain\r\nETag: \"1\"\r\n"), hx_slice_of(body)};
}

/* Claims and completes operation `number`. */
static hx_record complete(bench *b, uint64_t number)
{
    hx_record r = record_of(number);
    assert_int_equal(claim(b, &r, 0, NULL), OK);
    r.answer = answer_of("done");
    r.expires_at = test_now + HX_DAY;
    assert_int_equal(settle(b, &r, HX_COMPLETED, NULL), OK);
    return r;
}

static hx_store_result import(bench *b, hx_record *record, hx_record *found)
{
    waited w;
    wait_start(b, &w);
    hx_store_import(b->store, &w.call, record);
    wait_for(b, &w);
    if (found) *found = w.call.found;
    return w.call.result;
}

/* A record as another store would have it. */
static hx_record foreign(uint64_t number, hx_state state, uint64_t epoch)
{
    hx_record r = record_of(number);
    r.epoch = epoch;
    r.state = state;
    r.from_state = HX_PROCESSING;
    r.created_at -= HX_HOUR;
    r.owner = 99;
    r.key_quoted = true;
    r.result = HX_LIT("refund-17");
    r.reason = state == HX_UNKNOWN ? HX_LIT("timeout") : HX_EMPTY;
    if (state != HX_PROCESSING) r.lease_until = 0;
    if (state == HX_COMPLETED || state == HX_FAILED) {
        r.answer = answer_of("from elsewhere");
        r.expires_at = test_now + HX_DAY;
    }
    if (state == HX_EXPIRED) {
        r.expires_at = test_now - HX_HOUR;
        r.tombstone_until = test_now + HX_DAY;
    }
    return r;
}

static void assert_same_record(const hx_record *a, const hx_record *b)
{
    char bytes[2][HX_RECORD_HEAD_MAX]; /* the head has the lengths and the checksum of the answer */
    hx_buf one = {.data = bytes[0], .cap = sizeof bytes[0], .max = sizeof bytes[0]};
    hx_buf other = {.data = bytes[1], .cap = sizeof bytes[1], .max = sizeof bytes[1]};
    hx_record_encode(a, &one);
    hx_record_encode(b, &other);
    assert_int_equal(one.len, other.len);
    assert_memory_equal(one.data, other.data, one.len);
    assert_true(hx_slice_eq(a->answer.headers, b->answer.headers));
    assert_true(hx_slice_eq(a->answer.body, b->answer.body));
}

static const hx_state imported[] = {HX_COMPLETED, HX_FAILED, HX_UNKNOWN, HX_EXPIRED};

static void importing_writes_a_record_as_it_is_also_after_a_restart(void **state)
{
    (void)state;
    bench b;
    hx_record found, records[4];
    bench_begin(&b, backend, small);
    uint64_t epoch = last_epoch(&b) + 1000;
    for (uint64_t i = 0; i < 4; i++) {
        records[i] = foreign(i, imported[i], epoch - i); /* whatever their order */
        assert_int_equal(import(&b, &records[i], NULL), OK);
    }
    for (int round = 0; round < 2; round++, bench_restart(&b)) {
        for (int i = 0; i < 4; i++) {
            assert_int_equal(peek(&b, records[i].op, &found), imported[i]);
            assert_same_record(&found, &records[i]);
        }
    }
    hx_store_counts counts;
    sweep(&b); /* a shared store counts when it sweeps */
    hx_store_count(b.store, &counts);
    assert_int_equal(counts.live, 4);
    assert_int_equal(counts.unknown, 1);
    hx_record again = record_of(0);
    assert_int_equal(claim(&b, &again, 0, &found), HX_STORE_EXISTS);
    assert_same_record(&found, &records[0]);
    hx_record answered = records[2]; /* an unknown one goes on as if it had become so here */
    answered.answer = answer_of("late");
    answered.expires_at = test_now + HX_DAY;
    assert_int_equal(settle(&b, &answered, HX_COMPLETED, NULL), OK);
    assert_int_equal(settle(&b, &records[0], HX_FAILED, NULL), HX_STORE_STALE);
    bench_end(&b);
}

static void importing_over_what_stands_there_changes_nothing(void **state)
{
    (void)state;
    bench b;
    hx_record found, before;
    bench_begin(&b, backend, small);
    hx_record done = complete(&b, 1), running = record_of(2);
    assert_int_equal(claim(&b, &running, 0, NULL), OK);
    uint64_t epoch = last_epoch(&b) + 1000;
    assert_int_equal(peek(&b, done.op, &before), HX_COMPLETED);
    for (uint64_t i = 0; i < 4; i++) { /* of a later, an earlier and the same epoch */
        hx_record r = foreign(1, imported[i], i == 3 ? done.epoch : i == 2 ? 1 : epoch + i);
        assert_int_equal(import(&b, &r, &found), HX_STORE_EXISTS);
        assert_same_record(&found, &before);
        hx_record other = foreign(2, imported[i], epoch + i);
        assert_int_equal(import(&b, &other, &found), HX_STORE_EXISTS);
        assert_int_equal(found.state, HX_PROCESSING);
        assert_int_equal(found.epoch, running.epoch);
    }
    hx_record nothing = foreign(1, HX_ABSENT, epoch + 10); /* an absence raises the epochs all the same */
    assert_int_equal(import(&b, &nothing, &found), HX_STORE_EXISTS);
    assert_same_record(&found, &before);
    assert_true(last_epoch(&b) >= epoch + 10);
    running.answer = answer_of("its own");
    running.expires_at = test_now + HX_DAY;
    assert_int_equal(settle(&b, &running, HX_COMPLETED, NULL), OK);
    assert_int_equal(peek(&b, done.op, &found), HX_COMPLETED);
    assert_same_record(&found, &before);
    test_now += 2 * HX_DAY; /* what is over stands there no more */
    hx_record r = foreign(1, HX_UNKNOWN, last_epoch(&b) + 1);
    assert_int_equal(import(&b, &r, NULL), OK);
    assert_int_equal(peek(&b, r.op, NULL), HX_UNKNOWN);
    bench_end(&b);
}

static void g4_epochs_are_drawn_above_what_was_imported(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, backend, small);
    uint64_t last = last_epoch(&b);
    for (uint64_t round = 0; round < 4; round++) {
        hx_record r = round % 2 ? foreign(1000, HX_ABSENT, last + 5000) : foreign(round, HX_COMPLETED, last + 5000);
        assert_int_equal(import(&b, &r, NULL), OK);
        if (round % 2) assert_int_equal(peek(&b, r.op, NULL), HX_ABSENT);
        assert_true(last_epoch(&b) >= r.epoch);
        if (round >= 2) bench_restart(&b); /* before anything else was written */
        assert_true(last_epoch(&b) >= r.epoch);
        hx_record next = record_of(100 + round);
        assert_int_equal(claim(&b, &next, 0, NULL), OK);
        assert_true(next.epoch > r.epoch);
        last = last_epoch(&b);
        assert_true(last >= next.epoch);
        hx_record earlier = foreign(200 + round, HX_FAILED, 1 + round); /* doesn't bring them down again */
        assert_int_equal(import(&b, &earlier, NULL), OK);
        assert_true(last_epoch(&b) >= last);
    }
    hx_store_counts counts;
    sweep(&b); /* a shared store counts when it sweeps */
    hx_store_count(b.store, &counts);
    assert_int_equal(counts.live + counts.processing, 2 + 4 + 4);
    bench_end(&b);
}

#define MANY 500

static void many_imports_at_once_all_arrive(void **state)
{
    (void)state;
    bench b;
    hx_record found;
    bench_begin(&b, backend, small);
    waited *calls = calloc(MANY, sizeof *calls);
    hx_record *records = calloc(MANY, sizeof *records);
    static char large[100 << 10];
    memset(large, 'x', sizeof large);
    for (uint64_t i = 0; i < MANY; i++) {
        records[i] = foreign(i, i % 7 ? HX_COMPLETED : HX_UNKNOWN, 1 + i);
        if (i % 50 == 1) records[i].answer.body = (hx_slice){large, sizeof large};
        wait_start(&b, &calls[i]);
        hx_store_import(b.store, &calls[i].call, &records[i]);
    }
    for (uint64_t i = 0; i < MANY; i++) {
        wait_for(&b, &calls[i]);
        assert_int_equal(calls[i].call.result, OK);
    }
    bench_restart(&b);
    for (uint64_t i = 0; i < MANY; i++) {
        assert_int_equal(peek(&b, op_of(i), &found), records[i].state);
        assert_same_record(&found, &records[i]);
    }
    free(calls);
    free(records);
    bench_end(&b);
}

static void a_store_is_made_with_the_secret_that_was_given(void **state)
{
    (void)state;
    bench b;
    uint8_t secret[32];
    hx_rand_bytes(secret, sizeof secret);
    hx_store_options options = small;
    hx_record found, mark = foreign(1, HX_UNKNOWN, 1000);
    options.secret = secret;
    options.unfinished = &mark;
    bench_begin(&b, backend, options);
    for (int round = 0; round < 2; round++, bench_restart(&b)) {
        assert_memory_equal(hx_store_about(b.store)->secret, secret, sizeof secret);
        if (strcmp(backend, "memory") == 0) continue;
        assert_int_equal(peek(&b, mark.op, &found), HX_UNKNOWN); /* it came with it */
        assert_same_record(&found, &mark);
    }
    b.options.secret = NULL; /* whoever brings none takes the store's */
    b.options.unfinished = NULL;
    bench_restart(&b);
    assert_memory_equal(hx_store_about(b.store)->secret, secret, sizeof secret);
    bench_end(&b);
}

static void an_imported_claim_lives_by_its_own_lease(void **state)
{
    (void)state;
    bench b;
    hx_record found, answered = foreign(1, HX_PROCESSING, 10), left = foreign(2, HX_PROCESSING, 11);
    bench_begin(&b, backend, small);
    assert_int_equal(import(&b, &answered, NULL), OK);
    assert_int_equal(import(&b, &left, NULL), OK);
    assert_int_equal(peek(&b, left.op, &found), HX_PROCESSING);
    assert_int_equal(found.lease_until, left.lease_until);
    answered.answer = answer_of("done");
    answered.expires_at = test_now + HX_DAY;
    assert_int_equal(settle(&b, &answered, HX_COMPLETED, NULL), OK);
    test_now += 2 * HX_MINUTE;
    sweep(&b);
    assert_int_equal(peek(&b, answered.op, NULL), HX_COMPLETED);
    assert_int_equal(peek(&b, left.op, &found), HX_UNKNOWN);
    assert_int_equal(found.epoch, left.epoch);
    bench_end(&b);
}

/* The journal's own: there is a store, and it has another. */
static void a_journal_with_another_secret_is_not_opened(void **state)
{
    (void)state;
    bench b;
    char url[128], error[sizeof(hx_error_text)] = "";
    uint8_t secret[32] = {1};
    if (strcmp(backend, "journal") != 0) skip();
    bench_begin(&b, backend, small);
    hx_record done = complete(&b, 1);
    hx_store_close(&b.store);
    hx_store_options options = b.options;
    options.secret = secret;
    (void)snprintf(url, sizeof url, "journal:%s", b.directory);
    assert_null(hx_store_open(hx_slice_of(url), &options, error));
    assert_non_null(strstr(error, "another secret"));
    assert_non_null(strstr(error, b.directory));
    hx_loop_free(&b.loop);
    bench_open(&b);
    assert_int_equal(peek(&b, done.op, NULL), HX_COMPLETED);
    bench_end(&b);
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    backend = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(importing_writes_a_record_as_it_is_also_after_a_restart),
        cmocka_unit_test(importing_over_what_stands_there_changes_nothing),
        cmocka_unit_test(an_imported_claim_lives_by_its_own_lease),
        cmocka_unit_test(g4_epochs_are_drawn_above_what_was_imported),
        cmocka_unit_test(many_imports_at_once_all_arrive),
        cmocka_unit_test(a_store_is_made_with_the_secret_that_was_given),
        cmocka_unit_test(a_journal_with_another_secret_is_not_opened),
    };
    return cmocka_run_group_tests_name(backend, tests, NULL, NULL);
}
