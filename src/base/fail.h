/* SPDX-License-Identifier: Apache-2.0 */
/* Why something failed, as one sentence for people: what happened, why, and what to do. The function that fails writes
 * it, its caller owns the memory and shows it. */
#ifndef HX_BASE_FAIL_H
#define HX_BASE_FAIL_H

#include <stdbool.h>

/* An array: a local is declared as `hx_error_text error`, and a parameter of this type points to its caller's. */
typedef char hx_error_text[512];

/* Writes the sentence, cut to fit, and returns false: `return hx_fail(error, "can't open %s", path)`. */
bool hx_fail(hx_error_text error, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
