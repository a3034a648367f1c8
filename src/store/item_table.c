/* SPDX-License-Identifier: Apache-2.0 */
#include "store/item_table.h"

#include "base/check.h"
#include "store/backend.h"

#include <stdlib.h>
#include <string.h>

void hx_item_table_init(hx_item_table *items)
{
    *items = (hx_item_table){0};
    hx_item_index_init(&items->index);
}

static void drop(hx_indexed_item *item)
{
    if (!item) return;
    free(item->contents);
    free(item);
}

static void remove_item(hx_item_table *items, hx_indexed_item *item)
{
    hx_item_index_remove(&items->index, item);
    drop(item);
}

/* The item as it is now; NULL: absent or expired. */
static hx_indexed_item *find(const hx_item_table *items, hx_slice key, hx_ms now)
{
    hx_indexed_item *item = hx_item_index_find(&items->index, key);
    return item && !hx_item_is_over(item->expires_at, now) ? item : NULL;
}

static void put(hx_item_table *items, const hx_item *from)
{
    hx_indexed_item *item = hx_indexed_new(from, items->version);
    item->contents = malloc(from->meta.len + from->body.len + 1);
    if (!item->contents) hx_fatal(HX_EXIT_BUG, "out of memory");
    memcpy(item->contents, from->meta.ptr, from->meta.len);
    memcpy(item->contents + from->meta.len, from->body.ptr, from->body.len);
    drop(hx_item_index_put(&items->index, item));
}

static hx_store_result commit(hx_item_table *items, hx_store_call *call, hx_ms now)
{
    for (size_t i = 0; i < call->item_count; i++) {
        const hx_indexed_item *item = find(items, call->items[i].key, now);
        if ((item ? item->version : 0) == call->items[i].version) continue;
        call->stale = &call->items[i];
        return HX_STORE_STALE;
    }
    call->version = ++items->version;
    for (size_t i = 0; i < call->item_count; i++) {
        const hx_item *from = &call->items[i];
        hx_indexed_item *item = hx_item_index_find(&items->index, from->key);
        if (from->act == HX_ITEM_PUT)
            put(items, from);
        else if (from->act == HX_ITEM_REMOVE && item)
            remove_item(items, item);
    }
    return HX_STORE_OK;
}

static void show(const hx_indexed_item *item, bool with_body, hx_arena *arena, hx_item *out)
{
    hx_item_show(item, arena, out);
    out->meta = hx_arena_copy(arena, (hx_slice){item->contents, item->meta_len});
    if (with_body) out->body = hx_arena_copy(arena, (hx_slice){item->contents + item->meta_len, item->body_len});
}

static void get(const hx_item_table *items, hx_store_call *call, hx_ms now)
{
    for (size_t i = 0; i < call->item_count; i++) {
        hx_item *out = &call->items[i];
        const hx_indexed_item *item = find(items, out->key, now);
        *out = (hx_item){.key = out->key, .queue = HX_EMPTY, .meta = HX_EMPTY, .body = HX_EMPTY};
        if (item) show(item, true, call->arena, out);
    }
}

static void scan(const hx_item_table *items, hx_store_call *call, hx_ms now)
{
    hx_item_page *page = call->item_page;
    const hx_indexed_item *item = hx_item_index_first(&items->index, page, now);
    for (; item; item = hx_item_index_next(&items->index, page, item, now)) {
        hx_item *out = hx_item_page_add(page, call->arena, hx_indexed_bytes(item, page->with_bodies));
        if (!out) return;
        show(item, page->with_bodies, call->arena, out);
    }
}

hx_store_result hx_item_table_perform(hx_item_table *items, hx_store_call *call, hx_ms now)
{
    if (call->verb == HX_STORE_COMMIT) return commit(items, call, now);
    if (call->verb == HX_STORE_GET)
        get(items, call, now);
    else
        scan(items, call, now);
    return HX_STORE_OK;
}

uint64_t hx_item_table_sweep(hx_item_table *items, hx_ms now)
{
    uint64_t removed = 0;
    for (hx_tree_node *node = hx_tree_first(&items->index.by_key), *next; node; node = next) {
        next = hx_tree_next(node);
        hx_indexed_item *item = HX_OWNER(node, hx_indexed_item, by_key);
        if (!hx_item_is_over(item->expires_at, now)) continue;
        remove_item(items, item);
        removed++;
    }
    return removed;
}

void hx_item_table_free(hx_item_table *items)
{
    for (hx_tree_node *node; (node = items->index.by_key.root);)
        remove_item(items, HX_OWNER(node, hx_indexed_item, by_key));
}
