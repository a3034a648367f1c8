/* SPDX-License-Identifier: Apache-2.0 */
/* Reading streams: pages (streams.c), and responses without an end (followers.c). */
#ifndef HX_ADMIN_EVENTS_STREAMS_H
#define HX_ADMIN_EVENTS_STREAMS_H

#include "admin/call.h"
#include "events/streams/reading.h"

/* Where a call reads. */
typedef struct {
    hx_slice tenant, stream;
    uint64_t after;
    hx_slice consumer;   /* empty: none */
    uint64_t generation; /* of the consumer */
} hx_admin_place;

/* Answers with the stream as server-sent events, until the client, the token or the daemon is gone. */
void hx_admin_follow(hx_admin_call *call, const hx_admin_place *place);
/* Answers a call whose reading has failed. */
void hx_admin_refuse_reading(hx_admin_call *call, const hx_reading *reading);
/* A position in a text; false: it is none. */
bool hx_admin_position(hx_slice text, uint64_t *out) HX_MUST_USE;

#endif
