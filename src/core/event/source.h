/* SPDX-License-Identifier: Apache-2.0 */
/* A source of the inbox: a sender of webhooks, how its requests are verified and recognised, and where they go. */
#ifndef HX_CORE_EVENT_SOURCE_H
#define HX_CORE_EVENT_SOURCE_H

#include "core/event/event.h"
#include "core/webhook/webhook.h"

struct hx_template;

#define HX_SOURCES_MAX 64u
#define HX_SOURCE_NAME_MAX 64u

typedef struct {
    hx_slice name;
    hx_slice tenant;
    hx_slice deliver; /* URL of the application's handler */
    hx_ms timeout;    /* of a call of the handler */
    uint64_t concurrency;
    uint32_t body_bytes_max;
    hx_webhook_scheme scheme; /* "none": requests are not signed */
    hx_webhook_secret_place places[HX_WEBHOOK_SECRETS_MAX];
    size_t place_count; /* 0: requests are not signed */
    hx_webhook_secret secrets[HX_WEBHOOK_SECRETS_MAX];
    size_t secret_count; /* 0: requests are not signed, and anyone may send them */
    hx_ms tolerance;
    const struct hx_template *dedupe_key; /* makes the event's id; NULL: it is where the scheme has it */
    hx_slice id_header;                   /* has the event's id, instead of the scheme's place; empty: none */
    hx_slice id_pointer;
    bool waits;         /* ack: processed, the sender gets the handler's own response */
    bool is_once;       /* guarantee: none, a call that may have happened is unknown and not repeated */
    bool is_strict;     /* another payload under an id that is known is answered with 409 */
    hx_ms window;       /* duplicates are recognised for so long after the event was processed */
    hx_ms replay_guard; /* where the id isn't signed: another id with the same payload is held for so long; 0: never */
} hx_source;

/* Whether nobody but the sender can have chosen the id of an event. Where it isn't so, a captured request can be sent
 * again under another id. */
bool hx_id_is_signed(const hx_source *source);

#endif
