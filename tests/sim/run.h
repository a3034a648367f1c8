/* SPDX-License-Identifier: Apache-2.0 */
/* One run: a world from its first request to the moment when nothing is left to do. */
#ifndef HX_TESTS_SIM_RUN_H
#define HX_TESTS_SIM_RUN_H

#include "choices.h"

typedef struct {
    uint64_t seed;
    const sim_choices *choices; /* NULL: they follow from the seed */
    bool trace;                 /* say what happens, on standard output */
} sim_setup;

typedef struct {
    bool failed;
    char failure[2048]; /* the promise that was broken, and how */
    unsigned events;
    hx_ms simulated;
    uint64_t hash; /* the same for the same run */
} sim_result;

void sim_run(const sim_setup *setup, sim_result *result);
/* Of either half: the life of one world, from a cleared one to its end. */
void sim_live(void);
extern const char *const sim_command; /* what makes runs of this kind */
extern bool sim_is_running;

/* shrink.c: makes a failing run smaller, to the fewest choices that still break the same promise. */

/* Runs in a process of its own, so that whatever it breaks stays there; a signal is a failure too. */
void sim_run_apart(const sim_setup *setup, sim_result *result, sim_choices *made);
/* `choices` are those of a run that failed with `result`; afterwards those of the smallest one found. */
void sim_shrink(uint64_t seed, sim_choices *choices, sim_result *result);

bool sim_choices_save(const char *file, uint64_t seed, const sim_choices *choices) HX_MUST_USE;
bool sim_choices_load(const char *file, uint64_t *seed, sim_choices *choices) HX_MUST_USE;

#endif
