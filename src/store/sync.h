/* SPDX-License-Identifier: Apache-2.0 */
/* Synchronous use of a store, for commands: one call at a time, on a loop that the calling thread alone runs.
 *
 *     hx_awaited read;
 *     hx_await_begin(&read, loop, &arena);
 *     hx_store_read(store, &read.call, &op);
 *     if (hx_await(&read) == HX_STORE_OK) … read.call.found …
 */
#ifndef HX_STORE_SYNC_H
#define HX_STORE_SYNC_H

#include "store/store.h"

typedef struct {
    hx_store_call call;
    bool done;
} hx_awaited;

/* The loop must be attached to the store; what the call finds is put into the arena. */
void hx_await_begin(hx_awaited *awaited, hx_loop *loop, hx_arena *arena);
/* Runs the loop until the call has ended, and returns its result. */
hx_store_result hx_await(hx_awaited *awaited);

#endif
