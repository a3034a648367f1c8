/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/parts/token_cache.h"

#define TAG_TOKEN 'T' /* see HX_TAG_OPERATION and its like */

static hx_digest digest_of(hx_token_cache *tokens, hx_slice token)
{
    hx_mac_begin(tokens->mac, TAG_TOKEN);
    hx_mac_part(tokens->mac, token);
    return hx_mac_end(tokens->mac);
}

hx_jwt_error hx_token_cache_verify(hx_token_cache *tokens, hx_slice token, const hx_rules *rules,
                                   const hx_jwt_policy *policy, hx_ms now, hx_arena *arena, hx_slice *payload)
{
    *payload = HX_EMPTY;
    const hx_jwt_keys *keys = rules->jwt_keys[policy->source];
    if (!tokens) return hx_jwt_verify(token, keys, &policy->rules, now, arena, payload);
    hx_digest digest = digest_of(tokens, token);
    size_t at = digest.bytes[0] % HX_TOKEN_CACHE_KEPT;
    bool is_known = tokens->kept[at].generation == rules->generation && tokens->kept[at].policy == policy &&
                    now >= tokens->kept[at].since && now < tokens->kept[at].until &&
                    hx_digest_eq(&tokens->kept[at].token, &digest);
    if (is_known) return HX_JWT_OK;
    hx_jwt_error error = hx_jwt_verify(token, keys, &policy->rules, now, arena, payload);
    if (error != HX_JWT_OK) return error;
    tokens->kept[at].token = digest;
    tokens->kept[at].generation = rules->generation;
    tokens->kept[at].policy = policy;
    tokens->kept[at].since = now;
    tokens->kept[at].until = hx_jwt_valid_until(*payload, &policy->rules);
    return HX_JWT_OK;
}
