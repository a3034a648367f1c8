/* SPDX-License-Identifier: Apache-2.0 */
/* The store in one SQLite file, for command lines and C programs: any number of processes at once. SQLite's calls block
 * and its commits wait for the disk, so a thread of the store's own makes them (writer.c), all calls that wait in one
 * transaction. This file is what happens on the callers' threads.
 *
 * A peek reads at once, on a connection of the loop's own: readers of the log neither block nor are blocked, and what
 * they see has been synced. Lists and histories are read in the same way, in small steps, and so are items.
 *
 * Ownership is shared: a dead process looks like a slow one, so the claim of another process ends with its lease and
 * not before. */
#include "store/sqlite/file.h"
#include "store/sqlite/sqlite.h"

#include "base/check.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LIST_STEP 256
#define HISTORY_STEP 4096

/* Starts with the reader that this thread had last, which is most likely free. NULL: all are taken. */
static hx_sqlite_reader *take_reader(hx_sqlite *s)
{
    static _Thread_local unsigned last;
    unsigned count = atomic_load_explicit(&s->reader_count, memory_order_acquire);
    for (unsigned i = 0; i < count; i++) {
        unsigned at = (last + i) % count;
        if (atomic_flag_test_and_set_explicit(&s->readers[at].taken, memory_order_acquire)) continue;
        last = at;
        return &s->readers[at];
    }
    return NULL;
}

static void give_back(hx_sqlite_reader *reader)
{
    atomic_flag_clear_explicit(&reader->taken, memory_order_release);
}

static void sqlite_attach(hx_store *store, hx_loop *loop)
{
    hx_sqlite *s = (hx_sqlite *)store;
    int rc;
    (void)loop;
    pthread_mutex_lock(&s->attaching);
    unsigned count = s->reader_count;
    sqlite3 *db = count < HX_SQLITE_READERS_MAX ? hx_sqlite_file_connect(s->path, true, &rc) : NULL;
    if (db) {
        (void)sqlite3_busy_handler(db, NULL, NULL); /* a loop doesn't wait */
        s->readers[count].rows.db = db;
        atomic_flag_clear(&s->readers[count].taken);
        atomic_store_explicit(&s->reader_count, count + 1, memory_order_release);
    } else if (count < HX_SQLITE_READERS_MAX) {
        hx_log_begin(HX_EVENT_sqlite_connection_failed);
        hx_log_text("store", s->path);
        hx_log_text("sqlite", sqlite3_errstr(rc));
        hx_log_end();
    }
    pthread_mutex_unlock(&s->attaching);
}

static void drop_shown(void *what)
{
    hx_shared_record *shown = what;
    hx_shared_record_drop(&shown);
}

/* A record whose bytes are damaged counts as unknown. */
static hx_record lost(const hx_op *op, uint64_t epoch)
{
    hx_record record = hx_record_unreadable(op, epoch);
    record.reason = HX_LIT("damaged");
    return record;
}

/* Decodes a record, in the state that it has by now. */
static void show(hx_slice bytes, const hx_op *op, uint64_t epoch, hx_state state, hx_ms lease_until, hx_record *out)
{
    if (bytes.len > 0 && hx_record_decode(bytes, out) == HX_RECORD_OK) {
        out->state = state;
        if (state == HX_PROCESSING) out->lease_until = lease_until;
        if (state == HX_EXPIRED) out->answer = (hx_answer){0};
        return;
    }
    hx_log_begin(HX_EVENT_record_unreadable);
    hx_log_hex("operation", op->bytes, sizeof op->bytes);
    hx_log_end();
    *out = lost(op, epoch);
}

/* Takes the call's cancellation out of the queue, if it is still there: the call's memory ends with its completion. */
static void take_back_cancel(hx_sqlite *s, const hx_store_call *call)
{
    pthread_mutex_lock(&s->mutex);
    hx_store_call *before = NULL;
    for (hx_store_call *c = s->cancels; c; before = c, c = c->own.sqlite.next_cancel) {
        if (c != call) continue;
        hx_store_call *next = c->own.sqlite.next_cancel;
        if (before)
            before->own.sqlite.next_cancel = next;
        else
            s->cancels = next;
        if (s->last_cancel == call) s->last_cancel = before;
        break;
    }
    pthread_mutex_unlock(&s->mutex);
}

static void free_read(void *what)
{
    hx_arena_free(what);
}

static void done(hx_task *task)
{
    hx_store_call *call = HX_OWNER(task, hx_store_call, own.task);
    hx_shared_record *shown = call->own.shown;
    if (call->own.sqlite.is_cancelled) take_back_cancel(call->own.sqlite.store, call);
    if (call->own.sqlite.read.blocks || call->own.sqlite.read.large) { /* the writer has filled it for this call */
        hx_arena *read = hx_arena_alloc(call->arena, sizeof *read);
        *read = call->own.sqlite.read;
        hx_arena_at_end(call->arena, free_read, read);
    }
    call->own.sqlite.store = NULL; /* it can't be cancelled any more */
    if (shown) {
        show((hx_slice){shown->bytes, shown->len}, &call->op, shown->epoch, shown->state, shown->lease_until,
             &call->found);
        hx_arena_at_end(call->arena, drop_shown, shown); /* all waiters share one copy */
    } else {
        call->found.op = call->op;
    }
    call->done(call);
}

void hx_sqlite_post(hx_store_call *call, hx_store_result result, hx_shared_record *shown)
{
    if (call->verb == HX_STORE_COMMIT) call->own.sqlite.store->item_commits--;
    call->result = result;
    call->own.shown = shown ? hx_shared_record_hold(shown) : NULL;
    call->own.task.run = done;
    hx_loop_post(call->loop, &call->own.task);
}

/* Lists and histories */

static hx_op rank_op(uint64_t rank)
{
    hx_op op = {0};
    for (size_t i = 0; i < sizeof rank; i++) op.bytes[i] = (uint8_t)(rank >> (56 - 8 * i));
    return op;
}

static uint64_t rank_of(const hx_op *op)
{
    uint64_t rank = 0;
    for (size_t i = 0; i < sizeof rank; i++) rank = rank << 8 | op->bytes[i];
    return rank;
}

static void report_read(int rc)
{
    hx_log_begin(HX_EVENT_sqlite_read_failed);
    hx_log_text("sqlite", sqlite3_errstr(rc));
    hx_log_end();
}

static void page_done(hx_store_call *call, int rc)
{
    bool ok = rc == SQLITE_OK;
    if (!ok) report_read(rc);
    call->result = ok ? HX_STORE_OK : HX_STORE_UNAVAILABLE;
    call->own.sqlite.store = NULL;
    call->done(call);
}

/* Reads in the order of the operations' ids, so that a cursor keeps its meaning whatever changes. True: go on. */
static bool list_step(const hx_sqlite *s, hx_sqlite_tables *rows, hx_store_call *call, int *rc)
{
    hx_store_page *page = call->page;
    hx_op from = rank_op(page->cursor);
    sqlite3_stmt *q;
    hx_record record;
    int seen = 0;
    *rc = hx_sqlite_tables_prepare(rows, HX_SQL_LIST, &q);
    if (*rc != SQLITE_OK) return false;
    (void)sqlite3_bind_blob(q, 1, from.bytes, (int)sizeof from.bytes, SQLITE_STATIC);
    (void)sqlite3_bind_int(q, 2, LIST_STEP);
    uint64_t last = page->cursor;
    while (!page->more && (*rc = sqlite3_step(q)) == SQLITE_ROW) {
        (void)hx_sqlite_tables_listed(q, s->store.facts.now(), &record);
        seen++;
        last = rank_of(&record.op);
        if (record.state == HX_ABSENT || !hx_store_page_wants(page, &record)) continue;
        hx_store_page_offer(page, call->arena, &record, last);
    }
    hx_sqlite_tables_reset(q);
    if (*rc == SQLITE_DONE || *rc == SQLITE_ROW) *rc = SQLITE_OK;
    if (page->more || *rc != SQLITE_OK) return false;
    bool is_last = seen < LIST_STEP || last == UINT64_MAX;
    page->cursor = is_last ? 0 : last + 1;
    return !is_last;
}

/* Reads the history from its front, HISTORY_STEP rows at a time. True: go on. */
static bool history_step(hx_sqlite_tables *rows, hx_store_call *call, int *rc)
{
    hx_store_page *page = call->page;
    uint64_t *at = &call->own.sqlite.history_at, *end = &call->own.sqlite.history_end;
    sqlite3_stmt *q;
    if (*end == 0) {
        *rc = hx_sqlite_tables_prepare(rows, HX_SQL_HISTORY_BOUNDS, &q);
        if (*rc != SQLITE_OK) return false;
        *rc = sqlite3_step(q);
        uint64_t first = *rc == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(q, 0) : 0;
        *end = *rc == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(q, 1) + 1 : 0;
        hx_sqlite_tables_reset(q);
        if (*rc != SQLITE_ROW) return false;
        *at = page->cursor > first ? page->cursor : first;
        page->cursor = 0;
    }
    *rc = hx_sqlite_tables_prepare(rows, HX_SQL_HISTORY, &q);
    if (*rc != SQLITE_OK) return false;
    (void)sqlite3_bind_int64(q, 1, (sqlite3_int64)*at);
    (void)sqlite3_bind_int64(q, 2, (sqlite3_int64)(*at + HISTORY_STEP - 1));
    if (!page->has_key) (void)sqlite3_bind_blob(q, 3, call->op.bytes, (int)sizeof call->op.bytes, SQLITE_STATIC);
    while (!page->more && (*rc = sqlite3_step(q)) == SQLITE_ROW) {
        hx_record record;
        size_t head_len, answer_len;
        hx_slice head = {sqlite3_column_blob(q, 1), (size_t)sqlite3_column_bytes(q, 1)};
        if (head.len == 0 || hx_record_decode_head(head, &record, &head_len, &answer_len) != HX_RECORD_OK)
            record = lost(&call->op, 0);
        if (!hx_store_history_wants(call, &record)) continue;
        hx_store_page_offer(page, call->arena, &record, (uint64_t)sqlite3_column_int64(q, 0));
    }
    hx_sqlite_tables_reset(q);
    if (*rc == SQLITE_DONE || *rc == SQLITE_ROW) *rc = SQLITE_OK;
    *at += HISTORY_STEP;
    return !page->more && *rc == SQLITE_OK && *at < *end;
}

static void page_step(hx_task *task)
{
    hx_store_call *call = HX_OWNER(task, hx_store_call, own.task);
    hx_sqlite *s = call->own.sqlite.store;
    hx_sqlite_reader *reader = take_reader(s);
    int rc = s->reader_count > 0 ? SQLITE_OK : SQLITE_CANTOPEN;
    bool goes_on = rc == SQLITE_OK; /* all readers are taken: try again */
    if (reader) {
        goes_on = call->verb == HX_STORE_LIST ? list_step(s, &reader->rows, call, &rc)
                                              : history_step(&reader->rows, call, &rc);
        give_back(reader);
    }
    if (goes_on || (rc & 0xff) == SQLITE_BUSY)
        hx_loop_post(call->loop, &call->own.task); /* after what else the loop has to do */
    else
        page_done(call, rc);
}

/* Reads items at once, unless commits are under way: those of this loop take effect before what it asks for later.
 * False: the writer has to do it. */
static bool read_items(hx_sqlite *s, hx_store_call *call)
{
    hx_sqlite_reader *reader = s->item_commits == 0 ? take_reader(s) : NULL;
    if (!reader) return false;
    int rc = hx_sqlite_tables_run(&reader->rows, HX_SQL_BEGIN_READ);
    if (rc == SQLITE_OK) {
        rc = hx_sqlite_items_read(&reader->rows, call, call->arena, s->store.facts.now());
        (void)hx_sqlite_tables_run(&reader->rows, HX_SQL_ROLLBACK);
    }
    give_back(reader);
    if (rc == SQLITE_OK) hx_sqlite_post(call, HX_STORE_OK, NULL);
    return rc == SQLITE_OK;
}

static void sqlite_submit(hx_store *store, hx_store_call *call)
{
    hx_sqlite *s = (hx_sqlite *)store;
    call->own.shown = NULL;
    call->own.sqlite = (hx_sqlite_call){.store = s};
    if (call->verb == HX_STORE_LIST || call->verb == HX_STORE_HISTORY) {
        call->own.task.run = page_step;
        hx_loop_post(call->loop, &call->own.task);
        return;
    }
    if ((call->verb == HX_STORE_GET || call->verb == HX_STORE_SCAN) && read_items(s, call)) return;
    if (call->verb == HX_STORE_COMMIT) s->item_commits++;
    pthread_mutex_lock(&s->mutex);
    call->own.sqlite.sequence = ++s->sequence;
    hx_list_append(&s->calls, &call->own.link);
    if (s->is_asleep) pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->mutex);
}

/* A cancellation takes effect after the calls that were made before it. */
static void sqlite_cancel(hx_store *store, hx_store_call *call)
{
    hx_sqlite *s = (hx_sqlite *)store;
    if (!call->own.sqlite.store || call->own.sqlite.is_cancelled) return;
    pthread_mutex_lock(&s->mutex);
    call->own.sqlite.is_cancelled = true;
    call->own.sqlite.cancel_sequence = ++s->sequence;
    call->own.sqlite.next_cancel = NULL;
    if (s->cancels)
        s->last_cancel->own.sqlite.next_cancel = call;
    else
        s->cancels = call;
    s->last_cancel = call;
    if (s->is_asleep) pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->mutex);
}

static hx_peek sqlite_peek(hx_store *store, const hx_op *op, hx_arena *arena, size_t whole_max, hx_record *found)
{
    (void)whole_max;
    hx_sqlite *s = (hx_sqlite *)store;
    hx_sqlite_reader *reader = take_reader(s);
    if (!reader) return HX_PEEK_ASK;
    hx_sqlite_row row;
    int rc = hx_sqlite_tables_find(&reader->rows, op, store->facts.now(), &row);
    hx_peek result = rc != SQLITE_OK                               ? HX_PEEK_ASK
                     : !row.there || row.record.state == HX_ABSENT ? HX_PEEK_ABSENT
                                                                   : HX_PEEK_FOUND;
    if (result == HX_PEEK_FOUND) {
        size_t len = hx_sqlite_row_bytes(&row);
        char *bytes = hx_arena_alloc(arena, len > 0 ? len : 1);
        hx_sqlite_row_copy(&row, bytes);
        show((hx_slice){bytes, len}, op, row.record.epoch, row.record.state, row.lease_until, found);
    }
    hx_sqlite_tables_release(&reader->rows);
    give_back(reader);
    return result;
}

/* From any thread, on the connection `aside` */

static void wal_bytes(const hx_sqlite *s, uint64_t *bytes)
{
    char *path = NULL;
    struct stat st;
    if (asprintf(&path, "%s-wal", s->path) > 0 && stat(path, &st) == 0) *bytes += (uint64_t)st.st_size;
    free(path);
}

static void sqlite_count(hx_store *store, hx_store_counts *out)
{
    hx_sqlite *s = (hx_sqlite *)store;
    hx_sqlite_tables_totals totals;
    hx_sqlite_tables_size size;
    pthread_mutex_lock(&s->aside_mutex);
    hx_store_counts *c = &s->last_counts;
    if (hx_sqlite_tables_count(&s->aside, &totals) == SQLITE_OK) {
        c->processing = totals.processing;
        c->unknown = totals.unknown;
        c->live = totals.unknown + totals.ended;
    }
    if (hx_sqlite_tables_pages(&s->aside, &size) == SQLITE_OK) {
        c->bytes = size.pages * size.page_bytes;
        wal_bytes(s, &c->bytes);
    }
    *out = *c;
    pthread_mutex_unlock(&s->aside_mutex);
    out->watchers = s->waiters.count;
    out->commits = s->commits;
    out->stale_writes = s->stale_writes;
    out->cleaned = s->cleaned;
    out->unretained = s->unretained;
}

static void sqlite_rules(hx_store *store, hx_arena *arena, hx_store_rules *out)
{
    hx_sqlite *s = (hx_sqlite *)store;
    sqlite3_stmt *q;
    *out = (hx_store_rules){0};
    pthread_mutex_lock(&s->aside_mutex);
    int rc = hx_sqlite_tables_prepare(&s->aside, HX_SQL_LIVE, &q);
    while (rc == SQLITE_OK && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        hx_slice route = {(const char *)sqlite3_column_text(q, 0), (size_t)sqlite3_column_bytes(q, 0)};
        hx_store_rules_add(out, arena, route, (uint32_t)sqlite3_column_int64(q, 1),
                           (uint64_t)sqlite3_column_int64(q, 2));
        rc = SQLITE_OK;
    }
    if (q) hx_sqlite_tables_reset(q);
    pthread_mutex_unlock(&s->aside_mutex);
    if (rc == SQLITE_DONE) return;
    report_read(rc);
    out->others = 1; /* unknown must not look like none */
}

static uint64_t sqlite_live_at_most(hx_store *store, hx_slice route)
{
    hx_sqlite *s = (hx_sqlite *)store;
    sqlite3_stmt *q;
    uint64_t live = 1; /* if it can't be read */
    pthread_mutex_lock(&s->aside_mutex);
    if (hx_sqlite_tables_prepare(&s->aside, HX_SQL_LIVE_ON, &q) == SQLITE_OK) {
        (void)sqlite3_bind_text64(q, 1, route.ptr, route.len, SQLITE_STATIC, SQLITE_UTF8);
        if (sqlite3_step(q) == SQLITE_ROW) live = (uint64_t)sqlite3_column_int64(q, 0);
        hx_sqlite_tables_reset(q);
    }
    pthread_mutex_unlock(&s->aside_mutex);
    return live;
}

static bool sqlite_limit(hx_store *store, const hx_store_options *options, hx_error_text error)
{
    hx_sqlite *s = (hx_sqlite *)store;
    if (options->bytes_max > 0 && options->bytes_max < HX_SQLITE_BYTES_LEAST)
        return hx_fail(error, "store_max must be at least 1 MiB for a store in SQLite");
    s->bytes_max = options->bytes_max;
    atomic_store(&s->audit_retention, options->audit_retention);
    hx_waiters_limit(&s->waiters, options);
    return true;
}

static bool sqlite_last_epoch(hx_store *store, uint64_t *epoch, hx_error_text error)
{
    hx_sqlite *s = (hx_sqlite *)store;
    pthread_mutex_lock(&s->aside_mutex);
    int rc = hx_sqlite_tables_epoch(&s->aside, epoch);
    pthread_mutex_unlock(&s->aside_mutex);
    return rc == SQLITE_OK || hx_fail(error, "%s can't be read: %s", s->path, sqlite3_errstr(rc));
}

const hx_store_ops hx_sqlite_ops = {.attach = sqlite_attach,
                                    .submit = sqlite_submit,
                                    .cancel = sqlite_cancel,
                                    .peek = sqlite_peek,
                                    .count = sqlite_count,
                                    .close = hx_sqlite_close,
                                    .rules = sqlite_rules,
                                    .live_at_most = sqlite_live_at_most,
                                    .limit = sqlite_limit,
                                    .last_epoch = sqlite_last_epoch};
