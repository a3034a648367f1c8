/* SPDX-License-Identifier: Apache-2.0 */
/* How a run begins and ends, also early, and what it says of itself. */
#include "base/check.h"
#include "base/program/log_writer.h"
#include "base/rand.h"
#include "run.h"
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool sim_is_running;

_Noreturn void sim_fail(const char *promise, const char *format, ...)
{
    va_list args;
    int len = snprintf(world.failure, sizeof world.failure, "%s: ", promise);
    va_start(args, format);
    (void)vsnprintf(world.failure + len, sizeof world.failure - (size_t)len, format, args);
    va_end(args);
    if (!sim_is_running) {
        fprintf(stderr, "simulator: %s\n", world.failure);
        exit(HX_EXIT_BUG);
    }
    longjmp(world.escape, 1);
}

/* In place of base/check.c: a failed assertion of the daemon's is a finding. */
void hx_check_in_hand(hx_slice description)
{
    (void)description;
}

_Noreturn void hx_check_failed(const char *file, int line, const char *condition)
{
    sim_fail("no assertion fails", "%s:%d: (%s) does not hold", file, line, condition);
}

_Noreturn void hx_fatal(int exit_code, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sim_fail("no node ends itself", "exit code %d: %s", exit_code, text);
}

void sim_trace(const char *format, ...)
{
    va_list args;
    printf("%10.3f  %4u  ", (double)world.boot / 1000, world.events);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

void sim_mix(uint64_t number)
{
    world.hash = (world.hash ^ number) * UINT64_C(0x9e3779b97f4a7c15);
    world.hash ^= world.hash >> 29;
}

uint64_t sim_hash(hx_slice bytes)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < bytes.len; i++) hash = (hash ^ (unsigned char)bytes.ptr[i]) * UINT64_C(0x100000001b3);
    return hash;
}

void sim_run(const sim_setup *setup, sim_result *result)
{
    memset(&world, 0, sizeof world);
    world.tracing = setup->trace;
    world.seed = setup->seed;
    sim_loop_reset();
    hx_rand_seed(setup->seed);
    hx_log_to_stderr();
    hx_log_threshold(setup->trace ? HX_LOG_ERROR : (hx_log_level)(HX_LOG_ERROR + 1));
    if (setup->choices)
        sim_choices_replay(setup->choices);
    else
        sim_choices_draw(setup->seed);
    sim_is_running = true;
    *result = (sim_result){.failed = false};
    if (setjmp(world.escape) == 0) {
        sim_live();
    } else {
        result->failed = true;
        memcpy(result->failure, world.failure, sizeof result->failure);
        SIM_TRACE("FAILED: %s", world.failure);
    }
    sim_is_running = false;
    result->events = world.events;
    result->simulated = world.boot;
    result->hash = world.hash;
}
