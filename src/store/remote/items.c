/* SPDX-License-Identifier: Apache-2.0 */
/* Calls about items (store/items.h): which of them go into a round together, and what their results mean.
 *
 * They take effect in their order (E8), whatever becomes of each: a round has commits or reads, since a commit may have
 * to be sent again while a read that came after it, in the same round, has been answered. Commits of one round are one
 * statement, and no two of them name the same key, unless both only check an item that is there. While a call is
 * delayed, or sent alone, no other one is sent. */
#include "store/remote/lane.h"

#include "base/crc32c.h"

#include <stdint.h>

size_t hx_items_bytes(const hx_store_call *commit)
{
    size_t bytes = 0;
    for (size_t i = 0; i < commit->item_count; i++) {
        const hx_item *item = &commit->items[i];
        bytes += item->key.len + item->queue.len + item->meta.len + item->body.len;
    }
    return bytes;
}

/* False: the key is there, or another one with the same hash, which only makes the round smaller. */
static bool add_key(hx_round_items *items, const hx_item *item)
{
    uint32_t hash = hx_crc32c(0, item->key) | 2, is_check = item->act == HX_ITEM_CHECK && item->version > 0;
    for (size_t i = hash / 2;; i++) {
        uint32_t *slot = &items->keys[i % (sizeof items->keys / sizeof *items->keys)];
        if (*slot != 0 && (*slot | 1) == (hash | 1)) return is_check && (*slot & 1);
        if (*slot != 0) continue;
        *slot = (hash & ~UINT32_C(1)) | is_check;
        return true;
    }
}

bool hx_items_may_join(hx_round_items *items, const hx_store_call *call)
{
    bool is_commit = call->verb == HX_STORE_COMMIT, is_first = items->calls == 0;
    bool is_alone = call->own.remote.is_alone;
    size_t count = call->verb == HX_STORE_SCAN ? 0 : call->item_count;
    bool may_join = !items->is_closed && (is_first || (items->are_commits == is_commit && !is_alone &&
                                                       items->count + count <= HX_COMMIT_ITEMS_MAX));
    for (size_t i = 0; i < count && may_join && is_commit; i++) may_join = add_key(items, &call->items[i]) || is_first;
    items->is_closed |= !may_join || is_alone;
    items->are_commits = is_commit;
    items->calls++;
    items->count += count;
    return may_join;
}

/* Columns: place, verdict, version, the key of an item that differs. A commit without a row was not decided: another
 * transaction has just inserted one of its keys, and is over. */
void hx_items_end_commits(hx_lane *lane, const hx_statement *s)
{
    const hx_driver *driver = lane->store->driver;
    size_t rows[HX_ROUND_CALLS_MAX];
    hx_link again;
    hx_list_init(&again);
    for (size_t i = 0; i < s->count; i++) rows[i] = SIZE_MAX;
    for (size_t row = 0; row < driver->row_count(lane, s->result); row++) {
        size_t place = (size_t)driver->number(lane, s->result, row, 0) - 1;
        if (place < s->count) rows[place] = row;
    }
    for (size_t i = 0; i < s->count; i++) {
        hx_store_call *call = s->calls[i];
        if (rows[i] == SIZE_MAX) {
            hx_list_append(&again, &call->own.link);
            continue;
        }
        hx_store_result result = (hx_store_result)driver->number(lane, s->result, rows[i], 1);
        call->version = (uint64_t)driver->number(lane, s->result, rows[i], 2);
        hx_slice differs = driver->text(lane, s->result, rows[i], 3);
        for (size_t k = 0; k < call->item_count && result == HX_STORE_STALE; k++)
            if (hx_slice_eq(call->items[k].key, differs)) call->stale = &call->items[k];
        hx_remote_end(call, result);
    }
    hx_lane_put_first(lane, &again);
}

/* The columns of an item. */
enum { PLACE, BYTES, KEY, VERSION, QUEUE, DUE, EXPIRES_AT, META, BODY };

static void show(const hx_lane *lane, const hx_statement *s, size_t row, hx_arena *arena, hx_item *out)
{
    const hx_driver *driver = lane->store->driver;
    out->version = (uint64_t)driver->number(lane, s->result, row, VERSION);
    out->queue = hx_arena_copy(arena, driver->text(lane, s->result, row, QUEUE));
    out->due = driver->number(lane, s->result, row, DUE);
    out->expires_at = driver->number(lane, s->result, row, EXPIRES_AT);
    out->meta = hx_arena_copy(arena, driver->text(lane, s->result, row, META));
    out->body = hx_arena_copy(arena, driver->text(lane, s->result, row, BODY));
}

/* Rows are in the order of the calls and their items, by PLACE from 1; an absent item has none. With -1 BYTES the
 * results of the round got too large, and the call is sent again. */
void hx_items_end_gets(hx_lane *lane, const hx_statement *s)
{
    const hx_driver *driver = lane->store->driver;
    size_t row = 0, rows = driver->row_count(lane, s->result), place = 0;
    hx_link excess;
    hx_list_init(&excess);
    for (size_t i = 0; i < s->count; i++) {
        hx_store_call *call = s->calls[i];
        bool is_excess = false;
        for (size_t k = 0; k < call->item_count; k++) {
            hx_item *out = &call->items[k];
            *out = (hx_item){.key = out->key, .queue = HX_EMPTY, .meta = HX_EMPTY, .body = HX_EMPTY};
            place++;
            if (row == rows || (size_t)driver->number(lane, s->result, row, PLACE) != place) continue;
            is_excess |= driver->number(lane, s->result, row, BYTES) < 0;
            show(lane, s, row++, call->arena, out);
        }
        if (is_excess) {
            call->own.remote.since = hx_loop_now(lane->loop);
            hx_list_append(&excess, &call->own.link);
        } else {
            hx_remote_end(call, HX_STORE_OK);
        }
    }
    hx_lane_put_first(lane, &excess);
}

void hx_items_end_scan(hx_lane *lane, const hx_statement *s)
{
    const hx_driver *driver = lane->store->driver;
    hx_store_call *call = s->calls[0];
    for (size_t row = 0; row < driver->row_count(lane, s->result); row++) {
        size_t bytes = (size_t)driver->number(lane, s->result, row, BYTES);
        hx_item *out = hx_item_page_add(call->item_page, call->arena, bytes);
        if (!out) break;
        out->key = hx_arena_copy(call->arena, driver->text(lane, s->result, row, KEY));
        show(lane, s, row, call->arena, out);
    }
    hx_remote_end(call, HX_STORE_OK);
}
