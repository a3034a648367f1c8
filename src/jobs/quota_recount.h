/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the live operations of routes with a `quota`, at a start and when a reload gives a route its first one, so that
 * quotas count keys from before. It lists the store in small pages, concurrently with requests: until it is done, fewer
 * keys are counted than live. */
#ifndef HX_JOBS_QUOTA_RECOUNT_H
#define HX_JOBS_QUOTA_RECOUNT_H

#include "core/operation/policy.h"
#include "store/store.h"

/* The operations that are looked for. */
typedef struct {
    hx_arena arena;
    hx_slice *names; /* sorted: the names by which the routes' operations are known */
    size_t count;
    bool has_defaults; /* the defaults have a quota too */
} hx_quota_recount_routes;

/* One per process; all zero at first. */
typedef struct {
    hx_store *store;
    hx_loop *loop;
    /* Called for each record that is processing, unknown, completed or failed; once per operation. */
    void (*found)(void *context, const hx_record *record);
    void *context;
    hx_quota_recount_routes routes;
    hx_quota_recount_routes next; /* valid when `again` */
    size_t at;                    /* index of the name that is listed */
    uint64_t count;
    hx_store_page page;
    hx_store_call call;
    hx_arena arena; /* memory of the page */
    hx_timer timer;
    bool busy;  /* a call is under way */
    bool again; /* begin again with `next` when the call ends */
    bool stopping;
    void (*stopped)(void *context);
    void *stopped_context;
} hx_quota_recount;

/* Begins, or begins again if it is under way: the caller must have forgotten what was found so far. Reads `policies`
 * only during the call. On the loop's own thread, or before it runs. */
void hx_quota_recount_start(hx_quota_recount *recount, hx_loop *loop, hx_store *store, const hx_policy_set *policies,
                            void (*found)(void *context, const hx_record *record), void *context);
/* Whether `to` has a quota where `from` has none, so that a reload has to recount. */
bool hx_quota_recount_needed(const hx_policy_set *from, const hx_policy_set *to);
/* Calls `stopped`, perhaps at once, when no call of the job is under way any more. */
void hx_quota_recount_stop(hx_quota_recount *recount, void (*stopped)(void *context), void *context);

#endif
