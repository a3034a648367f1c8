/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the daemon's responses for `hapax keys`. They may contain bytes from clients, so all text goes through
 * hx_keys_clean before it reaches a terminal. */
#ifndef HX_CMD_KEYS_H
#define HX_CMD_KEYS_H

#include "base/memory/buf.h"

/* The raw records of an answer, from the array that `pointer` names; *count of them. */
const hx_slice *hx_keys_records(hx_slice answer, const char *pointer, hx_arena *arena, size_t *count);

/* A member of a record: the text of a string, or a number as written; "" when it is missing or null. Terminated and
 * clean. */
const char *hx_keys_member(hx_slice record, const char *name, hx_arena *arena);
/* The texts of an array, with commas between them; "" where there are none. Terminated and clean. */
const char *hx_keys_texts(hx_slice record, const char *pointer, hx_arena *arena);
/* Bytes that are not UTF-8, and characters that a terminal would obey or that turn text around, become '?'. */
const char *hx_keys_clean(hx_slice text, hx_arena *arena);

/* A table on standard output, one row for each, the newest change first. */
void hx_keys_print_list(const hx_slice *records, size_t count, hx_arena *arena);
/* One operation: its current state, and a table of its history. */
void hx_keys_print_history(const hx_slice *records, size_t count, hx_arena *arena);

/* The newest `max` records of all that were added. Items are on the heap; hx_newest_sort puts the newest first. */
typedef struct {
    char *changed; /* owns both */
    hx_slice record;
} hx_newest_item;

typedef struct {
    hx_newest_item *items;
    size_t count, cap, max;
    uint64_t total; /* that were added */
} hx_newest;

void hx_newest_add(hx_newest *list, const char *changed, hx_slice record);
void hx_newest_sort(hx_newest *list);
void hx_newest_free(hx_newest *list);

#endif
