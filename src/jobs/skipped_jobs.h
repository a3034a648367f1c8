/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the number of jobs that were not run because their key was taken (`scheduler_job_conflict`) in an item of the
 * store, together with those that other processes count there: other nodes, and `hapax run`. A crash loses what was
 * counted in the last INTERVAL. */
#ifndef HX_JOBS_SKIPPED_JOBS_H
#define HX_JOBS_SKIPPED_JOBS_H

#include "store/store.h"

typedef struct {
    hx_store *store;
    hx_loop *loop;
    hx_timer timer;
    hx_arena arena; /* of the call under way */
    hx_store_call call;
    hx_item item;
    uint64_t kept, added; /* by the commit under way */
    bool is_busy, is_known, is_stopping;
    void (*stopped)(void *context);
    void *context;
} hx_skipped_jobs;

void hx_skipped_jobs_start(hx_skipped_jobs *conflicts, hx_loop *loop, hx_store *store);
/* Writes what is left; `stopped` follows, perhaps at once. */
void hx_skipped_jobs_stop(hx_skipped_jobs *conflicts, void (*stopped)(void *context), void *context);

#endif
