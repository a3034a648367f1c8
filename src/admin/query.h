/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the query of a request, and pages of items. Functions that return a sentence return NULL on success. */
#ifndef HX_ADMIN_QUERY_H
#define HX_ADMIN_QUERY_H

#include "base/memory/buf.h"
#include "store/items.h"

/* Takes the next parameter off the front of *query, its value percent-decoded ("+" is itself). False at the end, or
 * with a sentence in *wrong, which the caller has set to NULL. */
bool hx_admin_query_next(hx_slice *query, hx_arena *arena, hx_slice *name, hx_slice *value, const char **wrong);

/* A parameter that a request may have. */
typedef struct {
    const char *name;
    hx_slice *value; /* empty when it isn't given */
} hx_admin_word;

/* Reads a query that may have these parameters, up to 32, each once, and no others. */
const char *hx_admin_query(hx_slice query, hx_arena *arena, const hx_admin_word *words, size_t count) HX_MUST_USE;

#define HX_ADMIN_PAGE_ITEMS 100u /* of a page by default */

/* The parameters `limit` and `cursor` of a list of items; empty: the defaults. The page's filter is the caller's: a
 * cursor chooses where a page begins, never what may be in it. */
const char *hx_admin_page(hx_slice limit, hx_slice cursor, hx_arena *arena, hx_item_page *page) HX_MUST_USE;
/* The member `cursor`, if there may be another page. */
void hx_admin_put_cursor(hx_buf *out, const hx_item_page *page);
#define HX_ADMIN_CURSOR_BYTES (2u * (HX_ITEM_KEY_MAX + HX_ITEM_QUEUE_MAX + 24u) + 16u)

#endif
