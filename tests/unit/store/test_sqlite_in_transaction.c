/* SPDX-License-Identifier: Apache-2.0 */
/* Operations inside a program's own SQLite transaction: the effect (a row in a table of the program's) and the mark
 * commit together, roll back together, and die together. */
#include "store/harness.h"

#include "base/check.h"
#include "base/log.h"
#include "store/sqlite/in_transaction.h"

#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

typedef struct {
    char directory[64];
    char path[96];
    sqlite3 *db;
    hx_arena arena;
    hx_in_transaction_operation operation;
    hx_record found;
} program;

static void run(sqlite3 *db, const char *sql)
{
    char *error = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK) hx_fatal(1, "%s: %s", sql, error);
}

static sqlite3 *connect_to(const char *path)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    (void)sqlite3_busy_timeout(db, 60000);
    return db;
}

static void begin(program *p)
{
    hx_error_text error;
    *p = (program){0};
    new_directory(p->directory);
    (void)snprintf(p->path, sizeof p->path, "%s/app.db", p->directory);
    p->db = connect_to(p->path);
    run(p->db, "CREATE TABLE refunds (key TEXT)");
    assert_true(hx_sqlite_prepare(p->db, error));
    assert_true(hx_sqlite_prepare(p->db, error)); /* twice is once */
}

static void finish(program *p)
{
    assert_int_equal(sqlite3_close(p->db), SQLITE_OK); /* no statement of ours is left */
    hx_arena_free(&p->arena);
    remove_directory(p->directory);
}

static int64_t number(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *s;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(s, 0);
    (void)sqlite3_finalize(s);
    return value;
}

static int64_t effects(const program *p)
{
    return number(p->db, "SELECT count(*) FROM refunds");
}

static const hx_in_transaction_request request = {.route = {"refunds", 7},
                                                  .principal = {"alice", 5},
                                                  .key = {"8e03978e-40d5-43e8", 18},
                                                  .payload = {"{\"amount\":5}", 12}};
static const hx_answer answer = {201, true, {"A: b\r\n", 6}, {"refunded", 8}};

static hx_in_transaction_result start(program *p, const hx_in_transaction_request *r)
{
    return hx_sqlite_begin(p->db, r, &p->arena, &p->operation, &p->found);
}

static hx_in_transaction_result complete(program *p)
{
    return hx_sqlite_complete(p->db, &p->operation, &answer, &p->arena, &p->found);
}

static void effect(const program *p)
{
    run(p->db, "INSERT INTO refunds VALUES ('8e03')");
}

static void effect_and_mark_commit_together(void **state)
{
    (void)state;
    program p;
    begin(&p);
    for (int round = 0; round < 3; round++) {
        run(p.db, "BEGIN IMMEDIATE");
        hx_in_transaction_result result = start(&p, &request);
        assert_int_equal(result, round == 0 ? HX_IN_TRANSACTION_OK : HX_IN_TRANSACTION_DONE);
        if (result == HX_IN_TRANSACTION_OK) {
            effect(&p);
            assert_int_equal(complete(&p), HX_IN_TRANSACTION_OK);
        } else {
            assert_int_equal(p.found.state, HX_COMPLETED);
            assert_int_equal(p.found.answer.status, 201);
            assert_true(hx_slice_eq(p.found.answer.body, answer.body));
            assert_true(hx_slice_eq(p.found.answer.headers, answer.headers));
        }
        run(p.db, "COMMIT");
        assert_int_equal(effects(&p), 1);
    }
    hx_in_transaction_request other = request;
    other.payload = HX_LIT("{\"amount\":6}");
    run(p.db, "BEGIN IMMEDIATE");
    assert_int_equal(start(&p, &other), HX_IN_TRANSACTION_MISMATCH);
    other.payload = HX_EMPTY;
    assert_int_equal(start(&p, &other), HX_IN_TRANSACTION_DONE);
    other.principal = HX_LIT("bob");
    assert_int_equal(start(&p, &other), HX_IN_TRANSACTION_OK);
    run(p.db, "COMMIT");
    finish(&p);
}

static void a_rollback_takes_both_back(void **state)
{
    (void)state;
    program p;
    begin(&p);
    run(p.db, "BEGIN IMMEDIATE");
    assert_int_equal(start(&p, &request), HX_IN_TRANSACTION_OK);
    hx_in_transaction_operation first = p.operation;
    effect(&p);
    assert_int_equal(complete(&p), HX_IN_TRANSACTION_OK);
    run(p.db, "ROLLBACK");
    assert_int_equal(effects(&p), 0);
    assert_int_equal(number(p.db,
                            "SELECT (SELECT count(*) FROM hapax_operations) + (SELECT count(*) FROM hapax_history)"
                            " + (SELECT coalesce(sum(processing + unknown + ended), 0) FROM hapax_live)"),
                     0);
    run(p.db, "BEGIN IMMEDIATE");
    assert_int_equal(start(&p, &request), HX_IN_TRANSACTION_OK);
    /* even had both drawn the same epoch, who was rolled back can't end what another began */
    first.epoch = p.operation.epoch;
    assert_int_equal(hx_sqlite_complete(p.db, &first, &answer, &p.arena, &p.found), HX_IN_TRANSACTION_STALE);
    effect(&p);
    assert_int_equal(complete(&p), HX_IN_TRANSACTION_OK);
    run(p.db, "COMMIT");
    assert_int_equal(effects(&p), 1);
    finish(&p);
}

static void wait_until(hx_ms moment)
{
    while (hx_clock_now() < moment) usleep(200);
}

static void a_stale_epoch_fails_and_its_effect_is_rolled_back(void **state)
{
    (void)state;
    program p;
    begin(&p);
    hx_in_transaction_request brief = request;
    brief.lease = 1;
    run(p.db, "BEGIN IMMEDIATE");
    assert_int_equal(start(&p, &brief), HX_IN_TRANSACTION_OK);
    run(p.db, "COMMIT"); /* begun, and now the program is slow */
    hx_in_transaction_operation slow = p.operation;
    wait_until(hx_clock_now() + 2);
    run(p.db, "BEGIN IMMEDIATE");
    assert_int_equal(start(&p, &request), HX_IN_TRANSACTION_UNKNOWN);
    assert_int_equal(p.found.epoch, slow.epoch);
    hx_in_transaction_request again = request;
    again.take_over = slow.epoch + 1;
    assert_int_equal(start(&p, &again), HX_IN_TRANSACTION_UNKNOWN);
    again.take_over = slow.epoch;
    assert_int_equal(start(&p, &again), HX_IN_TRANSACTION_OK);
    assert_true(p.operation.epoch > slow.epoch);
    run(p.db, "COMMIT");
    run(p.db, "BEGIN IMMEDIATE");
    effect(&p);
    assert_int_equal(hx_sqlite_complete(p.db, &slow, &answer, &p.arena, &p.found), HX_IN_TRANSACTION_STALE);
    assert_int_equal(p.found.state, HX_PROCESSING);
    assert_int_equal(p.found.epoch, p.operation.epoch);
    run(p.db, "ROLLBACK");
    run(p.db, "BEGIN IMMEDIATE");
    assert_int_equal(start(&p, &request), HX_IN_TRANSACTION_RUNNING);
    assert_true(p.found.lease_until > hx_clock_now());
    effect(&p);
    assert_int_equal(complete(&p), HX_IN_TRANSACTION_STALE); /* what begin said no to has no name */
    run(p.db, "ROLLBACK");
    assert_int_equal(effects(&p), 0);
    finish(&p);
}

static void what_was_begun_and_not_ended_is_redone_where_effects_come_with_their_marks(void **state)
{
    (void)state;
    program p;
    begin(&p);
    hx_in_transaction_request redo = request;
    redo.redo = true;
    redo.lease = 1;
    run(p.db, "BEGIN IMMEDIATE");
    assert_int_equal(start(&p, &redo), HX_IN_TRANSACTION_OK);
    run(p.db, "COMMIT");
    wait_until(hx_clock_now() + 2);
    run(p.db, "BEGIN IMMEDIATE");
    assert_int_equal(start(&p, &redo), HX_IN_TRANSACTION_OK);
    effect(&p);
    assert_int_equal(complete(&p), HX_IN_TRANSACTION_OK);
    run(p.db, "COMMIT");
    run(p.db, "BEGIN IMMEDIATE");
    assert_int_equal(start(&p, &redo), HX_IN_TRANSACTION_DONE);
    assert_int_equal(p.found.attempt, 2);
    run(p.db, "COMMIT");
    finish(&p);
}

static void failing_is_kept_and_releasing_is_not(void **state)
{
    (void)state;
    program p;
    begin(&p);
    const hx_answer refused = {422, true, HX_EMPTY, HX_LIT("no such order")};
    run(p.db, "BEGIN IMMEDIATE");
    assert_int_equal(start(&p, &request), HX_IN_TRANSACTION_OK);
    assert_int_equal(hx_sqlite_release(p.db, &p.operation, HX_LIT("no money"), &p.arena, &p.found),
                     HX_IN_TRANSACTION_OK);
    assert_int_equal(hx_sqlite_release(p.db, &p.operation, HX_LIT("no money"), &p.arena, &p.found),
                     HX_IN_TRANSACTION_STALE);
    assert_int_equal(p.found.state, HX_ABSENT);
    assert_int_equal(start(&p, &request), HX_IN_TRANSACTION_OK);
    assert_int_equal(hx_sqlite_fail(p.db, &p.operation, &refused, &p.arena, &p.found), HX_IN_TRANSACTION_OK);
    assert_int_equal(complete(&p), HX_IN_TRANSACTION_STALE); /* the first outcome stays */
    assert_int_equal(p.found.state, HX_FAILED);
    assert_int_equal(start(&p, &request), HX_IN_TRANSACTION_DONE);
    assert_int_equal(p.found.answer.status, 422);
    run(p.db, "COMMIT");
    assert_int_equal(number(p.db, "SELECT count(*) FROM hapax_history"), 4);
    finish(&p);
}

static void lifetimes_end_and_are_cleaned(void **state)
{
    (void)state;
    program p;
    begin(&p);
    unsigned cleaned;
    hx_in_transaction_request brief = request;
    brief.lifetime = 1;
    run(p.db, "BEGIN IMMEDIATE");
    assert_int_equal(start(&p, &brief), HX_IN_TRANSACTION_OK);
    assert_int_equal(complete(&p), HX_IN_TRANSACTION_OK);
    brief.key = HX_LIT("another-key-of-hers");
    brief.tombstone = HX_HOUR;
    assert_int_equal(start(&p, &brief), HX_IN_TRANSACTION_OK);
    assert_int_equal(complete(&p), HX_IN_TRANSACTION_OK);
    run(p.db, "COMMIT");
    wait_until(((hx_clock_now() + 1) / HX_SECOND + 1) * HX_SECOND);
    run(p.db, "BEGIN IMMEDIATE");
    assert_int_equal(start(&p, &brief), HX_IN_TRANSACTION_EXPIRED);
    assert_int_equal(p.found.answer.status, 0);
    assert_int_equal(hx_sqlite_clean(p.db, 100, &cleaned), HX_IN_TRANSACTION_OK);
    assert_int_equal(cleaned, 1);
    assert_int_equal(start(&p, &brief), HX_IN_TRANSACTION_EXPIRED);
    assert_int_equal(start(&p, &request), HX_IN_TRANSACTION_OK);
    run(p.db, "COMMIT");
    finish(&p);
}

static void what_is_asked_wrongly_is_told_apart(void **state)
{
    (void)state;
    program p;
    begin(&p);
    assert_int_equal(start(&p, &request), HX_IN_TRANSACTION_OUTSIDE);
    assert_true(sqlite3_get_autocommit(p.db));
    run(p.db, "BEGIN IMMEDIATE");
    hx_in_transaction_request keyless = request;
    keyless.key = HX_EMPTY;
    assert_int_equal(start(&p, &keyless), HX_IN_TRANSACTION_INVALID);
    assert_int_equal(start(&p, &request), HX_IN_TRANSACTION_OK);
    const hx_answer nothing = {0};
    assert_int_equal(hx_sqlite_complete(p.db, &p.operation, &nothing, &p.arena, &p.found), HX_IN_TRANSACTION_INVALID);
    run(p.db, "COMMIT");
    sqlite3 *other = connect_to(p.path);
    (void)sqlite3_busy_timeout(other, 0);
    run(p.db, "BEGIN IMMEDIATE");
    run(other, "BEGIN"); /* not IMMEDIATE */
    assert_int_equal(hx_sqlite_begin(other, &request, &p.arena, &p.operation, &p.found), HX_IN_TRANSACTION_RUNNING);
    keyless.key = HX_LIT("a-key-that-is-free-1");
    assert_int_equal(hx_sqlite_begin(other, &keyless, &p.arena, &p.operation, &p.found), HX_IN_TRANSACTION_BUSY);
    assert_true(hx_slice_eq(p.found.reason, HX_LIT("database is locked")));
    run(other, "ROLLBACK");
    run(p.db, "ROLLBACK");
    run(p.db, "UPDATE hapax_store SET format = 99");
    run(p.db, "BEGIN");
    assert_int_equal(start(&p, &request), HX_IN_TRANSACTION_NO_TABLES);
    hx_error_text error;
    assert_false(hx_sqlite_prepare(p.db, error));
    assert_non_null(strstr(error, "newer version"));
    assert_false(sqlite3_get_autocommit(p.db)); /* it is still the caller's */
    run(p.db, "COMMIT");
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    finish(&p);
}

static void tables_of_the_format_before_are_used_as_they_are_and_brought_up_to_date(void **state)
{
    (void)state;
    program p;
    hx_error_text error;
    begin(&p);
    run(p.db, "DROP TABLE hapax_items; DROP TABLE hapax_links; UPDATE hapax_store SET format = 2");
    run(p.db, "BEGIN IMMEDIATE");
    assert_int_equal(start(&p, &request), HX_IN_TRANSACTION_OK);
    effect(&p);
    assert_int_equal(complete(&p), HX_IN_TRANSACTION_OK);
    run(p.db, "COMMIT");
    assert_int_equal(number(p.db, "SELECT format FROM hapax_store"), 2);
    for (int round = 0; round < 2; round++) {
        assert_true(hx_sqlite_prepare(p.db, error));
        assert_int_equal(number(p.db, "SELECT format FROM hapax_store"), 4);
        assert_int_equal(number(p.db, "SELECT count(*) FROM hapax_items"), 0);
    }
    run(p.db, "BEGIN IMMEDIATE");
    assert_int_equal(start(&p, &request), HX_IN_TRANSACTION_DONE);
    run(p.db, "COMMIT");
    assert_int_equal(effects(&p), 1);
    finish(&p);
}

static void a_damaged_mark_is_not_made_again(void **state)
{
    (void)state;
    program p;
    begin(&p);
    hx_in_transaction_request again = request;
    run(p.db, "BEGIN IMMEDIATE");
    assert_int_equal(start(&p, &request), HX_IN_TRANSACTION_OK);
    hx_in_transaction_operation by_gateway = {p.operation.op, p.operation.epoch, 0};
    assert_int_equal(complete(&p), HX_IN_TRANSACTION_OK);
    run(p.db, "COMMIT");
    run(p.db, "UPDATE hapax_operations SET head = zeroblob(400)");
    hx_log_threshold(HX_LOG_ERROR + 1);
    run(p.db, "BEGIN IMMEDIATE");
    again.redo = true;
    assert_int_equal(start(&p, &again), HX_IN_TRANSACTION_UNKNOWN);
    again.redo = false;
    again.take_over = by_gateway.epoch;
    assert_int_equal(start(&p, &again), HX_IN_TRANSACTION_UNKNOWN);
    assert_true(p.found.unreadable);
    p.operation = by_gateway;
    assert_int_equal(complete(&p), HX_IN_TRANSACTION_STALE);
    run(p.db, "COMMIT");
    hx_log_threshold(HX_LOG_INFO);
    finish(&p);
}

static hx_in_transaction_result end_by(program *p, int way)
{
    if (way == 0) return complete(p);
    if (way == 1) return hx_sqlite_fail(p->db, &p->operation, &answer, &p->arena, &p->found);
    return hx_sqlite_release(p->db, &p->operation, HX_LIT("no money"), &p->arena, &p->found);
}

/* Whoever began it, its request can't be told from others any more: an outcome would be everyone's, or nobody's. */
static void an_operation_whose_record_was_damaged_meanwhile_is_not_ended(void **state)
{
    (void)state;
    hx_log_threshold(HX_LOG_ERROR + 1);
    for (int way = 0; way < 6; way++) {
        program p;
        begin(&p);
        run(p.db, "BEGIN IMMEDIATE");
        assert_int_equal(start(&p, &request), HX_IN_TRANSACTION_OK);
        run(p.db, "COMMIT");
        if (way % 2) p.operation.owner = 0; /* as if by a gateway */
        run(p.db, "UPDATE hapax_operations SET head = zeroblob(400)");
        run(p.db, "BEGIN IMMEDIATE");
        effect(&p);
        assert_int_equal(end_by(&p, way / 2), HX_IN_TRANSACTION_DAMAGED);
        assert_true(p.found.unreadable && p.found.state == HX_UNKNOWN);
        assert_true(hx_slice_eq(p.found.reason, HX_LIT("damaged")));
        assert_int_equal(number(p.db, "SELECT count(*) FROM hapax_history"), 1); /* it wrote nothing */
        assert_int_equal(number(p.db, "SELECT count(*) FROM hapax_operations WHERE state = 1 AND head = zeroblob(400)"),
                         1);
        run(p.db, "ROLLBACK");
        assert_int_equal(effects(&p), 0);
        hx_in_transaction_request again = request;
        again.redo = true;
        run(p.db, "BEGIN IMMEDIATE");
        assert_int_equal(start(&p, &again), HX_IN_TRANSACTION_UNKNOWN);
        run(p.db, "COMMIT");
        finish(&p);
    }
    hx_log_threshold(HX_LOG_INFO);
}

/* "For ever", as a program may write it, must not end before it begins. */
static void a_span_of_more_than_a_century_is_refused(void **state)
{
    (void)state;
    program p;
    begin(&p);
    const hx_ms wrong[] = {INT64_MAX, INT64_MAX / 2, -1};
    for (size_t i = 0; i < 3 * sizeof wrong / sizeof *wrong; i++) {
        hx_in_transaction_request forever = request;
        int64_t effects_before = effects(&p);
        forever.key = hx_slice_from(request.key, i);
        *(hx_ms *[]){&forever.lease, &forever.lifetime, &forever.tombstone}[i % 3] = wrong[i / 3];
        for (int round = 0; round < 2; round++) {
            run(p.db, "BEGIN IMMEDIATE");
            hx_in_transaction_result result = start(&p, &forever);
            if (result == HX_IN_TRANSACTION_OK) {
                effect(&p);
                assert_int_equal(complete(&p), HX_IN_TRANSACTION_OK);
            }
            run(p.db, "COMMIT");
            assert_true(effects(&p) <= effects_before + 1);
            assert_int_equal(result, HX_IN_TRANSACTION_INVALID);
        }
    }
    finish(&p);
}

#define CRASHES 60

/* The program dies at some moment around its commit; whoever comes next finds the effect and the mark, or neither. */
static void a_crash_leaves_both_or_neither(void **state)
{
    (void)state;
    program p;
    begin(&p);
    run(p.db, "PRAGMA journal_mode = WAL");
    unsigned committed = 0;
    for (unsigned i = 0; i < CRASHES; i++) {
        int ready[2];
        assert_int_equal(pipe(ready), 0);
        assert_int_equal(sqlite3_close(p.db), SQLITE_OK); /* no connection is carried over a fork */
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            program c = {.db = connect_to(p.path)};
            for (unsigned n = 0;; n++) {
                char key[64];
                hx_in_transaction_request r = request;
                r.key = (hx_slice){key, (size_t)snprintf(key, sizeof key, "key-%u-%u", i, n)};
                run(c.db, "BEGIN IMMEDIATE");
                if (start(&c, &r) != HX_IN_TRANSACTION_OK) _exit(1);
                effect(&c);
                if (complete(&c) != HX_IN_TRANSACTION_OK) _exit(2);
                run(c.db, "COMMIT");
                if (write(ready[1], &n, sizeof n) != sizeof n) _exit(3);
            }
        }
        unsigned acknowledged = 0, last;
        while (acknowledged < 1 + i % 5 && read(ready[0], &last, sizeof last) == sizeof last) acknowledged++;
        assert_int_equal(kill(child, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status)); /* it didn't end by itself */
        close(ready[1]);
        while (read(ready[0], &last, sizeof last) == sizeof last) acknowledged++;
        close(ready[0]);
        p.db = connect_to(p.path);
        committed += acknowledged;
        int64_t done = effects(&p);
        assert_true(done >= committed && done <= committed + i + 1); /* each may have died between commit and word */
        assert_int_equal(number(p.db, "SELECT count(*) FROM hapax_operations WHERE state = 2"), done);
        assert_int_equal(number(p.db, "SELECT count(*) FROM hapax_operations WHERE state <> 2"), 0);
    }
    finish(&p);
}

static void a_gateway_and_a_program_share_the_database(void **state)
{
    (void)state;
    program p;
    begin(&p);
    char url[128], header[128];
    hx_error_text error;
    (void)snprintf(url, sizeof url, "sqlite:%s", p.path);
    bench b = {.store = hx_store_open(hx_slice_of(url), NULL, error), .loop = hx_loop_new()};
    assert_non_null(b.store);
    hx_store_attach(b.store, b.loop);
    hx_record r = record_of(1), watched;
    r.lease_until = hx_clock_now() + HX_HOUR;
    r.lifetime = HX_HOUR;
    assert_int_equal(claim(&b, &r, 0, NULL), HX_STORE_OK);
    waited w;
    wait_start(&b, &w);
    hx_store_watch(b.store, &w.call, &r.op, r.epoch);
    size_t at = 0;
    for (size_t i = 0; i < sizeof r.op.bytes; i++)
        at += (size_t)snprintf(header + at, sizeof header - at, "%02x", r.op.bytes[i]);
    (void)snprintf(header + at, sizeof header - at, ".%llu", (unsigned long long)r.epoch);
    assert_true(hx_sqlite_operation_of(hx_slice_of(header), &p.operation));
    hx_in_transaction_operation stale = p.operation;
    stale.epoch--; /* the gateway has sent it again since */
    run(p.db, "BEGIN IMMEDIATE");
    effect(&p);
    assert_int_equal(hx_sqlite_complete(p.db, &stale, &answer, &p.arena, &p.found), HX_IN_TRANSACTION_STALE);
    assert_int_equal(p.found.epoch, r.epoch);
    run(p.db, "ROLLBACK");
    assert_int_equal(effects(&p), 0);
    run(p.db, "BEGIN IMMEDIATE");
    effect(&p);
    assert_int_equal(complete(&p), HX_IN_TRANSACTION_OK);
    run(p.db, "COMMIT");
    wait_for(&b, &w); /* who waits at the gateway is told */
    watched = w.call.found;
    assert_int_equal(watched.state, HX_COMPLETED);
    assert_true(hx_slice_eq(watched.answer.body, answer.body));
    assert_true(watched.expires_at > hx_clock_now() && watched.expires_at <= hx_clock_now() + HX_HOUR);
    assert_int_equal(settle(&b, &r, HX_FAILED, NULL), HX_STORE_STALE); /* the mark was first */
    static const char *const wrong[] = {"",
                                        "abc",
                                        "00112233445566778899aabbccddeeff",
                                        "00112233445566778899aabbccddeeff.",
                                        "00112233445566778899aabbccddeeff.0",
                                        "00112233445566778899aabbccddeeffx7",
                                        "00112233445566778899aabbccddeezz.7",
                                        "00112233445566778899aabbccddeeff.7x"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(hx_sqlite_operation_of(hx_slice_of(wrong[i]), &p.operation));
    hx_store_close(&b.store);
    hx_loop_free(&b.loop);
    hx_arena_free(&b.arena);
    finish(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(effect_and_mark_commit_together),
        cmocka_unit_test(a_rollback_takes_both_back),
        cmocka_unit_test(a_stale_epoch_fails_and_its_effect_is_rolled_back),
        cmocka_unit_test(what_was_begun_and_not_ended_is_redone_where_effects_come_with_their_marks),
        cmocka_unit_test(failing_is_kept_and_releasing_is_not),
        cmocka_unit_test(lifetimes_end_and_are_cleaned),
        cmocka_unit_test(what_is_asked_wrongly_is_told_apart),
        cmocka_unit_test(tables_of_the_format_before_are_used_as_they_are_and_brought_up_to_date),
        cmocka_unit_test(a_damaged_mark_is_not_made_again),
        cmocka_unit_test(an_operation_whose_record_was_damaged_meanwhile_is_not_ended),
        cmocka_unit_test(a_span_of_more_than_a_century_is_refused),
        cmocka_unit_test(a_crash_leaves_both_or_neither),
        cmocka_unit_test(a_gateway_and_a_program_share_the_database),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
