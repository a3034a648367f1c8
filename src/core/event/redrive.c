/* SPDX-License-Identifier: Apache-2.0 */
#include "core/event/redrive.h"

#include "core/json/json_writer.h"

#define WATCH_INTERVAL 200 /* between looks at what is being sent */
#define BURSTS 10u         /* steps a second, at a high rate */

#define OURS HX_JSON_STORED
#define BOTH (HX_JSON_STORED | HX_JSON_SHOWN)
#define FIELD(name, kind, uses) HX_JSON_FIELD(hx_redrive, name, kind, uses)
static const hx_json_field fields[] = {
    FIELD(id, TEXT, BOTH),           FIELD(kind, TEXT, BOTH),       FIELD(status, TEXT, BOTH),
    FIELD(tenant, TEXT, BOTH),       FIELD(state, TEXT, BOTH),      FIELD(endpoint, TEXT, BOTH),
    FIELD(event, TEXT, BOTH),        FIELD(from, TIME, BOTH),       FIELD(before, TIME, BOTH),
    FIELD(past_window, BOOL, BOTH),  FIELD(limit, NUMBER, BOTH),    FIELD(rate, NUMBER, BOTH),
    FIELD(stop_after, NUMBER, BOTH), FIELD(by, TEXT, BOTH),         FIELD(why, TEXT, BOTH),
    FIELD(reason, TEXT, BOTH),       FIELD(expected, NUMBER, BOTH), FIELD(armed, NUMBER, BOTH),
    FIELD(skipped, NUMBER, BOTH),    FIELD(too_old, NUMBER, BOTH),  FIELD(gone, NUMBER, BOTH),
    FIELD(delivered, NUMBER, BOTH),  FIELD(failed, NUMBER, BOTH),   FIELD(started_at, TIME, BOTH),
    FIELD(ended_at, TIME, BOTH),     FIELD(worker, NUMBER, OURS),   FIELD(is_used_up, BOOL, OURS),
    FIELD(at_queue, TEXT, OURS),     FIELD(at_key, TEXT, OURS),     FIELD(at_due, TIME, OURS),
};
#undef FIELD
const hx_json_shape hx_redrive_shape = HX_JSON_SHAPE(fields);

const hx_redrive hx_redrive_new = {.id = {"", 0},
                                   .kind = {"", 0},
                                   .tenant = {"", 0},
                                   .state = {"", 0},
                                   .endpoint = {"", 0},
                                   .event = {"", 0},
                                   .by = {"", 0},
                                   .why = {"", 0},
                                   .status = {"", 0},
                                   .reason = {"", 0},
                                   .at_queue = {"", 0},
                                   .at_key = {"", 0}};

void hx_redrive_encode(const hx_redrive *job, hx_buf *meta)
{
    hx_json_open(meta, NULL, '{');
    hx_json_write(&hx_redrive_shape, HX_JSON_STORED, job, meta);
    hx_json_close(meta, '}');
}

bool hx_redrive_decode(hx_slice meta, hx_arena *arena, hx_redrive *job)
{
    hx_error_text error;
    *job = hx_redrive_new;
    return hx_json_read(&hx_redrive_shape, HX_JSON_STORED, meta, arena, job, error) && job->id.len > 0;
}

bool hx_redrive_is_running(const hx_redrive *job)
{
    return hx_slice_eq(job->status, HX_LIT("running"));
}

bool hx_redrive_is_recovery(const hx_redrive *job)
{
    return hx_slice_eq(job->kind, HX_LIT("recover"));
}

hx_slice hx_redrive_key(hx_slice tenant, hx_slice id, hx_arena *arena)
{
    return hx_arena_printf(arena, "j/%.*s/%.*s", HX_FMT(tenant), HX_FMT(id));
}

hx_slice hx_redrive_queue(hx_slice tenant, hx_arena *arena)
{
    return hx_arena_printf(arena, HX_REDRIVE_QUEUES "%.*s/", HX_FMT(tenant));
}

hx_slice hx_redrive_armed_queue(const hx_redrive *job, hx_arena *arena)
{
    return hx_arena_printf(arena, "armed/%.*s/%.*s/", HX_FMT(job->tenant), HX_FMT(job->id));
}

hx_slice hx_redrive_armed_key(const hx_redrive *job, hx_arena *arena)
{
    return hx_arena_printf(arena, "a/%.*s/%.*s/%016llx", HX_FMT(job->tenant), HX_FMT(job->id),
                           (unsigned long long)job->armed);
}

hx_redrive_verdict hx_redrive_judge(const hx_redrive *job, const hx_delivery *delivery, bool is_paused, hx_ms now)
{
    bool wants_paused = hx_slice_eq(job->state, HX_LIT("paused"));
    hx_slice state = hx_slice_of(hx_delivery_states[delivery->state].name);
    bool is_in_range = delivery->created_at >= job->from && (job->before == 0 || delivery->created_at < job->before);
    bool is_other = (job->endpoint.len > 0 && !hx_slice_eq(job->endpoint, delivery->endpoint)) ||
                    (job->event.len > 0 && !hx_slice_eq(job->event, delivery->event));
    bool was_armed = job->id.len > 0 && hx_slice_eq(delivery->job, job->id);
    if (!is_in_range || is_other || was_armed) return HX_REDRIVE_OTHER;
    bool is_wanted = wants_paused ? delivery->state == HX_DELIVERY_PENDING && is_paused
                                  : hx_slice_eq(job->state, state);
    if (!is_wanted) return hx_delivery_states[delivery->state].has_ended ? HX_REDRIVE_OTHER : HX_REDRIVE_SKIP;
    if (delivery->settled_at > job->started_at) return HX_REDRIVE_OTHER;
    return !job->past_window && now - delivery->created_at > HX_REDRIVE_WINDOW ? HX_REDRIVE_TOO_OLD : HX_REDRIVE_ARM;
}

bool hx_redrive_note(hx_redrive *job, const hx_delivery *delivery, bool is_paused)
{
    if (delivery->state == HX_DELIVERY_DELIVERED) {
        job->delivered++;
        return true;
    }
    bool has_failed = delivery->state == HX_DELIVERY_DEAD || delivery->state == HX_DELIVERY_UNKNOWN ||
                      (delivery->state == HX_DELIVERY_PENDING && delivery->round_attempts > 0);
    if (has_failed) job->failed++;
    return has_failed || is_paused || delivery->state == HX_DELIVERY_CANCELLED;
}

uint64_t hx_redrive_budget(const hx_redrive *job)
{
    uint64_t most = HX_REDRIVE_STEP;
    if (job->rate > 0 && most > job->rate / BURSTS + 1) most = job->rate / BURSTS + 1;
    if (job->limit > 0 && most > job->limit - job->armed) most = job->limit - job->armed;
    uint64_t unwatched = job->watching < HX_REDRIVE_WATCHED_MAX ? HX_REDRIVE_WATCHED_MAX - job->watching : 0;
    if (job->stop_after > 0 && most > unwatched) most = unwatched;
    return most;
}

hx_ms hx_redrive_gap(const hx_redrive *job, uint64_t armed)
{
    hx_ms gap = job->rate > 0 ? (hx_ms)(armed * 1000 / job->rate) : 0;
    bool only_watches = job->watching > 0 && (armed == 0 || job->stop_after > 0);
    return only_watches && gap < WATCH_INTERVAL ? WATCH_INTERVAL : gap;
}

void hx_redrive_finish(hx_redrive *job, hx_ms now)
{
    bool is_failed = job->stop_after > 0 && job->failed >= job->stop_after;
    bool is_at_limit = job->limit > 0 && job->armed >= job->limit;
    if (!is_failed && (job->watching > 0 || !(job->is_used_up || is_at_limit))) return;
    job->status = is_failed ? HX_LIT("stopped") : HX_LIT("done");
    if (is_failed) job->reason = HX_LIT("deliveries failed again");
    job->ended_at = now;
}
