/* SPDX-License-Identifier: Apache-2.0 */
/* The sweeping job: every few seconds the store drops operations that have expired, and makes those unknown whose lease
 * has lapsed. */
#ifndef HX_JOBS_SWEEP_H
#define HX_JOBS_SWEEP_H

#include "store/store.h"

typedef struct {
    hx_store *store;
    hx_loop *loop;
    hx_ms interval;
    hx_timer timer;
    hx_store_call call;
    hx_arena arena;
    uint64_t cleaned; /* operations removed since the last log line */
    hx_ms logged_at;
    bool busy;
    bool stopping;
    void (*stopped)(void *context);
    void *context;
} hx_sweep;

void hx_sweep_start(hx_sweep *sweep, hx_loop *loop, hx_store *store, hx_ms interval);
/* Calls `stopped`, perhaps at once, when no call of the job is under way any more. */
void hx_sweep_stop(hx_sweep *sweep, void (*stopped)(void *context), void *context);

#endif
