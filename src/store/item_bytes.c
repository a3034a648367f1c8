/* SPDX-License-Identifier: Apache-2.0 */
#include "store/item_bytes.h"

#include "base/crc32c.h"

#include <string.h>

typedef struct {
    uint8_t act;
    uint8_t queue_len;
    uint16_t key_len;
    uint32_t meta_len, body_len;
    uint32_t meta_crc, body_crc;
    uint32_t at;
    uint64_t version;
    hx_ms due, expires_at;
} fixed;

_Static_assert(sizeof(fixed) == HX_ITEM_HEAD_BYTES, "written as it stands in memory");
_Static_assert(HX_ITEM_QUEUE_MAX <= UINT8_MAX && HX_ITEM_KEY_MAX <= UINT16_MAX, "lengths fit their fields");

uint32_t hx_item_crc(hx_slice key, hx_slice contents)
{
    return hx_crc32c(hx_crc32c(0, key), contents);
}

hx_item_head hx_item_head_of(const hx_item *item, uint64_t version, uint32_t at)
{
    if (item->act == HX_ITEM_REMOVE)
        return (hx_item_head){.item = {.key = item->key, .act = HX_ITEM_REMOVE, .queue = HX_EMPTY}, .at = at};
    hx_item_head head = {.item = *item,
                         .meta_crc = hx_item_crc(item->key, item->meta),
                         .body_crc = hx_item_crc(item->key, item->body),
                         .at = at};
    head.item.version = version;
    return head;
}

void hx_item_head_put(const hx_item_head *head, hx_buf *out)
{
    const hx_item *item = &head->item;
    fixed f = {.act = (uint8_t)item->act,
               .queue_len = (uint8_t)item->queue.len,
               .key_len = (uint16_t)item->key.len,
               .meta_len = (uint32_t)item->meta.len,
               .body_len = (uint32_t)item->body.len,
               .meta_crc = head->meta_crc,
               .body_crc = head->body_crc,
               .at = head->at,
               .version = item->version,
               .due = item->due,
               .expires_at = item->expires_at};
    hx_buf_put(out, (hx_slice){(const char *)&f, sizeof f});
    hx_buf_put(out, item->queue);
    hx_buf_put(out, item->key);
}

static bool is_possible(const fixed *f)
{
    bool in_bounds = f->act <= HX_ITEM_REMOVE && f->key_len > 0 && f->key_len <= HX_ITEM_KEY_MAX &&
                     f->meta_len <= HX_ITEM_META_MAX && f->body_len <= HX_ITEM_BODY_MAX && f->due >= 0 &&
                     f->expires_at >= 0;
    bool is_bare = f->queue_len == 0 && f->meta_len == 0 && f->body_len == 0 && f->version == 0;
    return in_bounds && (f->act == HX_ITEM_PUT || is_bare);
}

bool hx_item_head_take(hx_slice *bytes, hx_item_head *out)
{
    fixed f;
    if (bytes->len < sizeof f) return false;
    memcpy(&f, bytes->ptr, sizeof f);
    size_t len = sizeof f + f.queue_len + f.key_len;
    if (!is_possible(&f) || bytes->len < len) return false;
    const char *texts = bytes->ptr + sizeof f;
    *out = (hx_item_head){.item = {.key = {texts + f.queue_len, f.key_len},
                                   .version = f.version,
                                   .act = (hx_item_act)f.act,
                                   .queue = {texts, f.queue_len},
                                   .due = f.due,
                                   .expires_at = f.expires_at,
                                   .meta = {NULL, f.meta_len},
                                   .body = {NULL, f.body_len}},
                          .meta_crc = f.meta_crc,
                          .body_crc = f.body_crc,
                          .at = f.at};
    *bytes = hx_slice_from(*bytes, len);
    return true;
}
