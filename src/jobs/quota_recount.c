/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/quota_recount.h"

#include "base/log.h"

#include <stdlib.h>

#define RECORDS_A_PAGE 200u
#define LISTS_MAX 16u /* with more routes one list of all operations is less work */
#define RETRY_DELAY HX_SECOND

static void list_page(hx_quota_recount *recount);

static int by_name(const void *a, const void *b)
{
    return hx_slice_compare(*(const hx_slice *)a, *(const hx_slice *)b);
}

static bool is_wanted(const hx_quota_recount_routes *routes, const hx_record *record)
{
    if ((record->rule_version & HX_RULE_NAMED) == 0) return routes->has_defaults;
    return routes->count > 0 &&
           bsearch(&record->route, routes->names, routes->count, sizeof *routes->names, by_name) != NULL;
}

/* Whether one list of all operations is made, instead of one for each name. */
static bool lists_all(const hx_quota_recount_routes *routes)
{
    return routes->has_defaults || routes->count > LISTS_MAX;
}

static void begin_list(hx_quota_recount *recount)
{
    recount->page = (hx_store_page){
        .states = 1u << HX_PROCESSING | 1u << HX_UNKNOWN | 1u << HX_COMPLETED | 1u << HX_FAILED,
        .route = lists_all(&recount->routes) ? HX_EMPTY : recount->routes.names[recount->at],
        .records_max = RECORDS_A_PAGE,
    };
    list_page(recount);
}

static void begin(hx_quota_recount *recount)
{
    hx_arena_free(&recount->routes.arena);
    recount->routes = recount->next;
    recount->next = (hx_quota_recount_routes){0};
    recount->at = 0;
    recount->count = 0;
    if (recount->routes.count > 0 || recount->routes.has_defaults) begin_list(recount);
}

static void retry_due(hx_timer *timer)
{
    list_page(HX_OWNER(timer, hx_quota_recount, timer));
}

static void go_on(hx_quota_recount *recount)
{
    if (recount->page.more) {
        list_page(recount);
    } else if (!lists_all(&recount->routes) && ++recount->at < recount->routes.count) {
        begin_list(recount);
    } else {
        hx_log_begin(HX_EVENT_quota_counted);
        hx_log_int("count", (int64_t)recount->count);
        hx_log_end();
    }
}

static void free_routes(hx_quota_recount *recount)
{
    hx_arena_free(&recount->routes.arena);
    hx_arena_free(&recount->next.arena);
}

static void page_done(hx_store_call *call)
{
    hx_quota_recount *recount = HX_OWNER(call, hx_quota_recount, call);
    bool is_listed = call->result == HX_STORE_OK && !recount->again && !recount->stopping;
    recount->busy = false;
    for (size_t i = 0; is_listed && i < recount->page.count; i++) {
        if (!is_wanted(&recount->routes, &recount->page.records[i])) continue;
        recount->found(recount->context, &recount->page.records[i]);
        recount->count++;
    }
    hx_arena_free(&recount->arena);
    if (recount->stopping) {
        free_routes(recount);
        recount->stopped(recount->stopped_context);
    } else if (recount->again) {
        recount->again = false;
        begin(recount);
    } else if (is_listed) {
        go_on(recount);
    } else {
        hx_timer_start(recount->loop, &recount->timer, RETRY_DELAY, retry_due);
    }
}

static void list_page(hx_quota_recount *recount)
{
    recount->call = (hx_store_call){.loop = recount->loop, .arena = &recount->arena, .done = page_done};
    recount->busy = true;
    hx_store_list(recount->store, &recount->call, &recount->page);
}

/* Copies the names: the rules may be freed before the last page is read. */
static void take_routes(hx_quota_recount_routes *routes, const hx_policy_set *policies)
{
    hx_arena_free(&routes->arena);
    *routes = (hx_quota_recount_routes){.has_defaults = policies->defaults.quota > 0};
    routes->names = hx_arena_alloc(&routes->arena, (policies->count + 1) * sizeof *routes->names);
    for (size_t i = 0; i < policies->count; i++) {
        if (policies->routes[i].quota == 0) continue;
        hx_slice name = hx_slice_first(hx_policy_identity(&policies->routes[i]), HX_RECORD_TEXT_MAX);
        routes->names[routes->count++] = hx_arena_copy(&routes->arena, name);
    }
    qsort(routes->names, routes->count, sizeof *routes->names, by_name);
}

void hx_quota_recount_start(hx_quota_recount *recount, hx_loop *loop, hx_store *store, const hx_policy_set *policies,
                            void (*found)(void *context, const hx_record *record), void *context)
{
    recount->loop = loop;
    recount->store = store;
    recount->found = found;
    recount->context = context;
    hx_timer_stop(loop, &recount->timer);
    take_routes(&recount->next, policies);
    recount->again = recount->busy;
    if (!recount->busy) begin(recount);
}

static bool has_quota(const hx_policy_set *set, hx_slice identity)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->routes[i].quota > 0 && hx_slice_eq(hx_policy_identity(&set->routes[i]), identity)) return true;
    return false;
}

bool hx_quota_recount_needed(const hx_policy_set *from, const hx_policy_set *to)
{
    if (to->defaults.quota > 0 && from->defaults.quota == 0) return true;
    for (size_t i = 0; i < to->count; i++)
        if (to->routes[i].quota > 0 && !has_quota(from, hx_policy_identity(&to->routes[i]))) return true;
    return false;
}

void hx_quota_recount_stop(hx_quota_recount *recount, void (*stopped)(void *context), void *context)
{
    recount->stopping = true;
    recount->stopped = stopped;
    recount->stopped_context = context;
    if (recount->loop) hx_timer_stop(recount->loop, &recount->timer);
    if (recount->busy) return;
    free_routes(recount);
    stopped(context);
}
