/* SPDX-License-Identifier: Apache-2.0 */
#include "events/inbox/inbox.h"

#include "base/check.h"
#include "base/log.h"
#include "base/rand.h"
#include "core/retry/retry_after.h"
#include "events/recipient.h"

#define TAG_PAYLOAD 'p'
#define REARM_AFTER HX_MINUTE
#define LEASE_EXTRA (10 * HX_SECOND)
#define WAIT_MAX (10 * HX_SECOND)
#define WAIT_STEP 250
#define SOON HX_HOUR
#define RESPONSE_MAX (64u << 10) /* of a handler, that its sender gets */

static void compare(hx_receipt *receipt);

static hx_slice recipient_id(const hx_source *source, hx_arena *arena)
{
    return hx_arena_printf(arena, "in_%.*s", HX_FMT(source->name));
}

void hx_engine_add_source(hx_engine *engine, const hx_source *source)
{
    hx_arena arena = {0};
    hx_endpoint endpoint = hx_endpoint_new;
    endpoint.id = recipient_id(source, &arena);
    endpoint.tenant = source->tenant;
    endpoint.url = source->deliver;
    endpoint.timeout = source->timeout;
    endpoint.concurrency = source->concurrency;
    hx_recipient_put(engine, &endpoint, 0)->source = source;
    hx_arena_free(&arena);
}

static void end(hx_receipt *receipt, hx_inbox_result result)
{
    hx_engine *engine = receipt->engine;
    receipt->result = result;
    bool is_processed = result == HX_INBOX_ANSWERED && receipt->delivery.state == HX_DELIVERY_DELIVERED;
    if (result == HX_INBOX_RECEIVED || is_processed) engine->counts.received++;
    if (is_processed) engine->counts.delivered++;
    if (result == HX_INBOX_DUPLICATE) engine->counts.duplicates++;
    if (result == HX_INBOX_HELD) engine->counts.held++;
    receipt->done(receipt);
    hx_engine_end_call(engine);
}

static void log_receipt(const hx_receipt *receipt, hx_delivery_state to)
{
    hx_log_begin(HX_EVENT_event_received);
    hx_log_str("event_id", receipt->event.id);
    hx_log_str("source", receipt->event.source);
    hx_log_text("to_state", hx_delivery_states[to].name);
    if (receipt->delivery.reason.len > 0) hx_log_str("reason", receipt->delivery.reason);
    if (receipt->event.correlation_id.len > 0) hx_log_str("correlation_id", receipt->event.correlation_id);
    hx_log_end();
}

/* Duplicates are recognised for the source's window after the event was processed. Most are processed soon, and then
 * their event needn't be written again to be kept for longer (attempt.c). */
static hx_item event_item(const hx_receipt *receipt)
{
    hx_buf meta;
    hx_buf_init(&meta, receipt->arena, HX_ITEM_META_MAX);
    hx_event_encode(&receipt->event, &meta);
    return (hx_item){.key = receipt->event_key,
                     .queue = hx_event_queue(&receipt->event, receipt->arena),
                     .due = receipt->event.accepted_at,
                     .expires_at = receipt->event.accepted_at + receipt->source->window + SOON,
                     .meta = hx_buf_slice(&meta),
                     .body = receipt->event.data};
}

static void hold_done(hx_store_call *call)
{
    hx_receipt *receipt = HX_OWNER(call, hx_receipt, call);
    bool is_held = call->result == HX_STORE_OK || call->result == HX_STORE_STALE; /* STALE: it is held already */
    if (call->result == HX_STORE_OK) log_receipt(receipt, HX_DELIVERY_HELD);
    end(receipt, is_held ? HX_INBOX_HELD : call->result == HX_STORE_FULL ? HX_INBOX_FULL : HX_INBOX_UNAVAILABLE);
}

/* Stores it beside what it contradicts, under a key of its own where the id is taken. */
static void hold(hx_receipt *receipt, hx_slice reason, bool id_is_taken)
{
    hx_engine *engine = receipt->engine;
    hx_ms now = hx_engine_now(engine);
    receipt->is_holding = true;
    receipt->is_replay = !id_is_taken;
    if (id_is_taken) {
        hx_slice hash = hx_slice_first(receipt->event.payload_hash, 16);
        receipt->event_key = hx_arena_printf(receipt->arena, "%.*s~%.*s", HX_FMT(receipt->event_key), HX_FMT(hash));
        receipt->delivery_key = hx_delivery_key(receipt->delivery.tenant, receipt->delivery.endpoint,
                                                receipt->event_key, receipt->arena);
    }
    receipt->delivery = hx_outbox_delivery(receipt->event_key, receipt->delivery.tenant, receipt->delivery.endpoint,
                                           now);
    receipt->delivery.state = HX_DELIVERY_HELD;
    receipt->delivery.settled_at = now;
    receipt->delivery.reason = reason;
    receipt->items[0] = event_item(receipt);
    receipt->items[1] = hx_outbox_item(engine, receipt->delivery_key, 0, &receipt->delivery, receipt->arena);
    receipt->items[0].expires_at = 0; /* until somebody has decided */
    hx_engine_begin_call(engine, &receipt->call, receipt->arena, hold_done);
    hx_store_commit(engine->needs.store, &receipt->call, receipt->items, 2, false);
    hx_engine_end_call(engine);
}

static void rearm_done(hx_store_call *call)
{
    hx_receipt *receipt = HX_OWNER(call, hx_receipt, call);
    hx_recipient *recipient = hx_recipient_find(receipt->engine, receipt->delivery.tenant, receipt->delivery.endpoint);
    if (recipient) hx_recipient_nudge(recipient, receipt->delivery.due);
    end(receipt, HX_INBOX_DUPLICATE);
}

static void wait_is_over(hx_timer *timer)
{
    hx_receipt *receipt = HX_OWNER(timer, hx_receipt, again);
    hx_engine *engine = receipt->engine;
    compare(receipt);
    hx_engine_end_call(engine); /* of the wait */
}

/* The same event again. */
static void duplicate(hx_receipt *receipt, const hx_item *item)
{
    hx_engine *engine = receipt->engine;
    hx_ms now = hx_engine_now(engine);
    hx_delivery *delivery = &receipt->delivery;
    if (!hx_delivery_decode(item->meta, item->body, receipt->arena, delivery)) {
        end(receipt, HX_INBOX_DUPLICATE);
        return;
    }
    if (delivery->state == HX_DELIVERY_DEAD && now - delivery->settled_at >= REARM_AFTER) {
        bool may = hx_delivery_rearm(delivery, now);
        HX_CHECK(may);
        hx_outbox_log(delivery, HX_DELIVERY_DEAD);
        receipt->items[0] = hx_outbox_item(engine, item->key, item->version, delivery, receipt->arena);
        hx_engine_begin_call(engine, &receipt->call, receipt->arena, rearm_done);
        hx_store_commit(engine->needs.store, &receipt->call, receipt->items, 1, false);
        hx_engine_end_call(engine);
        return;
    }
    if (!receipt->source->waits || delivery->state != HX_DELIVERY_LEASED) {
        end(receipt, HX_INBOX_DUPLICATE);
    } else if (now >= receipt->wait_until || engine->stopping) {
        end(receipt, HX_INBOX_BUSY);
    } else {
        engine->calls++;
        hx_timer_start(engine->needs.loop, &receipt->again, WAIT_STEP, wait_is_over);
        hx_engine_end_call(engine);
    }
}

static void compare_done(hx_store_call *call)
{
    hx_receipt *receipt = HX_OWNER(call, hx_receipt, call);
    hx_event stored;
    const hx_item *event = &receipt->items[0], *guard = &receipt->items[2];
    bool is_read = call->result == HX_STORE_OK;
    if (is_read && event->version > 0 && hx_event_decode(event->meta, receipt->arena, &stored)) {
        if (hx_slice_eq(stored.payload_hash, receipt->event.payload_hash))
            duplicate(receipt, &receipt->items[1]);
        else
            hold(receipt,
                 hx_arena_printf(receipt->arena, "the id came before with another payload: first %.16s, now %.16s",
                                 hx_arena_terminated(receipt->arena, stored.payload_hash),
                                 hx_arena_terminated(receipt->arena, receipt->event.payload_hash)),
                 true);
    } else if (is_read && receipt->guard_key.len > 0 && guard->version > 0) {
        hold(receipt,
             hx_arena_printf(receipt->arena,
                             "the same payload came before under another id, %.*s, and the id is not "
                             "signed",
                             HX_FMT(guard->meta)),
             false);
    } else if (!is_read || (receipt->source->waits && hx_engine_is_paused(receipt->engine))) {
        end(receipt, HX_INBOX_UNAVAILABLE); /* while deliveries are paused its handler may not be called */
    } else { /* what was in the way has expired, or the handler of a source that waits has failed: once more */
        hx_engine *engine = receipt->engine;
        hx_engine_receive(engine, receipt);
        hx_engine_end_call(engine);
    }
}

static void compare(hx_receipt *receipt)
{
    hx_engine *engine = receipt->engine;
    size_t count = 2;
    receipt->items[0] = (hx_item){.key = receipt->event_key};
    receipt->items[1] = (hx_item){.key = receipt->delivery_key};
    receipt->items[2] = (hx_item){.key = receipt->guard_key};
    if (receipt->guard_key.len > 0) count++;
    hx_engine_begin_call(engine, &receipt->call, receipt->arena, compare_done);
    hx_store_get(engine->needs.store, &receipt->call, receipt->items, count);
}

/* Sources that wait */

static void answer_done(hx_store_call *call);

static bool has_succeeded(const hx_receipt *receipt)
{
    return receipt->sending.result.status >= 200 && receipt->sending.result.status < 300;
}

/* Its lease has lapsed: the delivery and the event are as somebody else has left them. */
static void settle_late(hx_store_call *call)
{
    hx_receipt *receipt = HX_OWNER(call, hx_receipt, call);
    hx_engine *engine = receipt->engine;
    hx_item *items = receipt->items;
    hx_delivery_rules rules = {.repeats_safely = !receipt->source->is_once};
    if (call->result != HX_STORE_OK || items[0].version == 0 || items[1].version == 0 ||
        !hx_delivery_decode(items[0].meta, items[0].body, receipt->arena, &receipt->delivery)) {
        end(receipt, HX_INBOX_UNAVAILABLE);
        return;
    }
    hx_ms now = hx_engine_now(engine);
    if (hx_delivery_settle(&receipt->delivery, &rules, 0, &receipt->sending.result, now, 0, receipt->arena) ==
        HX_SETTLED_BEFORE) { /* another attempt has succeeded, or somebody has decided */
        end(receipt, HX_INBOX_ANSWERED);
        return;
    }
    items[0] = hx_outbox_item(engine, receipt->delivery_key, items[0].version, &receipt->delivery, receipt->arena);
    items[1].expires_at = now + receipt->source->window;
    hx_engine_begin_call(engine, &receipt->call, receipt->arena, answer_done);
    hx_store_commit(engine->needs.store, &receipt->call, items, 2, true);
    hx_engine_end_call(engine);
}

static void answer_done(hx_store_call *call)
{
    hx_receipt *receipt = HX_OWNER(call, hx_receipt, call);
    hx_engine *engine = receipt->engine;
    receipt->response = receipt->sending.result;
    if (call->result != HX_STORE_STALE || !has_succeeded(receipt)) {
        end(receipt, call->result == HX_STORE_OK ? HX_INBOX_ANSWERED : HX_INBOX_UNAVAILABLE);
        return;
    }
    receipt->items[0] = (hx_item){.key = receipt->delivery_key};
    receipt->items[1] = (hx_item){.key = receipt->event_key};
    hx_engine_begin_call(engine, &receipt->call, receipt->arena, settle_late);
    hx_store_get(engine->needs.store, &receipt->call, receipt->items, 2);
    hx_engine_end_call(engine);
}

/* A success is kept; after a failure nothing is, so that the sender's next attempt is a new one. What may have been
 * processed, and must not be repeated, is unknown. */
static void handler_done(hx_sending *sending)
{
    hx_receipt *receipt = HX_OWNER(sending, hx_receipt, sending);
    hx_engine *engine = receipt->engine;
    hx_delivery_rules rules = {.repeats_safely = !receipt->source->is_once};
    uint64_t version = receipt->call.version;
    (void)hx_delivery_settle(&receipt->delivery, &rules, receipt->delivery.lease, &sending->result,
                             hx_engine_now(engine), hx_rand_u64(), receipt->arena);
    bool is_kept = has_succeeded(receipt) || receipt->delivery.state == HX_DELIVERY_UNKNOWN;
    receipt->items[0] = hx_outbox_item(engine, receipt->delivery_key, version, &receipt->delivery, receipt->arena);
    receipt->items[1] = event_item(receipt);
    receipt->items[1].version = version;
    receipt->items[1].expires_at = hx_engine_now(engine) + receipt->source->window;
    for (size_t i = 0; i < 2 && !is_kept; i++) receipt->items[i].act = HX_ITEM_REMOVE;
    log_receipt(receipt, receipt->delivery.state);
    hx_engine_begin_call(engine, &receipt->call, receipt->arena, answer_done);
    hx_store_commit(engine->needs.store, &receipt->call, receipt->items, 2, true);
    hx_engine_end_call(engine); /* of the request to the handler */
}

static void ask_handler(hx_receipt *receipt)
{
    hx_engine *engine = receipt->engine;
    const hx_source *source = receipt->source;
    receipt->sending = (hx_sending){.arena = receipt->arena,
                                    .url = source->deliver,
                                    .header_lines = hx_outbox_received_lines(engine, &receipt->event,
                                                                             &receipt->delivery, receipt->arena),
                                    .body = receipt->event.data,
                                    .timeout = source->timeout,
                                    .response_max = RESPONSE_MAX,
                                    .done = handler_done};
    engine->calls++;
    /* After a commit that took too long the request could outlive its lease, and another begin beside it. */
    if (hx_engine_now(engine) + source->timeout >= receipt->delivery.due) {
        receipt->sending.result = (hx_attempt_result){.nothing_sent = true,
                                                      .error = "The store took too long; the handler was not asked.",
                                                      .retry_after = HX_RETRY_AFTER_NONE,
                                                      .response = HX_EMPTY,
                                                      .content_type = HX_EMPTY};
        handler_done(&receipt->sending);
        return;
    }
    engine->counts.attempts++;
    engine->needs.applications.send(engine->needs.applications.context, &receipt->sending);
}

static void receive_done(hx_store_call *call)
{
    hx_receipt *receipt = HX_OWNER(call, hx_receipt, call);
    hx_engine *engine = receipt->engine;
    switch (call->result) {
    case HX_STORE_OK:
    case HX_STORE_UNAVAILABLE: /* it may have taken effect */
        if (call->result == HX_STORE_OK && receipt->source->waits) {
            ask_handler(receipt);
            hx_engine_end_call(engine);
            return;
        }
        hx_recipient_nudge(hx_recipient_find(engine, receipt->delivery.tenant, receipt->delivery.endpoint),
                           receipt->delivery.due);
        if (call->result == HX_STORE_OK) log_receipt(receipt, HX_DELIVERY_PENDING);
        end(receipt, call->result == HX_STORE_OK ? HX_INBOX_RECEIVED : HX_INBOX_UNAVAILABLE);
        return;
    case HX_STORE_STALE:
        compare(receipt);
        hx_engine_end_call(engine);
        return;
    case HX_STORE_FULL: end(receipt, HX_INBOX_FULL); return;
    default: end(receipt, HX_INBOX_UNAVAILABLE); return;
    }
}

static hx_slice payload_hash(hx_receipt *receipt)
{
    hx_mac *mac = receipt->engine->mac;
    hx_mac_begin(mac, TAG_PAYLOAD);
    hx_mac_part(mac, receipt->event.data);
    hx_digest digest = hx_mac_end(mac);
    hx_buf hex;
    hx_buf_init(&hex, receipt->arena, 2 * sizeof digest.bytes);
    hx_buf_put_hex(&hex, digest.bytes, sizeof digest.bytes);
    return hx_buf_slice(&hex);
}

void hx_engine_receive(hx_engine *engine, hx_receipt *receipt)
{
    const hx_source *source = receipt->source;
    hx_event *event = &receipt->event;
    hx_ms now = hx_engine_now(engine);
    size_t count = 2;
    receipt->engine = engine;
    if (receipt->wait_until == 0) receipt->wait_until = now + WAIT_MAX;
    event->is_received = true;
    event->source = source->name;
    event->tenant = source->tenant;
    event->accepted_at = now;
    event->payload_hash = payload_hash(receipt);
    receipt->event_key = hx_event_key(event, receipt->arena);
    receipt->delivery = hx_outbox_delivery(receipt->event_key, source->tenant, recipient_id(source, receipt->arena),
                                           now);
    receipt->delivery_key = hx_delivery_key(source->tenant, receipt->delivery.endpoint, receipt->event_key,
                                            receipt->arena);
    if (source->waits && hx_engine_is_paused(engine)) {
        receipt->guard_key = HX_EMPTY;
        compare(receipt);
        return;
    }
    if (source->waits) hx_delivery_lease(&receipt->delivery, now, source->timeout + LEASE_EXTRA, hx_rand_u64());
    receipt->items[0] = event_item(receipt);
    receipt->items[1] = hx_outbox_item(engine, receipt->delivery_key, 0, &receipt->delivery, receipt->arena);
    receipt->guard_key = HX_EMPTY;
    if (source->replay_guard > 0 && !receipt->id_is_signed) {
        receipt->guard_key = hx_arena_printf(receipt->arena, "g/%.*s/%.*s", HX_FMT(source->name),
                                             HX_FMT(event->payload_hash));
        receipt->items[count++] = (hx_item){.key = receipt->guard_key,
                                            .queue = HX_EMPTY,
                                            .expires_at = now + source->replay_guard,
                                            .meta = event->id,
                                            .body = HX_EMPTY};
    }
    hx_engine_begin_call(engine, &receipt->call, receipt->arena, receive_done);
    hx_store_commit(engine->needs.store, &receipt->call, receipt->items, count, false);
}

void hx_engine_note_refused(hx_engine *engine)
{
    engine->refused++;
}
