/* SPDX-License-Identifier: Apache-2.0 */
/* The caller of a request by the rules of its route, and the operation that follows. The gateway decides by these, and
 * `hapax explain` shows what they decided. */
#ifndef HX_GATEWAY_PARTS_CALLER_H
#define HX_GATEWAY_PARTS_CALLER_H

#include "core/operation/identity.h"
#include "core/operation/record.h"
#include "gateway/rules.h"
#include "gateway/parts/token_cache.h"
#include "net/http/message.h"

typedef enum {
    HX_CALLER_FOUND,
    HX_CALLER_NOBODY,    /* the request has none of the route's sources */
    HX_CALLER_REFUSED,   /* its token isn't valid, or says nothing of the caller */
    HX_CALLER_AMBIGUOUS, /* two credentials: it is unclear which one the upstream will use */
    HX_CALLER_NO_KEYS    /* its token can't be verified for now */
} hx_caller_result;

typedef struct {
    hx_identity who;                   /* unless FOUND, its principal is empty */
    const hx_principal_source *source; /* where it was found */
    bool verified;                     /* the identity is from a token that was verified */
    hx_jwt_error token_error;
    hx_slice why; /* a sentence, but for FOUND and NOBODY */
} hx_caller;

/* `now`: the wall's, by which tokens are written. `tokens`: those that were verified before; NULL: none are kept. Of
 * NOBODY the proof is what looks like a credential: the application may tell callers by it, whom this route can't. */
hx_caller_result hx_caller_find(const hx_policy *policy, const hx_rules *rules, hx_token_cache *tokens,
                                const hx_fields *fields, hx_ms now, hx_arena *arena, hx_caller *out) HX_MUST_USE;

/* The parts that distinguish one operation from another. */
typedef struct {
    hx_slice route;     /* hx_policy_identity, or method and path */
    hx_slice principal; /* hx_identity's */
    hx_slice key;
    hx_slice host; /* as hx_text_host has it; counts under `scope: host` alone */
    bool natural;  /* such keys live in a namespace of their own */
} hx_operation_name;

/* Whether an unauthenticated request has what looks like a credential. */
bool hx_caller_has_credential(const hx_fields *fields);

hx_op hx_operation_of(const hx_policy *policy, const hx_operation_name *name, hx_mac *mac);

#endif
