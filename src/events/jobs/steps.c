/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of jobs, one at a time: of the jobs that are due, the one that has waited longest. */
#include "events/jobs/jobs.h"

#include "base/check.h"
#include "base/log.h"
#include "base/rand.h"
#include "events/recipient.h"

#include <stdlib.h>

#define INTERVAL (5 * HX_SECOND)   /* between looks for jobs of nodes that have died */
#define TAKE_OVER (10 * HX_SECOND) /* after a step was due, another node takes the job */
#define AGAIN HX_SECOND            /* after the store could not be read or written */
#define AGAIN_SOON 10              /* after somebody else changed one of the items */

struct hx_redriver {
    hx_engine *engine;
    hx_timer timer;
    hx_arena arena;
    hx_store_call call;
    hx_item_page jobs;
    bool is_busy, again;
    bool all; /* at the start of a store that nobody else uses: no other node works on any job */
    uint64_t worker;
    /* the step under way */
    hx_redrive job;
    uint64_t version;
    hx_item_page watched;
    hx_item *results; /* the watched deliveries; then the items of those that have a result, to be removed */
    size_t result_count;
    hx_job_page page;
    hx_item *items; /* of its commit */
    size_t item_count;
    hx_delivery *armed;
    hx_delivery_state *from;
    size_t armed_count;
};

static void look_due(hx_timer *timer);

static void rest(hx_redriver *r, hx_ms delay)
{
    r->is_busy = false;
    hx_arena_free(&r->arena);
    if (r->again) delay = 0;
    r->again = false;
    if (!r->engine->stopping) hx_timer_start(r->engine->needs.loop, &r->timer, delay, look_due);
}

void hx_redriver_nudge(hx_engine *engine)
{
    hx_redriver *r = engine->redriver;
    if (!engine->started || engine->stopping) return;
    if (r->is_busy)
        r->again = true;
    else
        hx_timer_start(engine->needs.loop, &r->timer, 0, look_due);
}

hx_item hx_job_item(const hx_engine *engine, const hx_redrive *job, uint64_t version, hx_ms due, hx_arena *arena)
{
    bool is_running = hx_redrive_is_running(job);
    hx_buf meta;
    hx_buf_init(&meta, arena, HX_ITEM_META_MAX);
    hx_redrive_encode(job, &meta);
    return (hx_item){.key = hx_redrive_key(job->tenant, job->id, arena),
                     .version = version,
                     .act = HX_ITEM_PUT,
                     .queue = is_running ? hx_redrive_queue(job->tenant, arena) : HX_EMPTY,
                     .due = due,
                     .expires_at = is_running ? 0 : job->ended_at + engine->needs.settings.dead_retention,
                     .meta = hx_buf_slice(&meta),
                     .body = HX_EMPTY};
}

void hx_job_rewind(hx_redrive *job, hx_arena *arena)
{
    job->at_queue = job->at_key = HX_EMPTY;
    job->at_due = 0;
    if (!hx_redrive_is_recovery(job)) return;
    hx_event like = {.tenant = job->tenant};
    job->at_queue = hx_event_queue(&like, arena);
    job->at_due = job->from > 0 ? job->from - 1 : 0;
    job->at_key = HX_LIT("f"); /* behind the keys of all events of that moment, which begin with e */
}

void hx_job_pass(hx_redrive *job, const hx_job_candidate *candidate)
{
    job->at_queue = candidate->queue;
    job->at_due = candidate->due;
    job->at_key = candidate->key;
}

void hx_job_log(const hx_redrive *job)
{
    hx_log_begin(HX_EVENT_redrive_changed);
    hx_log_str("job", job->id);
    hx_log_str("kind", job->kind);
    if (job->tenant.len > 0) hx_log_str("tenant", job->tenant);
    hx_log_str("to_state", job->status);
    hx_log_str("by", job->by);
    if (job->why.len > 0) hx_log_str("why", job->why);
    if (job->reason.len > 0) hx_log_str("reason", job->reason);
    hx_log_int("armed", (int64_t)job->armed);
    hx_log_int("skipped", (int64_t)job->skipped);
    hx_log_int("failed", (int64_t)job->failed);
    hx_log_end();
}

static void step_done(hx_store_call *call)
{
    hx_redriver *r = HX_OWNER(call, hx_redriver, call);
    hx_engine *engine = r->engine;
    if (call->result == HX_STORE_OK) {
        for (size_t i = 0; i < r->armed_count; i++) {
            const hx_delivery *delivery = &r->armed[i];
            hx_recipient *recipient = hx_recipient_find(engine, delivery->tenant, delivery->endpoint);
            hx_outbox_log(delivery, r->from[i]);
            if (recipient) hx_recipient_nudge(recipient, delivery->due);
        }
        if (!hx_redrive_is_running(&r->job)) hx_job_log(&r->job);
    }
    rest(r, call->result == HX_STORE_OK ? 0 : call->result == HX_STORE_STALE ? AGAIN_SOON : AGAIN);
    hx_engine_end_call(engine);
}

/* Commits what the step has changed: r->items so far, the results that it has counted, and the job. */
static void commit_step(hx_redriver *r)
{
    hx_engine *engine = r->engine;
    hx_ms now = hx_engine_now(engine);
    r->job.worker = r->worker;
    hx_redrive_finish(&r->job, now);
    hx_ms due = now + hx_redrive_gap(&r->job, r->armed_count);
    for (size_t i = 0; i < r->result_count; i++) r->items[r->item_count++] = r->results[i];
    r->items[r->item_count++] = hx_job_item(engine, &r->job, r->version, due, &r->arena);
    hx_engine_begin_call(engine, &r->call, &r->arena, step_done);
    hx_store_commit(engine->needs.store, &r->call, r->items, r->item_count, false);
}

/* The item by which the result of the delivery that was armed last is found. One that outlives its job expires. */
static hx_item watch(const hx_redriver *r, hx_slice key, hx_arena *arena)
{
    hx_ms now = hx_engine_now(r->engine);
    return (hx_item){.key = hx_redrive_armed_key(&r->job, arena),
                     .queue = hx_redrive_armed_queue(&r->job, arena),
                     .due = now,
                     .expires_at = now + r->engine->needs.settings.dead_retention,
                     .meta = key,
                     .body = HX_EMPTY};
}

static void arm(hx_redriver *r, const hx_job_candidate *candidate)
{
    hx_ms now = hx_engine_now(r->engine);
    hx_delivery *delivery = &r->armed[r->armed_count];
    *delivery = candidate->delivery;
    r->from[r->armed_count] = delivery->state;
    if (candidate->item.version > 0) {
        bool may = hx_delivery_rearm(delivery, now) || hx_delivery_rearm_paused(delivery, now);
        HX_CHECK(may);
    }
    delivery->job = r->job.id;
    r->items[r->item_count++] = hx_outbox_item(r->engine, candidate->item.key, candidate->item.version, delivery,
                                               &r->arena);
    r->armed_count++;
    r->job.armed++;
    r->job.watching++;
    r->items[r->item_count++] = watch(r, candidate->item.key, &r->arena);
}

static void page_done(hx_job_page *page)
{
    hx_redriver *r = HX_OWNER(page, hx_redriver, page);
    if (page->result != HX_STORE_OK) {
        rest(r, AGAIN);
        return;
    }
    uint64_t budget = hx_redrive_budget(&r->job);
    size_t i = 0;
    r->items = hx_arena_alloc(&r->arena, (2 * page->count + r->result_count + 1) * sizeof *r->items);
    r->armed = hx_arena_alloc(&r->arena, (page->count + 1) * sizeof *r->armed);
    r->from = hx_arena_alloc(&r->arena, (page->count + 1) * sizeof *r->from);
    for (; i < page->count && r->armed_count < budget; i++) {
        const hx_job_candidate *candidate = &page->candidates[i];
        bool gone;
        hx_redrive_verdict verdict = hx_job_page_judge(page, candidate, &gone);
        if (verdict == HX_REDRIVE_ARM && !gone) arm(r, candidate);
        r->job.gone += gone;
        r->job.skipped += verdict == HX_REDRIVE_SKIP;
        r->job.too_old += verdict == HX_REDRIVE_TOO_OLD;
        hx_job_pass(&r->job, candidate);
    }
    if (i == page->count && !page->more) r->job.is_used_up = true;
    commit_step(r);
}

static void select_more(hx_redriver *r)
{
    r->armed_count = r->item_count = 0;
    if (r->job.is_used_up || hx_redrive_budget(&r->job) == 0 ||
        (r->job.stop_after > 0 && r->job.failed >= r->job.stop_after)) {
        r->items = hx_arena_alloc(&r->arena, (r->result_count + 1) * sizeof *r->items);
        commit_step(r);
        return;
    }
    r->page = (hx_job_page){.arena = &r->arena, .job = &r->job, .items_max = HX_REDRIVE_STEP, .done = page_done};
    hx_job_page_read(r->engine, &r->page);
}

static void results_read(hx_store_call *call)
{
    hx_redriver *r = HX_OWNER(call, hx_redriver, call);
    hx_engine *engine = r->engine;
    for (size_t i = 0; call->result == HX_STORE_OK && i < r->watched.count; i++) {
        hx_delivery delivery;
        const hx_item *item = &r->results[i];
        bool is_there = item->version > 0 && hx_delivery_decode(item->meta, item->body, &r->arena, &delivery);
        const hx_recipient *recipient = is_there ? hx_recipient_find(engine, delivery.tenant, delivery.endpoint) : NULL;
        bool is_paused = recipient && recipient->endpoint.disabled && delivery.state == HX_DELIVERY_PENDING;
        if (is_there && !hx_redrive_note(&r->job, &delivery, is_paused)) continue;
        r->results[r->result_count] = r->watched.items[i];
        r->results[r->result_count++].act = HX_ITEM_REMOVE;
    }
    r->job.watching = r->watched.count - r->result_count;
    if (call->result == HX_STORE_OK)
        select_more(r);
    else
        rest(r, AGAIN);
    hx_engine_end_call(engine);
}

static void watched_scanned(hx_store_call *call)
{
    hx_redriver *r = HX_OWNER(call, hx_redriver, call);
    hx_engine *engine = r->engine;
    r->result_count = 0;
    r->job.watching = 0;
    if (call->result != HX_STORE_OK) {
        rest(r, AGAIN);
    } else if (r->watched.count == 0) {
        select_more(r);
    } else {
        r->results = hx_arena_alloc(&r->arena, r->watched.count * sizeof *r->results);
        for (size_t i = 0; i < r->watched.count; i++) r->results[i] = (hx_item){.key = r->watched.items[i].meta};
        hx_engine_begin_call(engine, &r->call, &r->arena, results_read);
        hx_store_get(engine->needs.store, &r->call, r->results, r->watched.count);
    }
    hx_engine_end_call(engine);
}

static void step(hx_redriver *r)
{
    r->watched = (hx_item_page){.by_queue = true,
                                .prefix = hx_redrive_armed_queue(&r->job, &r->arena),
                                .items_max = HX_REDRIVE_STEP};
    hx_engine_begin_call(r->engine, &r->call, &r->arena, watched_scanned);
    hx_store_scan(r->engine->needs.store, &r->call, &r->watched);
}

/* The job to work on; NULL: none is due, and *delay is when to look again. */
static const hx_item *choose(hx_redriver *r, hx_ms *delay)
{
    const hx_item *first = NULL;
    hx_ms now = hx_engine_now(r->engine);
    *delay = INTERVAL;
    for (size_t i = 0; i < r->jobs.count; i++) {
        const hx_item *item = &r->jobs.items[i];
        hx_redrive job;
        if (!hx_redrive_decode(item->meta, &r->arena, &job)) continue;
        bool is_ours = r->all || job.worker == 0 || job.worker == r->worker;
        hx_ms due = item->due + (is_ours ? 0 : TAKE_OVER);
        if (due > now && due - now < *delay) *delay = due - now;
        if (due > now || (first && first->due <= item->due)) continue;
        first = item;
        r->job = job;
        r->version = item->version;
    }
    return first;
}

static void look_done(hx_store_call *call)
{
    hx_redriver *r = HX_OWNER(call, hx_redriver, call);
    hx_engine *engine = r->engine;
    hx_ms delay;
    if (call->result != HX_STORE_OK)
        rest(r, AGAIN);
    else if (engine->stopping || hx_engine_is_paused(engine))
        rest(r, INTERVAL);
    else if (!choose(r, &delay))
        rest(r, delay);
    else
        step(r);
    hx_engine_end_call(engine);
}

static void look_due(hx_timer *timer)
{
    hx_redriver *r = HX_OWNER(timer, hx_redriver, timer);
    r->is_busy = true;
    r->again = false;
    r->jobs = (hx_item_page){.by_queue = true,
                             .one_per_queue = true,
                             .prefix = HX_LIT(HX_REDRIVE_QUEUES),
                             .items_max = HX_ITEM_PAGE_MAX};
    hx_engine_begin_call(r->engine, &r->call, &r->arena, look_done);
    hx_store_scan(r->engine->needs.store, &r->call, &r->jobs);
}

void hx_redriver_start(hx_engine *engine)
{
    hx_redriver *r = calloc(1, sizeof *r);
    if (!r) hx_fatal(HX_EXIT_BUG, "out of memory");
    r->engine = engine;
    r->worker = (hx_rand_u64() >> 11) | 1; /* fits a number of JSON */
    r->all = !hx_store_about(engine->needs.store)->shared;
    engine->redriver = r;
    hx_redriver_nudge(engine);
}

void hx_redriver_stop(hx_engine *engine)
{
    if (engine->redriver) hx_timer_stop(engine->needs.loop, &engine->redriver->timer);
}

void hx_redriver_free(hx_engine *engine)
{
    if (!engine->redriver) return;
    hx_arena_free(&engine->redriver->arena);
    free(engine->redriver);
    engine->redriver = NULL;
}
