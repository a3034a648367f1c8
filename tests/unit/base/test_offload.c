/* SPDX-License-Identifier: Apache-2.0 */
#include "base/loop/offload.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <setjmp.h>
#include <semaphore.h>
#include <cmocka.h>

typedef struct {
    sem_t *may_end; /* NULL: at once */
    sem_t *ended;
    pthread_t thread;
} job;

static void work(void *memory)
{
    job *j = memory;
    j->thread = pthread_self();
    if (j->may_end) sem_wait(j->may_end);
    if (j->ended) sem_post(j->ended);
}

static int dones;
static hx_offload *offload;

static void work_done(void *context, void *memory)
{
    const job *j = memory;
    dones++;
    assert_false(pthread_equal(j->thread, pthread_self()));
    assert_true(pthread_equal(*(pthread_t *)context, pthread_self()));
    hx_offload_free(&offload);
    assert_false(pthread_equal(j->thread, pthread_self())); /* the memory lives until this function returns */
}

static job *job_new(sem_t *may_end, sem_t *ended)
{
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->may_end = may_end;
    j->ended = ended;
    return j;
}

static void it_works_on_a_thread_of_its_own_and_is_done_on_the_loop(void **state)
{
    (void)state;
    hx_loop *loop = hx_loop_new();
    pthread_t here = pthread_self();
    dones = 0;
    offload = hx_offload_start(loop, job_new(NULL, NULL), work, work_done, &here);
    assert_non_null(offload);
    assert_int_equal(dones, 0);
    while (dones == 0) hx_loop_turn(loop, 100);
    assert_null(offload);
    hx_loop_free(&loop);
}

/* Under the sanitizers this also shows that the memory is freed once, by whoever is the last. */
static void a_cancelled_one_is_left_to_end_by_itself(void **state)
{
    (void)state;
    sem_t may_end, ended;
    hx_loop *loop = hx_loop_new();
    pthread_t here = pthread_self();
    dones = 0;
    sem_init(&may_end, 0, 0);
    sem_init(&ended, 0, 0);
    offload = hx_offload_start(loop, job_new(&may_end, &ended), work, work_done, &here);
    hx_offload_free(&offload); /* doesn't wait: the work can't end yet */
    assert_null(offload);
    hx_loop_turn(loop, 0);
    hx_loop_free(&loop);
    sem_post(&may_end);
    sem_wait(&ended);
    assert_int_equal(dones, 0);
}

/* The work is over and its task is in the loop's queue. */
static void a_cancellation_in_the_last_moment_holds(void **state)
{
    (void)state;
    sem_t ended;
    hx_loop *loop = hx_loop_new();
    pthread_t here = pthread_self();
    dones = 0;
    sem_init(&ended, 0, 0);
    for (int i = 0; i < 100; i++) {
        offload = hx_offload_start(loop, job_new(NULL, &ended), work, work_done, &here);
        sem_wait(&ended);
        hx_offload_free(&offload);
        hx_loop_turn(loop, 0);
    }
    assert_int_equal(dones, 0);
    hx_loop_free(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_works_on_a_thread_of_its_own_and_is_done_on_the_loop),
        cmocka_unit_test(a_cancelled_one_is_left_to_end_by_itself),
        cmocka_unit_test(a_cancellation_in_the_last_moment_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
