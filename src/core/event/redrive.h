/* SPDX-License-Identifier: Apache-2.0 */
/* A job that sends many deliveries again, or an endpoint the events that it missed. It is an item of its own, and what
 * it does is committed together with how far it got:
 *
 *     key    j/TENANT/ID        ids begin with the time, so that keys are in the order of age
 *     queue  jobs/TENANT/       as long as it runs
 *     due    its next step
 *     meta   JSON, by hx_redrive_shape
 *
 * Each delivery that it has armed is watched until its first attempt has a result, by an item that the step which arms
 * it writes, and the step which counts the result removes:
 *
 *     key    a/TENANT/ID/NUMBER        queue  armed/TENANT/ID/        meta   key of the delivery
 *
 *     RUNNING ──[its selection is used up, and what it has armed has its results]──► DONE
 *        └─────[an operator, or `stop_after` failures]──► STOPPED */
#ifndef HX_CORE_EVENT_REDRIVE_H
#define HX_CORE_EVENT_REDRIVE_H

#include "core/event/delivery.h"
#include "core/json/json_fields.h"

#define HX_REDRIVE_WINDOW (7 * HX_DAY) /* for which receivers remember the ids of events */
#define HX_REDRIVE_WATCHED_MAX 16u     /* with `stop_after`, before no more are armed */
#define HX_REDRIVE_RATE_MAX 1000u
#define HX_REDRIVE_STEP 100u /* deliveries that are looked at in a step */
#define HX_REDRIVE_QUEUES "jobs/"

typedef struct {
    hx_slice id;
    hx_slice kind; /* "redrive", or "recover" */
    hx_slice tenant;
    /* which: deliveries that are in this state since before the job began */
    hx_slice state;     /* "dead", "held", "unknown", "delivered", or "paused": pending, of a disabled endpoint */
    hx_slice endpoint;  /* empty: all */
    hx_slice event;     /* key of its item; empty: any */
    hx_ms from, before; /* when the delivery was made; recover: `from` is when the event was accepted */
    bool past_window;   /* also those that receivers may have forgotten */
    uint64_t limit;     /* that are armed; 0: all */
    /* how */
    uint64_t rate;       /* a second; 0: as fast as it goes */
    uint64_t stop_after; /* failures of deliveries that it has armed; 0: goes on */
    hx_slice by, why;
    /* how far */
    hx_slice status;   /* "running", "stopped", "done" */
    hx_slice reason;   /* why it was stopped */
    uint64_t expected; /* that matched when it began; at most */
    uint64_t armed;
    uint64_t skipped;   /* pending, or being sent */
    uint64_t too_old;   /* past the window, and left alone */
    uint64_t gone;      /* the endpoint doesn't exist any more */
    uint64_t delivered; /* this and the next: the first attempts of those that it has armed */
    uint64_t failed;
    hx_ms started_at, ended_at;
    uint64_t worker;           /* the node that works on it */
    bool is_used_up;           /* the selection */
    hx_slice at_queue, at_key; /* where the next step begins: behind this place of the store */
    hx_ms at_due;              /* of one event: the number of its recipients that were looked at */
    uint64_t watching;         /* not stored: those that were armed and have no result, as far as the step has looked */
} hx_redrive;

extern const hx_json_shape hx_redrive_shape;
extern const hx_redrive hx_redrive_new; /* empty */
void hx_redrive_encode(const hx_redrive *job, hx_buf *meta);
bool hx_redrive_decode(hx_slice meta, hx_arena *arena, hx_redrive *job) HX_MUST_USE;
bool hx_redrive_is_running(const hx_redrive *job);
bool hx_redrive_is_recovery(const hx_redrive *job);
hx_slice hx_redrive_key(hx_slice tenant, hx_slice id, hx_arena *arena);
/* The queue of those of a tenant that run. */
hx_slice hx_redrive_queue(hx_slice tenant, hx_arena *arena);
/* Of the items that watch what the job has armed: the queue, and the key of the one that was armed last. */
hx_slice hx_redrive_armed_queue(const hx_redrive *job, hx_arena *arena);
hx_slice hx_redrive_armed_key(const hx_redrive *job, hx_arena *arena);

typedef enum {
    HX_REDRIVE_OTHER, /* it isn't selected, or the job has armed it before */
    HX_REDRIVE_ARM,
    HX_REDRIVE_SKIP,   /* selected but for its state: pending, or being sent */
    HX_REDRIVE_TOO_OLD /* selected, but its receiver may have forgotten the event */
} hx_redrive_verdict;

/* `is_paused`: its endpoint is disabled. */
hx_redrive_verdict hx_redrive_judge(const hx_redrive *job, const hx_delivery *delivery, bool is_paused, hx_ms now);
/* Notes what became of a watched delivery; false: it will be attempted, and has no result yet. */
bool hx_redrive_note(hx_redrive *job, const hx_delivery *delivery, bool is_paused) HX_MUST_USE;
/* How many more it may arm now. */
uint64_t hx_redrive_budget(const hx_redrive *job);
/* How long to wait after a step that has armed so many. */
hx_ms hx_redrive_gap(const hx_redrive *job, uint64_t armed);
/* Ends a job that has nothing left to do, or that has seen too many failures. */
void hx_redrive_finish(hx_redrive *job, hx_ms now);

#endif
