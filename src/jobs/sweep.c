/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/sweep.h"

#include "base/log.h"

static void sweep_due(hx_timer *timer);

static void log_cleaned(hx_sweep *sweep)
{
    sweep->logged_at = hx_loop_now(sweep->loop);
    if (sweep->cleaned == 0) return;
    hx_log_begin(HX_EVENT_operations_expired);
    hx_log_int("count", (int64_t)sweep->cleaned);
    hx_log_end();
    sweep->cleaned = 0;
}

static void sweep_done(hx_store_call *call)
{
    hx_sweep *sweep = HX_OWNER(call, hx_sweep, call);
    sweep->busy = false;
    hx_arena_free(&sweep->arena);
    sweep->cleaned += call->count;
    if (hx_loop_now(sweep->loop) - sweep->logged_at >= HX_HOUR) log_cleaned(sweep);
    if (!sweep->stopping) {
        hx_timer_start(sweep->loop, &sweep->timer, sweep->interval, sweep_due);
        return;
    }
    log_cleaned(sweep);
    sweep->stopped(sweep->context);
}

static void sweep_due(hx_timer *timer)
{
    hx_sweep *sweep = HX_OWNER(timer, hx_sweep, timer);
    if (hx_clock_settle()) {
        hx_ms held = hx_clock_held();
        hx_log_begin(held > 0 ? HX_EVENT_clock_set_back : HX_EVENT_clock_trusted);
        if (held > 0) hx_log_int("hours", held / HX_HOUR);
        hx_log_end();
    }
    sweep->call = (hx_store_call){.loop = sweep->loop, .arena = &sweep->arena, .done = sweep_done};
    sweep->busy = true;
    hx_store_sweep(sweep->store, &sweep->call);
}

void hx_sweep_start(hx_sweep *sweep, hx_loop *loop, hx_store *store, hx_ms interval)
{
    *sweep = (hx_sweep){.store = store, .loop = loop, .interval = interval, .logged_at = hx_loop_now(loop)};
    hx_timer_start(loop, &sweep->timer, interval, sweep_due);
}

void hx_sweep_stop(hx_sweep *sweep, void (*stopped)(void *context), void *context)
{
    sweep->stopping = true;
    sweep->stopped = stopped;
    sweep->context = context;
    hx_timer_stop(sweep->loop, &sweep->timer);
    if (sweep->busy) return;
    log_cleaned(sweep);
    stopped(context);
}
