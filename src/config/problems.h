/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes in a configuration, gathered so that all of them are told at once, in the order of the file. */
#ifndef HX_CONFIG_PROBLEMS_H
#define HX_CONFIG_PROBLEMS_H

#include "base/memory/buf.h"

#define HX_PROBLEMS_MAX 100u /* told; further ones are counted */

typedef struct {
    uint32_t line;   /* from 1; 0 for the file as a whole; UINT32_MAX for what was not in the file */
    uint32_t column; /* from 1 */
    uint32_t order;
    hx_slice text;
} hx_config_problem;

typedef struct {
    hx_arena *arena;
    const char *file;
    size_t count;
    hx_config_problem told[HX_PROBLEMS_MAX];
} hx_problems;

/* "FILE:LINE:COLUMN: text"; "FILE: text" for line 0. */
void hx_config_problem_at(hx_problems *problems, uint32_t line, uint32_t column, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A flag's, without a place in the file. */
void hx_config_problem_elsewhere(hx_problems *problems, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* One line each, sorted by place, as far as `out` has room. */
void hx_problems_write(hx_problems *problems, hx_buf *out);

/* In double quotes, shortened, and without a byte that could move a terminal's cursor. Terminated. */
const char *hx_quoted(hx_arena *arena, hx_slice text);

/* The name that was probably meant: close by a typing error or two, case and dashes aside. NULL when none is near.
 * `name(i, user)` returns NULL for an entry to skip. */
const char *hx_nearest(hx_slice word, size_t count, const char *(*name)(size_t i, const void *user), const void *user);

#endif
