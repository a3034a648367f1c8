/* SPDX-License-Identifier: Apache-2.0 */
/* What only PostgreSQL can get wrong about items: transactions that run at the same time, and connections that are cut
 * in the middle of a commit. Run by tests/store/with_postgres. */
#include "store/direct.h"
#include "store/harness.h"

#include "base/check.h"
#include "base/memory/list.h"
#include "base/rand.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#define S(text) hx_slice_of(text)

/* A store, and two connections of the test beside it: one that looks, one that has a transaction of its own. */
typedef struct {
    bench b;
    PGconn *conn, *other;
} scene;

static void scene_begin(scene *s)
{
    bench_begin(&s->b, "postgres", (hx_store_options){0});
    s->conn = connect_directly();
    s->other = connect_directly();
}

static void scene_end(scene *s)
{
    assert_int_equal(ask(s->conn, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"), 0);
    pq->finish(s->conn);
    pq->finish(s->other);
    bench_end(&s->b);
}

static hx_item new_item(const char *key, hx_item_act act, uint64_t version, const char *meta)
{
    return (hx_item){
        .key = S(key), .version = version, .act = act, .queue = HX_EMPTY, .meta = S(meta), .body = HX_EMPTY};
}

static void start_commit(scene *s, waited *w, hx_item *items, size_t count)
{
    wait_start(&s->b, w);
    hx_store_commit(s->b.store, &w->call, items, count, false);
}

static uint64_t commit(scene *s, hx_item *items, size_t count)
{
    waited w;
    start_commit(s, &w, items, count);
    wait_for(&s->b, &w);
    assert_int_equal(w.call.result, HX_STORE_OK);
    return w.call.version;
}

static uint64_t put(scene *s, const char *key, const char *meta)
{
    hx_item item = new_item(key, HX_ITEM_PUT, 0, meta);
    return commit(s, &item, 1);
}

static hx_item get(scene *s, const char *key)
{
    waited w;
    hx_item item = {.key = S(key)};
    wait_start(&s->b, &w);
    hx_store_get(s->b.store, &w.call, &item, 1);
    wait_for(&s->b, &w);
    assert_int_equal(w.call.result, HX_STORE_OK);
    return item;
}

static void assert_stale(scene *s, waited *w, const char *key)
{
    wait_for(&s->b, w);
    assert_int_equal(w->call.result, HX_STORE_STALE);
    assert_true(hx_slice_eq(w->call.stale->key, S(key)));
}

/* Until a connection of the store waits for this. */
static void turn_until_it_waits(scene *s, const char *event)
{
    char sql[256];
    (void)snprintf(sql, sizeof sql,
                   "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hapax' AND state = 'active' AND "
                   "'%s' IN (wait_event, wait_event_type)",
                   event);
    while (ask(s->conn, sql) == 0) hx_loop_turn(s->b.loop, 1);
}

/* Commits that run at the same time */

static void a_commit_that_is_refused_takes_no_other_one_along(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s);
    uint64_t first = put(&s, "b", "1");
    hx_item one[] = {new_item("a", HX_ITEM_PUT, 0, "x"), new_item("b", HX_ITEM_CHECK, first, "")};
    hx_item two[] = {new_item("c", HX_ITEM_PUT, 0, "x"), new_item("d", HX_ITEM_PUT, first, "x"),
                     new_item("e", HX_ITEM_PUT, 0, "x")};
    hx_item three[] = {new_item("f", HX_ITEM_PUT, 0, "x")}, four[] = {new_item("c", HX_ITEM_PUT, 0, "y")};
    waited w[4];
    start_commit(&s, &w[0], one, 2);
    start_commit(&s, &w[1], two, 3);
    start_commit(&s, &w[2], three, 1);
    wait_for(&s.b, &w[2]);
    assert_int_equal(ask(s.conn, "SELECT count(DISTINCT xmin::text) FROM hapax.items WHERE key IN ('a', 'f')"), 1);
    assert_stale(&s, &w[1], "d");
    assert_true(w[0].call.result == HX_STORE_OK && w[2].call.result == HX_STORE_OK);
    assert_true(w[0].call.version > first && w[2].call.version > first && w[0].call.version != w[2].call.version);
    assert_int_equal(ask(s.conn, "SELECT count(*) FROM hapax.items"), 3);
    assert_int_equal(get(&s, "a").version, w[0].call.version);
    start_commit(&s, &w[3], four, 1);
    wait_for(&s.b, &w[3]);
    assert_int_equal(w[3].call.result, HX_STORE_OK);
    scene_end(&s);
}

static void a_version_is_compared_when_nobody_else_can_change_it(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s);
    uint64_t a = put(&s, "a", "1"), b = put(&s, "b", "1"), z = put(&s, "z", "1");
    const char *const changes[] = {"UPDATE hapax.items SET meta = '2', version = nextval('hapax.item_versions') "
                                   "WHERE key = 'b'",
                                   "DELETE FROM hapax.items WHERE key = 'z'"};
    const char *const differ[] = {"b", "z"};
    for (int i = 0; i < 2; i++) {
        hx_item items[] = {new_item("a", HX_ITEM_PUT, a, "3"), new_item("b", HX_ITEM_PUT, b, "3"),
                           new_item("c", HX_ITEM_PUT, 0, "3"), new_item("z", HX_ITEM_CHECK, z, "")};
        waited w;
        do_sql(s.other, "BEGIN");
        do_sql(s.other, changes[i]);
        start_commit(&s, &w, items, 4);
        turn_until_it_waits(&s, "Lock");
        do_sql(s.other, "COMMIT");
        assert_stale(&s, &w, differ[i]);
        assert_int_equal(get(&s, "a").version, a);
        assert_int_equal(get(&s, "c").version, 0);
        assert_true(hx_slice_eq(get(&s, "b").meta, S("2")));
        b = get(&s, "b").version;
    }
    scene_end(&s);
}

#define INSERT_B "BEGIN; INSERT INTO hapax.items VALUES ('b', nextval('hapax.item_versions'), NULL, 0, 0, 'theirs', '')"

/* Another transaction inserts one of the keys, which was absent when the commit looked. */
static void a_commit_that_loses_a_race_leaves_nothing(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s);
    do_sql(s.other, INSERT_B);
    hx_item before[] = {new_item("0", HX_ITEM_PUT, 0, "x")}, after[] = {new_item("1", HX_ITEM_PUT, 0, "x")};
    hx_item items[] = {new_item("a", HX_ITEM_PUT, 0, "ours"), new_item("b", HX_ITEM_PUT, 0, "ours"),
                       new_item("c", HX_ITEM_PUT, 0, "ours")};
    waited w[3];
    start_commit(&s, &w[0], before, 1);
    start_commit(&s, &w[1], items, 3);
    start_commit(&s, &w[2], after, 1);
    turn_until_it_waits(&s, "Lock");
    do_sql(s.other, "COMMIT");
    assert_stale(&s, &w[1], "b");
    for (int i = 0; i < 3; i += 2) {
        wait_for(&s.b, &w[i]);
        assert_int_equal(w[i].call.result, HX_STORE_OK);
    }
    assert_int_equal(ask(s.conn, "SELECT count(*) FROM hapax.items WHERE key IN ('0', 'b', '1')"), 3);
    assert_int_equal(ask(s.conn, "SELECT count(*) FROM hapax.items"), 3);
    scene_end(&s);
}

/* Another transaction, which began before, puts and removes one of the keys under later versions. */
static void a_version_is_greater_than_one_that_was_drawn_meanwhile(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s);
    do_sql(s.other, INSERT_B);
    hx_item items[] = {new_item("a", HX_ITEM_PUT, 0, "x"), new_item("b", HX_ITEM_PUT, 0, "x")};
    waited w;
    start_commit(&s, &w, items, 2);
    turn_until_it_waits(&s, "Lock");
    int64_t later = ask(s.other, "SELECT nextval('hapax.item_versions')");
    do_sql(s.other, "DELETE FROM hapax.items WHERE key = 'b'; COMMIT");
    wait_for(&s.b, &w);
    assert_int_equal(w.call.result, HX_STORE_OK);
    assert_true(w.call.version > (uint64_t)later);
    assert_int_equal(get(&s, "b").version, w.call.version);
    assert_int_equal(get(&s, "a").version, w.call.version);
    scene_end(&s);
}

/* Somebody has locked an item, and goes away. */
static void a_commit_waits_for_a_lock_and_goes_on_without_it(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s);
    uint64_t a = put(&s, "a", "1");
    hx_item locked[] = {new_item("a", HX_ITEM_PUT, a, "2")}, free_one[] = {new_item("b", HX_ITEM_PUT, 0, "2")};
    waited w[2];
    do_sql(s.other, "BEGIN; SELECT FROM hapax.items WHERE key = 'a' FOR UPDATE");
    start_commit(&s, &w[0], locked, 1);
    start_commit(&s, &w[1], free_one, 1);
    for (int waits = 0; waits < 2; waits++) { /* with the other one, and alone */
        turn_until_it_waits(&s, "Lock");
        while (ask(s.conn, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hapax' AND "
                           "wait_event_type = 'Lock'") > 0)
            hx_loop_turn(s.b.loop, 1);
    }
    do_sql(s.other, "COMMIT");
    for (int i = 0; i < 2; i++) {
        wait_for(&s.b, &w[i]);
        assert_int_equal(w[i].call.result, HX_STORE_OK);
    }
    assert_true(w[1].call.version > w[0].call.version); /* in their order */
    scene_end(&s);
}

#define GROUPS 150
#define KEYS_OF_GROUP 8

typedef struct {
    hx_store *store;
    hx_loop *loop;
    hx_arena arena;
    pthread_t thread;
    struct {
        hx_store_call call;
        hx_item items[KEYS_OF_GROUP];
        size_t count;
        char keys[KEYS_OF_GROUP][16], meta[16];
    } tries[GROUPS];
    int left;
} racer;

static racer racers[2];

static void raced(hx_store_call *call)
{
    racer *r = call->loop == racers[0].loop ? &racers[0] : &racers[1];
    HX_CHECK(call->result == HX_STORE_OK || call->result == HX_STORE_STALE);
    if (--r->left == 0) hx_loop_stop(r->loop);
}

static void *race(void *context)
{
    racer *r = context;
    for (int i = 0; i < GROUPS; i++)
        hx_store_commit(r->store, &r->tries[i].call, r->tries[i].items, r->tries[i].count, false);
    hx_loop_run(r->loop);
    hx_arena_pool_drain();
    return NULL;
}

static void racers_begin(scene *s)
{
    for (int t = 0; t < 2; t++) {
        racer *r = &racers[t];
        *r = (racer){.store = s->b.store, .loop = hx_loop_new(), .left = GROUPS};
        hx_store_attach(s->b.store, r->loop);
        for (int i = 0; i < GROUPS; i++)
            r->tries[i].call = (hx_store_call){.loop = r->loop, .arena = &r->arena, .done = raced};
    }
}

static void racers_run(void)
{
    for (int t = 0; t < 2; t++) assert_int_equal(pthread_create(&racers[t].thread, NULL, race, &racers[t]), 0);
    for (int t = 0; t < 2; t++) pthread_join(racers[t].thread, NULL);
}

static void racers_end(scene *s)
{
    bench_close(&s->b);
    for (int t = 0; t < 2; t++) {
        hx_arena_free(&racers[t].arena);
        hx_loop_free(&racers[t].loop);
    }
    bench_open(&s->b);
}

/* Each group of one loop has keys of two groups of the other, which goes through them the other way round. */
static void of_commits_that_insert_the_same_keys_each_is_made_whole_or_not_at_all(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s);
    racers_begin(&s);
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < GROUPS; i++) {
            int first = (t == 0 ? i : GROUPS - 1 - i) * KEYS_OF_GROUP + t * KEYS_OF_GROUP / 2;
            (void)snprintf(racers[t].tries[i].meta, 16, "%d/%d", t, i);
            racers[t].tries[i].count = KEYS_OF_GROUP;
            for (int k = 0; k < KEYS_OF_GROUP; k++) {
                (void)snprintf(racers[t].tries[i].keys[k], 16, "key-%05d", first + k);
                racers[t].tries[i].items[k] = new_item(racers[t].tries[i].keys[k], HX_ITEM_PUT, 0,
                                                       racers[t].tries[i].meta);
            }
        }
    racers_run();
    int64_t made = 0;
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < GROUPS; i++) {
            if (racers[t].tries[i].call.result != HX_STORE_OK) continue;
            made++;
            for (int k = 0; k < KEYS_OF_GROUP; k++) {
                hx_item found = get(&s, racers[t].tries[i].keys[k]);
                assert_int_equal(found.version, racers[t].tries[i].call.version);
                assert_true(hx_slice_eq(found.meta, S(racers[t].tries[i].meta)));
            }
        }
    assert_true(made >= GROUPS);
    assert_int_equal(ask(s.conn, "SELECT count(*) FROM hapax.items"), made * KEYS_OF_GROUP);
    racers_end(&s);
    scene_end(&s);
}

/* One checks that x is absent and puts y, the other checks that y is absent and puts x: both can't be right. */
static void an_item_that_must_be_absent_stays_absent_until_the_commit_is_made(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s);
    racers_begin(&s);
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < GROUPS; i++) {
            racers[t].tries[i].count = 2;
            for (int k = 0; k < 2; k++) {
                (void)snprintf(racers[t].tries[i].keys[k], 16, "%d/%d", i, k);
                racers[t].tries[i].items[k] = new_item(racers[t].tries[i].keys[k], k == t ? HX_ITEM_PUT : HX_ITEM_CHECK,
                                                       0, "x");
            }
        }
    racers_run();
    for (int i = 0; i < GROUPS; i++) {
        bool is_made[] = {racers[0].tries[i].call.result == HX_STORE_OK, racers[1].tries[i].call.result == HX_STORE_OK};
        assert_int_equal(is_made[0] + is_made[1], 1);
    }
    assert_int_equal(ask(s.conn, "SELECT count(*) FROM hapax.items"), GROUPS);
    racers_end(&s);
    scene_end(&s);
}

/* Calls of one loop */

static void calls_of_one_turn_take_effect_in_their_order(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s);
    hx_item first[] = {new_item("a", HX_ITEM_PUT, 0, "1")}, again[] = {new_item("a", HX_ITEM_PUT, 0, "2")};
    hx_item other[] = {new_item("b", HX_ITEM_PUT, 0, "1")}, seen[2][2];
    hx_item_page page = {.items_max = 10};
    waited w[6];
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++) seen[i][k] = (hx_item){.key = k == 0 ? S("a") : S("b")};
    for (int i = 0; i < 6; i++) wait_start(&s.b, &w[i]);
    hx_store_get(s.b.store, &w[0].call, seen[0], 2);
    hx_store_commit(s.b.store, &w[1].call, first, 1, false);
    hx_store_commit(s.b.store, &w[2].call, again, 1, false);
    hx_store_get(s.b.store, &w[3].call, seen[1], 2);
    hx_store_commit(s.b.store, &w[4].call, other, 1, false);
    hx_store_scan(s.b.store, &w[5].call, &page);
    for (int i = 0; i < 6; i++) wait_for(&s.b, &w[i]);
    assert_int_equal(seen[0][0].version, 0);
    assert_int_equal(w[2].call.result, HX_STORE_STALE);
    assert_int_equal(seen[1][0].version, w[1].call.version);
    assert_true(hx_slice_eq(seen[1][0].meta, S("1")));
    assert_int_equal(seen[1][1].version, 0);
    assert_int_equal(page.count, 2);
    scene_end(&s);
}

/* A page has one item at least, and says that there are more, however large it is. */
static void check_large_page(scene *s, size_t bytes)
{
    waited w;
    hx_item_page page = {.items_max = 10, .with_bodies = true};
    wait_start(&s->b, &w);
    hx_store_scan(s->b.store, &w.call, &page);
    wait_for(&s->b, &w);
    assert_true(page.count == 1 && page.more);
    assert_int_equal(page.items[0].body.len, bytes);
}

static void large_items_come_one_call_after_the_other(void **state)
{
    (void)state;
    enum { COUNT = 6, BYTES = 5 << 20 };
    scene s;
    scene_begin(&s);
    static waited w[COUNT];
    static hx_item found[COUNT][2];
    char keys[COUNT][2];
    char *body = malloc(BYTES);
    assert_non_null(body);
    for (int i = 0; i < COUNT; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "%d", i);
        hx_item item = new_item(keys[i], HX_ITEM_PUT, 0, keys[i]);
        memset(body, 'a' + i, BYTES);
        item.body = (hx_slice){body, BYTES};
        (void)commit(&s, &item, 1);
    }
    assert_in_range(ask(s.conn,
                        "SELECT sum(octet_length(g.body)) FROM (SELECT array_agg(key ORDER BY key) AS keys FROM "
                        "hapax.items) x, hapax.get_many(NULL, '{1,2,3,4,5,6}', x.keys) g"),
                    BYTES, (4 << 20) + BYTES);
    for (int i = 0; i < COUNT; i++) {
        found[i][0] = (hx_item){.key = S("nothing")};
        found[i][1] = (hx_item){.key = S(keys[i])};
        wait_start(&s.b, &w[i]);
        hx_store_get(s.b.store, &w[i].call, found[i], 2);
    }
    for (int i = 0; i < COUNT; i++) {
        wait_for(&s.b, &w[i]);
        assert_int_equal(found[i][0].version, 0);
        assert_true(hx_slice_eq(found[i][1].meta, S(keys[i])));
        assert_int_equal(found[i][1].body.len, BYTES);
        assert_int_equal(found[i][1].body.ptr[BYTES - 1], 'a' + i);
    }
    check_large_page(&s, BYTES);
    free(body);
    scene_end(&s);
}

/* What is kept */

static void expired_items_and_old_tickets_are_swept_in_steps(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s);
    (void)put(&s, "stays", "x");
    char sql[256];
    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO hapax.items SELECT convert_to(i::text, 'UTF8'), i, NULL, 0, %" PRId64
                   ", '', '' FROM generate_series(1, 1200) i",
                   (int64_t)test_now + 1);
    do_sql(s.conn, sql);
    assert_int_equal(sweep(&s.b), 0);
    test_now += HX_SECOND;
    assert_int_equal(sweep(&s.b), 1200);
    assert_int_equal(ask(s.conn, "SELECT count(*) FROM hapax.items"), 1);
    assert_int_equal(ask(s.conn, "SELECT count(*) FROM hapax.item_commits"), 1);
    test_now += 9 * HX_MINUTE;
    (void)sweep(&s.b);
    assert_int_equal(ask(s.conn, "SELECT count(*) FROM hapax.item_commits"), 1);
    test_now += 2 * HX_MINUTE;
    (void)sweep(&s.b);
    assert_int_equal(ask(s.conn, "SELECT count(*) FROM hapax.item_commits"), 0);
    assert_int_equal(ask(s.conn, "SELECT count(*) FROM hapax.items"), 1);
    scene_end(&s);
}

static void a_commit_on_a_full_disk_ends_full(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s);
    do_sql(s.conn, "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS "
                   "'BEGIN RAISE ''full'' USING ERRCODE = ''53100''; END';"
                   "CREATE TRIGGER refuse BEFORE INSERT ON hapax.items FOR EACH ROW WHEN (NEW.meta = 'large') "
                   "EXECUTE FUNCTION public.refuse()");
    hx_item items[] = {new_item("a", HX_ITEM_PUT, 0, "large"), new_item("b", HX_ITEM_PUT, 0, "small"),
                       new_item("c", HX_ITEM_PUT, 0, "large")};
    const hx_store_result expected[] = {HX_STORE_FULL, HX_STORE_OK, HX_STORE_UNAVAILABLE};
    waited w[3];
    for (int i = 0; i < 3; i++) wait_start(&s.b, &w[i]);
    for (int i = 0; i < 3; i++) hx_store_commit(s.b.store, &w[i].call, &items[i], 1, i == 2);
    for (int i = 0; i < 3; i++) {
        wait_for(&s.b, &w[i]);
        assert_int_equal(w[i].call.result, expected[i]);
    }
    do_sql(s.conn, "DROP TRIGGER refuse ON hapax.items; DROP FUNCTION public.refuse");
    scene_end(&s);
}

/* Commits in doubt */

#define COMMIT_TEN                                                                                                     \
    "FROM hapax.commit_many(NULL, %s, '{10}', '{1}', '{a}'::bytea[], '{0}', '{0}', '{\"\"}'::bytea[], '{0}', '{0}', "  \
    "'{x}', '{\"\"}'::bytea[])"

/* A statement out of a connection that was given up arrives when its commit has been made, and undone by another. */
static void a_commit_that_comes_late_is_not_made_again(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s);
    char soon[512], late[512];
    (void)snprintf(soon, sizeof soon, "SELECT became " COMMIT_TEN, "hapax.now() + 30000");
    (void)snprintf(late, sizeof late, "SELECT became " COMMIT_TEN, "hapax.now() - 1");
    int64_t version = ask(s.conn, soon);
    assert_true(version > 0);
    do_sql(s.conn, "DELETE FROM hapax.items");
    assert_int_equal(ask(s.conn, soon), version);
    assert_int_equal(ask(s.conn, "SELECT count(*) FROM hapax.items"), 0);
    do_sql(s.conn, "DELETE FROM hapax.item_commits"); /* swept */
    assert_true(is_refused(s.conn, late, "HX006"));
    assert_int_equal(ask(s.conn, "SELECT count(*) FROM hapax.items"), 0);
    scene_end(&s);
}

static void terminate(scene *s)
{
    assert_true(ask(s->conn, "SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity "
                             "WHERE application_name = 'hapax' AND wait_event_type IN ('Lock', 'IPC')") > 0);
}

static void read_results(PGconn *conn)
{
    for (PGresult *result; (result = pq->getResult(conn));) pq->clear(result);
}

static bool is_waiting_for_standby(scene *s, PGconn *conn)
{
    char sql[128];
    (void)snprintf(sql, sizeof sql, "SELECT count(*) FROM pg_stat_activity WHERE pid = %d AND wait_event = 'SyncRep'",
                   pq->backendPID(conn));
    return ask(s->conn, sql) > 0;
}

/* From now on no commit ends. The server takes a while to notice, and until then commits end: the other connection
 * tries. */
static void take_standby_away(scene *s)
{
    do_sql(s->conn, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    do_sql(s->conn, "SELECT pg_reload_conf()");
    while (!is_waiting_for_standby(s, s->other)) {
        (void)pq->consumeInput(s->other);
        if (pq->isBusy(s->other)) continue;
        read_results(s->other);
        assert_true(pq->sendQueryParams(s->other, "SELECT pg_logical_emit_message(true, '', '')", 0, NULL, NULL, NULL,
                                        NULL, 0));
    }
}

static void bring_standby_back(scene *s)
{
    do_sql(s->conn, "ALTER SYSTEM RESET synchronous_standby_names");
    do_sql(s->conn, "SELECT pg_reload_conf()");
    read_results(s->other);
}

/* The backend is terminated while it waits for a standby: the commit has been made, and nobody was told. */
static void a_commit_whose_connection_is_lost_is_made_once(void **state)
{
    (void)state;
    const hx_item_act acts[] = {HX_ITEM_PUT, HX_ITEM_PUT, HX_ITEM_REMOVE};
    scene s;
    scene_begin(&s);
    (void)put(&s, "first", "x"); /* the connection has worked */
    uint64_t version = 0;
    for (int i = 0; i < 3; i++) {
        hx_item items[] = {new_item("a", acts[i], version, "x"), new_item("b", acts[i], version, "x")};
        waited w;
        take_standby_away(&s);
        start_commit(&s, &w, items, 2);
        turn_until_it_waits(&s, "SyncRep");
        terminate(&s);
        bring_standby_back(&s);
        wait_for(&s.b, &w);
        assert_int_equal(w.call.result, HX_STORE_OK);
        assert_true(w.call.version > version);
        version = w.call.version;
        assert_int_equal(ask(s.conn, "SELECT max(version) FROM hapax.item_commits"), version);
        assert_int_equal(ask(s.conn, "SELECT count(*) FROM hapax.item_commits"), i + 2); /* none was made twice */
        assert_int_equal(get(&s, "a").version, i < 2 ? version : 0);
        assert_int_equal(get(&s, "b").version, i < 2 ? version : 0);
    }
    scene_end(&s);
}

/* And while it waits for a lock: it has not. */
static void a_commit_that_was_cut_off_before_it_was_made_is_made_then(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s);
    (void)put(&s, "first", "x");
    do_sql(s.other, INSERT_B);
    hx_item items[] = {new_item("a", HX_ITEM_PUT, 0, "x"), new_item("b", HX_ITEM_PUT, 0, "x")};
    waited w;
    start_commit(&s, &w, items, 2);
    turn_until_it_waits(&s, "Lock");
    terminate(&s);
    do_sql(s.other, "ROLLBACK");
    wait_for(&s.b, &w);
    assert_int_equal(w.call.result, HX_STORE_OK);
    assert_int_equal(get(&s, "a").version, w.call.version);
    assert_int_equal(get(&s, "b").version, w.call.version);
    assert_int_equal(ask(s.conn, "SELECT count(*) FROM hapax.item_commits"), 2);
    scene_end(&s);
}

/* Connections that are cut at any moment. Each job adds one to two of a few counters, and puts a receipt that names
 * them, in one commit. */

#define STORM_LOOPS 2
#define STORM_JOBS 16
#define STORM_COMMITS 4000u /* that are made, at least */
#define RECEIPTS_MAX (20 * STORM_COMMITS)
#define COUNTERS 60u

typedef struct crew crew;

typedef struct {
    hx_store_call call;
    crew *crew;
    unsigned counters[2];
    hx_item items[3];
    char keys[2][16], values[2][24], receipt[16], meta[16];
} job;

struct crew {
    hx_store *store;
    hx_loop *loop;
    pthread_t thread;
    hx_arena arena;
    job jobs[STORM_JOBS];
    unsigned left;
};

static struct {
    atomic_uint running, made, receipts;
    hx_store_result results[RECEIPTS_MAX];
} storm;

static void begin_job(job *j);

static void job_committed(hx_store_call *call)
{
    job *j = HX_OWNER(call, job, call);
    unsigned number = (unsigned)strtoul(j->receipt + 2, NULL, 10);
    HX_CHECK(call->result == HX_STORE_OK || call->result == HX_STORE_STALE || call->result == HX_STORE_UNAVAILABLE);
    storm.results[number] = call->result;
    if (call->result == HX_STORE_OK) atomic_fetch_add(&storm.made, 1);
    begin_job(j);
}

static void job_read(hx_store_call *call)
{
    job *j = HX_OWNER(call, job, call);
    if (call->result != HX_STORE_OK) {
        begin_job(j);
        return;
    }
    unsigned number = atomic_fetch_add(&storm.receipts, 1);
    HX_CHECK(number < RECEIPTS_MAX);
    for (int i = 0; i < 2; i++) {
        uint64_t value = 0;
        HX_CHECK(j->items[i].version == 0 || hx_slice_to_u64(j->items[i].meta, &value));
        (void)snprintf(j->values[i], sizeof j->values[i], "%" PRIu64, value + 1);
        j->items[i] = new_item(j->keys[i], HX_ITEM_PUT, j->items[i].version, j->values[i]);
    }
    (void)snprintf(j->receipt, sizeof j->receipt, "r/%u", number);
    (void)snprintf(j->meta, sizeof j->meta, "%u %u", j->counters[0], j->counters[1]);
    j->items[2] = new_item(j->receipt, HX_ITEM_PUT, 0, j->meta);
    j->call = (hx_store_call){.loop = j->crew->loop, .arena = &j->crew->arena, .done = job_committed};
    hx_store_commit(j->crew->store, &j->call, j->items, 3, false);
}

static void begin_job(job *j)
{
    if (storm.made >= STORM_COMMITS) {
        j->crew->left--;
        return;
    }
    j->counters[0] = (unsigned)hx_rand_below(COUNTERS);
    j->counters[1] = (j->counters[0] + 1 + (unsigned)hx_rand_below(COUNTERS - 1)) % COUNTERS;
    for (int i = 0; i < 2; i++) {
        (void)snprintf(j->keys[i], sizeof j->keys[i], "c/%u", j->counters[i]);
        j->items[i] = (hx_item){.key = S(j->keys[i])};
    }
    j->call = (hx_store_call){.loop = j->crew->loop, .arena = &j->crew->arena, .done = job_read};
    hx_store_get(j->crew->store, &j->call, j->items, 2);
}

static void *work(void *context)
{
    crew *c = context;
    for (unsigned i = 0; i < STORM_JOBS; i++) {
        c->jobs[i] = (job){.crew = c};
        c->left++;
        begin_job(&c->jobs[i]);
    }
    while (c->left > 0) hx_loop_turn(c->loop, 100);
    hx_arena_free(&c->arena);
    hx_arena_pool_drain();
    atomic_fetch_sub(&storm.running, 1);
    return NULL;
}

/* Between two cuts something is done, however long that takes on this machine. Returns how many were cut. */
static int64_t cut_connections(PGconn *conn)
{
    int64_t cuts = 0;
    while (storm.running > 0) {
        unsigned before = storm.made;
        cuts += ask(conn, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = "
                          "'hapax' AND random() < 0.3");
        do (void)ask(conn, "SELECT 1 FROM pg_sleep(random() * 0.03)");
        while (storm.running > 0 && storm.made == before);
    }
    return cuts;
}

/* Checks the receipts that there are, and returns their number. */
static unsigned check_receipts(scene *s)
{
    static bool is_there[RECEIPTS_MAX];
    unsigned count = 0;
    hx_item_page page = {.prefix = S("r/"), .items_max = HX_ITEM_PAGE_MAX};
    do {
        waited w;
        wait_start(&s->b, &w);
        hx_store_scan(s->b.store, &w.call, &page);
        wait_for(&s->b, &w);
        for (size_t i = 0; i < page.count; i++, count++) {
            uint64_t number;
            assert_true(hx_slice_to_u64(hx_slice_from(page.items[i].key, 2), &number));
            is_there[number] = true;
            page.after = page.items[i];
        }
    } while (page.more);
    for (unsigned i = 0; i < storm.receipts; i++)
        if (storm.results[i] != HX_STORE_UNAVAILABLE) assert_int_equal(is_there[i], storm.results[i] == HX_STORE_OK);
    return count;
}

static void connections_that_are_cut_lose_and_double_no_commit(void **state)
{
    (void)state;
    scene s;
    static crew crews[STORM_LOOPS];
    scene_begin(&s);
    storm.running = STORM_LOOPS;
    for (int i = 0; i < STORM_LOOPS; i++) {
        crews[i] = (crew){.store = s.b.store, .loop = hx_loop_new()};
        hx_store_attach(s.b.store, crews[i].loop);
    }
    for (int i = 0; i < STORM_LOOPS; i++) assert_int_equal(pthread_create(&crews[i].thread, NULL, work, &crews[i]), 0);
    assert_true(cut_connections(s.conn) > 0);
    for (int i = 0; i < STORM_LOOPS; i++) pthread_join(crews[i].thread, NULL);
    bench_close(&s.b);
    for (int i = 0; i < STORM_LOOPS; i++) hx_loop_free(&crews[i].loop);
    bench_open(&s.b);
    assert_true(check_receipts(&s) >= storm.made);
    assert_int_equal(ask(s.conn, "SELECT sum(meta::bigint) FROM hapax.items WHERE key < 'd'"),
                     ask(s.conn, "SELECT 2 * count(*) FROM hapax.items WHERE key > 'd'"));
    assert_int_equal(ask(s.conn,
                         "SELECT count(*) FROM hapax.items c WHERE key < 'd' AND meta::bigint <> (SELECT count(*) "
                         "FROM hapax.items r WHERE r.key > 'd' AND substr(convert_from(c.key, 'UTF8'), 3) IN "
                         "(split_part(r.meta, ' ', 1), split_part(r.meta, ' ', 2)))"),
                     0);
    scene_end(&s);
}

int main(int argc, char **argv)
{
    hx_error_text error;
    pq = hx_libpq_load(error);
    if (!pq) hx_fatal(1, "%s", error);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_that_is_refused_takes_no_other_one_along),
        cmocka_unit_test(a_version_is_compared_when_nobody_else_can_change_it),
        cmocka_unit_test(a_commit_that_loses_a_race_leaves_nothing),
        cmocka_unit_test(a_version_is_greater_than_one_that_was_drawn_meanwhile),
        cmocka_unit_test(a_commit_waits_for_a_lock_and_goes_on_without_it),
        cmocka_unit_test(of_commits_that_insert_the_same_keys_each_is_made_whole_or_not_at_all),
        cmocka_unit_test(an_item_that_must_be_absent_stays_absent_until_the_commit_is_made),
        cmocka_unit_test(calls_of_one_turn_take_effect_in_their_order),
        cmocka_unit_test(large_items_come_one_call_after_the_other),
        cmocka_unit_test(expired_items_and_old_tickets_are_swept_in_steps),
        cmocka_unit_test(a_commit_on_a_full_disk_ends_full),
        cmocka_unit_test(a_commit_that_comes_late_is_not_made_again),
        cmocka_unit_test(a_commit_whose_connection_is_lost_is_made_once),
        cmocka_unit_test(a_commit_that_was_cut_off_before_it_was_made_is_made_then),
        cmocka_unit_test(connections_that_are_cut_lose_and_double_no_commit),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("postgres items", tests, NULL, NULL);
}
