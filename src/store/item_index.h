/* SPDX-License-Identifier: Apache-2.0 */
/* An index of items in memory, by key and by queue, for stores that have none on disk: what an item is ordered by, and
 * where its contents are. One thread at a time. */
#ifndef HX_STORE_ITEM_INDEX_H
#define HX_STORE_ITEM_INDEX_H

#include "base/memory/tree.h"
#include "store/items.h"

typedef struct {
    hx_tree_node by_key, by_queue;
    uint64_t version;
    hx_ms due;
    hx_ms expires_at;
    union {
        char *contents; /* memory: meta, then body */
        struct {
            uint32_t segment;
            uint32_t unit; /* offset of its frame / HX_PLACE_UNIT */
            uint32_t at;   /* offset of its meta in the frame, which its body follows */
            uint32_t meta_crc, body_crc;
        } place; /* journal */
    };
    uint32_t meta_len, body_len;
    uint16_t key_len;
    uint8_t queue_len;
    char bytes[]; /* queue, NUL, due with its highest byte first, key: the order of queues; the key is its end */
} hx_indexed_item;

typedef struct {
    hx_tree by_key, by_queue;
} hx_item_index;

void hx_item_index_init(hx_item_index *index);
/* Frees all items; their contents in memory are the caller's. */
void hx_item_index_free(hx_item_index *index);
hx_slice hx_indexed_key(const hx_indexed_item *item);
hx_slice hx_indexed_queue(const hx_indexed_item *item);
/* An item with the key, queue, times and lengths of `from`, under this version; owned by the caller until it is put. */
hx_indexed_item *hx_indexed_new(const hx_item *from, uint64_t version);

/* The bytes that it has on a page. */
static inline size_t hx_indexed_bytes(const hx_indexed_item *item, bool with_body)
{
    return (size_t)item->meta_len + (with_body ? item->body_len : 0);
}
/* Copies all but meta and body. */
void hx_item_show(const hx_indexed_item *item, hx_arena *arena, hx_item *out);

hx_indexed_item *hx_item_index_find(const hx_item_index *index, hx_slice key);
/* Returns the item of the same key that it replaces, for the caller to free, or NULL. */
hx_indexed_item *hx_item_index_put(hx_item_index *index, hx_indexed_item *item);
void hx_item_index_remove(hx_item_index *index, hx_indexed_item *item);
/* The first item of a page, and the one behind `last`; NULL: there is none. What has expired at `now` is left out. */
hx_indexed_item *hx_item_index_first(const hx_item_index *index, const hx_item_page *page, hx_ms now);
hx_indexed_item *hx_item_index_next(const hx_item_index *index, const hx_item_page *page, const hx_indexed_item *last,
                                    hx_ms now);

#endif
