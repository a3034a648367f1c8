/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/background.h"

#include "base/check.h"
#include "base/memory/arena.h"
#include "base/memory/list.h"

#include <stdatomic.h>

static void stop_next(void *of)
{
    hx_jobs *b = of;
    for (;;) {
        while (b->left > 0) {
            const hx_daemon_job *job = &b->jobs[--b->left];
            if (job->stops != b->stops) continue;
            atomic_store(&b->stopping_job, job->name);
            job->stop(b->context, stop_next, b);
            return;
        }
        atomic_store(&b->stopping_job, NULL);
        if (!b->is_ending) return;
        if (b->stops == HX_JOB_AFTER_DRAIN) {
            hx_loop_stop(b->loop);
            return;
        }
        b->stops = HX_JOB_AFTER_DRAIN;
        b->left = b->count;
    }
}

static void drain(hx_task *task)
{
    hx_jobs *b = HX_OWNER(task, hx_jobs, drain);
    b->left = b->count;
    stop_next(b);
}

static void end(hx_task *task)
{
    hx_jobs *b = HX_OWNER(task, hx_jobs, end);
    b->is_ending = true;
    if (!hx_jobs_stopping(b)) stop_next(b);
}

void hx_jobs_init(hx_jobs *b, const hx_daemon_job *jobs, size_t count, void *context)
{
    *b = (hx_jobs){.loop = hx_loop_new(),
                   .jobs = jobs,
                   .count = count,
                   .context = context,
                   .drain = {.run = drain},
                   .end = {.run = end}};
}

void hx_jobs_start(hx_jobs *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->jobs[i].start) b->jobs[i].start(b->context);
    b->thread = hx_loop_start(b->loop);
}

void hx_jobs_drain(hx_jobs *b)
{
    hx_loop_post(b->loop, &b->drain);
}

void hx_jobs_end(hx_jobs *b)
{
    hx_loop_post(b->loop, &b->end);
}

const char *hx_jobs_stopping(const hx_jobs *b)
{
    return atomic_load(&b->stopping_job);
}
