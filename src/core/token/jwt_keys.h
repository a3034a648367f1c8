/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by jwt.c and jwt_keys.c: the algorithms, and the key. A key allows the algorithms for its type and curve,
 * and where its JWK names one of them, only that: no token can ask for another. */
#ifndef HX_CORE_TOKEN_JWT_KEYS_H
#define HX_CORE_TOKEN_JWT_KEYS_H

#include "core/token/jwt.h"

#include <openssl/evp.h>
#include <stdatomic.h>

typedef enum {
    HX_JWT_OCT,
    HX_JWT_RSA,
    HX_JWT_P256,
    HX_JWT_P384,
    HX_JWT_P521,
    HX_JWT_ED25519,
    HX_JWT_ED448
} hx_jwt_key_type;

typedef enum { HX_JWT_HMAC, HX_JWT_PKCS1, HX_JWT_PSS, HX_JWT_ECDSA, HX_JWT_EDDSA } hx_jwt_scheme;

/* Name (RFC 7518, 8037 and 9864), scheme, key's type, digest, its bits. */
#define HX_JWT_ALGORITHMS(X)                                                                                           \
    X("HS256", HMAC, OCT, EVP_sha256, 256)                                                                             \
    X("HS384", HMAC, OCT, EVP_sha384, 384)                                                                             \
    X("HS512", HMAC, OCT, EVP_sha512, 512)                                                                             \
    X("RS256", PKCS1, RSA, EVP_sha256, 256)                                                                            \
    X("RS384", PKCS1, RSA, EVP_sha384, 384)                                                                            \
    X("RS512", PKCS1, RSA, EVP_sha512, 512)                                                                            \
    X("PS256", PSS, RSA, EVP_sha256, 256)                                                                              \
    X("PS384", PSS, RSA, EVP_sha384, 384)                                                                              \
    X("PS512", PSS, RSA, EVP_sha512, 512)                                                                              \
    X("ES256", ECDSA, P256, EVP_sha256, 256)                                                                           \
    X("ES384", ECDSA, P384, EVP_sha384, 384)                                                                           \
    X("ES512", ECDSA, P521, EVP_sha512, 512)                                                                           \
    X("EdDSA", EDDSA, ED25519, NULL, 0)                                                                                \
    X("EdDSA", EDDSA, ED448, NULL, 0)                                                                                  \
    X("Ed25519", EDDSA, ED25519, NULL, 0)                                                                              \
    X("Ed448", EDDSA, ED448, NULL, 0)

typedef struct {
    const char *name;
    hx_jwt_scheme scheme;
    hx_jwt_key_type type;
    const EVP_MD *(*digest)(void); /* NULL: the scheme has its own */
    unsigned digest_bits;
} hx_jwt_algorithm;

extern const hx_jwt_algorithm hx_jwt_algorithms[];
extern const size_t hx_jwt_algorithm_count;

typedef struct {
    hx_jwt_key_type type;
    uint32_t allowed; /* bit i: hx_jwt_algorithms[i] */
    bool has_kid;
    char *kid; /* the heap's */
    size_t kid_len;
    EVP_PKEY *public_key;  /* NULL for a secret */
    unsigned char *secret; /* the heap's */
    size_t secret_len;
} hx_jwt_key;

struct hx_jwt_keys {
    _Atomic unsigned owners;
    size_t count;
    hx_jwt_key keys[HX_JWT_KEYS_MAX];
};

#endif
