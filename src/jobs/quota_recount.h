/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the live operations of routes with a `quota`, so that a restart forgets no quota, and a reload that gives a
 * route its first one starts from what is there. Goes through the store in small pages, beside everything else: until
 * it is through, whoever counts them has counted too few. */
#ifndef HX_JOBS_QUOTA_RECOUNT_H
#define HX_JOBS_QUOTA_RECOUNT_H

#include "core/operation/policy.h"
#include "store/store.h"

/* Which operations are looked for. */
typedef struct {
    hx_arena arena;
    hx_slice *names; /* in order: what the routes' operations are known by */
    size_t count;
    bool has_defaults; /* what matches no route has a quota too */
} hx_quota_recount_routes;

/* One for the whole life of the process; all zero at first. */
typedef struct {
    hx_store *store;
    hx_loop *loop;
    /* For each record that stands: processing, unknown, completed or failed. No operation comes twice. */
    void (*found)(void *context, const hx_record *record);
    void *context;
    hx_quota_recount_routes routes;
    hx_quota_recount_routes next; /* when `again` */
    size_t at;                    /* which of the names is listed */
    uint64_t count;
    hx_store_page page;
    hx_store_call call;
    hx_arena arena; /* the page's */
    hx_timer timer;
    bool busy;  /* a call is under way */
    bool again; /* when it is back, everything from the beginning */
    bool stopping;
    void (*stopped)(void *context);
    void *stopped_context;
} hx_quota_recount;

/* Begins, or begins anew if it is under way: then the caller has forgotten what was found so far. `policies` is looked
 * at here, not later. On the loop's own thread, or before it runs. */
void hx_quota_recount_start(hx_quota_recount *recount, hx_loop *loop, hx_store *store, const hx_policy_set *policies,
                            void (*found)(void *context, const hx_record *record), void *context);
/* Whether `to` has a quota where `from` had none, so that a reload has to count again. */
bool hx_quota_recount_needed(const hx_policy_set *from, const hx_policy_set *to);
/* `stopped` is called, perhaps at once, when no call of the job is under way any more. */
void hx_quota_recount_stop(hx_quota_recount *recount, void (*stopped)(void *context), void *context);

#endif
