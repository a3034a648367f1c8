/* SPDX-License-Identifier: Apache-2.0 */
/* Who asks, and how it is shown. The principal is the stable identity inside a credential: it survives a rotated token,
 * a fresh nonce and a new signature, so that a retry with a new credential finds its operation. The proof is the
 * credential itself: only who presents it again may see the answer without being asked further. Nothing is verified
 * here; a forged principal gets into another's scope, where its proof differs. */
#ifndef HX_CORE_OPERATION_IDENTITY_H
#define HX_CORE_OPERATION_IDENTITY_H

#include "base/memory/arena.h"

typedef struct {
    hx_slice principal; /* its kind and a NUL, so that two schemes never name the same one, and who; empty for nobody */
    hx_slice proof;     /* the whole value, trimmed; of nobody, see hx_caller_find */
    const char *kind;   /* a row's name below; lives for ever */
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

/* `value` is that of the one Authorization field. The slices of `out` live in `value` and `arena`. */
void hx_identity_of_authorization(hx_slice value, hx_arena *arena, hx_identity *out);

/* A chosen claim of a token's payload, as hx_jwt_verify or hx_jwt_payload gives it: the top-level member of that name,
 * a string that isn't empty or a whole number. The principal names the issuer and the claim too, and whether it is a
 * string, so that "7" isn't 7, and nobody's `email` is another's `sub`. False, with nobody in *out, when the payload
 * isn't clean JSON, has the claim twice, not at all or of another type, or has an issuer that isn't one string. The
 * proof is left empty: it is the credential that the caller has in hand. */
bool hx_identity_of_claim(hx_slice payload_json, hx_slice claim, hx_arena *arena, hx_identity *out) HX_MUST_USE;

/* How many cookies have that name; *value is the first, as it stands there. Names are case-sensitive (RFC 6265). */
unsigned hx_cookie_value(hx_slice cookie_header, hx_slice name, hx_slice *value) HX_MUST_USE;

#endif
