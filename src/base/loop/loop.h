/* SPDX-License-Identifier: Apache-2.0 */
/* One thread's event loop: time, timers, tasks. Everything above net/ sees only this, so that the simulator can put
 * its own loop underneath. Implemented by loop_uv.c, and by tests/sim.
 *
 * A turn of the loop: I/O callbacks, timers that are due, posted tasks, deferred tasks, then the end-of-turn hooks
 * (where batches are handed over), then it sleeps until something happens. */
#ifndef HX_BASE_LOOP_LOOP_H
#define HX_BASE_LOOP_LOOP_H

#include "base/clock.h"

#include <pthread.h>

typedef struct hx_loop hx_loop;

hx_loop *hx_loop_new(void);
void hx_loop_run(hx_loop *loop); /* returns after hx_loop_stop */
/* Runs the loop on a new thread, which ends after hx_loop_stop, for the caller to join. */
pthread_t hx_loop_start(hx_loop *loop);
void hx_loop_stop(hx_loop *loop);
/* Runs one turn, waiting at most `wait` for something to do. For tests. */
void hx_loop_turn(hx_loop *loop, hx_ms wait);
void hx_loop_free(hx_loop **owned);

/* The time at which this turn began: the same for everything that runs in it. */
hx_ms hx_loop_now(hx_loop *loop);

/* A task is a member of the struct that it works on. The caller owns its memory, which must live until the task has
 * run. */
typedef struct hx_task {
    struct hx_task *next;
    void (*run)(struct hx_task *task);
} hx_task;

/* Runs the task later in this turn, never inside the call. Only on the loop's own thread. */
void hx_loop_defer(hx_loop *loop, hx_task *task);
/* Runs the task on the loop's thread; may be called from any thread. Tasks of one thread run in their order, and the
 * loop is woken once per batch. */
void hx_loop_post(hx_loop *loop, hx_task *task);

/* Adds a hook that runs at the end of every turn, before the loop sleeps. At most 8, added before the loop runs. */
void hx_loop_each_turn(hx_loop *loop, void (*hook)(void *context), void *context);

/* Polling a file descriptor that its owner reads and writes. All calls on the loop's own thread. Free the poll
 * before the descriptor is closed; `ready` is never called afterwards. */
typedef struct hx_poll hx_poll;
#define HX_POLL_READ 1u
#define HX_POLL_WRITE 2u
hx_poll *hx_poll_new(hx_loop *loop, int fd, void (*ready)(void *context, unsigned events), void *context);
/* Sets which events are waited for; 0: none. `ready` is called in every turn for as long as one of them holds. A
 * failed descriptor counts as ready for all of them. */
void hx_poll_for(hx_poll *poll, unsigned events);
void hx_poll_free(hx_poll **owned);

/* A timer is a member of the struct that it times, zeroed at first. After hx_timer_stop the callback is never
 * called, and the memory is free for use. Starting a running timer moves its deadline. */
typedef struct hx_timer {
    hx_ms due;        /* deadline */
    hx_ms queued_for; /* its key in the queue: never later than `due` */
    size_t position;  /* 1-based place in the queue, 0: not running */
    void (*fire)(struct hx_timer *timer);
} hx_timer;

void hx_timer_start(hx_loop *loop, hx_timer *timer, hx_ms delay, void (*fire)(hx_timer *timer));
void hx_timer_stop(hx_loop *loop, hx_timer *timer);
bool hx_timer_running(const hx_timer *timer);

#endif
