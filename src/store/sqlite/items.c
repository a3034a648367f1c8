/* SPDX-License-Identifier: Apache-2.0 */
/* Items in the table hapax_items, inside a transaction that the caller has begun.
 *
 * A page is read by a statement that starts at a place and goes on in the order of keys or of queues. What the page
 * leaves out (the rest of a queue, what isn't due yet) is passed over by starting the statement again behind it: the
 * first items of many queues are found without reading the rest of any of them. */
#include "store/sqlite/sqlite.h"

#include "base/check.h"
#include "base/utf8.h"

#include <string.h>

#define OVER_BYTES_MAX (8u << 20)

size_t hx_sqlite_item_bytes(const hx_store_call *commit)
{
    size_t bytes = 0;
    for (size_t i = 0; i < commit->item_count; i++) {
        const hx_item *item = &commit->items[i];
        bytes += item->key.len + item->queue.len + item->meta.len + item->body.len;
    }
    return bytes;
}

static int find(hx_sqlite_tables *rows, hx_slice key, hx_ms now, hx_sqlite_item_row *out, uint64_t *version)
{
    sqlite3_stmt *q;
    *out = (hx_sqlite_item_row){0};
    *version = 0;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_ITEM_FIND, &q);
    if (rc != SQLITE_OK) return rc;
    hx_sqlite_bind_bytes(q, 1, key);
    rc = sqlite3_step(q);
    if (rc == SQLITE_ROW) {
        *out = (hx_sqlite_item_row){sqlite3_column_int64(q, 0), (hx_ms)sqlite3_column_int64(q, 2)};
        if (!hx_item_is_over(out->expires_at, now)) *version = (uint64_t)sqlite3_column_int64(q, 1);
    }
    hx_sqlite_tables_reset(q);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int hx_sqlite_items_compare(hx_sqlite_tables *rows, hx_store_call *commit, hx_ms now, hx_sqlite_item_row *found)
{
    for (size_t i = 0; i < commit->item_count; i++) {
        uint64_t version;
        int rc = find(rows, commit->items[i].key, now, &found[i], &version);
        if (rc != SQLITE_OK) return rc;
        if (version == commit->items[i].version) continue;
        commit->stale = &commit->items[i];
        return SQLITE_OK;
    }
    return SQLITE_OK;
}

/* Whether SQLite and its tools read all of it as text. */
static bool is_text(hx_slice meta)
{
    const char *end = meta.ptr + meta.len;
    size_t len;
    for (const char *at = meta.ptr; at < end; at += len)
        if ((len = *at != '\0' ? hx_utf8_bytes(at, end) : 0) == 0) return false;
    return true;
}

static int put(hx_sqlite_tables *rows, const hx_item *item, uint64_t version, const hx_sqlite_item_row *old)
{
    /* An UPDATE writes every index anew that has one of its columns: expires_at is left out where it stays. */
    hx_sql which = old->id == 0                          ? HX_SQL_ITEM_INSERT
                   : old->expires_at == item->expires_at ? HX_SQL_ITEM_UPDATE
                                                         : HX_SQL_ITEM_REPLACE;
    sqlite3_stmt *q;
    int rc = hx_sqlite_tables_prepare(rows, which, &q);
    if (rc != SQLITE_OK) return rc;
    if (old->id != 0) (void)sqlite3_bind_int64(q, 1, old->id);
    hx_sqlite_bind_bytes(q, 2, item->key);
    (void)sqlite3_bind_int64(q, 3, (sqlite3_int64)version);
    if (item->queue.len > 0) hx_sqlite_bind_bytes(q, 4, item->queue);
    (void)sqlite3_bind_int64(q, 5, item->due);
    (void)sqlite3_bind_int64(q, 6, item->expires_at);
    if (is_text(item->meta))
        hx_sqlite_bind_text(q, 7, item->meta);
    else
        hx_sqlite_bind_bytes(q, 7, item->meta);
    hx_sqlite_bind_bytes(q, 8, item->body);
    return hx_sqlite_tables_finish(q);
}

static int drop(hx_sqlite_tables *rows, const hx_sqlite_item_row *old)
{
    sqlite3_stmt *q;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_ITEM_DELETE, &q);
    if (rc != SQLITE_OK) return rc;
    (void)sqlite3_bind_int64(q, 1, old->id);
    return hx_sqlite_tables_finish(q);
}

int hx_sqlite_items_write(hx_sqlite_tables *rows, const hx_store_call *commit, const hx_sqlite_item_row *found)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; i < commit->item_count && rc == SQLITE_OK; i++) {
        const hx_item *item = &commit->items[i];
        if (item->act == HX_ITEM_PUT)
            rc = put(rows, item, commit->version, &found[i]);
        else if (item->act == HX_ITEM_REMOVE && found[i].id != 0)
            rc = drop(rows, &found[i]);
    }
    return rc;
}

/* Reading */

static hx_slice meta_of(sqlite3_stmt *q)
{
    if (sqlite3_column_type(q, 5) == SQLITE_BLOB) return hx_sqlite_column_bytes(q, 5);
    const char *text = (const char *)sqlite3_column_text(q, 5); /* UTF-8, whatever the encoding of the database is */
    return (hx_slice){text, (size_t)sqlite3_column_bytes(q, 5)};
}

/* Copies a row of HX_ITEM_COLUMNS. */
static void show(sqlite3_stmt *q, hx_arena *arena, hx_item *out)
{
    *out = (hx_item){.key = hx_arena_copy(arena, hx_sqlite_column_bytes(q, 0)),
                     .version = (uint64_t)sqlite3_column_int64(q, 1),
                     .queue = hx_arena_copy(arena, hx_sqlite_column_bytes(q, 2)),
                     .due = (hx_ms)sqlite3_column_int64(q, 3),
                     .expires_at = (hx_ms)sqlite3_column_int64(q, 4),
                     .meta = hx_arena_copy(arena, meta_of(q)),
                     .body = hx_arena_copy(arena, hx_sqlite_column_bytes(q, 6))};
}

static int get(hx_sqlite_tables *rows, hx_store_call *call, hx_arena *arena, hx_ms now)
{
    sqlite3_stmt *q;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_ITEM_GET, &q);
    for (size_t i = 0; i < call->item_count && rc == SQLITE_OK; i++) {
        hx_item *out = &call->items[i];
        const hx_slice key = out->key; /* a second pass needs it, after the arena of the first was freed */
        *out = (hx_item){.key = key, .queue = HX_EMPTY, .meta = HX_EMPTY, .body = HX_EMPTY};
        hx_sqlite_bind_bytes(q, 3, key);
        (void)sqlite3_bind_int(q, 4, 1);
        rc = sqlite3_step(q);
        if (rc == SQLITE_ROW && !hx_item_is_over((hx_ms)sqlite3_column_int64(q, 4), now)) show(q, arena, out);
        out->key = key;
        hx_sqlite_tables_reset(q);
        if (rc == SQLITE_ROW || rc == SQLITE_DONE) rc = SQLITE_OK;
    }
    return rc;
}

/* Where a statement starts: forwards at the first item that isn't before it, backwards at the last one before it. */
typedef struct {
    char queue[HX_ITEM_QUEUE_MAX + 1], key[HX_ITEM_KEY_MAX + 1];
    size_t queue_len, key_len;
    hx_ms due;
} place;

static void set_place(place *p, hx_slice queue, hx_ms due, hx_slice key)
{
    HX_CHECK(queue.len <= sizeof p->queue && key.len <= sizeof p->key);
    p->due = due;
    p->queue_len = queue.len;
    p->key_len = key.len;
    if (queue.len > 0) memcpy(p->queue, queue.ptr, queue.len);
    if (key.len > 0) memcpy(p->key, key.ptr, key.len);
}

/* The least bytes that are greater than all that begin with `prefix`, or than any of `max` bytes. */
static hx_slice behind(hx_slice prefix, size_t max, char *out)
{
    size_t len = prefix.len;
    HX_CHECK(len <= max);
    if (len > 0) memcpy(out, prefix.ptr, len);
    while (len > 0 && (unsigned char)out[len - 1] == 0xff) len--;
    if (len > 0)
        out[len - 1] = (char)((unsigned char)out[len - 1] + 1);
    else
        memset(out, 0xff, len = max + 1);
    return (hx_slice){out, len};
}

static void start(const hx_item_page *page, place *p)
{
    char bytes[HX_ITEM_KEY_MAX + 1];
    const hx_item *after = &page->after;
    hx_slice bound = page->prefix, at = page->by_queue ? after->queue : after->key;
    if (page->backwards) bound = behind(bound, page->by_queue ? HX_ITEM_QUEUE_MAX : HX_ITEM_KEY_MAX, bytes);
    /* A place outside the prefix is as good as none. */
    if (after->key.len > 0 && (hx_slice_compare(at, bound) < 0) == page->backwards) {
        set_place(p, page->by_queue ? after->queue : HX_EMPTY, after->due, after->key);
        if (!page->backwards) p->key[p->key_len++] = '\0';
    } else {
        set_place(p, page->by_queue ? bound : HX_EMPTY, 0, page->by_queue ? HX_EMPTY : bound);
    }
}

/* Passes over what the page leaves out of the row's queue. */
static void jump(const hx_item_page *page, sqlite3_stmt *q, place *p)
{
    set_place(p, hx_sqlite_column_bytes(q, 2), page->backwards ? page->due_until + 1 : 0, HX_EMPTY);
    if (!page->backwards) p->queue[p->queue_len++] = '\0'; /* which no name of a queue has */
}

static void start_at(sqlite3_stmt *q, const place *p, bool with_bodies)
{
    hx_sqlite_tables_reset(q);
    hx_sqlite_bind_bytes(q, 1, (hx_slice){p->queue, p->queue_len});
    (void)sqlite3_bind_int64(q, 2, p->due);
    hx_sqlite_bind_bytes(q, 3, (hx_slice){p->key, p->key_len});
    (void)sqlite3_bind_int(q, 4, with_bodies);
}

static int scan(hx_sqlite_tables *rows, hx_item_page *page, hx_arena *arena, hx_ms now)
{
    static const hx_sql statements[2][2] = {{HX_SQL_ITEMS_BY_KEY, HX_SQL_ITEMS_BY_KEY_BACK},
                                            {HX_SQL_ITEMS_BY_QUEUE, HX_SQL_ITEMS_BY_QUEUE_BACK}};
    sqlite3_stmt *q;
    place p;
    page->items = NULL;
    page->count = page->bytes = 0;
    page->more = false;
    int rc = hx_sqlite_tables_prepare(rows, statements[page->by_queue][page->backwards], &q);
    if (rc != SQLITE_OK) return rc;
    start(page, &p);
    start_at(q, &p, page->with_bodies);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        bool is_late = page->by_queue && page->due_until > 0 && sqlite3_column_int64(q, 3) > page->due_until;
        if (!hx_slice_starts(hx_sqlite_column_bytes(q, page->by_queue ? 2 : 0), page->prefix)) break;
        if (!is_late && hx_item_is_over((hx_ms)sqlite3_column_int64(q, 4), now)) continue;
        if (!is_late) {
            hx_item *out = hx_item_page_add(page, arena, meta_of(q).len + hx_sqlite_column_bytes(q, 6).len);
            if (!out) break;
            show(q, arena, out);
            if (!page->one_per_queue) continue;
        }
        jump(page, q, &p);
        start_at(q, &p, page->with_bodies);
    }
    hx_sqlite_tables_reset(q);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int hx_sqlite_items_read(hx_sqlite_tables *rows, hx_store_call *call, hx_arena *arena, hx_ms now)
{
    return call->verb == HX_STORE_GET ? get(rows, call, arena, now) : scan(rows, call->item_page, arena, now);
}

/* Sweeping */

/* What expires at this time or earlier is over: a lifetime ends with its second. */
static hx_ms ended(hx_ms now)
{
    return (now - hx_clock_held()) / HX_SECOND * HX_SECOND;
}

int hx_sqlite_items_over(hx_sqlite_tables *rows, hx_ms now, unsigned max, unsigned *count)
{
    sqlite3_stmt *q;
    size_t bytes = 0;
    *count = 0;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_ITEMS_OVER, &q);
    if (rc != SQLITE_OK) return rc;
    (void)sqlite3_bind_int64(q, 1, ended(now));
    (void)sqlite3_bind_int64(q, 2, max);
    while (bytes < OVER_BYTES_MAX && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        bytes += (size_t)sqlite3_column_int64(q, 0);
        ++*count;
    }
    hx_sqlite_tables_reset(q);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int hx_sqlite_items_drop(hx_sqlite_tables *rows, hx_ms now, unsigned max, unsigned *dropped)
{
    sqlite3_stmt *q;
    *dropped = 0;
    int rc = hx_sqlite_tables_prepare(rows, HX_SQL_ITEMS_DROP, &q);
    if (rc != SQLITE_OK) return rc;
    (void)sqlite3_bind_int64(q, 1, ended(now));
    (void)sqlite3_bind_int64(q, 2, max);
    rc = hx_sqlite_tables_finish(q);
    if (rc == SQLITE_OK) *dropped = (unsigned)sqlite3_changes(rows->db);
    return rc;
}
