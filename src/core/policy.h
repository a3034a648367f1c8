/* SPDX-License-Identifier: Apache-2.0 */
/* Which rules apply to a request. A policy is what the configuration says of one route, after its defaults; a policy
 * set is immutable once loaded. */
#ifndef HX_CORE_POLICY_H
#define HX_CORE_POLICY_H

#include "base/arena.h"
#include "base/clock.h"
#include "core/key.h"

typedef enum { HX_MODE_PROTECT, HX_MODE_PASS } hx_mode;
typedef enum { HX_DUPLICATE_REPLAY, HX_DUPLICATE_REJECT, HX_DUPLICATE_NOOP } hx_on_duplicate;
typedef enum { HX_PRINCIPAL_AUTHORIZATION, HX_PRINCIPAL_HEADER, HX_PRINCIPAL_COOKIE } hx_principal_kind;

typedef struct {
    hx_principal_kind kind;
    hx_slice name; /* of the header or cookie */
} hx_principal_source;

#define HX_PRINCIPAL_SOURCES_MAX 8u

typedef struct {
    hx_slice name;     /* empty for the defaults, whose route is method + path */
    hx_slice *methods; /* upper case; none: every method but GET, HEAD, OPTIONS and TRACE */
    size_t method_count;
    hx_slice path;     /* "/refunds/{id}": a segment in braces stands for any one segment */
    hx_slice because;  /* why an unsafe method passes unprotected */
    unsigned upstream; /* which of the configured upstreams */
    hx_mode mode;
    bool require;        /* a request without a key is refused (POST, PATCH, DELETE) */
    bool require_on_put; /* it was asked for in so many words, so on PUT too */
    bool require_principal;
    bool release_5xx; /* --dev: an answer of 5xx is released, not stored */
    hx_on_duplicate on_duplicate;
    hx_key_rules key;
    hx_principal_source principals[HX_PRINCIPAL_SOURCES_MAX];
    size_t principal_count;
    hx_ms lifetime; /* counted from completion */
    hx_ms lease;
    hx_ms wait;             /* how long a duplicate waits for the first */
    hx_ms grace;            /* how long a late answer is still taken */
    hx_ms upstream_timeout; /* from the last byte sent to the answer's end */
    uint64_t body_bytes_max;
    uint64_t answer_bytes_max;
    uint32_t rule_version; /* a hash of what decides scope, key and fingerprint: see hx_policy_version */
} hx_policy;

typedef struct {
    hx_policy *routes;
    size_t count;
    hx_policy defaults; /* for keyed requests that match no route */
    bool require_key;   /* POST, PATCH and DELETE need a key everywhere */
} hx_policy_set;

/* The contract's defaults: lifetime 24 h, lease 60 s, wait 10 s, grace 60 s, 1 MiB, 8 MiB, keys of 16 to 255. */
hx_policy hx_policy_default(void);
/* Computes rule_version from the rules that are part of the key. */
uint32_t hx_policy_version(const hx_policy *policy);

/* The first route that matches; NULL when none does. `path` is normalised. */
const hx_policy *hx_policy_find(const hx_policy_set *set, hx_slice method, hx_slice path);

/* Reads "POST /refunds/{id}" or "POST,PATCH /refunds" into methods and path. False with a sentence in *error. */
bool hx_policy_match(hx_slice match, hx_arena *arena, hx_policy *policy, const char **error) HX_MUST_USE;

bool hx_method_is_safe(hx_slice method); /* GET, HEAD, OPTIONS, TRACE */
/* Whether an unsafe method passes unprotected, keyed or not. */
bool hx_policy_is_exposed(const hx_policy *policy);

typedef enum { HX_PATH_OK, HX_PATH_ENCODED_SLASH, HX_PATH_EMPTY_SEGMENT, HX_PATH_BAD_ESCAPE } hx_path_error;

/* Decodes unreserved characters and removes dot segments. On an error the path as far as it could be read is given, so
 * that an unkeyed request can still be matched. A path without escapes, dots or empty segments is returned as it is. */
hx_path_error hx_path_normalize(hx_slice path, hx_arena *arena, hx_slice *normalized);
const char *hx_path_error_text(hx_path_error error);

#endif
