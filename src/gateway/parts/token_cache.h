/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens that were verified lately: a client sends the same one with many requests, and checking its signature costs
 * more than all the rest of a request. One for each worker. A token is known by its MAC, under the generation of keys
 * and the rules that verified it, and until it expires. */
#ifndef HX_GATEWAY_PARTS_TOKEN_CACHE_H
#define HX_GATEWAY_PARTS_TOKEN_CACHE_H

#include "core/crypto/mac.h"
#include "gateway/rules.h"

#define HX_TOKEN_CACHE_KEPT 64u /* a newer one takes the place of an older one */

typedef struct {
    hx_mac *mac; /* its owner's */
    struct {
        hx_digest token;
        uint64_t generation; /* 0: none */
        const hx_jwt_policy *policy;
        hx_ms since, until; /* by the wall clock, which may be set back */
    } kept[HX_TOKEN_CACHE_KEPT];
} hx_token_cache;

/* hx_jwt_verify by the keys of the route, or by what was seen before: then the token isn't taken apart, and *payload is
 * empty. `tokens` NULL: nothing is kept. */
hx_jwt_error hx_token_cache_verify(hx_token_cache *tokens, hx_slice token, const hx_rules *rules,
                                   const hx_jwt_policy *policy, hx_ms now, hx_arena *arena,
                                   hx_slice *payload) HX_MUST_USE;

#endif
