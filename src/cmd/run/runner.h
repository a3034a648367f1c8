/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the command of a claim, once or more: renews the lease all the while, forwards signals, and ends the command
 * when the claim is lost. The calling thread runs the loop; each function returns when its work is done. */
#ifndef HX_CMD_RUN_RUNNER_H
#define HX_CMD_RUN_RUNNER_H

#include "cmd/run/claim.h"
#include "cmd/run/output.h"
#include "cmd/run/supervise.h"
#include "core/retry/exit_status.h"

typedef struct {
    /* given by the caller */
    hx_loop *loop;
    hx_run_claim *claim;
    char **argv;
    hx_output *output;
    /* its own */
    bool renews; /* a renewal is under way */
    bool is_lost;
    bool is_interrupted; /* a signal came while no command ran */
    bool is_ending;      /* hx_runner_end waits for the renewal */
    bool is_over;        /* the loop may stop */
    hx_timer renewal_timer, pause_timer;
    hx_poll *signals, *socket;
    hx_supervisor supervisor;
    bool is_running, is_supervised, is_output_open;
    hx_exit_report *report;
    char left[256]; /* the names of descendants that had left the session */
} hx_runner;

void hx_runner_begin(hx_runner *r);
/* One attempt. */
void hx_runner_run(hx_runner *r, hx_exit_report *report);
/* Waits before the next attempt. False: the claim is lost, or a signal has come. */
bool hx_runner_pause(hx_runner *r, hx_ms delay) HX_MUST_USE;
/* No renewal is under way afterwards. */
void hx_runner_end(hx_runner *r);

#endif
