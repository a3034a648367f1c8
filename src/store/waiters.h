/* SPDX-License-Identifier: Apache-2.0 */
/* Watches that wait for their operation to leave processing, by operation. Every store uses this; how a watch ends is
 * the store's own.
 *
 * There is no lock here: a store calls these functions under a mutex of its own, or from one thread. Limits may be
 * changed, and the count read, from any thread. */
#ifndef HX_STORE_WAITERS_H
#define HX_STORE_WAITERS_H

#include "base/memory/map.h"
#include "store/backend.h"

#include <stdatomic.h>

/* The watches of one operation. */
typedef struct hx_waiter_group {
    hx_op op;
    hx_link link;  /* link of hx_waiters.all, or of the free groups */
    hx_link calls; /* calls, linked by own.waiter.link */
    unsigned count;
} hx_waiter_group;

typedef struct {
    hx_map *groups;
    hx_link all; /* groups: the operations that a store has to look at where other processes settle them */
    hx_link unused;
    _Atomic uint64_t count;
    _Atomic unsigned per_operation_max, max;
} hx_waiters;

void hx_waiters_init(hx_waiters *w, const hx_store_options *options);
/* No watch may wait any more. */
void hx_waiters_free(hx_waiters *w);
void hx_waiters_limit(hx_waiters *w, const hx_store_options *options);

/* Whether the limits allow one more watch of `op`. */
bool hx_waiters_may_add(const hx_waiters *w, const hx_op *op) HX_MUST_USE;
void hx_waiters_add(hx_waiters *w, hx_store_call *watch);
/* False: it doesn't wait, or not any more. */
bool hx_waiters_remove(hx_waiters *w, hx_store_call *watch);
/* The watches of `op`, NULL where there are none. */
const hx_waiter_group *hx_waiters_of(const hx_waiters *w, const hx_op *op);
/* Moves the watches of `op` to `out`, which it initializes, but for those of the epoch that is still in processing (0:
 * none is). They are linked by own.waiter.link. */
void hx_waiters_take(hx_waiters *w, const hx_op *op, uint64_t epoch_in_processing, hx_link *out);
/* The first of the watches that were taken, or NULL. */
static inline hx_store_call *hx_waiters_next(hx_link *taken)
{
    hx_link *link = hx_list_take(taken);
    return link ? HX_OWNER(link, hx_store_call, own.waiter.link) : NULL;
}

#endif
