/* SPDX-License-Identifier: Apache-2.0 */
#include "events/streams/gate.h"

#include "base/check.h"
#include "base/log.h"
#include "events/recipient.h"

#include <stdlib.h>
#include <string.h>

#define IDLE_MAX 10000u /* gates that are kept because their streams may be published to again */

static bool is_needed(const hx_gate *gate)
{
    return gate->holder || !hx_list_empty(&gate->waiting) || !hx_list_empty(&gate->watches);
}

static void drop(hx_engine *engine, hx_gate *gate)
{
    hx_list_remove(&gate->idle);
    (void)hx_map_remove(engine->gates.by_key, gate->key);
    free(gate);
}

/* A gate that nobody needs any more is the newest of the idle ones. */
static void rest(hx_engine *engine, hx_gate *gate)
{
    if (is_needed(gate) || !hx_list_empty(&gate->idle)) return;
    hx_list_append(&engine->gates.idle, &gate->idle);
    if (++engine->gates.idle_count <= IDLE_MAX) return;
    engine->gates.idle_count--;
    drop(engine, HX_OWNER(engine->gates.idle.next, hx_gate, idle));
}

static void wake_up(hx_engine *engine, hx_gate *gate)
{
    if (hx_list_empty(&gate->idle)) return;
    hx_list_remove(&gate->idle);
    engine->gates.idle_count--;
}

hx_gate *hx_gate_of(hx_engine *engine, hx_slice tenant, hx_slice stream)
{
    hx_arena arena = {0};
    hx_slice key = hx_sequence_key(tenant, stream, &arena);
    hx_gate *gate = hx_map_get(engine->gates.by_key, key);
    if (!gate) {
        gate = calloc(1, sizeof *gate + key.len);
        if (!gate) hx_fatal(HX_EXIT_BUG, "out of memory");
        memcpy(gate + 1, key.ptr, key.len);
        gate->key = (hx_slice){(const char *)(gate + 1), key.len};
        hx_list_init(&gate->waiting);
        hx_list_init(&gate->watches);
        hx_list_init(&gate->idle);
        (void)hx_map_put(engine->gates.by_key, gate->key, gate);
    }
    hx_arena_free(&arena);
    return gate;
}

/* Takes every gate that the publish needs. False: it waits for one, and has none. */
static bool take(hx_publish *publish)
{
    hx_engine *engine = publish->engine;
    publish->gate_count = 0;
    for (size_t i = 0; i < publish->count; i++) {
        const hx_event *event = &publish->events[i];
        hx_gate *gate = event->stream.len > 0 ? hx_gate_of(engine, event->tenant, event->stream) : NULL;
        if (!gate || !gate->holder) continue;
        hx_list_append(&gate->waiting, &publish->turn);
        return false;
    }
    for (size_t i = 0; i < publish->count; i++) {
        const hx_event *event = &publish->events[i];
        hx_gate *gate = event->stream.len > 0 ? hx_gate_of(engine, event->tenant, event->stream) : NULL;
        if (!gate || gate->holder) continue; /* an earlier event's, too */
        wake_up(engine, gate);
        gate->holder = publish;
        publish->gates[publish->gate_count++] = gate;
    }
    return true;
}

void hx_gates_take(hx_publish *publish, void (*go)(hx_publish *publish))
{
    size_t streams = 0;
    for (size_t i = 0; i < publish->count; i++) streams += publish->events[i].stream.len > 0;
    publish->gates = hx_arena_alloc(publish->arena, (streams + 1) * sizeof(hx_gate *));
    publish->go = go;
    hx_list_init(&publish->turn);
    if (take(publish)) go(publish);
}

void hx_gates_release(hx_publish *publish)
{
    hx_engine *engine = publish->engine;
    size_t count = publish->gate_count;
    hx_gate **gates = publish->gates;
    publish->gate_count = 0;
    for (size_t i = 0; i < count; i++) gates[i]->holder = NULL;
    for (size_t i = 0; i < count; i++) {
        hx_link *first;
        while (!gates[i]->holder && (first = hx_list_take(&gates[i]->waiting))) {
            hx_publish *next = HX_OWNER(first, hx_publish, turn);
            if (take(next)) next->go(next);
        }
        rest(engine, gates[i]);
    }
}

const hx_event *hx_gates_misfit(const hx_publish *publish)
{
    for (size_t i = 0; i < publish->count; i++) {
        const hx_event *event = &publish->events[i];
        uint64_t expected;
        if (event->stream.len == 0) continue;
        const hx_gate *gate = hx_gate_of(publish->engine, event->tenant, event->stream);
        if (!gate->is_known) return event;
        if (event->expected_version.len == 0) continue;
        if (!hx_slice_to_u64(event->expected_version, &expected) || expected != gate->head.last) return event;
    }
    return NULL;
}

size_t hx_gates_items(const hx_publish *publish, hx_item *items, bool with_content)
{
    for (size_t i = 0; i < publish->gate_count; i++) {
        const hx_gate *gate = publish->gates[i];
        items[i] = (hx_item){.key = gate->key, .queue = HX_EMPTY, .meta = HX_EMPTY, .body = HX_EMPTY};
        if (!with_content) continue;
        items[i].version = gate->version;
        items[i].expires_at = hx_sequence_expiry(&gate->next);
        items[i].meta = hx_sequence_encode(&gate->next, publish->arena);
    }
    return publish->gate_count;
}

bool hx_gates_learn(hx_publish *publish, const hx_item *items)
{
    for (size_t i = 0; i < publish->gate_count; i++) {
        hx_gate *gate = publish->gates[i];
        gate->version = items[i].version;
        gate->is_known = hx_sequence_decode(items[i].version > 0 ? items[i].meta : HX_EMPTY, publish->arena,
                                            &gate->head);
        if (gate->is_known) continue;
        hx_log_begin(HX_EVENT_event_item_malformed);
        hx_log_str("key", gate->key);
        hx_log_end();
        return false;
    }
    return true;
}

void hx_gates_advance(hx_publish *publish, uint64_t version)
{
    for (size_t i = 0; i < publish->gate_count; i++) {
        hx_gate *gate = publish->gates[i];
        gate->head = gate->next;
        gate->version = version;
        HX_EACH(link, &gate->watches)
        {
            hx_stream_watch *watch = HX_OWNER(link, hx_stream_watch, link);
            watch->woken(watch);
        }
    }
}

void hx_gates_forget(hx_publish *publish)
{
    for (size_t i = 0; i < publish->gate_count; i++) publish->gates[i]->is_known = false;
}

void hx_engine_watch(hx_engine *engine, hx_slice tenant, hx_slice stream, hx_stream_watch *watch)
{
    hx_gate *gate = hx_gate_of(engine, tenant, stream);
    wake_up(engine, gate);
    watch->gate = gate;
    hx_list_append(&gate->watches, &watch->link);
}

void hx_engine_unwatch(hx_engine *engine, hx_stream_watch *watch)
{
    hx_list_remove(&watch->link);
    rest(engine, watch->gate);
}

void hx_gates_free(hx_engine *engine)
{
    hx_slice key;
    void *gate;
    for (size_t cursor = 0; hx_map_next(engine->gates.by_key, &cursor, &key, &gate);) free(gate);
    hx_map_free(&engine->gates.by_key);
}
