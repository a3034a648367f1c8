/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of timers under a loop: a binary heap. Moving a deadline later, which a connection does at every request,
 * only notes it: the timer is queued again when it comes up early. */
#ifndef HX_BASE_LOOP_TIMERS_H
#define HX_BASE_LOOP_TIMERS_H

#include "base/loop/loop.h"

typedef struct {
    hx_timer **heap;
    size_t count;
    size_t cap;
} hx_timers;

void hx_timers_add(hx_timers *timers, hx_timer *timer, hx_ms due);
void hx_timers_remove(hx_timers *timers, hx_timer *timer);
/* Removes and returns one timer that is due at `now`, or NULL. */
hx_timer *hx_timers_take_due(hx_timers *timers, hx_ms now);
/* The time at which the next timer may be due; INT64_MAX when none runs. */
hx_ms hx_timers_next(const hx_timers *timers);
void hx_timers_free(hx_timers *timers);

#endif
