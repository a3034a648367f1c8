/* SPDX-License-Identifier: Apache-2.0 */
/* The audit of a store in SQLite: the rows of hapax_history, and the chain of hapax_links over them (sqlite/links.h). A
 * link covers up to 64 rows. A row whose bytes were changed shows by its own checksum, and one that is missing by its
 * id; what only the link's hash shows is named by its rows. All of it is read in one transaction. */
#include "store/audit/audit.h"
#include "store/sqlite/file.h"
#include "store/sqlite/links.h"
#include "store/sqlite/sqlite.h"

#include "base/check.h"

#include <inttypes.h>
#include <string.h>

#define ROWS_BYTES_MAX (HX_LINK_ROWS_MAX * (2 * sizeof(int64_t) + HX_RECORD_HEAD_MAX))

typedef struct {
    hx_audit *audit;
    hx_sqlite_tables tables;
    sqlite3_stmt *rows; /* SELECT id, head, op, from the first id on */
    int step;           /* of `rows` */
    hx_buf covered;     /* the rows of the link that is being read */
    size_t row_at[HX_LINK_ROWS_MAX + 1];
    unsigned row_count;
    bool is_explained; /* a row of the link is broken, and was named */
    hx_sqlite_link last;
} auditing;

static int64_t row_id(const auditing *a)
{
    return sqlite3_column_int64(a->rows, 0);
}

static void next_row(auditing *a)
{
    a->step = sqlite3_step(a->rows);
}

/* Takes the row that comes next: hands it on, and adds it to those that the link covers. */
static void take_row(auditing *a)
{
    hx_record record;
    size_t head_len, answer_len;
    hx_slice head = hx_sqlite_column_bytes(a->rows, 1), op = hx_sqlite_column_bytes(a->rows, 2);
    bool is_whole = head.len <= HX_RECORD_HEAD_MAX &&
                    hx_record_decode_head(head, &record, &head_len, &answer_len) == HX_RECORD_OK &&
                    op.len == sizeof record.op && memcmp(op.ptr, &record.op, op.len) == 0;
    if (is_whole) {
        hx_audit_row(a->audit, &record, (uint64_t)row_id(a));
    } else {
        hx_audit_problem(a->audit, "row %" PRId64 " can't be read: its bytes were changed", row_id(a));
        a->is_explained = true;
    }
    if (is_whole && a->row_count < HX_LINK_ROWS_MAX) {
        hx_sqlite_link_put_row(&a->covered, row_id(a), head);
        a->row_at[++a->row_count] = a->covered.len;
    }
}

static void miss(auditing *a, int64_t from, int64_t to)
{
    if (to < from) return;
    hx_audit_problem(a->audit, "rows %" PRId64 " to %" PRId64 " are missing", from, to);
    a->is_explained = true;
}

/* Whether the hash is right with the contents of two rows exchanged. */
static bool is_swapped(const auditing *a, const hx_sqlite_link *link, unsigned one, unsigned other)
{
    hx_buf rows;
    hx_buf_init(&rows, NULL, ROWS_BYTES_MAX);
    const char *bytes = a->covered.data;
    for (unsigned i = 0; i < a->row_count; i++) {
        unsigned from = i == one ? other : i == other ? one : i;
        size_t at = a->row_at[from] + 2 * sizeof(int64_t);
        hx_sqlite_link_put_row(&rows, link->first_id + i, (hx_slice){bytes + at, a->row_at[from + 1] - at});
    }
    hx_digest hash = hx_sqlite_link_hash(link, hx_buf_slice(&rows));
    hx_buf_free(&rows);
    return memcmp(&hash, &link->hash, sizeof hash) == 0;
}

static void explain(auditing *a, const hx_sqlite_link *link)
{
    for (unsigned i = 0; i < a->row_count; i++) {
        for (unsigned k = i + 1; k < a->row_count; k++) {
            if (!is_swapped(a, link, i, k)) continue;
            hx_audit_problem(a->audit, "rows %" PRId64 " and %" PRId64 " are swapped", link->first_id + i,
                             link->first_id + k);
            return;
        }
    }
    hx_audit_problem(a->audit, "link %" PRId64 ", or one of its rows %" PRId64 " to %" PRId64 ", was changed",
                     link->number, link->first_id, link->last_id);
}

static void check_rows(auditing *a, const hx_sqlite_link *link)
{
    a->covered.len = a->row_count = 0;
    a->is_explained = false;
    for (; a->step == SQLITE_ROW && row_id(a) < link->first_id; next_row(a)) {
        take_row(a);
        hx_audit_problem(a->audit, "row %" PRId64 " is in no link", row_id(a));
    }
    a->covered.len = a->row_count = 0;
    int64_t expected = link->first_id;
    for (; a->step == SQLITE_ROW && row_id(a) <= link->last_id; next_row(a)) {
        miss(a, expected, row_id(a) - 1);
        expected = row_id(a) + 1;
        take_row(a);
    }
    miss(a, expected, link->last_id);
    hx_digest hash = hx_sqlite_link_hash(link, hx_buf_slice(&a->covered));
    if (!a->is_explained && memcmp(&hash, &link->hash, sizeof hash) != 0) explain(a, link);
}

static void check_link(auditing *a, const hx_sqlite_link *link, bool is_first)
{
    const hx_sqlite_link *before = &a->last;
    const hx_audit_anchor *anchor = a->audit->anchor;
    a->audit->links++;
    if (!is_first && link->number != before->number + 1)
        hx_audit_problem(a->audit, "links %" PRId64 " to %" PRId64 " are missing", before->number + 1,
                         link->number - 1);
    else if (!is_first && (memcmp(&link->previous, &before->hash, sizeof link->previous) != 0 ||
                           link->first_id != before->last_id + 1))
        hx_audit_problem(a->audit,
                         "link %" PRId64 " isn't the successor of the one before it: one of the two was changed",
                         link->number);
    check_rows(a, link);
    if (anchor && anchor->sequence == (uint64_t)link->number &&
        memcmp(&anchor->hash, &link->hash, sizeof link->hash) != 0)
        hx_audit_problem(a->audit,
                         "link %" PRId64 " isn't the one of the anchor: it, or something before it, was written anew",
                         link->number);
    a->last = *link;
}

static void check_end(auditing *a, int64_t first)
{
    const hx_audit_anchor *anchor = a->audit->anchor;
    hx_audit *audit = a->audit;
    for (; a->step == SQLITE_ROW; next_row(a), audit->unlinked++) {
        a->row_count = 0;
        a->covered.len = 0;
        take_row(a);
    }
    audit->kept_from = first > 0 ? (uint64_t)a->last.kept : 1;
    audit->head = (hx_audit_anchor){(uint64_t)a->last.number, a->last.hash};
    if (first > a->last.kept)
        hx_audit_problem(audit, "links %" PRId64 " to %" PRId64 " are missing", a->last.kept, first - 1);
    if (!anchor) return;
    if (anchor->sequence > (uint64_t)a->last.number)
        hx_audit_problem(audit,
                         "the chain ends at link %" PRId64 ", before link %" PRIu64
                         " of the anchor: its end was cut off",
                         a->last.number, anchor->sequence);
    else if (anchor->sequence < audit->kept_from)
        hx_audit_problem(audit,
                         "link %" PRIu64 " of the anchor is no longer kept, so nothing can be compared with it; take a "
                         "later anchor",
                         anchor->sequence);
}

static int read_links(auditing *a)
{
    sqlite3 *db = a->tables.db;
    sqlite3_stmt *links = NULL;
    int64_t first = 0;
    int rc = sqlite3_prepare_v2(db, HX_LINK_COLUMNS "ORDER BY number", -1, &links, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(db, "SELECT id, head, op FROM hapax_history ORDER BY id", -1, &a->rows, NULL);
    if (rc == SQLITE_OK) next_row(a);
    hx_sqlite_link link;
    while (rc == SQLITE_OK && (rc = sqlite3_step(links)) == SQLITE_ROW) {
        bool is_first = first == 0;
        if (!hx_sqlite_link_read(links, &link))
            hx_audit_problem(a->audit, "link %" PRId64 " can't be read: its bytes were changed", link.number);
        if (is_first) first = link.number;
        check_link(a, &link, is_first);
        rc = SQLITE_OK;
    }
    if (rc == SQLITE_DONE) check_end(a, first);
    if (rc == SQLITE_DONE && a->step != SQLITE_DONE) rc = a->step;
    (void)sqlite3_finalize(links);
    (void)sqlite3_finalize(a->rows);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

bool hx_audit_sqlite(hx_slice path, hx_audit *audit, hx_error_text error)
{
    hx_arena arena = {0};
    auditing a = {.audit = audit};
    int64_t format = 0;
    uint8_t secret[HX_SECRET_BYTES];
    int rc;
    const char *file = hx_arena_terminated(&arena, path);
    a.tables.db = hx_sqlite_file_connect(file, true, &rc);
    hx_buf_init(&a.covered, NULL, ROWS_BYTES_MAX);
    /* After a crash SQLite's log is for a gateway to write again (sqlite/open.c): it stays as it is. */
    if (rc == SQLITE_OK) (void)sqlite3_db_config(a.tables.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (rc == SQLITE_OK) rc = hx_sqlite_tables_run(&a.tables, HX_SQL_BEGIN_READ);
    if (rc == SQLITE_OK) rc = hx_sqlite_tables_identify(&a.tables, &format, secret);
    explicit_bzero(secret, sizeof secret);
    bool is_known = rc == SQLITE_OK && format == HX_SQLITE_FORMAT;
    if (is_known) rc = read_links(&a);
    if (rc != SQLITE_OK)
        hx_sqlite_file_explain(file, rc, a.tables.db ? sqlite3_system_errno(a.tables.db) : 0, error);
    else if (!is_known)
        (void)hx_fail(error,
                      format == 0 ? "%s has no tables of Hapax"
                                  : "%s has tables of another version of Hapax; "
                                    "start a gateway of this one on it first",
                      file);
    hx_sqlite_tables_end(&a.tables);
    (void)sqlite3_close(a.tables.db);
    hx_buf_free(&a.covered);
    hx_arena_free(&arena);
    return rc == SQLITE_OK && is_known;
}
