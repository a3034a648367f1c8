/* SPDX-License-Identifier: Apache-2.0 */
/* What the store in SQLite adds to the contract of items: a store of the format before is upgraded, what other programs
 * find in the table, how pages use the indexes, and its limits. The contract itself is tested in tests/store. */
#include "store/harness.h"

#include "base/check.h"
#include "base/log.h"
#include "store/sqlite/in_transaction.h"
#include "store/sqlite/sqlite.h"

#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

#define OK HX_STORE_OK
#define S(text) hx_slice_of(text)

static const hx_store_options plain = {0};

static const char *path_in(const bench *b, const char *name)
{
    static char path[2][128];
    static int turn;
    turn = !turn;
    (void)snprintf(path[turn], sizeof path[turn], "%s/%s", b->directory, name);
    return path[turn];
}

static void run(const char *path, const char *sql)
{
    sqlite3 *db;
    char *error = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK) hx_fatal(1, "%s: %s", sql, error);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* The first column of all rows, with spaces between. */
static const char *ask(const char *path, const char *sql)
{
    static char found[1024];
    sqlite3 *db;
    sqlite3_stmt *q;
    size_t len = 0;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_prepare_v2(db, sql, -1, &q, NULL) != SQLITE_OK) hx_fatal(1, "%s: %s", sql, sqlite3_errmsg(db));
    found[0] = '\0';
    while (sqlite3_step(q) == SQLITE_ROW)
        len += (size_t)snprintf(found + len, sizeof found - len, "%s%s", len > 0 ? " " : "",
                                (const char *)sqlite3_column_text(q, 0));
    (void)sqlite3_finalize(q);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return found;
}

static hx_item new_item(const char *key, const char *queue, hx_slice meta)
{
    return (hx_item){.key = S(key), .queue = S(queue), .meta = meta, .body = HX_EMPTY};
}

static hx_store_result commit(bench *b, hx_item *items, size_t count, bool urgent)
{
    waited w;
    wait_start(b, &w);
    hx_store_commit(b->store, &w.call, items, count, urgent);
    wait_for(b, &w);
    return w.call.result;
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

/* The schema of format 2, as the versions that had it made it. */
#define ONE_MORE                                                                                                       \
    "INSERT INTO hapax_live (route, rule_version, processing, unknown, ended)"                                         \
    " VALUES (iif(new.rule_version < 2147483648, '', new.route), new.rule_version, new.state = 1, new.state = 4,"      \
    " new.state NOT IN (1, 4)) ON CONFLICT DO UPDATE SET processing = processing + excluded.processing,"               \
    " unknown = unknown + excluded.unknown, ended = ended + excluded.ended;"
#define ONE_LESS                                                                                                       \
    "UPDATE hapax_live SET processing = processing - (old.state = 1), unknown = unknown - (old.state = 4),"            \
    " ended = ended - (old.state NOT IN (1, 4))"                                                                       \
    " WHERE route = iif(old.rule_version < 2147483648, '', old.route) AND rule_version = old.rule_version;"
static const char format_2[] =
    "CREATE TABLE hapax_store (one INTEGER PRIMARY KEY CHECK (one = 1), format INTEGER NOT NULL,"
    " secret BLOB NOT NULL, epoch INTEGER NOT NULL, boot TEXT NOT NULL DEFAULT '', clock INTEGER NOT NULL DEFAULT 0);"
    "CREATE TABLE hapax_operations (id INTEGER PRIMARY KEY, op BLOB NOT NULL UNIQUE, epoch INTEGER NOT NULL,"
    " state INTEGER NOT NULL, lease_until INTEGER NOT NULL, due INTEGER, rule_version INTEGER NOT NULL,"
    " route TEXT NOT NULL, lifetime INTEGER NOT NULL, tombstone INTEGER NOT NULL, head BLOB NOT NULL,"
    " headers BLOB NOT NULL, body BLOB NOT NULL);"
    "CREATE INDEX hapax_operations_due ON hapax_operations (due) WHERE due IS NOT NULL;"
    "CREATE INDEX hapax_operations_unnamed ON hapax_operations (route) WHERE rule_version < 2147483648;"
    "CREATE TABLE hapax_history (id INTEGER PRIMARY KEY, op BLOB NOT NULL, head BLOB NOT NULL);"
    "CREATE TABLE hapax_live (route TEXT NOT NULL, rule_version INTEGER NOT NULL, processing INTEGER NOT NULL,"
    " unknown INTEGER NOT NULL, ended INTEGER NOT NULL, PRIMARY KEY (route, rule_version)) WITHOUT ROWID;"
    "CREATE TABLE hapax_rules (route TEXT PRIMARY KEY, rule_version INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE hapax_retired (owner INTEGER NOT NULL, route TEXT NOT NULL, rule_version INTEGER NOT NULL,"
    " until INTEGER NOT NULL, PRIMARY KEY (owner, route, rule_version)) WITHOUT ROWID;"
    "CREATE TRIGGER hapax_operations_made AFTER INSERT ON hapax_operations BEGIN " ONE_MORE " END;"
    "CREATE TRIGGER hapax_operations_gone AFTER DELETE ON hapax_operations BEGIN " ONE_LESS " END;"
    "CREATE TRIGGER hapax_operations_changed AFTER UPDATE OF state, rule_version, route ON hapax_operations"
    " WHEN old.state <> new.state OR old.rule_version <> new.rule_version OR old.route <> new.route BEGIN " ONE_LESS
    " " ONE_MORE " END;";

#define OLD_OPERATIONS 12u

/* A closed store of format 2, with operations in every state. */
static void begin_old(bench *b)
{
    char sql[512];
    const hx_state ends[] = {HX_PROCESSING, HX_COMPLETED, HX_UNKNOWN, HX_ABSENT};
    bench_begin(b, "sqlite", plain);
    for (uint64_t i = 0; i < OLD_OPERATIONS; i++) {
        hx_record r = record_of(i);
        assert_int_equal(claim(b, &r, 0, NULL), OK);
        r.answer = (hx_answer){201, true, HX_EMPTY, HX_LIT("an old answer")};
        r.expires_at = i % 4 == 1 ? test_now + HX_DAY : 0;
        if (i % 4 > 0) assert_int_equal(settle(b, &r, ends[i % 4], NULL), OK);
    }
    bench_close(b);
    (void)snprintf(sql, sizeof sql,
                   "PRAGMA journal_mode = WAL; ATTACH '%s' AS made;"
                   "INSERT INTO hapax_store SELECT one, 2, secret, epoch, boot, clock FROM made.hapax_store;"
                   "INSERT INTO hapax_operations SELECT * FROM made.hapax_operations;"
                   "INSERT INTO hapax_history SELECT * FROM made.hapax_history",
                   path_in(b, "store.db"));
    run(path_in(b, "old.db"), format_2);
    run(path_in(b, "old.db"), sql);
    assert_int_equal(rename(path_in(b, "old.db"), path_in(b, "store.db")), 0);
}

static void expect_old(bench *b, uint64_t epoch)
{
    hx_record found;
    hx_store_counts counts;
    const hx_state ends[] = {HX_PROCESSING, HX_COMPLETED, HX_UNKNOWN, HX_ABSENT};
    for (uint64_t i = 0; i < OLD_OPERATIONS; i++) {
        assert_int_equal(peek(b, op_of(i), &found), ends[i % 4]);
        if (i % 4 == 1) assert_true(hx_slice_eq(found.answer.body, HX_LIT("an old answer")));
    }
    hx_store_count(b->store, &counts);
    assert_int_equal(counts.processing, OLD_OPERATIONS / 4);
    assert_int_equal(counts.live, OLD_OPERATIONS / 2);
    assert_true(last_epoch(b) >= epoch);
}

static void a_store_of_the_format_before_keeps_its_operations_and_gets_items(void **state)
{
    (void)state;
    bench b;
    begin_old(&b);
    const char *path = path_in(&b, "store.db");
    assert_string_equal(ask(path, "SELECT format FROM hapax_store"), "2");
    uint64_t epoch = strtoull(ask(path, "SELECT epoch FROM hapax_store"), NULL, 10);
    for (int round = 0; round < 3; round++) {
        bench_open(&b);
        expect_old(&b, epoch);
        hx_item item = new_item("a", "q", S("{}"));
        item.version = get(&b, "a").version;
        assert_int_equal(item.version > 0, round > 0);
        assert_int_equal(commit(&b, &item, 1, false), OK);
        assert_true(get(&b, "a").version > epoch); /* a version is an epoch that nothing else had */
        assert_string_equal(ask(path, "SELECT format FROM hapax_store"), "4");
        assert_string_equal(ask(path, "PRAGMA integrity_check"), "ok");
        if (round < 2) bench_close(&b);
    }
    bench_end(&b);
}

#define STARTS 6

static void of_several_processes_that_find_the_format_before_one_upgrades_it(void **state)
{
    (void)state;
    bench b;
    pid_t children[STARTS];
    int gate[2];
    char byte;
    begin_old(&b);
    assert_int_equal(pipe(gate), 0);
    for (int i = 0; i < STARTS; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] > 0) continue;
        close(gate[1]);
        if (read(gate[0], &byte, 1) != 0) _exit(1); /* until all have been started */
        char key[2] = {(char)('a' + i), '\0'};
        hx_item item = new_item(key, "q", S("{}"));
        bench_open(&b);
        _exit(commit(&b, &item, 1, false) == OK ? 0 : 2);
    }
    close(gate[0]);
    close(gate[1]);
    for (int i = 0; i < STARTS; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_string_equal(ask(path_in(&b, "store.db"), "SELECT CAST(key AS TEXT) FROM hapax_items ORDER BY key"),
                        "a b c d e f");
    bench_open(&b);
    expect_old(&b, 0);
    bench_end(&b);
}

/* Also in a program's database whose texts are UTF-16. */
static void metas_are_text_that_sqlite_reads_wherever_they_can_be(void **state)
{
    (void)state;
    for (int utf16 = 0; utf16 < 2; utf16++) {
        bench b;
        hx_error_text error;
        bench_begin(&b, "sqlite", plain);
        const char *path = path_in(&b, "store.db");
        if (utf16) {
            sqlite3 *db;
            bench_close(&b);
            assert_int_equal(unlink(path), 0);
            run(path, "PRAGMA encoding = 'UTF-16le'; CREATE TABLE orders (id INTEGER)");
            assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
            assert_true(hx_sqlite_prepare(db, error));
            assert_int_equal(sqlite3_close(db), SQLITE_OK);
            bench_open(&b);
        }
        assert_string_equal(ask(path, "PRAGMA encoding"), utf16 ? "UTF-16le" : "UTF-8");
        hx_item items[] = {new_item("e1", "z", S("{\"type\":\"r\xc3\xa9sum\xc3\xa9\"}")), new_item("e2", "\xff", S("")),
                           new_item("e3", "a\x80", (hx_slice){"a\0b", 3}), new_item("e4", "a\x7f", S("\xff{}"))};
        assert_int_equal(commit(&b, items, 4, false), OK);
        for (size_t i = 0; i < 4; i++) {
            hx_item found = get(&b, (const char *[]){"e1", "e2", "e3", "e4"}[i]);
            assert_true(hx_slice_eq(found.meta, items[i].meta) && hx_slice_eq(found.queue, items[i].queue));
        }
        assert_string_equal(ask(path, "SELECT typeof(meta) FROM hapax_items ORDER BY key"), "text text blob blob");
        assert_string_equal(ask(path, "SELECT json_extract(meta, '$.type') FROM hapax_items WHERE key = x'6531'"),
                            "r\xc3\xa9sum\xc3\xa9");
        hx_item_page page = {.by_queue = true, .items_max = 10};
        waited w;
        wait_start(&b, &w);
        hx_store_scan(b.store, &w.call, &page);
        wait_for(&b, &w);
        assert_int_equal(page.count, 4);
        for (size_t i = 0; i < 4; i++) assert_int_equal(page.items[i].key.ptr[1], "4312"[i]);
        bench_end(&b);
    }
}

static void statements_on_items_use_the_indexes(void **state)
{
    (void)state;
    static const struct {
        const char *name, *sql;
    } statements[] = {
#define X(name, sql) {#name, "EXPLAIN QUERY PLAN " sql},
        HX_ROWS_STATEMENTS(X)
#undef X
    };
    bench b;
    unsigned seen = 0;
    bench_begin(&b, "sqlite", plain);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path_in(&b, "store.db"), &db), SQLITE_OK);
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (strncmp(statements[i].name, "ITEM", 4) != 0 || strstr(statements[i].name, "INSERT")) continue;
        sqlite3_stmt *q;
        assert_int_equal(sqlite3_prepare_v2(db, statements[i].sql, -1, &q, NULL), SQLITE_OK);
        while (sqlite3_step(q) == SQLITE_ROW) {
            const char *plan = (const char *)sqlite3_column_text(q, 3);
            bool reads_all = strstr(plan, "SCAN") || strstr(plan, "TEMP B-TREE");
            if (reads_all) print_message("%s: %s\n", statements[i].name, plan);
            assert_false(reads_all);
            if (strstr(statements[i].name, "BY_QUEUE")) {
                assert_non_null(strstr(plan, "USING INDEX hapax_items_queue"));
                assert_non_null(strstr(plan, "(queue,due,key)"));
            }
            seen++;
        }
        (void)sqlite3_finalize(q);
    }
    assert_true(seen > 10);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    bench_end(&b);
}

#define LONG_QUEUE 20000

/* Steps of SQLite's machine for a page of the first item of each queue that is due. */
static int steps_for(const bench *b, bool backwards, hx_ms due_until, size_t items)
{
    hx_sqlite_tables rows = {0};
    hx_arena arena = {0};
    hx_item_page page = {.by_queue = true,
                         .one_per_queue = !backwards,
                         .backwards = backwards,
                         .prefix = S("due/"),
                         .due_until = due_until,
                         .items_max = 10};
    hx_store_call call = {.verb = HX_STORE_SCAN, .item_page = &page};
    assert_int_equal(sqlite3_open(path_in(b, "store.db"), &rows.db), SQLITE_OK);
    assert_int_equal(hx_sqlite_items_read(&rows, &call, &arena, test_now), SQLITE_OK);
    assert_int_equal(page.count, items);
    sqlite3_stmt *q = rows.statements[backwards ? HX_SQL_ITEMS_BY_QUEUE_BACK : HX_SQL_ITEMS_BY_QUEUE];
    int steps = sqlite3_stmt_status(q, SQLITE_STMTSTATUS_VM_STEP, 0);
    hx_sqlite_tables_end(&rows);
    assert_int_equal(sqlite3_close(rows.db), SQLITE_OK);
    hx_arena_free(&arena);
    return steps;
}

static void the_first_of_each_queue_is_found_without_reading_the_rest(void **state)
{
    (void)state;
    bench b;
    static hx_item items[LONG_QUEUE / 10];
    static char keys[LONG_QUEUE / 10][16];
    bench_begin(&b, "sqlite", plain);
    for (int i = 0; i < LONG_QUEUE; i++) { /* three long queues, and a short one behind them */
        int at = i % (LONG_QUEUE / 10);
        (void)snprintf(keys[at], sizeof keys[at], "k%06d", i);
        items[at] = new_item(keys[at], i == 7 ? "due/z" : (const char *[]){"due/a", "due/b", "due/c"}[i % 3], S("{}"));
        items[at].due = 1000 + i;
        if (at == LONG_QUEUE / 10 - 1) assert_int_equal(commit(&b, items, LONG_QUEUE / 10, false), OK);
    }
    assert_true(steps_for(&b, false, 0, 4) < 1000);
    assert_true(steps_for(&b, false, 1000, 1) < 1000); /* and without reading what isn't due */
    assert_true(steps_for(&b, true, 1000, 1) < 1000);
    assert_true(steps_for(&b, true, 1003, 4) < 1000);
    bench_end(&b);
}

static void sweeps_remove_what_is_not_shown_any_more_and_nothing_else(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, "sqlite", plain);
    const hx_ms start = test_now;
    for (hx_ms at = 1; at <= 3001; at += 500) { /* 1, 501, 1001, …: a lifetime ends with its second */
        test_now = start;
        hx_item item = new_item("a", "q", S("{}"));
        item.version = get(&b, "a").version;
        item.expires_at = start + at;
        assert_int_equal(commit(&b, &item, 1, false), OK);
        hx_ms end = start + (at + 999) / 1000 * 1000;
        test_now = end - 1;
        assert_int_equal(sweep(&b), 0);
        assert_true(get(&b, "a").version > 0);
        test_now = end;
        assert_int_equal(get(&b, "a").version, 0);
        assert_int_equal(sweep(&b), 1);
    }
    bench_end(&b);
}

#define SHORT_LIVED 1000
#define LARGE (5u << 20)

static void sweeps_remove_a_few_items_in_each_transaction(void **state)
{
    (void)state;
    bench b;
    static hx_item items[SHORT_LIVED];
    static char keys[SHORT_LIVED][16], large[LARGE];
    hx_store_counts before, after;
    bench_begin(&b, "sqlite", plain);
    for (int i = 0; i < SHORT_LIVED; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "k%06d", i);
        items[i] = new_item(keys[i], "q", S("{}"));
        items[i].expires_at = test_now + HX_SECOND;
    }
    assert_int_equal(commit(&b, items, SHORT_LIVED, false), OK);
    for (int i = 0; i < 4; i++) {
        hx_item item = new_item((const char *[]){"l1", "l2", "l3", "l4"}[i], "", S("{}"));
        item.body = (hx_slice){large, sizeof large};
        item.expires_at = test_now + 2 * HX_SECOND;
        assert_int_equal(commit(&b, &item, 1, false), OK);
    }
    hx_item lasting = new_item("m", "q", S("{}"));
    assert_int_equal(commit(&b, &lasting, 1, false), OK);
    test_now += HX_MINUTE;
    hx_store_count(b.store, &before);
    assert_int_equal(sweep(&b), SHORT_LIVED + 4);
    hx_store_count(b.store, &after);
    assert_true(after.commits - before.commits >= SHORT_LIVED / 256 + 2);
    assert_int_equal(after.cleaned - before.cleaned, SHORT_LIVED + 4);
    assert_string_equal(ask(path_in(&b, "store.db"), "SELECT CAST(key AS TEXT) FROM hapax_items"), "m");
    bench_end(&b);
}

static void beyond_its_limit_a_store_takes_urgent_commits_only(void **state)
{
    (void)state;
    bench b;
    static char body[8192];
    char key[16];
    int made = 0;
    hx_log_threshold(HX_LOG_ERROR + 1);
    bench_begin(&b, "sqlite", (hx_store_options){.bytes_max = 2 << 20});
    for (hx_store_result result = OK; result == OK; made++) {
        assert_true(made < 1000);
        (void)snprintf(key, sizeof key, "k%d", made);
        hx_item item = new_item(key, "q", S("{}"));
        item.body = (hx_slice){body, sizeof body};
        item.expires_at = test_now + HX_MINUTE;
        result = commit(&b, &item, 1, false);
        assert_true(result == OK || result == HX_STORE_FULL);
        if (made % 20 == 0) sweep(&b); /* which looks at the limit */
    }
    assert_true(made > 100);
    hx_item stale = new_item("k0", "q", S("{}")), urgent = new_item("k0", "q", S("{\"done\":1}"));
    stale.version = 1;
    assert_int_equal(commit(&b, &stale, 1, false), HX_STORE_STALE); /* which says more than that there is no space */
    urgent.version = get(&b, "k0").version;
    assert_int_equal(commit(&b, &urgent, 1, true), OK);
    assert_true(hx_slice_eq(get(&b, "k0").meta, urgent.meta));
    test_now += HX_HOUR;
    assert_int_equal(sweep(&b), made - 2); /* one was refused, and one lasts by now */
    hx_item again = new_item("again", "q", S("{}"));
    assert_int_equal(commit(&b, &again, 1, false), OK);
    hx_log_threshold(HX_LOG_INFO);
    bench_end(&b);
}

/* A file that can't grow: every write beyond its end fails, as on a disk that fails. */
static void let_files_grow(bool they_may)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = they_may ? limit.rlim_max : 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_commit_that_failed_left_nothing_and_what_waited_behind_it_is_told(void **state)
{
    (void)state;
    bench b;
    waited calls[3];
    hx_log_threshold(HX_LOG_ERROR + 1);
    (void)signal(SIGXFSZ, SIG_IGN);
    bench_begin(&b, "sqlite", plain);
    hx_item first = new_item("a", "q", S("{}")), second = new_item("b", "q", S("{}")), found = {.key = S("a")};
    hx_item_page page = {.items_max = 10};
    assert_int_equal(commit(&b, &first, 1, false), OK);
    let_files_grow(false);
    for (int i = 0; i < 3; i++) wait_start(&b, &calls[i]);
    hx_store_commit(b.store, &calls[0].call, &second, 1, false);
    hx_store_get(b.store, &calls[1].call, &found, 1);
    hx_store_scan(b.store, &calls[2].call, &page);
    wait_for(&b, &calls[0]);
    assert_int_equal(calls[0].call.result, HX_STORE_UNAVAILABLE);
    for (int i = 1; i < 3; i++) { /* in the same transaction, or alone after it */
        wait_for(&b, &calls[i]);
        assert_true(calls[i].call.result == HX_STORE_UNAVAILABLE || calls[i].call.result == OK);
    }
    assert_true(get(&b, "a").version > 0); /* what is there is read */
    assert_int_equal(get(&b, "b").version, 0);
    let_files_grow(true);
    assert_int_equal(commit(&b, &second, 1, false), OK);
    assert_true(get(&b, "b").version > get(&b, "a").version);
    hx_log_threshold(HX_LOG_INFO);
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_of_the_format_before_keeps_its_operations_and_gets_items),
        cmocka_unit_test(of_several_processes_that_find_the_format_before_one_upgrades_it),
        cmocka_unit_test(metas_are_text_that_sqlite_reads_wherever_they_can_be),
        cmocka_unit_test(statements_on_items_use_the_indexes),
        cmocka_unit_test(the_first_of_each_queue_is_found_without_reading_the_rest),
        cmocka_unit_test(sweeps_remove_what_is_not_shown_any_more_and_nothing_else),
        cmocka_unit_test(sweeps_remove_a_few_items_in_each_transaction),
        cmocka_unit_test(beyond_its_limit_a_store_takes_urgent_commits_only),
        cmocka_unit_test(a_commit_that_failed_left_nothing_and_what_waited_behind_it_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
