/* SPDX-License-Identifier: Apache-2.0 */
/* What endpoints need beside attempts, one endpoint at a time: whether it is failing is noted, one that has failed for
 * too long or said 410 is disabled, and what waits for an endpoint that was deleted, or disabled for too long, ends. */
#include "base/log.h"
#include "events/recipient.h"

#define INTERVAL HX_SECOND
#define SOON 10 /* to the next endpoint */
#define PAGE 64u
#define OTHERS_KNOW (10 * HX_SECOND) /* when all nodes have read that an endpoint was deleted */

static void housekeeping_due(hx_timer *timer);
static void end_next(hx_engine *engine);

static void rest(hx_engine *engine, hx_ms delay)
{
    engine->housekeeping.of = NULL;
    hx_arena_free(&engine->housekeeping.arena);
    if (!engine->stopping) hx_timer_start(engine->needs.loop, &engine->housekeeping.timer, delay, housekeeping_due);
}

/* What was refused stays to be done, in the next round. */
static void change_done(hx_endpoint_change *change)
{
    hx_recipient *recipient = change->engine->housekeeping.of;
    bool is_done = change->result == HX_CHANGE_DONE || change->result == HX_CHANGE_ABSENT;
    if (is_done && change->act == HX_ENDPOINT_DISABLE) recipient->is_gone = false;
    if (is_done && change->act == HX_ENDPOINT_NOTE && recipient->endpoint.failing_since == change->failing_since)
        recipient->failing_changed = false;
    rest(change->engine, SOON);
}

static void change_endpoint(hx_engine *engine, hx_recipient *recipient, hx_endpoint_act act, const char *reason)
{
    engine->housekeeping.change =
        (hx_endpoint_change){.arena = &engine->housekeeping.arena,
                             .act = act,
                             .tenant = hx_arena_copy(&engine->housekeeping.arena, recipient->endpoint.tenant),
                             .id = hx_arena_copy(&engine->housekeeping.arena, recipient->endpoint.id),
                             .failing_since = recipient->endpoint.failing_since,
                             .reason = hx_slice_of(reason),
                             .done = change_done};
    hx_engine_change_endpoint(engine, &engine->housekeeping.change);
}

static void removed(hx_store_call *call)
{
    hx_engine *engine = HX_OWNER(call, hx_engine, housekeeping.call);
    /* STALE: another node has removed it. Nobody changes an endpoint that was deleted. */
    if (call->result == HX_STORE_OK || call->result == HX_STORE_STALE) hx_recipient_remove(&engine->housekeeping.of);
    rest(engine, SOON);
    hx_engine_end_call(engine);
}

/* Nothing waits for it any more. */
static void remove_endpoint(hx_engine *engine, const hx_recipient *recipient)
{
    hx_arena *arena = &engine->housekeeping.arena;
    engine->housekeeping.items[0] = (hx_item){.key = hx_endpoint_key(recipient->endpoint.tenant, recipient->endpoint.id,
                                                                     arena),
                                              .version = recipient->version,
                                              .act = HX_ITEM_REMOVE,
                                              .queue = HX_EMPTY,
                                              .meta = HX_EMPTY,
                                              .body = HX_EMPTY};
    hx_engine_begin_call(engine, &engine->housekeeping.call, arena, removed);
    hx_store_commit(engine->needs.store, &engine->housekeeping.call, engine->housekeeping.items, 1, false);
}

static void ended(hx_store_call *call)
{
    hx_engine *engine = HX_OWNER(call, hx_engine, housekeeping.call);
    engine->housekeeping.at++;
    if (call->result == HX_STORE_OK && engine->housekeeping.of->endpoint.deleted_at == 0) engine->counts.dead++;
    if (call->item_count > 1) hx_fan_out_nudge(engine, hx_engine_now(engine));
    if (call->result == HX_STORE_OK || call->result == HX_STORE_STALE)
        end_next(engine);
    else
        rest(engine, SOON);
    hx_engine_end_call(engine);
}

static void end_next(hx_engine *engine)
{
    hx_arena *arena = &engine->housekeeping.arena;
    const hx_recipient *recipient = engine->housekeeping.of;
    bool is_deleted = recipient->endpoint.deleted_at > 0;
    for (; engine->housekeeping.at < engine->housekeeping.page.count && !engine->stopping; engine->housekeeping.at++) {
        const hx_item *item = &engine->housekeeping.page.items[engine->housekeeping.at];
        hx_delivery delivery;
        hx_ms now = hx_engine_now(engine);
        if (is_deleted && hx_ordered_is_mark(item)) {
            engine->housekeeping.items[0] = *item;
            engine->housekeeping.items[0].act = HX_ITEM_REMOVE;
            hx_engine_begin_call(engine, &engine->housekeeping.call, arena, ended);
            hx_store_commit(engine->needs.store, &engine->housekeeping.call, engine->housekeeping.items, 1, false);
            return;
        }
        if (!hx_delivery_decode(item->meta, item->body, arena, &delivery)) continue;
        hx_delivery_state from = delivery.state;
        bool may = is_deleted ? hx_delivery_cancel(&delivery, now, HX_LIT("the endpoint was deleted"))
                              : hx_delivery_give_up(&delivery, now, HX_LIT("the endpoint was disabled for too long"));
        if (!may) continue;
        hx_outbox_log(&delivery, from);
        hx_item *items = engine->housekeeping.items;
        items[0] = hx_outbox_item(engine, item->key, item->version, &delivery, arena);
        size_t count = 1 + hx_own_event_of_delivery(engine, &delivery, item->key, &items[1], arena);
        hx_engine_begin_call(engine, &engine->housekeeping.call, arena, ended);
        hx_store_commit(engine->needs.store, &engine->housekeeping.call, items, count, false);
        return;
    }
    rest(engine, SOON);
}

static void look_done(hx_store_call *call)
{
    hx_engine *engine = HX_OWNER(call, hx_engine, housekeeping.call);
    const hx_recipient *recipient = engine->housekeeping.of;
    bool is_idle = recipient->attempts == 0 && recipient->state != HX_RECIPIENT_LOOKING;
    engine->housekeeping.at = 0;
    if (call->result != HX_STORE_OK)
        rest(engine, SOON);
    else if (engine->housekeeping.page.count == 0 && engine->housekeeping.may_remove && is_idle)
        remove_endpoint(engine, recipient);
    else
        end_next(engine);
    hx_engine_end_call(engine);
}

static void look_in(hx_engine *engine, hx_delivery_state state, void (*done)(hx_store_call *call))
{
    hx_arena *arena = &engine->housekeeping.arena;
    const hx_endpoint *endpoint = &engine->housekeeping.of->endpoint;
    hx_delivery like = {.tenant = endpoint->tenant, .endpoint = endpoint->id, .state = state};
    engine->housekeeping.page = (hx_item_page){.by_queue = true,
                                               .with_bodies = true,
                                               .prefix = hx_delivery_queue(&like, arena),
                                               .items_max = PAGE};
    hx_engine_begin_call(engine, &engine->housekeeping.call, arena, done);
    hx_store_scan(engine->needs.store, &engine->housekeeping.call, &engine->housekeeping.page);
}

/* The result of an attempt that was under way may send its delivery back to the queue: that is looked at afterwards. */
static void leases_looked(hx_store_call *call)
{
    hx_engine *engine = HX_OWNER(call, hx_engine, housekeeping.call);
    hx_ms age = hx_engine_now(engine) - engine->housekeeping.of->endpoint.deleted_at;
    bool is_known = age > OTHERS_KNOW || !hx_store_about(engine->needs.store)->shared;
    engine->housekeeping.may_remove = call->result == HX_STORE_OK && engine->housekeeping.page.count == 0 && is_known;
    look_in(engine, HX_DELIVERY_PENDING, look_done);
    hx_engine_end_call(engine);
}

static void end_deliveries(hx_engine *engine, const hx_recipient *recipient)
{
    engine->housekeeping.may_remove = false;
    if (recipient->endpoint.deleted_at > 0)
        look_in(engine, HX_DELIVERY_LEASED, leases_looked);
    else
        look_in(engine, HX_DELIVERY_PENDING, look_done);
}

/* Begins what one recipient needs; false: nothing. */
static bool look_after(hx_engine *engine, hx_recipient *recipient)
{
    const hx_endpoint *endpoint = &recipient->endpoint;
    const hx_engine_settings *settings = &engine->needs.settings;
    hx_ms now = hx_engine_now(engine);
    if (recipient->source) return false;
    engine->housekeeping.of = recipient;
    if (endpoint->deleted_at > 0 || (endpoint->disabled && now - endpoint->disabled_at > settings->pause_max)) {
        end_deliveries(engine, recipient);
    } else if (recipient->is_gone && !endpoint->disabled) {
        change_endpoint(engine, recipient, HX_ENDPOINT_DISABLE, "it has answered 410 Gone");
    } else if (!endpoint->disabled && settings->disable_after > 0 && endpoint->failing_since > 0 &&
               now - endpoint->failing_since > settings->disable_after) {
        change_endpoint(engine, recipient, HX_ENDPOINT_DISABLE, "all attempts failed for too long");
    } else if (recipient->failing_changed) {
        change_endpoint(engine, recipient, HX_ENDPOINT_NOTE, "");
    } else {
        engine->housekeeping.of = NULL;
    }
    return engine->housekeeping.of != NULL;
}

static void housekeeping_due(hx_timer *timer)
{
    hx_engine *engine = HX_OWNER(timer, hx_engine, housekeeping.timer);
    hx_slice name;
    void *value;
    /* The map may have changed since the cursor was noted: then some come twice in this round, or in the next. */
    while (hx_map_next(engine->recipients, &engine->housekeeping.cursor, &name, &value))
        if (look_after(engine, value)) return;
    engine->housekeeping.cursor = 0;
    rest(engine, INTERVAL);
}

void hx_housekeeping_start(hx_engine *engine)
{
    hx_timer_start(engine->needs.loop, &engine->housekeeping.timer, INTERVAL, housekeeping_due);
}

void hx_housekeeping_stop(hx_engine *engine)
{
    hx_timer_stop(engine->needs.loop, &engine->housekeeping.timer);
}
