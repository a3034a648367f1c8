/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries that are loaded when they are first needed, because they bring dozens of others with them, which every
 * start would pay for. Their headers are used unchanged; their functions are called through a table that these fill. */
#ifndef HX_BASE_PROGRAM_DYNLIB_H
#define HX_BASE_PROGRAM_DYNLIB_H

#include "base/fail.h"
#include "base/slice.h"

typedef struct {
    const char *file;    /* "libpq.so.5" */
    const char *package; /* the Debian package that has it */
    void *handle;
} hx_dynlib;

/* Loads the library, which is never unloaded. Both functions return false with a sentence in `error`. */
bool hx_dynlib_load(hx_dynlib *library, hx_error_text error) HX_MUST_USE;
/* Stores the address of a symbol in the pointer at `call`. */
bool hx_dynlib_find(const hx_dynlib *library, const char *symbol, void *call, hx_error_text error) HX_MUST_USE;

#endif
