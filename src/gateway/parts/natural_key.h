/* SPDX-License-Identifier: Apache-2.0 */
/* A request's natural key, by its route's template (`key: {from: …}`). */
#ifndef HX_GATEWAY_PARTS_NATURAL_KEY_H
#define HX_GATEWAY_PARTS_NATURAL_KEY_H

#include "core/operation/policy.h"
#include "core/operation/template.h"
#include "net/http/message.h"

typedef struct {
    const hx_policy *policy;
    const hx_request_head *head;
    hx_slice path;                 /* normalised */
    hx_slice principal;            /* empty: unauthenticated */
    hx_fingerprint_input *content; /* the request's, with its whole body */
    hx_mac *mac;
    hx_arena *arena;
} hx_natural_request;

struct hx_request; /* gateway/request.h */
/* The request's body must be whole. */
hx_natural_request hx_natural_of(struct hx_request *r);

#define HX_NATURAL_KEY_CHARS 64u /* hexadecimal */

/* The key at that moment, as hexadecimal text in the arena. False: `result` names the part that is missing. */
bool hx_natural_key(const hx_natural_request *request, hx_ms at, hx_template_result *result, hx_slice *key) HX_MUST_USE;

/* The parts that the key is made of, for `hapax explain`. False as above. */
bool hx_natural_show(const hx_natural_request *request, hx_ms at, hx_template_values *values) HX_MUST_USE;

/* The key at another moment: `fixed` is what the request said, from its result. */
hx_slice hx_natural_key_at(const hx_policy *policy, const hx_digest *fixed, hx_ms at, hx_mac *mac, hx_arena *arena);

#endif
