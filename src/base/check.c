/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"

#include "base/log.h"

#include <execinfo.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static _Thread_local hx_slice in_hand;

void hx_check_in_hand(hx_slice description)
{
    in_hand = description;
}

/* A reader of standard error that has stalled must not keep a process alive that is about to end. */
#define SAYING_SECONDS 2u
static volatile sig_atomic_t code_when_late;

static void too_late(int number)
{
    (void)number;
    _exit((int)code_when_late);
}

/* The log's last lines first; from here on the process ends, whether what it says is read or not. */
static void begin_end(int exit_code)
{
    code_when_late = exit_code;
    (void)signal(SIGALRM, too_late);
    (void)alarm(SAYING_SECONDS);
    (void)hx_log_flush(500);
}

/* stdio buffers and locks may be what broke: everything goes straight to the descriptor. */
static void say(const char *text, int len)
{
    if (len > 0) (void)!write(STDERR_FILENO, text, (size_t)len);
}

_Noreturn void hx_check_failed(const char *file, int line, const char *condition)
{
    char text[1024];
    begin_end(HX_EXIT_BUG);
    int len = snprintf(text, sizeof text, "hapax: bug: %s:%d: (%s) does not hold%s%.*s\n", file, line, condition,
                       in_hand.len > 0 ? " while handling " : "", (int)(in_hand.len < 512 ? in_hand.len : 512),
                       in_hand.len > 0 ? in_hand.ptr : "");
    say(text, len < (int)sizeof text ? len : (int)sizeof text - 1);
    void *frames[32];
    backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
    _exit(HX_EXIT_BUG);
}

_Noreturn void hx_fatal(int exit_code, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text - 1, format, args);
    va_end(args);
    if (len >= (int)sizeof text - 1) len = (int)sizeof text - 2;
    text[len++] = '\n';
    begin_end(exit_code);
    say("hapax: ", 7);
    say(text, len);
    _exit(exit_code);
}
