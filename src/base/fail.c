/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"

#include <stdarg.h>
#include <stdio.h>

bool hx_fail(hx_error_text error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(error, sizeof(hx_error_text), format, args);
    va_end(args);
    return false;
}
