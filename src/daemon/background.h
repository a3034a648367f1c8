/* SPDX-License-Identifier: Apache-2.0 */
/* The background thread: one loop, and the jobs that run on it beside the workers. A job is a row of a table:
 *
 *     jobs start in the order of the table, before the thread runs
 *     BEFORE_DRAIN   stopped when the daemon begins to drain: what only future requests need
 *     AFTER_DRAIN    stopped when the last request has ended: what requests in flight, or operators, may still need
 *
 * Within each of the two, jobs stop one at a time, in the reverse order of the table, so that a job may use those above
 * it until it has stopped. The loop ends with the last of them. */
#ifndef HX_DAEMON_BACKGROUND_H
#define HX_DAEMON_BACKGROUND_H

#include "base/loop/loop.h"

#include <pthread.h>

typedef enum { HX_JOB_BEFORE_DRAIN, HX_JOB_AFTER_DRAIN } hx_job_stops;

typedef struct {
    const char *name;
    void (*start)(void *context); /* NULL: it is started when it is opened, or on demand */
    /* On the loop's thread: calls `stopped` once, perhaps at once, when none of its calls is under way any more. */
    void (*stop)(void *context, void (*stopped)(void *of), void *of);
    hx_job_stops stops;
} hx_daemon_job;

typedef struct {
    hx_loop *loop;
    const hx_daemon_job *jobs;
    size_t count;
    void *context; /* argument of the jobs' functions */
    pthread_t thread;
    hx_task drain, end;
    hx_job_stops stops;                 /* the jobs that are being stopped, or were */
    size_t left;                        /* jobs of that kind at or above this row are stopped, or being stopped */
    bool is_ending;                     /* hx_jobs_end was called */
    _Atomic(const char *) stopping_job; /* name of the job that is being stopped; NULL: none */
} hx_jobs;

/* Makes the loop; `jobs` and `context` live as long as it. */
void hx_jobs_init(hx_jobs *background, const hx_daemon_job *jobs, size_t count, void *context);
/* Starts the jobs and the thread. */
void hx_jobs_start(hx_jobs *background);
/* Any thread, once each, in this order. After hx_jobs_end the thread ends by itself, and can be joined. */
void hx_jobs_drain(hx_jobs *background);
void hx_jobs_end(hx_jobs *background);
/* The name of the job that has not stopped yet; NULL: all have. Any thread. */
const char *hx_jobs_stopping(const hx_jobs *background);

#endif
