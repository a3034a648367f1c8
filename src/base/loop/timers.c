/* SPDX-License-Identifier: Apache-2.0 */
#include "base/loop/timers.h"

#include "base/check.h"

#include <stdlib.h>

static void place(hx_timers *timers, size_t at, hx_timer *timer)
{
    timers->heap[at] = timer;
    timer->position = at + 1;
}

static void sift_up(hx_timers *timers, size_t at, hx_timer *timer)
{
    while (at > 0) {
        size_t parent = (at - 1) / 2;
        if (timers->heap[parent]->queued_for <= timer->queued_for) break;
        place(timers, at, timers->heap[parent]);
        at = parent;
    }
    place(timers, at, timer);
}

static void sift_down(hx_timers *timers, size_t at, hx_timer *timer)
{
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= timers->count) break;
        if (child + 1 < timers->count && timers->heap[child + 1]->queued_for < timers->heap[child]->queued_for) child++;
        if (timers->heap[child]->queued_for >= timer->queued_for) break;
        place(timers, at, timers->heap[child]);
        at = child;
    }
    place(timers, at, timer);
}

void hx_timers_add(hx_timers *timers, hx_timer *timer, hx_ms due)
{
    timer->due = due;
    if (timer->position > 0) {
        if (due >= timer->queued_for) return; /* queued again when it comes up */
        timer->queued_for = due;
        sift_up(timers, timer->position - 1, timer);
        return;
    }
    if (timers->count == timers->cap) {
        timers->cap = timers->cap ? timers->cap * 2 : 64;
        timers->heap = realloc(timers->heap, timers->cap * sizeof(hx_timer *));
        if (!timers->heap) hx_fatal(HX_EXIT_BUG, "out of memory (%zu timers)", timers->cap);
    }
    timer->queued_for = due;
    sift_up(timers, timers->count++, timer);
}

void hx_timers_remove(hx_timers *timers, hx_timer *timer)
{
    if (timer->position == 0) return;
    size_t at = timer->position - 1;
    HX_CHECK(at < timers->count && timers->heap[at] == timer);
    timer->position = 0;
    hx_timer *last = timers->heap[--timers->count];
    if (last == timer) return;
    if (at > 0 && last->queued_for < timers->heap[(at - 1) / 2]->queued_for)
        sift_up(timers, at, last);
    else
        sift_down(timers, at, last);
}

hx_timer *hx_timers_take_due(hx_timers *timers, hx_ms now)
{
    while (timers->count > 0) {
        hx_timer *first = timers->heap[0];
        if (first->queued_for > now) return NULL;
        if (first->due == first->queued_for) {
            hx_timers_remove(timers, first);
            return first;
        }
        first->queued_for = first->due;
        sift_down(timers, 0, first);
    }
    return NULL;
}

hx_ms hx_timers_next(const hx_timers *timers)
{
    return timers->count > 0 ? timers->heap[0]->queued_for : INT64_MAX;
}

void hx_timers_free(hx_timers *timers)
{
    free(timers->heap);
    *timers = (hx_timers){0};
}
