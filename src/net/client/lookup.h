/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of host names, looked up outside the loop's thread and kept for a short time. A lookup can't be
 * interrupted: who waits for it gives up after a time limit, and the lookup is left to end by itself. Until then it
 * counts as one of those that may run at a time, so that a silent name server costs a bounded number of threads. */
#ifndef HX_NET_CLIENT_LOOKUP_H
#define HX_NET_CLIENT_LOOKUP_H

#include "base/loop/loop.h"
#include "base/memory/list.h"

#define HX_LOOKUP_RUNNING_MAX 16u
#define HX_LOOKUP_NAMES_MAX 1024u /* known or looked up at a time */
#define HX_LOOKUP_NAME_BYTES 256u
#define HX_LOOKUP_ADDRESSES_MAX 8u
#define HX_LOOKUP_FOUND_FOR (30 * HX_SECOND)
#define HX_LOOKUP_STALE_FOR HX_MINUTE /* after that, while they are looked up again */
#define HX_LOOKUP_FAILED_FOR (5 * HX_SECOND)

typedef struct hx_lookup hx_lookup;

typedef struct {
    const char *addresses; /* "192.0.2.1,[2001:db8::1]"; NULL: none */
    const char *reason;    /* why there is none, static */
} hx_lookup_answer;

typedef struct hx_lookup_waiter hx_lookup_waiter;
struct hx_lookup_waiter {
    void (*done)(hx_lookup_waiter *waiter, const hx_lookup_answer *answer);
    hx_lookup *lookup;
    hx_link link; /* used by lookup.c only, like `timer` */
    hx_timer timer;
};

hx_lookup *hx_lookup_new(hx_loop *loop);
/* Nobody may wait any more. Lookups under way end by themselves. */
void hx_lookup_free(hx_lookup **owned);
/* Whether the answer is known. The texts live until the loop's next turn. */
bool hx_lookup_find(hx_lookup *lookup, hx_slice name, hx_lookup_answer *answer);
/* Looks the name up; waiter->done follows from the loop, within the time limit. The name is in lower case and shorter
 * than HX_LOOKUP_NAME_BYTES; `done` is set by the caller. */
void hx_lookup_wait(hx_lookup *lookup, hx_slice name, hx_ms time_max, hx_lookup_waiter *waiter);
void hx_lookup_leave(hx_lookup_waiter *waiter); /* `done` is not called any more */

#endif
