/* SPDX-License-Identifier: Apache-2.0 */
/* Items on top of the log (store/items.h). A commit is one frame, so that its checksums make it whole or nothing (E2),
 * and the frame's sequence is the version of what it writes (E4). The index has only what is durable (E1).
 *
 *     loop     encodes a commit, with its checksums, and hands it to the writer
 *     writer   compares versions with `pending` and the index (E3), appends the frame, and notes its items in `pending`
 *     writer   after the sync: moves `pending` into the index in one step, under its lock
 *     loop     get, scan: finds items under the lock, then reads their contents out of segments, which its entry among
 *              the readers keeps open, and checks them
 *
 * A removal is in the log until its segment is dropped. Segments are dropped in their order only, so no older one has
 * the item any more by then. An item whose lifetime is over leaves the index without a frame: its own has the time. */
#include "store/journal/item_frame.h"
#include "store/journal/journal.h"

#include "base/check.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(HX_ITEM_FRAME_MAX <= HX_SEGMENT_BYTES_MIN - sizeof(hx_segment_head), "every commit fits a segment");

#define ITEMS_A_STEP 4096u
#define ITEMS_A_SECOND 100000u /* a walk of the index is made no more often than by this */

void hx_items_init(hx_journal_items *items)
{
    pthread_mutex_init(&items->lock, NULL);
    hx_item_index_init(&items->index);
    hx_item_index_init(&items->pending);
    items->earliest = 1; /* not known yet */
}

void hx_items_free(hx_journal_items *items)
{
    hx_item_index_free(&items->index);
    hx_item_index_free(&items->pending);
    pthread_mutex_destroy(&items->lock);
}

hx_indexed_item *hx_items_indexed(const hx_item_head *head, uint32_t segment, uint64_t offset, uint64_t sequence)
{
    bool is_new = head->item.act == HX_ITEM_PUT && head->item.version == 0;
    hx_indexed_item *item = hx_indexed_new(&head->item, is_new ? sequence : head->item.version);
    item->place.segment = segment;
    item->place.unit = (uint32_t)(offset / HX_PLACE_UNIT);
    item->place.at = head->at;
    item->place.meta_crc = head->meta_crc;
    item->place.body_crc = head->body_crc;
    return item;
}

static void account(hx_journal *j, const hx_indexed_item *item, int64_t by)
{
    hx_segment *s = hx_journal_segment(j, item->place.segment);
    uint64_t bytes = HX_ITEM_HEAD_BYTES + item->queue_len + item->key_len + hx_indexed_bytes(item, true);
    s->live += (uint64_t)by;
    s->live_bytes += (uint64_t)by * bytes;
}

static void expect_expiry(hx_journal_items *items, hx_ms expires_at)
{
    if (expires_at > 0 && (items->earliest == 0 || expires_at < items->earliest)) items->earliest = expires_at;
}

/* Takes the item, which is no longer in the index. */
static void drop(hx_journal *j, hx_indexed_item *item)
{
    account(j, item, -1);
    free(item);
}

void hx_items_apply(hx_journal *j, hx_indexed_item *item)
{
    hx_item_index *index = &j->items.index;
    hx_indexed_item *before = NULL;
    if (item->version > 0) {
        account(j, item, 1);
        expect_expiry(&j->items, item->expires_at);
        before = hx_item_index_put(index, item);
    } else {
        before = hx_item_index_find(index, hx_indexed_key(item));
        if (before) hx_item_index_remove(index, before);
        free(item);
    }
    if (before) drop(j, before);
}

void hx_items_replay(hx_journal *j, const hx_frame *frame)
{
    hx_slice rest = hx_item_table_heads(frame->record_head);
    for (hx_item_head head; hx_item_head_take(&rest, &head);)
        hx_items_apply(j, hx_items_indexed(&head, frame->head.segment, frame->offset, frame->head.sequence));
}

void hx_items_flush(hx_journal *j)
{
    hx_journal_items *items = &j->items;
    pthread_mutex_lock(&items->lock);
    for (hx_tree_node *node; (node = items->pending.by_key.root);) {
        hx_indexed_item *item = HX_OWNER(node, hx_indexed_item, by_key);
        hx_item_index_remove(&items->pending, item);
        hx_items_apply(j, item);
    }
    pthread_mutex_unlock(&items->lock);
}

void hx_items_encode(hx_store_call *call)
{
    call->own.journal.head = hx_item_frame_encode(call->items, call->item_count, false, call->arena);
}

/* Appends a frame of items. A payload of more than HX_INLINE_BYTES lives until the batch ends. False: no space. */
static bool append(hx_journal *j, hx_frame_kind kind, hx_slice payload)
{
    size_t table_len = hx_item_frame_table_len(payload.ptr, payload.len);
    hx_frame_draft draft = {.kind = kind,
                            .stamp = j->now,
                            .head = hx_slice_first(payload, table_len),
                            .checked = hx_slice_first(payload, HX_RECORD_HEAD_MAX),
                            .rest = {hx_slice_from(payload, table_len)}};
    if (!hx_journal_make_room(j, hx_frame_draft_length(&draft))) return false;
    const hx_tail at = j->log.tail;
    hx_frame_log_append(&j->log, &draft);
    hx_slice rest = hx_item_table_heads(draft.head);
    for (hx_item_head head; hx_item_head_take(&rest, &head);)
        free(hx_item_index_put(&j->items.pending, hx_items_indexed(&head, at.segment, at.offset, at.sequence)));
    return true;
}

/* The version of an item as decided so far; 0: it is absent. */
static uint64_t version_now(const hx_journal *j, hx_slice key)
{
    const hx_indexed_item *item = hx_item_index_find(&j->items.pending, key);
    if (!item) item = hx_item_index_find(&j->items.index, key);
    return item && !hx_item_is_over(item->expires_at, j->now) ? item->version : 0;
}

void hx_items_commit(hx_journal *j, hx_store_call *call)
{
    for (size_t i = 0; i < call->item_count; i++) {
        if (version_now(j, call->items[i].key) == call->items[i].version) continue;
        call->stale = &call->items[i];
        hx_journal_end_call(call, HX_STORE_STALE);
        return;
    }
    hx_slice payload = call->own.journal.head;
    uint64_t length = sizeof(hx_frame_head) + payload.len;
    hx_reserve_use use = call->urgent ? HX_RESERVE_URGENT : HX_RESERVE_CLAIM;
    bool is_refused = !call->urgent && (j->refuses_claims || j->has_moved);
    bool written = payload.len == 0 ||
                   (!is_refused && hx_journal_may_append(j, length, use) && append(j, HX_FRAME_ITEMS, payload));
    if (!written) {
        hx_journal_end_call(call, j->has_moved && !call->urgent ? HX_STORE_UNAVAILABLE : HX_STORE_FULL);
        return;
    }
    call->version = j->log.tail.sequence - 1; /* of the frame; nothing is written under it where there is none */
    hx_journal_end_call(call, HX_STORE_OK);
}

bool hx_items_move(hx_journal *j, const hx_frame *frame, bool *any)
{
    hx_arena arena = {0};
    hx_slice rest = hx_item_table_heads(frame->record_head);
    hx_item *live = hx_arena_alloc(&arena, hx_item_table_count(frame->record_head) * sizeof *live);
    size_t count = 0;
    for (hx_item_head head; hx_item_head_take(&rest, &head);) {
        const hx_indexed_item *item = hx_item_index_find(&j->items.index, head.item.key);
        if (!item || item->place.segment != frame->head.segment ||
            (uint64_t)item->place.unit * HX_PLACE_UNIT != frame->offset)
            continue;
        hx_item_head_fill(&head, frame->bytes);
        head.item.version = item->version;
        live[count++] = head.item;
    }
    *any = count > 0;
    hx_slice payload = hx_item_frame_encode(live, count, true, &arena);
    bool fits = count == 0 || (hx_journal_may_append(j, sizeof(hx_frame_head) + payload.len, HX_RESERVE_SWEEP) &&
                               append(j, frame->traits->moved_as, payload));
    if (payload.len > HX_INLINE_BYTES) hx_journal_flush(j); /* before the arena goes */
    hx_arena_free(&arena);
    return fits;
}

/* A walk takes time in proportion to the number of items: it waits until one has expired, and longer where there are
 * many. */
bool hx_items_time_to_walk(hx_journal *j)
{
    hx_journal_items *items = &j->items;
    hx_ms pause = (hx_ms)(items->index.by_key.count / ITEMS_A_SECOND) * HX_SECOND;
    if (!hx_item_is_over(items->earliest, j->now) || j->now - items->walked_at < pause) return false;
    items->walked_at = j->now;
    items->earliest = 0;
    items->cursor_len = 0;
    return true;
}

bool hx_items_expire(hx_journal *j, uint64_t *removed)
{
    hx_journal_items *items = &j->items;
    pthread_mutex_lock(&items->lock);
    hx_tree_node *node = hx_tree_from(&items->index.by_key, (hx_slice){items->cursor, items->cursor_len}), *next;
    for (unsigned left = ITEMS_A_STEP; node && left > 0; node = next, left--) {
        hx_indexed_item *item = HX_OWNER(node, hx_indexed_item, by_key);
        next = hx_tree_next(node);
        if (!hx_item_is_over(item->expires_at, j->now)) {
            expect_expiry(items, item->expires_at);
            continue;
        }
        hx_item_index_remove(&items->index, item);
        drop(j, item);
        ++*removed;
    }
    if (node) {
        hx_slice key = hx_indexed_key(HX_OWNER(node, hx_indexed_item, by_key));
        memcpy(items->cursor, key.ptr, key.len);
        items->cursor_len = key.len;
    }
    pthread_mutex_unlock(&items->lock);
    return node != NULL;
}

/* Where the contents of an item are. */
typedef struct {
    hx_item *item;
    const hx_segment *segment;
    uint64_t at;
    uint32_t meta_len, body_len, meta_crc, body_crc;
} located;

static located locate(hx_journal *j, const hx_indexed_item *from, bool with_body, hx_arena *arena, hx_item *item)
{
    HX_CHECK(hx_reclaim_is_entered(j->readers)); /* the segment may be retired */
    hx_item_show(from, arena, item);
    return (located){.item = item,
                     .segment = hx_journal_segment(j, from->place.segment),
                     .at = (uint64_t)from->place.unit * HX_PLACE_UNIT + from->place.at,
                     .meta_len = from->meta_len,
                     .body_len = with_body ? from->body_len : 0,
                     .meta_crc = from->place.meta_crc,
                     .body_crc = from->place.body_crc};
}

static size_t locate_each(hx_journal *j, hx_store_call *call, hx_ms now, located *out)
{
    size_t count = 0;
    for (size_t i = 0; i < call->item_count; i++) {
        hx_item *item = &call->items[i];
        const hx_indexed_item *from = hx_item_index_find(&j->items.index, item->key);
        *item = (hx_item){.key = item->key, .queue = HX_EMPTY, .meta = HX_EMPTY, .body = HX_EMPTY};
        if (from && !hx_item_is_over(from->expires_at, now)) out[count++] = locate(j, from, true, call->arena, item);
    }
    return count;
}

static size_t locate_page(hx_journal *j, hx_store_call *call, hx_ms now, located *out)
{
    hx_item_page *page = call->item_page;
    const hx_item_index *index = &j->items.index;
    const hx_indexed_item *from = hx_item_index_first(index, page, now);
    for (; from; from = hx_item_index_next(index, page, from, now)) {
        hx_item *item = hx_item_page_add(page, call->arena, hx_indexed_bytes(from, page->with_bodies));
        if (!item) break;
        out[page->count - 1] = locate(j, from, page->with_bodies, call->arena, item);
    }
    return page->count;
}

static bool read_contents(const located *from, hx_arena *arena)
{
    size_t len = (size_t)from->meta_len + from->body_len;
    if (len == 0) return true;
    char *bytes = hx_arena_alloc(arena, len);
    hx_extent extent = {from->segment->fd, from->at, len};
    if (!hx_extent_read(&extent, bytes, len)) return false;
    hx_item *item = from->item;
    item->meta = (hx_slice){bytes, from->meta_len};
    item->body = (hx_slice){bytes + from->meta_len, from->body_len};
    return hx_item_crc(item->key, item->meta) == from->meta_crc &&
           (from->body_len == 0 || hx_item_crc(item->key, item->body) == from->body_crc);
}

static void report_unreadable(const hx_journal *j, const located *from)
{
    hx_log_begin(HX_EVENT_item_unreadable);
    hx_log_text("store", j->path);
    hx_log_hex("key", (const uint8_t *)from->item->key.ptr, from->item->key.len);
    hx_log_int("segment", from->segment->number);
    hx_log_int("offset", (int64_t)from->at);
    hx_log_text("hint", "the disk returned other bytes than were written; see `hapax store salvage`");
    hx_log_end();
}

static void read_done(hx_task *task)
{
    hx_store_call *call = HX_OWNER(task, hx_store_call, own.task);
    call->done(call);
}

void hx_items_read(hx_journal *j, hx_store_call *call)
{
    bool is_get = call->verb == HX_STORE_GET;
    hx_ms now = j->store.facts.now();
    located *found = hx_arena_alloc(call->arena,
                                    (is_get ? call->item_count : call->item_page->items_max) * sizeof *found);
    hx_reclaim_enter(j->readers); /* the segments of what is found stay open, also when it is moved meanwhile */
    pthread_mutex_lock(&j->items.lock);
    size_t count = is_get ? locate_each(j, call, now, found) : locate_page(j, call, now, found);
    pthread_mutex_unlock(&j->items.lock);
    call->result = HX_STORE_OK;
    for (size_t i = 0; i < count; i++) {
        if (read_contents(&found[i], call->arena)) continue;
        report_unreadable(j, &found[i]);
        call->result = HX_STORE_UNAVAILABLE;
    }
    hx_reclaim_leave(j->readers);
    call->own.task.run = read_done;
    hx_loop_defer(call->loop, &call->own.task);
}
