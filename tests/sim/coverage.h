/* SPDX-License-Identifier: Apache-2.0 */
/* How often which step of a request met which fault, and which change of state met which fate: what was never met was
 * never tried. */
#ifndef HX_TESTS_SIM_COVERAGE_H
#define HX_TESTS_SIM_COVERAGE_H

#include "gateway/request.h"
#include "world.h"

enum { SIM_ROW_RENEW = HX_STEP_COUNT, SIM_ROW_SWEEP, SIM_ROWS };

typedef struct {
    uint64_t requests[SIM_ROWS][SIM_FAULT_COUNT];
    uint64_t changes[SIM_CHANGE_COUNT][SIM_FATE_COUNT];
} sim_coverage;

/* Where it is counted. */
extern sim_coverage *sim_coverage_here;

void sim_coverage_add(sim_coverage *sum, const sim_coverage *more);
void sim_coverage_print(const sim_coverage *coverage);
void sim_coverage_json(const sim_coverage *coverage);

#endif
