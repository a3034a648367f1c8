/* SPDX-License-Identifier: Apache-2.0 */
/* Random sequences of calls, made on the reference and on another store at the same time and compared step by step,
 * with restarts and crashes of the other in between. The reference has no restarts: what they do to an exclusive store
 * by G9 is done to it by hand. A failure prints its seed; `test_store_differential BACKEND SEED` runs that one. */
#include "store/harness.h"

#include "core/operation/policy.h"

#include "base/check.h"
#include "base/rand.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

#define OPERATIONS 40u
#define ITEMS 24u
#define ITEMS_A_COMMIT 5u
#define STEPS 2000
#define WATCHES 24

enum { REFERENCE, OTHER, BOTH };

static const char *backend = "journal";
static bool other_keeps_items;

#define ROUTES 4u
static const hx_slice routes[ROUTES] = {{"refunds", 7}, {"POST /orders", 12}, {"POST /a", 7}, {"orders", 6}};

typedef struct {
    bench stores[BOTH];
    hx_record records[BOTH][OPERATIONS]; /* as last claimed */
    uint64_t highest[BOTH];              /* epoch that was seen */
    uint64_t versions[BOTH][ITEMS];      /* of items, as last written */
    uint64_t former[BOTH][ITEMS];        /* and before that */
    uint64_t version_max[BOTH];
    waited watches[BOTH][WATCHES];
    bool watching[WATCHES];
    uint64_t seed;
    char body[9000];
    char text[100]; /* an item's meta is text */
} pair;

static uint64_t pick(uint64_t below)
{
    return hx_rand_below(below);
}

static void same_record(const hx_record *a, const hx_record *b)
{
    assert_int_equal(a->state, b->state);
    if (a->state == HX_ABSENT && a->answer.status == 0) return;
    assert_int_equal(a->created_at, b->created_at);
    assert_int_equal(a->expires_at, b->expires_at);
    assert_int_equal(a->tombstone_until, b->tombstone_until);
    assert_int_equal(a->lease_until, b->lease_until);
    assert_int_equal(a->answer.status, b->answer.status);
    assert_true(hx_slice_eq(a->answer.body, b->answer.body));
    assert_true(hx_slice_eq(a->answer.headers, b->answer.headers));
    assert_memory_equal(&a->fingerprint, &b->fingerprint, sizeof a->fingerprint);
}

static void compare_operation(pair *p, uint64_t number)
{
    hx_record found[BOTH] = {0};
    for (int s = 0; s < BOTH; s++) peek(&p->stores[s], op_of(number), &found[s]);
    if (peek(&p->stores[REFERENCE], op_of(number), NULL) == HX_ABSENT) {
        assert_int_equal(peek(&p->stores[OTHER], op_of(number), NULL), HX_ABSENT);
        return;
    }
    same_record(&found[REFERENCE], &found[OTHER]);
    /* the numbers of the epochs differ, what they stand for doesn't */
    assert_int_equal(found[REFERENCE].epoch == p->records[REFERENCE][number].epoch,
                     found[OTHER].epoch == p->records[OTHER][number].epoch);
}

/* Both list the same operations, in the same states; page by page, with any filter. */
static void compare_lists(pair *p)
{
    static const unsigned filters[] = {0, 1u << HX_UNKNOWN, 1u << HX_EXPIRED, 1u << HX_COMPLETED | 1u << HX_FAILED};
    unsigned states = filters[pick(4)], records_max = 1 + (unsigned)pick(OPERATIONS);
    hx_slice route = pick(2) ? routes[pick(ROUTES)] : HX_EMPTY;
    hx_state seen[BOTH][OPERATIONS + 1] = {0};
    for (int s = 0; s < BOTH; s++) {
        hx_store_page page = {.states = states, .route = route, .records_max = records_max};
        do {
            waited w;
            wait_start(&p->stores[s], &w);
            hx_store_list(p->stores[s].store, &w.call, &page);
            wait_for(&p->stores[s], &w);
            for (size_t i = 0; i < page.count; i++) {
                uint64_t number;
                memcpy(&number, page.records[i].op.bytes, sizeof number);
                assert_true(number <= OPERATIONS);
                assert_int_equal(seen[s][number], HX_ABSENT);
                seen[s][number] = page.records[i].state;
            }
        } while (page.more);
    }
    assert_memory_equal(seen[REFERENCE], seen[OTHER], sizeof seen[REFERENCE]);
}

static uint64_t live_under(const hx_store_rules *rules, const hx_store_rule *rule)
{
    for (size_t i = 0; i < rules->count; i++)
        if (rules->rules[i].version == rule->version && hx_slice_eq(rules->rules[i].route, rule->route))
            return rules->rules[i].live;
    return 0;
}

/* After a sweep: both count the same under each rule. */
static void compare_rules(pair *p)
{
    hx_store_rules rules[BOTH];
    if (strcmp(backend, "postgres") == 0) { /* it counts when it is opened, and when it sweeps */
        bench_restart(&p->stores[OTHER]);
        (void)sweep(&p->stores[OTHER]);
    }
    for (int s = 0; s < BOTH; s++) hx_store_rules_of(p->stores[s].store, &p->stores[s].arena, &rules[s]);
    assert_int_equal(rules[REFERENCE].count, rules[OTHER].count);
    assert_int_equal(rules[REFERENCE].others, rules[OTHER].others);
    for (size_t i = 0; i < rules[REFERENCE].count; i++)
        assert_int_equal(live_under(&rules[OTHER], &rules[REFERENCE].rules[i]), rules[REFERENCE].rules[i].live);
    for (size_t i = 0; i < ROUTES; i++)
        assert_true(hx_store_live_at_most(p->stores[OTHER].store, routes[i]) >=
                    hx_store_live_at_most(p->stores[REFERENCE].store, routes[i]));
}

static const char *key_of_item(uint64_t number)
{
    static char keys[ITEMS][32];
    (void)snprintf(keys[number], sizeof keys[number], "%s%02u", number % 3 ? "event/" : "d\xff\xff", (unsigned)number);
    return keys[number];
}

static uint64_t number_of_item(hx_slice key)
{
    for (uint64_t i = 0; i < ITEMS; i++)
        if (hx_slice_eq(key, hx_slice_of(key_of_item(i)))) return i;
    fail_msg("an item has another key");
    return 0;
}

/* Their versions differ, what they stand for doesn't. */
static void same_item(const pair *p, const hx_item *a, const hx_item *b)
{
    assert_true(hx_slice_eq(a->key, b->key));
    uint64_t number = number_of_item(a->key);
    assert_int_equal(a->version == 0, b->version == 0);
    assert_int_equal(a->version == p->versions[REFERENCE][number], b->version == p->versions[OTHER][number]);
    assert_int_equal(a->due, b->due);
    assert_int_equal(a->expires_at, b->expires_at);
    assert_true(hx_slice_eq(a->queue, b->queue));
    assert_true(hx_slice_eq(a->meta, b->meta));
    assert_true(hx_slice_eq(a->body, b->body));
}

/* All at once, as of one moment. */
static void compare_items(pair *p)
{
    hx_item items[BOTH][ITEMS];
    if (!other_keeps_items) return;
    for (int s = 0; s < BOTH; s++) {
        waited w;
        for (uint64_t i = 0; i < ITEMS; i++) items[s][i] = (hx_item){.key = hx_slice_of(key_of_item(i))};
        wait_start(&p->stores[s], &w);
        hx_store_get(p->stores[s].store, &w.call, items[s], ITEMS);
        wait_for(&p->stores[s], &w);
        assert_int_equal(w.call.result, HX_STORE_OK);
    }
    for (uint64_t i = 0; i < ITEMS; i++) same_item(p, &items[REFERENCE][i], &items[OTHER][i]);
}

static void compare_all(pair *p)
{
    hx_store_counts counts[BOTH];
    compare_lists(p);
    compare_items(p);
    for (uint64_t i = 0; i < OPERATIONS; i++) compare_operation(p, i);
    for (int s = 0; s < BOTH; s++) {
        hx_store_count(p->stores[s].store, &counts[s]);
        hx_arena_free(&p->stores[s].arena);
    }
    assert_int_equal(counts[REFERENCE].processing, counts[OTHER].processing);
    assert_int_equal(counts[REFERENCE].unknown, counts[OTHER].unknown);
    assert_int_equal(counts[REFERENCE].watchers, counts[OTHER].watchers);
}

static void step_claim(pair *p, uint64_t number)
{
    hx_store_result result[BOTH];
    hx_record found[BOTH];
    bool take_over = pick(3) == 0, wrong = pick(4) == 0;
    hx_slice route = routes[pick(ROUTES)];
    uint32_t version = (uint32_t)(1 + pick(2)) | (pick(2) ? HX_RULE_NAMED : 0);
    for (int s = 0; s < BOTH; s++) {
        hx_record r = record_of(number);
        r.route = route;
        r.rule_version = version;
        uint64_t over = take_over ? p->records[s][number].epoch + wrong : 0;
        result[s] = claim(&p->stores[s], &r, over, &found[s]);
        if (result[s] != HX_STORE_OK) continue;
        assert_true(r.epoch > p->highest[s]); /* G4 */
        p->highest[s] = r.epoch;
        p->records[s][number] = r;
    }
    assert_int_equal(result[REFERENCE], result[OTHER]);
    if (result[REFERENCE] == HX_STORE_EXISTS) same_record(&found[REFERENCE], &found[OTHER]);
}

static void step_settle(pair *p, uint64_t number)
{
    static const hx_state states[] = {HX_COMPLETED, HX_COMPLETED, HX_FAILED, HX_UNKNOWN, HX_ABSENT};
    hx_state to = states[pick(5)];
    uint64_t off = pick(5) == 0, lifetime = 1 + pick(100000), tombstone = pick(3) ? 0 : lifetime + pick(100000);
    size_t len = pick(8) ? pick(300) : pick(sizeof p->body);
    hx_store_result result[BOTH];
    hx_record found[BOTH];
    for (int s = 0; s < BOTH; s++) {
        hx_record r = p->records[s][number];
        if (r.epoch == 0) r = record_of(number);
        r.epoch -= r.epoch > 0 ? off : 0;
        bool ends = to == HX_COMPLETED || to == HX_FAILED;
        r.expires_at = ends ? test_now + (hx_ms)lifetime : 0;
        r.tombstone_until = ends && tombstone ? test_now + (hx_ms)tombstone : 0;
        r.answer = (hx_answer){200, true, HX_LIT("A: 1\r\n"), {p->body, len}};
        result[s] = settle(&p->stores[s], &r, to, &found[s]);
    }
    assert_int_equal(result[REFERENCE], result[OTHER]);
    if (result[REFERENCE] == HX_STORE_STALE) same_record(&found[REFERENCE], &found[OTHER]);
}

/* Of a forget that names states, and of an import: what the rules of core/operation/lifecycle say of both. */
static void step_forget(pair *p, uint64_t number)
{
    static const unsigned filters[] = {0, 1u << HX_UNKNOWN, 1u << HX_EXPIRED, 1u << HX_COMPLETED | 1u << HX_FAILED};
    unsigned states = filters[pick(4)];
    hx_op op = op_of(number);
    waited w[BOTH];
    for (int s = 0; s < BOTH; s++) {
        wait_start(&p->stores[s], &w[s]);
        w[s].call.states = states;
        hx_store_forget(p->stores[s].store, &w[s].call, &op, 0, HX_LIT("a reason"));
        wait_for(&p->stores[s], &w[s]);
    }
    assert_int_equal(w[REFERENCE].call.result, w[OTHER].call.result);
    if (w[OTHER].call.result == HX_STORE_STALE) same_record(&w[REFERENCE].call.found, &w[OTHER].call.found);
}

static void step_import(pair *p, uint64_t number)
{
    static const hx_state states[] = {HX_ABSENT, HX_COMPLETED, HX_FAILED, HX_UNKNOWN, HX_EXPIRED};
    hx_state to = states[pick(5)];
    bool ends = to == HX_COMPLETED || to == HX_FAILED;
    uint64_t lifetime = 1 + pick(100000);
    waited w[BOTH];
    for (int s = 0; s < BOTH; s++) {
        hx_record r = record_of(number);
        r.state = to;
        r.epoch = ++p->highest[s];
        r.lease_until = 0;
        r.expires_at = ends ? test_now + (hx_ms)lifetime : 0;
        r.tombstone_until = to == HX_EXPIRED ? test_now + (hx_ms)lifetime : 0;
        if (ends) r.answer = (hx_answer){200, true, HX_LIT("A: 1\r\n"), HX_LIT("imported")};
        wait_start(&p->stores[s], &w[s]);
        hx_store_import(p->stores[s].store, &w[s].call, &r);
        wait_for(&p->stores[s], &w[s]);
        if (w[s].call.result == HX_STORE_OK && to != HX_ABSENT) p->records[s][number] = r;
    }
    if (to == HX_ABSENT) return; /* writes nothing: a store may say OK or EXISTS where an operation exists */
    assert_int_equal(w[REFERENCE].call.result, w[OTHER].call.result);
    if (w[OTHER].call.result == HX_STORE_EXISTS) same_record(&w[REFERENCE].call.found, &w[OTHER].call.found);
}

static void step_other(pair *p, uint64_t number)
{
    hx_store_result result[BOTH];
    hx_record found[BOTH];
    bool forgets = pick(3) == 0;
    uint64_t any = pick(2), lease = pick(200000), off = pick(4) == 0;
    for (int s = 0; s < BOTH; s++) {
        uint64_t epoch = p->records[s][number].epoch + off;
        result[s] = forgets ? forget(&p->stores[s], op_of(number), any ? 0 : epoch, &found[s])
                            : renew(&p->stores[s], op_of(number), epoch, test_now + (hx_ms)lease, &found[s]);
    }
    assert_int_equal(result[REFERENCE], result[OTHER]);
    if (result[REFERENCE] == HX_STORE_STALE) same_record(&found[REFERENCE], &found[OTHER]);
}

static const char *const queues[] = {"", "", "due/a", "due/b", "due", "dead"};

/* A change of that item, without the version that it must have. */
static hx_item draw_item(pair *p, uint64_t number)
{
    static const hx_item_act acts[] = {HX_ITEM_PUT, HX_ITEM_PUT, HX_ITEM_PUT, HX_ITEM_REMOVE, HX_ITEM_CHECK};
    size_t body_len = pick(6) ? pick(200) : pick(sizeof p->body);
    return (hx_item){.key = hx_slice_of(key_of_item(number)),
                     .act = acts[pick(5)],
                     .queue = hx_slice_of(queues[pick(6)]),
                     .due = (hx_ms)pick(50),
                     .expires_at = pick(3) ? 0 : test_now + (hx_ms)pick(100000) + 1,
                     .meta = {p->text, pick(sizeof p->text)},
                     .body = {p->body + pick(100), pick(2) && body_len > 100 ? body_len - 100 : 0}};
}

static void step_commit(pair *p, uint64_t number)
{
    hx_item drawn[ITEMS_A_COMMIT], now;
    uint64_t expected[ITEMS_A_COMMIT];
    bool there[ITEMS_A_COMMIT], urgent = pick(2);
    size_t count = 1 + pick(ITEMS_A_COMMIT);
    hx_store_result result[BOTH];
    for (size_t i = 0; i < count; i++) {
        drawn[i] = draw_item(p, (number + i) % ITEMS);
        expected[i] = pick(12); /* 0: that it has none, 1: the former one, else: the one that it has */
        assert_int_equal(get_item(&p->stores[REFERENCE], key_of_item((number + i) % ITEMS), &now), HX_STORE_OK);
        there[i] = now.version > 0;
    }
    for (int s = 0; s < BOTH; s++) {
        hx_item items[ITEMS_A_COMMIT];
        uint64_t version;
        for (size_t i = 0; i < count; i++) {
            uint64_t n = (number + i) % ITEMS;
            items[i] = drawn[i];
            items[i].version = expected[i] == 0 ? 0 : expected[i] == 1 ? p->former[s][n] : p->versions[s][n];
            if (expected[i] > 1 && !there[i]) items[i].version = 0;
        }
        result[s] = commit_items(&p->stores[s], items, count, urgent, &version);
        for (size_t i = 0; result[s] == HX_STORE_OK && i < count; i++) {
            uint64_t n = (number + i) % ITEMS;
            if (drawn[i].act != HX_ITEM_PUT) continue;
            assert_true(version > p->version_max[s]); /* E4 */
            p->former[s][n] = p->versions[s][n];
            p->versions[s][n] = version;
        }
        if (result[s] == HX_STORE_OK && version > p->version_max[s]) p->version_max[s] = version;
    }
    assert_int_equal(result[REFERENCE], result[OTHER]);
    compare_items(p);
}

static hx_item_page draw_page(void)
{
    static const char *const prefixes[] = {"", "d", "due/", "event/1", "due/a", "d\xff", "x"};
    hx_item_page page = {.by_queue = pick(2),
                         .backwards = pick(3) == 0,
                         .with_bodies = pick(2),
                         .prefix = hx_slice_of(prefixes[pick(7)]),
                         .due_until = pick(2) ? (hx_ms)pick(50) : 0,
                         .items_max = 1 + (unsigned)pick(ITEMS)};
    page.one_per_queue = page.by_queue && !page.backwards && pick(3) == 0;
    return page;
}

/* Page by page, as far as they go. */
static void step_scan(pair *p)
{
    const hx_item_page drawn = draw_page();
    hx_item_page page[BOTH] = {drawn, drawn};
    do {
        for (int s = 0; s < BOTH; s++) {
            waited w;
            wait_start(&p->stores[s], &w);
            hx_store_scan(p->stores[s].store, &w.call, &page[s]);
            wait_for(&p->stores[s], &w);
            assert_int_equal(w.call.result, HX_STORE_OK);
        }
        assert_int_equal(page[REFERENCE].count, page[OTHER].count);
        assert_true(page[OTHER].more || !page[REFERENCE].more);
        for (size_t i = 0; i < page[OTHER].count; i++) same_item(p, &page[REFERENCE].items[i], &page[OTHER].items[i]);
        for (int s = 0; s < BOTH && page[OTHER].count > 0; s++) page[s].after = page[s].items[page[s].count - 1];
    } while (page[OTHER].more && page[OTHER].count > 0);
}

static void end_watch(pair *p, int slot)
{
    waited *w[BOTH] = {&p->watches[REFERENCE][slot], &p->watches[OTHER][slot]};
    for (int s = 0; s < BOTH; s++) wait_for(&p->stores[s], w[s]);
    assert_int_equal(w[0]->call.result, w[1]->call.result);
    if (w[0]->call.result == HX_STORE_OK) same_record(&w[0]->call.found, &w[1]->call.found);
    p->watching[slot] = false;
}

/* Looks whether watches have ended on both, or on none. */
static void settle_watches(pair *p)
{
    for (int slot = 0; slot < WATCHES; slot++) {
        if (!p->watching[slot]) continue;
        if (p->watches[REFERENCE][slot].done || p->watches[OTHER][slot].done) end_watch(p, slot);
    }
}

static void step_watch(pair *p, uint64_t number)
{
    int slot = (int)pick(WATCHES);
    if (p->watching[slot]) {
        for (int s = 0; s < BOTH; s++) hx_store_cancel(p->stores[s].store, &p->watches[s][slot].call);
        end_watch(p, slot);
        return;
    }
    p->watching[slot] = true;
    for (int s = 0; s < BOTH; s++) {
        wait_start(&p->stores[s], &p->watches[s][slot]);
        hx_op op = op_of(number);
        hx_store_watch(p->stores[s].store, &p->watches[s][slot].call, &op, p->records[s][number].epoch);
        /* what comes later finds it parked, or ended */
        assert_int_equal(renew(&p->stores[s], op_of(OPERATIONS), 1, 0, NULL), HX_STORE_STALE);
    }
}

static void stop_watches(pair *p)
{
    for (int slot = 0; slot < WATCHES; slot++) {
        if (!p->watching[slot]) continue;
        for (int s = 0; s < BOTH; s++) hx_store_cancel(p->stores[s].store, &p->watches[s][slot].call);
        end_watch(p, slot);
    }
}

static void remove_hints(const bench *b)
{
    DIR *dir = opendir(b->directory);
    for (struct dirent *item; (item = readdir(dir));)
        if (strstr(item->d_name, ".hint")) (void)unlinkat(dirfd(dir), item->d_name, 0);
    closedir(dir);
}

static void step_restart(pair *p)
{
    stop_watches(p);
    bench *other = &p->stores[OTHER], *reference = &p->stores[REFERENCE];
    bench_close(other);
    if (pick(2)) remove_hints(other);
    bench_open(other);
    if (hx_store_about(other->store)->shared) return;
    for (uint64_t i = 0; i < OPERATIONS; i++) {
        hx_record r;
        if (peek(reference, op_of(i), &r) == HX_PROCESSING)
            assert_int_equal(settle(reference, &r, HX_UNKNOWN, NULL), HX_STORE_OK);
    }
}

static void step_sweep(pair *p)
{
    for (int s = 0; s < BOTH; s++) (void)sweep(&p->stores[s]);
}

static void run_seed(uint64_t seed)
{
    pair *p = calloc(1, sizeof *p);
    p->seed = seed;
    hx_rand_seed(seed);
    hx_rand_bytes(p->body, sizeof p->body);
    for (size_t i = 0; i < sizeof p->text; i++) p->text[i] = (char)('!' + pick(94));
    bench_begin(&p->stores[REFERENCE], "memory", (hx_store_options){0});
    bench_begin(&p->stores[OTHER], backend, (hx_store_options){.segment_bytes = 16 << 10});
    other_keeps_items = hx_store_about(p->stores[OTHER].store)->keeps_items;
    for (int step = 0; step < STEPS; step++) {
        uint64_t what = pick(other_keeps_items ? 130 : 100), number = pick(OPERATIONS);
        if (what < 34)
            step_claim(p, number);
        else if (what < 66)
            step_settle(p, number);
        else if (what < 72)
            step_other(p, number);
        else if (what < 74)
            step_forget(p, number);
        else if (what < 76)
            step_import(p, number);
        else if (what < 86)
            step_watch(p, number);
        else if (what < 92)
            test_now += (hx_ms)pick(30000);
        else if (what < 98)
            step_sweep(p);
        else if (what < 100)
            step_restart(p);
        else if (what < 120)
            step_commit(p, number % ITEMS);
        else
            step_scan(p);
        settle_watches(p);
        compare_operation(p, number);
        if (step % 50 == 0) {
            step_sweep(p);
            settle_watches(p);
            stop_watches(p); /* what they found lies in the arenas that are freed now */
            compare_rules(p);
            compare_all(p);
        }
    }
    stop_watches(p);
    step_restart(p);
    step_sweep(p);
    compare_rules(p);
    compare_all(p);
    for (int s = 0; s < BOTH; s++) bench_end(&p->stores[s]);
    free(p);
}

#define CRASH_STEPS 60u
#define CRASH_OPERATIONS 6u
#define CRASH_ITEMS 5u

typedef struct {
    hx_record records[CRASH_OPERATIONS]; /* as last claimed */
    uint64_t versions[CRASH_ITEMS];      /* of items that are there */
} played;

/* A commit of two items, one of which it may remove. */
static void play_items(bench *b, played *so_far, waited *w, bool wait)
{
    static hx_item items[2];
    static char meta[32];
    uint64_t number = pick(CRASH_ITEMS - 1);
    (void)snprintf(meta, sizeof meta, "written at %lld", (long long)test_now);
    for (uint64_t i = 0; i < 2; i++) items[i] = item_of(key_of_item(number + i), so_far->versions[number + i], meta);
    if (pick(3) == 0) items[0].act = HX_ITEM_REMOVE;
    bool removes = items[0].act == HX_ITEM_REMOVE;
    hx_store_commit(b->store, &w->call, items, 2, false);
    if (!wait) return;
    wait_for(b, w);
    assert_int_equal(w->call.result, HX_STORE_OK);
    so_far->versions[number] = removes ? 0 : w->call.version;
    so_far->versions[number + 1] = w->call.version;
}

/* One call of a sequence that follows from the seeds; not waited for when `wait` is false. */
static void play(bench *b, played *so_far, uint64_t seed, bool wait)
{
    static waited w;
    static hx_record next;
    hx_rand_seed(seed); /* a store may draw numbers, too */
    hx_record *records = so_far->records;
    uint64_t number = pick(CRASH_OPERATIONS), what = pick(13), to = pick(4), lifetime = 1 + pick(20);
    static const hx_state states[] = {HX_COMPLETED, HX_FAILED, HX_UNKNOWN, HX_ABSENT};
    test_now += HX_SECOND;
    wait_start(b, &w);
    next = record_of(number);
    if (what >= 10 && other_keeps_items) {
        play_items(b, so_far, &w, wait);
    } else if (what < 5) {
        hx_store_claim(b->store, &w.call, &next, records[number].epoch);
    } else if (what < 9) {
        next.epoch = records[number].epoch;
        next.state = states[to];
        next.expires_at = to < 2 ? test_now + (hx_ms)lifetime * HX_SECOND : 0;
        next.answer = (hx_answer){200, true, HX_LIT("A: 1\r\n"), HX_LIT("a body that is long enough to be seen")};
        hx_store_settle(b->store, &w.call, &next);
    } else {
        hx_store_sweep(b->store, &w.call);
    }
    if (!wait) {
        hx_loop_turn(b->loop, 0); /* it is handed over, and may or may not be written */
        return;
    }
    wait_for(b, &w);
    if (w.call.verb == HX_STORE_CLAIM && w.call.result == HX_STORE_OK) records[number] = next;
}

static void play_all(bench *b, played *so_far, uint64_t seed, unsigned steps)
{
    for (unsigned i = 0; i < steps; i++) play(b, so_far, seed * CRASH_STEPS + i, true);
}

static bool agrees(bench *reference, bench *other)
{
    bool shared = hx_store_about(other->store)->shared;
    for (uint64_t i = 0; i < CRASH_OPERATIONS; i++) {
        hx_record a = {0}, b = {0};
        hx_state expected = peek(reference, op_of(i), &a);
        if (expected == HX_PROCESSING && !shared) expected = HX_UNKNOWN;
        if (peek(other, op_of(i), &b) != expected) return false;
        if (!hx_slice_eq(a.answer.body, b.answer.body)) return false;
    }
    for (uint64_t i = 0; i < CRASH_ITEMS && other_keeps_items; i++) {
        hx_item a, b;
        assert_int_equal(get_item(reference, key_of_item(i), &a), HX_STORE_OK);
        assert_int_equal(get_item(other, key_of_item(i), &b), HX_STORE_OK);
        if ((a.version == 0) != (b.version == 0) || !hx_slice_eq(a.meta, b.meta)) return false;
    }
    return true;
}

/* The process ends after `steps` calls, without closing, and in the middle of one more. */
static void crash_after(unsigned steps, uint64_t seed)
{
    hx_ms began = test_now;
    bench other, reference;
    bench_begin(&other, backend, (hx_store_options){.segment_bytes = 8 << 10});
    other_keeps_items = hx_store_about(other.store)->keeps_items;
    bench_close(&other);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        played so_far = {0};
        bench_open(&other);
        play_all(&other, &so_far, seed, steps);
        play(&other, &so_far, seed * CRASH_STEPS + steps, false);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    bool either = false;
    bench_begin(&reference, "memory", (hx_store_options){0});
    play_all(&reference, &(played){0}, seed, steps);
    bench_open(&other);
    test_now += HX_SECOND; /* as the child's last call saw it */
    either = agrees(&reference, &other);
    bench_end(&reference);
    if (!either) {
        test_now = began;
        bench_begin(&reference, "memory", (hx_store_options){0});
        play_all(&reference, &(played){0}, seed, steps + 1);
        either = agrees(&reference, &other);
        bench_end(&reference);
    }
    assert_true(either);
    hx_record again = record_of(CRASH_OPERATIONS);
    assert_int_equal(claim(&other, &again, 0, NULL), HX_STORE_OK);
    bench_end(&other);
}

static void a_crash_between_any_two_calls_loses_nothing(void **state)
{
    (void)state;
    for (unsigned steps = 0; steps < CRASH_STEPS; steps++) crash_after(steps, 77 + steps % 3);
}

static uint64_t first_seed = 1, seeds = 6;

static void it_and_the_reference_agree_step_by_step(void **state)
{
    (void)state;
    for (uint64_t seed = first_seed; seed < first_seed + seeds; seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        run_seed(seed);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) backend = argv[1];
    if (argc > 2) {
        first_seed = strtoull(argv[2], NULL, 10);
        seeds = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_and_the_reference_agree_step_by_step),
        cmocka_unit_test(a_crash_between_any_two_calls_loses_nothing),
    };
    if (strcmp(backend, "postgres") == 0) { /* a server may still be at work on what a client that is gone has sent */
        const struct CMUnitTest first[] = {tests[0]};
        return cmocka_run_group_tests_name(backend, first, NULL, NULL);
    }
    return cmocka_run_group_tests_name(backend, tests, NULL, NULL);
}
