/* SPDX-License-Identifier: Apache-2.0 */
/* The payload of a frame of items: one commit, or items that a sweep has copied forward together. item_frame.c has its
 * bytes. */
#ifndef HX_STORE_JOURNAL_ITEM_FRAME_H
#define HX_STORE_JOURNAL_ITEM_FRAME_H

#include "store/item_bytes.h"
#include "store/journal/segment.h"

#define HX_ITEM_FRAME_MAX                                                                                              \
    (sizeof(hx_frame_head) + HX_ITEM_TABLE_BYTES + HX_COMMIT_ITEMS_MAX * HX_ITEM_HEAD_BYTES + HX_COMMIT_BYTES_MAX)
#define HX_ITEM_TABLE_BYTES 12u /* without the heads */

/* Encodes the changes of a commit, or with `moved` items as they are, under their versions. The payload is in `arena`;
 * empty: nothing is changed. */
hx_slice hx_item_frame_encode(const hx_item *items, size_t count, bool moved, hx_arena *arena);
/* The length of the table at the beginning of a payload of `len` bytes; 0: it has none. */
size_t hx_item_frame_table_len(const char *payload, size_t len);
/* Whether the table is as it was written. */
bool hx_item_table_is_whole(hx_slice table);
/* Whether a store could have written that table in this frame. */
bool hx_item_table_is_possible(hx_slice table, const hx_frame_head *frame, bool moved);
/* Whether the contents of all items, behind the table, are as they were written. */
bool hx_item_contents_are_whole(hx_slice payload, size_t table_len);
/* The number of its items. */
uint32_t hx_item_table_count(hx_slice table);
/* Lets meta and body point into the payload, whose table is possible. */
void hx_item_head_fill(hx_item_head *head, hx_slice payload);
/* The heads of all items, for hx_item_head_take. */
static inline hx_slice hx_item_table_heads(hx_slice table)
{
    return (hx_slice){table.ptr + 8, table.len - HX_ITEM_TABLE_BYTES};
}

#endif
