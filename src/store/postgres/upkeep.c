/* SPDX-License-Identifier: Apache-2.0 */
/* What a lane does beside its calls, and when: looking at what is watched, telling other nodes and hearing from them,
 * giving back claims that nobody waits for. It goes out with the next round. */
#include "store/postgres/postgres.h"

#define LOOK_FIRST ((hx_ms)10)
#define LOOK_MAX ((hx_ms)250)
#define LOOKS_PER_MS 10u /* watches: the more there are, the less often they are looked at */
#define ABANDON_AGAIN HX_SECOND

static hx_ms look_delay(const hx_lane *lane)
{
    return lane->look_delay + (hx_ms)(lane->look_size / LOOKS_PER_MS);
}

static void time_to_look(hx_timer *timer)
{
    hx_lane *lane = HX_OWNER(timer, hx_lane, look);
    if (hx_list_empty(&lane->watching)) return;
    lane->will_look = true;
    if (lane->look_delay < LOOK_MAX) lane->look_delay *= 2;
    hx_timer_start(lane->loop, &lane->look, look_delay(lane), time_to_look);
    hx_lane_schedule(lane);
}

void hx_lane_watch(hx_lane *lane, hx_store_call *watch)
{
    watch->own.remote.is_watching = true;
    hx_list_append(&lane->watching, &watch->own.link);
    bool is_told = !lane->store->is_pooled && lane->awaited_count < HX_ROUND_CALLS_MAX;
    if (is_told) lane->awaited[lane->awaited_count++] = watch->op;
    lane->look_delay = LOOK_FIRST;
    bool is_soon = hx_timer_running(&lane->look) && lane->look.due <= hx_loop_now(lane->loop) + look_delay(lane);
    if (!is_soon) hx_timer_start(lane->loop, &lane->look, look_delay(lane), time_to_look);
}

static void time_to_abandon(hx_timer *timer)
{
    hx_lane *lane = HX_OWNER(timer, hx_lane, abandon_again);
    lane->will_abandon = true;
    hx_lane_schedule(lane);
}

void hx_lane_abandon_later(hx_lane *lane)
{
    hx_timer_start(lane->loop, &lane->abandon_again, ABANDON_AGAIN, time_to_abandon);
}

/* Where there is no room for more, they find out by looking. */
void hx_lane_tell(hx_lane *lane, const hx_op *op)
{
    if (lane->told_count < HX_ROUND_CALLS_MAX) lane->told[lane->told_count++] = *op;
}

static void nudged(hx_task *task)
{
    hx_lane *lane = HX_OWNER(task, hx_lane, nudge);
    atomic_store(&lane->is_nudged, false);
    lane->will_look = true;
    hx_lane_schedule(lane);
}

void hx_lane_nudge(hx_lane *lane)
{
    if (atomic_exchange(&lane->is_nudged, true)) return;
    lane->nudge.run = nudged;
    hx_loop_post(lane->loop, &lane->nudge);
}

/* The operation in hexadecimal: hapax.tell_many. */
void hx_lane_hear(hx_lane *lane, const char *text)
{
    hx_op op;
    if (hx_op_read(hx_slice_of(text), &op)) hx_pg_waiters_nudge(lane->store, &op);
}
