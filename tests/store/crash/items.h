/* SPDX-License-Identifier: Apache-2.0 */
/* Commits of items in the workload, where the store keeps items. Which items a commit changes, and into what, follows
 * from its serial alone. One is under way at a time, beside the calls on operations. */
#ifndef HX_TESTS_CRASH_ITEMS_H
#define HX_TESTS_CRASH_ITEMS_H

#include "store/store.h"

#define ITEMS 40u
#define ITEMS_A_COMMIT 6u

typedef struct {
    uint32_t serial;
    bool is_small; /* of a full disk: it is urgent, and must fit the reserve */
    hx_ms at;
} item_change;

/* What must be found of an item; version 0: it is absent. */
typedef struct {
    uint64_t version;
    item_change by;
} item_truth;

typedef struct {
    item_truth item[ITEMS];
    uint64_t version_max; /* of all that were acknowledged or seen */
    bool asked;           /* a commit was asked for and not answered */
    item_change wanted;
} item_model;

/* The commit that was asked for has happened, under that version. */
void items_happen(item_model *known, uint64_t version);

/* Asks for a commit; items_done tells when it has ended. `refusal`: whether it may be refused for lack of space, asked
 * when it was. */
void items_ask(hx_store *store, hx_loop *loop, uint32_t serial, bool is_small, bool (*refusal)(void));
bool items_done(void);
/* Reads every item: what was acknowledged must be there, and all or nothing of what was only asked for. Afterwards the
 * model knows which. */
void items_reconcile(hx_store *store, hx_loop *loop, const char *when);
/* NULL if every item of the store is as `known` says, and in pages in their order; else what differs. With
 * `unreadable` items that can't be read count as right, and set it. */
const char *items_differ(hx_store *store, hx_loop *loop, const item_model *known, bool *unreadable);
/* The same for the items of the last commit alone. */
const char *items_last_differ(hx_store *store, hx_loop *loop);

#endif
