/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/skipped_jobs.h"

#include <inttypes.h>

#define INTERVAL (2 * HX_SECOND)

static void due(hx_timer *timer);

static void pause_or_stop(hx_skipped_jobs *c)
{
    c->is_busy = false;
    hx_arena_free(&c->arena);
    if (c->is_stopping)
        c->stopped(c->context);
    else
        hx_timer_start(c->loop, &c->timer, INTERVAL, due);
}

static void written(hx_store_call *call)
{
    hx_skipped_jobs *c = HX_OWNER(call, hx_skipped_jobs, call);
    if (call->result == HX_STORE_OK) hx_store_keep_conflicts(c->store, c->kept + c->added, c->added);
    pause_or_stop(c); /* another process was faster: the next round has its number */
}

static void was_read(hx_store_call *call)
{
    hx_skipped_jobs *c = HX_OWNER(call, hx_skipped_jobs, call);
    uint64_t number = 0;
    if (call->result != HX_STORE_OK) {
        pause_or_stop(c);
        return;
    }
    if (c->item.version > 0 && hx_slice_to_u64(c->item.meta, &number)) c->kept = number;
    c->is_known = true;
    hx_store_keep_conflicts(c->store, c->kept, 0);
    c->added = hx_store_new_conflicts(c->store);
    if (c->added == 0) {
        pause_or_stop(c);
        return;
    }
    c->item.meta = hx_arena_printf(&c->arena, "%" PRIu64, c->kept + c->added);
    c->call = (hx_store_call){.loop = c->loop, .arena = &c->arena, .done = written};
    hx_store_commit(c->store, &c->call, &c->item, 1, true);
}

/* Who else counts is only found out by reading, where others can. */
static void look(hx_skipped_jobs *c)
{
    bool is_needed = !c->is_known || hx_store_about(c->store)->shared || hx_store_new_conflicts(c->store) > 0;
    if (!is_needed || !hx_store_about(c->store)->keeps_items) {
        pause_or_stop(c);
        return;
    }
    c->is_busy = true;
    c->item = (hx_item){.key = HX_LIT(HX_ITEM_JOB_CONFLICTS)};
    c->call = (hx_store_call){.loop = c->loop, .arena = &c->arena, .done = was_read};
    hx_store_get(c->store, &c->call, &c->item, 1);
}

static void due(hx_timer *timer)
{
    look(HX_OWNER(timer, hx_skipped_jobs, timer));
}

void hx_skipped_jobs_start(hx_skipped_jobs *conflicts, hx_loop *loop, hx_store *store)
{
    *conflicts = (hx_skipped_jobs){.store = store, .loop = loop};
    look(conflicts);
}

void hx_skipped_jobs_stop(hx_skipped_jobs *conflicts, void (*stopped)(void *context), void *context)
{
    conflicts->is_stopping = true;
    conflicts->stopped = stopped;
    conflicts->context = context;
    hx_timer_stop(conflicts->loop, &conflicts->timer);
    if (!conflicts->is_busy) look(conflicts);
}
