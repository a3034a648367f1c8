/* SPDX-License-Identifier: Apache-2.0 */
/* The items of the reference store. The caller holds the store's lock. */
#ifndef HX_STORE_ITEM_TABLE_H
#define HX_STORE_ITEM_TABLE_H

#include "store/item_index.h"
#include "store/store.h"

typedef struct {
    hx_item_index index;
    uint64_t version;
} hx_item_table;

void hx_item_table_init(hx_item_table *items);
/* Performs a commit, get or scan; fills in what it gives back, and returns its result. */
hx_store_result hx_item_table_perform(hx_item_table *items, hx_store_call *call, hx_ms now);
/* Returns how many items it removed. */
uint64_t hx_item_table_sweep(hx_item_table *items, hx_ms now);
void hx_item_table_free(hx_item_table *items);

#endif
