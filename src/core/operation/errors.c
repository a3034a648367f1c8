/* SPDX-License-Identifier: Apache-2.0 */
#include "core/operation/errors.h"

#include "base/check.h"

static const hx_error_row rows[] = {
#define X(id, code, status, retryable, title, hint, remedy) {code, status, retryable, title, hint, remedy},
#include "core/operation/errors.def"
#undef X
};

const hx_error_row *hx_error_about(hx_error error)
{
    HX_CHECK(error < HX_ERROR_COUNT);
    return &rows[error];
}
