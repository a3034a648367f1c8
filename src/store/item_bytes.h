/* SPDX-License-Identifier: Apache-2.0 */
/* Items as bytes, in the journal's frames and hints and in backup files. Little-endian. The head of an item:
 *
 *     0  1  act: 0 put, 1 remove             20  4  offset of its meta in its frame; in a backup 0
 *     1  1  length of the queue's name       24  8  version; 0: the sequence of its frame, or removed
 *     2  2  length of the key                32  8  due
 *     4  4  length of the meta               40  8  expires_at
 *     8  4  length of the body               48  …  the queue's name, then the key
 *    12  4  CRC-32C of key and meta
 *    16  4  CRC-32C of key and body
 *
 * A removal has no queue, times, meta and body. The checksums begin with the key, so the contents of another item don't
 * pass for these. */
#ifndef HX_STORE_ITEM_BYTES_H
#define HX_STORE_ITEM_BYTES_H

#include "base/memory/buf.h"
#include "store/items.h"

#define HX_ITEM_HEAD_BYTES 48u /* without queue and key */
#define HX_ITEM_HEAD_MAX (HX_ITEM_HEAD_BYTES + HX_ITEM_QUEUE_MAX + HX_ITEM_KEY_MAX)

typedef struct {
    hx_item item; /* its meta and body have a length only */
    uint32_t meta_crc, body_crc;
    uint32_t at;
} hx_item_head;

uint32_t hx_item_crc(hx_slice key, hx_slice contents);
/* The head of an item under that version, with the checksums of its contents. */
hx_item_head hx_item_head_of(const hx_item *item, uint64_t version, uint32_t at);
/* `out` has space for it. */
void hx_item_head_put(const hx_item_head *head, hx_buf *out);
/* Takes a head off the front of *bytes, into which its slices point. False: there is none that an item could have. */
bool hx_item_head_take(hx_slice *bytes, hx_item_head *out) HX_MUST_USE;

#endif
