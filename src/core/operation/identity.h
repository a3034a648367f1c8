/* SPDX-License-Identifier: Apache-2.0 */
/* The caller of a request. The principal is the stable identity inside a credential: it survives a rotated token, a
 * fresh nonce and a new signature, so that a retry with a new credential finds its operation. The proof is the
 * credential itself: only a request that presents it again sees the stored response without further checks. Nothing
 * is verified here; a forged principal reaches the scope of another caller, where its proof differs. */
#ifndef HX_CORE_OPERATION_IDENTITY_H
#define HX_CORE_OPERATION_IDENTITY_H

#include "base/memory/arena.h"

typedef struct {
    hx_slice principal; /* its kind, a NUL and the name, so that no two schemes share one; empty: unauthenticated */
    hx_slice proof;     /* the whole value, trimmed; for an unauthenticated request see hx_caller_find */
    const char *kind;   /* the name of a row below; static */
} hx_identity;

/* The kinds, and what their principal is made of. Credentials that are malformed, or of another scheme, are `whole`. */
#define HX_IDENTITY_KINDS(X)                                                                                           \
    X(none, "nobody: there is no such field, or it is empty")                                                          \
    X(whole, "the whole value")                                                                                        \
    X(basic, "the user of Basic")                                                                                      \
    X(digest, "the username of Digest")                                                                                \
    X(jwt, "iss and sub of a JWT")                                                                                     \
    X(sigv4, "the access-key id of AWS Signature Version 4")                                                           \
    X(hawk, "the id of Hawk")                                                                                          \
    X(signature, "the keyId of HTTP Signatures")                                                                       \
    X(oauth1, "consumer key and token of OAuth 1")                                                                     \
    X(claim, "iss and a chosen claim of a JWT")

/* Reads the value of the only Authorization field. The slices of `out` live in `value` and `arena`. */
void hx_identity_of_authorization(hx_slice value, hx_arena *arena, hx_identity *out);

/* Takes the principal from a claim of a token's payload, as hx_jwt_verify or hx_jwt_payload gives it: the top-level
 * member of that name, a non-empty string or a whole number. The principal also names the issuer, the claim and the
 * type, so that "7" isn't 7, and the `email` of one caller is never the `sub` of another. False, with an empty
 * principal in *out, when the payload isn't clean JSON, when the claim is missing, repeated or of another type, or
 * when the issuer isn't one string. The proof is left empty: it is the credential, which the caller of this function
 * has. */
bool hx_identity_of_claim(hx_slice payload_json, hx_slice claim, hx_arena *arena, hx_identity *out) HX_MUST_USE;

/* Counts the cookies of that name; *value is the first, undecoded. Names are case-sensitive (RFC 6265). */
unsigned hx_cookie_value(hx_slice cookie_header, hx_slice name, hx_slice *value) HX_MUST_USE;

#endif
