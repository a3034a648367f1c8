/* SPDX-License-Identifier: Apache-2.0 */
/* Reads which operations a request is about, from a query or a `filter` object, into a page for hx_store_list. */
#ifndef HX_ADMIN_FILTER_H
#define HX_ADMIN_FILTER_H

#include "core/crypto/mac.h"
#include "store/store.h"

#define HX_FILTER_LIMIT 100u /* rows of a page by default */

/* The surroundings of the functions below. */
typedef struct {
    hx_arena *arena;
    hx_mac *mac; /* keyed with the store's secret */
    hx_ms now;
} hx_filter_reader;

/* Each returns NULL on success, else a sentence that says what is wrong. Members of `page` that the filter doesn't name
 * are left as they are. */

/* "state=unknown&route=refunds": percent-encoded, "+" is itself. */
const char *hx_filter_query(const hx_filter_reader *reader, hx_slice query, hx_store_page *page) HX_MUST_USE;
/* A raw, well-formed JSON object whose members are strings; without limit and cursor. */
const char *hx_filter_json(const hx_filter_reader *reader, hx_slice object, hx_store_page *page) HX_MUST_USE;

/* Whether the filter excludes anything. */
bool hx_filter_narrows(const hx_store_page *page);

/* An RFC 3339 time, or an age: "90s", "30m", "2h", "7d". */
bool hx_filter_time(hx_slice text, hx_ms now, hx_ms *at) HX_MUST_USE;

#endif
