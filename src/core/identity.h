/* SPDX-License-Identifier: Apache-2.0 */
/* Who asks, and how it is shown. The principal is the stable identity inside a credential: it survives a rotated token,
 * a fresh nonce and a new signature, so that a retry with a new credential finds its operation. The proof is the
 * credential itself: only who presents it again may see the answer without being asked further. Nothing is verified
 * here; a forged principal gets into another's scope, where its proof differs. */
#ifndef HX_CORE_IDENTITY_H
#define HX_CORE_IDENTITY_H

#include "base/arena.h"

typedef struct {
    hx_slice principal; /* its kind and a NUL, so that two schemes never name the same one, and who; empty for nobody */
    hx_slice proof;     /* the whole value, trimmed; empty for nobody */
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
    X(oauth1, "consumer key and token of OAuth 1")

/* `value` is that of the one Authorization field. The slices of `out` live in `value` and `arena`. */
void hx_identity_of_authorization(hx_slice value, hx_arena *arena, hx_identity *out);

/* The first cookie of that name, as it stands there. Names are case-sensitive (RFC 6265). */
bool hx_cookie_value(hx_slice cookie_header, hx_slice name, hx_slice *value) HX_MUST_USE;

#endif
