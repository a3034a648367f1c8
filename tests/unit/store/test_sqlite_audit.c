/* SPDX-License-Identifier: Apache-2.0 */
/* The audit of a store in SQLite: what it shows, what it finds when someone has changed it, what retention leaves. */
#include "store/harness.h"

#include "store/audit/audit.h"

#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#define OPERATIONS 100 /* 200 rows: four links */

static bench b;
static char first_problem[512];

static void problem(void *context, const char *sentence)
{
    (void)context;
    if (!first_problem[0]) (void)snprintf(first_problem, sizeof first_problem, "%s", sentence);
}

static hx_audit audit(const hx_audit_anchor *anchor)
{
    hx_audit read = {.problem = problem, .anchor = anchor};
    hx_error_text error;
    char url[256];
    (void)snprintf(url, sizeof url, "sqlite:%s/store.db", b.directory);
    first_problem[0] = '\0';
    if (!hx_audit_read(hx_slice_of(url), &read, error)) fail_msg("%s", error);
    return read;
}

static void is_whole(void)
{
    if (audit(NULL).problems > 0) fail_msg("%s", first_problem);
}

static void finds(const char *words, const hx_audit_anchor *anchor)
{
    hx_audit read = audit(anchor);
    if (!strstr(first_problem, words)) fail_msg("\"%s\" is not in \"%s\"", words, first_problem);
    assert_int_equal(read.problems, 1);
}

static void run(const char *sql)
{
    char path[256], *error = NULL;
    sqlite3 *db = NULL;
    (void)snprintf(path, sizeof path, "%s/store.db", b.directory);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK) fail_msg("%s", error);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* What the statement does is found, and undone. */
static void change(const char *sql, const char *words)
{
    run("CREATE TABLE rows_before AS SELECT * FROM hapax_history;"
        "CREATE TABLE links_before AS SELECT * FROM hapax_links;");
    run(sql);
    finds(words, NULL);
    run("DELETE FROM hapax_history; INSERT INTO hapax_history SELECT * FROM rows_before; DROP TABLE rows_before;"
        "DELETE FROM hapax_links; INSERT INTO hapax_links SELECT * FROM links_before; DROP TABLE links_before;");
    is_whole();
}

static void execute(unsigned from, unsigned count)
{
    for (unsigned i = from; i < from + count; i++) {
        hx_record r = record_of(i);
        assert_int_equal(claim(&b, &r, 0, NULL), HX_STORE_OK);
        r.expires_at = test_now + HX_DAY;
        assert_int_equal(settle(&b, &r, HX_COMPLETED, NULL), HX_STORE_OK);
    }
}

static void begin(hx_ms retention)
{
    bench_begin(&b, "sqlite", (hx_store_options){.audit_retention = retention});
    execute(0, OPERATIONS);
}

static void rows_are_linked_by_the_next_sweep(void **state)
{
    (void)state;
    begin(0);
    hx_audit read = audit(NULL);
    assert_int_equal(read.problems, 0);
    assert_int_equal(read.rows, 2 * OPERATIONS);
    assert_int_equal(read.unlinked, read.rows);
    (void)sweep(&b);
    read = audit(NULL);
    assert_int_equal(read.unlinked, 0);
    assert_int_equal(read.links, 4);
    (void)sweep(&b); /* nothing is new */
    assert_int_equal(audit(&read.head).links, 4);
    execute(1000, 1);
    bench_restart(&b);
    (void)sweep(&b);
    hx_audit more = audit(&read.head);
    assert_int_equal(more.problems, 0);
    assert_int_equal(more.links, 5);
    bench_end(&b);
}

static void what_was_changed_is_named(void **state)
{
    (void)state;
    begin(0);
    (void)sweep(&b);
    bench_close(&b);
    change("UPDATE hapax_history SET head = CAST(substr(head, 1, 99) || x'00' || substr(head, 101) AS BLOB)"
           " WHERE id = 70",
           "row 70 can't be read");
    change("UPDATE hapax_history SET op = zeroblob(16) WHERE id = 70", "row 70 can't be read");
    change("DELETE FROM hapax_history WHERE id = 70", "rows 70 to 70 are missing");
    change("UPDATE hapax_history SET id = -1 WHERE id = 90; UPDATE hapax_history SET id = 90 WHERE id = 75;"
           "UPDATE hapax_history SET id = 75 WHERE id = -1",
           "rows 75 and 90 are swapped");
    change("UPDATE hapax_history SET (op, head) = (SELECT op, head FROM hapax_history WHERE id = 3) WHERE id = 5",
           "link 1, or one of its rows 1 to 64");
    change("DELETE FROM hapax_links WHERE number = 1; DELETE FROM hapax_history WHERE id <= 64",
           "links 1 to 1 are missing");
    change("DELETE FROM hapax_links WHERE number = 2; DELETE FROM hapax_history WHERE id BETWEEN 65 AND 128",
           "links 2 to 2 are missing");
    change("UPDATE hapax_links SET at = at + 1 WHERE number = 4", "link 4, or one of its rows");
    change("UPDATE hapax_links SET kept = 2 WHERE number = 4", "link 4, or one of its rows");
    bench_open(&b);
    bench_end(&b);
}

static void a_tail_that_was_cut_off_differs_from_the_anchor(void **state)
{
    (void)state;
    begin(0);
    (void)sweep(&b);
    hx_audit_anchor anchor = audit(NULL).head;
    bench_close(&b);
    run("DELETE FROM hapax_links WHERE number = 4; DELETE FROM hapax_history WHERE id > 192;");
    is_whole();
    finds("its end was cut off", &anchor);
    bench_open(&b);
    execute(1000, 4);
    (void)sweep(&b);
    is_whole();
    finds("isn't the one of the anchor", &anchor);
    bench_end(&b);
}

static void retention_leaves_a_checkpoint(void **state)
{
    (void)state;
    begin(10 * HX_DAY);
    (void)sweep(&b);
    hx_audit_anchor old = audit(NULL).head;
    for (unsigned day = 0; day < 12; day++) {
        test_now += HX_DAY;
        execute(10000 + 100 * day, 100);
        (void)sweep(&b);
        is_whole();
    }
    hx_audit read = audit(NULL);
    assert_true(read.kept_from > 4);
    assert_in_range(read.rows, 2000, 2400);
    finds("is no longer kept", &old);
    bench_restart(&b);
    is_whole();
    bench_close(&b);
    change("DELETE FROM hapax_history WHERE id <= (SELECT min(last_id) FROM hapax_links WHERE last_id >= first_id);"
           "DELETE FROM hapax_links WHERE number = (SELECT min(number) FROM hapax_links)",
           "are missing");
    bench_open(&b);
    bench_end(&b);
}

static void a_store_of_the_format_before_is_linked(void **state)
{
    (void)state;
    begin(0);
    bench_close(&b);
    run("DROP TABLE hapax_links; UPDATE hapax_store SET format = 3");
    bench_open(&b);
    (void)sweep(&b);
    hx_audit read = audit(NULL);
    assert_int_equal(read.problems + read.unlinked, 0);
    assert_int_equal(read.rows, 2 * OPERATIONS);
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_linked_by_the_next_sweep),
        cmocka_unit_test(what_was_changed_is_named),
        cmocka_unit_test(a_tail_that_was_cut_off_differs_from_the_anchor),
        cmocka_unit_test(retention_leaves_a_checkpoint),
        cmocka_unit_test(a_store_of_the_format_before_is_linked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
