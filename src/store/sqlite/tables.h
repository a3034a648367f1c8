/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a store in SQLite, on one connection: reading and changing them inside a transaction of the store, or
 * of a program whose effect commits with its mark (in_transaction.h). The one place that includes SQLite's own header.
 *
 * Nothing here begins or ends a transaction, or decides which state may follow another. A function returns SQLite's
 * result code; after anything but SQLITE_OK the transaction must be rolled back. */
#ifndef HX_STORE_SQLITE_TABLES_H
#define HX_STORE_SQLITE_TABLES_H

#include "store/backend.h"

#include <sqlite3.h>

#define HX_SQLITE_FORMAT 4
#define HX_SQLITE_FORMAT_LEAST 2 /* has the same tables of operations, and is upgraded when a store is opened */

/* Of an item. The body is read where ?4 isn't 0. */
#define HX_ITEM_COLUMNS "SELECT key, version, queue, due, expires_at, meta, iif(?4, body, NULL) FROM hapax_items "

#define HX_LINK_COLUMNS "SELECT number, first_id, last_id, at, kept, previous, hash FROM hapax_links "

/* Each statement is prepared when it is first used. */
#define HX_ROWS_STATEMENTS(X)                                                                                          \
    X(FIND, "SELECT epoch, state, lease_until, head, headers, body, lifetime, tombstone "                              \
            "FROM hapax_operations WHERE op = ?1")                                                                     \
    X(INSERT, "INSERT INTO hapax_operations (op, epoch, state, lease_until, due, rule_version, route, head, headers, " \
              "body, lifetime, tombstone) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)")                 \
    X(UPDATE, "UPDATE hapax_operations SET epoch = ?2, state = ?3, lease_until = ?4, due = ?5, rule_version = ?6, "    \
              "route = ?7, head = ?8, headers = ?9, body = ?10, lifetime = iif(?11 > 0, ?11, lifetime), "              \
              "tombstone = iif(?11 > 0, ?12, tombstone) WHERE op = ?1")                                                \
    X(DELETE, "DELETE FROM hapax_operations WHERE op = ?1")                                                            \
    X(RENEW, "UPDATE hapax_operations SET lease_until = ?2, due = ?3 WHERE op = ?1")                                   \
    X(LOSE, "UPDATE hapax_operations SET state = 4, lease_until = 0, due = NULL WHERE op = ?1")                        \
    X(REMEMBER, "INSERT INTO hapax_history (op, head) VALUES (?1, ?2)")                                                \
    X(EPOCH, "SELECT epoch FROM hapax_store")                                                                          \
    X(EPOCH_SET, "UPDATE hapax_store SET epoch = ?1 WHERE epoch < ?1")                                                 \
    X(CLOCK, "SELECT clock FROM hapax_store WHERE boot = ?1")                                                          \
    X(CLOCK_SET, "UPDATE hapax_store SET boot = ?1, clock = ?2 WHERE boot <> ?1")                                      \
    X(DUE, "SELECT op FROM hapax_operations WHERE due <= ?1 AND (due <= ?3 OR state = 1) ORDER BY due LIMIT ?2")       \
    X(LIST, "SELECT op, epoch, state, lease_until, head FROM hapax_operations WHERE op >= ?1 ORDER BY op LIMIT ?2")    \
    X(HISTORY, "SELECT id, head FROM hapax_history WHERE id BETWEEN ?1 AND ?2 AND op = coalesce(?3, op) ORDER BY id")  \
    X(HISTORY_BOUNDS, "SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM hapax_history")                          \
    X(HISTORY_FIRST, "SELECT id, head FROM hapax_history WHERE id < (SELECT max(id) FROM hapax_history) "              \
                     "ORDER BY id LIMIT ?1")                                                                           \
    X(HISTORY_DROP, "DELETE FROM hapax_history WHERE id <= ?1")                                                        \
    X(HISTORY_LAST, "SELECT head FROM hapax_history ORDER BY id DESC LIMIT 1")                                         \
    X(LINK_PENDING, "SELECT coalesce((SELECT max(id) FROM hapax_history), 0) > "                                       \
                    "coalesce((SELECT last_id FROM hapax_links ORDER BY number DESC LIMIT 1), 0)")                     \
    X(LINK_LAST, HX_LINK_COLUMNS "ORDER BY number DESC LIMIT 1")                                                       \
    X(LINK_ROWS, "SELECT id, head FROM hapax_history WHERE id > ?1 ORDER BY id LIMIT ?2")                              \
    X(LINK_INSERT, "INSERT INTO hapax_links (number, first_id, last_id, at, kept, previous, hash) "                    \
                   "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")                                                              \
    X(LINK_COVERED, "SELECT coalesce(max(number), 0), max(last_id) FROM (SELECT number, last_id FROM hapax_links "     \
                    "WHERE number < (SELECT max(number) FROM hapax_links) ORDER BY number LIMIT ?2) "                  \
                    "WHERE last_id <= ?1")                                                                             \
    X(LINK_DROP, "DELETE FROM hapax_links WHERE number <= ?1")                                                         \
    X(TOTALS, "SELECT coalesce(sum(processing), 0), coalesce(sum(unknown), 0), coalesce(sum(ended), 0) "               \
              "FROM hapax_live")                                                                                       \
    X(LIVE, "SELECT route, rule_version, processing + unknown + ended FROM hapax_live "                                \
            "WHERE processing + unknown + ended > 0")                                                                  \
    X(LIVE_ON, "SELECT count(*) FROM hapax_operations WHERE route = ?1 AND rule_version < 2147483648")                 \
    X(ENFORCE, "INSERT INTO hapax_rules (route, rule_version) VALUES (?1, ?2) "                                        \
               "ON CONFLICT DO UPDATE SET rule_version = excluded.rule_version")                                       \
    X(ENFORCED, "SELECT EXISTS (SELECT 1 FROM hapax_rules)")                                                           \
    X(RETIRE, "INSERT OR REPLACE INTO hapax_retired (owner, route, rule_version, until) VALUES (?1, ?2, ?3, ?4)")      \
    X(UNRETIRE, "DELETE FROM hapax_retired WHERE owner = ?1 OR until <= ?2")                                           \
    X(UNRETIRE_PAST, "DELETE FROM hapax_retired WHERE until <= ?1")                                                    \
    X(NOT_IN_FORCE, "SELECT EXISTS (SELECT 1 FROM hapax_rules WHERE route = ?1 AND rule_version <> ?2) OR "            \
                    "EXISTS (SELECT 1 FROM hapax_retired WHERE owner <> ?3 AND until > ?4 AND rule_version = ?2 "      \
                    "AND (route = ?5 OR route = '' AND ?2 < 2147483648))")                                             \
    X(CHANGES, "PRAGMA data_version")                                                                                  \
    X(PAGES, "SELECT page_count, freelist_count, page_size "                                                           \
             "FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()")                                  \
    X(ITEM_FIND, "SELECT id, version, expires_at FROM hapax_items WHERE key = ?1")                                     \
    X(ITEM_INSERT, "INSERT INTO hapax_items (id, key, version, queue, due, expires_at, meta, body) "                   \
                   "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")                                                          \
    X(ITEM_REPLACE, "UPDATE hapax_items SET version = ?3, queue = ?4, due = ?5, expires_at = ?6, meta = ?7, "          \
                    "body = ?8 WHERE id = ?1")                                                                         \
    X(ITEM_UPDATE, "UPDATE hapax_items SET version = ?3, queue = ?4, due = ?5, meta = ?7, body = ?8 WHERE id = ?1")    \
    X(ITEM_DELETE, "DELETE FROM hapax_items WHERE id = ?1")                                                            \
    X(ITEM_GET, HX_ITEM_COLUMNS "WHERE key = ?3")                                                                      \
    X(ITEMS_BY_KEY, HX_ITEM_COLUMNS "WHERE key >= ?3 ORDER BY key")                                                    \
    X(ITEMS_BY_KEY_BACK, HX_ITEM_COLUMNS "WHERE key < ?3 ORDER BY key DESC")                                           \
    X(ITEMS_BY_QUEUE, HX_ITEM_COLUMNS "WHERE queue IS NOT NULL AND (queue, due, key) >= (?1, ?2, ?3) "                 \
                                      "ORDER BY queue, due, key")                                                      \
    X(ITEMS_BY_QUEUE_BACK, HX_ITEM_COLUMNS "WHERE queue IS NOT NULL AND (queue, due, key) < (?1, ?2, ?3) "             \
                                           "ORDER BY queue DESC, due DESC, key DESC")                                  \
    X(ITEMS_OVER, "SELECT length(body) FROM hapax_items WHERE expires_at > 0 AND expires_at <= ?1 "                    \
                  "ORDER BY expires_at LIMIT ?2")                                                                      \
    X(ITEMS_DROP, "DELETE FROM hapax_items WHERE id IN (SELECT id FROM hapax_items "                                   \
                  "WHERE expires_at > 0 AND expires_at <= ?1 ORDER BY expires_at LIMIT ?2)")                           \
    X(STORE, "SELECT format, secret FROM hapax_store")                                                                 \
    X(BEGIN_READ, "BEGIN")                                                                                             \
    X(BEGIN_WRITE, "BEGIN IMMEDIATE")                                                                                  \
    X(COMMIT, "COMMIT")                                                                                                \
    X(ROLLBACK, "ROLLBACK")

typedef enum {
#define X(name, sql) HX_SQL_##name,
    HX_ROWS_STATEMENTS(X)
#undef X
        HX_SQL_COUNT_OF
} hx_sql;

typedef struct {
    sqlite3 *db;
    sqlite3_stmt *statements[HX_SQL_COUNT_OF];
} hx_sqlite_tables;

/* The row of an operation. */
typedef struct {
    bool there;
    hx_state stored;  /* state as it was written; `record` has the current one */
    hx_record record; /* its texts point into `head`; of its response only status and retained. Damaged: unknown */
    hx_ms lease_until;
    hx_ms lifetime, tombstone; /* for an application that completes it without knowing its route; 0: not given */
    char head[HX_RECORD_HEAD_MAX];
    size_t head_len;        /* 0: the record is damaged */
    hx_slice headers, body; /* memory of SQLite; valid until the next find or hx_sqlite_tables_release */
} hx_sqlite_row;

/* Frees the statements; the connection stays open. */
void hx_sqlite_tables_end(hx_sqlite_tables *rows);
/* Runs a statement that has no parameters and no rows. */
int hx_sqlite_tables_run(hx_sqlite_tables *rows, hx_sql which);

/* Makes the tables where there are none; part of the caller's transaction. `secret` NULL: one is drawn. */
int hx_sqlite_tables_create(sqlite3 *db, const uint8_t *secret);
/* Brings tables of an earlier format to the current one; part of the caller's transaction. */
int hx_sqlite_tables_upgrade(sqlite3 *db, int64_t format);
static inline bool hx_sqlite_tables_are_older(int64_t format)
{
    return format >= HX_SQLITE_FORMAT_LEAST && format < HX_SQLITE_FORMAT;
}
/* Reads the format of the tables and the secret. format 0: there are no tables. */
int hx_sqlite_tables_identify(hx_sqlite_tables *rows, int64_t *format, uint8_t secret[32]);

int hx_sqlite_tables_find(hx_sqlite_tables *rows, const hx_op *op, hx_ms now, hx_sqlite_row *out);
void hx_sqlite_tables_release(hx_sqlite_tables *rows);
/* The encoded record, its length and its bytes, for hx_record_decode. Before the next find. */
size_t hx_sqlite_row_bytes(const hx_sqlite_row *row);
void hx_sqlite_row_copy(const hx_sqlite_row *row, char *out);

/* Replaces `old`, which may be absent, by `record`: the one place where a record changes. */
int hx_sqlite_tables_become(hx_sqlite_tables *rows, const hx_sqlite_row *old, const hx_record *record);
/* Removes a row. `last`, which may be NULL, is added to the history. */
int hx_sqlite_tables_remove(hx_sqlite_tables *rows, const hx_sqlite_row *old, const hx_record *last);
int hx_sqlite_tables_renew(hx_sqlite_tables *rows, const hx_op *op, hx_ms lease_until);

int hx_sqlite_tables_epoch(hx_sqlite_tables *rows, uint64_t *out);
/* The next epoch: greater than `last`, and than any that a copy of this store has drawn until `now`. */
uint64_t hx_sqlite_tables_next_epoch(uint64_t last, hx_ms now);
/* Raises the epoch; a smaller one changes nothing. */
int hx_sqlite_tables_set_epoch(hx_sqlite_tables *rows, uint64_t epoch);

typedef enum { HX_LAPSED_NOT, HX_LAPSED_CHANGED, HX_LAPSED_REMOVED } hx_lapsed;
/* Sweeps one operation. CHANGED: *next is what it became; its texts point into *row. */
int hx_sqlite_tables_sweep(hx_sqlite_tables *rows, const hx_op *op, hx_ms now, hx_sqlite_row *row, hx_record *next,
                           hx_lapsed *out);

/* The store's own time. All processes of a machine see the same time since its boot, whatever its wall clock showed
 * when they were started; `known` is false while no process has set the store's clock since the boot. */
int hx_sqlite_tables_now(hx_sqlite_tables *rows, hx_ms *now, bool *known);
/* Sets the clock, unless another process has. Inside a write transaction. */
int hx_sqlite_tables_set_clock(hx_sqlite_tables *rows, hx_ms now);

/* Finds up to `max` operations that a sweep has to change or remove. */
int hx_sqlite_tables_due(hx_sqlite_tables *rows, hx_ms now, hx_op *ops, size_t max, size_t *found);

/* The last of the first `rows_max` rows of the history that are all older than `before`; 0: not even the first is. The
 * newest row is never among them: it has the time of the last change. */
int hx_sqlite_tables_past(hx_sqlite_tables *rows, hx_ms before, unsigned rows_max, int64_t *last);
int hx_sqlite_tables_drop_past(hx_sqlite_tables *rows, int64_t last);
int hx_sqlite_tables_enforce(hx_sqlite_tables *rows, const hx_store_rules *rules, hx_ms now);
/* Whether any rules were ever enforced. */
int hx_sqlite_tables_enforced(hx_sqlite_tables *rows, bool *out);
int hx_sqlite_tables_retire(hx_sqlite_tables *rows, uint64_t owner, const hx_store_rules *rules, hx_ms now,
                            hx_ms until);
/* Whether the rules of this record are not in force: another version is, or another process takes stock of them. */
int hx_sqlite_tables_not_in_force(hx_sqlite_tables *rows, const hx_record *record, uint64_t owner, hx_ms now,
                                  bool *out);

typedef struct {
    uint64_t processing, unknown, ended;
} hx_sqlite_tables_totals;
int hx_sqlite_tables_count(hx_sqlite_tables *rows, hx_sqlite_tables_totals *out);

/* PRAGMA data_version: changes when another connection commits. */
int hx_sqlite_tables_changes(hx_sqlite_tables *rows, int64_t *out);

typedef struct {
    uint64_t pages, free_pages, page_bytes;
} hx_sqlite_tables_size;
int hx_sqlite_tables_pages(hx_sqlite_tables *rows, hx_sqlite_tables_size *out);

/* Prepares a statement for the caller to bind and step; hx_sqlite_tables_reset when done. */
int hx_sqlite_tables_prepare(hx_sqlite_tables *rows, hx_sql which, sqlite3_stmt **out);
void hx_sqlite_tables_reset(sqlite3_stmt *statement);
/* Steps a statement that gives no rows, and resets it. */
int hx_sqlite_tables_finish(sqlite3_stmt *statement);
/* The bytes must stay until the statement has run. Empty is empty, not NULL. */
void hx_sqlite_bind_bytes(sqlite3_stmt *statement, int at, hx_slice bytes);
void hx_sqlite_bind_text(sqlite3_stmt *statement, int at, hx_slice text);
/* Memory of SQLite, until the statement is stepped or reset. */
hx_slice hx_sqlite_column_bytes(sqlite3_stmt *statement, int at);
/* Reads a row of HX_SQL_LIST, in its state by now. False: it is damaged, and `out` is unknown. */
bool hx_sqlite_tables_listed(sqlite3_stmt *statement, hx_ms now, hx_record *out);

#endif
