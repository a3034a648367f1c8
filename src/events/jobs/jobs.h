/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that send deliveries again (core/event/redrive.h), on the engine's side.
 *
 *     hx_job_do ──commit: job──► store ──scan: jobs that are due──► page ──commit: deliveries, job──► store …
 *
 * A step changes deliveries and the job in one commit, each compared with the version that it was decided on. So a
 * delivery is armed once for a job, whatever crashes in between, and of two nodes that work on a job one changes
 * nothing. That they rarely do is the purpose of hx_redrive.worker: another node takes a job over when its next step
 * was due long ago. */
#ifndef HX_EVENTS_JOBS_JOBS_H
#define HX_EVENTS_JOBS_JOBS_H

#include "core/event/redrive.h"
#include "events/engine.h"

#define HX_JOB_COUNTED_MAX 100000u /* deliveries that a preview looks at */

/* A page of what a job selects. */
typedef struct {
    hx_item item;         /* the delivery as it is stored; version 0: recover, and it has none */
    hx_delivery delivery; /* of an item that could be decoded, or a new one */
    bool is_sound;
    hx_slice queue, key; /* its place in the selection: hx_redrive.at_queue, … */
    hx_ms due;
} hx_job_candidate;

typedef struct hx_job_page {
    /* given by the caller; lives until `done` */
    hx_arena *arena;
    const hx_redrive *job;
    unsigned items_max;
    void (*done)(struct hx_job_page *page);
    /* given back, in the arena */
    hx_store_result result;
    hx_job_candidate *candidates;
    size_t count;
    bool more;
    /* its own */
    hx_engine *engine;
    hx_store_call call;
    hx_item_page scan;
    hx_item *items;
    hx_item event;
    hx_ms first; /* of the recipients of one event */
} hx_job_page;

void hx_job_page_read(hx_engine *engine, hx_job_page *page);
/* What the job says about a candidate; *gone: its endpoint doesn't exist any more. */
hx_redrive_verdict hx_job_page_judge(const hx_job_page *page, const hx_job_candidate *candidate, bool *gone);

typedef enum { HX_JOB_PREVIEW, HX_JOB_BEGIN, HX_JOB_STOP } hx_job_act;

/* What an operator does with a job. */
typedef struct hx_job_call {
    /* given by the caller; lives until `done` */
    hx_arena *arena;
    hx_job_act act;
    hx_redrive job; /* BEGIN, PREVIEW: which and how. STOP: tenant and id */
    hx_slice why;   /* STOP */
    void (*done)(struct hx_job_call *call);
    /* given back; the job as it is now */
    hx_change_result result;
    const char *detail;
    uint64_t matched, too_old, skipped;
    bool more; /* there may be more than were counted */
    /* the engine's own */
    hx_engine *engine;
    hx_store_call call;
    hx_item item;
    hx_item_page running;
    hx_arena page_arena;
    hx_job_page page;
    uint64_t seen;
    unsigned tries;
} hx_job_call;

void hx_job_do(hx_engine *engine, hx_job_call *call);

/* The item of a job; in the arena. */
hx_item hx_job_item(const hx_engine *engine, const hx_redrive *job, uint64_t version, hx_ms due, hx_arena *arena);
/* Logs that a job has begun or ended. */
void hx_job_log(const hx_redrive *job);
/* Moves the job to the beginning of its selection. */
void hx_job_rewind(hx_redrive *job, hx_arena *arena);
/* Moves the job behind a candidate. */
void hx_job_pass(hx_redrive *job, const hx_job_candidate *candidate);

#endif
