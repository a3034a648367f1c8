/* SPDX-License-Identifier: Apache-2.0 */
/* Events, deliveries and endpoints as people read them. */
#ifndef HX_CMD_EVENTS_VIEW_H
#define HX_CMD_EVENTS_VIEW_H

#include "base/memory/arena.h"

/* "3m ago" or "in 2h" of a member that is an RFC 3339 time; "" where it is missing. */
const char *hx_relative_time(hx_slice record, const char *name, hx_arena *arena);
/* The escape sequence in which a state is written, for tables. */
const char *hx_print_colour(const char *state);
/* A member for a cell of a table: "-" where it is missing. */
const char *hx_cell(hx_slice record, const char *name, hx_arena *arena);

void hx_print_events(const hx_slice *events, size_t count, hx_arena *arena);
/* One row each, with what its last attempt met. */
void hx_print_deliveries(const hx_slice *deliveries, size_t count, hx_arena *arena);
/* One delivery with every attempt. `recipient` is named where the delivery doesn't exist yet. */
void hx_print_delivery(hx_slice delivery, const char *recipient, hx_arena *arena);
/* JSON from the network on one line, without its end. */
void hx_print_json_line(hx_slice json, hx_arena *arena);

#endif
