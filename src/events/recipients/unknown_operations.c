/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that have become unknown are told as events, too. They become so on other threads, in other nodes and at
 * the start of a store, and share no commit with items: so they are looked for when the store's number of them has
 * changed, and now and then anyway. The id of the event follows from the operation and its epoch, so that none is told
 * twice, however often it is found. */
#include "events/recipient.h"

#define INTERVAL (2 * HX_SECOND)
#define ANYWAY (5 * HX_MINUTE)
#define FIRST_LOOK HX_HOUR       /* at a start: what became unknown while no process was looking */
#define OVERLAP (15 * HX_SECOND) /* of two looks: clocks differ, and commits take time */
#define PAGE 100u

static void look_due(hx_timer *timer);
static void tell_next(hx_engine *engine);

static void rest(hx_engine *engine)
{
    hx_arena_free(&engine->unknowns.arena);
    if (!engine->stopping) hx_timer_start(engine->needs.loop, &engine->unknowns.timer, INTERVAL, look_due);
}

static void told(hx_store_call *call)
{
    hx_engine *engine = HX_OWNER(call, hx_engine, unknowns.call);
    if (call->result == HX_STORE_OK) hx_fan_out_nudge(engine, hx_engine_now(engine));
    if (call->result == HX_STORE_OK || call->result == HX_STORE_STALE) { /* STALE: it was told before */
        engine->unknowns.at++;
        tell_next(engine);
    } else {
        engine->unknowns.count = UINT64_MAX; /* once more, from the same time */
        rest(engine);
    }
    hx_engine_end_call(engine);
}

static void list(hx_engine *engine);

static void tell_next(hx_engine *engine)
{
    hx_store_page *page = &engine->unknowns.page;
    for (; engine->unknowns.at < page->count && !engine->stopping; engine->unknowns.at++) {
        size_t count = hx_own_event_of_operation(engine, &page->records[engine->unknowns.at], engine->unknowns.items,
                                                 &engine->unknowns.arena);
        if (count == 0) continue;
        hx_engine_begin_call(engine, &engine->unknowns.call, &engine->unknowns.arena, told);
        hx_store_commit(engine->needs.store, &engine->unknowns.call, engine->unknowns.items, count, false);
        return;
    }
    if (page->more && !engine->stopping) {
        list(engine);
        return;
    }
    if (!engine->stopping) engine->unknowns.from = engine->unknowns.began_at - OVERLAP;
    rest(engine);
}

static void listed(hx_store_call *call)
{
    hx_engine *engine = HX_OWNER(call, hx_engine, unknowns.call);
    engine->unknowns.at = 0;
    if (call->result == HX_STORE_OK) {
        tell_next(engine);
    } else {
        engine->unknowns.count = UINT64_MAX;
        rest(engine);
    }
    hx_engine_end_call(engine);
}

static void list(hx_engine *engine)
{
    hx_arena_free(&engine->unknowns.arena);
    hx_engine_begin_call(engine, &engine->unknowns.call, &engine->unknowns.arena, listed);
    hx_store_list(engine->needs.store, &engine->unknowns.call, &engine->unknowns.page);
}

static void look_due(hx_timer *timer)
{
    hx_engine *engine = HX_OWNER(timer, hx_engine, unknowns.timer);
    hx_ms now = hx_engine_now(engine);
    hx_store_counts counts;
    hx_store_count(engine->needs.store, &counts);
    bool is_time = counts.unknown > 0 && now - engine->unknowns.began_at > ANYWAY;
    if ((counts.unknown == engine->unknowns.count && !is_time) || !hx_own_event_is_named(engine)) {
        rest(engine);
        return;
    }
    engine->unknowns.count = counts.unknown;
    engine->unknowns.began_at = now;
    engine->unknowns.page = (hx_store_page){.states = 1u << HX_UNKNOWN,
                                            .route = HX_EMPTY,
                                            .reason = HX_EMPTY,
                                            .changed_from = engine->unknowns.from,
                                            .records_max = PAGE};
    list(engine);
}

void hx_unknowns_start(hx_engine *engine)
{
    engine->unknowns.from = hx_engine_now(engine) - FIRST_LOOK;
    hx_timer_start(engine->needs.loop, &engine->unknowns.timer, INTERVAL, look_due);
}

void hx_unknowns_stop(hx_engine *engine)
{
    hx_timer_stop(engine->needs.loop, &engine->unknowns.timer);
}
