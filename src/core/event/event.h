/* SPDX-License-Identifier: Apache-2.0 */
/* An event: what happened, as its producer or a sender of webhooks told it. It never changes once it is accepted; its
 * deliveries do (core/event/delivery.h). Its data is the body of its item, byte for byte. */
#ifndef HX_CORE_EVENT_EVENT_H
#define HX_CORE_EVENT_EVENT_H

#include "core/json/json_fields.h"

#define HX_EVENT_ID_MAX 128u
#define HX_EVENT_NAME_MAX 128u /* of a type, a source and a correlation id */
#define HX_TENANT_MAX 64u
#define HX_EVENT_RECIPIENTS_MAX 1000u
#define HX_EVENT_OWN "hapax_" /* how the ids of events about ourselves begin, and no others */

typedef struct {
    hx_slice id;
    hx_slice tenant; /* empty: none */
    hx_slice type;
    hx_slice source; /* who published it; of the inbox: the source's name */
    hx_slice correlation_id;
    hx_slice stream;           /* core/event/sequence.h; empty: none */
    uint64_t position;         /* in the stream; given by the commit that accepts it */
    hx_slice expected_version; /* in what a producer gives: the number that the stream's version must have; or empty */
    hx_ms accepted_at;
    hx_ms deliver_at;
    hx_slice content_type;
    hx_texts headers;    /* inbox: "Name: value", which go to the application with it */
    hx_texts recipients; /* ids of the endpoints, fixed when it was accepted */
    hx_slice payload_hash;
    bool is_received; /* it came by the inbox */
    hx_slice data;    /* in what a producer gives; in a store it is the item's body */
} hx_event;

extern const hx_json_shape hx_event_shape;

/* Reads what a producer publishes; `event` is zeroed first. False with a sentence in `error`. */
bool hx_event_read(hx_slice object, hx_arena *arena, hx_event *event, hx_error_text error) HX_MUST_USE;
void hx_event_encode(const hx_event *event, hx_buf *meta);
bool hx_event_decode(hx_slice meta, hx_arena *arena, hx_event *event) HX_MUST_USE;
/* {"eventId", "eventType", "timestamp", "data"}: what an endpoint gets. */
void hx_event_envelope(const hx_event *event, hx_slice data, hx_buf *out);

/* 1 to 64 letters, digits, "-" and "_". */
bool hx_is_tenant(hx_slice name);
/* 1 to 128 visible ASCII characters. */
bool hx_is_event_name(hx_slice name);

/* Keys of items; in the arena.
 *
 *     e/TENANT/ID              an event that was published      d/TENANT/ENDPOINT/EVENT   a delivery
 *     i/SOURCE/ID              an event that was received       f/EVENT                   an event to be fanned out
 *     n/TENANT/ENDPOINT        an endpoint                      t/MAC                     a token
 *     o/TENANT/ENDPOINT/=STREAM  the delivery of an ordered endpoint's stream that is under way
 *     k/MAC                    the key of a request to the API  g/endpoints               changes with every endpoint
 *     s/, p/, c/               core/event/sequence.h            w/OPERATION               admin/work/work.h
 *     j/TENANT/ID              a job                            a/TENANT/JOB/NUMBER       what a job has armed
 *     x/VERSION                a program's own event
 */
hx_slice hx_event_key(const hx_event *event, hx_arena *arena);
/* The queue of its item, in the order of which events are listed: "events/TENANT/", or
 * "received/TENANT/SOURCE/". */
hx_slice hx_event_queue(const hx_event *event, hx_arena *arena);
hx_slice hx_delivery_key(hx_slice tenant, hx_slice endpoint, hx_slice event_key, hx_arena *arena);

#endif
