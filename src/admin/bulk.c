/* SPDX-License-Identifier: Apache-2.0 */
/* Resolves or forgets many operations at once. They are gathered first, so that the list isn't read while it changes;
 * then each is changed only if it still has the epoch and the state with which it was gathered.
 *
 *     gather a page --more--> gather …  --the last--> preview: answer
 *                                                 '--> lanes, each: next operation → look → change → next … → answer */
#include "admin/call.h"
#include "admin/views.h"
#include "base/check.h"
#include "base/log.h"
#include "core/json/json_writer.h"

#include <stdlib.h>

#define TOUCHED_MAX 100000u /* operations of one request; the response says when there are more */
#define SHOWN_MAX 20u       /* rows of a preview */
#define LANES 64u           /* changes in flight at once, so that they share commits */

typedef struct {
    hx_op op;
    uint64_t epoch;
    hx_state state;
    bool unreadable;
    hx_ms expires_at;
    hx_party party; /* for its quota */
} target;

typedef struct bulk bulk;

typedef struct {
    bulk *job;
    hx_store_call store;
    hx_record record;
    uint64_t epoch; /* with which the operation was gathered */
    hx_party party;
    hx_arena arena;
} lane;

struct bulk {
    hx_admin_call *call;
    hx_store_call store;
    hx_arena page_arena;
    hx_buf targets; /* of target, on the heap */
    size_t matched;
    size_t next;
    size_t changed, skipped, failed;
    bool more; /* than TOUCHED_MAX */
    unsigned busy;
    size_t shown;
    hx_buf rows; /* the first SHOWN_MAX operations, as JSON */
    lane lanes[LANES];
};

static void discard(bulk *job)
{
    hx_buf_free(&job->targets);
    for (size_t i = 0; i < LANES; i++) hx_arena_free(&job->lanes[i].arena);
    hx_arena_free(&job->page_arena);
    free(job);
}

/* Only before anything was changed. */
static void refuse(bulk *job, hx_admin_problem problem, const hx_record *found)
{
    hx_admin_refuse(job->call, problem, HX_EMPTY, found);
    discard(job);
}

static void finish(bulk *job)
{
    hx_admin_call *call = job->call;
    char as_of[HX_RFC3339_BYTES];
    hx_buf out;
    hx_buf_init(&out, call->arena, job->rows.len + 1024);
    hx_json_open(&out, NULL, '{');
    hx_json_put_bool(&out, "preview", call->act.preview);
    hx_json_put_number(&out, "matched", job->matched);
    hx_json_put_number(&out, "changed", job->changed);
    hx_json_put_number(&out, "skipped", job->skipped);
    hx_json_put_number(&out, "failed", job->failed);
    hx_json_put_bool(&out, "more", job->more);
    hx_json_put_text(&out, "as_of", hx_rfc3339(hx_admin_now(call->admin), as_of));
    hx_json_open(&out, "operations", '[');
    hx_buf_put(&out, hx_buf_slice(&job->rows));
    hx_buf_puts(&out, "]}\n");
    if (!call->act.preview) {
        hx_admin_begin_log(call, NULL);
        hx_log_int("matched", (int64_t)job->matched);
        hx_log_int("changed", (int64_t)job->changed);
        hx_log_int("skipped", (int64_t)job->skipped);
        hx_log_int("failed", (int64_t)job->failed);
        hx_log_end();
    }
    discard(job);
    hx_admin_answer(call, hx_buf_slice(&out));
}

static void go_on(lane *l);

static void lane_done(hx_store_call *store)
{
    lane *l = HX_OWNER(store, lane, store);
    bulk *job = l->job;
    if (store->result == HX_STORE_OK) {
        hx_admin_count_key(job->call, l->party, &l->record);
        job->changed++;
    } else if (store->result == HX_STORE_STALE) {
        job->skipped++;
    } else {
        job->failed++;
    }
    go_on(l);
}

static void change(lane *l)
{
    const hx_admin_call *call = l->job->call;
    l->store = hx_admin_store_call(call->admin, &l->arena, lane_done);
    hx_admin_perform(call, &l->store, &l->record);
}

static void lane_read(hx_store_call *store)
{
    lane *l = HX_OWNER(store, lane, store);
    const hx_admin_call *call = l->job->call;
    l->record = store->found;
    if (store->result != HX_STORE_OK) {
        l->job->failed++;
        go_on(l);
    } else if (hx_admin_objection(&call->act, l->epoch, &l->record) != HX_ADMIN_PROBLEM_COUNT) {
        l->job->skipped++;
        go_on(l);
    } else {
        change(l);
    }
}

/* Starts the lane's next change; false when there is none left. To forget an operation its record isn't read first,
 * because its response may be large: the store checks the state itself. */
static bool next_change(lane *l)
{
    bulk *job = l->job;
    const hx_admin_call *call = job->call;
    if (job->next == job->matched) return false;
    const target *t = (const target *)(const void *)job->targets.data + job->next++;
    hx_arena_free(&l->arena);
    l->party = t->party;
    l->epoch = t->epoch;
    if (call->act.kind == HX_OPERATOR_ACT_FORGET) {
        l->record = (hx_record){.op = t->op,
                                .epoch = t->epoch,
                                .state = t->state,
                                .unreadable = t->unreadable,
                                .expires_at = t->expires_at};
        change(l);
    } else {
        l->store = hx_admin_store_call(call->admin, &l->arena, lane_read);
        hx_store_read(call->admin->needs.store, &l->store, &t->op);
    }
    return true;
}

static void go_on(lane *l)
{
    if (!next_change(l) && --l->job->busy == 0) finish(l->job);
}

static void change_all(bulk *job)
{
    job->busy = 1; /* released below, so that a lane that ends at once doesn't finish the job */
    for (size_t i = 0; i < LANES; i++) {
        job->lanes[i].job = job;
        if (next_change(&job->lanes[i])) job->busy++;
    }
    if (--job->busy == 0) finish(job);
}

static void gather(bulk *job);

static void gather_done(hx_store_call *store)
{
    bulk *job = HX_OWNER(store, bulk, store);
    hx_store_page *page = &job->call->page;
    if (store->result != HX_STORE_OK) {
        refuse(job, HX_ADMIN_UNREAD, NULL);
        return;
    }
    for (size_t i = 0; i < page->count; i++) {
        const hx_record *r = &page->records[i];
        target t = {.op = r->op,
                    .epoch = r->epoch,
                    .state = r->state,
                    .unreadable = r->unreadable,
                    .expires_at = r->expires_at,
                    .party = hx_limiter_party_of(r)};
        if (job->matched == TOUCHED_MAX) {
            job->more = true;
            break;
        }
        if (!hx_admin_fits(job->call, r)) {
            refuse(job, HX_ADMIN_TOO_LARGE, r);
            return;
        }
        hx_buf_put(&job->targets, (hx_slice){(const char *)&t, sizeof t});
        job->matched++;
        if (job->shown == SHOWN_MAX) continue;
        if (job->shown++ > 0) hx_buf_puts(&job->rows, ",\n");
        hx_view_record(&job->rows, &page->records[i]);
    }
    hx_arena_free(&job->page_arena);
    if (page->more && !job->more)
        gather(job);
    else if (job->call->act.preview)
        finish(job);
    else
        change_all(job);
}

static void gather(bulk *job)
{
    hx_admin *admin = job->call->admin;
    job->call->page.records_max = HX_STORE_PAGE_MAX;
    job->store = hx_admin_store_call(admin, &job->page_arena, gather_done);
    hx_store_list(admin->needs.store, &job->store, &job->call->page);
}

/* Limits the filter to states that the act can be done to. */
static const char *choose_states(hx_admin_call *call)
{
    const unsigned settled = 1u << HX_COMPLETED | 1u << HX_FAILED | 1u << HX_EXPIRED, unknown = 1u << HX_UNKNOWN;
    unsigned possible = call->act.kind == HX_OPERATOR_ACT_RESOLVE ? unknown : settled | unknown;
    if (!hx_filter_narrows(&call->page))
        return "filter is missing or matches everything: name a state, a route, a reason, a time or a key";
    if ((call->page.states & ~possible) != 0)
        return call->act.kind == HX_OPERATOR_ACT_RESOLVE
                   ? "only unknown operations can be resolved: leave state out"
                   : "operations in flight can't be forgotten: leave processing out";
    if (call->page.states == 0) call->page.states = possible;
    return NULL;
}

static void decide_many(hx_admin_call *call, hx_operator_act_kind kind)
{
    hx_filter_reader reader = hx_admin_reader(call);
    call->act = (hx_operator_act){.kind = kind, .is_bulk = true};
    const char *wrong = hx_operator_act_read(&call->act, hx_buf_slice(&call->body), call->arena, reader.now);
    if (!wrong && call->act.filter.len > 0) wrong = hx_filter_json(&reader, call->act.filter, &call->page);
    if (!wrong) wrong = choose_states(call);
    if (wrong) {
        hx_admin_refuse(call, HX_ADMIN_MALFORMED, hx_slice_of(wrong), NULL);
        return;
    }
    hx_slice who = hx_admin_caller_text(&call->who, call->arena);
    call->reason = hx_operator_act_reason(who, call->act.why, call->arena);
    bulk *job = calloc(1, sizeof *job);
    if (!job) hx_fatal(HX_EXIT_BUG, "out of memory (an operator's act on many operations)");
    job->call = call;
    hx_buf_init(&job->targets, NULL, TOUCHED_MAX * sizeof(target));
    hx_buf_init(&job->rows, call->arena, SHOWN_MAX * (HX_VIEW_RECORD_BYTES + 2));
    gather(job);
}

void hx_admin_resolve_many(hx_admin_call *call)
{
    decide_many(call, HX_OPERATOR_ACT_RESOLVE);
}

void hx_admin_forget_many(hx_admin_call *call)
{
    decide_many(call, HX_OPERATOR_ACT_FORGET);
}
