/* SPDX-License-Identifier: Apache-2.0 */
/* The taxonomy of our own errors: rows of errors.def. */
#ifndef HX_CORE_OPERATION_ERRORS_H
#define HX_CORE_OPERATION_ERRORS_H

#include <stdbool.h>

typedef enum {
#define X(id, code, status, retryable, title, hint, remedy) HX_ERROR_##id,
#include "core/operation/errors.def"
#undef X
    HX_ERROR_COUNT
} hx_error;

typedef struct {
    const char *code;
    unsigned status;
    bool retryable;
    const char *title;
    const char *hint;
    const char *remedy; /* for operators; empty: none */
} hx_error_row;

const hx_error_row *hx_error_about(hx_error error);

#endif
