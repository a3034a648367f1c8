/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/run/runner.h"

#include "base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RENEW_EVERY (HX_RUN_LEASE / 3)
#define RENEW_AGAIN HX_SECOND /* after a renewal that failed, or while one hangs */

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
static int signal_pipe[2] = {-1, -1};

static void stop(hx_runner *r)
{
    r->is_over = true;
    hx_loop_stop(r->loop);
}

static void run_loop(hx_runner *r)
{
    while (!r->is_over) hx_loop_run(r->loop);
}

/* The claim */

static void lose(hx_runner *r)
{
    r->is_lost = true;
    if (r->is_supervised)
        hx_supervisor_signal(&r->supervisor, SIGKILL);
    else if (!r->is_running)
        stop(r);
}

static void renew(hx_timer *timer);

static void renewed(hx_run_claim *claim, hx_store_result result)
{
    hx_runner *r = claim->context;
    r->renews = false;
    if (result == HX_STORE_STALE)
        lose(r);
    else if (!r->is_ending && !r->is_lost)
        hx_timer_start(r->loop, &r->renewal_timer, result == HX_STORE_OK ? RENEW_EVERY : RENEW_AGAIN, renew);
    if (r->is_ending) stop(r);
}

static void renew(hx_timer *timer)
{
    hx_runner *r = HX_OWNER(timer, hx_runner, renewal_timer);
    if (r->claim->now() >= r->claim->record.lease_until) {
        lose(r);
        return;
    }
    hx_timer_start(r->loop, timer, RENEW_AGAIN, renew);
    if (r->renews) return;
    r->renews = true;
    r->claim->ops->renew(r->claim);
}

/* Signals */

static void note_signal(int number)
{
    int kept = errno;
    unsigned char byte = (unsigned char)number;
    (void)!write(signal_pipe[1], &byte, 1);
    errno = kept;
}

static void signalled(void *context, unsigned events)
{
    hx_runner *r = context;
    unsigned char number;
    (void)events;
    while (read(signal_pipe[0], &number, 1) == 1) {
        if (r->is_supervised) hx_supervisor_signal(&r->supervisor, number);
        if (!r->is_running) {
            r->is_interrupted = true;
            stop(r);
        }
    }
}

/* What is ignored stays so, for the command too (nohup). */
static void take_signals(void)
{
    for (size_t i = 0; i < sizeof forwarded / sizeof forwarded[0]; i++) {
        struct sigaction old, action = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
        (void)sigaction(forwarded[i], NULL, &old);
        if (old.sa_handler == SIG_DFL) (void)sigaction(forwarded[i], &action, NULL);
    }
}

void hx_runner_begin(hx_runner *r)
{
    if (pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) != 0) hx_fatal(HX_EXIT_BUG, "pipe: %s", strerror(errno));
    r->claim->renewed = renewed;
    r->claim->context = r;
    r->signals = hx_poll_new(r->loop, signal_pipe[0], signalled, r);
    hx_poll_for(r->signals, HX_POLL_READ);
    take_signals();
    hx_timer_start(r->loop, &r->renewal_timer, RENEW_EVERY, renew);
}

/* The command */

static void check_end(hx_runner *r)
{
    if (!r->is_supervised && !r->is_output_open) stop(r);
}

static void output_ended(hx_task *task)
{
    hx_runner *r = HX_OWNER(task, hx_output, ended)->context;
    r->is_output_open = false;
    check_end(r);
}

static void supervisor_ended(void *context, unsigned events)
{
    hx_runner *r = context;
    hx_supervised end;
    (void)events;
    hx_poll_free(&r->socket);
    r->is_supervised = false;
    r->report->is_orphan = !hx_supervisor_end(&r->supervisor, &end);
    hx_output_finish(r->output);
    if (!r->report->is_orphan) {
        memcpy(r->left, end.left, sizeof r->left);
        r->report->has_left = end.left[0] != '\0';
        r->report->start_error = end.start_error;
        if (WIFSIGNALED(end.status)) r->report->signal = WTERMSIG(end.status);
        if (WIFEXITED(end.status)) r->report->code = (unsigned)WEXITSTATUS(end.status);
    }
    check_end(r);
}

void hx_runner_run(hx_runner *r, hx_exit_report *report)
{
    *report = (hx_exit_report){.is_lost = r->is_lost};
    if (r->is_lost) return;
    report->start_error = hx_supervisor_start(&r->supervisor, r->argv);
    if (report->start_error != 0) return;
    r->report = report;
    r->is_over = false;
    r->is_running = r->is_supervised = r->is_output_open = true;
    r->output->context = r;
    int why = hx_output_start(r->output, r->loop, r->supervisor.output, output_ended);
    if (why != 0) hx_fatal(HX_EXIT_BUG, "can't start a thread: %s", strerror(why)); /* the supervisor ends the rest */
    r->socket = hx_poll_new(r->loop, r->supervisor.socket, supervisor_ended, r);
    hx_poll_for(r->socket, HX_POLL_READ);
    run_loop(r);
    hx_output_join(r->output);
    r->is_running = false;
    report->is_lost = r->is_lost;
}

static void pause_over(hx_timer *timer)
{
    stop(HX_OWNER(timer, hx_runner, pause_timer));
}

bool hx_runner_pause(hx_runner *r, hx_ms delay)
{
    r->is_over = r->is_lost || r->is_interrupted;
    hx_timer_start(r->loop, &r->pause_timer, delay, pause_over);
    run_loop(r);
    hx_timer_stop(r->loop, &r->pause_timer);
    return !r->is_lost && !r->is_interrupted;
}

void hx_runner_end(hx_runner *r)
{
    hx_timer_stop(r->loop, &r->renewal_timer);
    r->is_ending = true;
    r->is_over = false;
    if (r->renews) run_loop(r);
    hx_poll_free(&r->signals);
}
