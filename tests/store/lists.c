/* SPDX-License-Identifier: Apache-2.0 */
/* What operators ask a store: lists, histories, and forgetting with a reason; and tombstones, which both show. Run with
 * the backend's name, like conformance.c. */
#include "store/harness.h"

#include "store/backend.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

static const char *backend;
static const hx_store_options small = {.segment_bytes = 64 << 10};

#define OK HX_STORE_OK
#define MANY 2500u

static const hx_slice routes[] = {{"refunds", 7}, {"orders", 6}, {"send-otp", 8}};

/* Brings operation `number` into `state`. Its route, times and reason follow from the number. */
static hx_record bring(bench *b, uint64_t number, hx_state state)
{
    hx_record r = record_of(number);
    r.route = routes[number % 3];
    assert_int_equal(claim(b, &r, 0, NULL), OK);
    if (state == HX_PROCESSING) return r;
    bool ended = state != HX_UNKNOWN && state != HX_ABSENT;
    r.answer = (hx_answer){201, true, HX_LIT("ETag: \"1\"\r\n"), HX_LIT("a body")};
    r.expires_at = ended ? test_now + (state == HX_EXPIRED ? HX_MINUTE : HX_DAY) : 0;
    r.tombstone_until = state == HX_EXPIRED ? test_now + HX_DAY : 0;
    if (state == HX_UNKNOWN) r.reason = number % 2 ? HX_LIT("DEPENDENCY.timeout") : HX_LIT("DEPENDENCY.reset");
    hx_state to = state == HX_EXPIRED ? HX_COMPLETED : state;
    assert_int_equal(settle(b, &r, to, NULL), OK);
    r.answer.headers = r.answer.body = HX_EMPTY;
    return r;
}

static void list_page(bench *b, hx_store_page *page)
{
    waited w;
    wait_start(b, &w);
    hx_store_list(b->store, &w.call, page);
    assert_false(w.done); /* never inside the call */
    wait_for(b, &w);
    assert_int_equal(w.call.result, OK);
    assert_true(page->count <= page->records_max);
}

static void history_page(bench *b, hx_op op, hx_store_page *page)
{
    waited w;
    wait_start(b, &w);
    hx_store_history(b->store, &w.call, page->has_key ? NULL : &op, page);
    assert_false(w.done);
    wait_for(b, &w);
    assert_int_equal(w.call.result, OK);
}

/* How often each operation below `most` comes in a whole list, page by page; all in all as the return value. */
static size_t list_all(bench *b, hx_store_page filter, unsigned seen[], uint64_t most)
{
    size_t all = 0;
    memset(seen, 0, most * sizeof seen[0]);
    hx_store_page page = filter;
    do {
        list_page(b, &page);
        for (size_t i = 0; i < page.count; i++, all++) {
            uint64_t number;
            memcpy(&number, page.records[i].op.bytes, sizeof number);
            assert_true(number < most);
            seen[number]++;
        }
        assert_true(page.count == page.records_max || !page.more);
    } while (page.more);
    return all;
}

#define EACH 20u
static const hx_state some_states[] = {HX_PROCESSING, HX_COMPLETED, HX_FAILED, HX_UNKNOWN, HX_EXPIRED};

static void a_list_leaves_in_what_its_filter_says(void **unused)
{
    (void)unused;
    bench b;
    bench_begin(&b, backend, small);
    hx_record all[5 * EACH];
    hx_ms began = test_now;
    for (uint64_t i = 0; i < 5 * EACH; i++, test_now += 10 * HX_SECOND) all[i] = bring(&b, i, some_states[i % 5]);
    for (uint64_t i = 0; i < 5 * EACH; i++)
        if (all[i].state == HX_PROCESSING)
            assert_int_equal(renew(&b, all[i].op, all[i].epoch, test_now + HX_DAY, NULL), OK);
    bring(&b, 1000, HX_ABSENT);
    test_now += 2 * HX_MINUTE; /* tombstones from here on */
    const hx_store_page filters[] = {
        {.records_max = 100},
        {.states = 1u << HX_UNKNOWN, .records_max = 100},
        {.states = 1u << HX_EXPIRED, .records_max = 3},
        {.states = 1u << HX_COMPLETED | 1u << HX_PROCESSING, .records_max = 100},
        {.states = 1u << HX_ABSENT, .records_max = 100},
        {.route = routes[1], .records_max = 100},
        {.route = HX_LIT("nothing"), .records_max = 100},
        {.reason = HX_LIT("DEPENDENCY."), .records_max = 100},
        {.reason = HX_LIT("DEPENDENCY.timeout"), .records_max = 1},
        {.changed_from = began + 50 * HX_SECOND, .records_max = 100},
        {.changed_before = began + 50 * HX_SECOND, .records_max = 100},
        {.changed_from = began + 95 * HX_SECOND, .changed_before = began + 605 * HX_SECOND, .records_max = 7},
        {.key = all[17].key, .has_key = true, .records_max = 100},
        {.states = 1u << HX_UNKNOWN, .route = routes[0], .changed_from = began + HX_MINUTE, .records_max = 2},
    };
    for (int round = 0; round < 3; round++) {
        for (size_t f = 0; f < sizeof filters / sizeof filters[0]; f++) {
            unsigned seen[5 * EACH];
            size_t expected = 0;
            for (uint64_t i = 0; i < 5 * EACH; i++) {
                hx_record now = all[i];
                now.state = some_states[i % 5];
                hx_record found;
                if (peek(&b, now.op, &found) == HX_EXPIRED) now.changed_at = found.changed_at; /* by the sweep */
                expected += hx_store_page_wants(&filters[f], &now);
            }
            assert_int_equal(list_all(&b, filters[f], seen, 5 * EACH), expected);
            for (uint64_t i = 0; i < 5 * EACH; i++) assert_true(seen[i] <= 1);
        }
        if (round == 0) sweep(&b); /* tombstones are records of their own now */
        if (round == 1) {          /* and what was processing would be unknown */
            for (uint64_t i = 0; i < 5 * EACH; i += 5) {
                all[i].expires_at = test_now + HX_DAY;
                assert_int_equal(settle(&b, &all[i], HX_COMPLETED, NULL), OK);
                assert_int_equal(forget(&b, all[i].op, 0, NULL), OK);
                all[i] = bring(&b, i, HX_COMPLETED);
            }
            bench_restart(&b);
            for (uint64_t i = 0; i < 5 * EACH; i += 5) {
                assert_int_equal(forget(&b, all[i].op, 0, NULL), OK);
                all[i] = bring(&b, i, HX_PROCESSING);
            }
        }
    }
    bench_end(&b);
}

static void a_list_shows_records_as_they_stand_without_their_answers(void **unused)
{
    (void)unused;
    bench b;
    bench_begin(&b, backend, small);
    hx_record running = bring(&b, 0, HX_PROCESSING), done = bring(&b, 1, HX_COMPLETED), held = bring(&b, 3, HX_UNKNOWN);
    assert_int_equal(renew(&b, running.op, running.epoch, test_now + HX_HOUR, NULL), OK);
    const hx_record *expected[] = {&running, &done, &held};
    for (int i = 0; i < 3; i++) {
        hx_store_page page = {.key = expected[i]->key, .has_key = true, .records_max = 10};
        list_page(&b, &page);
        assert_int_equal(page.count, 1);
        assert_false(page.more);
        const hx_record *r = page.records;
        assert_int_equal(r->state, expected[i]->state);
        assert_int_equal(r->epoch, expected[i]->epoch);
        assert_int_equal(r->created_at, expected[i]->created_at);
        assert_int_equal(r->expires_at, expected[i]->expires_at);
        assert_int_equal(r->lease_until, i == 0 ? test_now + HX_HOUR : 0);
        assert_true(hx_slice_eq(r->route, expected[i]->route));
        assert_true(hx_slice_eq(r->reason, expected[i]->reason));
        assert_true(hx_slice_eq(r->correlation, expected[i]->correlation));
        assert_int_equal(r->answer.status, i == 0 ? 0 : 201);
        assert_int_equal(r->answer.headers.len + r->answer.body.len, 0);
    }
    bench_end(&b);
}

static void pages_hold_each_operation_once(void **unused)
{
    (void)unused;
    bench b;
    bench_begin(&b, backend, small);
    static unsigned seen[MANY];
    for (uint64_t i = 0; i < MANY; i++) bring(&b, i, i % 5 ? HX_COMPLETED : HX_UNKNOWN);
    for (int round = 0; round < 2; round++, bench_restart(&b)) {
        const unsigned sizes[] = {1, 7, 999, HX_STORE_PAGE_MAX};
        for (int s = round == 0 ? 0 : 1; s < 4; s++) {
            assert_int_equal(list_all(&b, (hx_store_page){.records_max = sizes[s]}, seen, MANY), MANY);
            for (uint64_t i = 0; i < MANY; i++) assert_int_equal(seen[i], 1);
            hx_arena_free(&b.arena);
        }
        hx_store_page unknown = {.states = 1u << HX_UNKNOWN, .records_max = 33};
        assert_int_equal(list_all(&b, unknown, seen, MANY), MANY / 5);
        for (uint64_t i = 0; i < MANY; i++) assert_int_equal(seen[i], i % 5 == 0);
    }
    bench_end(&b);
}

static void what_changes_between_pages_comes_once_at_most(void **unused)
{
    (void)unused;
    bench b;
    bench_begin(&b, backend, small);
    unsigned seen[600] = {0};
    for (uint64_t i = 0; i < 300; i++) bring(&b, i, i % 2 ? HX_UNKNOWN : HX_COMPLETED);
    hx_store_page page = {.records_max = 20};
    uint64_t made = 300;
    do {
        list_page(&b, &page);
        for (size_t i = 0; i < page.count; i++) {
            uint64_t number;
            memcpy(&number, page.records[i].op.bytes, sizeof number);
            seen[number]++;
        }
        for (uint64_t i = 1; i < 300; i += 2) { /* gone, and there again: in other places of the index */
            assert_int_equal(forget(&b, op_of(i), 0, NULL), OK);
            if (i % 3 == 0 && made < 600) bring(&b, made++, HX_UNKNOWN);
        }
        for (uint64_t i = 299; i < 300; i -= 2) bring(&b, i, HX_UNKNOWN);
    } while (page.more);
    for (uint64_t i = 0; i < made; i++) assert_true(i < 300 && i % 2 == 0 ? seen[i] == 1 : seen[i] <= 1);
    bench_end(&b);
}

typedef struct {
    bench *bench;
    hx_loop *loop;
    hx_arena arena;
    atomic_bool stop;
    _Atomic uint64_t number;
    hx_record record;
    hx_store_call call;
} churn;

static void churn_step(hx_store_call *call)
{
    churn *c = HX_OWNER(call, churn, call);
    assert_int_equal(call->result, OK);
    bool claimed = call->verb == HX_STORE_CLAIM;
    hx_record last = c->record;
    hx_arena_free(&c->arena);
    *call = (hx_store_call){.loop = c->loop, .arena = &c->arena, .done = churn_step};
    if (claimed) {
        c->record = last;
        c->record.state = c->number % 2 ? HX_ABSENT : HX_COMPLETED;
        c->record.expires_at = test_now + HX_DAY;
        hx_store_settle(c->bench->store, call, &c->record);
    } else if (c->stop) {
        hx_loop_stop(c->loop);
    } else {
        c->record = record_of(10000 + c->number++);
        hx_store_claim(c->bench->store, call, &c->record, 0);
    }
}

static void *churn_on(void *context)
{
    churn *c = context;
    c->record = record_of(9999);
    c->call = (hx_store_call){.loop = c->loop, .arena = &c->arena, .done = churn_step};
    hx_store_claim(c->bench->store, &c->call, &c->record, 0);
    hx_loop_run(c->loop);
    hx_arena_free(&c->arena);
    hx_arena_pool_drain();
    return NULL;
}

static void lists_and_histories_go_on_while_another_loop_writes(void **unused)
{
    (void)unused;
    bench b;
    bench_begin(&b, backend, small);
    for (uint64_t i = 0; i < 500; i++) bring(&b, i, HX_UNKNOWN);
    churn c = {.bench = &b, .loop = hx_loop_new()};
    pthread_t thread;
    hx_store_attach(b.store, c.loop);
    pthread_create(&thread, NULL, churn_on, &c);
    for (int round = 0; round < 10 || c.number == 0; round++) { /* until the other has begun */
        unsigned seen[500];
        hx_store_page unknown = {.states = 1u << HX_UNKNOWN, .records_max = 64};
        assert_int_equal(list_all(&b, unknown, seen, 500), 500);
        for (int i = 0; i < 500; i++) assert_int_equal(seen[i], 1);
        hx_store_page past = {.records_max = 10};
        history_page(&b, op_of((uint64_t)round % 10), &past);
        assert_true(past.count == 2 || strcmp(backend, "memory") == 0); /* which keeps only so many */
        hx_arena_free(&b.arena);
    }
    c.stop = true;
    pthread_join(thread, NULL);
    assert_true(c.number > 0);
    hx_store_close(&b.store);
    hx_loop_free(&c.loop);
    bench_end(&b);
}

/* Enough to fill some segments, with nothing that lasts: so the oldest ones go to the archive. */
static void fill(bench *b, uint64_t from)
{
    for (uint64_t i = 0; i < 400; i++) bring(b, from + i, HX_ABSENT);
    for (int i = 0; i < 3; i++) sweep(b);
}

typedef struct {
    hx_state state, from;
    uint64_t epoch;
    hx_slice reason;
    uint16_t status;
} version;

#define VERSIONS 6u

static void same_history(bench *b, const hx_record *of, bool by_key, const version expected[VERSIONS], unsigned most)
{
    hx_store_page page = {.records_max = most, .key = of->key, .has_key = by_key};
    hx_ms last = 0;
    size_t at = 0;
    do {
        history_page(b, of->op, &page);
        for (size_t i = 0; i < page.count; i++, at++) {
            assert_true(at < VERSIONS);
            const hx_record *v = &page.records[i];
            assert_true(hx_op_eq(&v->op, &of->op));
            assert_int_equal(v->state, expected[at].state);
            assert_int_equal(v->from_state, expected[at].from);
            assert_int_equal(v->epoch, expected[at].epoch);
            assert_true(hx_slice_eq(v->reason, expected[at].reason));
            assert_int_equal(v->answer.status, expected[at].status);
            assert_true(at == VERSIONS - 1 || hx_slice_eq(v->correlation, HX_LIT("the one")));
            assert_true(v->changed_at >= last);
            last = v->changed_at;
        }
    } while (page.more);
    assert_int_equal(at, VERSIONS);
}

static void a_history_has_every_version_oldest_first(void **unused)
{
    (void)unused;
    bench b;
    bench_begin(&b, backend, (hx_store_options){.segment_bytes = 32 << 10});
    hx_record r = record_of(1);
    bring(&b, 2, HX_EXPIRED); /* an answer that the archive leaves out stands before the first versions */
    r.correlation = HX_LIT("the one");
    assert_int_equal(claim(&b, &r, 0, NULL), OK);
    test_now += HX_SECOND;
    r.reason = HX_LIT("DEPENDENCY.timeout");
    assert_int_equal(settle(&b, &r, HX_UNKNOWN, NULL), OK);
    test_now += 2 * HX_MINUTE;
    fill(&b, 10000);
    bench_restart(&b); /* a closing store archives what it has dropped */
    if (strcmp(backend, "journal") == 0) {
        char name[128];
        (void)snprintf(name, sizeof name, "%s/00000001.audit", b.directory);
        assert_int_equal(access(name, F_OK), 0);
    }
    r.reason = HX_LIT("alice: found it in the bank's books");
    r.expires_at = test_now + HX_MINUTE;
    r.tombstone_until = test_now + HX_HOUR;
    r.answer = (hx_answer){201, true, HX_LIT("A: 1\r\n"), HX_LIT("adopted")};
    assert_int_equal(settle(&b, &r, HX_COMPLETED, NULL), OK);
    fill(&b, 20000);
    test_now += 2 * HX_MINUTE;
    assert_int_equal(peek(&b, r.op, NULL), HX_EXPIRED);
    sweep(&b);
    assert_int_equal(peek(&b, r.op, NULL), HX_EXPIRED);
    fill(&b, 30000);
    waited w;
    wait_start(&b, &w);
    hx_store_forget(b.store, &w.call, &r.op, r.epoch, HX_LIT("bob: the customer asked twice"));
    wait_for(&b, &w);
    assert_int_equal(w.call.result, OK);
    test_now += HX_SECOND;
    hx_record again = record_of(1);
    assert_int_equal(claim(&b, &again, 0, NULL), OK);
    const version expected[VERSIONS] = {{HX_PROCESSING, HX_ABSENT, r.epoch, HX_EMPTY, 0},
                                        {HX_UNKNOWN, HX_PROCESSING, r.epoch, HX_LIT("DEPENDENCY.timeout"), 0},
                                        {HX_COMPLETED, HX_UNKNOWN, r.epoch,
                                         HX_LIT("alice: found it in the bank's books"), 201},
                                        {HX_EXPIRED, HX_COMPLETED, r.epoch, HX_LIT("lifetime"), 0},
                                        {HX_ABSENT, HX_EXPIRED, r.epoch, HX_LIT("bob: the customer asked twice"), 0},
                                        {HX_PROCESSING, HX_ABSENT, again.epoch, HX_EMPTY, 0}};
    const unsigned sizes[] = {100, 4, 1};
    for (int i = 0; i < 6; i++) same_history(&b, &r, i % 2, expected, sizes[i / 2]);
    hx_store_page nothing = {.records_max = 10}, no_key = {.records_max = 10, .has_key = true, .key.bytes = {7}};
    history_page(&b, op_of(7), &nothing);
    history_page(&b, op_of(7), &no_key);
    assert_int_equal(nothing.count + no_key.count, 0);
    bench_end(&b);
}

static void a_key_has_the_histories_of_all_its_operations(void **unused)
{
    (void)unused;
    bench b;
    bench_begin(&b, backend, small);
    hx_record r[3] = {record_of(1), record_of(2), record_of(3)};
    r[2].key = r[0].key; /* of another route */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(claim(&b, &r[i], 0, NULL), OK);
        assert_int_equal(settle(&b, &r[i], i == 0 ? HX_ABSENT : HX_UNKNOWN, NULL), OK);
    }
    waited w;
    wait_start(&b, &w);
    hx_store_forget(b.store, &w.call, &r[2].op, 0, HX_LIT("bob: by mistake"));
    wait_for(&b, &w);
    assert_int_equal(w.call.result, OK);
    const hx_state states[] = {HX_PROCESSING, HX_ABSENT, HX_PROCESSING, HX_UNKNOWN, HX_ABSENT};
    for (unsigned most = 1; most < 7; most++) {
        hx_store_page page = {.records_max = most, .key = r[0].key, .has_key = true};
        size_t at = 0;
        do {
            history_page(&b, r[0].op, &page);
            for (size_t i = 0; i < page.count; i++, at++) {
                assert_true(at < 5 && hx_op_eq(&page.records[i].op, at < 2 ? &r[0].op : &r[2].op));
                assert_int_equal(page.records[i].state, states[at]);
            }
        } while (page.more);
        assert_int_equal(at, 5);
    }
    bench_end(&b);
}

/* PostgreSQL's has a story of its own; the journal's goes to its archive. */
static void a_history_is_kept_for_the_retention(void **unused)
{
    (void)unused;
    if (strcmp(backend, "sqlite") != 0) skip();
    bench b;
    bench_begin(&b, backend, (hx_store_options){.audit_retention = 30 * HX_DAY});
    for (uint64_t i = 0; i < 1500; i++) bring(&b, i, HX_UNKNOWN);
    hx_record r = record_of(2000);
    test_now += 29 * HX_DAY;
    assert_int_equal(claim(&b, &r, 0, NULL), OK);
    (void)sweep(&b);
    for (int days = 29; days <= 31; days += 2) {
        hx_store_page old = {.records_max = 10}, young = {.records_max = 10};
        history_page(&b, op_of(7), &old);
        history_page(&b, r.op, &young);
        assert_int_equal(old.count, days == 29 ? 2 : 0);
        assert_true(young.count > 0);
        assert_int_equal(peek(&b, op_of(7), NULL), HX_UNKNOWN); /* which stands, whatever became of its history */
        test_now += 2 * HX_DAY;
        (void)sweep(&b);
    }
    test_now += 100 * HX_DAY;
    (void)sweep(&b);
    hx_store_page last = {.records_max = 10};
    history_page(&b, r.op, &last);
    assert_true(last.count > 0); /* the last link stays: its rows say what time it was */
    bench_end(&b);
}

static void a_long_reason_is_cut_between_characters(void **unused)
{
    (void)unused;
    bench b;
    bench_begin(&b, backend, small);
    hx_record r = bring(&b, 1, HX_UNKNOWN);
    char text[400];
    for (size_t i = 0; i + 1 < sizeof text; i += 2) { /* the last of these would be cut in two */
        text[i] = (char)0xc3;
        text[i + 1] = (char)0xa4;
    }
    waited w;
    wait_start(&b, &w);
    hx_store_forget(b.store, &w.call, &r.op, 0, (hx_slice){text, sizeof text});
    wait_for(&b, &w);
    assert_int_equal(w.call.result, OK);
    hx_store_page page = {.records_max = 10};
    history_page(&b, r.op, &page);
    assert_int_equal(page.count, 3);
    assert_int_equal(page.records[2].reason.len, HX_RECORD_TEXT_MAX - 1);
    assert_memory_equal(page.records[2].reason.ptr, text, HX_RECORD_TEXT_MAX - 1);
    bench_end(&b);
}

static void a_tombstone_stands_until_its_time_swept_or_not(void **unused)
{
    (void)unused;
    bench b;
    hx_record found, again;
    for (int way = 0; way < 4; way++) {
        bool swept = way & 1, restarted = way & 2;
        bench_begin(&b, backend, small);
        hx_record r[2] = {bring(&b, 1, HX_EXPIRED), record_of(2)};
        assert_int_equal(claim(&b, &r[1], 0, NULL), OK); /* a failed one, too */
        r[1].expires_at = test_now + HX_MINUTE;
        r[1].tombstone_until = test_now + HX_DAY;
        assert_int_equal(settle(&b, &r[1], HX_FAILED, NULL), OK);
        test_now += 2 * HX_MINUTE;
        if (swept) assert_int_equal(sweep(&b), 0);
        if (restarted) bench_restart(&b);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(peek(&b, r[i].op, &found), HX_EXPIRED);
            assert_int_equal(found.epoch, r[i].epoch);
            assert_int_equal(found.answer.status, 0);
            assert_int_equal(found.answer.headers.len + found.answer.body.len, 0);
            again = record_of(1 + (uint64_t)i);
            assert_int_equal(claim(&b, &again, 0, &found), HX_STORE_EXISTS);
            assert_int_equal(found.state, HX_EXPIRED);
            waited w;
            wait_start(&b, &w);
            hx_store_watch(b.store, &w.call, &r[i].op, r[i].epoch);
            wait_for(&b, &w);
            assert_int_equal(w.call.found.state, HX_EXPIRED);
        }
        test_now += HX_DAY - 2 * HX_MINUTE - 1;
        assert_int_equal(peek(&b, r[0].op, NULL), HX_EXPIRED);
        test_now += 1;
        assert_int_equal(peek(&b, r[0].op, NULL), HX_ABSENT);
        again = record_of(1);
        assert_int_equal(claim(&b, &again, 0, NULL), OK); /* without a sweep in between */
        assert_int_equal(sweep(&b), 1);
        assert_int_equal(peek(&b, r[1].op, NULL), HX_ABSENT);
        assert_int_equal(peek(&b, again.op, NULL), HX_PROCESSING);
        bench_end(&b);
    }
}

static pthread_t test_thread;
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int left;   /* how often others may still ask for the time before they have to wait */
    bool stays; /* whether they wait */
    bool holds; /* one does */
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* The time, for which the store's own threads may have to wait: so that a test knows where they are. */
static hx_ms gated_clock(void)
{
    if (pthread_equal(pthread_self(), test_thread)) return test_clock();
    pthread_mutex_lock(&gate.mutex);
    gate.holds = gate.stays && gate.left-- == 0;
    while (gate.holds && gate.stays) pthread_cond_wait(&gate.changed, &gate.mutex);
    gate.holds = false;
    pthread_mutex_unlock(&gate.mutex);
    return test_clock();
}

static void set_gate(bool stays, int left)
{
    pthread_mutex_lock(&gate.mutex);
    gate.stays = stays;
    gate.left = left;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
}

static bool gate_holds(void)
{
    pthread_mutex_lock(&gate.mutex);
    bool holds = gate.holds;
    pthread_mutex_unlock(&gate.mutex);
    return holds;
}

/* In whichever step of a sweep they arrive. */
static void forgetting_and_claiming_again_while_a_sweep_buries(void **unused)
{
    (void)unused;
    bench b;
    test_thread = pthread_self();
    bench_begin(&b, backend, small);
    bench_close(&b);
    b.options.now = gated_clock;
    bench_open(&b);
    for (int step = 0; step < 8; step++) {
        uint64_t number = (uint64_t)step;
        hx_record old = bring(&b, number, HX_EXPIRED), again = record_of(number), found;
        test_now += 2 * HX_MINUTE;
        again.lease_until = test_now + HX_DAY;
        waited swept, forgotten, claimed;
        set_gate(true, step);
        wait_start(&b, &swept);
        hx_store_sweep(b.store, &swept.call);
        while (!swept.done && !gate_holds()) hx_loop_turn(b.loop, 1);
        wait_start(&b, &forgotten);
        wait_start(&b, &claimed);
        hx_store_forget(b.store, &forgotten.call, &old.op, old.epoch, HX_LIT("asked twice"));
        hx_store_claim(b.store, &claimed.call, &again, 0);
        for (int i = 0; i < 3; i++) hx_loop_turn(b.loop, 0); /* both are on their way, together */
        set_gate(false, 0);
        wait_for(&b, &forgotten);
        wait_for(&b, &claimed);
        wait_for(&b, &swept);
        assert_int_equal(forgotten.call.result, OK);
        assert_int_equal(claimed.call.result, OK);
        sweep(&b);
        assert_int_equal(peek(&b, again.op, &found), HX_PROCESSING);
        assert_int_equal(found.epoch, again.epoch);
    }
    bench_end(&b);
}

#define FORGOTTEN 64u

static void those_who_are_forgotten_together_share_commits(void **unused)
{
    (void)unused;
    if (strcmp(backend, "journal") != 0) skip(); /* others have none to share */
    bench b;
    static waited calls[FORGOTTEN];
    hx_record records[FORGOTTEN];
    hx_store_counts before, after;
    bench_begin(&b, backend, small);
    for (uint64_t i = 0; i < FORGOTTEN; i++) records[i] = bring(&b, i, some_states[1 + i % 3]);
    hx_store_count(b.store, &before);
    for (uint64_t i = 0; i < FORGOTTEN; i++) {
        wait_start(&b, &calls[i]);
        hx_store_forget(b.store, &calls[i].call, &records[i].op, records[i].epoch, HX_LIT("all of them"));
    }
    for (uint64_t i = 0; i < FORGOTTEN; i++) {
        wait_for(&b, &calls[i]);
        assert_int_equal(calls[i].call.result, OK);
        assert_int_equal(peek(&b, records[i].op, NULL), HX_ABSENT);
    }
    hx_store_count(b.store, &after);
    assert_true(after.commits - before.commits <= 4);
    bench_end(&b);
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    backend = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_leaves_in_what_its_filter_says),
        cmocka_unit_test(a_list_shows_records_as_they_stand_without_their_answers),
        cmocka_unit_test(pages_hold_each_operation_once),
        cmocka_unit_test(what_changes_between_pages_comes_once_at_most),
        cmocka_unit_test(lists_and_histories_go_on_while_another_loop_writes),
        cmocka_unit_test(a_history_has_every_version_oldest_first),
        cmocka_unit_test(a_key_has_the_histories_of_all_its_operations),
        cmocka_unit_test(a_history_is_kept_for_the_retention),
        cmocka_unit_test(a_long_reason_is_cut_between_characters),
        cmocka_unit_test(a_tombstone_stands_until_its_time_swept_or_not),
        cmocka_unit_test(forgetting_and_claiming_again_while_a_sweep_buries),
        cmocka_unit_test(those_who_are_forgotten_together_share_commits),
    };
    return cmocka_run_group_tests_name(backend, tests, NULL, NULL);
}
