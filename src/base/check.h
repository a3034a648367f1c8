/* SPDX-License-Identifier: Apache-2.0 */
/* Assertions that stay on in release builds. They are for our own bugs: what comes from outside is a value with a row
 * in errors.def, never an assertion. A failed one prints the expression, the request in hand and a backtrace, and ends
 * the process with exit code 70. */
#ifndef HX_BASE_CHECK_H
#define HX_BASE_CHECK_H

#include "base/slice.h"

#define HX_CHECK(condition)                                                                                            \
    do {                                                                                                               \
        if (__builtin_expect(!(condition), 0)) hx_check_failed(__FILE__, __LINE__, #condition);                        \
    } while (0)

/* What this thread works on, for the message. The bytes must live until the next call; HX_EMPTY clears it. */
void hx_check_in_hand(hx_slice description);
_Noreturn void hx_check_failed(const char *file, int line, const char *condition);

/* A failure of the machine that must not be survived, such as a failed fsync: says why and ends with `exit_code`. */
_Noreturn void hx_fatal(int exit_code, const char *format, ...) __attribute__((format(printf, 2, 3)));

enum {
    HX_EXIT_OK = 0,
    HX_EXIT_USAGE = 2,
    HX_EXIT_STORE = 3,
    HX_EXIT_ADDRESS = 4,
    HX_EXIT_BUG = 70,
    HX_EXIT_UNKNOWN = 75,
};

#endif
