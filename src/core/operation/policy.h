/* SPDX-License-Identifier: Apache-2.0 */
/* Policies, and which of them applies to a request. A policy holds all options of one route, with the defaults
 * filled in; a policy set is immutable once loaded. */
#ifndef HX_CORE_OPERATION_POLICY_H
#define HX_CORE_OPERATION_POLICY_H

#include "base/memory/arena.h"
#include "base/clock.h"
#include "core/retry/backoff.h"
#include "core/operation/fingerprint.h"
#include "core/token/jwt.h"
#include "core/operation/key.h"
#include "core/operation/outcome.h"

typedef enum { HX_MODE_PROTECT, HX_MODE_PASS, HX_MODE_SHADOW } hx_mode;
typedef enum { HX_DIALECT_PLAIN, HX_DIALECT_IETF, HX_DIALECT_STRIPE } hx_dialect;
/* The identity by which operations with the same key are kept apart. */
typedef enum { HX_SCOPE_ROUTE_AND_PRINCIPAL, HX_SCOPE_PRINCIPAL, HX_SCOPE_ROUTE, HX_SCOPE_HOST } hx_scope;
typedef enum { HX_FORWARD_KEY_AS_IT_CAME, HX_FORWARD_KEY_SCOPED } hx_forward_key;
typedef enum { HX_DUPLICATE_REPLAY, HX_DUPLICATE_REJECT, HX_DUPLICATE_NOOP } hx_on_duplicate;
typedef enum {
    HX_PRINCIPAL_AUTHORIZATION,
    HX_PRINCIPAL_HEADER,
    HX_PRINCIPAL_COOKIE,
    HX_PRINCIPAL_JWT_CLAIM /* a claim of the bearer token */
} hx_principal_kind;

typedef struct {
    hx_principal_kind kind;
    hx_slice name; /* name of the header (lower case), cookie or claim */
} hx_principal_source;

#define HX_PRINCIPAL_SOURCES_MAX 8u

typedef enum { HX_ON_UNKNOWN_HOLD, HX_ON_UNKNOWN_PROBE } hx_on_unknown;

/* `probe`: the request that asks the application what became of an operation. */
typedef struct {
    hx_slice method; /* empty: there is no probe */
    hx_slice target; /* "/refunds?idempotency_key={key}"; {key} is replaced by the percent-encoded key */
    uint16_t found_status;
    hx_slice found_pointer; /* must find a value in the response; empty: the status is enough */
    uint16_t absent_status; /* status that means it didn't happen; 0: none */
    uint16_t answer_status; /* status that clients get; 0: the probe's own */
    hx_slice answer_body;   /* pointer to the body that clients get; empty: the whole body */
    hx_ms settle;           /* how long the application may still be at work after the last byte was sent */
} hx_probe;

/* `provider_duplicate`: a response that means "already applied"; the probe then fetches the result. */
typedef struct {
    uint16_t status; /* 0: none */
    hx_slice pointer;
    hx_slice value;
} hx_provider_duplicate;

/* `jwt`: the keys that verify bearer tokens. */
typedef struct {
    bool given;
    unsigned source; /* index into hx_config.jwt_sources */
    hx_jwt_rules rules;
} hx_jwt_policy;

/* `rate`: requests in a span of time; count 0: unlimited. */
typedef struct {
    uint32_t count;
    hx_ms per;
} hx_rate;

#define HX_NAMES_MAX 32u

typedef struct {
    hx_slice name;     /* empty for the defaults, whose route is method + path */
    hx_slice *methods; /* upper case; none: every method but GET, HEAD, OPTIONS and TRACE */
    size_t method_count;
    hx_slice path;     /* "/refunds/{id}": a segment in braces matches any one segment */
    hx_slice because;  /* the reason for which an unsafe method passes unprotected */
    bool path_exact;   /* `path: exact`: other spellings of it are other paths, not near misses */
    unsigned upstream; /* index of the upstream */
    hx_mode mode;
    bool require;           /* a request without a key is refused (POST, PATCH, DELETE); nothing with key.from */
    bool require_on_put;    /* `require` was set explicitly, so it holds for PUT, too */
    bool if_match_suffices; /* `key-or-if-match`: a conditional PATCH or PUT needs no key */
    bool require_principal;
    bool release_5xx; /* --dev: a 5xx response is released, not stored */
    bool retry_safe;  /* safe methods, and unkeyed PUT and DELETE, are sent again after more than failed connects */
    bool release_4xx; /* natural keys: a 4xx response is released unless a rule says otherwise */
    hx_dialect dialect;
    hx_scope scope;
    hx_forward_key forward_key;
    hx_fingerprint_rules fingerprint;
    bool fingerprint_said; /* set by the route itself or its group */
    hx_jwt_policy jwt;
    hx_slice authorize_method; /* `authorize`: "GET" and "/me"; empty: there is none */
    hx_slice authorize_target;
    hx_rate rate;       /* for requests of one principal on this route */
    uint32_t quota;     /* live keys of one principal on this route; 0: unlimited */
    hx_slice result;    /* pointer to the id of the result in the response; empty: none */
    hx_slice *formerly; /* former names; the operations of the route are stored under the first of them */
    size_t formerly_count;
    hx_slice *deny_headers; /* lower case; not stored, so that no replay has them */
    size_t deny_header_count;
    hx_on_duplicate on_duplicate;
    bool on_store_down_pass; /* `on_store_down: pass`: requests pass unrecorded while the store is down */
    bool on_failed_reject;   /* `on_failed: reject`: a duplicate of a failed operation doesn't get its response */
    hx_guarantee guarantee;
    hx_on_unknown on_unknown;
    hx_probe probe;
    hx_provider_duplicate provider_duplicate;
    hx_outcome_rule outcome_rules[HX_OUTCOME_RULES_MAX]; /* `outcome` and `not_executed` */
    size_t outcome_rule_count;
    hx_retry_class class;
    hx_retry_overrides retry_said; /* as it was written */
    hx_retry_policy retry;         /* derived from both */
    hx_key_rules key;
    hx_principal_source principals[HX_PRINCIPAL_SOURCES_MAX];
    size_t principal_count;
    hx_ms lifetime;  /* counted from completion */
    hx_ms tombstone; /* how long the bare key is kept after that; 0: not at all */
    hx_ms lease;
    hx_ms wait;             /* how long a duplicate waits for the first request */
    hx_ms grace;            /* how long a late response is still recorded */
    hx_ms upstream_timeout; /* of one attempt, to the end of its response */
    uint64_t body_bytes_max;
    uint64_t answer_bytes_max;
    /* Hashes of the options that decide which operation a request is; hx_policy_version_all sets them. Records carry
     * the version, which has only some bits of the two hashes. */
    uint64_t rule_identity;
    uint64_t rule_match;
    uint32_t rule_version;
} hx_policy;

/* The bits of a rule version. The identity says which operation a request of the route is (principal, scope, key,
 * fingerprint, how a key of ours is written); the match says which requests come to the route; the last bit says
 * whether the route has a name. Where operations are stored by method and path, the match covers only the routes before
 * this one. That holds for the defaults, too: their match only distinguishes nodes, since on one node a route may take
 * requests that come to the defaults on another.
 *
 * So a store distinguishes identities by 15 bits, and matches by 16. A reload has both configurations, and compares the
 * whole hashes. A start has only the records in the store: of changes to a route with live operations it misses one in
 * 32,768 of principal, scope, key or fingerprint, and one in 65,536 of the match. */
#define HX_RULE_IDENTITY ((UINT32_C(1) << 15) - 1)
#define HX_RULE_MATCH (HX_RULE_NAMED - HX_RULE_IDENTITY - 1)
#define HX_RULE_NAMED (UINT32_C(1) << 31)
/* The version in records of routes in shadow mode: no client relies on them, and no change of rules orphans them. */
#define HX_RULE_SHADOW UINT32_C(0)

/* The name under which a route's operations are stored: its oldest name, so that renaming it changes no operation. */
static inline hx_slice hx_policy_identity(const hx_policy *policy)
{
    return policy->formerly_count > 0 ? policy->formerly[0] : policy->name;
}

typedef struct {
    hx_policy *routes;
    size_t count;
    const struct hx_route_tree *tree;   /* set by hx_policy_compile */
    const struct hx_route_tree *folded; /* the same for the folded paths of the routes */
    hx_policy defaults;                 /* for keyed requests that match no route */
    bool require_key;                   /* POST, PATCH and DELETE need a key everywhere */
} hx_policy_set;

/* The contract's defaults: lifetime 24 h, lease 60 s, wait 10 s, grace 60 s, 1 MiB, 8 MiB, keys of 16 to 255. */
hx_policy hx_policy_default(void);
/* HX_RULE_IDENTITY and HX_RULE_NAMED of a policy's version. */
uint32_t hx_policy_version(const hx_policy *policy);
/* Sets the whole version of every policy, once all routes are there: the routes before a route decide which requests
 * come to it. */
void hx_policy_version_all(hx_policy_set *set);
bool hx_policy_takes(const hx_policy *policy, hx_slice method);
/* Whether some request matches both. */
bool hx_policy_meets(const hx_policy *a, const hx_policy *b);

/* Prepares hx_policy_find, once all routes are there. */
void hx_policy_compile(hx_policy_set *set, hx_arena *arena);
/* The first route that matches; NULL when none does. `path` is normalised. */
const hx_policy *hx_policy_find(const hx_policy_set *set, hx_slice method, hx_slice path);
/* Whether the route is protected, and other spellings of its path are near misses. */
bool hx_policy_is_guarded(const hx_policy *policy);
/* The protected route that a request misses by a spelling which many servers read as the route's own: other case, an
 * escaped or repeated slash, one at the end, a backslash, ";parameters", a space, a dot or a NUL byte at the end of a
 * segment. NULL where there is none. `path` is as it came; `route` is what hx_policy_find found, or NULL: then only
 * routes that guard their spellings are looked for, else what would come before that one. */
const hx_policy *hx_policy_find_near(const hx_policy_set *set, hx_slice method, hx_slice path, const hx_policy *route,
                                     hx_arena *arena);

/* Reads "POST /refunds/{id}" or "POST,PATCH /refunds" into methods and path. False with a sentence in *error. */
bool hx_policy_match(hx_slice match, hx_arena *arena, hx_policy *policy, const char **error) HX_MUST_USE;

/* The segment of `path` at which the template has "{name}". False when it has none of that name. */
bool hx_path_parameter(hx_slice path_template, hx_slice path, hx_slice name, hx_slice *value) HX_MUST_USE;

bool hx_method_is_safe(hx_slice method);         /* GET, HEAD, OPTIONS, TRACE */
bool hx_policy_is_safe(const hx_policy *policy); /* whether all its methods are safe */
/* Whether an unsafe method passes unprotected, keyed or not. */
bool hx_policy_is_exposed(const hx_policy *policy);
/* Whether a request of that method without a key is refused; where `if_match_suffices`, unless it is conditional. */
bool hx_policy_requires_key(const hx_policy *policy, hx_slice method);
/* Whether a request without a key and with one of its unsafe methods passes unprotected. */
bool hx_policy_is_optional(const hx_policy *policy);

typedef enum { HX_PATH_OK, HX_PATH_ENCODED_SLASH, HX_PATH_EMPTY_SEGMENT, HX_PATH_BAD_ESCAPE } hx_path_error;

/* Decodes unreserved characters and removes dot segments. On an error the path as far as it could be read is given, so
 * that an unkeyed request can still be matched. A path without escapes, dots or empty segments is returned as it is. */
hx_path_error hx_path_normalize(hx_slice path, hx_arena *arena, hx_slice *normalized);
const char *hx_path_error_text(hx_path_error error);

/* Points on which servers disagree: whether an escaped slash and a backslash separate segments, whether a NUL byte
 * ends the path, and whether a segment that is empty once its end is trimmed counts. */
enum { HX_READ_SLASH = 1, HX_READ_BACKSLASH = 2, HX_READ_NUL = 4, HX_READ_EMPTY = 8, HX_READINGS = 16 };
#define HX_PATH_FOLD_BYTES(len) (3 * (len) + 2)
/* The path as the most tolerant server with these readings sees it: decoded, in lower case, without parameters, empty
 * segments and what is dropped at the end of a segment. `room` has HX_PATH_FOLD_BYTES. Sets those readings in *possible
 * that would make a difference. */
hx_slice hx_path_fold(hx_slice path, unsigned reading, char *room, unsigned *possible);
hx_slice hx_path_fold_template(hx_slice path_template, char *room);

#endif
