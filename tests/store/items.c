/* SPDX-License-Identifier: Apache-2.0 */
/* One suite over every store that keeps items: the guarantees of store/items.h, by their numbers. Run with the
 * backend's name. */
#include "store/harness.h"

#include "base/memory/list.h"

#include <pthread.h>
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
#define S(text) hx_slice_of(text)

static hx_item put(const char *key, uint64_t version, const char *meta)
{
    return (hx_item){.key = S(key), .version = version, .queue = HX_EMPTY, .meta = S(meta), .body = HX_EMPTY};
}

static hx_item removal(const char *key, uint64_t version)
{
    return (hx_item){.key = S(key),
                     .version = version,
                     .act = HX_ITEM_REMOVE,
                     .queue = HX_EMPTY,
                     .meta = HX_EMPTY,
                     .body = HX_EMPTY};
}

static hx_item queued(const char *key, const char *queue, hx_ms due)
{
    hx_item item = put(key, 0, key);
    item.queue = S(queue);
    item.due = due;
    return item;
}

static hx_store_result commit_by(bench *b, hx_item *items, size_t count, waited *w)
{
    wait_start(b, w);
    hx_store_commit(b->store, &w->call, items, count, false);
    wait_for(b, w);
    return w->call.result;
}

/* The version of what was written; it must succeed. */
static uint64_t commit(bench *b, hx_item *items, size_t count)
{
    waited w;
    assert_int_equal(commit_by(b, items, count, &w), OK);
    assert_true(w.call.version > 0);
    return w.call.version;
}

static uint64_t commit_one(bench *b, hx_item item)
{
    return commit(b, &item, 1);
}

/* The key of the item that differs; the commit must be refused. */
static hx_slice refused(bench *b, hx_item *items, size_t count)
{
    waited w;
    assert_int_equal(commit_by(b, items, count, &w), HX_STORE_STALE);
    assert_non_null(w.call.stale);
    return w.call.stale->key;
}

static hx_item get(bench *b, const char *key)
{
    waited w;
    hx_item item = {.key = S(key)};
    wait_start(b, &w);
    hx_store_get(b->store, &w.call, &item, 1);
    wait_for(b, &w);
    assert_int_equal(w.call.result, OK);
    return item;
}

static void assert_text(hx_slice found, const char *wanted)
{
    assert_int_equal(found.len, strlen(wanted));
    assert_memory_equal(found.ptr, wanted, found.len);
}

/* The keys of a page, separated by spaces; a last + says that there may be more. */
static const char *scan(bench *b, hx_item_page *page)
{
    static char keys[16384];
    size_t len = 0;
    waited w;
    wait_start(b, &w);
    hx_store_scan(b->store, &w.call, page);
    wait_for(b, &w);
    assert_int_equal(w.call.result, OK);
    keys[0] = '\0';
    for (size_t i = 0; i < page->count; i++)
        len += (size_t)snprintf(keys + len, sizeof keys - len, "%s%.*s", i > 0 ? " " : "", HX_FMT(page->items[i].key));
    if (page->more) (void)snprintf(keys + len, sizeof keys - len, " +");
    return keys;
}

static hx_item_page page_of(const char *prefix)
{
    return (hx_item_page){.prefix = S(prefix), .items_max = 100};
}

static hx_item_page queues_of(const char *prefix)
{
    return (hx_item_page){.prefix = S(prefix), .items_max = 100, .by_queue = true};
}

static void e1_what_was_committed_reads_back_whole_also_after_a_restart(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, backend, small);
    static char body[100000];
    memset(body, 'b', sizeof body);
    body[7] = '\0';
    hx_item item = {.key = {"k\0\xff", 3},
                    .queue = S("due/ep_1"),
                    .due = test_now + 1234,
                    .expires_at = test_now + HX_DAY,
                    .meta = S("{\"a\":1}"),
                    .body = {body, sizeof body}};
    uint64_t version = commit_one(&b, item);
    for (int round = 0; round < 2; round++, bench_restart(&b)) {
        waited w;
        hx_item found = {.key = item.key};
        wait_start(&b, &w);
        hx_store_get(b.store, &w.call, &found, 1);
        wait_for(&b, &w);
        assert_int_equal(found.version, version);
        assert_int_equal(found.due, item.due);
        assert_int_equal(found.expires_at, item.expires_at);
        assert_text(found.queue, "due/ep_1");
        assert_text(found.meta, "{\"a\":1}");
        assert_int_equal(found.body.len, sizeof body);
        assert_memory_equal(found.body.ptr, body, sizeof body);
        if (strcmp(backend, "memory") == 0) break;
    }
    bench_end(&b);
}

static void e2_a_commit_that_is_refused_changes_nothing(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, backend, small);
    uint64_t first = commit_one(&b, put("b", 0, "1"));
    hx_item items[] = {put("c", 0, "new"), put("a", 0, "new"), put("b", first + 1, "new")};
    assert_text(refused(&b, items, 3), "b");
    assert_int_equal(get(&b, "a").version, 0);
    assert_int_equal(get(&b, "c").version, 0);
    assert_text(get(&b, "b").meta, "1");
    hx_item right[] = {put("c", 0, "new"), put("a", 0, "new"), put("b", first, "new")};
    uint64_t second = commit(&b, right, 3);
    assert_int_equal(get(&b, "a").version, second);
    assert_int_equal(get(&b, "b").version, second);
    assert_text(get(&b, "c").meta, "new");
    bench_end(&b);
}

static void e3_each_act_compares_the_version_first(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, backend, small);
    uint64_t first = commit_one(&b, put("a", 0, "1"));
    hx_item again = put("a", 0, "2"), check = put("a", first, ""), wrong = removal("a", first + 5),
            absent = removal("nothing", 7);
    check.act = HX_ITEM_CHECK;
    assert_text(refused(&b, &again, 1), "a");
    assert_text(refused(&b, &wrong, 1), "a");
    assert_text(refused(&b, &absent, 1), "nothing");
    hx_item both[] = {check, put("other", 0, "x")};
    (void)commit(&b, both, 2);
    assert_int_equal(get(&b, "a").version, first); /* a check changes nothing */
    assert_text(get(&b, "a").meta, "1");
    assert_text(get(&b, "other").meta, "x");
    check.version = first + 1;
    hx_item neither[] = {check, put("third", 0, "x")};
    assert_text(refused(&b, neither, 2), "a");
    assert_int_equal(get(&b, "third").version, 0);
    (void)commit_one(&b, removal("a", first));
    assert_int_equal(get(&b, "a").version, 0);
    bench_end(&b);
}

#define RACES 200

typedef struct {
    bench *b;
    hx_loop *loop;
    hx_arena arena;
    struct {
        hx_store_call call;
        hx_item item;
        char key[16];
    } tries[RACES];
    int left, won;
} racer;

static racer racers[2];

static void raced(hx_store_call *call)
{
    racer *r = call->loop == racers[0].loop ? &racers[0] : &racers[1];
    assert_true(call->result == OK || call->result == HX_STORE_STALE);
    r->won += call->result == OK;
    if (--r->left == 0) hx_loop_stop(r->loop);
}

static void *race(void *context)
{
    racer *r = context;
    for (int i = 0; i < RACES; i++) hx_store_commit(r->b->store, &r->tries[i].call, &r->tries[i].item, 1, false);
    hx_loop_run(r->loop);
    hx_arena_pool_drain();
    return NULL;
}

static void e3_of_commits_that_race_on_two_loops_one_wins(void **state)
{
    (void)state;
    bench b;
    pthread_t threads[2];
    bench_begin(&b, backend, small);
    for (int t = 0; t < 2; t++) {
        racer *r = &racers[t];
        *r = (racer){.b = &b, .loop = hx_loop_new(), .left = RACES};
        hx_store_attach(b.store, r->loop);
        for (int i = 0; i < RACES; i++) {
            (void)snprintf(r->tries[i].key, sizeof r->tries[i].key, "key-%d", t == 0 ? i : RACES - 1 - i);
            r->tries[i].item = put(r->tries[i].key, 0, t == 0 ? "zero" : "one");
            r->tries[i].call = (hx_store_call){.loop = r->loop, .arena = &r->arena, .done = raced};
        }
    }
    for (int t = 0; t < 2; t++) assert_int_equal(pthread_create(&threads[t], NULL, race, &racers[t]), 0);
    for (int t = 0; t < 2; t++) pthread_join(threads[t], NULL);
    assert_int_equal(racers[0].won + racers[1].won, RACES);
    int zeros = 0;
    for (int i = 0; i < RACES; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "key-%d", i);
        zeros += hx_slice_eq(get(&b, key).meta, S("zero"));
    }
    assert_int_equal(zeros, racers[0].won);
    bench_close(&b);
    for (int t = 0; t < 2; t++) {
        hx_arena_free(&racers[t].arena);
        hx_loop_free(&racers[t].loop);
    }
    bench_open(&b);
    bench_end(&b);
}

static void e4_a_version_never_comes_back(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, backend, small);
    uint64_t highest = 0;
    for (int round = 0; round < 3; round++) {
        uint64_t version = commit_one(&b, put("a", 0, "1"));
        assert_true(version > highest);
        uint64_t next = commit_one(&b, put("a", version, "2"));
        assert_true(next > version);
        highest = commit_one(&b, removal("a", next));
        assert_true(highest > next);
        bench_restart(&b);
    }
    bench_end(&b);
}

static void fill(bench *b)
{
    hx_item items[] = {queued("d1", "due/b", 300), queued("d2", "due/a", 200), queued("d3", "due/b", 100),
                       queued("d4", "due/c", 250), queued("d5", "dead", 50),   put("e1", 0, "x"),
                       put("e2", 0, "x"),          put("e\xff", 0, "x"),       queued("d6", "due/b", 100),
                       queued("d7", "due", 500)};
    (void)commit(b, items, sizeof items / sizeof items[0]);
}

static void e5_pages_by_key_go_on_where_they_ended_in_both_directions(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, backend, small);
    fill(&b);
    for (int round = 0; round < 2; round++) {
        hx_item_page page = page_of("e");
        assert_string_equal(scan(&b, &page), "e1 e2 e\xff");
        page = page_of("");
        page.items_max = 4;
        assert_string_equal(scan(&b, &page), "d1 d2 d3 d4 +");
        page.after = page.items[3];
        assert_string_equal(scan(&b, &page), "d5 d6 d7 e1 +");
        page.after = page.items[3];
        assert_string_equal(scan(&b, &page), "e2 e\xff");
        page = page_of("d");
        page.backwards = true;
        page.items_max = 3;
        assert_string_equal(scan(&b, &page), "d7 d6 d5 +");
        page.after = page.items[2];
        page.items_max = 100;
        assert_string_equal(scan(&b, &page), "d4 d3 d2 d1");
        page = page_of("d");
        page.backwards = true;
        page.items_max = 2;
        page.after = (hx_item){.key = S("z")}; /* a place behind the prefix */
        assert_string_equal(scan(&b, &page), "d7 d6 +");
        page = page_of("e");
        page.after = (hx_item){.key = S("a")}; /* a place in front of the prefix */
        assert_string_equal(scan(&b, &page), "e1 e2 e\xff");
        page.after = (hx_item){.key = S("e15")}; /* and one that has no item */
        assert_string_equal(scan(&b, &page), "e2 e\xff");
        page = page_of("\xff");
        assert_string_equal(scan(&b, &page), "");
        if (strcmp(backend, "memory") != 0) bench_restart(&b);
    }
    bench_end(&b);
}

static void e5_pages_by_queue_are_in_the_order_of_due_times(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, backend, small);
    fill(&b);
    hx_item_page page = queues_of("");
    assert_string_equal(scan(&b, &page), "d5 d7 d2 d3 d6 d1 d4");
    page = queues_of("due/");
    assert_string_equal(scan(&b, &page), "d2 d3 d6 d1 d4");
    page.due_until = 250;
    assert_string_equal(scan(&b, &page), "d2 d3 d6 d4");
    page.one_per_queue = true;
    assert_string_equal(scan(&b, &page), "d2 d3 d4");
    page.due_until = 100;
    assert_string_equal(scan(&b, &page), "d3");
    page = queues_of("due/");
    page.items_max = 2;
    assert_string_equal(scan(&b, &page), "d2 d3 +");
    page.after = page.items[1];
    assert_string_equal(scan(&b, &page), "d6 d1 +");
    page = queues_of("due/");
    page.backwards = true;
    assert_string_equal(scan(&b, &page), "d4 d1 d6 d3 d2");
    page.due_until = 200;
    page.items_max = 2;
    assert_string_equal(scan(&b, &page), "d6 d3 +");
    page.after = page.items[1];
    assert_string_equal(scan(&b, &page), "d2");
    bench_end(&b);
}

static void e5_an_item_is_in_one_place_of_one_queue_at_a_time(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, backend, small);
    fill(&b);
    hx_item moved = queued("d3", "due/a", 900);
    moved.version = get(&b, "d3").version;
    hx_item out = put("d6", moved.version, "no queue"), gone = removal("d1", moved.version);
    hx_item items[] = {moved, out, gone};
    (void)commit(&b, items, 3);
    for (int round = 0; round < 2; round++) {
        hx_item_page page = queues_of("due/");
        assert_string_equal(scan(&b, &page), "d2 d3 d4");
        assert_int_equal(page.items[1].due, 900);
        assert_text(page.items[1].queue, "due/a");
        assert_text(get(&b, "d6").meta, "no queue");
        if (strcmp(backend, "memory") != 0) bench_restart(&b);
    }
    bench_end(&b);
}

static void e5_bodies_come_where_they_are_wanted_and_long_pages_end_early(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, backend, small);
    size_t len = (2u << 20) + 100;
    char *body = malloc(len), keys[3][2] = {"a", "b", "c"};
    memset(body, 'x', len);
    for (int i = 0; i < 3; i++) {
        hx_item item = put(keys[i], 0, "m");
        item.body = (hx_slice){body, len};
        (void)commit(&b, &item, 1);
    }
    hx_item_page page = page_of("");
    assert_string_equal(scan(&b, &page), "a b c");
    assert_int_equal(page.items[0].body.len, 0);
    page.with_bodies = true;
    assert_string_equal(scan(&b, &page), "a +");
    assert_int_equal(page.items[0].body.len, len);
    page.after = page.items[0];
    assert_string_equal(scan(&b, &page), "b +");
    free(body);
    bench_end(&b);
}

static void e6_what_has_expired_is_absent_and_a_sweep_removes_it(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, backend, small);
    hx_item brief = queued("a", "due/x", 5), lasting = queued("b", "due/x", 6);
    brief.expires_at = test_now + 10 * HX_SECOND;
    hx_item items[] = {brief, lasting};
    uint64_t version = commit(&b, items, 2);
    hx_item_page page = queues_of("due/");
    test_now += 10 * HX_SECOND - 1;
    assert_string_equal(scan(&b, &page), "a b");
    test_now += HX_SECOND + 1;
    assert_string_equal(scan(&b, &page), "b");
    page.one_per_queue = true;
    assert_string_equal(scan(&b, &page), "b");
    assert_int_equal(get(&b, "a").version, 0);
    hx_item late = put("a", version, "late");
    assert_text(refused(&b, &late, 1), "a");
    assert_true(sweep(&b) >= 1);
    assert_int_equal(get(&b, "a").version, 0);
    assert_int_equal(get(&b, "b").version, version);
    brief.version = 0;
    brief.expires_at = test_now + 2 * HX_SECOND;
    uint64_t next = commit_one(&b, brief);
    assert_true(next > version);
    test_now += 4 * HX_SECOND; /* over, and not swept: the key is free */
    hx_item anew = put("a", 0, "anew");
    assert_true(commit(&b, &anew, 1) > next);
    bench_restart(&b);
    if (strcmp(backend, "memory") != 0) assert_text(get(&b, "a").meta, "anew");
    bench_end(&b);
}

#define MANY 3000

static void e5_thousands_of_items_are_each_on_one_page_also_after_sweeps_and_restarts(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, backend, small);
    static hx_item items[MANY];
    static char keys[MANY][16], body[64];
    memset(body, 'z', sizeof body);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "i%06d", i);
        items[i] = queued(keys[i], i % 3 == 0 ? "q" : "", i);
        items[i].body = (hx_slice){body, sizeof body};
        if (i % 5 == 0) items[i].expires_at = test_now + HX_SECOND;
    }
    for (int i = 0; i < MANY; i += 250) (void)commit(&b, items + i, 250);
    test_now += HX_MINUTE;
    for (int round = 0; round < 3; round++) {
        hx_item_page page = page_of("i");
        page.items_max = 700;
        int seen = 0, last = -1;
        do {
            (void)scan(&b, &page);
            for (size_t i = 0; i < page.count; i++, seen++) {
                uint64_t digits;
                assert_true(hx_slice_to_u64(hx_slice_from(page.items[i].key, 1), &digits));
                int number = (int)digits;
                assert_true(number % 5 != 0);
                assert_true(number > last);
                last = number;
            }
            if (page.count > 0) page.after = page.items[page.count - 1];
        } while (page.more);
        assert_int_equal(seen, MANY - MANY / 5);
        if (round == 0) assert_true(sweep(&b) >= 1);
        if (strcmp(backend, "memory") != 0) bench_restart(&b);
    }
    bench_end(&b);
}

static void e8_commits_of_one_loop_take_effect_in_their_order(void **state)
{
    (void)state;
    bench b;
    waited first, second, third;
    bench_begin(&b, backend, small);
    hx_item items[] = {put("a", 0, "first"), put("a", 0, "second"), put("b", 0, "third")};
    waited *calls[] = {&first, &second, &third};
    for (int i = 0; i < 3; i++) { /* none waits for the one before */
        wait_start(&b, calls[i]);
        hx_store_commit(b.store, &calls[i]->call, &items[i], 1, false);
        assert_false(calls[i]->done);
    }
    for (int i = 0; i < 3; i++) wait_for(&b, calls[i]);
    assert_int_equal(first.call.result, OK);
    assert_int_equal(second.call.result, HX_STORE_STALE);
    assert_int_equal(third.call.result, OK);
    assert_true(third.call.version > first.call.version);
    assert_text(get(&b, "a").meta, "first");
    assert_text(get(&b, "b").meta, "third");
    bench_end(&b);
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    backend = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e1_what_was_committed_reads_back_whole_also_after_a_restart),
        cmocka_unit_test(e2_a_commit_that_is_refused_changes_nothing),
        cmocka_unit_test(e3_each_act_compares_the_version_first),
        cmocka_unit_test(e3_of_commits_that_race_on_two_loops_one_wins),
        cmocka_unit_test(e4_a_version_never_comes_back),
        cmocka_unit_test(e5_pages_by_key_go_on_where_they_ended_in_both_directions),
        cmocka_unit_test(e5_pages_by_queue_are_in_the_order_of_due_times),
        cmocka_unit_test(e5_an_item_is_in_one_place_of_one_queue_at_a_time),
        cmocka_unit_test(e5_bodies_come_where_they_are_wanted_and_long_pages_end_early),
        cmocka_unit_test(e6_what_has_expired_is_absent_and_a_sweep_removes_it),
        cmocka_unit_test(e5_thousands_of_items_are_each_on_one_page_also_after_sweeps_and_restarts),
        cmocka_unit_test(e8_commits_of_one_loop_take_effect_in_their_order),
    };
    return cmocka_run_group_tests_name(backend, tests, NULL, NULL);
}
