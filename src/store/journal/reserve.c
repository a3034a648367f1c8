/* SPDX-License-Identifier: Apache-2.0 */
/* The reserve: space for what is in flight, on a disk that may fill up at any moment.
 *
 * Segments are written full of zeros and synced before they are used, so what is in the active one and in the spares
 * can be written to whatever happens to the rest of the disk (where blocks are overwritten in place; a file system that
 * copies on write gives no such promise). That space is used in this order:
 *
 *     HX_RESERVE_CLAIM     a claim or a commit of items leaves half a segment free, and HX_BARE_BYTES for each claim in
 *                          flight and itself
 *     HX_RESERVE_SWEEP     moved records and items and tombstones leave a quarter of a segment, and that
 *     HX_RESERVE_RESPONSE  an outcome with its response leaves an eighth of a segment where there are items, and
 *                          HX_BARE_BYTES for each claim in flight
 *     HX_RESERVE_URGENT    an urgent commit of items leaves HX_BARE_BYTES for each claim in flight
 *     without asking       an outcome without its response
 *
 * So every claim in flight can be settled: released, unknown, completed or failed. Their responses share half a
 * segment, 32 MiB, if the disk fills up in the very moment in which a segment was begun, and up to one and a half
 * otherwise: some ten thousand responses of 2 KiB, but at 8 MiB each only three are certain, and on a small disk, where
 * segments have 16 MiB, none is. A response without space is left out: the operation is completed or failed, its first
 * client gets the response, and later ones learn that it was not retained; it is never run again. To promise more,
 * space for the largest response would have to be ready for every claim.
 *
 * Urgent commits carry the results of attempts that are under way when the disk fills up: 1 to 5 KiB each, with the
 * beginning of a response. The eighth that responses can't take is enough for some two thousand of them, and for four
 * hundred on a small disk; whatever responses leave of the rest comes to it. A commit beyond that ends FULL, and its
 * attempt counts as interrupted when its lease is over.
 *
 * Claims that need more space than is ready wait while the background thread prepares another segment. */
#include "store/journal/journal.h"

/* Whether a frame of that length can be written, with so much left behind it. The rest of a segment in which it doesn't
 * fit is lost. */
static bool has_space(const hx_journal *j, uint64_t length, uint64_t behind)
{
    uint64_t padded = hx_frame_padded(length), size = j->log.active->size, at = j->log.tail.offset;
    if (at + padded <= size) return size - at - padded + j->spare_bytes >= behind;
    if (padded > j->options.segment_bytes) padded = j->options.segment_bytes; /* one that grows for it */
    return j->spare_bytes > padded && j->spare_bytes - padded >= behind;
}

bool hx_journal_may_append(hx_journal *j, uint64_t length, hx_reserve_use use)
{
    const uint64_t segment = j->options.segment_bytes;
    const uint64_t stays_free[] = {[HX_RESERVE_CLAIM] = segment / 2 + HX_BARE_BYTES,
                                   [HX_RESERVE_SWEEP] = segment / 4,
                                   [HX_RESERVE_RESPONSE] = j->items.index.by_key.root ? segment / 8 : 0,
                                   [HX_RESERVE_URGENT] = 0};
    uint64_t needed = hx_map_count(j->opened) * HX_BARE_BYTES + stays_free[use];
    while (!has_space(j, length, needed))
        if (!hx_background_await_spare(j)) return false;
    return true;
}
