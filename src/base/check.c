/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE_BYTES 1024u

static hx_fatal_handler *host;
static _Thread_local hx_slice in_hand;

void hx_fatal_to(hx_fatal_handler *handler)
{
    host = handler;
}

void hx_check_in_hand(hx_slice description)
{
    in_hand = description;
}

static _Noreturn void fail(int exit_code, const char *message)
{
    if (host) host(exit_code, message);
    (void)!write(STDERR_FILENO, message, strlen(message));
    (void)!write(STDERR_FILENO, "\n", 1);
    __builtin_trap();
}

_Noreturn void hx_check_failed(const char *file, int line, const char *condition)
{
    char text[MESSAGE_BYTES];
    (void)snprintf(text, sizeof text, "bug: %s:%d: (%s) does not hold%s%.*s", file, line, condition,
                   in_hand.len > 0 ? " while handling " : "", (int)(in_hand.len < 512 ? in_hand.len : 512),
                   in_hand.len > 0 ? in_hand.ptr : "");
    fail(HX_EXIT_BUG, text);
}

_Noreturn void hx_fatal(int exit_code, const char *format, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fail(exit_code, text);
}
