/* SPDX-License-Identifier: Apache-2.0 */
/* Statements for which no call waits: rechecking operations that are watched, announcements to and from other nodes,
 * and releasing abandoned claims. They go out with the next round. */
#include "store/remote/lane.h"

#define RECHECK_FIRST ((hx_ms)10)
#define RECHECK_MAX ((hx_ms)250)
#define RECHECKS_PER_MS 10u /* the more is watched, the less often it is rechecked */
#define ABANDON_AGAIN HX_SECOND

bool hx_upkeep_is_due(const hx_lane *lane)
{
    return lane->abandon_is_due || lane->announcement_count > 0 || lane->awaited_count > 0 || lane->recheck_is_due ||
           lane->needs_listen || lane->needs_setup;
}

void hx_upkeep_failed(hx_lane *lane, hx_statement_kind kind)
{
    if (kind == HX_STATEMENT_ABANDON) hx_upkeep_abandon_again(lane);
    if (kind == HX_STATEMENT_ANNOUNCE) lane->announcement_count = 0;
    if (kind == HX_STATEMENT_AWAIT) lane->awaited_count = 0;
    if (kind == HX_STATEMENT_LISTEN) lane->needs_listen = false;
    if (kind == HX_STATEMENT_RECHECK) lane->recheck_is_due = false; /* its timer brings the next */
}

static hx_ms recheck_delay(const hx_lane *lane)
{
    return lane->recheck_delay + (hx_ms)(lane->recheck_size / RECHECKS_PER_MS);
}

static void time_to_recheck(hx_timer *timer)
{
    hx_lane *lane = HX_OWNER(timer, hx_lane, recheck);
    if (hx_list_empty(&lane->watching)) return;
    lane->recheck_is_due = true;
    if (lane->recheck_delay < RECHECK_MAX) lane->recheck_delay *= 2;
    hx_timer_start(lane->loop, &lane->recheck, recheck_delay(lane), time_to_recheck);
    hx_lane_schedule(lane);
}

void hx_upkeep_watch(hx_lane *lane, hx_store_call *watch)
{
    watch->own.remote.is_watching = true;
    hx_list_append(&lane->watching, &watch->own.link);
    bool is_announced = !lane->store->is_pooled && lane->awaited_count < HX_ROUND_CALLS_MAX;
    if (is_announced) lane->awaited[lane->awaited_count++] = watch->op;
    lane->recheck_delay = RECHECK_FIRST;
    hx_ms due = hx_loop_now(lane->loop) + recheck_delay(lane);
    bool is_soon = hx_timer_running(&lane->recheck) && lane->recheck.due <= due;
    if (!is_soon) hx_timer_start(lane->loop, &lane->recheck, recheck_delay(lane), time_to_recheck);
}

static void time_to_abandon(hx_timer *timer)
{
    hx_lane *lane = HX_OWNER(timer, hx_lane, abandon_again);
    lane->abandon_is_due = true;
    hx_lane_schedule(lane);
}

void hx_upkeep_abandon_again(hx_lane *lane)
{
    hx_timer_start(lane->loop, &lane->abandon_again, ABANDON_AGAIN, time_to_abandon);
}

/* Past the limit, other nodes find out by rechecking. */
void hx_upkeep_announce(hx_lane *lane, const hx_op *op)
{
    if (lane->announcement_count < HX_ROUND_CALLS_MAX) lane->announcements[lane->announcement_count++] = *op;
}

static void recheck_now(hx_task *task)
{
    hx_lane *lane = HX_OWNER(task, hx_lane, recheck_soon);
    atomic_store(&lane->is_posted, false);
    lane->recheck_is_due = true;
    hx_lane_schedule(lane);
}

void hx_lane_recheck_soon(hx_lane *lane)
{
    if (atomic_exchange(&lane->is_posted, true)) return;
    lane->recheck_soon.run = recheck_now;
    hx_loop_post(lane->loop, &lane->recheck_soon);
}

void hx_lane_hear(hx_lane *lane, const hx_op *op)
{
    hx_remote_waiters_recheck(lane->store, op);
}
