/* SPDX-License-Identifier: Apache-2.0 */
#include "base/program/process.h"

#include "base/check.h"
#include "base/program/log_writer.h"

#include <execinfo.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE_SECONDS_MAX 2u

static volatile sig_atomic_t code_when_late;

static void too_late(int number)
{
    (void)number;
    _exit((int)code_when_late);
}

/* stdio buffers and locks may be what broke: everything goes straight to the descriptor. */
static void say(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

static void end_process(int exit_code, const char *message)
{
    /* A stalled reader of standard error must not keep alive a process that is about to end. */
    code_when_late = exit_code;
    (void)signal(SIGALRM, too_late);
    (void)alarm(MESSAGE_SECONDS_MAX);
    (void)hx_log_flush(500);
    say("hapax: ");
    say(message);
    say("\n");
    if (exit_code == HX_EXIT_BUG) {
        void *frames[32];
        backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
    }
    _exit(exit_code);
}

void hx_process_init(void)
{
    hx_fatal_to(end_process);
    hx_log_to_stderr();
}
