/* SPDX-License-Identifier: Apache-2.0 */
/* The loop on libuv. Deferred tasks and end-of-turn hooks run in libuv's prepare phase, which is the last thing before
 * it computes how long to sleep; one uv_timer carries all hx_timers. */
#include "base/loop/loop_uv.h"

#include "base/check.h"
#include "base/memory/arena.h"
#include "base/memory/list.h"
#include "base/loop/timers.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <uv.h>

#define HOOKS_MAX 8u

struct hx_loop {
    uv_loop_t uv;
    uv_prepare_t end_of_turn;
    uv_timer_t alarm;
    uv_async_t wake;
    hx_ms alarm_at;
    hx_ms now;
    uint64_t now_read_at; /* libuv's own time, in ms since it last woke, when `now` was read */
    uint64_t turns;
    hx_timers timers;
    hx_task *deferred; /* first in, first out */
    hx_task **deferred_tail;
    _Atomic(hx_task *) posted; /* newest first */
    struct {
        void (*call)(void *context);
        void *context;
    } hooks[HOOKS_MAX];
    unsigned hook_count;
    bool stopped;
};

/* libuv reads its clock when it wakes; ours is read only when that has moved. */
hx_ms hx_loop_now(hx_loop *loop)
{
    uint64_t woken_at = uv_now(&loop->uv);
    if (woken_at != loop->now_read_at) {
        loop->now_read_at = woken_at;
        loop->now = hx_clock_now();
    }
    return loop->now;
}

static void run_due_timers(hx_loop *loop)
{
    hx_ms now = hx_loop_now(loop);
    for (hx_timer *timer; (timer = hx_timers_take_due(&loop->timers, now));) timer->fire(timer);
}

static bool run_posted(hx_loop *loop)
{
    hx_task *newest = atomic_exchange_explicit(&loop->posted, NULL, memory_order_acquire);
    hx_task *oldest = NULL;
    while (newest) { /* reverse the stack: newest first becomes first in, first out */
        hx_task *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    bool any = oldest != NULL;
    while (oldest) {
        hx_task *task = oldest;
        oldest = task->next;
        task->run(task);
    }
    return any;
}

static bool run_deferred(hx_loop *loop)
{
    bool any = loop->deferred != NULL;
    while (loop->deferred) {
        hx_task *task = loop->deferred;
        loop->deferred = task->next;
        if (!loop->deferred) loop->deferred_tail = &loop->deferred;
        task->run(task);
    }
    return any;
}

static void alarm_rang(uv_timer_t *timer)
{
    hx_loop *loop = timer->data;
    loop->alarm_at = INT64_MAX; /* the timers themselves run at the end of the turn */
}

static void set_alarm(hx_loop *loop)
{
    hx_ms next = hx_timers_next(&loop->timers);
    if (next == loop->alarm_at) return;
    /* An alarm that fires too early only costs a turn; moving it at every request would cost more. */
    if (next > loop->alarm_at && loop->alarm_at > loop->now) return;
    loop->alarm_at = next;
    if (next == INT64_MAX) {
        uv_timer_stop(&loop->alarm);
        return;
    }
    hx_ms delay = next > loop->now ? next - loop->now : 0;
    uv_timer_start(&loop->alarm, alarm_rang, (uint64_t)delay, 0);
}

static void end_turn(uv_prepare_t *prepare)
{
    hx_loop *loop = prepare->data;
    do {
        run_due_timers(loop);
        while (run_posted(loop) || run_deferred(loop)) {}
        for (unsigned i = 0; i < loop->hook_count; i++) loop->hooks[i].call(loop->hooks[i].context);
    } while (loop->deferred);
    set_alarm(loop);
    loop->turns++;
}

uint64_t hx_loop_turns(const hx_loop *loop)
{
    return loop->turns;
}

static void woken(uv_async_t *async)
{
    hx_loop *loop = async->data;
    run_posted(loop);
}

hx_loop *hx_loop_new(void)
{
    hx_loop *loop = calloc(1, sizeof *loop);
    if (!loop || uv_loop_init(&loop->uv) != 0) hx_fatal(HX_EXIT_BUG, "can't make an event loop");
    loop->deferred_tail = &loop->deferred;
    loop->now = hx_clock_now();
    loop->alarm_at = INT64_MAX;
    loop->turns = 1;
    uv_prepare_init(&loop->uv, &loop->end_of_turn);
    uv_timer_init(&loop->uv, &loop->alarm);
    uv_async_init(&loop->uv, &loop->wake, woken);
    loop->uv.data = loop->end_of_turn.data = loop->alarm.data = loop->wake.data = loop;
    uv_prepare_start(&loop->end_of_turn, end_turn);
    return loop;
}

void hx_loop_run(hx_loop *loop)
{
    loop->stopped = false;
    while (!loop->stopped) uv_run(&loop->uv, UV_RUN_DEFAULT);
}

static void *run_loop(void *loop)
{
    hx_loop_run(loop);
    hx_arena_pool_drain();
    return NULL;
}

pthread_t hx_loop_start(hx_loop *loop)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_loop, loop) != 0) hx_fatal(HX_EXIT_BUG, "can't start a thread");
    return thread;
}

void hx_loop_stop(hx_loop *loop)
{
    loop->stopped = true;
    uv_stop(&loop->uv);
}

typedef struct {
    hx_timer timer;
    hx_loop *loop;
} turn_limit;

static void turn_over(hx_timer *timer)
{
    /* hx_loop_stop may have been called before the loop slept at all: it must not sleep then. */
    uv_stop(&HX_OWNER(timer, turn_limit, timer)->loop->uv);
}

void hx_loop_turn(hx_loop *loop, hx_ms wait)
{
    turn_limit limit = {.loop = loop};
    hx_timer_start(loop, &limit.timer, wait, turn_over);
    uv_run(&loop->uv, wait > 0 ? UV_RUN_ONCE : UV_RUN_NOWAIT);
    hx_timer_stop(loop, &limit.timer);
}

static void close_handle(uv_handle_t *handle, void *context)
{
    (void)context;
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

void hx_loop_free(hx_loop **owned)
{
    hx_loop *loop = *owned;
    if (!loop) return;
    uv_walk(&loop->uv, close_handle, NULL);
    while (uv_run(&loop->uv, UV_RUN_DEFAULT) != 0) {}
    int left = uv_loop_close(&loop->uv);
    HX_CHECK(left == 0);
    hx_timers_free(&loop->timers);
    free(loop);
    *owned = NULL;
}

struct uv_loop_s *hx_loop_uv(hx_loop *loop)
{
    return &loop->uv;
}

void hx_loop_defer(hx_loop *loop, hx_task *task)
{
    task->next = NULL;
    *loop->deferred_tail = task;
    loop->deferred_tail = &task->next;
}

void hx_loop_post(hx_loop *loop, hx_task *task)
{
    hx_task *top = atomic_load_explicit(&loop->posted, memory_order_relaxed);
    do {
        task->next = top;
    } while (!atomic_compare_exchange_weak_explicit(&loop->posted, &top, task, memory_order_release,
                                                    memory_order_relaxed));
    if (!top) uv_async_send(&loop->wake);
}

void hx_loop_each_turn(hx_loop *loop, void (*hook)(void *context), void *context)
{
    HX_CHECK(loop->hook_count < HOOKS_MAX);
    loop->hooks[loop->hook_count].call = hook;
    loop->hooks[loop->hook_count++].context = context;
}

struct hx_poll {
    uv_poll_t handle;
    unsigned events;
    void (*ready)(void *context, unsigned events);
    void *context;
};

_Static_assert((unsigned)UV_READABLE == HX_POLL_READ && (unsigned)UV_WRITABLE == HX_POLL_WRITE, "the same bits");

static void polled(uv_poll_t *handle, int status, int events)
{
    hx_poll *poll = HX_OWNER(handle, hx_poll, handle);
    poll->ready(poll->context, status < 0 ? poll->events : (unsigned)events);
}

hx_poll *hx_poll_new(hx_loop *loop, int fd, void (*ready)(void *context, unsigned events), void *context)
{
    hx_poll *poll = calloc(1, sizeof *poll);
    if (!poll || uv_poll_init(&loop->uv, &poll->handle, fd) != 0) hx_fatal(HX_EXIT_BUG, "can't poll a descriptor");
    poll->ready = ready;
    poll->context = context;
    return poll;
}

void hx_poll_for(hx_poll *poll, unsigned events)
{
    if (events == poll->events) return;
    poll->events = events;
    if (events == 0)
        uv_poll_stop(&poll->handle);
    else
        uv_poll_start(&poll->handle, (int)events, polled);
}

static void poll_closed(uv_handle_t *handle)
{
    free(HX_OWNER((uv_poll_t *)handle, hx_poll, handle));
}

void hx_poll_free(hx_poll **owned)
{
    if (*owned) uv_close((uv_handle_t *)&(*owned)->handle, poll_closed);
    *owned = NULL;
}

void hx_timer_start(hx_loop *loop, hx_timer *timer, hx_ms delay, void (*fire)(hx_timer *timer))
{
    HX_CHECK(delay >= 0);
    timer->fire = fire;
    hx_timers_add(&loop->timers, timer, hx_loop_now(loop) + delay);
}

void hx_timer_stop(hx_loop *loop, hx_timer *timer)
{
    hx_timers_remove(&loop->timers, timer);
}

bool hx_timer_running(const hx_timer *timer)
{
    return timer->position > 0;
}
