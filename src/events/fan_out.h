/* SPDX-License-Identifier: Apache-2.0 */
/* From an event and its recipients to deliveries. */
#ifndef HX_EVENTS_FAN_OUT_H
#define HX_EVENTS_FAN_OUT_H

#include "events/recipient.h"

#define HX_FAN_OUT_PART 200u /* deliveries in one commit */

typedef struct {
    hx_slice event; /* key of its item */
    hx_slice tenant;
    hx_slice stream;     /* of the event; empty: none */
    bool is_beside;      /* it takes no place among the events of an ordered endpoint */
    hx_texts recipients; /* that have no delivery yet */
} hx_fan_out;

hx_slice hx_fan_out_key(hx_slice event_key, hx_arena *arena);
/* The item that remembers what is left to do; without recipients: its removal. */
hx_item hx_fan_out_item(const hx_fan_out *left, hx_ms due, uint64_t version, hx_arena *arena);
/* Writes the items of deliveries to the first `count` recipients, without those that were deleted; returns how many. */
size_t hx_fan_out_add(hx_engine *engine, const hx_fan_out *from, size_t count, hx_ms now, hx_item *items,
                      hx_arena *arena);
/* The deliveries to these are durable. */
void hx_fan_out_nudge_recipients(const hx_engine *engine, const hx_fan_out *from, size_t count, hx_ms now);

#endif
