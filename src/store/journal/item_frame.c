/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of items in a frame:
 *
 *     0  4  length of the table, up to and with its CRC
 *     4  4  number of items
 *     8  …  the head of each (store/item_bytes.h), in no order that matters; no key twice
 *     …  4  CRC-32C of the table up to here
 *     …  …  meta and body of each, in the order of the heads
 *
 * The table is complete by itself: the frame's hash goes over it, and so over the checksums of what follows, and the
 * archive keeps nothing else. */
#include "store/journal/item_frame.h"

#include "base/check.h"
#include "base/crc32c.h"

#include <string.h>

_Static_assert(HX_ITEM_FRAME_MAX <= 16u << 20, "the longest frame that is read back (hx_class_bytes)");

hx_slice hx_item_frame_encode(const hx_item *items, size_t count, bool moved, hx_arena *arena)
{
    uint32_t prefix[2] = {HX_ITEM_TABLE_BYTES, 0};
    size_t contents = 0;
    for (size_t i = 0; i < count; i++) {
        if (items[i].act == HX_ITEM_CHECK) continue;
        bool is_put = items[i].act == HX_ITEM_PUT;
        prefix[0] += (uint32_t)(HX_ITEM_HEAD_BYTES + items[i].key.len + (is_put ? items[i].queue.len : 0));
        prefix[1]++;
        contents += is_put ? items[i].meta.len + items[i].body.len : 0;
    }
    if (prefix[1] == 0) return HX_EMPTY;
    size_t at = prefix[0], len = at + contents;
    hx_buf table = {.data = hx_arena_alloc(arena, len), .cap = prefix[0], .max = prefix[0]};
    hx_buf_put(&table, (hx_slice){(const char *)prefix, sizeof prefix});
    for (size_t i = 0; i < count; i++) {
        const hx_item *item = &items[i];
        if (item->act == HX_ITEM_CHECK) continue;
        hx_item_head head = hx_item_head_of(item, moved ? item->version : 0, (uint32_t)(sizeof(hx_frame_head) + at));
        hx_item_head_put(&head, &table);
        if (head.item.meta.len > 0) memcpy(table.data + at, item->meta.ptr, item->meta.len);
        at += head.item.meta.len;
        if (head.item.body.len > 0) memcpy(table.data + at, item->body.ptr, item->body.len);
        at += head.item.body.len;
    }
    uint32_t crc = hx_crc32c(0, hx_buf_slice(&table));
    hx_buf_put(&table, (hx_slice){(const char *)&crc, sizeof crc});
    HX_CHECK(table.len == prefix[0] && at == len);
    return (hx_slice){table.data, len};
}

size_t hx_item_frame_table_len(const char *payload, size_t len)
{
    uint32_t table_len;
    if (len < HX_ITEM_TABLE_BYTES + HX_ITEM_HEAD_BYTES) return 0;
    memcpy(&table_len, payload, sizeof table_len);
    return table_len >= HX_ITEM_TABLE_BYTES && table_len <= len ? table_len : 0;
}

bool hx_item_table_is_whole(hx_slice table)
{
    uint32_t crc;
    memcpy(&crc, table.ptr + table.len - sizeof crc, sizeof crc);
    return crc == hx_crc32c(0, hx_slice_first(table, table.len - sizeof crc));
}

uint32_t hx_item_table_count(hx_slice table)
{
    uint32_t count;
    memcpy(&count, table.ptr + 4, sizeof count);
    return count;
}

bool hx_item_table_is_possible(hx_slice table, const hx_frame_head *frame, bool moved)
{
    uint32_t count = hx_item_table_count(table);
    uint64_t at = sizeof *frame + table.len;
    hx_slice rest = hx_item_table_heads(table);
    hx_item_head head;
    if (count == 0 || count > HX_COMMIT_ITEMS_MAX) return false;
    for (; count > 0; count--) {
        if (!hx_item_head_take(&rest, &head) || head.at != at) return false;
        bool fits = moved ? head.item.version > 0 && head.item.version < frame->sequence : head.item.version == 0;
        if (!fits) return false;
        at += head.item.meta.len + head.item.body.len;
    }
    return rest.len == 0 && at == frame->length;
}

void hx_item_head_fill(hx_item_head *head, hx_slice payload)
{
    const char *contents = payload.ptr + (head->at - sizeof(hx_frame_head));
    head->item.meta.ptr = contents;
    head->item.body.ptr = contents + head->item.meta.len;
}

bool hx_item_contents_are_whole(hx_slice payload, size_t table_len)
{
    hx_slice rest = hx_item_table_heads(hx_slice_first(payload, table_len));
    for (hx_item_head head; hx_item_head_take(&rest, &head);) {
        if (head.item.act == HX_ITEM_REMOVE) continue;
        hx_item_head_fill(&head, payload);
        if (hx_item_crc(head.item.key, head.item.meta) != head.meta_crc ||
            hx_item_crc(head.item.key, head.item.body) != head.body_crc)
            return false;
    }
    return true;
}
