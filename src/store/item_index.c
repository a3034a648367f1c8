/* SPDX-License-Identifier: Apache-2.0 */
#include "store/item_index.h"

#include "base/check.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

#define PLACE_BYTES_MAX (HX_ITEM_QUEUE_MAX + 1 + sizeof(uint64_t) + HX_ITEM_KEY_MAX)

static hx_indexed_item *of_key(const hx_tree_node *node)
{
    return node ? HX_OWNER(node, hx_indexed_item, by_key) : NULL;
}

static hx_indexed_item *of_queue(const hx_tree_node *node)
{
    return node ? HX_OWNER(node, hx_indexed_item, by_queue) : NULL;
}

static size_t key_at(size_t queue_len)
{
    return queue_len + 1 + sizeof(uint64_t);
}

hx_slice hx_indexed_key(const hx_indexed_item *item)
{
    return (hx_slice){item->bytes + key_at(item->queue_len), item->key_len};
}

hx_slice hx_indexed_queue(const hx_indexed_item *item)
{
    return (hx_slice){item->bytes, item->queue_len};
}

static hx_slice key_of_node(const hx_tree_node *node)
{
    return hx_indexed_key(of_key(node));
}

static hx_slice place_of_node(const hx_tree_node *node)
{
    const hx_indexed_item *item = of_queue(node);
    return (hx_slice){item->bytes, key_at(item->queue_len) + item->key_len};
}

void hx_item_index_init(hx_item_index *index)
{
    *index = (hx_item_index){.by_key.key = key_of_node, .by_queue.key = place_of_node};
}

/* The bytes by which queues are ordered. */
static size_t write_place(char *out, hx_slice queue, hx_ms due, hx_slice key)
{
    HX_CHECK(due >= 0);
    memcpy(out, queue.ptr, queue.len);
    out[queue.len] = '\0';
    for (size_t i = 0; i < sizeof(uint64_t); i++) out[queue.len + 1 + i] = (char)((uint64_t)due >> (56 - 8 * i));
    memcpy(out + key_at(queue.len), key.ptr, key.len);
    return key_at(queue.len) + key.len;
}

hx_indexed_item *hx_indexed_new(const hx_item *from, uint64_t version)
{
    hx_indexed_item *item = calloc(1, sizeof *item + key_at(from->queue.len) + from->key.len);
    if (!item) hx_fatal(HX_EXIT_BUG, "out of memory");
    item->version = version;
    item->due = from->due;
    item->expires_at = from->expires_at;
    item->meta_len = (uint32_t)from->meta.len;
    item->body_len = (uint32_t)from->body.len;
    item->key_len = (uint16_t)from->key.len;
    item->queue_len = (uint8_t)from->queue.len;
    (void)write_place(item->bytes, from->queue, from->due, from->key);
    return item;
}

void hx_item_show(const hx_indexed_item *item, hx_arena *arena, hx_item *out)
{
    *out = (hx_item){.key = hx_arena_copy(arena, hx_indexed_key(item)),
                     .version = item->version,
                     .queue = hx_arena_copy(arena, hx_indexed_queue(item)),
                     .due = item->due,
                     .expires_at = item->expires_at,
                     .meta = HX_EMPTY,
                     .body = HX_EMPTY};
}

hx_indexed_item *hx_item_index_find(const hx_item_index *index, hx_slice key)
{
    return of_key(hx_tree_find(&index->by_key, key));
}

hx_indexed_item *hx_item_index_put(hx_item_index *index, hx_indexed_item *item)
{
    hx_indexed_item *before = hx_item_index_find(index, hx_indexed_key(item));
    if (before) hx_item_index_remove(index, before);
    hx_tree_insert(&index->by_key, &item->by_key);
    if (item->queue_len > 0) hx_tree_insert(&index->by_queue, &item->by_queue);
    return before;
}

void hx_item_index_remove(hx_item_index *index, hx_indexed_item *item)
{
    hx_tree_remove(&index->by_key, &item->by_key);
    if (item->queue_len > 0) hx_tree_remove(&index->by_queue, &item->by_queue);
}

void hx_item_index_free(hx_item_index *index)
{
    for (hx_tree_node *node; (node = index->by_key.root);) {
        hx_indexed_item *item = of_key(node);
        hx_item_index_remove(index, item);
        free(item);
    }
}

/* The first node whose bytes are greater than all that begin with `prefix`; NULL: there is none. */
static hx_tree_node *behind_prefix(const hx_tree *tree, hx_slice prefix)
{
    char bytes[PLACE_BYTES_MAX];
    size_t len = prefix.len;
    HX_CHECK(len <= sizeof bytes);
    memcpy(bytes, prefix.ptr, len);
    while (len > 0 && (unsigned char)bytes[len - 1] == 0xff) len--;
    if (len == 0) return NULL;
    bytes[len - 1] = (char)((unsigned char)bytes[len - 1] + 1);
    return hx_tree_from(tree, (hx_slice){bytes, len});
}

static hx_tree_node *before(const hx_tree *tree, const hx_tree_node *node)
{
    return node ? hx_tree_prev(node) : hx_tree_last(tree);
}

static hx_tree_node *start(const hx_tree *tree, const hx_item_page *page)
{
    char bytes[PLACE_BYTES_MAX];
    hx_slice after = page->after.key;
    if (after.len == 0 && page->backwards) return before(tree, behind_prefix(tree, page->prefix));
    if (after.len == 0) return hx_tree_from(tree, page->prefix);
    if (page->by_queue)
        after = (hx_slice){bytes, write_place(bytes, page->after.queue, page->after.due, page->after.key)};
    hx_tree_node *node = hx_tree_from(tree, after);
    if (page->backwards) { /* a place behind the prefix is as good as none */
        hx_tree_node *end = behind_prefix(tree, page->prefix);
        bool is_behind = end && hx_slice_compare(after, tree->key(end)) > 0;
        return before(tree, is_behind ? end : node);
    }
    if (node && hx_slice_eq(tree->key(node), after)) node = hx_tree_next(node);
    /* A place in front of the prefix is as good as none. */
    return node && hx_slice_compare(tree->key(node), page->prefix) < 0 ? hx_tree_from(tree, page->prefix) : node;
}

/* The first node of the next queue. */
static hx_tree_node *next_queue(const hx_tree *tree, const hx_indexed_item *item)
{
    return behind_prefix(tree, (hx_slice){item->bytes, (size_t)item->queue_len + 1});
}

static hx_tree_node *step(const hx_tree *tree, const hx_item_page *page, const hx_tree_node *node)
{
    if (page->backwards) return hx_tree_prev(node);
    return page->one_per_queue ? next_queue(tree, of_queue(node)) : hx_tree_next(node);
}

static hx_indexed_item *seek(const hx_item_index *index, const hx_item_page *page, hx_tree_node *node, hx_ms now)
{
    const hx_tree *tree = page->by_queue ? &index->by_queue : &index->by_key;
    while (node && hx_slice_starts(tree->key(node), page->prefix)) {
        hx_indexed_item *item = page->by_queue ? of_queue(node) : of_key(node);
        bool is_due = !page->by_queue || page->due_until == 0 || item->due <= page->due_until;
        if (is_due && !hx_item_is_over(item->expires_at, now)) return item;
        if (is_due) /* expired: the next of the same queue may be shown */
            node = page->backwards ? hx_tree_prev(node) : hx_tree_next(node);
        else
            node = page->backwards ? hx_tree_prev(node) : next_queue(tree, item);
    }
    return NULL;
}

hx_indexed_item *hx_item_index_first(const hx_item_index *index, const hx_item_page *page, hx_ms now)
{
    return seek(index, page, start(page->by_queue ? &index->by_queue : &index->by_key, page), now);
}

hx_indexed_item *hx_item_index_next(const hx_item_index *index, const hx_item_page *page, const hx_indexed_item *last,
                                    hx_ms now)
{
    if (page->by_queue) return seek(index, page, step(&index->by_queue, page, &last->by_queue), now);
    return seek(index, page, page->backwards ? hx_tree_prev(&last->by_key) : hx_tree_next(&last->by_key), now);
}
