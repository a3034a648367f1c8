/* SPDX-License-Identifier: Apache-2.0 */
/* Events that programs have written in their own transactions into the database that is this gateway's store
 * (hx_sqlite_publish): items in the queue "outbox". They are published one after the other, in the order of their
 * commits and under their own ids, and then removed together: a gateway that ends in between, or a second one on the
 * same file, publishes some of them again, which the engine recognises. One that can't be published stays under its
 * key, without a queue, with the reason beside it. */
#include "base/log.h"
#include "events/recipient.h"

#include <string.h>

#define INTERVAL ((hx_ms)100)
#define RETRY ((hx_ms)500)
#define PAGE 64u

static void look_due(hx_timer *timer);
static void publish_next(hx_engine *engine);

static void rest(hx_engine *engine, hx_ms delay)
{
    hx_arena_free(&engine->outbox.arena);
    if (!engine->stopping) hx_timer_start(engine->needs.loop, &engine->outbox.timer, delay, look_due);
}

static void taken(hx_store_call *call)
{
    hx_engine *engine = HX_OWNER(call, hx_engine, outbox.call);
    bool is_good = call->result == HX_STORE_OK || call->result == HX_STORE_STALE; /* another gateway was first */
    rest(engine, is_good && engine->outbox.page.more ? 0 : is_good ? INTERVAL : RETRY);
    hx_engine_end_call(engine);
}

static void refuse(hx_item *item, hx_slice id, hx_slice reason, hx_arena *arena)
{
    hx_log_begin(HX_EVENT_outbox_event_refused);
    if (id.len > 0) hx_log_str("event_id", id);
    hx_log_str("item", item->key);
    hx_log_str("reason", reason);
    hx_log_end();
    item->act = HX_ITEM_PUT;
    item->queue = HX_EMPTY;
    item->due = 0;
    item->meta = hx_arena_copy(arena, reason);
}

static void published(hx_publish *publish)
{
    hx_engine *engine = HX_OWNER(publish, hx_engine, outbox.publish);
    hx_item *item = &engine->outbox.page.items[engine->outbox.at];
    bool is_away = publish->result == HX_PUBLISH_FULL || publish->result == HX_PUBLISH_UNAVAILABLE ||
                   publish->result == HX_PUBLISH_BUSY;
    bool is_published = publish->result == HX_PUBLISHED || publish->result == HX_PUBLISHED_BEFORE;
    if (is_away || engine->stopping) {
        rest(engine, RETRY);
    } else {
        if (publish->result == HX_PUBLISHED) engine->counts.relayed++;
        if (is_published)
            item->act = HX_ITEM_REMOVE;
        else
            refuse(item, publish->events[0].id, publish->detail, &engine->outbox.arena);
        engine->outbox.at++;
        publish_next(engine);
    }
    hx_engine_end_call(engine);
}

static void publish_next(hx_engine *engine)
{
    hx_item_page *page = &engine->outbox.page;
    hx_arena *arena = &engine->outbox.arena;
    hx_error_text error;
    for (; engine->outbox.at < page->count; engine->outbox.at++) {
        hx_item *item = &page->items[engine->outbox.at];
        hx_event *event = hx_arena_zalloc(arena, sizeof *event);
        if (!hx_event_read(item->body, arena, event, error) || event->id.len == 0) {
            refuse(item, HX_EMPTY, hx_slice_of(error), arena);
            continue;
        }
        if (event->data.len > engine->needs.settings.payload_bytes_max) {
            refuse(item, event->id, HX_LIT("its data is longer than events.payload_max"), arena);
            continue;
        }
        engine->calls++;
        engine->outbox.publish = (hx_publish){
            .arena = arena, .events = event, .count = 1, .principal = HX_EMPTY, .key = HX_EMPTY, .done = published};
        hx_engine_publish(engine, &engine->outbox.publish);
        return;
    }
    hx_engine_begin_call(engine, &engine->outbox.call, arena, taken);
    hx_store_commit(engine->needs.store, &engine->outbox.call, page->items, page->count, true);
}

static void looked(hx_store_call *call)
{
    hx_engine *engine = HX_OWNER(call, hx_engine, outbox.call);
    engine->outbox.at = 0;
    if (call->result != HX_STORE_OK || engine->outbox.page.count == 0 || engine->stopping)
        rest(engine, INTERVAL);
    else
        publish_next(engine);
    hx_engine_end_call(engine);
}

static void look_due(hx_timer *timer)
{
    hx_engine *engine = HX_OWNER(timer, hx_engine, outbox.timer);
    if (!hx_engine_is_ready(engine) || hx_engine_is_paused(engine)) {
        rest(engine, INTERVAL);
        return;
    }
    engine->outbox.page = (hx_item_page){.by_queue = true,
                                         .with_bodies = true,
                                         .prefix = HX_LIT(HX_ITEM_OUTBOX_QUEUE),
                                         .items_max = PAGE};
    hx_engine_begin_call(engine, &engine->outbox.call, &engine->outbox.arena, looked);
    hx_store_scan(engine->needs.store, &engine->outbox.call, &engine->outbox.page);
}

void hx_local_outbox_start(hx_engine *engine)
{
    if (hx_store_about(engine->needs.store)->takes_events) look_due(&engine->outbox.timer);
}

void hx_local_outbox_stop(hx_engine *engine)
{
    hx_timer_stop(engine->needs.loop, &engine->outbox.timer);
}
