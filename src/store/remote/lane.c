/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a lane: connecting, failing, connecting again, and how long calls wait meanwhile. See lane.h. */
#include "store/remote/lane.h"

#include "base/check.h"
#include "base/log.h"
#include "base/rand.h"

#include <stdlib.h>

#define CONNECT_MAX (5 * HX_SECOND)
#define ROUND_LONG HX_MINUTE      /* a round may take no longer than this, whatever bytes still come */
#define CALL_MAX (10 * HX_SECOND) /* a call that is in doubt for longer ends UNAVAILABLE */
#define SLOW ((hx_ms)300)         /* a round that takes longer sends new calls to another lane */
#define DOWN_MAX (2 * HX_SECOND)  /* how long a call waits for a connection */
#define RECONNECT_FIRST ((hx_ms)100)
#define RECONNECT_MAX (5 * HX_SECOND)
#define DELAY ((hx_ms)10)
#define DELAYED_AT_ONCE 64u /* of a round's calls: however many are delayed, others go on */

static hx_ms age_of(const hx_lane *lane, const hx_store_call *call)
{
    return hx_loop_now(lane->loop) - call->own.remote.since;
}

void hx_lane_give_up(hx_lane *lane, hx_store_call *call, hx_store_result result)
{
    bool may_be_left = call->verb == HX_STORE_CLAIM && call->own.remote.was_sent;
    /* Past the limit it lapses into unknown with its lease. */
    if (may_be_left && lane->abandoned_count < HX_ABANDONED_MAX) {
        lane->abandoned[lane->abandoned_count++] = (hx_abandoned){call->op, call->own.remote.ticket,
                                                                  hx_loop_now(lane->loop) + HX_CLAIM_IS_LATE +
                                                                      HX_ROUND_MAX};
        lane->abandon_is_due = true;
    }
    hx_remote_end(call, call->own.remote.is_cancelled ? HX_STORE_CANCELLED : result);
}

/* Ends waiting calls of at least this age. The completions may submit new calls, so all are taken out first. */
static void give_up_old(hx_lane *lane, hx_ms age)
{
    hx_link old;
    hx_list_init(&old);
    HX_EACH(link, &lane->waiting)
    {
        hx_store_call *call = HX_OWNER(link, hx_store_call, own.link);
        if (age_of(lane, call) < age && !call->own.remote.is_cancelled) continue;
        hx_list_remove(link);
        hx_list_append(&old, link);
    }
    for (hx_link *link; (link = hx_list_take(&old));)
        hx_lane_give_up(lane, HX_OWNER(link, hx_store_call, own.link), HX_STORE_UNAVAILABLE);
}

/* The connection */

static void log_reason(const char *why)
{
    char line[512]; /* a client library's message may have several lines */
    size_t len = 0;
    for (; *why && len < sizeof line - 1; why++) {
        bool is_space = (unsigned char)*why <= ' ';
        if (!is_space || (len > 0 && line[len - 1] != ' ')) line[len++] = is_space ? ' ' : *why;
    }
    while (len > 0 && line[len - 1] == ' ') len--;
    hx_log_str("reason", (hx_slice){line, len});
}

/* A connection that had worked and was lost is logged each time. That no server can be reached, and that the one that
 * was reached can't be used, are logged once each, until it works again: either may follow the other, and an operator
 * has to do something else about it. */
static void log_failure(const hx_lane *lane, hx_log_event event, const char *why, const char *hint)
{
    hx_remote *r = lane->store;
    if (event == HX_EVENT_server_unreachable && atomic_exchange(&r->is_unreachable, true)) return;
    if (event == HX_EVENT_server_unusable && atomic_exchange(&r->is_unusable, true)) return;
    hx_log_begin(event);
    log_reason(why);
    if (event == HX_EVENT_server_unreachable)
        hx_log_text("hint", hint ? hint
                                 : "check that the server runs and that the store's URL is right; connecting is tried "
                                   "again until it succeeds");
    hx_log_end();
}

void hx_lane_works(hx_lane *lane)
{
    lane->needs_setup = false;
    bool was_unreachable = atomic_exchange(&lane->store->is_unreachable, false);
    bool was_unusable = atomic_exchange(&lane->store->is_unusable, false);
    if (was_unreachable || was_unusable) hx_log(HX_EVENT_server_usable);
}

static void disconnect(hx_lane *lane)
{
    hx_timer_stop(lane->loop, &lane->timer);
    lane->store->driver->disconnect(lane);
    lane->state = HX_LANE_DOWN;
    lane->is_new = false;
}

static void connect_lane(hx_timer *timer)
{
    hx_lane *lane = HX_OWNER(timer, hx_lane, timer);
    lane->state = HX_LANE_CONNECTING;
    hx_timer_start(lane->loop, &lane->timer, CONNECT_MAX, hx_lane_took_too_long);
    lane->store->driver->connect(lane);
    if (lane->failures > 0) give_up_old(lane, DOWN_MAX);
}

static void fail(hx_lane *lane, hx_log_event event, const char *why, const char *hint)
{
    if (lane->state == HX_LANE_CONNECTING || lane->is_new) lane->failures++;
    log_failure(lane, event, why, hint);
    disconnect(lane);
    hx_round_undo(lane);
    hx_ms delay = RECONNECT_FIRST;
    for (unsigned i = 0; i < lane->failures && delay < RECONNECT_MAX; i++) delay *= 2;
    if (delay > RECONNECT_MAX) delay = RECONNECT_MAX;
    delay = lane->failures == 0 ? 0 : delay / 2 + (hx_ms)(hx_rand_u64() % (uint64_t)(delay / 2 + 1));
    hx_timer_start(lane->loop, &lane->timer, delay, connect_lane);
    give_up_old(lane, lane->failures > 0 ? DOWN_MAX : CALL_MAX);
}

void hx_lane_fail(hx_lane *lane, const char *why, const char *hint)
{
    bool had_worked = lane->state == HX_LANE_READY && !lane->needs_setup;
    fail(lane, had_worked ? HX_EVENT_server_connection_lost : HX_EVENT_server_unreachable, why, hint);
}

void hx_lane_unusable(hx_lane *lane, const char *why)
{
    fail(lane, HX_EVENT_server_unusable, why, NULL);
}

void hx_lane_took_too_long(hx_timer *timer)
{
    hx_lane *lane = HX_OWNER(timer, hx_lane, timer);
    bool was_connecting = lane->state == HX_LANE_CONNECTING || lane->needs_setup;
    if (was_connecting) lane->connect_timeouts++;
    hx_lane_fail(lane, was_connecting ? "connecting took too long" : "a statement took too long", NULL);
}

void hx_lane_connected(hx_lane *lane)
{
    hx_timer_stop(lane->loop, &lane->timer);
    lane->state = HX_LANE_READY;
    lane->is_new = true;
    lane->needs_listen = lane->is_listener;
    lane->needs_setup = true;
    lane->abandon_is_due = lane->abandoned_count > 0;
    hx_lane_schedule(lane);
}

void hx_lane_moved(hx_lane *lane)
{
    bool may_go_on = lane->round.is_open && hx_loop_now(lane->loop) - lane->round.since < ROUND_LONG;
    if (may_go_on) hx_timer_start(lane->loop, &lane->timer, HX_ROUND_MAX, hx_lane_took_too_long);
}

/* Calls */

void hx_lane_schedule(hx_lane *lane)
{
    if (lane->is_scheduled || lane->round.is_open || lane->state != HX_LANE_READY) return;
    lane->is_scheduled = true;
    lane->begin.run = hx_round_begin;
    hx_loop_defer(lane->loop, &lane->begin);
}

static void refuse_all(hx_task *task)
{
    hx_lane *lane = HX_OWNER(task, hx_lane, begin);
    lane->is_scheduled = false;
    if (lane->state == HX_LANE_READY)
        hx_lane_schedule(lane);
    else
        give_up_old(lane, 0);
}

/* After a failure to connect, a call doesn't wait for the next attempt. */
void hx_lane_submit(hx_lane *lane, hx_store_call *call)
{
    hx_list_append(&lane->waiting, &call->own.link);
    if (lane->failures == 0 || lane->is_scheduled) {
        hx_lane_schedule(lane);
        return;
    }
    lane->is_scheduled = true;
    lane->begin.run = refuse_all;
    hx_loop_defer(lane->loop, &lane->begin);
}

void hx_lane_put_first(hx_lane *lane, hx_link *calls)
{
    hx_list_splice(lane->waiting.next, calls);
}

static void send_delayed(hx_timer *timer)
{
    hx_lane *lane = HX_OWNER(timer, hx_lane, delay);
    hx_link due;
    hx_list_init(&due);
    for (unsigned i = 0; i < DELAYED_AT_ONCE && !hx_list_empty(&lane->delayed); i++)
        hx_list_append(&due, hx_list_take(&lane->delayed));
    hx_lane_put_first(lane, &due);
    if (!hx_list_empty(&lane->delayed)) hx_timer_start(lane->loop, &lane->delay, DELAY, send_delayed);
    hx_lane_schedule(lane);
}

void hx_lane_delay(hx_lane *lane, hx_store_call *call)
{
    if (age_of(lane, call) > CALL_MAX) {
        hx_lane_give_up(lane, call, HX_STORE_UNAVAILABLE);
        return;
    }
    hx_list_append(&lane->delayed, &call->own.link);
    if (!hx_timer_running(&lane->delay)) hx_timer_start(lane->loop, &lane->delay, DELAY, send_delayed);
}

bool hx_lane_delays(const hx_lane *lane, const hx_op *op)
{
    HX_EACH(link, &lane->delayed)
    {
        if (hx_op_eq(&HX_OWNER(link, hx_store_call, own.link)->op, op)) return true;
    }
    return false;
}

bool hx_lane_delays_items(const hx_lane *lane)
{
    HX_EACH(link, &lane->delayed)
    {
        if (HX_OWNER(link, hx_store_call, own.link)->verb >= HX_STORE_COMMIT) return true;
    }
    return false;
}

bool hx_lane_is_well(const hx_lane *lane)
{
    if (lane->state != HX_LANE_READY || lane->needs_setup) return false;
    return !lane->round.is_open || hx_loop_now(lane->loop) - lane->round.since < SLOW;
}

hx_lane *hx_lane_new(hx_remote *store, hx_loop *loop)
{
    hx_lane *lane = calloc(1, store->driver->lane_bytes);
    if (!lane) hx_fatal(HX_EXIT_BUG, "out of memory");
    lane->store = store;
    lane->loop = loop;
    lane->abandoned = calloc(HX_ABANDONED_MAX, sizeof *lane->abandoned);
    lane->announcements = calloc(HX_ROUND_CALLS_MAX, sizeof *lane->announcements);
    lane->awaited = calloc(HX_ROUND_CALLS_MAX, sizeof *lane->awaited);
    if (!lane->abandoned || !lane->announcements || !lane->awaited) hx_fatal(HX_EXIT_BUG, "out of memory");
    hx_list_init(&lane->waiting);
    hx_list_init(&lane->delayed);
    hx_list_init(&lane->watching);
    hx_timer_start(loop, &lane->timer, 0, connect_lane);
    return lane;
}

void hx_lane_free(hx_lane *lane)
{
    HX_CHECK(hx_list_empty(&lane->waiting) && hx_list_empty(&lane->delayed) && hx_list_empty(&lane->watching));
    disconnect(lane);
    hx_timer_stop(lane->loop, &lane->delay);
    hx_timer_stop(lane->loop, &lane->recheck);
    hx_timer_stop(lane->loop, &lane->abandon_again);
    free(lane->abandoned);
    free(lane->announcements);
    free(lane->awaited);
    free(lane);
}
