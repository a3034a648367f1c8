/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes in a configuration, collected so that all of them are reported at once, in the order of the file. */
#ifndef HX_CONFIG_PROBLEMS_H
#define HX_CONFIG_PROBLEMS_H

#include "base/memory/buf.h"

#define HX_PROBLEMS_MAX 100u /* problems that are reported; further ones are counted */

typedef struct {
    uint32_t line;   /* from 1; 0: the file as a whole; UINT32_MAX: a flag */
    uint32_t column; /* from 1 */
    uint32_t order;
    hx_slice text;
} hx_config_problem;

typedef struct {
    hx_arena *arena;
    const char *file;
    size_t count;
    hx_config_problem kept[HX_PROBLEMS_MAX];
} hx_problems;

/* "FILE:LINE:COLUMN: text"; "FILE: text" for line 0. */
void hx_config_problem_at(hx_problems *problems, uint32_t line, uint32_t column, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A mistake in a flag, without a place in the file. */
void hx_config_problem_of_flag(hx_problems *problems, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes one line for each, sorted by place, as far as they fit. */
void hx_problems_write(hx_problems *problems, hx_buf *out);

/* Returns the text in double quotes, shortened, without bytes that could move a terminal's cursor. Terminated. */
const char *hx_quoted(hx_arena *arena, hx_slice text);

/* Finds the name that was probably meant, within a typing error or two, ignoring case and dashes. NULL: none is near.
 * `name(i, user)` returns NULL for an entry to skip. */
const char *hx_nearest(hx_slice word, size_t count, const char *(*name)(size_t i, const void *user), const void *user);

#endif
