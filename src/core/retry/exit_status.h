/* SPDX-License-Identifier: Apache-2.0 */
/* What the end of a command means for its operation (contract §10, `hapax run`).
 *
 * What must hold:
 * 1. COMPLETED and FAILED are said only of a command that ended by itself, with all of its descendants.
 * 2. RELEASED without the caller's word is said only of a command that was never started.
 * 3. A command that may have been interrupted in the middle is UNKNOWN, whatever the rules say. */
#ifndef HX_CORE_RETRY_EXIT_STATUS_H
#define HX_CORE_RETRY_EXIT_STATUS_H

#include "base/slice.h"

typedef struct {
    uint64_t bits[4];
} hx_exit_codes;

/* Reads "75,100-110": codes from 1 to 255. */
bool hx_exit_codes_read(hx_slice text, hx_exit_codes *codes) HX_MUST_USE;
bool hx_exit_codes_has(const hx_exit_codes *codes, unsigned code);

typedef struct {
    hx_exit_codes retry_on;
    bool plain_codes;       /* 129 to 165 are codes like all others, not a shell's word for a signal */
    bool releases_failures; /* `--on-failure release` */
} hx_exit_rules;

/* The end of one attempt. */
typedef struct {
    bool is_lost;    /* the claim ended meanwhile */
    bool is_orphan;  /* the supervisor died: how the command ended was not seen */
    bool has_left;   /* a descendant had left the session, and was killed */
    int start_error; /* 0, or the errno of starting the command */
    int signal;      /* 0, or the signal that killed it */
    unsigned code;
} hx_exit_report;

/* identifier, name for --outcome-file */
#define HX_EXIT_OUTCOMES(X)                                                                                            \
    X(COMPLETED, "completed")                                                                                          \
    X(FAILED, "failed")                                                                                                \
    X(AGAIN, "released") /* it may be run again at once; it is released when that isn't done */                        \
    X(RELEASED, "released")                                                                                            \
    X(UNKNOWN, "unknown")

#define X(id, name) HX_EXITED_##id,
typedef enum { HX_EXIT_OUTCOMES(X) } hx_exit_outcome;
#undef X

const char *hx_exit_outcome_name(hx_exit_outcome outcome);

typedef struct {
    hx_exit_outcome outcome;
    const char *reason; /* for the record, where it has no exit code; else "" */
    unsigned code;      /* to exit with, but of UNKNOWN */
} hx_exit_verdict;

hx_exit_verdict hx_exit_judge(const hx_exit_rules *rules, const hx_exit_report *report);
/* Whether a shell says by this code that a signal killed the command. */
static inline bool hx_exit_is_signal(unsigned code)
{
    return code >= 129 && code <= 165;
}

#endif
