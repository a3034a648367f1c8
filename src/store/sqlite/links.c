/* SPDX-License-Identifier: Apache-2.0 */
/* One chain covers the rows of all processes: SQLite lets one of them write at a time, so ids are in the order of the
 * commits and have no gaps, and whoever sweeps links what is new. A link of hapax_links covers up to 64 rows. Its hash
 * is the SHA-256 of
 *
 *     0  40  number, first_id, last_id, at, kept, 8 bytes each, little-endian
 *    40  32  hash of the link before it; zeros for the first
 *    72   …  id (8), length (8) and bytes of each row's head
 *
 * Retention removes whole links with their rows, and adds one in the same commit whose `kept` says so: a checkpoint,
 * which is a part of the chain. */
#include "store/sqlite/links.h"

#include "base/check.h"
#include "core/crypto/sha256.h"

#include <string.h>

#define ROWS_A_STEP 2048u
#define DROPS_A_STEP 512
#define PREFIX_BYTES (5 * sizeof(int64_t) + sizeof(hx_digest))
#define BUFFER_BYTES (PREFIX_BYTES + HX_LINK_ROWS_MAX * (2 * sizeof(int64_t) + HX_RECORD_HEAD_MAX) + HX_SHA256_ROOM)

hx_digest hx_sqlite_link_hash(const hx_sqlite_link *link, hx_slice rows)
{
    const int64_t numbers[] = {link->number, link->first_id, link->last_id, link->at, link->kept};
    hx_buf all;
    hx_buf_init(&all, NULL, PREFIX_BYTES + rows.len + HX_SHA256_ROOM);
    hx_buf_put(&all, (hx_slice){(const char *)numbers, sizeof numbers});
    hx_buf_put(&all, (hx_slice){(const char *)&link->previous, sizeof link->previous});
    hx_buf_put(&all, rows);
    size_t len = all.len;
    static const char room[HX_SHA256_ROOM];
    hx_buf_put(&all, (hx_slice){room, sizeof room});
    hx_digest hash = hx_sha256_end(NULL, 0, (uint8_t *)all.data, len);
    hx_buf_free(&all);
    return hash;
}

void hx_sqlite_link_put_row(hx_buf *rows, int64_t id, hx_slice head)
{
    const int64_t numbers[] = {id, (int64_t)head.len};
    hx_buf_put(rows, (hx_slice){(const char *)numbers, sizeof numbers});
    hx_buf_put(rows, head);
}

bool hx_sqlite_link_read(sqlite3_stmt *s, hx_sqlite_link *out)
{
    hx_slice previous = hx_sqlite_column_bytes(s, 5), hash = hx_sqlite_column_bytes(s, 6);
    *out = (hx_sqlite_link){.number = sqlite3_column_int64(s, 0),
                            .first_id = sqlite3_column_int64(s, 1),
                            .last_id = sqlite3_column_int64(s, 2),
                            .at = sqlite3_column_int64(s, 3),
                            .kept = sqlite3_column_int64(s, 4)};
    if (previous.len != sizeof out->previous || hash.len != sizeof out->hash) return false;
    memcpy(&out->previous, previous.ptr, previous.len);
    memcpy(&out->hash, hash.ptr, hash.len);
    return true;
}

int hx_sqlite_links_pending(hx_sqlite_tables *rows, bool *out)
{
    sqlite3_stmt *q;
    *out = false;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_LINK_PENDING, &q);
    if (rc != SQLITE_OK) return rc;
    rc = sqlite3_step(q);
    if (rc == SQLITE_ROW) *out = sqlite3_column_int(q, 0) != 0;
    hx_sqlite_tables_reset(q);
    return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

/* The last link; all zeros where there is none. */
static int read_last(hx_sqlite_tables *rows, hx_sqlite_link *out)
{
    sqlite3_stmt *q;
    *out = (hx_sqlite_link){.kept = 1};
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_LINK_LAST, &q);
    if (rc != SQLITE_OK) return rc;
    rc = sqlite3_step(q);
    bool is_damaged = rc == SQLITE_ROW && !hx_sqlite_link_read(q, out);
    hx_sqlite_tables_reset(q);
    if (is_damaged) return SQLITE_CORRUPT;
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int insert(hx_sqlite_tables *rows, const hx_sqlite_link *link)
{
    sqlite3_stmt *s;
    const int64_t numbers[] = {link->number, link->first_id, link->last_id, link->at, link->kept};
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_LINK_INSERT, &s);
    if (rc != SQLITE_OK) return rc;
    for (int i = 0; i < 5; i++) (void)sqlite3_bind_int64(s, i + 1, numbers[i]);
    hx_sqlite_bind_bytes(s, 6, (hx_slice){(const char *)&link->previous, sizeof link->previous});
    hx_sqlite_bind_bytes(s, 7, (hx_slice){(const char *)&link->hash, sizeof link->hash});
    return hx_sqlite_tables_finish(s);
}

/* Makes the link behind `link` of the rows that are next, and puts it there. *count is how many there were; without any
 * the link is made only if it says that others were removed. */
static int add_one(hx_sqlite_tables *rows, sqlite3_stmt *q, hx_buf *buf, hx_ms now, int64_t kept, hx_sqlite_link *link,
                   unsigned *count)
{
    int rc = SQLITE_DONE;
    hx_sqlite_link next = {.number = link->number + 1,
                           .first_id = link->last_id + 1,
                           .last_id = link->last_id,
                           .at = now,
                           .kept = kept,
                           .previous = link->hash};
    buf->len = 0;
    *count = 0;
    (void)sqlite3_bind_int64(q, 1, link->last_id);
    (void)sqlite3_bind_int64(q, 2, HX_LINK_ROWS_MAX);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        next.last_id = sqlite3_column_int64(q, 0);
        if ((*count)++ == 0) next.first_id = next.last_id; /* the first of all may have had others before it */
        hx_sqlite_link_put_row(buf, next.last_id, hx_sqlite_column_bytes(q, 1));
    }
    hx_sqlite_tables_reset(q);
    if (rc != SQLITE_DONE) return rc;
    if (*count == 0 && kept == link->kept) return SQLITE_OK;
    next.hash = hx_sqlite_link_hash(&next, hx_buf_slice(buf));
    *link = next;
    return insert(rows, link);
}

int hx_sqlite_links_add(hx_sqlite_tables *rows, hx_ms now, int64_t kept)
{
    hx_sqlite_link link;
    sqlite3_stmt *q;
    hx_buf buf;
    unsigned count = HX_LINK_ROWS_MAX;
    int rc = read_last(rows, &link);
    if (kept == 0) kept = link.kept;
    if (rc == SQLITE_OK) rc = hx_sqlite_tables_prepare(rows, HX_SQL_LINK_ROWS, &q);
    if (rc != SQLITE_OK) return rc;
    hx_buf_init(&buf, NULL, BUFFER_BYTES);
    for (unsigned left = ROWS_A_STEP / HX_LINK_ROWS_MAX; left > 0 && count == HX_LINK_ROWS_MAX && rc == SQLITE_OK;
         left--)
        rc = add_one(rows, q, &buf, now, kept, &link, &count);
    hx_buf_free(&buf);
    return rc;
}

int hx_sqlite_links_drop(hx_sqlite_tables *rows, int64_t past, int64_t *kept)
{
    sqlite3_stmt *q;
    int64_t number = 0, last_id = 0;
    *kept = 0;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_LINK_COVERED, &q);
    if (rc != SQLITE_OK) return rc;
    (void)sqlite3_bind_int64(q, 1, past);
    (void)sqlite3_bind_int64(q, 2, DROPS_A_STEP);
    rc = sqlite3_step(q);
    if (rc == SQLITE_ROW) {
        number = sqlite3_column_int64(q, 0);
        last_id = sqlite3_column_int64(q, 1);
    }
    hx_sqlite_tables_reset(q);
    if (rc != SQLITE_ROW || number == 0) return rc == SQLITE_ROW ? SQLITE_OK : rc;
    rc = hx_sqlite_tables_drop_past(rows, last_id);
    if (rc == SQLITE_OK) rc = hx_sqlite_tables_prepare(rows, HX_SQL_LINK_DROP, &q);
    if (rc != SQLITE_OK) return rc;
    (void)sqlite3_bind_int64(q, 1, number);
    *kept = number + 1;
    return hx_sqlite_tables_finish(q);
}
