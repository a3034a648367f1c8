/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries that are loaded when they are first needed: what draws in dozens of others would be paid for by every
 * start. Their headers are used as they are; only the calls go through a table, which these fill. */
#ifndef HX_BASE_PROGRAM_DYNLIB_H
#define HX_BASE_PROGRAM_DYNLIB_H

#include "base/fail.h"
#include "base/slice.h"

typedef struct {
    const char *file;    /* "libpq.so.5" */
    const char *package; /* of Debian, that has it */
    void *handle;
} hx_dynlib;

/* Never unloaded. Both are false with a sentence for people in `error`. */
bool hx_dynlib_load(hx_dynlib *library, hx_error_text error) HX_MUST_USE;
/* Puts the address of a symbol into the pointer at `call`. */
bool hx_dynlib_find(const hx_dynlib *library, const char *symbol, void *call, hx_error_text error) HX_MUST_USE;

#endif
