/* SPDX-License-Identifier: Apache-2.0 */
/* The backend's side of store.h: what a store implements, and what all of them share. A backend's struct begins with
 * hx_store, its state of a call is a member of the union in hx_store_call.own (store/call_state.h). */
#ifndef HX_STORE_BACKEND_H
#define HX_STORE_BACKEND_H

#include "store/store.h"

typedef struct {
    void (*attach)(hx_store *store, hx_loop *loop);
    void (*submit)(hx_store *store, hx_store_call *call);
    void (*cancel)(hx_store *store, hx_store_call *call);
    hx_peek (*peek)(hx_store *store, const hx_op *op, hx_arena *arena, size_t whole_max, hx_record *found);
    void (*count)(hx_store *store, hx_store_counts *out);
    void (*close)(hx_store *store);
    void (*rules)(hx_store *store, hx_arena *arena, hx_store_rules *out);
    uint64_t (*live_at_most)(hx_store *store, hx_slice route);
    bool (*limit)(hx_store *store, const hx_store_options *options, hx_error_text error);
    bool (*last_epoch)(hx_store *store, uint64_t *epoch, hx_error_text error);
} hx_store_ops;

struct hx_store { /* the first member of every backend's own struct */
    const hx_store_ops *ops;
    hx_store_facts facts;
    /* Jobs that were not run: those in the item, as last seen, and those that are still to be added to it. */
    _Atomic uint64_t conflicts_kept, conflicts_new;
};

#define HX_STORE_WAITERS_PER_OP_MAX 1000u
#define HX_STORE_WAITERS_MAX 10000u

/* For stores that go by this machine's clock: compares the wall clock with the last stamp in the store, 0 where it is
 * empty, and with moves_clock sets the process's clock by both. False with a sentence in `error` where that can't be
 * right; nothing has changed then. */
bool hx_store_follow_wall(const hx_store_options *options, hx_ms stamp, hx_error_text error) HX_MUST_USE;

/* Decides a claim, settle, renew, forget or import: HX_STORE_OK, or the result with which it is refused. */
hx_store_result hx_store_decide(const hx_store_call *call, hx_stored stored);
/* Whether the record matches the filter. */
bool hx_store_page_wants(const hx_store_page *page, const hx_record *record);
/* Whether a version belongs to the history that the call asks for. */
bool hx_store_history_wants(const hx_store_call *call, const hx_record *record);
/* Adds a copy of the record; the page isn't full. */
void hx_store_page_add(hx_store_page *page, hx_arena *arena, const hx_record *record);
/* Adds a copy of the record, or, where the page is full, lets the next page begin at it. */
void hx_store_page_offer(hx_store_page *page, hx_arena *arena, const hx_record *record, uint64_t cursor);
/* A place for one more item, with so many bytes of meta and body; NULL: the page is full. */
hx_item *hx_item_page_add(hx_item_page *page, hx_arena *arena, size_t bytes);
/* Whether a claim of this record is under rules that are retired; `rules` may be NULL. */
bool hx_store_is_retired(const hx_store_rules *rules, const hx_record *record);

hx_store *hx_journal_open(hx_slice path, const hx_store_options *options, hx_error_text error);
hx_store *hx_sqlite_open(hx_slice path, const hx_store_options *options, hx_error_text error);
/* `url` as libpq reads it. */
hx_store *hx_postgres_open(hx_slice url, const hx_store_options *options, hx_error_text error);

#endif
