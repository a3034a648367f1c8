/* SPDX-License-Identifier: Apache-2.0 */
/* See in_transaction.h. Each call reads the record and writes the next one inside the caller's transaction: SQLite has
 * one writer at a time, so no other change comes between the two.
 *
 * A transaction that is rolled back also gives its epoch back, and the next one may draw it again. So an operation also
 * has an owner, drawn at each beginning: a program that was rolled back can't end what another has begun. */
#include "store/sqlite/in_transaction.h"

#include "base/clock.h"
#include "base/rand.h"
#include "core/operation/policy.h"
#include "store/sqlite/tables.h"

#include <stdio.h>
#include <string.h>

#define LEASE_DEFAULT (60 * HX_SECOND)
#define LIFETIME_DEFAULT HX_DAY
#define SPAN_MAX (100 * 365 * HX_DAY) /* of a lease, a lifetime and a tombstone */
#define CLEAN_MAX 256u

/* The tags of the gateway: both name an operation in the same way. */
enum { TAG_OPERATION = 'o', TAG_PRINCIPAL = 'p', TAG_KEY = 'k', TAG_PAYLOAD = 'g' };

typedef struct {
    hx_sqlite_tables rows;
    hx_ms now;
    uint8_t secret[HX_SECRET_BYTES];
    hx_sqlite_row row;
    hx_arena *arena; /* NULL: the caller doesn't want the record */
    hx_record *found;
} session;

static bool step(sqlite3 *db, const char *sql)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

static void undo(sqlite3 *db)
{
    if (sqlite3_get_autocommit(db)) return; /* SQLite has rolled everything back */
    (void)step(db, "ROLLBACK TO hapax");
    (void)step(db, "RELEASE hapax");
}

/* Begins a savepoint, so that a call that fails undoes its own work only; leave() ends it. */
static hx_in_transaction_result enter(session *s, sqlite3 *db, hx_arena *arena, hx_record *found)
{
    int64_t format;
    *s = (session){.rows = {.db = db}, .now = hx_clock_now(), .arena = arena, .found = found};
    if (sqlite3_get_autocommit(db)) return HX_IN_TRANSACTION_OUTSIDE;
    if (!step(db, "SAVEPOINT hapax")) return HX_IN_TRANSACTION_ERROR;
    if (hx_sqlite_tables_identify(&s->rows, &format, s->secret) != SQLITE_OK) return HX_IN_TRANSACTION_ERROR;
    if (format < HX_SQLITE_FORMAT_LEAST || format > HX_SQLITE_FORMAT) return HX_IN_TRANSACTION_NO_TABLES;
    bool known;
    return hx_sqlite_tables_now(&s->rows, &s->now, &known) == SQLITE_OK ? HX_IN_TRANSACTION_OK
                                                                        : HX_IN_TRANSACTION_ERROR;
}

static hx_in_transaction_result leave(session *s, hx_in_transaction_result result)
{
    sqlite3 *db = s->rows.db;
    if (result == HX_IN_TRANSACTION_OK) {
        hx_sqlite_tables_release(&s->rows);
        if (!step(db, "RELEASE hapax")) result = HX_IN_TRANSACTION_ERROR;
    } else if (result != HX_IN_TRANSACTION_ERROR && result != HX_IN_TRANSACTION_OUTSIDE) {
        hx_sqlite_tables_release(&s->rows);
        undo(db); /* nothing was written */
    }
    if (result == HX_IN_TRANSACTION_ERROR) {
        int code = sqlite3_errcode(db) & 0xff;
        if (s->arena) s->found->reason = hx_arena_copy(s->arena, hx_slice_of(sqlite3_errmsg(db)));
        if (code == SQLITE_BUSY || code == SQLITE_LOCKED) result = HX_IN_TRANSACTION_BUSY;
        hx_sqlite_tables_release(&s->rows);
        undo(db);
    }
    hx_sqlite_tables_end(&s->rows);
    explicit_bzero(s->secret, sizeof s->secret);
    return result;
}

bool hx_sqlite_prepare(sqlite3 *db, hx_error_text error)
{
    hx_sqlite_tables rows = {.db = db};
    int64_t format;
    uint8_t secret[HX_SECRET_BYTES];
    int rc = step(db, "SAVEPOINT hapax") ? SQLITE_OK : sqlite3_errcode(db);
    bool is_inside = rc == SQLITE_OK;
    if (rc == SQLITE_OK) rc = hx_sqlite_tables_identify(&rows, &format, secret);
    if (rc == SQLITE_OK && format == 0) rc = hx_sqlite_tables_create(db, NULL);
    if (rc == SQLITE_OK && hx_sqlite_tables_are_older(format)) rc = hx_sqlite_tables_upgrade(db, format);
    bool is_other_format = rc == SQLITE_OK && format != 0 &&
                           (format < HX_SQLITE_FORMAT_LEAST || format > HX_SQLITE_FORMAT);
    hx_sqlite_tables_end(&rows);
    explicit_bzero(secret, sizeof secret);
    if (rc == SQLITE_OK && !is_other_format && !step(db, "RELEASE hapax")) rc = sqlite3_errcode(db);
    if (rc == SQLITE_OK && !is_other_format) return true;
    if (is_other_format)
        (void)hx_fail(error,
                      "Hapax's tables in this database are of %s version (format %lld, this one reads %d): use that "
                      "version",
                      format > HX_SQLITE_FORMAT ? "a newer" : "an older", (long long)format, HX_SQLITE_FORMAT);
    else
        (void)hx_fail(error, "can't make Hapax's tables in this database: %s",
                      rc == SQLITE_CORRUPT ? "the table hapax_store is not as Hapax makes it" : sqlite3_errmsg(db));
    if (is_inside) undo(db);
    return false;
}

bool hx_sqlite_operation_of(hx_slice header, hx_in_transaction_operation *out)
{
    *out = (hx_in_transaction_operation){0};
    const size_t hex_len = 2 * sizeof out->op.bytes;
    if (header.len < hex_len + 2 || header.ptr[hex_len] != '.') return false;
    return hx_op_read(hx_slice_first(header, hex_len), &out->op) &&
           hx_slice_to_u64(hx_slice_from(header, hex_len + 1), &out->epoch) && out->epoch > 0;
}

static hx_digest digest(hx_mac *mac, char tag, hx_slice part)
{
    hx_mac_begin(mac, tag);
    hx_mac_part(mac, part);
    return hx_mac_end(mac);
}

static hx_record claim_of(const session *s, const hx_in_transaction_request *request)
{
    hx_mac *mac = hx_mac_new(s->secret);
    hx_record record = {.state = HX_PROCESSING,
                        .created_at = s->now,
                        .changed_at = s->now,
                        .lease_until = s->now + (request->lease > 0 ? request->lease : LEASE_DEFAULT),
                        .owner = hx_rand_u64() | 1,
                        .rule_version = HX_RULE_SHADOW, /* no gateway's rules apply to it */
                        .attempt = 1,
                        .route = request->route,
                        .correlation = HX_EMPTY,
                        .reason = HX_EMPTY,
                        .result = HX_EMPTY,
                        .lifetime = request->lifetime > 0 ? request->lifetime : LIFETIME_DEFAULT,
                        .tombstone = request->tombstone,
                        .principal = digest(mac, TAG_PRINCIPAL, request->principal),
                        .key = digest(mac, TAG_KEY, request->key)};
    if (request->payload.len > 0) record.fingerprint = digest(mac, TAG_PAYLOAD, request->payload);
    hx_mac_begin(mac, TAG_OPERATION);
    hx_mac_part(mac, request->route);
    hx_mac_part(mac, request->principal);
    hx_mac_part(mac, request->key);
    hx_digest name = hx_mac_end(mac);
    memcpy(record.op.bytes, name.bytes, sizeof record.op.bytes);
    hx_mac_free(&mac);
    return record;
}

static hx_stored stored_of(const session *s)
{
    return s->row.there ? (hx_stored){s->row.record.state, s->row.record.epoch} : (hx_stored){0};
}

static bool is_damaged(const session *s)
{
    return s->row.there && s->row.head_len == 0;
}

/* Copies the record for the caller. */
static void show(const session *s, const hx_op *op, hx_arena *arena, hx_record *found)
{
    const hx_sqlite_row *row = &s->row;
    if (stored_of(s).state == HX_ABSENT) {
        *found = (hx_record){.op = *op};
        return;
    }
    size_t len = hx_sqlite_row_bytes(row);
    char *bytes = hx_arena_alloc(arena, len > 0 ? len : 1);
    hx_sqlite_row_copy(row, bytes);
    if (len == 0 || hx_record_decode((hx_slice){bytes, len}, found) != HX_RECORD_OK) {
        *found = hx_record_unreadable(op, row->record.epoch);
        found->reason = HX_LIT("damaged");
        return;
    }
    found->state = row->record.state;
    if (found->state == HX_PROCESSING) found->lease_until = row->lease_until;
    if (found->state == HX_EXPIRED) found->answer = (hx_answer){0};
}

/* Whether the operation can begin: OK, or why not. */
static hx_in_transaction_result judge(const session *s, const hx_in_transaction_request *request,
                                      const hx_record *claim)
{
    const hx_record *found = &s->row.record;
    static const hx_digest none;
    hx_stored stored = stored_of(s);
    if (stored.state == HX_PROCESSING) stored.state = hx_lifecycle_lapse(found, s->now, 0); /* unknown by its lease */
    bool redoes = request->redo && stored.state == HX_UNKNOWN;
    hx_transition next = hx_lifecycle_claim(stored, redoes ? stored.epoch : request->take_over);
    if (next == HX_TRANSITION_STALE) return HX_IN_TRANSACTION_STALE;
    if (is_damaged(s)) return HX_IN_TRANSACTION_UNKNOWN; /* its mark may be there: it is not begun again */
    bool is_compared = stored.state != HX_ABSENT && stored.state != HX_EXPIRED && request->payload.len > 0 &&
                       !hx_digest_eq(&found->fingerprint, &none);
    if (is_compared && !hx_digest_eq(&found->fingerprint, &claim->fingerprint)) return HX_IN_TRANSACTION_MISMATCH;
    if (next == HX_TRANSITION_WRITE) return HX_IN_TRANSACTION_OK;
    switch (stored.state) {
    case HX_EXPIRED: return HX_IN_TRANSACTION_EXPIRED;
    case HX_PROCESSING: return HX_IN_TRANSACTION_RUNNING;
    case HX_UNKNOWN: return HX_IN_TRANSACTION_UNKNOWN;
    default: return HX_IN_TRANSACTION_DONE;
    }
}

static hx_in_transaction_result claim(session *s, hx_record *record)
{
    uint64_t last;
    int rc = hx_sqlite_tables_epoch(&s->rows, &last);
    if (rc != SQLITE_OK) return HX_IN_TRANSACTION_ERROR;
    record->epoch = hx_sqlite_tables_next_epoch(last, s->now);
    if (stored_of(s).state != HX_ABSENT) {
        record->from_state = s->row.record.state;
        record->attempt = (uint16_t)(s->row.record.attempt + 1);
    }
    rc = hx_sqlite_tables_become(&s->rows, &s->row, record);
    if (rc == SQLITE_OK) rc = hx_sqlite_tables_set_epoch(&s->rows, record->epoch);
    return rc == SQLITE_OK ? HX_IN_TRANSACTION_OK : HX_IN_TRANSACTION_ERROR;
}

/* The record as it was written, without its texts, which are in the row. */
static void show_written(hx_record *found, const hx_record *next)
{
    *found = *next;
    found->route = found->correlation = found->reason = found->result = found->key_parameters = HX_EMPTY;
}

/* A span that is added to the time of day must not pass the end of time: an outcome would be over at once. */
static bool is_span(hx_ms span)
{
    return span >= 0 && span <= SPAN_MAX;
}

static bool is_request(const hx_in_transaction_request *request)
{
    return request->key.len > 0 && request->route.len <= HX_RECORD_TEXT_MAX && is_span(request->lease) &&
           is_span(request->lifetime) && is_span(request->tombstone);
}

/* Reads the operation that *record would claim, and decides whether it can begin. */
static hx_in_transaction_result look(session *s, const hx_in_transaction_request *request, hx_record *record)
{
    *record = claim_of(s, request);
    if (hx_sqlite_tables_find(&s->rows, &record->op, s->now, &s->row) != SQLITE_OK) return HX_IN_TRANSACTION_ERROR;
    hx_in_transaction_result result = judge(s, request, record);
    if (result != HX_IN_TRANSACTION_OK) show(s, &record->op, s->arena, s->found);
    if (result == HX_IN_TRANSACTION_UNKNOWN) s->found->state = HX_UNKNOWN; /* by its lease */
    return result;
}

hx_in_transaction_result hx_sqlite_begin(sqlite3 *db, const hx_in_transaction_request *request, hx_arena *arena,
                                         hx_in_transaction_operation *out, hx_record *found)
{
    session s;
    hx_record record;
    *out = (hx_in_transaction_operation){0};
    *found = (hx_record){0};
    if (!is_request(request)) return HX_IN_TRANSACTION_INVALID;
    hx_in_transaction_result result = enter(&s, db, arena, found);
    if (result == HX_IN_TRANSACTION_OK) result = look(&s, request, &record);
    if (result == HX_IN_TRANSACTION_OK) result = claim(&s, &record);
    if (result == HX_IN_TRANSACTION_OK) {
        *out = (hx_in_transaction_operation){record.op, record.epoch, record.owner};
        show_written(found, &record);
    }
    return leave(&s, result);
}

hx_in_transaction_result hx_sqlite_find(sqlite3 *db, const hx_in_transaction_request *request, hx_arena *arena,
                                        hx_record *found)
{
    session s;
    hx_record record;
    *found = (hx_record){0};
    if (!is_request(request)) return HX_IN_TRANSACTION_INVALID;
    hx_in_transaction_result result = enter(&s, db, arena, found);
    if (result == HX_IN_TRANSACTION_OK) result = look(&s, request, &record);
    return leave(&s, result);
}

/* Ends the operation if it is still the caller's. */
static hx_in_transaction_result end(sqlite3 *db, const hx_in_transaction_operation *operation, hx_state to,
                                    const hx_answer *answer, hx_slice reason, hx_arena *arena, hx_record *found)
{
    session s;
    *found = (hx_record){.op = operation->op};
    hx_in_transaction_result result = enter(&s, db, arena, found);
    if (result != HX_IN_TRANSACTION_OK) return leave(&s, result);
    if (hx_sqlite_tables_find(&s.rows, &operation->op, s.now, &s.row) != SQLITE_OK)
        return leave(&s, HX_IN_TRANSACTION_ERROR);
    hx_stored stored = stored_of(&s);
    if (is_damaged(&s)) stored.state = s.row.stored;
    bool is_settled = hx_lifecycle_settle(stored, operation->epoch, to) != HX_TRANSITION_WRITE;
    bool is_anothers = operation->owner != 0 && operation->owner != s.row.record.owner;
    if (is_settled || is_damaged(&s) || is_anothers) {
        /* An outcome without the fingerprint, which is lost, would be a mismatch for every later request. */
        bool is_lost = is_damaged(&s) && !is_settled;
        show(&s, &operation->op, arena, found);
        return leave(&s, is_lost ? HX_IN_TRANSACTION_DAMAGED : HX_IN_TRANSACTION_STALE);
    }
    hx_record next = s.row.record;
    hx_lifecycle_change(&next, to, reason, s.now);
    if (to != HX_ABSENT) {
        hx_lifecycle_end_after(&next, s.row.lifetime > 0 ? s.row.lifetime : LIFETIME_DEFAULT, s.row.tombstone);
        next.answer = *answer;
        next.answer.retained = true;
    }
    int rc = to == HX_ABSENT ? hx_sqlite_tables_remove(&s.rows, &s.row, &next)
                             : hx_sqlite_tables_become(&s.rows, &s.row, &next);
    show_written(found, &next);
    return leave(&s, rc == SQLITE_OK ? HX_IN_TRANSACTION_OK : HX_IN_TRANSACTION_ERROR);
}

static bool is_valid(const hx_answer *answer)
{
    return answer->status > 0 && answer->status < 1000 && answer->headers.len + answer->body.len <= HX_STORE_ANSWER_MAX;
}

hx_in_transaction_result hx_sqlite_complete(sqlite3 *db, const hx_in_transaction_operation *operation,
                                            const hx_answer *answer, hx_arena *arena, hx_record *found)
{
    if (!is_valid(answer)) return HX_IN_TRANSACTION_INVALID;
    return end(db, operation, HX_COMPLETED, answer, HX_EMPTY, arena, found);
}

hx_in_transaction_result hx_sqlite_fail(sqlite3 *db, const hx_in_transaction_operation *operation,
                                        const hx_answer *answer, hx_arena *arena, hx_record *found)
{
    if (!is_valid(answer)) return HX_IN_TRANSACTION_INVALID;
    return end(db, operation, HX_FAILED, answer, HX_EMPTY, arena, found);
}

hx_in_transaction_result hx_sqlite_release(sqlite3 *db, const hx_in_transaction_operation *operation, hx_slice reason,
                                           hx_arena *arena, hx_record *found)
{
    if (reason.len > HX_RECORD_TEXT_MAX) return HX_IN_TRANSACTION_INVALID;
    return end(db, operation, HX_ABSENT, NULL, reason, arena, found);
}

hx_in_transaction_result hx_sqlite_renew(sqlite3 *db, const hx_in_transaction_operation *operation, hx_ms lease,
                                         hx_arena *arena, hx_record *found)
{
    session s;
    *found = (hx_record){.op = operation->op};
    if (lease <= 0 || !is_span(lease)) return HX_IN_TRANSACTION_INVALID;
    hx_in_transaction_result result = enter(&s, db, arena, found);
    if (result != HX_IN_TRANSACTION_OK) return leave(&s, result);
    if (hx_sqlite_tables_find(&s.rows, &operation->op, s.now, &s.row) != SQLITE_OK)
        return leave(&s, HX_IN_TRANSACTION_ERROR);
    hx_record *record = &s.row.record;
    bool is_anothers = operation->owner != 0 && operation->owner != record->owner;
    bool is_over = hx_lifecycle_lapse(record, s.now, 0) != HX_PROCESSING;
    bool is_held = !is_damaged(&s) && !is_anothers && !is_over &&
                   hx_lifecycle_renew(stored_of(&s), operation->epoch) == HX_TRANSITION_WRITE;
    show(&s, &operation->op, arena, found);
    if (!is_held) {
        if (found->state == HX_PROCESSING && is_over) found->state = HX_UNKNOWN;
        return leave(&s, HX_IN_TRANSACTION_STALE);
    }
    found->lease_until = s.now + lease;
    bool is_written = hx_sqlite_tables_renew(&s.rows, &operation->op, found->lease_until) == SQLITE_OK;
    return leave(&s, is_written ? HX_IN_TRANSACTION_OK : HX_IN_TRANSACTION_ERROR);
}

/* Inside a transaction that writes nobody else draws an epoch: the order of keys is that of the commits. */
static int put_event(session *s, hx_slice event)
{
    uint64_t version;
    char key[sizeof HX_ITEM_OUTBOX_KEY + 16];
    sqlite3_stmt *q;
    int rc = hx_sqlite_tables_epoch(&s->rows, &version);
    if (rc != SQLITE_OK) return rc;
    version = hx_sqlite_tables_next_epoch(version, s->now);
    (void)snprintf(key, sizeof key, HX_ITEM_OUTBOX_KEY "%016llx", (unsigned long long)version);
    rc = hx_sqlite_tables_prepare(&s->rows, HX_SQL_ITEM_INSERT, &q);
    if (rc != SQLITE_OK) return rc;
    hx_sqlite_bind_bytes(q, 2, hx_slice_of(key));
    (void)sqlite3_bind_int64(q, 3, (sqlite3_int64)version);
    hx_sqlite_bind_bytes(q, 4, HX_LIT(HX_ITEM_OUTBOX_QUEUE));
    (void)sqlite3_bind_int64(q, 5, 0);
    (void)sqlite3_bind_int64(q, 6, 0);
    hx_sqlite_bind_text(q, 7, HX_EMPTY);
    hx_sqlite_bind_bytes(q, 8, event);
    rc = hx_sqlite_tables_finish(q);
    return rc == SQLITE_OK ? hx_sqlite_tables_set_epoch(&s->rows, version) : rc;
}

hx_in_transaction_result hx_sqlite_publish(sqlite3 *db, hx_slice event, hx_arena *arena, hx_record *found)
{
    session s;
    *found = (hx_record){0};
    if (event.len > HX_ITEM_BODY_MAX) return HX_IN_TRANSACTION_INVALID;
    hx_in_transaction_result result = enter(&s, db, arena, found);
    if (result == HX_IN_TRANSACTION_OK && put_event(&s, event) != SQLITE_OK) result = HX_IN_TRANSACTION_ERROR;
    return leave(&s, result);
}

hx_in_transaction_result hx_sqlite_clean(sqlite3 *db, unsigned max, unsigned *cleaned)
{
    session s;
    hx_op due[CLEAN_MAX];
    size_t count = 0;
    *cleaned = 0;
    hx_in_transaction_result result = enter(&s, db, NULL, NULL);
    if (result != HX_IN_TRANSACTION_OK) return leave(&s, result);
    int rc = hx_sqlite_tables_due(&s.rows, s.now, due, max < CLEAN_MAX ? max : CLEAN_MAX, &count);
    for (size_t i = 0; i < count && rc == SQLITE_OK; i++) {
        hx_record next;
        hx_lapsed lapsed;
        rc = hx_sqlite_tables_sweep(&s.rows, &due[i], s.now, &s.row, &next, &lapsed);
        *cleaned += lapsed == HX_LAPSED_REMOVED;
    }
    return leave(&s, rc == SQLITE_OK ? HX_IN_TRANSACTION_OK : HX_IN_TRANSACTION_ERROR);
}
