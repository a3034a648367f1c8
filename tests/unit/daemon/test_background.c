/* SPDX-License-Identifier: Apache-2.0 */
/* When background jobs start and stop, and in which order. */
#include "daemon/background.h"

#include "base/memory/list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct {
    hx_jobs jobs;
    char said[256];
    hx_task later;
    void (*stopped)(void *of);
    void *of;
    _Atomic bool hangs, is_stopping;
} world;

static void say(world *w, const char *word)
{
    size_t len = strlen(w->said);
    (void)snprintf(w->said + len, sizeof w->said - len, "%s ", word);
}

static void start_store(void *context)
{
    say(context, "+store");
}

static void start_reader(void *context)
{
    say(context, "+reader");
}

static void stop_store(void *context, void (*stopped)(void *of), void *of)
{
    say(context, "-store");
    stopped(of);
}

static void reader_done(hx_task *task)
{
    world *w = HX_OWNER(task, world, later);
    if (atomic_load(&w->hangs)) {
        hx_loop_post(w->jobs.loop, task);
        return;
    }
    say(w, "-reader");
    w->stopped(w->of);
}

static void stop_reader(void *context, void (*stopped)(void *of), void *of)
{
    world *w = context;
    w->stopped = stopped;
    w->of = of;
    w->later.run = reader_done;
    hx_loop_post(w->jobs.loop, &w->later);
    atomic_store(&w->is_stopping, true);
}

static void stop_counter(void *context, void (*stopped)(void *of), void *of)
{
    say(context, "-counter");
    stopped(of);
}

static void stop_door(void *context, void (*stopped)(void *of), void *of)
{
    say(context, "-door");
    stopped(of);
}

static const hx_daemon_job table[] = {
    {"store", start_store, stop_store, HX_JOB_AFTER_DRAIN},
    {"counter", NULL, stop_counter, HX_JOB_BEFORE_DRAIN},
    {"reader", start_reader, stop_reader, HX_JOB_BEFORE_DRAIN},
    {"door", NULL, stop_door, HX_JOB_AFTER_DRAIN},
};

static void end_and_join(world *w)
{
    hx_jobs_end(&w->jobs);
    assert_int_equal(pthread_join(w->jobs.thread, NULL), 0);
    assert_null(hx_jobs_stopping(&w->jobs));
    hx_loop_free(&w->jobs.loop);
}

static void jobs_stop_in_reverse_order_before_and_after_the_drain(void **state)
{
    (void)state;
    world w = {0};
    hx_jobs_init(&w.jobs, table, sizeof table / sizeof *table, &w);
    hx_jobs_start(&w.jobs);
    hx_jobs_drain(&w.jobs);
    end_and_join(&w);
    assert_string_equal(w.said, "+store +reader -reader -counter -door -store ");
}

static void an_end_waits_for_the_job_that_it_names(void **state)
{
    (void)state;
    world w = {.hangs = true};
    hx_jobs_init(&w.jobs, table, sizeof table / sizeof *table, &w);
    hx_jobs_start(&w.jobs);
    hx_jobs_drain(&w.jobs);
    while (!atomic_load(&w.is_stopping)) (void)usleep(100);
    assert_string_equal(hx_jobs_stopping(&w.jobs), "reader");
    atomic_store(&w.hangs, false);
    end_and_join(&w);
    assert_string_equal(w.said, "+store +reader -reader -counter -door -store ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_stop_in_reverse_order_before_and_after_the_drain),
        cmocka_unit_test(an_end_waits_for_the_job_that_it_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
