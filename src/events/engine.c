/* SPDX-License-Identifier: Apache-2.0 */
#include "events/engine.h"

#include "base/check.h"
#include "events/recipient.h"
#include "events/streams/gate.h"

#include <stdlib.h>

#define WATCH_INTERVAL (HX_SECOND / 2)
#define SLOW HX_SECOND
#define TOTAL_FACTOR 4u /* attempts in all, in multiples of attempts_max: those of failing recipients come on top */

hx_ms hx_engine_now(const hx_engine *engine)
{
    return hx_store_about(engine->needs.store)->now();
}

bool hx_engine_is_ready(const hx_engine *engine)
{
    return engine->started && !engine->stopping;
}

hx_mac *hx_engine_new_mac(const hx_engine *engine)
{
    return hx_mac_new(hx_store_about(engine->needs.store)->secret);
}

const hx_engine_counts *hx_engine_count(hx_engine *engine)
{
    engine->counts.under_way = engine->attempts;
    engine->counts.refused = engine->refused;
    engine->counts.paused = hx_engine_is_paused(engine);
    engine->counts.endpoints = hx_map_count(engine->recipients);
    return &engine->counts;
}

void hx_engine_begin_call(hx_engine *engine, hx_store_call *call, hx_arena *arena, void (*done)(hx_store_call *call))
{
    *call = (hx_store_call){.loop = engine->needs.loop, .arena = arena, .done = done};
    engine->calls++;
}

void hx_engine_end_call(hx_engine *engine)
{
    engine->calls--;
    if (engine->calls > 0 || !engine->stopping || !engine->stopped) return;
    void (*stopped)(void *context) = engine->stopped;
    engine->stopped = NULL;
    stopped(engine->stopped_context);
}

static void pump(hx_task *task)
{
    hx_engine *engine = HX_OWNER(task, hx_engine, pump);
    unsigned most = TOTAL_FACTOR * engine->needs.settings.attempts_max;
    engine->pumping = false;
    for (hx_recipient_class class = 0; class < HX_RECIPIENT_CLASSES; class ++) {
        while (!engine->stopping && !hx_engine_is_paused(engine) && engine->attempts < most &&
               engine->places[class] < hx_recipient_places(engine, class)) {
            hx_link *first = hx_list_take(&engine->listed[class]);
            if (!first) break;
            hx_recipient *recipient = HX_OWNER(first, hx_recipient, link);
            recipient->is_listed = false;
            hx_attempt_begin(recipient, hx_recipient_take(recipient));
            hx_recipient_list(recipient);
        }
    }
}

void hx_engine_pump(hx_engine *engine)
{
    if (engine->pumping || engine->stopping) return;
    engine->pumping = true;
    engine->pump.run = pump;
    hx_loop_defer(engine->needs.loop, &engine->pump);
}

/* A recipient whose attempt takes long gives its place to others before the attempt has ended; and those that wait for
 * their first attempt for long are no longer in the way of others that come. */
static void watch_due(hx_timer *timer)
{
    hx_engine *engine = HX_OWNER(timer, hx_engine, watch);
    hx_ms now = hx_engine_now(engine);
    HX_EACH(link, &engine->active)
    {
        hx_recipient *recipient = HX_OWNER(link, hx_recipient, active);
        if (now - recipient->oldest > SLOW) hx_recipient_classify(recipient, HX_RECIPIENT_FAILING);
    }
    HX_EACH(link, &engine->listed[HX_RECIPIENT_NEW])
    {
        hx_recipient *recipient = HX_OWNER(link, hx_recipient, link);
        if (now - recipient->listed_at > SLOW) hx_recipient_classify(recipient, HX_RECIPIENT_LATE);
    }
    if (!engine->stopping) hx_timer_start(engine->needs.loop, &engine->watch, WATCH_INTERVAL, watch_due);
}

void hx_engine_begin_deliveries(hx_engine *engine)
{
    hx_slice name;
    void *value;
    engine->started = true;
    for (size_t cursor = 0; hx_map_next(engine->recipients, &cursor, &name, &value);)
        hx_recipient_nudge(value, hx_engine_now(engine));
    hx_leases_start(engine);
    hx_fan_out_start(engine);
    hx_housekeeping_start(engine);
    hx_redriver_start(engine);
    hx_configured_start(engine);
    hx_unknowns_start(engine);
    hx_local_outbox_start(engine);
    hx_timer_start(engine->needs.loop, &engine->watch, WATCH_INTERVAL, watch_due);
}

void hx_engine_start(hx_engine *engine)
{
    engine->leases.began_at = hx_engine_now(engine); /* the inbox may lease before the endpoints are read */
    hx_nodes_start(engine);
    hx_pause_start(engine);
}

hx_engine *hx_engine_new(const hx_engine_needs *needs)
{
    hx_engine *engine = calloc(1, sizeof *engine);
    if (!engine) hx_fatal(HX_EXIT_BUG, "out of memory");
    HX_CHECK(hx_store_about(needs->store)->keeps_items);
    engine->needs = *needs;
    engine->mac = hx_engine_new_mac(engine);
    engine->recipients = hx_map_new();
    engine->gates.by_key = hx_map_new();
    hx_list_init(&engine->gates.idle);
    engine->tenants = hx_map_new();
    engine->events = hx_map_new();
    hx_list_init(&engine->active);
    hx_list_init(&engine->nodes.waiting);
    for (hx_recipient_class class = 0; class < HX_RECIPIENT_CLASSES; class ++) hx_list_init(&engine->listed[class]);
    return engine;
}

void hx_engine_stop(hx_engine *engine, void (*stopped)(void *context), void *context)
{
    hx_slice name;
    void *value;
    engine->stopping = true;
    engine->stopped = stopped;
    engine->stopped_context = context;
    engine->calls++;
    hx_nodes_stop(engine);
    hx_leases_stop(engine);
    hx_fan_out_stop(engine);
    hx_housekeeping_stop(engine);
    hx_redriver_stop(engine);
    hx_pause_stop(engine);
    hx_configured_stop(engine);
    hx_unknowns_stop(engine);
    hx_local_outbox_stop(engine);
    hx_timer_stop(engine->needs.loop, &engine->watch);
    for (size_t cursor = 0; hx_map_next(engine->recipients, &cursor, &name, &value);)
        hx_timer_stop(engine->needs.loop, &((hx_recipient *)value)->timer);
    hx_engine_end_call(engine);
}

void hx_engine_free(hx_engine **owned)
{
    hx_engine *engine = *owned;
    if (!engine) return;
    *owned = NULL;
    hx_slice name;
    void *value;
    size_t cursor = 0;
    while (hx_map_next(engine->recipients, &cursor, &name, &value)) {
        hx_recipient *recipient = value;
        hx_recipient_remove(&recipient);
        cursor = 0;
    }
    hx_map_free(&engine->recipients);
    hx_gates_free(engine);
    hx_map_free(&engine->tenants);
    hx_map_free(&engine->events);
    hx_arena_free(&engine->nodes.arena);
    hx_arena_free(&engine->leases.arena);
    hx_arena_free(&engine->fan_out.arena);
    hx_arena_free(&engine->housekeeping.arena);
    hx_redriver_free(engine);
    hx_arena_free(&engine->pause.arena);
    hx_arena_free(&engine->pause.home_arena);
    hx_arena_free(&engine->configured.arena);
    hx_arena_free(&engine->unknowns.arena);
    hx_arena_free(&engine->outbox.arena);
    hx_mac_free(&engine->mac);
    free(engine);
}
