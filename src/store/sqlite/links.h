/* SPDX-License-Identifier: Apache-2.0 */
/* The chain over hapax_history, by which `hapax audit verify` finds rows that were changed later. A change of state and
 * its row are one commit; the row is linked by the next sweep of any process, within about a second. links.c has the
 * format. As in tables.h, nothing here begins or ends a transaction. */
#ifndef HX_STORE_SQLITE_LINKS_H
#define HX_STORE_SQLITE_LINKS_H

#include "store/sqlite/tables.h"

#define HX_LINK_ROWS_MAX 64u

/* A link: it covers the rows first_id to last_id; none if first_id is greater. */
typedef struct {
    int64_t number, first_id, last_id;
    hx_ms at;
    int64_t kept; /* number of the first link that was kept when this was made: those before were removed */
    hx_digest previous, hash;
} hx_sqlite_link;

/* The hash of a link over `rows`: the id (8 bytes), the length (8) and the bytes of each head. */
hx_digest hx_sqlite_link_hash(const hx_sqlite_link *link, hx_slice rows);
void hx_sqlite_link_put_row(hx_buf *rows, int64_t id, hx_slice head);
/* Reads a row of "SELECT number, first_id, last_id, at, kept, previous, hash". False: it is damaged. */
bool hx_sqlite_link_read(sqlite3_stmt *statement, hx_sqlite_link *out);

/* Whether there are rows that aren't linked. */
int hx_sqlite_links_pending(hx_sqlite_tables *rows, bool *out);
/* Links some of them. With `kept` > 0 it makes at least one link, the checkpoint of what was removed. */
int hx_sqlite_links_add(hx_sqlite_tables *rows, hx_ms now, int64_t kept);
/* Removes links, and the rows that they cover, whose rows are all among those up to `past`. *kept is the number of the
 * first that stays, 0: nothing was removed. */
int hx_sqlite_links_drop(hx_sqlite_tables *rows, int64_t past, int64_t *kept);

#endif
