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

#define HX_RULEBOOK_ROWS 32768u   /* past it all others are 0 */
#define HX_RULEBOOK_BUCKETS 1024u /* of what has no named route, for each version */

typedef struct hx_rulebook hx_rulebook;

typedef struct {
    hx_slice name;   /* of a named route; else empty */
    uint16_t bucket; /* of one that isn't */
    uint32_t version;
} hx_rulebook_row;

hx_rulebook *hx_rulebook_new(void);
void hx_rulebook_free(hx_rulebook **owned);

/* The row that rules belong to: its name points into `route`. */
hx_rulebook_row hx_rulebook_row_of(hx_slice route, uint32_t version);
/* Its number, from 1 on; 0: there is no room to tell it from others. */
uint16_t hx_rulebook_number(hx_rulebook *book, const hx_rulebook_row *row);
/* One more or fewer live under that number. */
void hx_rulebook_count(hx_rulebook *book, uint16_t number, int by);

/* Any thread. */
uint32_t hx_rulebook_size(const hx_rulebook *book); /* numbers below it are known, 0 too */
hx_rulebook_row hx_rulebook_row_at(const hx_rulebook *book, uint16_t number);
/* Whether an operation with that number may be of the route; certain for named ones. */
bool hx_rulebook_may_be(const hx_rulebook *book, uint16_t number, hx_slice route);
/* The same for any of several paths without a named route, whose parts were marked before. */
typedef struct {
    uint64_t bits[HX_RULEBOOK_BUCKETS / 64];
} hx_rulebook_parts;

void hx_rulebook_mark(hx_rulebook_parts *parts, hx_slice path);
bool hx_rulebook_may_be_in(const hx_rulebook *book, uint16_t number, const hx_rulebook_parts *parts);
/* Adds up for hx_store_rules. */
void hx_rulebook_report(const hx_rulebook *book, hx_arena *arena, hx_store_rules *out);
/* For hx_store_live_at_most. */
uint64_t hx_rulebook_live_at_most(const hx_rulebook *book, hx_slice route);

#endif
