/* SPDX-License-Identifier: Apache-2.0 */
/* Items: the part of a store's contract that events are built on. An item is a document under a key: an event, a
 * delivery, an endpoint, a token, a position. The store knows nothing of their contents. Which change may follow which
 * is decided in core/event, and made safe here: a change names the version that it was decided on.
 *
 *  E1  Durable: a commit that ends HX_STORE_OK can't be undone by a crash, a restart or a power cut (except in a store
 *      whose facts say otherwise). Nothing that a reader sees could still be undone that way.
 *  E2  All or none: the changes of one commit take effect together, in a crash too.
 *  E3  Compared: a commit takes effect only if each of its items has the version that it names, 0 for an item that
 *      must be absent. Otherwise it ends HX_STORE_STALE and changes nothing; call->stale is one item that differs.
 *  E4  Versions grow: what a commit writes gets call->version, which is greater than every version that any of these
 *      items ever had, before it was removed or expired, too.
 *  E5  Ordered: pages come in the order of keys (as memcmp compares), or of queues: by queue, then due time, then key.
 *      A page shows every item that matched throughout the call, none twice, and no change in part.
 *  E6  An item is absent once expires_at is over, by the store's clock and with the rounding of hx_store_lapsed. A
 *      sweep removes it.
 *  E7  On a full disk, and beyond store_max, a commit ends HX_STORE_FULL, but for one that is `urgent`: it may use the
 *      reserve, so that results of what is under way, which can't be repeated, are kept.
 *  E8  Completions are as G8 says. Commits of one loop take effect in their order, with the exception of G8. A get or
 *      a scan shows every commit that had ended before it was called; one that is under way it may show or not.
 *      HX_STORE_UNAVAILABLE means that a commit may have happened or not; a shared store finds out whether it did
 *      before it answers, if it can.
 *
 * Not every store keeps items: hx_store_facts.keeps_items. */
#ifndef HX_STORE_ITEMS_H
#define HX_STORE_ITEMS_H

#include "base/clock.h"
#include "base/memory/arena.h"

#define HX_ITEM_KEY_MAX 512u
#define HX_ITEM_QUEUE_MAX 255u
#define HX_ITEM_META_MAX (64u << 10)
#define HX_ITEM_BODY_MAX (8u << 20)
#define HX_COMMIT_ITEMS_MAX 4096u
#define HX_COMMIT_BYTES_MAX (15u << 20) /* keys, queues, metas and bodies together */
#define HX_ITEM_PAGE_MAX 1000u
#define HX_ITEM_PAGE_BYTES (4u << 20) /* a page ends early when it gets longer than this */

/* The key of the item that says where the store is (hx_store_facts.home). It is written empty into a store that is
 * filled from another, so that whoever opens it knows. */
#define HX_ITEM_HOME "home"
/* Where programs put events in their own transactions: the queue, and what their keys begin with. */
#define HX_ITEM_OUTBOX_QUEUE "outbox"
#define HX_ITEM_OUTBOX_KEY "x/"

typedef enum {
    HX_ITEM_PUT,
    HX_ITEM_REMOVE,
    HX_ITEM_CHECK /* compares the version, changes nothing */
} hx_item_act;

typedef struct {
    hx_slice key;     /* 1 to HX_ITEM_KEY_MAX bytes of any value */
    uint64_t version; /* in a commit: the version that it must have. Found: the one that it has, 0: absent */
    hx_item_act act;  /* in a commit */
    hx_slice queue;   /* without NUL; empty: in none */
    hx_ms due;        /* not negative; its place in the queue */
    hx_ms expires_at; /* 0: never */
    hx_slice meta;    /* what changes: UTF-8 text without NUL */
    hx_slice body;    /* what a reader may want to leave out */
} hx_item;

/* A page of items. */
typedef struct {
    /* given by the caller */
    bool by_queue;      /* in the order of queues, and only items that are in one */
    bool backwards;     /* in the reverse order */
    bool one_per_queue; /* by_queue, not backwards: only the first item of each queue */
    bool with_bodies;
    hx_slice prefix;    /* of the key; by_queue: of the queue's name */
    hx_ms due_until;    /* by_queue: only items that are due by then; 0: all */
    hx_item after;      /* behind this place, by its key, or by its queue, due and key; an empty key: from the start */
    unsigned items_max; /* 1 to HX_ITEM_PAGE_MAX */
    /* given back, in the call's arena */
    hx_item *items;
    size_t count;
    size_t bytes; /* of metas and bodies */
    bool more;    /* there may be more behind the last item */
} hx_item_page;

struct hx_store;
struct hx_store_call;

/* Makes the changes of all items, or none (E2, E3). It sorts `items` by key; no key may occur twice. They live until
 * the completion. */
void hx_store_commit(struct hx_store *store, struct hx_store_call *call, hx_item *items, size_t count, bool urgent);
/* Fills in each item by its key; `version` 0: absent. All of them are as of one moment. */
void hx_store_get(struct hx_store *store, struct hx_store_call *call, hx_item *items, size_t count);
void hx_store_scan(struct hx_store *store, struct hx_store_call *call, hx_item_page *page);

#endif
