/* SPDX-License-Identifier: Apache-2.0 */
/* What the crash program asks of the shim, and what the shim tells it. Both live in memory that outlasts the process
 * that is killed. A point is one call that changes the disk: the shim counts them all, over all threads, from the
 * moment it is armed. */
#ifndef HX_TESTS_CRASH_PLAN_H
#define HX_TESTS_CRASH_PLAN_H

#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>

#define CRASH_POINTS_MAX 65536u
#define CRASH_LABEL_BYTES 40u

/* What happens at the point. */
#define CRASH_MODES(X)                                                                                                 \
    X(COUNT, "count") /* nothing */                                                                                    \
    X(KILL, "kill")   /* the process is killed just before the call */                                                 \
    X(AFTER, "after") /* and just after it */                                                                          \
    X(DROP, "drop")   /* a power cut before it: all that was not synced is lost */                                     \
    X(TORN, "torn")   /* a power cut in it: of all that was not synced, some sectors and names are lost */             \
    X(ERROR, "error") /* it fails with EIO, and the process goes on if it wants to */                                  \
    X(STALE, "stale") /* a sync fails and the process ends: what it was for is read as before, but never written */    \
    X(SHORT, "short") /* a write writes half of what it was given */                                                   \
    X(FULL, "full")   /* from here on the disk is full, until crash_shim_space() */

typedef enum {
#define X(name, text) CRASH_##name,
    CRASH_MODES(X)
#undef X
        CRASH_MODE_COUNT
} crash_mode;

typedef struct {
    char watch[PATH_MAX]; /* everything below this folder counts */
    char lost[PATH_MAX];  /* a folder of the same file system outside it, for names that may have to come back */
    crash_mode mode;
    int goes_on;                   /* another plan follows on the same files: what is not synced now can be lost then */
    char label[CRASH_LABEL_BYTES]; /* count only the points with this label; empty: all of them */
    uint64_t point;                /* 1 is the first */
    uint64_t seed;
} crash_plan;

typedef struct {
    _Atomic uint64_t points;
    _Atomic uint64_t fired;                          /* the point that was reached, 0: not yet */
    _Atomic int failed_syncs;                        /* syncs that returned EIO */
    char label[CRASH_POINTS_MAX][CRASH_LABEL_BYTES]; /* of point 1 at [0]: "write journal/#.log" */
    char trouble[256];                               /* something the shim can't model was tried */
} crash_report;

/* Exported by the shim, found with dlsym. */
typedef void crash_shim_arm_fn(const crash_plan *plan, crash_report *report);
typedef int crash_shim_space_fn(void); /* frees space again; returns whether there was none */

#endif
