/* SPDX-License-Identifier: Apache-2.0 */
/* JSON Web Tokens verified: only then is a caller who comes with another token of the same identity shown what the
 * first one got. The algorithm is decided by the key, never by the token; `none` is no algorithm. */
#ifndef HX_CORE_TOKEN_JWT_H
#define HX_CORE_TOKEN_JWT_H

#include "base/fail.h"
#include "base/memory/arena.h"
#include "base/clock.h"

/* A set of keys, immutable; shared by all threads once made. */
typedef struct hx_jwt_keys hx_jwt_keys;

#define HX_JWT_BYTES_MAX (16u * 1024u) /* of a token */
#define HX_JWT_KEYS_MAX 100u           /* in a set */
#define HX_JWT_TRIES_MAX 10u           /* signatures checked for one token: of a set without `kid`, its first keys */

/* A JWKS document (RFC 7517) or a single JWK. Keys that aren't for signatures, are too weak (RSA below 2048 bits, a
 * secret shorter than its hash) or of a kind that isn't known are skipped; NULL with a sentence in `error` when nothing
 * is left or it isn't one. */
hx_jwt_keys *hx_jwt_keys_from_jwks(hx_slice json, hx_error_text error) HX_MUST_USE;
/* One public key or certificate in PEM (whose dates and signature don't count), or the raw bytes of a shared secret, 32
 * or more (HS256; from 48 on also HS384, from 64 on also HS512). A PEM isn't taken for a secret. */
hx_jwt_keys *hx_jwt_keys_from_pem(hx_slice pem, hx_error_text error) HX_MUST_USE;
hx_jwt_keys *hx_jwt_keys_from_secret(hx_slice secret, hx_error_text error) HX_MUST_USE;
size_t hx_jwt_keys_count(const hx_jwt_keys *keys);
bool hx_jwt_keys_have_secret(const hx_jwt_keys *keys); /* whether a key of it signs as well as it verifies */
/* Adds an owner of the set, which lives until the last owner has freed it. Any thread. */
hx_jwt_keys *hx_jwt_keys_share(const hx_jwt_keys *keys) HX_MUST_USE;
void hx_jwt_keys_free(hx_jwt_keys **owned);

typedef struct {
    hx_slice issuer;   /* `iss` must be this; empty: any */
    hx_slice audience; /* `aud` must be or hold this; empty: any */
    hx_ms leeway;      /* for exp and nbf */
} hx_jwt_rules;

/* Errors, each with its sentence. */
#define HX_JWT_ERRORS(X)                                                                                               \
    X(OK, "The token is valid.")                                                                                       \
    X(NOT_A_TOKEN, "The credential is not a JWT.")                                                                     \
    X(UNSUPPORTED, "The token's header asks for `crit`, `b64`, encryption or an algorithm that is not known.")         \
    X(NO_KEY, "No configured key has made this token's signature.")                                                    \
    X(SHORT_SECRET, "The shared secret is too short for the token's algorithm: HS384 needs 48 bytes, HS512 64.")       \
    X(BAD_SIGNATURE, "The token's signature is wrong.")                                                                \
    X(BAD_CLAIMS, "The token's `exp` or `nbf` is not a number.")                                                       \
    X(EXPIRED, "The token has expired.")                                                                               \
    X(NOT_YET, "The token is not valid yet.")                                                                          \
    X(BAD_ISSUER, "The token is from another issuer.")                                                                 \
    X(BAD_AUDIENCE, "The token is for another audience.")

typedef enum {
#define X(name, text) HX_JWT_##name,
    HX_JWT_ERRORS(X)
#undef X
} hx_jwt_error;

const char *hx_jwt_error_text(hx_jwt_error error);

/* Verifies signature and claims. *payload is the decoded JSON object, in `arena`, unless the error is
 * HX_JWT_NOT_A_TOKEN; it is verified only with HX_JWT_OK. Header and payload must be clean JSON without a repeated
 * member, in base64url without padding. `keys` NULL is a set without keys. HX_JWT_NO_KEY: no key fits the token's `kid`
 * and `alg`, so the caller may fetch the set again; a key without `kid` fits any token. Keys that the token itself
 * carries or names (jwk, jku, x5c, x5u) are never used. */
hx_jwt_error hx_jwt_verify(hx_slice token, const hx_jwt_keys *keys, const hx_jwt_rules *rules, hx_ms now,
                           hx_arena *arena, hx_slice *payload) HX_MUST_USE;

/* The time until which a verified token is valid; INT64_MAX: it sets no end. */
hx_ms hx_jwt_valid_until(hx_slice payload, const hx_jwt_rules *rules);

/* Decodes without verifying anything; false when it isn't a JWT. */
bool hx_jwt_payload(hx_slice token, hx_arena *arena, hx_slice *payload) HX_MUST_USE;

#endif
