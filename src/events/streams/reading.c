/* SPDX-License-Identifier: Apache-2.0 */
/* The stream's item is read before its entries, so that an entry which the item counts and the scan doesn't show has
 * expired, and is not just late. */
#include "events/streams/reading.h"

#include "events/recipient.h"

static void end(hx_reading *reading, hx_reading_result result)
{
    hx_engine *engine = reading->engine;
    reading->result = result;
    reading->done(reading);
    hx_engine_end_call(engine);
}

static void gone(hx_reading *reading, uint64_t oldest)
{
    reading->oldest = oldest;
    end(reading, HX_READING_GONE);
}

static void events_read(hx_store_call *call)
{
    hx_reading *reading = HX_OWNER(call, hx_reading, call);
    if (call->result != HX_STORE_OK) {
        end(reading, HX_READING_UNAVAILABLE);
        return;
    }
    reading->events = hx_arena_alloc(reading->arena, reading->run * sizeof *reading->events);
    for (size_t i = 0; i < reading->run; i++) {
        const hx_item *item = &reading->items[i];
        hx_event *event = &reading->events[i];
        if (item->version == 0 || !hx_event_decode(item->meta, reading->arena, event)) break; /* it has just expired */
        event->data = item->body;
        reading->count++;
    }
    if (reading->count == 0)
        gone(reading, reading->after + 2);
    else
        end(reading, HX_READING_DONE);
}

static void oldest_read(hx_store_call *call)
{
    hx_reading *reading = HX_OWNER(call, hx_reading, call);
    const hx_item_page *page = &reading->page;
    if (call->result != HX_STORE_OK)
        end(reading, HX_READING_UNAVAILABLE);
    else
        gone(reading, page->count > 0 ? hx_sequence_entry_position(page->items[0].key) : reading->last + 1);
}

/* Nothing is behind `after`. */
static void at_end(hx_reading *reading)
{
    if (reading->last == reading->after) {
        end(reading, HX_READING_DONE);
    } else if (reading->last > reading->after) {
        gone(reading, reading->last + 1);
    } else { /* of an earlier stream of this name */
        hx_engine *engine = reading->engine;
        reading->page.after = (hx_item){.key = HX_EMPTY};
        reading->page.items_max = 1;
        hx_engine_begin_call(engine, &reading->call, reading->arena, oldest_read);
        hx_store_scan(engine->needs.store, &reading->call, &reading->page);
        hx_engine_end_call(engine);
    }
}

static void entries_read(hx_store_call *call)
{
    hx_reading *reading = HX_OWNER(call, hx_reading, call);
    hx_engine *engine = reading->engine;
    const hx_item_page *page = &reading->page;
    size_t bytes = 0;
    if (call->result != HX_STORE_OK) {
        end(reading, HX_READING_UNAVAILABLE);
        return;
    }
    if (page->count == 0) {
        at_end(reading);
        return;
    }
    reading->items = hx_arena_alloc(reading->arena, page->count * sizeof *reading->items);
    for (size_t i = 0; i < page->count; i++) {
        hx_sequence_entry entry;
        uint64_t position = hx_sequence_entry_position(page->items[i].key);
        if (position != reading->after + 1 + i ||
            !hx_sequence_entry_decode(page->items[i].meta, reading->arena, &entry))
            break;
        bytes += entry.bytes;
        if (i > 0 && bytes > reading->bytes_max) break;
        hx_event event = {.id = entry.id, .tenant = reading->tenant};
        reading->items[reading->run++] = (hx_item){.key = hx_event_key(&event, reading->arena)};
        if (position > reading->last) reading->last = position;
    }
    if (reading->run == 0) {
        gone(reading, hx_sequence_entry_position(page->items[0].key));
        return;
    }
    hx_engine_begin_call(engine, &reading->call, reading->arena, events_read);
    hx_store_get(engine->needs.store, &reading->call, reading->items, reading->run);
    hx_engine_end_call(engine);
}

static void head_read(hx_store_call *call)
{
    hx_reading *reading = HX_OWNER(call, hx_reading, call);
    hx_engine *engine = reading->engine;
    hx_sequence head;
    hx_slice meta = reading->head.version > 0 ? reading->head.meta : HX_EMPTY;
    if (call->result != HX_STORE_OK || !hx_sequence_decode(meta, reading->arena, &head)) {
        end(reading, HX_READING_UNAVAILABLE);
        return;
    }
    reading->last = head.last;
    reading->page = (hx_item_page){.prefix = hx_sequence_entry_prefix(reading->tenant, reading->stream, reading->arena),
                                   .after = {.key = hx_sequence_entry_key(reading->tenant, reading->stream,
                                                                          reading->after, reading->arena)},
                                   .items_max = reading->events_max};
    hx_engine_begin_call(engine, &reading->call, reading->arena, entries_read);
    hx_store_scan(engine->needs.store, &reading->call, &reading->page);
    hx_engine_end_call(engine);
}

void hx_engine_read_stream(hx_engine *engine, hx_reading *reading)
{
    reading->engine = engine;
    reading->count = reading->run = 0;
    reading->head = (hx_item){.key = hx_sequence_key(reading->tenant, reading->stream, reading->arena)};
    hx_engine_begin_call(engine, &reading->call, reading->arena, head_read);
    hx_store_get(engine->needs.store, &reading->call, &reading->head, 1);
}
