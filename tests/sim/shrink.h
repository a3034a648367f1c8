/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a failing run smaller: the fewest choices that still break the same promise. */
#ifndef HX_TESTS_SIM_SHRINK_H
#define HX_TESTS_SIM_SHRINK_H

#include "run.h"

/* Runs in a process of its own, so that whatever it breaks stays there; a signal is a failure too. */
void sim_run_apart(const sim_setup *setup, sim_result *result, sim_choices *made);
/* `choices` are those of a run that failed with `result`; afterwards those of the smallest one found. */
void sim_shrink(uint64_t seed, sim_choices *choices, sim_result *result);

bool sim_choices_save(const char *file, uint64_t seed, const sim_choices *choices) HX_MUST_USE;
bool sim_choices_load(const char *file, uint64_t *seed, sim_choices *choices) HX_MUST_USE;

#endif
