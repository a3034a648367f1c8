/* SPDX-License-Identifier: Apache-2.0 */
/* Leases that have lapsed: their holder has died or stalled, and their deliveries go back to their schedules. */
#include "base/rand.h"
#include "events/recipient.h"

#define INTERVAL (5 * HX_SECOND)
#define PAGE 64u

static void look_due(hx_timer *timer);
static void lapse_next(hx_engine *engine);

static void rest(hx_engine *engine)
{
    engine->leases.is_busy = false;
    hx_arena_free(&engine->leases.arena);
    if (!engine->stopping) hx_timer_start(engine->needs.loop, &engine->leases.timer, INTERVAL, look_due);
}

static void lapse_done(hx_store_call *call)
{
    hx_engine *engine = HX_OWNER(call, hx_engine, leases.call);
    hx_delivery delivery;
    const hx_item *item = &engine->leases.items[0]; /* its key is the first in their order, too */
    if (hx_delivery_decode(item->meta, item->body, &engine->leases.arena, &delivery)) {
        hx_recipient *recipient = hx_recipient_find(engine, delivery.tenant, delivery.endpoint);
        if (call->result == HX_STORE_OK) {
            hx_outbox_log(&delivery, HX_DELIVERY_LEASED);
            engine->counts.interrupted++;
            if (delivery.state == HX_DELIVERY_DEAD) engine->counts.dead++;
            if (delivery.state == HX_DELIVERY_UNKNOWN) engine->counts.unknown++;
        }
        /* A commit whose end is not known may have taken effect. */
        if (recipient && delivery.state == HX_DELIVERY_PENDING) hx_recipient_nudge(recipient, delivery.due);
        if (call->item_count > 1) hx_fan_out_nudge(engine, hx_engine_now(engine));
    }
    engine->leases.at++;
    lapse_next(engine);
    hx_engine_end_call(engine);
}

static void lapse_next(hx_engine *engine)
{
    hx_item_page *page = &engine->leases.page;
    hx_arena *arena = &engine->leases.arena;
    for (; engine->leases.at < page->count && !engine->stopping; engine->leases.at++) {
        const hx_item *item = &page->items[engine->leases.at];
        hx_delivery delivery;
        hx_ms now = hx_engine_now(engine);
        if (!hx_delivery_decode(item->meta, item->body, arena, &delivery)) continue;
        const hx_recipient *recipient = hx_recipient_find(engine, delivery.tenant, delivery.endpoint);
        hx_delivery_rules rules = hx_outbox_rules(recipient);
        bool is_orphan = engine->leases.all && delivery.last_at < engine->leases.began_at;
        if (is_orphan && delivery.due > now) delivery.due = now;
        if (!hx_delivery_lapse(&delivery, &rules, now, hx_rand_u64(), arena)) continue;
        hx_outbox_end_orphan(engine, &delivery, now);
        hx_item *items = engine->leases.items;
        items[0] = hx_outbox_item(engine, item->key, item->version, &delivery, arena);
        size_t count = 1 + hx_own_event_of_delivery(engine, &delivery, item->key, &items[1], arena);
        hx_engine_begin_call(engine, &engine->leases.call, arena, lapse_done);
        hx_store_commit(engine->needs.store, &engine->leases.call, items, count, true);
        return;
    }
    if (page->more && !engine->stopping) {
        look_due(&engine->leases.timer);
        return;
    }
    engine->leases.all = false;
    rest(engine);
}

static void look_done(hx_store_call *call)
{
    hx_engine *engine = HX_OWNER(call, hx_engine, leases.call);
    engine->leases.at = 0;
    if (call->result == HX_STORE_OK)
        lapse_next(engine);
    else
        rest(engine);
    hx_engine_end_call(engine);
}

static void look_due(hx_timer *timer)
{
    hx_engine *engine = HX_OWNER(timer, hx_engine, leases.timer);
    engine->leases.is_busy = true;
    hx_arena_free(&engine->leases.arena);
    engine->leases.page = (hx_item_page){.by_queue = true,
                                         .with_bodies = true,
                                         .prefix = HX_LIT("lease/"),
                                         .due_until = engine->leases.all ? 0 : hx_engine_now(engine),
                                         .items_max = PAGE};
    hx_engine_begin_call(engine, &engine->leases.call, &engine->leases.arena, look_done);
    hx_store_scan(engine->needs.store, &engine->leases.call, &engine->leases.page);
}

void hx_leases_start(hx_engine *engine)
{
    engine->leases.all = !hx_store_about(engine->needs.store)->shared;
    look_due(&engine->leases.timer);
}

void hx_leases_stop(hx_engine *engine)
{
    hx_timer_stop(engine->needs.loop, &engine->leases.timer);
}
