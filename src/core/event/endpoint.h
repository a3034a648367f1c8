/* SPDX-License-Identifier: Apache-2.0 */
/* An endpoint: a URL that gets the events of its tenant which it subscribes to, and how it gets them. */
#ifndef HX_CORE_EVENT_ENDPOINT_H
#define HX_CORE_EVENT_ENDPOINT_H

#include "core/event/event.h"

#define HX_ENDPOINT_URL_MAX 2048u
#define HX_ENDPOINT_TYPES_MAX 64u
#define HX_ENDPOINT_FILTERS_MAX 16u
#define HX_ENDPOINT_HEADERS_MAX 32u
#define HX_ENDPOINT_SECRETS_MAX 4u
#define HX_ENDPOINT_SECRET_BYTES_MIN 16u /* of a key for HMAC */
#define HX_ENDPOINT_META_MAX (48u << 10)
#define HX_ENDPOINT_TIMEOUT (20 * HX_SECOND)
#define HX_ENDPOINT_CONCURRENCY 16u

typedef struct {
    hx_slice id;
    hx_slice tenant;
    hx_slice url;
    hx_slice description;
    hx_texts types;   /* patterns: a type, or its beginning and "*"; none: all types */
    hx_slice filters; /* {"/pointer": value, …}: all of these values must be in the data; empty: any data */
    hx_texts headers; /* "Name: value", sent with each delivery */
    hx_texts secrets; /* "whsec_…" or "whsk_…": each signs */
    hx_texts retiring;
    hx_ms retire_at; /* until then the secrets of `retiring` sign, too */
    uint64_t rate;   /* attempts a second; 0: as many as come */
    uint64_t concurrency;
    hx_ms timeout;
    bool ordered;             /* the events of a stream come one at a time; fixed when it is created */
    hx_slice on_client_error; /* "retry", or "dead" */
    bool configured;          /* by the operator's configuration, where its secrets and headers stay */
    bool disabled;
    hx_slice disabled_reason;
    hx_ms disabled_at;
    hx_ms failing_since; /* start of the first attempt of a row of failures; 0: the last one succeeded */
    hx_ms created_at;
    hx_ms deleted_at; /* it exists only until its deliveries are cancelled */
} hx_endpoint;

extern const hx_json_shape hx_endpoint_shape;
/* An endpoint with the defaults. */
extern const hx_endpoint hx_endpoint_new;

/* Reads what a client gives over `endpoint`, and checks all of it. False with a sentence in `error`. */
bool hx_endpoint_read(hx_slice object, hx_arena *arena, hx_endpoint *endpoint, hx_error_text error) HX_MUST_USE;
/* NULL, or a sentence that says why a text can't be one of an endpoint's secrets. */
const char *hx_endpoint_secret_error(hx_slice text, hx_arena *arena);
void hx_endpoint_encode(const hx_endpoint *endpoint, hx_buf *meta);
bool hx_endpoint_decode(hx_slice meta, hx_arena *arena, hx_endpoint *endpoint) HX_MUST_USE;

/* Whether it subscribes to an event of its tenant. */
bool hx_endpoint_wants(const hx_endpoint *endpoint, hx_slice type, hx_slice data);
/* Whether it asks for an event about ourselves: by name, or by a pattern other than "*". */
bool hx_endpoint_names(const hx_endpoint *endpoint, hx_slice type, hx_slice data);
/* Whether a type matches a pattern. */
bool hx_event_type_matches(hx_slice pattern, hx_slice type);
hx_slice hx_endpoint_key(hx_slice tenant, hx_slice id, hx_arena *arena);

#endif
