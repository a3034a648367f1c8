/* SPDX-License-Identifier: Apache-2.0 */
/* Deliveries are paused on a store that was restored or copied: what is due there may be sent from the original, too,
 * or may have been sent since the copy was made. The store itself says where it is (HX_ITEM_HOME), and a copy of it
 * says where the original was. */
#include "base/log.h"
#include "core/json/json_writer.h"
#include "events/recipient.h"

#define INTERVAL (5 * HX_SECOND) /* on a shared store, where another node may have changed it */
#define AGAIN HX_SECOND
#define TRIES_MAX 5u
#define HOME_BYTES_MAX 8192u

#define FIELD(name, kind, uses) HX_JSON_FIELD(hx_home, name, kind, uses)
#define BOTH (HX_JSON_STORED | HX_JSON_SHOWN)
static const hx_json_field fields[] = {FIELD(home, TEXT, HX_JSON_STORED), FIELD(paused, BOOL, BOTH),
                                       FIELD(reason, TEXT, BOTH), FIELD(by, TEXT, BOTH), FIELD(since, TIME, BOTH)};
#undef FIELD
const hx_json_shape hx_home_shape = HX_JSON_SHAPE(fields);

static const hx_home nowhere = {.home = {"", 0}, .reason = {"", 0}, .by = {"", 0}};

static void look(hx_engine *engine);

bool hx_engine_is_paused(const hx_engine *engine)
{
    return !engine->pause.is_known || engine->pause.home.paused;
}

const hx_home *hx_engine_home(const hx_engine *engine)
{
    return &engine->pause.home;
}

static hx_slice here(const hx_engine *engine)
{
    return hx_slice_of(hx_store_about(engine->needs.store)->home);
}

static hx_item item_of(const hx_home *home, uint64_t version, hx_arena *arena)
{
    hx_buf meta;
    hx_buf_init(&meta, arena, HOME_BYTES_MAX);
    hx_json_open(&meta, NULL, '{');
    hx_json_write(&hx_home_shape, HX_JSON_STORED, home, &meta);
    hx_json_close(&meta, '}');
    return (hx_item){.key = HX_LIT(HX_ITEM_HOME),
                     .version = version,
                     .queue = HX_EMPTY,
                     .meta = hx_buf_slice(&meta),
                     .body = HX_EMPTY};
}

static bool read_home(hx_slice meta, hx_arena *arena, hx_home *home)
{
    hx_error_text error;
    *home = nowhere;
    return hx_json_read(&hx_home_shape, HX_JSON_STORED, meta, arena, home, error);
}

/* The store says this: the engine follows. */
static void follow(hx_engine *engine, hx_slice meta)
{
    bool was_known = engine->pause.is_known, was_paused = was_known && engine->pause.home.paused;
    hx_arena_free(&engine->pause.home_arena);
    if (!read_home(hx_arena_copy(&engine->pause.home_arena, meta), &engine->pause.home_arena, &engine->pause.home))
        engine->pause.home = nowhere;
    const hx_home *home = &engine->pause.home;
    engine->pause.is_known = true;
    if (home->paused != was_paused) {
        hx_log_begin(home->paused ? HX_EVENT_events_paused : HX_EVENT_events_resumed);
        if (home->reason.len > 0) hx_log_str("reason", home->reason);
        if (home->by.len > 0) hx_log_str("by", home->by);
        if (home->paused) hx_log_text("remedy", "look at what would be sent, and let it go: hapax events resume");
        hx_log_end();
    }
    if (home->paused) return;
    hx_engine_pump(engine);
    if (engine->redriver) hx_redriver_nudge(engine);
}

static void look_due(hx_timer *timer)
{
    look(HX_OWNER(timer, hx_engine, pause.timer));
}

static void rest(hx_engine *engine, hx_ms delay)
{
    hx_arena_free(&engine->pause.arena);
    if (!engine->stopping) hx_timer_start(engine->needs.loop, &engine->pause.timer, delay, look_due);
}

/* Another node of a shared store may change it. */
static void follow_and_rest(hx_engine *engine)
{
    follow(engine, engine->pause.item.meta);
    if (hx_store_about(engine->needs.store)->shared)
        rest(engine, INTERVAL);
    else
        hx_arena_free(&engine->pause.arena);
}

static void committed(hx_store_call *call)
{
    hx_engine *engine = HX_OWNER(call, hx_engine, pause.call);
    if (call->result == HX_STORE_OK)
        follow_and_rest(engine);
    else
        rest(engine, AGAIN);
    hx_engine_end_call(engine);
}

static void looked(hx_store_call *call)
{
    hx_engine *engine = HX_OWNER(call, hx_engine, pause.call);
    hx_arena *arena = &engine->pause.arena;
    const hx_item *item = &engine->pause.item;
    bool is_new = item->version == 0;
    hx_home home = nowhere;
    if (call->result != HX_STORE_OK) {
        rest(engine, AGAIN);
    } else if (!is_new && read_home(item->meta, arena, &home) && hx_slice_eq(home.home, here(engine))) {
        follow_and_rest(engine);
    } else {
        hx_home now = nowhere;
        now.home = here(engine);
        now.paused = !is_new;
        now.since = is_new ? 0 : hx_engine_now(engine);
        if (!is_new)
            now.reason = home.home.len == 0
                             ? HX_LIT("the store was restored from a backup, or copied from another")
                             : hx_arena_printf(arena, "the store was copied or moved: it was at %.*s, and is at %.*s",
                                               HX_FMT(home.home), HX_FMT(now.home));
        engine->pause.item = item_of(&now, item->version, arena);
        hx_engine_begin_call(engine, &engine->pause.call, arena, committed);
        hx_store_commit(engine->needs.store, &engine->pause.call, &engine->pause.item, 1, true);
    }
    hx_engine_end_call(engine);
}

static void look(hx_engine *engine)
{
    engine->pause.item = (hx_item){.key = HX_LIT(HX_ITEM_HOME)};
    hx_engine_begin_call(engine, &engine->pause.call, &engine->pause.arena, looked);
    hx_store_get(engine->needs.store, &engine->pause.call, &engine->pause.item, 1);
}

void hx_pause_start(hx_engine *engine)
{
    engine->pause.home = nowhere;
    look(engine);
}

void hx_pause_stop(hx_engine *engine)
{
    hx_timer_stop(engine->needs.loop, &engine->pause.timer);
}

/* What an operator wants */

static void change_read(hx_store_call *call);

static void end(hx_pause_change *change, hx_change_result result)
{
    hx_engine *engine = change->engine;
    change->result = result;
    change->done(change);
    hx_engine_end_call(engine);
}

static void read_again(hx_pause_change *change)
{
    change->item = (hx_item){.key = HX_LIT(HX_ITEM_HOME)};
    hx_engine_begin_call(change->engine, &change->call, change->arena, change_read);
    hx_store_get(change->engine->needs.store, &change->call, &change->item, 1);
}

static void change_done(hx_store_call *call)
{
    hx_pause_change *change = HX_OWNER(call, hx_pause_change, call);
    if (call->result == HX_STORE_STALE && ++change->tries < TRIES_MAX) {
        read_again(change);
        hx_engine_end_call(change->engine);
        return;
    }
    if (call->result == HX_STORE_OK) follow(change->engine, change->item.meta);
    end(change, call->result == HX_STORE_OK ? HX_CHANGE_DONE : HX_CHANGE_UNAVAILABLE);
}

static void change_read(hx_store_call *call)
{
    hx_pause_change *change = HX_OWNER(call, hx_pause_change, call);
    hx_engine *engine = change->engine;
    if (call->result != HX_STORE_OK) {
        end(change, HX_CHANGE_UNAVAILABLE);
        return;
    }
    change->home = nowhere;
    change->home.home = here(engine);
    change->home.paused = change->paused;
    change->home.reason = change->paused ? change->reason : HX_EMPTY;
    change->home.by = change->by;
    change->home.since = hx_engine_now(engine);
    change->item = item_of(&change->home, change->item.version, change->arena);
    hx_engine_begin_call(engine, &change->call, change->arena, change_done);
    hx_store_commit(engine->needs.store, &change->call, &change->item, 1, true);
    hx_engine_end_call(engine);
}

void hx_engine_change_pause(hx_engine *engine, hx_pause_change *change)
{
    change->engine = engine;
    change->tries = 0;
    read_again(change);
}
