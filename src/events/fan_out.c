/* SPDX-License-Identifier: Apache-2.0 */
/* Events whose deliveries were not written when they were accepted: those with a later time of delivery, and those with
 * many recipients. Each has an item in the queue "fanout", with the recipients that are left. */
#include "base/check.h"
#include "events/fan_out.h"

#define AGAIN HX_SECOND
#define PAGE 64u

static void look_due(hx_timer *timer);
static void next(hx_engine *engine);

static void rest(hx_engine *engine, hx_ms delay)
{
    engine->fan_out.is_busy = false;
    hx_arena_free(&engine->fan_out.arena);
    if (engine->fan_out.again) delay = 0;
    engine->fan_out.again = false;
    if (engine->stopping || delay < 0) return;
    hx_timer_start(engine->needs.loop, &engine->fan_out.timer, delay, look_due);
}

hx_slice hx_fan_out_key(hx_slice event_key, hx_arena *arena)
{
    return hx_arena_printf(arena, "f/%.*s", HX_FMT(event_key));
}

static const hx_json_field fields[] = {
    HX_JSON_FIELD(hx_fan_out, event, TEXT, HX_JSON_STORED),
    HX_JSON_FIELD(hx_fan_out, tenant, TEXT, HX_JSON_STORED),
    HX_JSON_FIELD(hx_fan_out, stream, TEXT, HX_JSON_STORED),
    HX_JSON_FIELD(hx_fan_out, recipients, TEXTS, HX_JSON_STORED),
};
static const hx_json_shape shape = HX_JSON_SHAPE(fields);

hx_item hx_fan_out_item(const hx_fan_out *left, hx_ms due, uint64_t version, hx_arena *arena)
{
    hx_buf meta;
    hx_buf_init(&meta, arena, HX_ITEM_META_MAX);
    hx_buf_puts(&meta, "{");
    hx_json_write(&shape, HX_JSON_STORED, left, &meta);
    hx_buf_puts(&meta, "}");
    return (hx_item){.key = hx_fan_out_key(left->event, arena),
                     .version = version,
                     .act = left->recipients.count > 0 ? HX_ITEM_PUT : HX_ITEM_REMOVE,
                     .queue = HX_LIT("fanout"),
                     .due = due,
                     .meta = hx_buf_slice(&meta),
                     .body = HX_EMPTY};
}

size_t hx_fan_out_add(hx_engine *engine, const hx_fan_out *from, size_t count, hx_ms now, hx_item *items,
                      hx_arena *arena)
{
    for (size_t i = 0; i < count; i++) {
        hx_slice endpoint = from->recipients.items[i];
        const hx_recipient *recipient = hx_recipient_find(engine, from->tenant, endpoint);
        hx_delivery delivery = hx_outbox_delivery(from->event, from->tenant, endpoint, now);
        delivery.stream = from->stream;
        bool is_there = recipient && recipient->endpoint.deleted_at == 0;
        bool is_ended = !is_there && hx_delivery_cancel(&delivery, now, HX_LIT("the endpoint was deleted"));
        HX_CHECK(is_there || is_ended);
        if (is_there && recipient->endpoint.ordered && !from->is_beside) delivery.place = hx_ordered_place(engine, now);
        items[i] = hx_outbox_item(engine, hx_delivery_key(from->tenant, endpoint, from->event, arena), 0, &delivery,
                                  arena);
    }
    return count;
}

void hx_fan_out_nudge_recipients(const hx_engine *engine, const hx_fan_out *from, size_t count, hx_ms now)
{
    for (size_t i = 0; i < count; i++) {
        hx_recipient *recipient = hx_recipient_find(engine, from->tenant, from->recipients.items[i]);
        if (recipient) hx_recipient_nudge(recipient, now);
    }
}

static bool read_work(hx_engine *engine, hx_fan_out *work)
{
    hx_error_text error;
    *work = (hx_fan_out){.event = HX_EMPTY, .tenant = HX_EMPTY, .stream = HX_EMPTY};
    return hx_json_read(&shape, HX_JSON_STORED, engine->fan_out.page.items[engine->fan_out.at].meta,
                        &engine->fan_out.arena, work, error);
}

static size_t part_of(const hx_fan_out *work)
{
    return work->recipients.count < HX_FAN_OUT_PART ? work->recipients.count : HX_FAN_OUT_PART;
}

static void commit_done(hx_store_call *call)
{
    hx_engine *engine = HX_OWNER(call, hx_engine, fan_out.call);
    hx_fan_out work;
    if (read_work(engine, &work)) { /* a commit whose end is not known may have taken effect */
        hx_fan_out_nudge_recipients(engine, &work, part_of(&work), hx_engine_now(engine));
        if (call->result == HX_STORE_OK && work.recipients.count > HX_FAN_OUT_PART) engine->fan_out.again = true;
    }
    /* STALE: another node did it, unless an endpoint was changed, which this one reads within the second. */
    bool failed = call->result != HX_STORE_OK && (call->result != HX_STORE_STALE || hx_nodes_went_ahead(call));
    engine->fan_out.at++;
    if (failed)
        rest(engine, AGAIN);
    else
        next(engine);
    hx_engine_end_call(engine);
}

static void next(hx_engine *engine)
{
    hx_item_page *page = &engine->fan_out.page;
    hx_arena *arena = &engine->fan_out.arena;
    hx_ms now = hx_engine_now(engine);
    for (; engine->fan_out.at < page->count && !engine->stopping; engine->fan_out.at++) {
        const hx_item *item = &page->items[engine->fan_out.at];
        hx_fan_out work;
        if (item->due > now) {
            rest(engine, item->due - now);
            return;
        }
        if (!read_work(engine, &work)) continue;
        size_t part = part_of(&work);
        hx_item *items = hx_arena_alloc(arena, (part + 2) * sizeof *items);
        size_t count = hx_fan_out_add(engine, &work, part, now, items, arena);
        work.recipients.items += part;
        work.recipients.count -= part;
        items[count++] = hx_fan_out_item(&work, item->due, item->version, arena);
        count += hx_nodes_add(engine, HX_ITEM_CHECK, items + count);
        hx_engine_begin_call(engine, &engine->fan_out.call, arena, commit_done);
        hx_store_commit(engine->needs.store, &engine->fan_out.call, items, count, false);
        return;
    }
    rest(engine, page->more ? 0 : -1);
}

static void look_done(hx_store_call *call)
{
    hx_engine *engine = HX_OWNER(call, hx_engine, fan_out.call);
    engine->fan_out.at = 0;
    if (call->result == HX_STORE_OK)
        next(engine);
    else
        rest(engine, AGAIN);
    hx_engine_end_call(engine);
}

static void look_due(hx_timer *timer)
{
    hx_engine *engine = HX_OWNER(timer, hx_engine, fan_out.timer);
    if (engine->fan_out.is_busy) {
        engine->fan_out.again = true;
        return;
    }
    engine->fan_out.is_busy = true;
    engine->fan_out.page = (hx_item_page){.by_queue = true, .prefix = HX_LIT("fanout"), .items_max = PAGE};
    hx_engine_begin_call(engine, &engine->fan_out.call, &engine->fan_out.arena, look_done);
    hx_store_scan(engine->needs.store, &engine->fan_out.call, &engine->fan_out.page);
}

void hx_fan_out_nudge(hx_engine *engine, hx_ms due)
{
    if (!engine->started || engine->stopping) return; /* at the start everything is looked at */
    hx_timer *timer = &engine->fan_out.timer;
    hx_ms delay = due - hx_engine_now(engine), now = hx_loop_now(engine->needs.loop);
    if (delay < 0) delay = 0;
    if (engine->fan_out.is_busy) engine->fan_out.again = true;
    if (hx_timer_running(timer) && timer->due <= now + delay) return;
    hx_timer_start(engine->needs.loop, timer, delay, look_due);
}

void hx_fan_out_start(hx_engine *engine)
{
    hx_fan_out_nudge(engine, hx_engine_now(engine));
}

void hx_fan_out_stop(hx_engine *engine)
{
    hx_timer_stop(engine->needs.loop, &engine->fan_out.timer);
}
