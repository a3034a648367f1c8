/* SPDX-License-Identifier: Apache-2.0 */
/* The tables, version 4. They may lie in a file of their own or in a program's database, so each has our name in it and
 * nothing is kept in the file's header.
 *
 *     hapax_store       one row: the format, the secret, the last epoch that was drawn, and the clock: by how much the
 *                       store's time is ahead of the time since the boot of that name. The version of an item is an
 *                       epoch, too: so it grows though items are removed, and beyond those of a copy of the file
 *     hapax_operations  the newest record of each operation. `head` is the record as core/operation/record.c writes it,
 *                       but that lease_until is right in its own column only. due: when a sweep has to look at it;
 *                       NULL: never. lifetime and tombstone: of an outcome that the application itself will write
 *     hapax_history     every version of every record, without its answer, oldest first: the audit
 *     hapax_links       the chain of hashes over it (links.h). Not in version 3
 *     hapax_idempotency_keys, hapax_idempotency_audit, hapax_inbox_events: views (views.h)
 *     hapax_live        how many operations there are under which rules (route '': under no named route)
 *     hapax_rules       which version of a route's rules is in force, where one was enforced
 *     hapax_retired     rules that a process takes stock of, and until when
 *     hapax_items       items (store/items.h). queue is NULL for an item that is in none, expires_at is 0 for one that
 *                       never expires. meta is TEXT, which json_extract reads, unless it is no UTF-8 or has a NUL: then
 *                       it is a BLOB. Keys and queues are BLOBs, which SQLite orders by their bytes in every database.
 *                       Not in version 2
 *
 * A claim appends to hapax_operations and hapax_history and changes one leaf of each index, so that many claims in one
 * commit write few pages. For that reason the history has no index; it is read from front to back. */
#include "store/sqlite/tables.h"
#include "store/sqlite/views.h"

#include "base/check.h"
#include "base/log.h"
#include "base/rand.h"
#include "core/operation/policy.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EPOCH_ZERO_MS ((hx_ms)1577836800000) /* 2020 */
#define EPOCHS_A_MS 64

/* Triggers count, so that the counts are right whatever changes a row, an operator's shell included. */
#define ONE_MORE                                                                                                       \
    "INSERT INTO hapax_live (route, rule_version, processing, unknown, ended)"                                         \
    " VALUES (iif(new.rule_version < 2147483648, '', new.route), new.rule_version, new.state = 1, new.state = 4,"      \
    " new.state NOT IN (1, 4)) ON CONFLICT DO UPDATE SET processing = processing + excluded.processing,"               \
    " unknown = unknown + excluded.unknown, ended = ended + excluded.ended;"
#define ONE_LESS                                                                                                       \
    "UPDATE hapax_live SET processing = processing - (old.state = 1), unknown = unknown - (old.state = 4),"            \
    " ended = ended - (old.state NOT IN (1, 4))"                                                                       \
    " WHERE route = iif(old.rule_version < 2147483648, '', old.route) AND rule_version = old.rule_version;"

/* A table with rowids: large bodies go to pages of their own, and the rows between them stay close together. */
#define ITEMS                                                                                                          \
    "CREATE TABLE hapax_items (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, version INTEGER NOT NULL,"            \
    " queue BLOB, due INTEGER NOT NULL, expires_at INTEGER NOT NULL, meta NOT NULL, body BLOB NOT NULL);"              \
    "CREATE INDEX hapax_items_queue ON hapax_items (queue, due, key) WHERE queue IS NOT NULL;"                         \
    "CREATE INDEX hapax_items_expiring ON hapax_items (expires_at) WHERE expires_at > 0;"

#define LINKS                                                                                                          \
    "CREATE TABLE hapax_links (number INTEGER PRIMARY KEY, first_id INTEGER NOT NULL, last_id INTEGER NOT NULL,"       \
    " at INTEGER NOT NULL, kept INTEGER NOT NULL, previous BLOB NOT NULL, hash BLOB NOT NULL);"

static const char schema[] =
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
    " " ONE_MORE " END;" ITEMS LINKS;

static const char *const texts[] = {
#define X(name, sql) [HX_SQL_##name] = (sql),
    HX_ROWS_STATEMENTS(X)
#undef X
};

void hx_sqlite_tables_end(hx_sqlite_tables *rows)
{
    for (size_t i = 0; i < HX_SQL_COUNT_OF; i++) {
        (void)sqlite3_finalize(rows->statements[i]);
        rows->statements[i] = NULL;
    }
}

int hx_sqlite_tables_prepare(hx_sqlite_tables *rows, hx_sql which, sqlite3_stmt **out)
{
    int rc = SQLITE_OK;
    if (!rows->statements[which])
        rc = sqlite3_prepare_v3(rows->db, texts[which], -1, SQLITE_PREPARE_PERSISTENT, &rows->statements[which], NULL);
    *out = rows->statements[which];
    return rc;
}

void hx_sqlite_tables_reset(sqlite3_stmt *statement)
{
    (void)sqlite3_reset(statement);
    (void)sqlite3_clear_bindings(statement);
}

int hx_sqlite_tables_finish(sqlite3_stmt *statement)
{
    int rc = sqlite3_step(statement);
    hx_sqlite_tables_reset(statement);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

int hx_sqlite_tables_run(hx_sqlite_tables *rows, hx_sql which)
{
    sqlite3_stmt *s;
    int rc = hx_sqlite_tables_prepare(rows, which, &s);
    return rc == SQLITE_OK ? hx_sqlite_tables_finish(s) : rc;
}

static void bind_u64(sqlite3_stmt *s, int at, uint64_t value)
{
    (void)sqlite3_bind_int64(s, at, (sqlite3_int64)value);
}

void hx_sqlite_bind_bytes(sqlite3_stmt *s, int at, hx_slice bytes)
{
    if (bytes.len == 0)
        (void)sqlite3_bind_zeroblob(s, at, 0);
    else
        (void)sqlite3_bind_blob64(s, at, bytes.ptr, bytes.len, SQLITE_STATIC);
}

void hx_sqlite_bind_text(sqlite3_stmt *s, int at, hx_slice text)
{
    (void)sqlite3_bind_text64(s, at, text.len > 0 ? text.ptr : "", text.len, SQLITE_STATIC, SQLITE_UTF8);
}

static void bind_op(sqlite3_stmt *s, int at, const hx_op *op)
{
    (void)sqlite3_bind_blob(s, at, op->bytes, (int)sizeof op->bytes, SQLITE_STATIC);
}

hx_slice hx_sqlite_column_bytes(sqlite3_stmt *s, int at)
{
    const char *ptr = sqlite3_column_blob(s, at); /* SQLite wants this read before the length */
    size_t len = (size_t)sqlite3_column_bytes(s, at);
    return ptr ? (hx_slice){ptr, len} : HX_EMPTY;
}

/* One row of numbers. */
static int numbers(hx_sqlite_tables *rows, hx_sql which, int64_t *out, int count)
{
    sqlite3_stmt *s;
    int rc = hx_sqlite_tables_prepare(rows, which, &s);
    if (rc != SQLITE_OK) return rc;
    rc = sqlite3_step(s);
    for (int i = 0; i < count && rc == SQLITE_ROW; i++) out[i] = sqlite3_column_int64(s, i);
    hx_sqlite_tables_reset(s);
    if (rc == SQLITE_DONE) return SQLITE_CORRUPT; /* a table of ours that has lost its row */
    return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static int make_views(sqlite3 *db)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof hx_sqlite_views / sizeof hx_sqlite_views[0]; i++)
        rc = sqlite3_exec(db, hx_sqlite_views[i], NULL, NULL, NULL);
    return rc;
}

int hx_sqlite_tables_create(sqlite3 *db, const uint8_t *secret)
{
    int rc = sqlite3_exec(db, schema, NULL, NULL, NULL);
    if (rc == SQLITE_OK) rc = make_views(db);
    if (rc != SQLITE_OK) return rc;
    uint8_t drawn[32];
    if (!secret) hx_rand_bytes(drawn, sizeof drawn);
    sqlite3_stmt *s = NULL;
    rc = sqlite3_prepare_v2(db, "INSERT INTO hapax_store (one, format, secret, epoch) VALUES (1, ?1, ?2, 0)", -1, &s,
                            NULL);
    if (rc != SQLITE_OK) return rc;
    (void)sqlite3_bind_int(s, 1, HX_SQLITE_FORMAT);
    (void)sqlite3_bind_blob(s, 2, secret ? secret : drawn, (int)sizeof drawn, SQLITE_STATIC);
    rc = hx_sqlite_tables_finish(s);
    (void)sqlite3_finalize(s);
    explicit_bzero(drawn, sizeof drawn);
    return rc;
}

int hx_sqlite_tables_upgrade(sqlite3 *db, int64_t format)
{
    int rc = format < 3 ? sqlite3_exec(db, ITEMS, NULL, NULL, NULL) : SQLITE_OK;
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, LINKS "UPDATE hapax_store SET format = 4", NULL, NULL, NULL);
    return rc == SQLITE_OK ? make_views(db) : rc;
}

static int has_table(sqlite3 *db, bool *out)
{
    sqlite3_stmt *s = NULL;
    *out = false;
    int rc = sqlite3_prepare_v2(db, "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'hapax_store'", -1, &s,
                                NULL);
    if (rc != SQLITE_OK) return rc;
    rc = sqlite3_step(s);
    *out = rc == SQLITE_ROW;
    (void)sqlite3_finalize(s);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int hx_sqlite_tables_identify(hx_sqlite_tables *rows, int64_t *format, uint8_t secret[32])
{
    bool there;
    *format = 0;
    int rc = has_table(rows->db, &there);
    if (rc != SQLITE_OK || !there) return rc;
    sqlite3_stmt *s;
    rc = hx_sqlite_tables_prepare(rows, HX_SQL_STORE, &s);
    if (rc != SQLITE_OK) return rc == SQLITE_ERROR ? SQLITE_CORRUPT : rc; /* the table is there, its columns are not */
    rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) {
        *format = sqlite3_column_int64(s, 0);
        hx_slice bytes = hx_sqlite_column_bytes(s, 1);
        bool whole = *format > 0 && bytes.len == 32;
        if (whole) memcpy(secret, bytes.ptr, bytes.len);
        rc = whole ? SQLITE_ROW : SQLITE_CORRUPT;
    } else if (rc == SQLITE_DONE) {
        rc = SQLITE_CORRUPT;
    }
    hx_sqlite_tables_reset(s);
    return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

/* A damaged record counts as unknown. */
static hx_record unreadable(const hx_op *op, uint64_t epoch)
{
    hx_log_begin(HX_EVENT_record_unreadable);
    hx_log_hex("operation", op->bytes, sizeof op->bytes);
    hx_log_end();
    hx_record record = hx_record_unreadable(op, epoch);
    record.reason = HX_LIT("damaged");
    return record;
}

static bool decode(hx_slice head, const hx_op *op, hx_record *out)
{
    size_t head_len, answer_len;
    return hx_record_decode_head(head, out, &head_len, &answer_len) == HX_RECORD_OK && head_len == head.len &&
           hx_op_eq(&out->op, op);
}

/* Sets the state that a record has by now, and what depends on it. */
static void age(hx_record *record, hx_ms lease_until, hx_ms now)
{
    record->state = hx_store_state_at(record, now);
    if (record->state == HX_PROCESSING) record->lease_until = lease_until;
    if (record->state == HX_EXPIRED) record->answer = (hx_answer){0};
}

int hx_sqlite_tables_find(hx_sqlite_tables *rows, const hx_op *op, hx_ms now, hx_sqlite_row *out)
{
    sqlite3_stmt *s;
    out->there = false;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_FIND, &s);
    if (rc != SQLITE_OK) return rc;
    hx_sqlite_tables_reset(s);
    bind_op(s, 1, op);
    rc = sqlite3_step(s);
    if (rc != SQLITE_ROW) {
        hx_sqlite_tables_reset(s);
        return rc == SQLITE_DONE ? SQLITE_OK : rc;
    }
    out->there = true;
    out->stored = (hx_state)sqlite3_column_int(s, 1);
    out->lease_until = (hx_ms)sqlite3_column_int64(s, 2);
    hx_slice head = hx_sqlite_column_bytes(s, 3);
    out->head_len = head.len <= sizeof out->head ? head.len : 0;
    memcpy(out->head, head.ptr, out->head_len);
    uint64_t epoch = (uint64_t)sqlite3_column_int64(s, 0);
    if (!decode((hx_slice){out->head, out->head_len}, op, &out->record)) {
        out->record = unreadable(op, epoch);
        out->head_len = 0;
    }
    out->record.epoch = epoch;
    age(&out->record, out->lease_until, now);
    out->headers = hx_sqlite_column_bytes(s, 4);
    out->body = hx_sqlite_column_bytes(s, 5);
    out->lifetime = (hx_ms)sqlite3_column_int64(s, 6);
    out->tombstone = (hx_ms)sqlite3_column_int64(s, 7);
    return SQLITE_OK;
}

void hx_sqlite_tables_release(hx_sqlite_tables *rows)
{
    if (rows->statements[HX_SQL_FIND]) hx_sqlite_tables_reset(rows->statements[HX_SQL_FIND]);
}

size_t hx_sqlite_row_bytes(const hx_sqlite_row *row)
{
    return row->head_len == 0 ? 0 : row->head_len + row->headers.len + row->body.len;
}

void hx_sqlite_row_copy(const hx_sqlite_row *row, char *out)
{
    if (row->head_len == 0) return;
    memcpy(out, row->head, row->head_len);
    memcpy(out + row->head_len, row->headers.ptr, row->headers.len);
    memcpy(out + row->head_len + row->headers.len, row->body.ptr, row->body.len);
}

static hx_ms second_up(hx_ms at)
{
    return at > INT64_MAX - HX_SECOND ? at : (at + HX_SECOND - 1) / HX_SECOND * HX_SECOND;
}

/* When a sweep has to change or remove the record; -1: never. */
static hx_ms due_of(const hx_record *record)
{
    switch (record->state) {
    case HX_PROCESSING: return record->lease_until > 0 ? record->lease_until : -1;
    case HX_COMPLETED:
    case HX_FAILED: return second_up(record->expires_at);
    case HX_EXPIRED: return second_up(record->tombstone_until);
    default: return -1;
    }
}

static hx_slice rule_route(hx_slice route, uint32_t version)
{
    return version & HX_RULE_NAMED ? route : HX_EMPTY;
}

static int remember(hx_sqlite_tables *rows, const hx_record *record)
{
    char head[HX_RECORD_HEAD_MAX];
    hx_buf buf = {.data = head, .cap = sizeof head, .max = sizeof head};
    hx_record bare = *record;
    bare.answer.headers = bare.answer.body = HX_EMPTY;
    hx_record_encode(&bare, &buf);
    sqlite3_stmt *s;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_REMEMBER, &s);
    if (rc != SQLITE_OK) return rc;
    bind_op(s, 1, &record->op);
    hx_sqlite_bind_bytes(s, 2, hx_buf_slice(&buf));
    return hx_sqlite_tables_finish(s);
}

int hx_sqlite_tables_become(hx_sqlite_tables *rows, const hx_sqlite_row *old, const hx_record *record)
{
    HX_CHECK(record->epoch > 0);
    char head[HX_RECORD_HEAD_MAX];
    hx_buf buf = {.data = head, .cap = sizeof head, .max = sizeof head};
    hx_record_encode(record, &buf);
    hx_sqlite_tables_release(rows);
    sqlite3_stmt *s;
    int rc = hx_sqlite_tables_prepare(rows, old->there ? HX_SQL_UPDATE : HX_SQL_INSERT, &s);
    if (rc != SQLITE_OK) return rc;
    hx_ms due = due_of(record);
    bind_op(s, 1, &record->op);
    bind_u64(s, 2, record->epoch);
    (void)sqlite3_bind_int(s, 3, (int)record->state);
    (void)sqlite3_bind_int64(s, 4, record->lease_until);
    if (due >= 0) (void)sqlite3_bind_int64(s, 5, due);
    bind_u64(s, 6, record->rule_version);
    hx_sqlite_bind_text(s, 7, record->route);
    hx_sqlite_bind_bytes(s, 8, hx_buf_slice(&buf));
    hx_sqlite_bind_bytes(s, 9, record->answer.headers);
    hx_sqlite_bind_bytes(s, 10, record->answer.body);
    (void)sqlite3_bind_int64(s, 11, record->lifetime);
    (void)sqlite3_bind_int64(s, 12, record->tombstone);
    rc = hx_sqlite_tables_finish(s);
    return rc == SQLITE_OK ? remember(rows, record) : rc;
}

int hx_sqlite_tables_remove(hx_sqlite_tables *rows, const hx_sqlite_row *old, const hx_record *last)
{
    hx_sqlite_tables_release(rows);
    sqlite3_stmt *s;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_DELETE, &s);
    if (rc != SQLITE_OK) return rc;
    bind_op(s, 1, &old->record.op);
    rc = hx_sqlite_tables_finish(s);
    return rc == SQLITE_OK && last ? remember(rows, last) : rc;
}

int hx_sqlite_tables_renew(hx_sqlite_tables *rows, const hx_op *op, hx_ms lease_until)
{
    hx_sqlite_tables_release(rows);
    sqlite3_stmt *s;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_RENEW, &s);
    if (rc != SQLITE_OK) return rc;
    bind_op(s, 1, op);
    (void)sqlite3_bind_int64(s, 2, lease_until);
    if (lease_until > 0) (void)sqlite3_bind_int64(s, 3, lease_until);
    return hx_sqlite_tables_finish(s);
}

int hx_sqlite_tables_epoch(hx_sqlite_tables *rows, uint64_t *out)
{
    int64_t epoch = 0;
    int rc = numbers(rows, HX_SQL_EPOCH, &epoch, 1);
    *out = (uint64_t)epoch;
    return rc;
}

uint64_t hx_sqlite_tables_next_epoch(uint64_t last, hx_ms now)
{
    /* A copy of the file that is used later draws other epochs than the original did after it was copied. */
    hx_ms since = now - EPOCH_ZERO_MS;
    uint64_t floor = since > 0 ? (uint64_t)since * EPOCHS_A_MS : 0;
    return (last > floor ? last : floor) + 1;
}

int hx_sqlite_tables_set_epoch(hx_sqlite_tables *rows, uint64_t epoch)
{
    sqlite3_stmt *s;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_EPOCH_SET, &s);
    if (rc != SQLITE_OK) return rc;
    bind_u64(s, 1, epoch);
    return hx_sqlite_tables_finish(s);
}

#define BOOT_BYTES 36

static char boot[BOOT_BYTES];

static void read_boot(void)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, boot, sizeof boot) != (ssize_t)sizeof boot) memset(boot, '?', sizeof boot);
    if (fd >= 0) close(fd);
}

static hx_slice boot_name(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_boot);
    return (hx_slice){boot, sizeof boot};
}

static hx_ms since_boot(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (hx_ms)t.tv_sec * HX_SECOND + t.tv_nsec / 1000000;
}

int hx_sqlite_tables_now(hx_sqlite_tables *rows, hx_ms *now, bool *known)
{
    sqlite3_stmt *s;
    *known = false;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_CLOCK, &s);
    if (rc != SQLITE_OK) return rc;
    hx_sqlite_bind_text(s, 1, boot_name());
    rc = sqlite3_step(s);
    *known = rc == SQLITE_ROW;
    if (*known) *now = since_boot() + (hx_ms)sqlite3_column_int64(s, 0);
    hx_sqlite_tables_reset(s);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int hx_sqlite_tables_set_clock(hx_sqlite_tables *rows, hx_ms now)
{
    sqlite3_stmt *s;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_CLOCK_SET, &s);
    if (rc != SQLITE_OK) return rc;
    hx_sqlite_bind_text(s, 1, boot_name());
    (void)sqlite3_bind_int64(s, 2, now - since_boot());
    return hx_sqlite_tables_finish(s);
}

/* Makes a damaged record unknown for good. Its bytes stay: a record with nothing in it would hide the damage. */
static int lose(hx_sqlite_tables *rows, const hx_op *op)
{
    hx_sqlite_tables_release(rows);
    sqlite3_stmt *s;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_LOSE, &s);
    if (rc != SQLITE_OK) return rc;
    bind_op(s, 1, op);
    return hx_sqlite_tables_finish(s);
}

int hx_sqlite_tables_sweep(hx_sqlite_tables *rows, const hx_op *op, hx_ms now, hx_sqlite_row *row, hx_record *next,
                           hx_lapsed *out)
{
    *out = HX_LAPSED_NOT;
    int rc = hx_sqlite_tables_find(rows, op, now, row);
    if (rc != SQLITE_OK || !row->there) return rc;
    *next = row->record;
    if (row->head_len == 0) { /* damaged: when it would expire is not known, and nothing takes its place */
        *out = row->stored == HX_UNKNOWN ? HX_LAPSED_NOT : HX_LAPSED_CHANGED;
        return lose(rows, op);
    }
    next->state = row->stored;
    next->lease_until = row->lease_until;
    hx_state to = hx_lifecycle_lapse(next, now, hx_clock_held());
    if (to == HX_ABSENT) {
        *out = HX_LAPSED_REMOVED;
        return hx_sqlite_tables_remove(rows, row, NULL);
    }
    if (to == row->stored) { /* another process was first */
        hx_sqlite_tables_release(rows);
        return SQLITE_OK;
    }
    hx_lifecycle_change(next, to, to == HX_UNKNOWN ? HX_LIT("lease") : HX_LIT("lifetime"), now);
    *out = HX_LAPSED_CHANGED;
    return hx_sqlite_tables_become(rows, row, next);
}

int hx_sqlite_tables_due(hx_sqlite_tables *rows, hx_ms now, hx_op *ops, size_t max, size_t *found)
{
    sqlite3_stmt *s;
    *found = 0;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_DUE, &s);
    if (rc != SQLITE_OK) return rc;
    (void)sqlite3_bind_int64(s, 1, now);
    (void)sqlite3_bind_int64(s, 2, (sqlite3_int64)max);
    (void)sqlite3_bind_int64(s, 3, now - hx_clock_held());
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
        hx_slice op = hx_sqlite_column_bytes(s, 0);
        if (op.len != sizeof(hx_op)) continue;
        memcpy(&ops[(*found)++], op.ptr, op.len);
    }
    hx_sqlite_tables_reset(s);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int hx_sqlite_tables_past(hx_sqlite_tables *rows, hx_ms before, unsigned rows_max, int64_t *last)
{
    sqlite3_stmt *q;
    *last = 0;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_HISTORY_FIRST, &q);
    if (rc != SQLITE_OK) return rc;
    (void)sqlite3_bind_int64(q, 1, rows_max);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        hx_record record;
        size_t head_len, answer_len;
        hx_slice head = {sqlite3_column_blob(q, 1), (size_t)sqlite3_column_bytes(q, 1)};
        bool is_read = head.len > 0 && hx_record_decode_head(head, &record, &head_len, &answer_len) == HX_RECORD_OK;
        if (is_read && record.changed_at >= before) break;
        if (is_read) *last = sqlite3_column_int64(q, 0); /* one that can't be read goes with those behind it */
    }
    hx_sqlite_tables_reset(q);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int hx_sqlite_tables_drop_past(hx_sqlite_tables *rows, int64_t last)
{
    sqlite3_stmt *s;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_HISTORY_DROP, &s);
    if (rc != SQLITE_OK) return rc;
    (void)sqlite3_bind_int64(s, 1, last);
    return hx_sqlite_tables_finish(s);
}

int hx_sqlite_tables_enforce(hx_sqlite_tables *rows, const hx_store_rules *rules, hx_ms now)
{
    sqlite3_stmt *s;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_UNRETIRE_PAST, &s);
    if (rc != SQLITE_OK) return rc;
    (void)sqlite3_bind_int64(s, 1, now); /* those of a process that still takes stock stay */
    rc = hx_sqlite_tables_finish(s);
    for (size_t i = 0; i < rules->count && rc == SQLITE_OK; i++) {
        rc = hx_sqlite_tables_prepare(rows, HX_SQL_ENFORCE, &s);
        if (rc != SQLITE_OK) return rc;
        hx_sqlite_bind_text(s, 1, rules->rules[i].route);
        bind_u64(s, 2, rules->rules[i].version);
        rc = hx_sqlite_tables_finish(s);
    }
    return rc;
}

int hx_sqlite_tables_enforced(hx_sqlite_tables *rows, bool *out)
{
    int64_t any = 0;
    int rc = numbers(rows, HX_SQL_ENFORCED, &any, 1);
    *out = any != 0;
    return rc;
}

int hx_sqlite_tables_retire(hx_sqlite_tables *rows, uint64_t owner, const hx_store_rules *rules, hx_ms now, hx_ms until)
{
    sqlite3_stmt *s;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_UNRETIRE, &s);
    if (rc != SQLITE_OK) return rc;
    bind_u64(s, 1, owner);
    (void)sqlite3_bind_int64(s, 2, now);
    rc = hx_sqlite_tables_finish(s);
    for (size_t i = 0; rules && i < rules->count && rc == SQLITE_OK; i++) {
        rc = hx_sqlite_tables_prepare(rows, HX_SQL_RETIRE, &s);
        if (rc != SQLITE_OK) return rc;
        bind_u64(s, 1, owner);
        hx_sqlite_bind_text(s, 2, rules->rules[i].route);
        bind_u64(s, 3, rules->rules[i].version);
        (void)sqlite3_bind_int64(s, 4, until);
        rc = hx_sqlite_tables_finish(s);
    }
    return rc;
}

int hx_sqlite_tables_not_in_force(hx_sqlite_tables *rows, const hx_record *record, uint64_t owner, hx_ms now, bool *out)
{
    sqlite3_stmt *s;
    *out = false;
    if (record->rule_version == HX_RULE_SHADOW) return SQLITE_OK; /* shadow mode has no rules in force */
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_NOT_IN_FORCE, &s);
    if (rc != SQLITE_OK) return rc;
    hx_sqlite_bind_text(s, 1, rule_route(record->route, record->rule_version));
    bind_u64(s, 2, record->rule_version);
    bind_u64(s, 3, owner);
    (void)sqlite3_bind_int64(s, 4, now);
    hx_sqlite_bind_text(s, 5, record->route);
    rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) *out = sqlite3_column_int(s, 0) != 0;
    hx_sqlite_tables_reset(s);
    return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

int hx_sqlite_tables_count(hx_sqlite_tables *rows, hx_sqlite_tables_totals *out)
{
    int64_t found[3] = {0};
    int rc = numbers(rows, HX_SQL_TOTALS, found, 3);
    *out = (hx_sqlite_tables_totals){(uint64_t)found[0], (uint64_t)found[1], (uint64_t)found[2]};
    return rc;
}

int hx_sqlite_tables_changes(hx_sqlite_tables *rows, int64_t *out)
{
    return numbers(rows, HX_SQL_CHANGES, out, 1);
}

int hx_sqlite_tables_pages(hx_sqlite_tables *rows, hx_sqlite_tables_size *out)
{
    int64_t found[3] = {0};
    int rc = numbers(rows, HX_SQL_PAGES, found, 3);
    *out = (hx_sqlite_tables_size){(uint64_t)found[0], (uint64_t)found[1], (uint64_t)found[2]};
    return rc;
}

bool hx_sqlite_tables_listed(sqlite3_stmt *s, hx_ms now, hx_record *out)
{
    hx_op op = {0};
    hx_slice bytes = hx_sqlite_column_bytes(s, 0);
    if (bytes.len == sizeof op) memcpy(&op, bytes.ptr, sizeof op);
    bool whole = decode(hx_sqlite_column_bytes(s, 4), &op, out);
    if (!whole) *out = unreadable(&op, (uint64_t)sqlite3_column_int64(s, 1));
    age(out, (hx_ms)sqlite3_column_int64(s, 3), now);
    return whole;
}
