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

#endif
