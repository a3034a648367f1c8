/* SPDX-License-Identifier: Apache-2.0 */
/* Under which rules the operations of a store stand: a number for each, which fits the index, and how many live under
 * it. Rules are a route's name and its version. Operations under the defaults have no named route but method and path,
 * of which there may be any number: they share a number by version and a hash of that text, so that one path's can
 * still be ruled out, or found among few.
 *
 * One thread at a time takes numbers and counts; any thread reads. */
#ifndef HX_STORE_JOURNAL_ROUTE_IDS_H
#define HX_STORE_JOURNAL_ROUTE_IDS_H

#include "store/store.h"

#define HX_ROUTE_IDS_ROWS 32768u   /* number of ids; when they are used up, further rules get id 0 */
#define HX_ROUTE_IDS_BUCKETS 1024u /* buckets per rule version, for operations without a named route */

typedef struct hx_route_ids hx_route_ids;

typedef struct {
    hx_slice name;   /* name of the route; empty: not a named one */
    uint16_t bucket; /* bucket, where the route has no name */
    uint32_t version;
} hx_route_ids_row;

hx_route_ids *hx_route_ids_new(void);
void hx_route_ids_free(hx_route_ids **owned);

/* The row that rules belong to: its name points into `route`. */
hx_route_ids_row hx_route_ids_row_of(hx_slice route, uint32_t version);
/* Its number, from 1 on; 0: all numbers are taken, and it is counted among the others. */
uint16_t hx_route_ids_number(hx_route_ids *book, const hx_route_ids_row *row);
/* One more or fewer live under that number. */
void hx_route_ids_count(hx_route_ids *book, uint16_t number, int by);

/* Any thread. */
uint32_t hx_route_ids_size(const hx_route_ids *book); /* ids below it are in use, also 0 */
hx_route_ids_row hx_route_ids_row_at(const hx_route_ids *book, uint16_t number);
/* Whether an operation with that number may be of the route; certain for named ones. */
bool hx_route_ids_may_be(const hx_route_ids *book, uint16_t number, hx_slice route);
/* The same for any of several paths without a named route, whose parts were marked before. */
typedef struct {
    uint64_t bits[HX_ROUTE_IDS_BUCKETS / 64];
} hx_route_ids_parts;

void hx_route_ids_mark(hx_route_ids_parts *parts, hx_slice path);
bool hx_route_ids_may_be_in(const hx_route_ids *book, uint16_t number, const hx_route_ids_parts *parts);
/* Adds up for hx_store_rules. */
void hx_route_ids_report(const hx_route_ids *book, hx_arena *arena, hx_store_rules *out);
/* For hx_store_live_at_most. */
uint64_t hx_route_ids_live_at_most(const hx_route_ids *book, hx_slice route);

#endif
