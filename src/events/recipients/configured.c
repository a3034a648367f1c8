/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints of the configuration. The store has an item for each, for its state and for what is fixed about it, without
 * its secrets and headers. At the start each is written if it has changed, and those that are not in the configuration
 * any more are deleted, as by a request. */
#include "events/recipient.h"

#define AGAIN HX_SECOND

static void next(hx_engine *engine);

const hx_endpoint *hx_configured_find(const hx_engine *engine, const hx_endpoint *like)
{
    for (size_t i = 0; i < engine->needs.configured_count; i++) {
        const hx_endpoint *given = &engine->needs.configured[i];
        if (hx_slice_eq(given->tenant, like->tenant) && hx_slice_eq(given->id, like->id)) return given;
    }
    return NULL;
}

static void again(hx_timer *timer)
{
    next(HX_OWNER(timer, hx_engine, configured.timer));
}

static void change_done(hx_endpoint_change *change)
{
    hx_engine *engine = change->engine;
    bool is_done = change->result == HX_CHANGE_DONE || change->result == HX_CHANGE_ABSENT;
    if (is_done && change->act == HX_ENDPOINT_CONFIGURE) engine->configured.at++;
    if (!engine->stopping) hx_timer_start(engine->needs.loop, &engine->configured.timer, is_done ? 0 : AGAIN, again);
}

static void begin(hx_engine *engine, hx_endpoint_act act, const hx_endpoint *endpoint)
{
    hx_arena *arena = &engine->configured.arena;
    hx_arena_free(arena);
    hx_slice tenant = hx_arena_copy(arena, endpoint->tenant), id = hx_arena_copy(arena, endpoint->id);
    engine->configured.change = (hx_endpoint_change){.arena = arena,
                                                     .act = act,
                                                     .tenant = tenant,
                                                     .id = id,
                                                     .endpoint = {.tenant = tenant, .id = id},
                                                     .done = change_done};
    hx_engine_change_endpoint(engine, &engine->configured.change);
}

static void next(hx_engine *engine)
{
    hx_slice name;
    void *value;
    if (engine->configured.at < engine->needs.configured_count) {
        begin(engine, HX_ENDPOINT_CONFIGURE, &engine->needs.configured[engine->configured.at]);
        return;
    }
    for (size_t cursor = 0; hx_map_next(engine->recipients, &cursor, &name, &value);) {
        const hx_endpoint *endpoint = &((const hx_recipient *)value)->endpoint;
        if (!endpoint->configured || endpoint->deleted_at > 0 || hx_configured_find(engine, endpoint)) continue;
        begin(engine, HX_ENDPOINT_UNCONFIGURE, endpoint);
        return;
    }
}

void hx_configured_start(hx_engine *engine)
{
    next(engine);
}

void hx_configured_stop(hx_engine *engine)
{
    hx_timer_stop(engine->needs.loop, &engine->configured.timer);
}
