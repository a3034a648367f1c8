/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes and rounds (store/remote/lane.h) over a driver that is played by the test: what is sent together, what is sent
 * again, and what a failure means for a call. */
#include "store/harness.h"

#include "base/log.h"
#include "store/remote/lane.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

/* The server: it answers when the test says so. */

#define ROWS_MAX HX_ROUND_CALLS_MAX

struct hx_remote_result {
    hx_remote_verdict rows[ROWS_MAX];
    size_t count;
    hx_refusal refusal;
};

typedef struct {
    hx_lane lane;
    const hx_statement *sent;
    size_t count;
    unsigned connections;
} played_lane;

static unsigned results; /* that are not freed */

static void play_connect(hx_lane *lane)
{
    played_lane *own = (played_lane *)lane;
    if (lane != lane->store->loops[0].lanes[0]) return; /* the other lane never connects */
    own->connections++;
    hx_lane_connected(lane);
}

static void play_disconnect(hx_lane *lane)
{
    ((played_lane *)lane)->count = 0;
}

static void play_send(hx_lane *lane, const hx_statement *statements, size_t count)
{
    played_lane *own = (played_lane *)lane;
    own->sent = statements;
    own->count = count;
}

static hx_refusal play_classify(const hx_lane *lane, const hx_remote_result *error)
{
    (void)lane;
    return error ? error->refusal : (hx_refusal){.message = "", .hint = ""};
}

static size_t play_row_count(const hx_lane *lane, const hx_remote_result *result)
{
    (void)lane;
    return result->count;
}

static hx_remote_verdict play_verdict(const hx_lane *lane, const hx_remote_result *result, size_t row)
{
    (void)lane;
    return result->rows[row];
}

static bool play_record(const hx_lane *lane, const hx_remote_result *result, size_t row, hx_ms now, hx_arena *arena,
                        hx_record *out)
{
    (void)lane, (void)result, (void)row, (void)now, (void)arena, (void)out;
    return false;
}

static int64_t play_number(const hx_lane *lane, const hx_remote_result *result, size_t row, unsigned column)
{
    const hx_remote_verdict *v = &result->rows[row];
    const int64_t columns[] = {(int64_t)v->place + 1, (int64_t)v->result, (int64_t)v->epoch};
    (void)lane;
    return column < 3 ? columns[column] : (int64_t)v->place + 1;
}

static hx_slice play_text(const hx_lane *lane, const hx_remote_result *result, size_t row, unsigned column)
{
    (void)lane, (void)result, (void)row, (void)column;
    return HX_EMPTY;
}

static void play_free_result(const hx_lane *lane, hx_remote_result *result)
{
    (void)lane;
    if (result) results--;
    free(result);
}

static const hx_driver driver = {.lane_bytes = sizeof(played_lane),
                                 .connect = play_connect,
                                 .disconnect = play_disconnect,
                                 .send = play_send,
                                 .classify = play_classify,
                                 .row_count = play_row_count,
                                 .verdict = play_verdict,
                                 .record = play_record,
                                 .number = play_number,
                                 .text = play_text,
                                 .free_result = play_free_result};

/* A store on it, whose first lane has been set up. */
typedef struct {
    hx_remote remote;
    bench b;
    played_lane *own;
} stage;

static hx_remote_result *new_result(void)
{
    hx_remote_result *result = calloc(1, sizeof *result);
    assert_non_null(result);
    results++;
    return result;
}

/* Reports a statement's result: a row for each call, or for each but the first. */
static void report(stage *s, const hx_statement *statement, bool without_first, hx_remote_verdict row)
{
    hx_remote_result *result = new_result();
    for (size_t i = without_first ? 1 : 0; i < statement->count; i++) {
        row.place = i;
        result->rows[result->count++] = row;
    }
    hx_lane_result(&s->own->lane, result, false);
    hx_lane_statement_end(&s->own->lane);
}

/* Answers everything that was sent: done. */
static void answer(stage *s)
{
    const hx_statement *sent = s->own->sent;
    size_t count = s->own->count;
    s->own->count = 0;
    for (size_t i = 0; i < count; i++) {
        bool ends_transaction = sent[i].ends_transaction;
        report(s, &sent[i], false, (hx_remote_verdict){.result = HX_STORE_OK, .epoch = 7});
        if (ends_transaction) hx_lane_committed(&s->own->lane);
    }
}

/* Refuses the transaction that was sent. */
static void refuse(stage *s, hx_refusal refusal)
{
    size_t count = s->own->count;
    s->own->count = 0;
    for (size_t i = 0; i < count; i++) {
        hx_remote_result *result = new_result();
        result->refusal = refusal;
        hx_lane_result(&s->own->lane, result, true);
        hx_lane_statement_end(&s->own->lane);
    }
    hx_lane_committed(&s->own->lane);
}

static void wait_for_round(stage *s)
{
    int64_t began = hx_clock_mono_ns();
    while (s->own->count == 0) {
        hx_loop_turn(s->b.loop, 10);
        assert_true(hx_clock_mono_ns() - began < INT64_C(20000000000)); /* a lane that has nothing to send */
    }
}

static void stage_begin(stage *s)
{
    static const hx_store_ops ops = {.submit = hx_remote_submit, .cancel = hx_remote_cancel, .peek = hx_remote_peek};
    *s = (stage){0};
    hx_store_options options = {.now = test_clock};
    hx_remote_init(&s->remote, &ops, &driver, "played", &options);
    s->b.store = &s->remote.store;
    s->b.loop = hx_loop_new();
    hx_remote_attach(s->b.store, s->b.loop);
    s->own = (played_lane *)s->remote.loops[0].lanes[0];
    s->own->lane.is_listener = false;
    wait_for_round(s);
    assert_int_equal(s->own->count, 1);
    assert_int_equal(s->own->sent[0].kind, HX_STATEMENT_SETUP);
    answer(s);
}

static void stage_end(stage *s)
{
    hx_remote_free(&s->remote);
    assert_int_equal(results, 0);
    hx_loop_free(&s->b.loop);
    hx_arena_free(&s->b.arena);
}

static void start_claim(stage *s, waited *w, hx_record *record, uint64_t number)
{
    *record = record_of(number);
    wait_start(&s->b, w);
    hx_store_claim(s->b.store, &w->call, record, 0);
}

static void assert_sent(const stage *s, size_t at, hx_statement_kind kind, size_t calls, bool ends_transaction)
{
    assert_true(at < s->own->count);
    assert_int_equal(s->own->sent[at].kind, kind);
    assert_int_equal(s->own->sent[at].count, calls);
    assert_int_equal(s->own->sent[at].ends_transaction, ends_transaction);
}

static void calls_that_wait_are_one_statement_of_each_kind_and_one_transaction(void **state)
{
    (void)state;
    stage s;
    stage_begin(&s);
    waited w[5];
    hx_record records[5];
    wait_start(&s.b, &w[0]);
    hx_store_read(s.b.store, &w[0].call, &(hx_op){{1}});
    records[1] = record_of(1);
    records[1].state = HX_UNKNOWN;
    wait_start(&s.b, &w[1]);
    hx_store_settle(s.b.store, &w[1].call, &records[1]);
    start_claim(&s, &w[2], &records[2], 2);
    start_claim(&s, &w[3], &records[3], 3);
    hx_op renewed = op_of(4);
    wait_start(&s.b, &w[4]);
    hx_store_renew(s.b.store, &w[4].call, &renewed, 1, test_now + HX_MINUTE);
    wait_for_round(&s);
    assert_int_equal(s.own->count, 4);
    assert_sent(&s, 0, HX_STATEMENT_CLAIM, 2, false);
    assert_sent(&s, 1, HX_STATEMENT_RENEW, 1, false);
    assert_sent(&s, 2, HX_STATEMENT_SETTLE, 1, true);
    assert_sent(&s, 3, HX_STATEMENT_READ, 1, true);
    hx_loop_turn(s.b.loop, 10);
    for (size_t i = 0; i < 5; i++) assert_false(w[i].done);
    answer(&s);
    for (size_t i = 0; i < 5; i++) assert_true(w[i].done && w[i].call.result == HX_STORE_OK);
    assert_int_equal(records[2].epoch, 7);
    stage_end(&s);
}

static void calls_about_one_operation_go_one_after_the_other(void **state)
{
    (void)state;
    stage s;
    stage_begin(&s);
    waited first, second;
    hx_record claimed, settled = record_of(1);
    settled.state = HX_UNKNOWN;
    start_claim(&s, &first, &claimed, 1);
    wait_start(&s.b, &second);
    hx_store_settle(s.b.store, &second.call, &settled);
    wait_for_round(&s);
    assert_int_equal(s.own->count, 1);
    assert_sent(&s, 0, HX_STATEMENT_CLAIM, 1, true);
    answer(&s);
    assert_true(first.done && !second.done);
    wait_for_round(&s);
    assert_sent(&s, 0, HX_STATEMENT_SETTLE, 1, true);
    answer(&s);
    assert_true(second.done);
    stage_end(&s);
}

static void a_call_without_a_verdict_is_sent_again(void **state)
{
    (void)state;
    stage s;
    stage_begin(&s);
    waited w[2];
    hx_record records[2];
    for (uint64_t i = 0; i < 2; i++) start_claim(&s, &w[i], &records[i], i);
    wait_for_round(&s);
    s.own->count = 0;
    report(&s, s.own->sent, true, (hx_remote_verdict){.result = HX_STORE_OK});
    hx_lane_committed(&s.own->lane);
    assert_true(!w[0].done && w[1].done);
    wait_for_round(&s);
    assert_ptr_equal(s.own->sent[0].calls[0], &w[0].call);
    s.own->count = 0;
    report(&s, s.own->sent, false, (hx_remote_verdict){.is_excess = true}); /* too much for one round */
    hx_lane_committed(&s.own->lane);
    assert_false(w[0].done);
    wait_for_round(&s);
    answer(&s);
    assert_true(w[0].done && w[0].call.result == HX_STORE_OK);
    stage_end(&s);
}

static void calls_of_a_refused_transaction_are_sent_alone(void **state)
{
    (void)state;
    stage s;
    stage_begin(&s);
    waited w[3];
    hx_record records[3];
    for (uint64_t i = 0; i < 3; i++) start_claim(&s, &w[i], &records[i], i);
    wait_for_round(&s);
    refuse(&s, (hx_refusal){HX_REFUSED_FOR_GOOD, "no", "see"});
    for (size_t i = 0; i < 3; i++) assert_false(w[i].done);
    wait_for_round(&s);
    assert_int_equal(s.own->count, 3);
    for (size_t i = 0; i < 3; i++) assert_sent(&s, i, HX_STATEMENT_CLAIM, 1, true);
    const hx_statement *sent = s.own->sent;
    s.own->count = 0;
    const hx_refusal refusals[] = {{HX_REFUSED_AS_FULL, "full", "see"}, {HX_REFUSED_FOR_NOW, "later", "see"}};
    for (size_t i = 0; i < 2; i++) {
        hx_remote_result *result = new_result();
        result->refusal = refusals[i];
        hx_lane_result(&s.own->lane, result, true);
        hx_lane_statement_end(&s.own->lane);
        hx_lane_committed(&s.own->lane);
    }
    report(&s, &sent[2], false, (hx_remote_verdict){.result = HX_STORE_OK});
    hx_lane_committed(&s.own->lane);
    assert_true(w[0].done && w[0].call.result == HX_STORE_FULL);
    assert_false(w[1].done);
    assert_true(w[2].done && w[2].call.result == HX_STORE_OK);
    assert_int_equal(s.own->lane.abandoned_count, 0); /* a refusal is certain */
    wait_for_round(&s);
    assert_ptr_equal(s.own->sent[0].calls[0], &w[1].call);
    answer(&s);
    assert_true(w[1].done);
    stage_end(&s);
}

static bool is_sent(const stage *s, const waited *w)
{
    for (size_t i = 0; i < s->own->count; i++)
        for (size_t k = 0; k < s->own->sent[i].count; k++)
            if (s->own->sent[i].calls[k] == &w->call) return true;
    return false;
}

static void refuse_for_now(stage *s)
{
    hx_remote_result *result = new_result();
    result->refusal = (hx_refusal){HX_REFUSED_FOR_NOW, "later", "see"};
    hx_lane_result(&s->own->lane, result, true);
    hx_lane_statement_end(&s->own->lane);
    hx_lane_committed(&s->own->lane);
}

/* A release is sent, and has to be sent again. Meanwhile the operation is claimed: were the claim sent first, it would
 * find the operation where the release has yet to come. */
static void a_call_that_is_sent_again_goes_before_later_ones_on_its_operation(void **state)
{
    (void)state;
    enum { REFUSED, REFUSED_TWICE, LOCKED, TOO_LARGE, WAYS };
    for (int way = 0; way < WAYS; way++) {
        stage s;
        waited release, other, claim_again;
        hx_record released = record_of(1), records[2];
        stage_begin(&s);
        released.state = HX_ABSENT;
        wait_start(&s.b, &release);
        hx_store_settle(s.b.store, &release.call, &released);
        if (way <= REFUSED_TWICE) start_claim(&s, &other, &records[0], 2);
        wait_for_round(&s);
        start_claim(&s, &claim_again, &records[1], 1);
        if (way <= REFUSED_TWICE) {
            refuse(&s, (hx_refusal){HX_REFUSED_FOR_GOOD, "no", "see"});
        } else {
            s.own->count = 0;
            report(&s, s.own->sent, way == LOCKED, (hx_remote_verdict){.is_excess = true});
            hx_lane_committed(&s.own->lane);
        }
        wait_for_round(&s);
        assert_true(is_sent(&s, &release) && !is_sent(&s, &claim_again));
        if (way == REFUSED_TWICE) {
            assert_sent(&s, 1, HX_STATEMENT_SETTLE, 1, true);
            s.own->count = 0;
            report(&s, s.own->sent, false, (hx_remote_verdict){.result = HX_STORE_OK});
            hx_lane_committed(&s.own->lane);
            refuse_for_now(&s);
            wait_for_round(&s);
            assert_true(is_sent(&s, &release) && !is_sent(&s, &claim_again));
        }
        answer(&s);
        assert_true(release.done && !claim_again.done);
        wait_for_round(&s);
        answer(&s);
        assert_true(claim_again.done);
        stage_end(&s);
    }
}

/* An application may lock many rows for long. */
static void however_many_calls_are_delayed_others_go_on(void **state)
{
    (void)state;
    enum { COUNT = HX_ROUND_CALLS_MAX };
    static waited locked[COUNT];
    static hx_record records[COUNT];
    stage s;
    waited other;
    hx_record claimed;
    stage_begin(&s);
    for (uint64_t i = 0; i < COUNT; i++) {
        records[i] = record_of(i);
        records[i].state = HX_UNKNOWN;
        wait_start(&s.b, &locked[i]);
        hx_store_settle(s.b.store, &locked[i].call, &records[i]);
    }
    wait_for_round(&s);
    assert_sent(&s, 0, HX_STATEMENT_SETTLE, COUNT, true);
    for (int round = 0; round < 5; round++) { /* the fifth round begins with the first call again */
        s.own->count = 0;
        hx_lane_result(&s.own->lane, new_result(), false);
        hx_lane_statement_end(&s.own->lane);
        hx_lane_committed(&s.own->lane);
        wait_for_round(&s);
        assert_sent(&s, 0, HX_STATEMENT_SETTLE, COUNT / 4, true);
        assert_int_equal(is_sent(&s, &locked[0]), round % 4 == 0);
    }
    start_claim(&s, &other, &claimed, COUNT);
    answer(&s);
    while (!other.done) {
        wait_for_round(&s);
        assert_true(is_sent(&s, &other)); /* in the next round */
        answer(&s);
    }
    for (uint64_t i = 0; i < COUNT; i++)
        while (!locked[i].done) {
            wait_for_round(&s);
            answer(&s);
        }
    stage_end(&s);
}

static void what_is_in_doubt_is_sent_again_first_and_with_its_ticket(void **state)
{
    (void)state;
    stage s;
    stage_begin(&s);
    waited w[3];
    hx_record records[3];
    start_claim(&s, &w[0], &records[0], 0);
    wait_for_round(&s);
    answer(&s); /* the connection has worked */
    start_claim(&s, &w[1], &records[1], 1);
    uint64_t ticket = w[1].call.own.remote.ticket;
    wait_for_round(&s);
    start_claim(&s, &w[2], &records[2], 2);
    hx_lane_fail(&s.own->lane, "cut", NULL);
    assert_false(w[1].done);
    wait_for_round(&s);
    assert_int_equal(s.own->connections, 2);
    assert_sent(&s, 0, HX_STATEMENT_SETUP, 0, true);
    answer(&s);
    wait_for_round(&s);
    assert_sent(&s, 0, HX_STATEMENT_CLAIM, 2, true);
    assert_ptr_equal(s.own->sent[0].calls[0], &w[1].call);
    assert_int_equal(w[1].call.own.remote.ticket, ticket);
    answer(&s);
    assert_true(w[1].done && w[2].done);
    stage_end(&s);
}

static void a_claim_that_ends_in_doubt_is_abandoned_and_one_that_was_never_sent_is_not(void **state)
{
    (void)state;
    stage s;
    stage_begin(&s);
    waited sent, unsent, later;
    hx_record records[3];
    start_claim(&s, &sent, &records[0], 1);
    uint64_t ticket = sent.call.own.remote.ticket;
    wait_for_round(&s);
    hx_lane_fail(&s.own->lane, "cut", NULL); /* in the first round of a connection: as if it could not be made */
    start_claim(&s, &unsent, &records[1], 2);
    hx_loop_turn(s.b.loop, 0);
    assert_true(sent.done && sent.call.result == HX_STORE_UNAVAILABLE);
    assert_true(unsent.done && unsent.call.result == HX_STORE_UNAVAILABLE);
    wait_for_round(&s);
    answer(&s); /* SETUP */
    wait_for_round(&s);
    assert_int_equal(s.own->count, 1);
    assert_sent(&s, 0, HX_STATEMENT_ABANDON, 0, true);
    assert_int_equal(s.own->lane.round.abandoned, 1);
    assert_true(hx_op_eq(&s.own->lane.abandoned[0].op, &records[0].op));
    assert_int_equal(s.own->lane.abandoned[0].ticket, ticket);
    hx_remote_result *released = new_result();
    released->count = 1;
    s.own->count = 0;
    hx_lane_result(&s.own->lane, released, false);
    hx_lane_statement_end(&s.own->lane);
    hx_lane_committed(&s.own->lane);
    assert_int_equal(s.own->lane.abandoned_count, 0);
    start_claim(&s, &later, &records[2], 3);
    wait_for_round(&s);
    answer(&s);
    assert_true(later.done && later.call.result == HX_STORE_OK);
    stage_end(&s);
}

static void behind_a_pooler_one_transaction_is_sent_at_a_time(void **state)
{
    (void)state;
    stage s;
    stage_begin(&s);
    s.remote.is_pooled = true;
    waited w[2];
    hx_record record;
    hx_op op = op_of(9);
    start_claim(&s, &w[0], &record, 1);
    wait_start(&s.b, &w[1]);
    hx_store_read(s.b.store, &w[1].call, &op);
    wait_for_round(&s);
    assert_int_equal(s.own->count, 1);
    assert_sent(&s, 0, HX_STATEMENT_CLAIM, 1, true);
    answer(&s);
    assert_true(w[0].done && !w[1].done);
    assert_int_equal(s.own->count, 1); /* in the same round */
    assert_sent(&s, 0, HX_STATEMENT_READ, 1, true);
    answer(&s);
    assert_true(w[1].done);
    stage_end(&s);
}

/* Calls about items */

typedef struct {
    waited w;
    hx_item items[3];
    size_t count;
    hx_item_page page;
} item_call;

/* A commit or get of the items whose keys are the letters of `keys`. */
static void start_items(stage *s, item_call *c, hx_store_verb verb, const char *keys, bool urgent)
{
    wait_start(&s->b, &c->w);
    for (c->count = 0; keys[c->count]; c->count++) c->items[c->count] = (hx_item){.key = {&keys[c->count], 1}};
    if (verb == HX_STORE_COMMIT)
        hx_store_commit(s->b.store, &c->w.call, c->items, c->count, urgent);
    else
        hx_store_get(s->b.store, &c->w.call, c->items, c->count);
}

static void start_scan(stage *s, item_call *c)
{
    wait_start(&s->b, &c->w);
    c->page = (hx_item_page){.items_max = 1};
    hx_store_scan(s->b.store, &c->w.call, &c->page);
}

static void commits_of_different_keys_go_together_and_all_others_wait_in_their_order(void **state)
{
    (void)state;
    stage s;
    stage_begin(&s);
    static item_call calls[8];
    const char *const keys[] = {"ab", "c", "da", "e"};
    for (size_t i = 0; i < 4; i++) start_items(&s, &calls[i], HX_STORE_COMMIT, keys[i], false);
    start_items(&s, &calls[4], HX_STORE_GET, "a", false);
    start_scan(&s, &calls[5]);
    start_items(&s, &calls[6], HX_STORE_GET, "xe", false);
    start_items(&s, &calls[7], HX_STORE_COMMIT, "f", false);
    wait_for_round(&s);
    assert_int_equal(s.own->count, 1);
    assert_sent(&s, 0, HX_STATEMENT_COMMIT, 2, true); /* the third has a key of the first */
    answer(&s);
    assert_true(calls[0].w.done && calls[1].w.done && !calls[2].w.done);
    assert_int_equal(calls[0].w.call.version, 7);
    wait_for_round(&s);
    assert_int_equal(s.own->count, 1);
    assert_sent(&s, 0, HX_STATEMENT_COMMIT, 2, true);
    answer(&s);
    assert_true(calls[3].w.done);
    wait_for_round(&s);
    assert_int_equal(s.own->count, 2);
    assert_sent(&s, 0, HX_STATEMENT_GET, 2, true);
    assert_sent(&s, 1, HX_STATEMENT_SCAN, 1, true);
    answer(&s);
    assert_true(calls[4].w.done && calls[5].w.done && calls[6].w.done && !calls[7].w.done);
    wait_for_round(&s);
    assert_sent(&s, 0, HX_STATEMENT_COMMIT, 1, true);
    answer(&s);
    assert_true(calls[7].w.done);
    stage_end(&s);
}

static void a_round_carries_no_more_than_one_large_commit(void **state)
{
    (void)state;
    stage s;
    stage_begin(&s);
    static item_call calls[3];
    static char body[3 << 20];
    const char *const keys[] = {"a", "b", "c"};
    for (size_t i = 0; i < 3; i++) {
        calls[i].items[0] = (hx_item){.key = hx_slice_of(keys[i]), .body = {body, i < 2 ? sizeof body : 10}};
        wait_start(&s.b, &calls[i].w);
        hx_store_commit(s.b.store, &calls[i].w.call, calls[i].items, 1, false);
    }
    for (size_t calls_in_round = 1; calls_in_round <= 2; calls_in_round++) {
        wait_for_round(&s);
        assert_sent(&s, 0, HX_STATEMENT_COMMIT, calls_in_round, true);
        answer(&s);
    }
    assert_true(calls[2].w.done);
    stage_end(&s);
}

/* Commits can't be decided, or are refused: what came after them waits. */
static void a_commit_that_is_sent_again_goes_before_later_calls_about_items(void **state)
{
    (void)state;
    enum { UNDECIDED, REFUSED, REFUSED_FOR_NOW, WAYS };
    for (int way = 0; way < WAYS; way++) {
        stage s;
        static item_call calls[3], later;
        const char *const keys[] = {"a", "b", "c"};
        stage_begin(&s);
        for (size_t i = 0; i < 3; i++) start_items(&s, &calls[i], HX_STORE_COMMIT, keys[i], false);
        wait_for_round(&s);
        start_items(&s, &later, HX_STORE_GET, "b", false);
        if (way == UNDECIDED) {
            s.own->count = 0;
            hx_lane_result(&s.own->lane, new_result(), false);
            hx_lane_statement_end(&s.own->lane);
            hx_lane_committed(&s.own->lane);
            wait_for_round(&s);
            assert_sent(&s, 0, HX_STATEMENT_COMMIT, 3, true);
            for (size_t i = 0; i < 3; i++) assert_ptr_equal(s.own->sent[0].calls[i], &calls[i].w.call);
            answer(&s);
        } else {
            refuse(&s, (hx_refusal){HX_REFUSED_FOR_GOOD, "no", "see"});
            for (size_t i = 0; i < 3; i++) { /* each alone in its round */
                wait_for_round(&s);
                assert_int_equal(s.own->count, 1);
                assert_ptr_equal(s.own->sent[0].calls[0], &calls[i].w.call);
                if (way == REFUSED_FOR_NOW && i == 1) {
                    s.own->count = 0;
                    refuse_for_now(&s);
                    wait_for_round(&s);
                    assert_int_equal(s.own->count, 1);
                    assert_ptr_equal(s.own->sent[0].calls[0], &calls[i].w.call);
                }
                answer(&s);
            }
        }
        for (size_t i = 0; i < 3; i++) assert_true(calls[i].w.done && calls[i].w.call.result == HX_STORE_OK);
        assert_false(later.w.done);
        wait_for_round(&s);
        answer(&s);
        assert_true(later.w.done);
        stage_end(&s);
    }
}

static void a_commit_on_a_full_disk_ends_full_only_if_it_certainly_was_not_made(void **state)
{
    (void)state;
    enum { NEW, URGENT, IN_DOUBT, WAYS };
    for (int way = 0; way < WAYS; way++) {
        stage s;
        waited first;
        hx_record record;
        item_call c;
        stage_begin(&s);
        start_claim(&s, &first, &record, 1);
        wait_for_round(&s);
        answer(&s); /* the connection has worked */
        start_items(&s, &c, HX_STORE_COMMIT, "a", way == URGENT);
        wait_for_round(&s);
        if (way == IN_DOUBT) {
            hx_lane_fail(&s.own->lane, "cut", NULL);
            wait_for_round(&s);
            answer(&s); /* SETUP */
            wait_for_round(&s);
        }
        refuse(&s, (hx_refusal){HX_REFUSED_AS_FULL, "full", "see"});
        assert_true(c.w.done);
        assert_int_equal(c.w.call.result, way == NEW ? HX_STORE_FULL : HX_STORE_UNAVAILABLE);
        stage_end(&s);
    }
}

static hx_log_event logged[8]; /* about the server */
static size_t logged_count;

static void keep(const char *line, size_t len, hx_log_level level)
{
    const hx_log_event known[] = {HX_EVENT_server_connection_lost, HX_EVENT_server_unreachable,
                                  HX_EVENT_server_unusable, HX_EVENT_server_usable};
    char text[1024];
    (void)level;
    (void)snprintf(text, sizeof text, "%.*s", (int)len, line);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!strstr(text, hx_log_about(known[i])->message)) continue;
        assert_true(logged_count < sizeof logged / sizeof *logged);
        logged[logged_count++] = known[i];
        assert_int_equal(strstr(text, "\"hint\"") != NULL, known[i] == HX_EVENT_server_unreachable);
    }
}

/* Until SETUP is sent on the next one. */
static void end_connection(stage *s, const char *unusable)
{
    s->own->lane.failures = 0; /* the next one comes soon */
    if (unusable)
        hx_lane_unusable(&s->own->lane, unusable);
    else
        hx_lane_fail(&s->own->lane, "cut", NULL);
    wait_for_round(s);
}

static void that_no_server_is_reached_and_that_one_is_unusable_are_each_logged_until_one_works(void **state)
{
    (void)state;
    stage s;
    stage_begin(&s);
    hx_timer_stop(s.b.loop, &s.remote.loops[0].lanes[1]->timer); /* which would find out, too, after a while */
    hx_log_to(keep);
    end_connection(&s, NULL);
    end_connection(&s, NULL); /* before it was checked */
    end_connection(&s, "another version");
    end_connection(&s, "another version");
    end_connection(&s, NULL);
    answer(&s); /* SETUP */
    end_connection(&s, NULL);
    end_connection(&s, "another version");
    hx_log_to(NULL);
    const hx_log_event expected[] = {HX_EVENT_server_connection_lost, HX_EVENT_server_unreachable,
                                     HX_EVENT_server_unusable,        HX_EVENT_server_usable,
                                     HX_EVENT_server_connection_lost, HX_EVENT_server_unusable};
    assert_int_equal(logged_count, sizeof expected / sizeof *expected);
    assert_memory_equal(logged, expected, sizeof expected);
    stage_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_wait_are_one_statement_of_each_kind_and_one_transaction),
        cmocka_unit_test(calls_about_one_operation_go_one_after_the_other),
        cmocka_unit_test(a_call_without_a_verdict_is_sent_again),
        cmocka_unit_test(calls_of_a_refused_transaction_are_sent_alone),
        cmocka_unit_test(a_call_that_is_sent_again_goes_before_later_ones_on_its_operation),
        cmocka_unit_test(however_many_calls_are_delayed_others_go_on),
        cmocka_unit_test(what_is_in_doubt_is_sent_again_first_and_with_its_ticket),
        cmocka_unit_test(a_claim_that_ends_in_doubt_is_abandoned_and_one_that_was_never_sent_is_not),
        cmocka_unit_test(behind_a_pooler_one_transaction_is_sent_at_a_time),
        cmocka_unit_test(commits_of_different_keys_go_together_and_all_others_wait_in_their_order),
        cmocka_unit_test(a_round_carries_no_more_than_one_large_commit),
        cmocka_unit_test(a_commit_that_is_sent_again_goes_before_later_calls_about_items),
        cmocka_unit_test(a_commit_on_a_full_disk_ends_full_only_if_it_certainly_was_not_made),
        cmocka_unit_test(that_no_server_is_reached_and_that_one_is_unusable_are_each_logged_until_one_works),
    };
    return cmocka_run_group_tests_name("remote", tests, NULL, NULL);
}
