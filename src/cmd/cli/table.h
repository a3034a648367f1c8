/* SPDX-License-Identifier: Apache-2.0 */
/* Tables on standard output, for people. */
#ifndef HX_CMD_CLI_TABLE_H
#define HX_CMD_CLI_TABLE_H

#include <stddef.h>

#define HX_TABLE_COLUMNS_MAX 8u

typedef struct {
    const char *cells[HX_TABLE_COLUMNS_MAX]; /* UTF-8 that a terminal can show */
    const char *colour;                      /* of the second cell: an escape sequence, "" or NULL for none */
    const char *next_colour;                 /* the same for the third */
} hx_table_row;

/* The first row is the titles. Columns are as wide as their widest cell. */
void hx_table_print(const hx_table_row *rows, size_t count, size_t columns);
/* A line with a name and a value; none where the value is empty. */
void hx_table_fact(const char *name, const char *value);

#endif
