/* SPDX-License-Identifier: Apache-2.0 */
/* Random commits, gets and pages of items, made on the reference and on another store at the same time and compared
 * step by step, with restarts of the other in between. A failure prints its seed;
 * `test_store_items_differential BACKEND SEED` runs that one. */
#include "store/harness.h"

#include "base/rand.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS 60u
#define STEPS 1500
#define TOGETHER 5u

enum { REFERENCE, OTHER, BOTH };

static const char *backend;
static uint64_t first_seed, seeds = 4;
static char bodies[3][3000];
/* In the order of bytes these lie between, before and behind each other. */
static const char *const queues[] = {"", "q", "q/1", "q/2", "q/\xff", "q\x01", "r", "\xff", "\xff\xff"};
static const char *const prefixes[] = {"", "q", "q/", "\xff", "a", "a\xff", "b", "s"};

typedef struct {
    bench stores[BOTH];
    char keys[KEYS][4];
    size_t lens[KEYS];
} pair;

static uint64_t pick(uint64_t below)
{
    return hx_rand_below(below);
}

static hx_slice any_queue(void)
{
    return hx_slice_of(queues[pick(sizeof queues / sizeof queues[0])]);
}

static hx_slice key_of(const pair *p, uint64_t number)
{
    return (hx_slice){p->keys[number], p->lens[number]};
}

/* Short keys of few bytes, so that many begin with each other. */
static void make_keys(pair *p)
{
    static const char alphabet[] = {'a', 'b', '\0', '\xff'};
    for (uint64_t i = 0; i < KEYS; i++) {
        p->lens[i] = 0;
        for (uint64_t left = i + 1; left > 0; left = (left - 1) / 4)
            p->keys[i][p->lens[i]++] = alphabet[(left - 1) % 4];
    }
}

static void same_item(const hx_item *a, const hx_item *b)
{
    assert_int_equal(a->version == 0, b->version == 0);
    assert_true(hx_slice_eq(a->key, b->key) && hx_slice_eq(a->queue, b->queue));
    assert_int_equal(a->due, b->due);
    assert_int_equal(a->expires_at, b->expires_at);
    assert_true(hx_slice_eq(a->meta, b->meta) && hx_slice_eq(a->body, b->body));
}

/* Both have the same items under these keys. */
static void get(pair *p, const uint64_t *numbers, size_t count, hx_item items[BOTH][TOGETHER])
{
    for (int s = 0; s < BOTH; s++) {
        waited w;
        for (size_t i = 0; i < count; i++) items[s][i] = (hx_item){.key = key_of(p, numbers[i])};
        wait_start(&p->stores[s], &w);
        hx_store_get(p->stores[s].store, &w.call, items[s], count);
        wait_for(&p->stores[s], &w);
        assert_int_equal(w.call.result, HX_STORE_OK);
    }
    for (size_t i = 0; i < count; i++) same_item(&items[REFERENCE][i], &items[OTHER][i]);
}

static void change(hx_item *item)
{
    static const char *const metas[] = {"", "{}", "{\"n\":1}", "{\"\xc3\xa4\":\"\xf0\x9f\x8d\x8e\"}"};
    item->act = pick(4) > 0 ? HX_ITEM_PUT : pick(2) ? HX_ITEM_REMOVE : HX_ITEM_CHECK;
    item->queue = any_queue();
    item->due = (hx_ms)pick(6);
    item->expires_at = pick(3) == 0 ? test_now + (hx_ms)pick(20000) : 0;
    item->meta = hx_slice_of(metas[pick(4)]);
    item->body = (hx_slice){bodies[pick(3)], pick(3) ? 0 : pick(sizeof bodies[0])};
}

/* The same change of the same keys, under the version that each store has; now and then under another. */
static void commit(pair *p)
{
    uint64_t numbers[TOGETHER], wrong = pick(4) == 0 ? pick(TOGETHER) : TOGETHER;
    hx_item items[BOTH][TOGETHER];
    size_t count = 1 + pick(TOGETHER);
    hx_store_result results[BOTH];
    for (size_t i = 0; i < count; i++) numbers[i] = (i == 0 ? pick(KEYS) : numbers[i - 1] + 1 + pick(4)) % KEYS;
    get(p, numbers, count, items);
    for (size_t i = 0; i < count; i++) {
        hx_item next = {0};
        change(&next);
        for (int s = 0; s < BOTH; s++) {
            next.version = items[s][i].version;
            if (i == wrong) next.version = next.version > 0 && i % 2 == 0 ? 0 : next.version + 1;
            next.key = items[s][i].key;
            items[s][i] = next;
        }
    }
    for (int s = 0; s < BOTH; s++) {
        waited w;
        uint64_t known = s == REFERENCE ? 0 : items[s][0].version;
        wait_start(&p->stores[s], &w);
        hx_store_commit(p->stores[s].store, &w.call, items[s], count, pick(8) == 0);
        wait_for(&p->stores[s], &w);
        results[s] = w.call.result;
        if (results[s] == HX_STORE_OK) assert_true(w.call.version > known);
        if (results[s] == HX_STORE_STALE) assert_true(hx_slice_eq(w.call.stale->key, key_of(p, numbers[wrong])));
    }
    assert_int_equal(results[REFERENCE], wrong < count ? HX_STORE_STALE : HX_STORE_OK);
    assert_int_equal(results[OTHER], results[REFERENCE]);
    get(p, numbers, count, items);
}

static void scan(bench *b, hx_item_page *page)
{
    waited w;
    wait_start(b, &w);
    hx_store_scan(b->store, &w.call, page);
    wait_for(b, &w);
    assert_int_equal(w.call.result, HX_STORE_OK);
}

/* Page after page, from the start or from any place. */
static void compare_pages(pair *p)
{
    hx_item_page wanted = {.by_queue = pick(2),
                           .backwards = pick(2),
                           .with_bodies = pick(2),
                           .prefix = hx_slice_of(prefixes[pick(sizeof prefixes / sizeof prefixes[0])]),
                           .due_until = (hx_ms)pick(7),
                           .items_max = 1 + (unsigned)pick(20)};
    wanted.one_per_queue = wanted.by_queue && !wanted.backwards && pick(2);
    if (pick(3) == 0)
        wanted.after = (hx_item){.key = key_of(p, pick(KEYS)), .queue = any_queue(), .due = (hx_ms)pick(7)};
    hx_slice after = wanted.by_queue ? wanted.after.queue : wanted.after.key;
    if (wanted.backwards && !hx_slice_starts(after, wanted.prefix)) wanted.after = (hx_item){0};
    for (bool more = true; more;) {
        hx_item_page pages[BOTH] = {wanted, wanted};
        for (int s = 0; s < BOTH; s++) scan(&p->stores[s], &pages[s]);
        assert_int_equal(pages[REFERENCE].count, pages[OTHER].count);
        assert_int_equal(pages[REFERENCE].more, pages[OTHER].more);
        assert_int_equal(pages[REFERENCE].bytes, pages[OTHER].bytes);
        for (size_t i = 0; i < pages[OTHER].count; i++) same_item(&pages[REFERENCE].items[i], &pages[OTHER].items[i]);
        more = pages[OTHER].more;
        if (pages[OTHER].count > 0) wanted.after = pages[OTHER].items[pages[OTHER].count - 1];
    }
}

static void step(pair *p)
{
    uint64_t dice = pick(100), numbers[TOGETHER];
    hx_item items[BOTH][TOGETHER];
    if (dice < 60) {
        commit(p);
    } else if (dice < 90) {
        compare_pages(p);
    } else if (dice < 94) {
        for (size_t i = 0; i < TOGETHER; i++) numbers[i] = pick(KEYS);
        get(p, numbers, TOGETHER, items);
    } else if (dice < 98) {
        test_now += pick(2) ? (hx_ms)pick(3000) : 1000 - test_now % 1000;
        for (int s = 0; s < BOTH && pick(3) > 0; s++) (void)sweep(&p->stores[s]);
    } else {
        bench_restart(&p->stores[OTHER]);
    }
    for (int s = 0; s < BOTH; s++) hx_arena_free(&p->stores[s].arena);
}

static void both_do_the_same(void **state)
{
    (void)state;
    static pair p;
    make_keys(&p);
    for (int i = 0; i < 3; i++) memset(bodies[i], 'x' + i, sizeof bodies[i]);
    for (uint64_t i = 0; i < seeds; i++) {
        uint64_t seed = first_seed ? first_seed : hx_rand_u64() | 1;
        print_message("seed %llu\n", (unsigned long long)seed);
        bench_begin(&p.stores[REFERENCE], "memory", (hx_store_options){0});
        bench_begin(&p.stores[OTHER], backend, (hx_store_options){.segment_bytes = 64 << 10});
        hx_rand_seed(seed);
        for (int at = 0; at < STEPS; at++) step(&p);
        for (int s = 0; s < BOTH; s++) bench_end(&p.stores[s]);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    backend = argv[1];
    if (argc > 2) first_seed = strtoull(argv[2], NULL, 10), seeds = 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_do_the_same)};
    return cmocka_run_group_tests_name(backend, tests, NULL, NULL);
}
