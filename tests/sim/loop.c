/* SPDX-License-Identifier: Apache-2.0 */
/* Time and what happens in it: base/loop/loop.h, base/clock.h and the queue of events under the whole world. Time
 * doesn't advance while something happens, and jumps to whatever comes next. */
#include "world.h"

#include "base/check.h"
#include "base/loop/timers.h"

#include <stdlib.h>

#define LOOPS_MAX 8u
#define HOOKS_MAX 8u
#define FIRED_MAX 256u /* some start themselves again */

typedef struct {
    hx_task *first;
    hx_task **tail;
} task_queue;

struct hx_loop {
    hx_timers timers;
    task_queue deferred, posted;
    struct {
        void (*call)(void *context);
        void *context;
    } hooks[HOOKS_MAX];
    unsigned hook_count;
};

typedef struct {
    hx_ms due;
    uint64_t order;
    sim_happening fire;
    void *subject;
} event;

static struct {
    event *heap;
    size_t count, cap;
    uint64_t order;
    hx_loop *loops[LOOPS_MAX];
    unsigned loop_count;
} queue;

static bool before(const event *a, const event *b)
{
    return a->due != b->due ? a->due < b->due : a->order < b->order;
}

void sim_after(hx_ms delay, sim_happening fire, void *subject)
{
    HX_CHECK(delay >= 0);
    if (queue.count == queue.cap) {
        queue.cap = queue.cap ? queue.cap * 2 : 256;
        queue.heap = realloc(queue.heap, queue.cap * sizeof *queue.heap);
        if (!queue.heap) hx_fatal(HX_EXIT_BUG, "out of memory");
    }
    event new = {.due = world.boot + delay, .order = queue.order++, .fire = fire, .subject = subject};
    size_t at = queue.count++;
    for (; at > 0 && before(&new, &queue.heap[(at - 1) / 2]); at = (at - 1) / 2)
        queue.heap[at] = queue.heap[(at - 1) / 2];
    queue.heap[at] = new;
}

static event take_event(void)
{
    event first = queue.heap[0], last = queue.heap[--queue.count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= queue.count) break;
        if (child + 1 < queue.count && before(&queue.heap[child + 1], &queue.heap[child])) child++;
        if (!before(&queue.heap[child], &last)) break;
        queue.heap[at] = queue.heap[child];
        at = child;
    }
    if (queue.count > 0) queue.heap[at] = last;
    return first;
}

void sim_loop_reset(void)
{
    while (queue.loop_count > 0) {
        hx_loop *loop = queue.loops[0];
        sim_loop_drop(&loop);
    }
    queue.count = 0;
    queue.order = 0;
}

static bool run_queue(task_queue *tasks)
{
    bool any = tasks->first != NULL;
    while (tasks->first) {
        hx_task *task = tasks->first;
        tasks->first = task->next;
        if (!tasks->first) tasks->tail = &tasks->first;
        task->run(task);
    }
    return any;
}

void sim_run_tasks(hx_loop *loop)
{
    while (run_queue(&loop->posted) || run_queue(&loop->deferred)) {}
    for (unsigned i = 0; i < loop->hook_count; i++) loop->hooks[i].call(loop->hooks[i].context);
}

static bool any_tasks(void)
{
    for (unsigned i = 0; i < queue.loop_count; i++)
        if (queue.loops[i]->posted.first || queue.loops[i]->deferred.first) return true;
    return false;
}

hx_ms sim_next_event(void)
{
    return queue.count > 0 ? queue.heap[0].due : INT64_MAX;
}

void sim_loop_fire_all(hx_loop *loop)
{
    hx_timer *timer;
    for (unsigned i = 0; i < FIRED_MAX && (timer = hx_timers_take_due(&loop->timers, INT64_MAX)); i++)
        timer->fire(timer);
}

/* The loop whose timer is due first, if that is no later than `*due`. */
static hx_loop *next_timer(hx_ms *due)
{
    hx_loop *first = NULL;
    for (unsigned i = 0; i < queue.loop_count; i++) {
        hx_ms at = hx_timers_next(&queue.loops[i]->timers);
        if (at == INT64_MAX || at - world.clock_offset > *due || (first && at - world.clock_offset == *due)) continue;
        first = queue.loops[i];
        *due = at - world.clock_offset;
    }
    return first;
}

bool sim_step(void)
{
    for (;;) {
        hx_ms event_due = queue.count > 0 ? queue.heap[0].due : INT64_MAX, due = event_due;
        hx_loop *loop = next_timer(&due);
        if (due == INT64_MAX) return false;
        /* An event and a timer of the same moment: either may be first. */
        if (loop && due == event_due && sim_chance(SIM_BY_TIME, 500)) loop = NULL;
        if (due > world.boot) world.boot = due;
        if (loop) {
            hx_timer *timer = hx_timers_take_due(&loop->timers, sim_now());
            if (!timer) continue; /* it was moved on meanwhile */
            timer->fire(timer);
        } else {
            event next = take_event();
            next.fire(next.subject);
        }
        break;
    }
    while (any_tasks())
        for (unsigned i = 0; i < queue.loop_count; i++) sim_run_tasks(queue.loops[i]);
    world.events++;
    sim_mix((uint64_t)world.boot);
    sim_mix(sim_choices_count(sim_choices_made()));
    return true;
}

hx_ms sim_now(void)
{
    return world.boot + world.clock_offset;
}

hx_ms hx_clock_now(void)
{
    return sim_now();
}

hx_ms hx_clock_wall(void)
{
    return sim_now();
}

int64_t hx_clock_mono_ns(void)
{
    return world.boot * 1000000;
}

void hx_clock_raise(hx_ms stamp)
{
    if (stamp > sim_now()) world.clock_offset += stamp - sim_now();
}

hx_loop *hx_loop_new(void)
{
    hx_loop *loop = calloc(1, sizeof *loop);
    if (!loop) hx_fatal(HX_EXIT_BUG, "out of memory");
    HX_CHECK(queue.loop_count < LOOPS_MAX);
    loop->deferred.tail = &loop->deferred.first;
    loop->posted.tail = &loop->posted.first;
    queue.loops[queue.loop_count++] = loop;
    return loop;
}

void sim_loop_drop(hx_loop **owned)
{
    hx_loop *loop = *owned;
    unsigned at = 0;
    while (queue.loops[at] != loop) at++;
    queue.loop_count--;
    for (; at < queue.loop_count; at++) queue.loops[at] = queue.loops[at + 1];
    hx_timers_free(&loop->timers);
    free(loop);
    *owned = NULL;
}

void hx_loop_free(hx_loop **owned)
{
    if (*owned) sim_loop_drop(owned);
}

/* Loops turn when something happens, all of them in sim_step: nobody runs one by itself. */
void hx_loop_run(hx_loop *loop)
{
    hx_loop_turn(loop, 0);
}

void hx_loop_turn(hx_loop *loop, hx_ms wait)
{
    (void)wait;
    sim_run_tasks(loop);
}

void hx_loop_stop(hx_loop *loop)
{
    (void)loop;
}

hx_ms hx_loop_now(hx_loop *loop)
{
    (void)loop;
    return sim_now();
}

static void append(task_queue *tasks, hx_task *task)
{
    task->next = NULL;
    *tasks->tail = task;
    tasks->tail = &task->next;
}

void hx_loop_defer(hx_loop *loop, hx_task *task)
{
    append(&loop->deferred, task);
}

void hx_loop_post(hx_loop *loop, hx_task *task)
{
    append(&loop->posted, task);
}

void hx_loop_each_turn(hx_loop *loop, void (*hook)(void *context), void *context)
{
    HX_CHECK(loop->hook_count < HOOKS_MAX);
    loop->hooks[loop->hook_count].call = hook;
    loop->hooks[loop->hook_count++].context = context;
}

void hx_timer_start(hx_loop *loop, hx_timer *timer, hx_ms delay, void (*fire)(hx_timer *timer))
{
    HX_CHECK(delay >= 0);
    timer->fire = fire;
    hx_timers_add(&loop->timers, timer, sim_now() + delay);
}

void hx_timer_stop(hx_loop *loop, hx_timer *timer)
{
    hx_timers_remove(&loop->timers, timer);
}

bool hx_timer_running(const hx_timer *timer)
{
    return timer->position > 0;
}
