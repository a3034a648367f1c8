/* SPDX-License-Identifier: Apache-2.0 */
/* What only a store on PostgreSQL can get wrong: connections that are cut in the middle, statements that arrive late,
 * rows that an application has locked, functions that fail. Run by tests/store/with_postgres. */
#include "store/direct.h"
#include "store/harness.h"

#include "base/check.h"
#include "base/memory/list.h"
#include "base/rand.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

/* Two nodes on one store, and a connection of the test. */
typedef struct {
    bench here, there;
    PGconn *conn;
} pair;

static void pair_begin(pair *p)
{
    bench_begin(&p->here, "postgres", (hx_store_options){0});
    p->there = (bench){.backend = "postgres", .options = p->here.options};
    new_directory(p->there.directory);
    bench_open(&p->there);
    p->conn = connect_directly();
}

static void pair_end(pair *p)
{
    pq->finish(p->conn);
    bench_end(&p->there);
    bench_end(&p->here);
}

static void pair_turn(pair *p)
{
    hx_loop_turn(p->here.loop, 1);
    hx_loop_turn(p->there.loop, 1);
}

/* Waiting */

#define WATCHED 600u

static void every_watch_is_rechecked(void **state)
{
    (void)state;
    pair p;
    pair_begin(&p);
    static waited watches[WATCHED];
    static hx_record records[WATCHED];
    for (unsigned i = 0; i < WATCHED; i++) {
        records[i] = record_of(i);
        assert_int_equal(claim(&p.there, &records[i], 0, NULL), HX_STORE_OK);
        wait_start(&p.here, &watches[i]);
        hx_store_watch(p.here.store, &watches[i].call, &records[i].op, records[i].epoch);
    }
    hx_store_counts counts = {0};
    while (counts.watchers < WATCHED) {
        pair_turn(&p);
        hx_store_count(p.here.store, &counts);
    }
    records[WATCHED - 1].expires_at = test_now + HX_DAY;
    assert_int_equal(settle(&p.there, &records[WATCHED - 1], HX_COMPLETED, NULL), HX_STORE_OK);
    wait_for(&p.here, &watches[WATCHED - 1]);
    assert_int_equal(watches[WATCHED - 1].call.found.state, HX_COMPLETED);
    for (unsigned i = 0; i < WATCHED - 1; i++) hx_store_cancel(p.here.store, &watches[i].call);
    for (unsigned i = 0; i < WATCHED - 1; i++) wait_for(&p.here, &watches[i]);
    pair_end(&p);
}

/* Another watch comes in each turn: those before it are rechecked all the same. */
static void a_watch_is_rechecked_however_many_come(void **state)
{
    (void)state;
    pair p;
    pair_begin(&p);
    hx_record first = record_of(1), other = record_of(2);
    first.attempt = 9;
    assert_int_equal(claim(&p.there, &first, 0, NULL), HX_STORE_OK);
    assert_int_equal(claim(&p.there, &other, 0, NULL), HX_STORE_OK);
    waited w;
    wait_start(&p.here, &w);
    hx_store_watch(p.here.store, &w.call, &first.op, first.epoch);
    hx_store_counts counts = {0};
    while (counts.watchers == 0) {
        pair_turn(&p);
        hx_store_count(p.here.store, &counts);
    }
    static waited others[900];
    size_t count = 0;
    for (; count < 900 && !w.done; count++) {
        if (count == 50) do_sql(p.conn, "UPDATE hapax.operations SET state = 4, due_at = NULL WHERE attempt = 9");
        wait_start(&p.here, &others[count]);
        hx_store_watch(p.here.store, &others[count].call, &other.op, other.epoch);
        hx_loop_turn(p.here.loop, 3);
    }
    assert_true(w.done);
    for (size_t i = 0; i < count; i++) hx_store_cancel(p.here.store, &others[i].call);
    for (size_t i = 0; i < count; i++) wait_for(&p.here, &others[i]);
    pair_end(&p);
}

/* An operator may have written to the table by hand. */
static void texts_that_are_too_long_are_cut(void **state)
{
    (void)state;
    pair p;
    pair_begin(&p);
    hx_record r = record_of(1);
    assert_int_equal(claim(&p.there, &r, 0, NULL), HX_STORE_OK);
    waited w;
    wait_start(&p.here, &w);
    hx_store_watch(p.here.store, &w.call, &r.op, r.epoch);
    hx_store_counts counts = {0};
    while (counts.watchers == 0) {
        pair_turn(&p);
        hx_store_count(p.here.store, &counts);
    }
    do_sql(p.conn, "UPDATE hapax.operations SET state = 4, due_at = NULL, reason = repeat('é', 300)");
    wait_for(&p.here, &w);
    assert_int_equal(w.call.found.state, HX_UNKNOWN);
    assert_int_equal(w.call.found.reason.len, 254);
    pair_end(&p);
}

/* Upkeep */

static void upkeep_that_fails_is_not_repeated_in_each_round(void **state)
{
    (void)state;
    pair p;
    pair_begin(&p);
    do_sql(p.conn, "CREATE SEQUENCE calls; ALTER FUNCTION hapax.await_many RENAME TO await_no_more;"
                   "CREATE FUNCTION hapax.await_many(ops bytea[]) RETURNS bigint LANGUAGE plpgsql AS "
                   "'BEGIN PERFORM nextval(''public.calls''); RAISE EXCEPTION ''no''; END'");
    hx_record r = record_of(1);
    assert_int_equal(claim(&p.there, &r, 0, NULL), HX_STORE_OK);
    waited w;
    wait_start(&p.here, &w);
    hx_store_watch(p.here.store, &w.call, &r.op, r.epoch);
    for (uint64_t i = 0; i < 50; i++) (void)peek(&p.here, op_of(i), NULL);
    assert_int_equal(settle(&p.there, &r, HX_UNKNOWN, NULL), HX_STORE_OK);
    wait_for(&p.here, &w);
    assert_int_equal(ask(p.conn, "SELECT last_value FROM calls"), 1);
    do_sql(p.conn, "DROP FUNCTION hapax.await_many; ALTER FUNCTION hapax.await_no_more RENAME TO await_many;"
                   "DROP SEQUENCE calls");
    pair_end(&p);
}

/* Rows that an application has locked */

static void forgetting_waits_for_no_lock(void **state)
{
    (void)state;
    pair p;
    pair_begin(&p);
    hx_record r = record_of(1), other = record_of(2);
    assert_int_equal(claim(&p.here, &r, 0, NULL), HX_STORE_OK);
    assert_int_equal(settle(&p.here, &r, HX_UNKNOWN, NULL), HX_STORE_OK);
    do_sql(p.conn, "BEGIN; SELECT FROM hapax.operations FOR UPDATE");
    waited w;
    wait_start(&p.here, &w);
    hx_store_forget(p.here.store, &w.call, &r.op, r.epoch, HX_LIT("by hand"));
    assert_int_equal(claim(&p.here, &other, 0, NULL), HX_STORE_OK);
    assert_int_equal(peek(&p.here, other.op, NULL), HX_PROCESSING);
    assert_int_equal(ask(p.conn, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"), 0);
    assert_false(w.done);
    do_sql(p.conn, "COMMIT");
    wait_for(&p.here, &w);
    assert_int_equal(w.call.result, HX_STORE_OK);
    assert_int_equal(peek(&p.here, r.op, NULL), HX_ABSENT);
    pair_end(&p);
}

/* Epochs */

#define IMPORT                                                                                                         \
    "FROM hapax.import_many(NULL, ARRAY['\\x00112233445566778899aabbccddeeff'::bytea], "                               \
    "ARRAY[1000000 + (SELECT last_value FROM hapax.epochs)], ARRAY[77::bigint], ARRAY[1::bigint], ARRAY[0::bigint], "  \
    "ARRAY[0::bigint], ARRAY[0::bigint], ARRAY[3], ARRAY[4::smallint], ARRAY[1::smallint], ARRAY[1], "                 \
    "ARRAY[0::smallint], ARRAY[false], ARRAY['refunds'], ARRAY['moved'], ARRAY[''], ARRAY[''::bytea], "                \
    "ARRAY[''::bytea], ARRAY[''::bytea])"

static void what_was_moved_twice_is_there_once(void **state)
{
    (void)state;
    pair p;
    pair_begin(&p);
    assert_int_equal(ask(p.conn, "SELECT verdict " IMPORT), HX_STORE_OK);
    assert_int_equal(ask(p.conn, "SELECT verdict " IMPORT), HX_STORE_OK); /* its first answer was lost */
    assert_int_equal(ask(p.conn, "SELECT count(*) FROM hapax.operations"), 1);
    pair_end(&p);
}

/* The sequence of epochs is not set while a claim may be drawing one. */
static void epochs_are_raised_while_no_claim_draws_one(void **state)
{
    (void)state;
    pair p;
    pair_begin(&p);
    do_sql(p.conn, "BEGIN; LOCK TABLE hapax.rules IN ROW SHARE MODE"); /* as hapax.claim_many does */
    PGconn *mover = connect_directly();
    do_sql(mover, "SET lock_timeout = '50ms'");
    assert_true(is_refused(mover, "SELECT verdict " IMPORT, "55P03"));
    do_sql(p.conn, "COMMIT");
    assert_int_equal(ask(mover, "SELECT verdict " IMPORT), HX_STORE_OK);
    pq->finish(mover);
    pair_end(&p);
}

/* A node counts what is live under rules that it will do without, while another one is started. */
static void rules_that_one_takes_stock_of_stay_so_when_another_enforces_its_own(void **state)
{
    (void)state;
    const char *retired = "SELECT cardinality(hapax.retired_among(hapax.now(), '{refunds}', '{-2147483647}'))";
    pair p;
    pair_begin(&p);
    do_sql(p.conn, "SELECT hapax.retire(NULL, 1, 60000, '{refunds}', '{-2147483647}')");
    do_sql(p.conn, "SELECT hapax.enforce('{refunds}', '{-2147483647}')");
    assert_int_equal(ask(p.conn, retired), 1);
    do_sql(p.conn, "SELECT hapax.retire(NULL, 1, 0, '{}', '{}')");
    assert_int_equal(ask(p.conn, retired), 0);
    do_sql(p.conn, "DELETE FROM hapax.rules");
    pair_end(&p);
}

/* An application may lock its operation's row: an outcome that comes meanwhile ends when the lock is gone. */
static void an_outcome_of_a_locked_row_ends_when_it_is_written(void **state)
{
    (void)state;
    pair p;
    pair_begin(&p);
    hx_record r = record_of(1), other = record_of(2);
    assert_int_equal(claim(&p.here, &r, 0, NULL), HX_STORE_OK);
    do_sql(p.conn, "BEGIN; SELECT FROM hapax.operations FOR UPDATE");
    waited w;
    wait_start(&p.here, &w);
    r.state = HX_UNKNOWN;
    hx_store_settle(p.here.store, &w.call, &r);
    assert_int_equal(claim(&p.here, &other, 0, NULL), HX_STORE_OK); /* behind it, on the same connection */
    assert_int_equal(ask(p.conn, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"), 0);
    assert_false(w.done);
    do_sql(p.conn, "COMMIT");
    wait_for(&p.here, &w);
    assert_int_equal(w.call.result, HX_STORE_OK);
    assert_int_equal(peek(&p.there, r.op, NULL), HX_UNKNOWN);
    pair_end(&p);
}

/* However many large answers are asked for at once, no round brings more than 4 MiB of them and one more. */
static void large_answers_come_one_after_the_other(void **state)
{
    (void)state;
    pair p;
    enum { COUNT = 12, BYTES = 3 << 20 };
    static waited claims[COUNT], reads[COUNT], stale[COUNT];
    static hx_record records[COUNT], again[COUNT];
    char *body = malloc(BYTES);
    assert_non_null(body);
    pair_begin(&p);
    for (uint64_t i = 0; i < COUNT; i++) {
        records[i] = record_of(i);
        memset(body, (int)('a' + i), BYTES);
        assert_int_equal(claim(&p.here, &records[i], 0, NULL), HX_STORE_OK);
        records[i].answer = (hx_answer){201, true, HX_LIT("A: b\r\n"), {body, BYTES}};
        records[i].expires_at = test_now + HX_DAY;
        assert_int_equal(settle(&p.here, &records[i], HX_COMPLETED, NULL), HX_STORE_OK);
    }
    assert_in_range(ask(p.conn,
                        "SELECT sum(octet_length(body)) FROM (SELECT (hapax.read_many(array_agg(op))).body FROM "
                        "hapax.operations) x"),
                    BYTES, (4 << 20) + BYTES);
    assert_int_equal(ask(p.conn, "SELECT count(*) FROM (SELECT (hapax.read_many(array_agg(op))).i FROM "
                                 "hapax.operations) x"),
                     COUNT);
    for (uint64_t i = 0; i < COUNT; i++) {
        again[i] = record_of(i);
        wait_start(&p.here, &claims[i]);
        hx_store_claim(p.here.store, &claims[i].call, &again[i], 0);
        wait_start(&p.here, &stale[i]);
        hx_store_renew(p.here.store, &stale[i].call, &again[i].op, records[i].epoch, test_now + HX_MINUTE);
        wait_start(&p.here, &reads[i]);
        hx_store_read(p.here.store, &reads[i].call, &again[i].op);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        waited *all[] = {&claims[i], &stale[i], &reads[i]};
        const hx_store_result expected[] = {HX_STORE_EXISTS, HX_STORE_STALE, HX_STORE_OK};
        for (size_t k = 0; k < 3; k++) {
            wait_for(&p.here, all[k]);
            hx_slice found = all[k]->call.found.answer.body;
            assert_int_equal(all[k]->call.result, expected[k]);
            assert_int_equal(found.len, BYTES);
            assert_int_equal(found.ptr[BYTES - 1], 'a' + i);
        }
    }
    free(body);
    pair_end(&p);
}

/* Bytes that a text column refuses are in the record all the same. */
static void routes_need_not_be_text(void **state)
{
    (void)state;
    pair p;
    pair_begin(&p);
    hx_record r = record_of(1), found;
    r.route = HX_LIT("POST /\0\xff\xed\xa0\x80");
    assert_int_equal(claim(&p.here, &r, 0, NULL), HX_STORE_OK);
    r.reason = HX_LIT("\xc3('; DROP TABLE hapax.operations; --");
    assert_int_equal(settle(&p.here, &r, HX_UNKNOWN, NULL), HX_STORE_OK);
    assert_int_equal(peek(&p.there, r.op, &found), HX_UNKNOWN);
    assert_true(hx_slice_eq(found.route, r.route));
    assert_true(hx_slice_eq(found.reason, HX_LIT("?('; DROP TABLE hapax.operations; --")));
    pair_end(&p);
}

/* Statements that come late, or fail when they are committed */

#define REFUSE_NO_MORE "DROP TRIGGER refuse ON hapax.operations; DROP FUNCTION public.refuse"

/* From now on a claim with this number of attempts fails when it is committed. */
static void refuse_ninth_attempts(const pair *p)
{
    do_sql(p->conn, "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS "
                    "'BEGIN RAISE EXCEPTION ''not this one''; END';"
                    "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON hapax.operations DEFERRABLE INITIALLY DEFERRED "
                    "FOR EACH ROW WHEN (NEW.attempt = 9) EXECUTE FUNCTION public.refuse()");
}

static void what_fails_at_its_commit_fails_alone(void **state)
{
    (void)state;
    pair p;
    pair_begin(&p);
    refuse_ninth_attempts(&p);
    hx_record records[20];
    static waited calls[20];
    for (uint64_t i = 0; i < 20; i++) {
        records[i] = record_of(i);
        if (i % 5 == 0) records[i].attempt = 9;
        wait_start(&p.here, &calls[i]);
        hx_store_claim(p.here.store, &calls[i].call, &records[i], 0);
    }
    for (uint64_t i = 0; i < 20; i++) {
        wait_for(&p.here, &calls[i]);
        assert_int_equal(calls[i].call.result, i % 5 == 0 ? HX_STORE_UNAVAILABLE : HX_STORE_OK);
    }
    do_sql(p.conn, REFUSE_NO_MORE);
    pair_end(&p);
}

/* A release is refused along with a claim that can't be made, and sent again. The operation is claimed meanwhile. */
static void what_is_refused_goes_before_later_calls_on_its_operation(void **state)
{
    (void)state;
    pair p;
    pair_begin(&p);
    refuse_ninth_attempts(&p);
    hx_record r = record_of(1), bad = record_of(2), again = record_of(1);
    assert_int_equal(claim(&p.here, &r, 0, NULL), HX_STORE_OK);
    waited calls[3];
    for (int i = 0; i < 3; i++) wait_start(&p.here, &calls[i]);
    r.state = HX_ABSENT;
    bad.attempt = 9;
    hx_store_settle(p.here.store, &calls[0].call, &r);
    hx_store_claim(p.here.store, &calls[1].call, &bad, 0);
    hx_loop_turn(p.here.loop, 0); /* sends both in one transaction, whose end is not read yet */
    hx_store_claim(p.here.store, &calls[2].call, &again, 0);
    for (int i = 0; i < 3; i++) {
        wait_for(&p.here, &calls[i]);
        assert_int_equal(calls[i].call.result, i == 1 ? HX_STORE_UNAVAILABLE : HX_STORE_OK);
    }
    assert_true(again.epoch > r.epoch);
    assert_int_equal(peek(&p.there, r.op, NULL), HX_PROCESSING);
    do_sql(p.conn, REFUSE_NO_MORE);
    pair_end(&p);
}

/* A connection that breaks in its first round counts as one that could not be made: the next one is delayed. */
static void a_server_that_refuses_all_is_not_hammered(void **state)
{
    (void)state;
    pair p;
    pair_begin(&p);
    do_sql(p.conn,
           "CREATE SEQUENCE calls; DO $do$ DECLARE text text := pg_get_functiondef('hapax.claim_many'::regproc); "
           "BEGIN EXECUTE 'ALTER FUNCTION hapax.claim_many RENAME TO claim_at_once'; "
           "EXECUTE replace(text, 'IF not_after < moment THEN', 'PERFORM nextval(''public.calls''); "
           "RAISE EXCEPTION ''going down'' USING ERRCODE = ''57P01''; IF not_after < moment THEN'); END $do$");
    hx_record r = record_of(1);
    assert_int_equal(claim(&p.here, &r, 0, NULL), HX_STORE_UNAVAILABLE);
    assert_in_range(ask(p.conn, "SELECT last_value FROM calls"), 1, 20);
    do_sql(p.conn, "DROP FUNCTION hapax.claim_many; ALTER FUNCTION hapax.claim_at_once RENAME TO claim_many;"
                   "DROP SEQUENCE calls");
    pair_end(&p);
}

/* A claim that was given up is made all the same, by a slow server. Only its node can release it; what it took over
 * becomes unknown again. */
static void a_claim_that_comes_too_late_is_taken_back(void **state)
{
    (void)state;
    pair p;
    pair_begin(&p);
    hx_record first = record_of(1), again = record_of(2), found;
    assert_int_equal(claim(&p.here, &again, 0, NULL), HX_STORE_OK);
    assert_int_equal(settle(&p.here, &again, HX_UNKNOWN, NULL), HX_STORE_OK);
    uint64_t before = again.epoch;
    do_sql(p.conn, "DO $do$ DECLARE text text := pg_get_functiondef('hapax.claim_many'::regproc); BEGIN "
                   "EXECUTE 'ALTER FUNCTION hapax.claim_many RENAME TO claim_at_once'; "
                   "EXECUTE replace(text, 'IF not_after < moment THEN', 'PERFORM pg_sleep(11); "
                   "IF not_after < moment THEN'); END $do$");
    again = record_of(2);
    again.from_state = HX_UNKNOWN;
    waited calls[2];
    for (int i = 0; i < 2; i++) wait_start(&p.here, &calls[i]);
    hx_store_claim(p.here.store, &calls[0].call, &first, 0);
    hx_store_claim(p.here.store, &calls[1].call, &again, before);
    for (int i = 0; i < 2; i++) {
        wait_for(&p.here, &calls[i]);
        assert_int_equal(calls[i].call.result, HX_STORE_UNAVAILABLE);
    }
    while (ask(p.conn, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%claim_many%' AND state = 'active' "
                       "AND pid <> pg_backend_pid()") > 0)
        hx_loop_turn(p.here.loop, 20);
    wait_for_state(&p.here, first.op, HX_ABSENT, NULL);
    assert_true(ask(p.conn, "SELECT count(*) FROM hapax.operations WHERE reason = 'nothing was sent'") <= 1);
    wait_for_state(&p.here, again.op, HX_UNKNOWN, &found);
    assert_true(found.epoch > before);
    assert_int_equal(ask(p.conn, "SELECT count(*) FROM hapax.operations WHERE state = 4 AND due_at IS NULL AND "
                                 "reason = 'nothing was sent again'"),
                     1);
    do_sql(p.conn, "DROP FUNCTION hapax.claim_many; ALTER FUNCTION hapax.claim_at_once RENAME TO claim_many");
    pair_end(&p);
}

/* The claim of a gateway that is gone would never be released. */
static void a_claim_that_comes_too_late_is_not_made(void **state)
{
    (void)state;
    const char *late = "SELECT * FROM hapax.claim_many(NULL, hapax.now() - 1, '{\\\\x00}', '{1}', '{0}', '{0}', '{0}', "
                       "'{0}', '{0}', '{0}', '{0}', '{1}', '{refunds}', '{\\\\x00}')";
    pair p;
    pair_begin(&p);
    assert_true(is_refused(p.conn, late, "HX006"));
    assert_int_equal(ask(p.conn, "SELECT count(*) FROM hapax.operations"), 0);
    pair_end(&p);
}

/* A claim is committed, but not on its standby, and when it is sent again the disk is full. */
static void a_claim_that_is_in_doubt_on_a_full_disk_is_taken_back(void **state)
{
    (void)state;
    pair p;
    pair_begin(&p);
    do_sql(p.conn,
           "CREATE SEQUENCE tries; DO $do$ DECLARE text text := pg_get_functiondef('hapax.claim_many'::regproc); "
           "BEGIN EXECUTE 'ALTER FUNCTION hapax.claim_many RENAME TO claim_at_once'; "
           "EXECUTE replace(text, 'IF not_after < moment THEN', 'IF nextval(''tries'') = 1 THEN "
           "RAISE WARNING ''canceling wait for synchronous replication''; ELSE RAISE ''full'' USING "
           "ERRCODE = ''53100''; END IF; IF not_after < moment THEN'); END $do$");
    hx_record r = record_of(1);
    assert_int_equal(claim(&p.here, &r, 0, NULL), HX_STORE_FULL);
    wait_for_state(&p.here, r.op, HX_ABSENT, NULL);
    assert_int_equal(ask(p.conn, "SELECT count(*) FROM hapax.operations WHERE reason = 'nothing was sent'"), 1);
    do_sql(p.conn, "DROP FUNCTION hapax.claim_many; ALTER FUNCTION hapax.claim_at_once RENAME TO claim_many; "
                   "DROP SEQUENCE tries");
    pair_end(&p);
}

/* The claim was made and released: when its statement arrives once more, late, it must not be made again. */
static void a_claim_is_not_made_twice(void **state)
{
    (void)state;
    pair p;
    pair_begin(&p);
    hx_record r = record_of(1);
    assert_int_equal(claim(&p.here, &r, 0, NULL), HX_STORE_OK);
    assert_int_equal(settle(&p.here, &r, HX_ABSENT, NULL), HX_STORE_OK);
    (void)sweep(&p.here);
    assert_int_equal(ask(p.conn, "SELECT count(*) FROM hapax.operations"), 1); /* it stays for as long as one may */
    assert_int_equal(
        ask(p.conn,
            "SELECT count(*) FROM hapax.operations o, hapax.claim_many(o.changed_at, o.changed_at, ARRAY[o.op], "
            "ARRAY[o.claim_ticket], ARRAY[0::bigint], ARRAY[o.changed_at], ARRAY[0::bigint], ARRAY[0::bigint], "
            "ARRAY[0::bigint], ARRAY[3], ARRAY[0::smallint], ARRAY[1], ARRAY[o.route], ARRAY[o.head])"),
        0);
    test_now += HX_MINUTE + HX_SECOND;
    (void)sweep(&p.here);
    assert_int_equal(ask(p.conn, "SELECT count(*) FROM hapax.operations"), 0);
    pair_end(&p);
}

/* What is kept */

static void the_past_is_kept_for_a_month(void **state)
{
    (void)state;
    pair p;
    pair_begin(&p);
    hx_record r = record_of(1);
    assert_int_equal(claim(&p.here, &r, 0, NULL), HX_STORE_OK);
    assert_int_equal(settle(&p.here, &r, HX_UNKNOWN, NULL), HX_STORE_OK);
    r.expires_at = test_now + HX_DAY;
    assert_int_equal(settle(&p.here, &r, HX_COMPLETED, NULL), HX_STORE_OK);
    test_now += 29 * HX_DAY;
    (void)sweep(&p.here);
    assert_int_equal(ask(p.conn, "SELECT count(*) FROM hapax.past"), 1);
    test_now += 2 * HX_DAY;
    (void)sweep(&p.here);
    assert_int_equal(ask(p.conn, "SELECT count(*) FROM hapax.past"), 0);
    pair_end(&p);
}

/* Time */

static void answered(hx_store_call *call)
{
    HX_OWNER(call, waited, call)->done = true;
    hx_loop_stop(call->loop);
}

/* The server's clock moves on by a minute: a node follows, and need not be started again. */
static void a_server_whose_clock_jumps_is_followed(void **state)
{
    (void)state;
    pair p;
    pair_begin(&p);
    hx_error_text error;
    const char *url = getenv("HAPAX_TEST_POSTGRES"); // NOLINT(concurrency-mt-unsafe)
    hx_store *store = hx_store_open(hx_slice_of(url), NULL, error);
    assert_non_null(store);
    hx_loop *loop = hx_loop_new();
    hx_arena arena = {0};
    hx_store_attach(store, loop);
    do_sql(p.conn, "CREATE OR REPLACE FUNCTION hapax.now() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS "
                   "$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 60000 $$");
    waited w = {.call = {.loop = loop, .arena = &arena, .done = answered}};
    hx_store_sweep(store, &w.call);
    while (!w.done) hx_loop_turn(loop, 1000);
    hx_record r = record_of(1);
    w = (waited){.call = {.loop = loop, .arena = &arena, .done = answered}};
    hx_store_claim(store, &w.call, &r, 0);
    while (!w.done) hx_loop_turn(loop, 1000);
    assert_int_equal(w.call.result, HX_STORE_OK);
    do_sql(p.conn, "CREATE OR REPLACE FUNCTION hapax.now() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS "
                   "$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$");
    hx_store_close(&store);
    hx_loop_free(&loop);
    hx_arena_free(&arena);
    pair_end(&p);
}

static void a_store_that_cannot_be_read_as_it_must_is_not_opened(void **state)
{
    (void)state;
    pair p;
    pair_begin(&p);
    hx_error_text error = "";
    const char *url = getenv("HAPAX_TEST_POSTGRES"); // NOLINT(concurrency-mt-unsafe)
    do_sql(p.conn, "ALTER ROLE postgres SET default_transaction_isolation = 'repeatable read'");
    assert_null(hx_store_open(hx_slice_of(url), NULL, error));
    assert_non_null(strstr(error, "read committed"));
    do_sql(p.conn, "ALTER ROLE postgres RESET default_transaction_isolation");
    char other[256];
    (void)snprintf(other, sizeof other, "%.*s/latin", (int)(strrchr(url, '/') - url), url);
    do_sql(p.conn, "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    const char *const keywords[] = {"dbname", NULL}, *const values[] = {other, NULL};
    PGconn *conn = pq->connectdbParams(keywords, values, 1);
    do_sql(conn, "CREATE SCHEMA hapax; CREATE TABLE hapax.store (version integer, secret bytea);"
                 "INSERT INTO hapax.store VALUES (1, sha256('')); CREATE FUNCTION hapax.now() RETURNS bigint "
                 "LANGUAGE sql AS 'SELECT 0::bigint'");
    pq->finish(conn);
    assert_null(hx_store_open(hx_slice_of(other), NULL, error));
    assert_non_null(strstr(error, "UTF-8"));
    do_sql(p.conn, "DROP DATABASE latin WITH (FORCE)");
    pair_end(&p);
}

/* Connections that are cut at any moment */

#define STORM_OPERATIONS 3000u
#define STORM_LOOPS 2
#define STORM_JOBS 24

typedef struct storm storm;

typedef struct {
    hx_store_call call;
    hx_record record;
    hx_timer timer;
    storm *storm;
    hx_loop *loop;
    hx_arena *arena;
    unsigned number;
    char body[32];
} job;

struct storm {
    hx_store *store;
    atomic_uint next, running, well;
    atomic_uint effects[STORM_OPERATIONS];
    _Atomic uint64_t acknowledged[STORM_OPERATIONS]; /* its epoch */
};

typedef struct {
    storm *storm;
    hx_loop *loop;
    pthread_t thread;
    hx_arena arena;
    job jobs[STORM_JOBS];
    unsigned left;
} crew;

static void begin_job(job *j);

static void prepare(job *j, void (*done)(hx_store_call *call))
{
    j->call = (hx_store_call){.loop = j->loop, .arena = j->arena, .done = done};
}

static void settle_again(hx_timer *timer);

static void job_settled(hx_store_call *call)
{
    job *j = HX_OWNER(call, job, call);
    if (call->result == HX_STORE_UNAVAILABLE) {
        hx_timer_start(j->loop, &j->timer, 5, settle_again);
        return;
    }
    HX_CHECK(call->result == HX_STORE_OK);
    j->storm->acknowledged[j->number] = j->record.epoch;
    atomic_fetch_add(&j->storm->well, 1);
    begin_job(j);
}

static void settle_again(hx_timer *timer)
{
    job *j = HX_OWNER(timer, job, timer);
    prepare(j, job_settled);
    hx_store_settle(j->storm->store, &j->call, &j->record);
}

static void job_waited(hx_store_call *call)
{
    job *j = HX_OWNER(call, job, call);
    HX_CHECK(call->result == HX_STORE_OK || call->result == HX_STORE_UNAVAILABLE);
    if (call->found.state == HX_COMPLETED) HX_CHECK(hx_slice_eq(call->found.answer.body, hx_slice_of(j->body)));
    begin_job(j);
}

static void job_claimed(hx_store_call *call)
{
    job *j = HX_OWNER(call, job, call);
    if (call->result == HX_STORE_OK) {
        unsigned before = atomic_fetch_add(&j->storm->effects[j->number], 1);
        HX_CHECK(before == 0);
        j->record.state = HX_COMPLETED;
        j->record.from_state = HX_PROCESSING;
        j->record.expires_at = test_now + HX_DAY;
        j->record.answer = (hx_answer){201, true, HX_LIT("A: b\r\n"), hx_slice_of(j->body)};
        settle_again(&j->timer);
        return;
    }
    HX_CHECK(call->result == HX_STORE_EXISTS || call->result == HX_STORE_UNAVAILABLE);
    if (call->result == HX_STORE_EXISTS && call->found.state == HX_PROCESSING) {
        uint64_t epoch = call->found.epoch;
        prepare(j, job_waited);
        hx_store_watch(j->storm->store, &j->call, &j->record.op, epoch);
        return;
    }
    if (call->found.state == HX_COMPLETED) HX_CHECK(hx_slice_eq(call->found.answer.body, hx_slice_of(j->body)));
    begin_job(j);
}

static void begin_job(job *j)
{
    unsigned number = atomic_fetch_add(&j->storm->next, 1) / STORM_LOOPS;
    if (number >= STORM_OPERATIONS) {
        HX_OWNER(j->arena, crew, arena)->left--;
        return;
    }
    j->number = number;
    j->record = record_of(number);
    (void)snprintf(j->body, sizeof j->body, "answer to %u", number);
    prepare(j, job_claimed);
    hx_store_claim(j->storm->store, &j->call, &j->record, 0);
}

static void *work(void *context)
{
    crew *c = context;
    for (unsigned i = 0; i < STORM_JOBS; i++) {
        c->jobs[i] = (job){.storm = c->storm, .loop = c->loop, .arena = &c->arena};
        c->left++;
        begin_job(&c->jobs[i]);
    }
    while (c->left > 0) hx_loop_turn(c->loop, 100);
    hx_arena_free(&c->arena);
    hx_arena_pool_drain();
    atomic_fetch_sub(&c->storm->running, 1);
    return NULL;
}

/* Between two cuts something is done, however long that takes on this machine. Returns how many were cut. */
static int64_t cut_connections(PGconn *conn, const storm *s)
{
    int64_t cuts = 0;
    while (s->running > 0) {
        unsigned before = s->well;
        cuts += ask(conn,
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'hapax' "
                    "AND random() < 0.3");
        do (void)ask(conn, "SELECT 1 FROM pg_sleep(random() * 0.03)");
        while (s->running > 0 && s->well == before);
    }
    return cuts;
}

static void connections_that_are_cut_lose_and_double_nothing(void **state)
{
    (void)state;
    pair p;
    static storm s;
    static crew crews[STORM_LOOPS];
    hx_error_text error;
    const char *url = getenv("HAPAX_TEST_POSTGRES"); // NOLINT(concurrency-mt-unsafe)
    pair_begin(&p);
    s.store = hx_store_open(hx_slice_of(url), &p.here.options, error);
    assert_non_null(s.store);
    s.running = STORM_LOOPS;
    for (int i = 0; i < STORM_LOOPS; i++) {
        crews[i] = (crew){.storm = &s, .loop = hx_loop_new()};
        hx_store_attach(s.store, crews[i].loop);
    }
    for (int i = 0; i < STORM_LOOPS; i++) assert_int_equal(pthread_create(&crews[i].thread, NULL, work, &crews[i]), 0);
    int64_t cuts = cut_connections(p.conn, &s);
    for (int i = 0; i < STORM_LOOPS; i++) pthread_join(crews[i].thread, NULL);
    /* Abandoned claims are released. */
    while (ask(p.conn, "SELECT count(*) FROM hapax.operations WHERE state = 1") > 0)
        for (int i = 0; i < STORM_LOOPS; i++) hx_loop_turn(crews[i].loop, 10);
    hx_store_close(&s.store);
    for (unsigned i = 0; i < STORM_OPERATIONS; i++) {
        hx_record found;
        hx_state now = peek(&p.here, op_of(i), &found);
        assert_true(s.effects[i] <= 1);
        assert_int_equal(s.effects[i], s.acknowledged[i] > 0);
        assert_int_equal(now, s.acknowledged[i] > 0 ? HX_COMPLETED : HX_ABSENT);
        assert_int_equal(now == HX_COMPLETED ? found.epoch : 0, s.acknowledged[i]);
    }
    assert_true(cuts > 0 && s.well > 0);
    for (int i = 0; i < STORM_LOOPS; i++) hx_loop_free(&crews[i].loop);
    pair_end(&p);
}

int main(int argc, char **argv)
{
    hx_error_text error;
    pq = hx_libpq_load(error);
    if (!pq) hx_fatal(1, "%s", error);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_watch_is_rechecked),
        cmocka_unit_test(a_watch_is_rechecked_however_many_come),
        cmocka_unit_test(texts_that_are_too_long_are_cut),
        cmocka_unit_test(upkeep_that_fails_is_not_repeated_in_each_round),
        cmocka_unit_test(forgetting_waits_for_no_lock),
        cmocka_unit_test(an_outcome_of_a_locked_row_ends_when_it_is_written),
        cmocka_unit_test(what_was_moved_twice_is_there_once),
        cmocka_unit_test(epochs_are_raised_while_no_claim_draws_one),
        cmocka_unit_test(rules_that_one_takes_stock_of_stay_so_when_another_enforces_its_own),
        cmocka_unit_test(large_answers_come_one_after_the_other),
        cmocka_unit_test(routes_need_not_be_text),
        cmocka_unit_test(what_fails_at_its_commit_fails_alone),
        cmocka_unit_test(what_is_refused_goes_before_later_calls_on_its_operation),
        cmocka_unit_test(a_server_that_refuses_all_is_not_hammered),
        cmocka_unit_test(a_claim_that_comes_too_late_is_taken_back),
        cmocka_unit_test(a_claim_that_comes_too_late_is_not_made),
        cmocka_unit_test(a_claim_that_is_in_doubt_on_a_full_disk_is_taken_back),
        cmocka_unit_test(a_claim_is_not_made_twice),
        cmocka_unit_test(the_past_is_kept_for_a_month),
        cmocka_unit_test(a_server_whose_clock_jumps_is_followed),
        cmocka_unit_test(a_store_that_cannot_be_read_as_it_must_is_not_opened),
        cmocka_unit_test(connections_that_are_cut_lose_and_double_nothing),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("postgres", tests, NULL, NULL);
}
