/* SPDX-License-Identifier: Apache-2.0 */
/* What sends the attempts of deliveries. Implemented over net/, and by tests. */
#ifndef HX_EVENTS_SENDER_H
#define HX_EVENTS_SENDER_H

#include "core/event/delivery.h"

typedef struct hx_sending {
    /* given by the caller; lives until `done` */
    hx_arena *arena; /* gets what `result` points to */
    hx_slice url;
    hx_slice header_lines; /* each "Name: value\r\n" */
    hx_slice body;
    hx_ms timeout;
    size_t response_max; /* bytes of the response that are wanted */
    void (*done)(struct hx_sending *sending);
    /* given back */
    hx_attempt_result result;
} hx_sending;

typedef struct {
    /* Sends a POST; `done` is called once, never inside the call. */
    void (*send)(void *context, hx_sending *sending);
    void *context;
} hx_sender;

#endif
