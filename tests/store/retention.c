/* SPDX-License-Identifier: Apache-2.0 */
/* A store at a constant rate stops growing: operations are executed and events are published and delivered, day after
 * day, with a sweep each time, and after the days that are kept neither the items nor the bytes become more, those of
 * the audit among them. */
#include "core/retry/retry_after.h"
#include "direct.h"
#include "events/engine.h"
#include "harness.h"
#include "store/audit/audit.h"
#include "store/journal/journal.h"

#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define KEPT_DAYS 3
#define DAYS 36
#define AUDIT_DAYS 6
#define EVENTS 150u /* a day */
#define OPERATIONS 100u
#define DATA_BYTES 2000u

static const char *backend;
static bench b;
static hx_engine *engine;

typedef struct {
    hx_task task;
    hx_sending *sending;
} answering;

/* Each event is sent once a day, and answered before the next one begins. */
static answering answers[EVENTS];
static unsigned sent;

static void answer(hx_task *task)
{
    hx_sending *sending = HX_OWNER(task, answering, task)->sending;
    sending->result =
        (hx_attempt_result){.status = 200, .ms = 1, .retry_after = HX_RETRY_AFTER_NONE, .response = HX_LIT("taken")};
    sending->done(sending);
}

static void send_it(void *context, hx_sending *sending)
{
    (void)context;
    answering *a = &answers[sent++ % EVENTS];
    *a = (answering){.task = {.run = answer}, .sending = sending};
    hx_loop_defer(b.loop, &a->task);
}

static bool is_done;

static void stopped(void *context)
{
    (void)context;
    is_done = true;
}

static void changed(hx_endpoint_change *change)
{
    (void)change;
    is_done = true;
}

static void published(hx_publish *publish)
{
    (void)publish;
    is_done = true;
}

static void turn_until_done(void)
{
    while (!is_done) hx_loop_turn(b.loop, 10);
    is_done = false;
}

static void start_engine(void)
{
    hx_engine_needs needs = {.loop = b.loop,
                             .store = b.store,
                             .endpoints = {.send = send_it},
                             .applications = {.send = send_it},
                             .settings = {.attempts_max = 64,
                                          .retention = KEPT_DAYS * HX_DAY,
                                          .dead_retention = KEPT_DAYS * HX_DAY,
                                          .pause_max = HX_DAY,
                                          .payload_bytes_max = 256u << 10,
                                          .response_bytes_max = 4096}};
    hx_endpoint_change change = {.arena = &b.arena, .act = HX_ENDPOINT_CREATE, .done = changed};
    engine = hx_engine_new(&needs);
    hx_engine_start(engine);
    change.endpoint = hx_endpoint_new;
    change.endpoint.url = HX_LIT("http://receiver/");
    hx_engine_change_endpoint(engine, &change);
    turn_until_done();
    assert_int_equal(change.result, HX_CHANGE_DONE);
}

static void publish_one(void)
{
    static char data[DATA_BYTES + 1];
    hx_arena arena = {0};
    hx_publish publish;
    do { /* until the engine has read its endpoints */
        hx_event event = {.id = HX_EMPTY,
                          .tenant = HX_EMPTY,
                          .type = HX_LIT("t"),
                          .source = HX_EMPTY,
                          .correlation_id = HX_EMPTY,
                          .content_type = HX_EMPTY,
                          .payload_hash = HX_EMPTY};
        memset(data, 'x', DATA_BYTES);
        data[0] = data[DATA_BYTES - 1] = '"';
        event.data = hx_slice_of(data);
        publish = (hx_publish){
            .arena = &arena, .events = &event, .count = 1, .principal = HX_EMPTY, .key = HX_EMPTY, .done = published};
        hx_engine_publish(engine, &publish);
        turn_until_done();
    } while (publish.result == HX_PUBLISH_UNAVAILABLE);
    assert_int_equal(publish.result, HX_PUBLISHED);
    hx_arena_free(&arena);
}

static size_t items(void)
{
    hx_item_page page = {.items_max = HX_ITEM_PAGE_MAX};
    size_t count = 0;
    do {
        waited w;
        wait_start(&b, &w);
        hx_store_scan(b.store, &w.call, &page);
        wait_for(&b, &w);
        assert_int_equal(w.call.result, HX_STORE_OK);
        count += page.count;
        if (page.more) page.after = page.items[page.count - 1];
    } while (page.more);
    return count;
}

/* What a server does by itself within minutes. */
static void vacuum(void)
{
    hx_error_text error;
    if (strcmp(backend, "postgres") != 0) return;
    pq = hx_libpq_load(error);
    assert_non_null(pq);
    PGconn *conn = connect_directly();
    do_sql(conn, "VACUUM");
    pq->finish(conn);
}

/* The journal works on its files in the background: waits until it has caught up with the sweeps. */
static void catch_up(void)
{
    if (strcmp(backend, "journal") != 0) return;
    hx_background *k = &((hx_journal *)b.store)->background;
    for (bool is_busy = true; is_busy;) {
        pthread_mutex_lock(&k->mutex);
        is_busy = k->first != NULL;
        pthread_mutex_unlock(&k->mutex);
        if (is_busy) hx_loop_turn(b.loop, 1);
    }
}

static void execute(unsigned number)
{
    hx_record r = record_of(number);
    assert_int_equal(claim(&b, &r, 0, NULL), HX_STORE_OK);
    r.answer = (hx_answer){201, true, HX_LIT("A: b\r\n"), HX_LIT("an answer")};
    r.expires_at = test_now + HX_DAY;
    assert_int_equal(settle(&b, &r, HX_COMPLETED, NULL), HX_STORE_OK);
}

static uint64_t rows_of_first_day;

static void count_row(void *context, const hx_record *record, uint64_t sequence)
{
    const hx_ms *first_day = context;
    (void)sequence;
    if (record->changed_at < *first_day + HX_DAY) rows_of_first_day++;
}

static void problem(void *context, const char *sentence)
{
    (void)context;
    fail_msg("%s", sentence);
}

/* What is kept of the audit can be verified, begins no later than it must, and goes on after a restart. */
static void check_audit(hx_ms first_day)
{
    char url[128];
    hx_error_text error;
    hx_audit audit = {.row = count_row, .problem = problem, .context = &first_day};
    bool is_sqlite = strcmp(backend, "sqlite") == 0;
    if (strcmp(backend, "journal") != 0 && !is_sqlite) return;
    (void)snprintf(url, sizeof url, "%s:%s%s", backend, b.directory, is_sqlite ? "/store.db" : "");
    if (!hx_audit_read(hx_slice_of(url), &audit, error)) fail_msg("%s", error);
    assert_int_equal(rows_of_first_day, 0);
    assert_true(audit.kept_from > 1 && audit.rows >= 2 * OPERATIONS * (AUDIT_DAYS - 1));
    assert_true(test_now - audit.first_at >= (AUDIT_DAYS - 1) * HX_DAY);
    bench_restart(&b);
    if (!hx_audit_read(hx_slice_of(url), &audit, error)) fail_msg("%s", error);
}

static void a_constant_rate_stops_growing(void **state)
{
    (void)state;
    size_t count[DAYS];
    uint64_t bytes[DAYS];
    hx_ms first_day = test_now;
    bench_begin(&b, backend, (hx_store_options){.segment_bytes = 256u << 10, .audit_retention = AUDIT_DAYS * HX_DAY});
    start_engine();
    for (unsigned day = 0; day < DAYS; day++) {
        hx_store_counts counts;
        uint64_t before = hx_engine_count(engine)->delivered;
        for (unsigned i = 0; i < EVENTS; i++) publish_one();
        for (unsigned i = 0; i < OPERATIONS; i++) execute(i);
        while (hx_engine_count(engine)->delivered < before + EVENTS) hx_loop_turn(b.loop, 10);
        test_now += HX_DAY;
        while (sweep(&b) > 0) {}
        catch_up();
        vacuum();
        hx_store_count(b.store, &counts);
        count[day] = items();
        bytes[day] = counts.bytes;
        print_message("day %2u: %5zu items, %9llu bytes\n", day + 1, count[day], (unsigned long long)bytes[day]);
    }
    hx_engine_stop(engine, stopped, NULL);
    turn_until_done();
    hx_engine_free(&engine);
    check_audit(first_day);
    bench_end(&b);
    assert_in_range(count[0], 2 * EVENTS, 4 * EVENTS); /* an event and a delivery each */
    uint64_t most = 0;
    for (unsigned day = KEPT_DAYS; day < DAYS; day++) {
        assert_int_equal(count[day], count[KEPT_DAYS]);
        if (day < DAYS / 2 && bytes[day] > most) most = bytes[day];
        if (day >= DAYS / 2) assert_in_range(bytes[day], 0, most + most / 5); /* SQLite's log comes and goes */
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_constant_rate_stops_growing)};
    backend = argc > 1 ? argv[1] : "journal";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
