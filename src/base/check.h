/* SPDX-License-Identifier: Apache-2.0 */
/* Assertions, which stay on in release builds, and failures that must not be survived. Both are handed to the host, the
 * program that this code is part of: nothing here ends a process. HX_CHECK is for our own bugs; a failure that comes
 * from outside is a value with a row in errors.def, never an assertion. */
#ifndef HX_BASE_CHECK_H
#define HX_BASE_CHECK_H

#include "base/slice.h"

#define HX_CHECK(condition)                                                                                            \
    do {                                                                                                               \
        if (__builtin_expect(!(condition), 0)) hx_check_failed(__FILE__, __LINE__, #condition);                        \
    } while (0)

/* Describes what this thread is working on, for the message of a failed assertion. The bytes must live until the next
 * call; HX_EMPTY clears it. */
void hx_check_in_hand(hx_slice description);
_Noreturn void hx_check_failed(const char *file, int line, const char *condition);

/* Reports a failure of the machine that must not be survived, such as a failed fsync or no memory. */
_Noreturn void hx_fatal(int exit_code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The host's handler of both. Runs on the thread that failed and must not return: hx_process_init() in
 * base/program/process.h installs one that ends the process with `exit_code`. Without one, or when it returns, the
 * message goes to standard error and the thread traps. Install it before other threads exist. */
typedef void hx_fatal_handler(int exit_code, const char *message);
void hx_fatal_to(hx_fatal_handler *handler);

enum {
    HX_EXIT_OK = 0,
    HX_EXIT_NO = 1, /* of a command that answers a question: no */
    HX_EXIT_USAGE = 2,
    HX_EXIT_STORE = 3,
    HX_EXIT_ADDRESS = 4,
    HX_EXIT_BUG = 70,
    HX_EXIT_UNKNOWN = 75,
};

#endif
