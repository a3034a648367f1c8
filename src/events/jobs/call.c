/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rand.h"
#include "events/recipient.h"
#include "events/jobs/jobs.h"

#define TRIES_MAX 5u
#define RUNNING_MAX 16u /* of a tenant */

static void count_page(hx_job_call *call);
static void read_job(hx_job_call *call);

static void end(hx_job_call *call, hx_change_result result, const char *detail)
{
    hx_engine *engine = call->engine;
    hx_arena_free(&call->page_arena);
    call->result = result;
    call->detail = detail;
    call->done(call);
    hx_engine_end_call(engine);
}

static void commit_done(hx_store_call *store)
{
    hx_job_call *call = HX_OWNER(store, hx_job_call, call);
    if (store->result == HX_STORE_STALE && call->act == HX_JOB_STOP && ++call->tries < TRIES_MAX) {
        read_job(call);
        hx_engine_end_call(call->engine);
        return;
    }
    if (store->result == HX_STORE_OK) {
        hx_job_log(&call->job);
        hx_redriver_nudge(call->engine);
    }
    end(call,
        store->result == HX_STORE_OK     ? HX_CHANGE_DONE
        : store->result == HX_STORE_FULL ? HX_CHANGE_FULL
                                         : HX_CHANGE_UNAVAILABLE,
        NULL);
}

static void commit(hx_job_call *call, uint64_t version)
{
    hx_engine *engine = call->engine;
    call->item = hx_job_item(engine, &call->job, version, hx_engine_now(engine), call->arena);
    hx_engine_begin_call(engine, &call->call, call->arena, commit_done);
    hx_store_commit(engine->needs.store, &call->call, &call->item, 1, call->act == HX_JOB_STOP);
}

static hx_slice new_id(hx_ms now, hx_arena *arena)
{
    uint8_t bytes[10]; /* six of the time, so that ids are in its order */
    hx_buf id;
    hx_rand_bytes(bytes, sizeof bytes);
    for (size_t i = 0; i < 6; i++) bytes[i] = (uint8_t)((uint64_t)now >> (8 * (5 - i)));
    hx_buf_init(&id, arena, 32);
    hx_buf_puts(&id, "rd_");
    hx_buf_put_hex(&id, bytes, sizeof bytes);
    return hx_buf_slice(&id);
}

static void running_read(hx_store_call *store)
{
    hx_job_call *call = HX_OWNER(store, hx_job_call, call);
    hx_engine *engine = call->engine;
    if (store->result != HX_STORE_OK) {
        end(call, HX_CHANGE_UNAVAILABLE, NULL);
        return;
    }
    if (call->running.count >= RUNNING_MAX) {
        end(call, HX_CHANGE_REFUSED, "16 jobs are running; stop one, or wait until one is done");
        return;
    }
    call->job.id = new_id(call->job.started_at, call->arena);
    call->job.status = HX_LIT("running");
    call->job.expected = call->matched;
    hx_job_rewind(&call->job, call->arena);
    commit(call, 0);
    hx_engine_end_call(engine);
}

static void counted(hx_job_call *call)
{
    hx_engine *engine = call->engine;
    if (call->act == HX_JOB_PREVIEW) {
        end(call, HX_CHANGE_DONE, NULL);
        return;
    }
    call->running = (hx_item_page){.by_queue = true,
                                   .prefix = hx_redrive_queue(call->job.tenant, call->arena),
                                   .items_max = RUNNING_MAX};
    hx_engine_begin_call(engine, &call->call, call->arena, running_read);
    hx_store_scan(engine->needs.store, &call->call, &call->running);
    hx_engine_end_call(engine);
}

static void page_done(hx_job_page *page)
{
    hx_job_call *call = HX_OWNER(page, hx_job_call, page);
    if (page->result != HX_STORE_OK) {
        end(call, HX_CHANGE_UNAVAILABLE, NULL);
        return;
    }
    for (size_t i = 0; i < page->count; i++) {
        bool gone;
        hx_redrive_verdict verdict = hx_job_page_judge(page, &page->candidates[i], &gone);
        if (verdict == HX_REDRIVE_ARM && !gone) call->matched++;
        if (verdict == HX_REDRIVE_TOO_OLD) call->too_old++;
        if (verdict == HX_REDRIVE_SKIP) call->skipped++;
    }
    call->seen += page->count;
    call->more = page->more && page->count > 0;
    if (!call->more || call->seen >= HX_JOB_COUNTED_MAX) {
        counted(call);
        return;
    }
    hx_job_candidate last = page->candidates[page->count - 1];
    last.queue = hx_arena_copy(call->arena, last.queue);
    last.key = hx_arena_copy(call->arena, last.key);
    hx_job_pass(&call->job, &last);
    count_page(call);
    hx_engine_end_call(call->engine);
}

static void count_page(hx_job_call *call)
{
    hx_arena_free(&call->page_arena);
    call->page =
        (hx_job_page){.arena = &call->page_arena, .job = &call->job, .items_max = HX_ITEM_PAGE_MAX, .done = page_done};
    call->engine->calls++; /* until the page is counted: its own call ends after `done` */
    hx_job_page_read(call->engine, &call->page);
}

static void job_read(hx_store_call *store)
{
    hx_job_call *call = HX_OWNER(store, hx_job_call, call);
    hx_engine *engine = call->engine;
    bool is_there = store->result == HX_STORE_OK && call->item.version > 0 &&
                    hx_redrive_decode(call->item.meta, call->arena, &call->job);
    if (!is_there) {
        end(call, store->result == HX_STORE_OK ? HX_CHANGE_ABSENT : HX_CHANGE_UNAVAILABLE, NULL);
        return;
    }
    if (!hx_redrive_is_running(&call->job)) {
        end(call, HX_CHANGE_DONE, NULL); /* it has ended: there is nothing to stop */
        return;
    }
    call->job.status = HX_LIT("stopped");
    call->job.reason = call->why;
    call->job.ended_at = hx_engine_now(engine);
    commit(call, call->item.version);
    hx_engine_end_call(engine);
}

static void read_job(hx_job_call *call)
{
    call->item = (hx_item){.key = hx_redrive_key(call->job.tenant, call->job.id, call->arena)};
    hx_engine_begin_call(call->engine, &call->call, call->arena, job_read);
    hx_store_get(call->engine->needs.store, &call->call, &call->item, 1);
}

void hx_job_do(hx_engine *engine, hx_job_call *call)
{
    call->engine = engine;
    call->tries = 0;
    call->seen = call->matched = call->too_old = call->skipped = 0;
    call->page_arena = (hx_arena){0};
    if (call->act == HX_JOB_STOP) {
        read_job(call);
        return;
    }
    call->job.started_at = hx_engine_now(engine);
    hx_job_rewind(&call->job, call->arena);
    count_page(call);
}
