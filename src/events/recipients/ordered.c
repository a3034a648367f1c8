/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints that get the events of a stream one at a time, in the order in which they were accepted.
 *
 * The pending deliveries of a stream are a queue, sorted by their places. The lease of one puts a mark, in the same
 * commit, which names it and becomes the first item of that queue; its success removes the mark. So the first item of a
 * queue says what may be sent:
 *
 *     a delivery                      it is the next, and its lease must find no mark
 *     a mark, its delivery PENDING    that one is the next: it has failed, or was re-driven, and its lease replaces the
 *                                     mark
 *     ... LEASED                      it is being sent
 *     ... DEAD, UNKNOWN               the stream is stopped, until that one is re-driven or skipped
 *     ... over, or gone               the mark is removed
 *
 * Nobody but an attempt writes marks, and two attempts never get the same one: leases compare its version. */
#include "base/check.h"
#include "events/recipient.h"

#include <string.h>

#define PLACES 1000 /* in a millisecond; more are in the next one */

static void look_on(hx_recipient *recipient);

uint64_t hx_ordered_place(hx_engine *engine, hx_ms now)
{
    uint64_t least = (uint64_t)now * PLACES;
    engine->place = engine->place < least ? least : engine->place + 1;
    return engine->place;
}

bool hx_ordered_is_mark(const hx_item *item)
{
    return hx_slice_starts(item->key, HX_LIT(HX_DELIVERY_MARKS));
}

size_t hx_ordered_add(const hx_delivery *delivery, hx_slice key, uint64_t version, hx_item_act act, hx_item *out,
                      hx_arena *arena)
{
    if (delivery->place == 0) return 0;
    hx_delivery pending = *delivery;
    pending.state = HX_DELIVERY_PENDING;
    *out = (hx_item){.key = hx_delivery_mark_key(delivery, arena),
                     .version = version,
                     .act = act,
                     .queue = hx_delivery_queue(&pending, arena),
                     .meta = key,
                     .body = HX_EMPTY};
    return 1;
}

/* No stream has anything to send, or there is another page to look at. */
static void end_page(hx_recipient *recipient, size_t ready)
{
    bool goes_on = ready == 0 && (recipient->look.last.len > 0 || !recipient->look.from_start);
    if (goes_on && !recipient->engine->stopping)
        look_on(recipient);
    else
        hx_recipient_looked(recipient, ready);
}

static void fail(hx_recipient *recipient)
{
    recipient->look.last = HX_EMPTY;
    hx_recipient_looked(recipient, 0);
}

static void released(hx_store_call *call)
{
    hx_recipient *recipient = HX_OWNER(call, hx_recipient, look.call);
    hx_engine *engine = recipient->engine;
    recipient->look.last = HX_EMPTY;
    if (call->result == HX_STORE_OK || call->result == HX_STORE_STALE)
        end_page(recipient, 0);
    else
        fail(recipient);
    hx_engine_end_call(engine);
}

/* A mark whose delivery is over: it was skipped, or its event isn't kept any more. */
static void release(hx_recipient *recipient, hx_item *mark)
{
    hx_engine *engine = recipient->engine;
    recipient->look.from_start = false;
    mark->act = HX_ITEM_REMOVE;
    hx_engine_begin_call(engine, &recipient->look.call, &recipient->look.arena, released);
    hx_store_commit(engine->needs.store, &recipient->look.call, mark, 1, true);
}

/* Keeps of the page what may be sent now: the first delivery of each stream, or the one that its mark names. */
static void choose(hx_recipient *recipient)
{
    hx_item_page *page = &recipient->look.page;
    hx_ms now = hx_engine_now(recipient->engine);
    size_t ready = 0, marked = 0;
    recipient->look.marks = hx_arena_alloc(&recipient->look.arena, HX_RECIPIENT_PAGE * sizeof *recipient->look.marks);
    for (size_t i = 0; i < page->count; i++) {
        bool is_mark = hx_ordered_is_mark(&page->items[i]);
        hx_item item = is_mark ? recipient->look.marked[marked++] : page->items[i];
        hx_delivery delivery;
        bool is_there = item.version > 0 && hx_delivery_decode(item.meta, item.body, &recipient->look.arena, &delivery);
        bool is_over = !is_there || delivery.state == HX_DELIVERY_DELIVERED || delivery.state == HX_DELIVERY_CANCELLED;
        if (is_mark && is_over) {
            release(recipient, &page->items[i]);
            return;
        }
        if (!is_there || delivery.state != HX_DELIVERY_PENDING) continue;
        if (delivery.due > now) {
            if (recipient->look.next_due == 0 || delivery.due < recipient->look.next_due)
                recipient->look.next_due = delivery.due;
            continue;
        }
        recipient->look.marks[ready] = is_mark ? page->items[i].version : 0;
        page->items[ready++] = item;
    }
    end_page(recipient, ready);
}

static void marked_done(hx_store_call *call)
{
    hx_recipient *recipient = HX_OWNER(call, hx_recipient, look.call);
    hx_engine *engine = recipient->engine;
    if (call->result == HX_STORE_OK)
        choose(recipient);
    else
        fail(recipient);
    hx_engine_end_call(engine);
}

static void heads_done(hx_store_call *call)
{
    hx_recipient *recipient = HX_OWNER(call, hx_recipient, look.call);
    hx_engine *engine = recipient->engine;
    const hx_item_page *page = &recipient->look.page;
    size_t count = 0;
    if (call->result != HX_STORE_OK) {
        fail(recipient);
        hx_engine_end_call(engine);
        return;
    }
    recipient->look.last = page->more ? page->items[page->count - 1].queue : HX_EMPTY;
    recipient->look.marked = hx_arena_alloc(&recipient->look.arena, (page->count + 1) * sizeof(hx_item));
    for (size_t i = 0; i < page->count; i++)
        if (hx_ordered_is_mark(&page->items[i]))
            recipient->look.marked[count++] = (hx_item){.key = page->items[i].meta};
    if (count == 0) {
        choose(recipient);
    } else {
        hx_engine_begin_call(engine, &recipient->look.call, &recipient->look.arena, marked_done);
        hx_store_get(engine->needs.store, &recipient->look.call, recipient->look.marked, count);
    }
    hx_engine_end_call(engine);
}

/* Streams take turns: a look goes on behind the last page, and begins anew at the end. */
static void look_on(hx_recipient *recipient)
{
    hx_engine *engine = recipient->engine;
    hx_arena arena = {0};
    hx_delivery like = {.tenant = recipient->endpoint.tenant, .endpoint = recipient->endpoint.id};
    hx_slice last = hx_arena_copy(&arena, recipient->look.last);
    if (last.len == 0) recipient->look.from_start = true;
    recipient->look.last = last;
    hx_arena_free(&recipient->look.arena);
    recipient->look.arena = arena;
    recipient->look.page = (hx_item_page){.by_queue = true,
                                          .one_per_queue = true,
                                          .with_bodies = true,
                                          .prefix = hx_delivery_queue(&like, &recipient->look.arena),
                                          .items_max = HX_RECIPIENT_PAGE};
    if (last.len > 0) /* behind all of that queue */
        recipient->look.page.after = (hx_item){.queue = last, .due = INT64_MAX, .key = HX_LIT("\xff")};
    hx_engine_begin_call(engine, &recipient->look.call, &recipient->look.arena, heads_done);
    hx_store_scan(engine->needs.store, &recipient->look.call, &recipient->look.page);
}

void hx_ordered_look(hx_recipient *recipient)
{
    recipient->look.from_start = false;
    recipient->look.next_due = 0;
    look_on(recipient);
}
