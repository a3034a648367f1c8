/* SPDX-License-Identifier: Apache-2.0 */
#include "base/loop/loop.h"
#include "base/memory/list.h"
#include "base/rand.h"

#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <pthread.h>
#include <cmocka.h>

static int order[8], count;

typedef struct {
    hx_task task;
    int id;
    hx_loop *loop;
} job;

static void note(hx_task *task)
{
    job *j = HX_OWNER(task, job, task);
    order[count++] = j->id;
}

static void deferred_tasks_run_later_in_the_turn_and_in_order(void **state)
{
    (void)state;
    hx_loop *loop = hx_loop_new();
    job first = {.task.run = note, .id = 1}, second = {.task.run = note, .id = 2};
    count = 0;
    hx_loop_defer(loop, &first.task);
    hx_loop_defer(loop, &second.task);
    assert_int_equal(count, 0);
    hx_loop_turn(loop, 0);
    assert_int_equal(count, 2);
    assert_int_equal(order[0], 1);
    assert_int_equal(order[1], 2);
    hx_loop_free(&loop);
}

#define POSTS 10000

static job posted[2][POSTS];
static int last_seen[2], arrived;

static void arrive(hx_task *task)
{
    job *j = HX_OWNER(task, job, task);
    int thread = j->id / POSTS, number = j->id % POSTS;
    assert_int_equal(number, last_seen[thread]);
    last_seen[thread]++;
    if (++arrived == 2 * POSTS) hx_loop_stop(j->loop);
}

static void *post_all(void *jobs)
{
    for (job *j = jobs, *end = j + POSTS; j < end; j++) hx_loop_post(j->loop, &j->task);
    return NULL;
}

static void posts_of_two_threads_all_arrive_each_in_its_order(void **state)
{
    (void)state;
    hx_loop *loop = hx_loop_new();
    pthread_t threads[2];
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < POSTS; i++) posted[t][i] = (job){.task.run = arrive, .id = t * POSTS + i, .loop = loop};
        pthread_create(&threads[t], NULL, post_all, posted[t]);
    }
    hx_loop_run(loop);
    for (int t = 0; t < 2; t++) pthread_join(threads[t], NULL);
    assert_int_equal(arrived, 2 * POSTS);
    hx_loop_free(&loop);
}

static int fired;
static hx_ms last_due;

static void fire(hx_timer *timer)
{
    assert_true(timer->due >= last_due);
    last_due = timer->due;
    fired++;
}

static void timers_fire_in_order_and_a_stopped_one_never(void **state)
{
    (void)state;
    hx_loop *loop = hx_loop_new();
    static hx_timer timers[100];
    int stopped = 0;
    for (int i = 0; i < 100; i++) hx_timer_start(loop, &timers[i], (hx_ms)hx_rand_below(20), fire);
    for (int i = 0; i < 100; i += 3) hx_timer_start(loop, &timers[i], (hx_ms)hx_rand_below(30), fire);
    for (int i = 0; i < 100; i += 7, stopped++) hx_timer_stop(loop, &timers[i]);
    while (fired + stopped < 100) hx_loop_turn(loop, 5);
    for (int i = 0; i < 100; i++) assert_false(hx_timer_running(&timers[i]));
    hx_loop_free(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deferred_tasks_run_later_in_the_turn_and_in_order),
        cmocka_unit_test(posts_of_two_threads_all_arrive_each_in_its_order),
        cmocka_unit_test(timers_fire_in_order_and_a_stopped_one_never),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
