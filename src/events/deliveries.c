/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"
#include "base/log.h"
#include "events/recipient.h"

#define TRIES_MAX 5u /* of a change that others get in the way of */

hx_item hx_outbox_item(const hx_engine *engine, hx_slice key, uint64_t version, const hx_delivery *delivery,
                       hx_arena *arena)
{
    const hx_engine_settings *settings = &engine->needs.settings;
    bool has_ended = hx_delivery_states[delivery->state].has_ended;
    bool stops = delivery->state == HX_DELIVERY_DEAD && delivery->place > 0; /* its stream, until somebody decides */
    bool waits = delivery->state == HX_DELIVERY_UNKNOWN || delivery->state == HX_DELIVERY_HELD || stops;
    bool is_in_line = delivery->state == HX_DELIVERY_PENDING && delivery->place > 0;
    hx_ms kept = delivery->state == HX_DELIVERY_DEAD ? settings->dead_retention : settings->retention;
    hx_buf meta;
    hx_buf_init(&meta, arena, HX_ITEM_META_MAX);
    hx_delivery_encode(delivery, &meta);
    return (hx_item){.key = key,
                     .version = version,
                     .act = HX_ITEM_PUT,
                     .queue = hx_delivery_queue(delivery, arena),
                     .due = is_in_line ? (hx_ms)delivery->place : delivery->due,
                     .expires_at = has_ended && !waits ? delivery->settled_at + kept : 0,
                     .meta = hx_buf_slice(&meta),
                     .body = delivery->responses};
}

hx_delivery hx_outbox_delivery(hx_slice event_key, hx_slice tenant, hx_slice endpoint, hx_ms now)
{
    return (hx_delivery){.event = event_key,
                         .endpoint = endpoint,
                         .tenant = tenant,
                         .stream = HX_EMPTY,
                         .created_at = now,
                         .due = now,
                         .round = 1,
                         .reason = HX_EMPTY,
                         .responses = HX_EMPTY};
}

void hx_outbox_end_orphan(const hx_engine *engine, hx_delivery *delivery, hx_ms now)
{
    bool is_shared = hx_store_about(engine->needs.store)->shared;
    bool is_known = is_shared || hx_recipient_find(engine, delivery->tenant, delivery->endpoint);
    if (is_known || delivery->state != HX_DELIVERY_PENDING) return;
    bool may = hx_delivery_cancel(delivery, now, HX_LIT("the endpoint was deleted"));
    HX_CHECK(may);
}

hx_delivery_rules hx_outbox_rules(const hx_recipient *recipient)
{
    bool is_dead_on_4xx = recipient && hx_slice_eq(recipient->endpoint.on_client_error, HX_LIT("dead"));
    return (hx_delivery_rules){.repeats_safely = !recipient || !recipient->source || !recipient->source->is_once,
                               .dead_on_client_error = is_dead_on_4xx};
}

void hx_outbox_log(const hx_delivery *delivery, hx_delivery_state from)
{
    hx_log_begin(HX_EVENT_delivery_changed);
    hx_slice id = delivery->event, kind, owner; /* "e/TENANT/ID", "i/SOURCE/ID" */
    (void)hx_slice_next(&id, '/', &kind);
    (void)hx_slice_next(&id, '/', &owner);
    hx_log_str("event_id", id);
    if (hx_slice_eq(kind, HX_LIT("i"))) hx_log_str("source", owner);
    hx_log_str("endpoint", delivery->endpoint);
    if (delivery->tenant.len > 0) hx_log_str("tenant", delivery->tenant);
    hx_log_text("from_state", hx_delivery_states[from].name);
    hx_log_text("to_state", hx_delivery_states[delivery->state].name);
    hx_log_int("attempt", (int64_t)delivery->attempts);
    if (delivery->reason.len > 0) hx_log_str("reason", delivery->reason);
    hx_log_end();
}

static void read_again(hx_delivery_change *change);

static void end_change(hx_delivery_change *change, hx_change_result result)
{
    hx_engine *engine = change->engine;
    change->result = result;
    change->done(change);
    hx_engine_end_call(engine);
}

static void change_done(hx_store_call *call)
{
    hx_delivery_change *change = HX_OWNER(call, hx_delivery_change, call);
    hx_recipient *recipient = hx_recipient_find(change->engine, change->delivery.tenant, change->delivery.endpoint);
    /* A commit whose end is not known may have taken effect. */
    if (recipient) hx_recipient_nudge(recipient, change->delivery.due);
    switch (call->result) {
    case HX_STORE_OK: end_change(change, HX_CHANGE_DONE); return;
    case HX_STORE_STALE:
        if (++change->tries < TRIES_MAX) {
            read_again(change);
            hx_engine_end_call(change->engine);
        } else {
            end_change(change, HX_CHANGE_UNAVAILABLE);
        }
        return;
    case HX_STORE_FULL: end_change(change, HX_CHANGE_FULL); return;
    default: end_change(change, HX_CHANGE_UNAVAILABLE); return;
    }
}

static void read_done(hx_store_call *call)
{
    hx_delivery_change *change = HX_OWNER(call, hx_delivery_change, call);
    hx_engine *engine = change->engine;
    const hx_item *item = &change->item;
    hx_delivery *delivery = &change->delivery;
    if (call->result != HX_STORE_OK || item->version == 0) {
        end_change(change, call->result == HX_STORE_OK ? HX_CHANGE_ABSENT : HX_CHANGE_UNAVAILABLE);
        return;
    }
    if (!hx_delivery_decode(item->meta, item->body, change->arena, delivery)) {
        change->detail = "its record can't be read";
        end_change(change, HX_CHANGE_REFUSED);
        return;
    }
    const hx_recipient *recipient = hx_recipient_find(engine, delivery->tenant, delivery->endpoint);
    if (change->act == HX_DELIVERY_ACT_REARM && (!recipient || recipient->endpoint.deleted_at > 0)) {
        change->detail = "its endpoint was deleted";
        end_change(change, HX_CHANGE_REFUSED);
        return;
    }
    hx_delivery_state from = delivery->state;
    hx_ms now = hx_engine_now(engine);
    bool may = change->act == HX_DELIVERY_ACT_REARM  ? hx_delivery_rearm(delivery, now)
               : change->act == HX_DELIVERY_ACT_SKIP ? hx_delivery_skip(delivery, now, change->reason)
                                                     : hx_delivery_cancel(delivery, now, change->reason);
    if (!may) {
        change->detail = hx_delivery_states[from].text;
        end_change(change, HX_CHANGE_REFUSED);
        return;
    }
    hx_outbox_log(delivery, from);
    change->item = hx_outbox_item(engine, change->key, item->version, delivery, change->arena);
    hx_engine_begin_call(engine, &change->call, change->arena, change_done);
    hx_store_commit(engine->needs.store, &change->call, &change->item, 1, false);
    hx_engine_end_call(engine);
}

static void read_again(hx_delivery_change *change)
{
    change->item = (hx_item){.key = change->key};
    hx_engine_begin_call(change->engine, &change->call, change->arena, read_done);
    hx_store_get(change->engine->needs.store, &change->call, &change->item, 1);
}

void hx_engine_change_delivery(hx_engine *engine, hx_delivery_change *change)
{
    change->engine = engine;
    change->tries = 0;
    change->detail = NULL;
    read_again(change);
}
