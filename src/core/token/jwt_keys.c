/* SPDX-License-Identifier: Apache-2.0 */
/* Key sets, from what operators and identity providers have: a JWKS document, a PEM file, a shared secret. A set is
 * made once, and then only read. Its keys are OpenSSL's own, made by its providers, so that using one from several
 * threads changes nothing in it. */
#include "core/token/jwt_keys.h"

#include "base/check.h"
#include "core/token/base64.h"
#include "core/json/json.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/decoder.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RSA_BITS_MIN 2048 /* RFC 7518, 3.3 */
#define RSA_BITS_MAX 8192 /* a larger one would cost every request milliseconds */
#define SECRET_BYTES_MIN 32u
#define SECRET_BYTES_MAX 65536u

static const struct {
    const char *name; /* `crv` of a JWK */
    const char *group;
    hx_jwt_key_type type;
    size_t bytes; /* of a coordinate, or of the key */
} curves[] = {
    {"P-256", "prime256v1", HX_JWT_P256, 32}, {"P-384", "secp384r1", HX_JWT_P384, 48},
    {"P-521", "secp521r1", HX_JWT_P521, 66},  {"Ed25519", "ED25519", HX_JWT_ED25519, 32},
    {"Ed448", "ED448", HX_JWT_ED448, 57},
};
#define CURVES (sizeof curves / sizeof *curves)

static void key_clear(hx_jwt_key *key)
{
    EVP_PKEY_free(key->public_key);
    OPENSSL_clear_free(key->secret, key->secret_len);
    free(key->kid);
    *key = (hx_jwt_key){.public_key = NULL};
}

static hx_jwt_keys *keys_new(void)
{
    hx_jwt_keys *keys = calloc(1, sizeof *keys);
    HX_CHECK(keys != NULL);
    atomic_init(&keys->owners, 1);
    return keys;
}

/* All algorithms that are written for this key, or the one that its JWK names. */
static uint32_t algorithms_for(const hx_jwt_key *key, const hx_slice *only)
{
    uint32_t allowed = 0;
    for (size_t i = 0; i < hx_jwt_algorithm_count; i++) {
        const hx_jwt_algorithm *algorithm = &hx_jwt_algorithms[i];
        if (algorithm->type != key->type) continue;
        if (key->type == HX_JWT_OCT && key->secret_len < algorithm->digest_bits / 8) continue;
        if (!only || hx_slice_eq(*only, hx_slice_of(algorithm->name))) allowed |= UINT32_C(1) << i;
    }
    return allowed;
}

/* Finds our type of a key that OpenSSL has read; NULL, or a reason why it isn't accepted. */
static const char *classify(EVP_PKEY *public_key, hx_jwt_key_type *type)
{
    char group[32];
    if (EVP_PKEY_is_a(public_key, "RSA")) {
        *type = HX_JWT_RSA;
        int bits = EVP_PKEY_get_bits(public_key);
        if (bits < RSA_BITS_MIN) return "is an RSA key of less than 2048 bits";
        return bits > RSA_BITS_MAX ? "is an RSA key of more than 8192 bits" : NULL;
    }
    for (size_t i = 0; i < CURVES; i++) {
        bool is_edwards = curves[i].type >= HX_JWT_ED25519;
        *type = curves[i].type;
        if (is_edwards && EVP_PKEY_is_a(public_key, curves[i].group)) return NULL;
        if (!is_edwards && EVP_PKEY_is_a(public_key, "EC") &&
            EVP_PKEY_get_group_name(public_key, group, sizeof group, NULL) == 1 && strcmp(group, curves[i].group) == 0)
            return NULL;
    }
    return "is neither RSA, P-256, P-384, P-521, Ed25519 nor Ed448";
}

static EVP_PKEY *public_key_of(const char *type, OSSL_PARAM *parameters)
{
    EVP_PKEY *key = NULL;
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    if (!context || EVP_PKEY_fromdata_init(context) != 1 ||
        EVP_PKEY_fromdata(context, &key, EVP_PKEY_PUBLIC_KEY, parameters) != 1)
        key = NULL;
    EVP_PKEY_CTX_free(context);
    return key;
}

/* A member of a JWK that holds bytes. */
static bool jwk_bytes(hx_slice jwk, const char *pointer, hx_arena *arena, hx_slice *bytes)
{
    hx_slice raw, text;
    return hx_json_pointer(jwk, hx_slice_of(pointer), &raw) && hx_json_string(raw, arena, &text) &&
           hx_base64url_decode(text, arena, bytes) && bytes->len > 0;
}

static BIGNUM *number_of(hx_slice bytes)
{
    return BN_bin2bn((const unsigned char *)bytes.ptr, (int)bytes.len, NULL);
}

static EVP_PKEY *jwk_rsa(hx_slice jwk, hx_arena *arena)
{
    hx_slice n_bytes, e_bytes;
    if (!jwk_bytes(jwk, "/n", arena, &n_bytes) || !jwk_bytes(jwk, "/e", arena, &e_bytes)) return NULL;
    if (n_bytes.len > RSA_BITS_MAX / 8 + 1 || e_bytes.len > 8) return NULL;
    BIGNUM *n = number_of(n_bytes), *e = number_of(e_bytes);
    EVP_PKEY *key = NULL;
    OSSL_PARAM_BLD *builder = OSSL_PARAM_BLD_new();
    OSSL_PARAM *parameters = NULL;
    /* An exponent of 1 signs everything. */
    if (n && e && builder && BN_is_odd(e) && !BN_is_one(e) && BN_is_odd(n) &&
        OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_N, n) == 1 &&
        OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_E, e) == 1 &&
        (parameters = OSSL_PARAM_BLD_to_param(builder)) != NULL)
        key = public_key_of("RSA", parameters);
    OSSL_PARAM_free(parameters);
    OSSL_PARAM_BLD_free(builder);
    BN_free(n);
    BN_free(e);
    return key;
}

/* OpenSSL refuses a point that isn't on the curve. */
static EVP_PKEY *jwk_ec(hx_slice jwk, const char *group, size_t bytes, hx_arena *arena)
{
    hx_slice x, y;
    if (!jwk_bytes(jwk, "/x", arena, &x) || !jwk_bytes(jwk, "/y", arena, &y)) return NULL;
    if (x.len != bytes || y.len != bytes) return NULL;
    unsigned char *point = hx_arena_alloc(arena, 1 + 2 * bytes);
    point[0] = POINT_CONVERSION_UNCOMPRESSED;
    memcpy(point + 1, x.ptr, bytes);
    memcpy(point + 1 + bytes, y.ptr, bytes);
    OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, hx_arena_terminated(arena, hx_slice_of(group)), 0),
        OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY, point, 1 + 2 * bytes),
        OSSL_PARAM_construct_end(),
    };
    return public_key_of("EC", parameters);
}

static EVP_PKEY *jwk_okp(hx_slice jwk, const char *curve, size_t bytes, hx_arena *arena)
{
    hx_slice x;
    if (!jwk_bytes(jwk, "/x", arena, &x) || x.len != bytes) return NULL;
    return EVP_PKEY_new_raw_public_key_ex(NULL, curve, NULL, (const unsigned char *)x.ptr, x.len);
}

static bool copy_secret(hx_jwt_key *key, hx_slice secret)
{
    if (secret.len < SECRET_BYTES_MIN || secret.len > SECRET_BYTES_MAX) return false;
    key->type = HX_JWT_OCT;
    key->secret = OPENSSL_malloc(secret.len);
    HX_CHECK(key->secret != NULL);
    memcpy(key->secret, secret.ptr, secret.len);
    key->secret_len = secret.len;
    return true;
}

static bool jwk_material(hx_slice jwk, hx_slice kty, hx_arena *arena, hx_jwt_key *key)
{
    hx_slice raw, bytes;
    if (hx_slice_eq(kty, HX_LIT("oct"))) return jwk_bytes(jwk, "/k", arena, &bytes) && copy_secret(key, bytes);
    if (hx_slice_eq(kty, HX_LIT("RSA"))) {
        key->public_key = jwk_rsa(jwk, arena);
    } else {
        bool is_okp = hx_slice_eq(kty, HX_LIT("OKP"));
        if ((!is_okp && !hx_slice_eq(kty, HX_LIT("EC"))) || !hx_json_pointer(jwk, HX_LIT("/crv"), &raw)) return false;
        for (size_t i = 0; i < CURVES; i++) {
            if (!hx_json_value_is(raw, hx_slice_of(curves[i].name))) continue;
            if (is_okp != (curves[i].type >= HX_JWT_ED25519)) continue;
            key->public_key = is_okp ? jwk_okp(jwk, curves[i].group, curves[i].bytes, arena)
                                     : jwk_ec(jwk, curves[i].group, curves[i].bytes, arena);
        }
    }
    return key->public_key && !classify(key->public_key, &key->type);
}

/* A member that is a string, or isn't there; false when it is anything else. */
static bool jwk_text(hx_slice jwk, const char *pointer, hx_arena *arena, bool *given, hx_slice *text)
{
    hx_slice raw;
    *given = hx_json_pointer(jwk, hx_slice_of(pointer), &raw);
    return !*given || hx_json_string(raw, arena, text);
}

/* `use` and `key_ops` say what a key is for. */
static bool is_for_verifying(hx_slice jwk, hx_arena *arena)
{
    hx_slice raw, operation, use;
    bool given;
    if (!jwk_text(jwk, "/use", arena, &given, &use)) return false;
    if (given && !hx_slice_eq(use, HX_LIT("sig"))) return false;
    if (!hx_json_pointer(jwk, HX_LIT("/key_ops"), &raw)) return true;
    for (size_t i = 0; i < 16 && hx_json_pointer(raw, hx_arena_printf(arena, "/%zu", i), &operation); i++)
        if (hx_json_value_is(operation, HX_LIT("verify"))) return true;
    return false;
}

/* False, with nothing in *key, when this one is to be skipped. */
static bool jwk_read(hx_slice jwk, hx_arena *arena, hx_jwt_key *key)
{
    hx_slice raw, kty, alg, kid = HX_EMPTY;
    bool has_alg;
    *key = (hx_jwt_key){.public_key = NULL};
    if (jwk.ptr[0] != '{' || !is_for_verifying(jwk, arena)) return false;
    if (!hx_json_pointer(jwk, HX_LIT("/kty"), &raw) || !hx_json_string(raw, arena, &kty)) return false;
    if (!jwk_text(jwk, "/alg", arena, &has_alg, &alg) || !jwk_text(jwk, "/kid", arena, &key->has_kid, &kid))
        return false;
    if (jwk_material(jwk, kty, arena, key)) key->allowed = algorithms_for(key, has_alg ? &alg : NULL);
    if (key->allowed == 0) {
        key_clear(key);
        return false;
    }
    if (!key->has_kid) return true;
    key->kid = malloc(kid.len + 1);
    HX_CHECK(key->kid != NULL);
    memcpy(key->kid, kid.ptr, kid.len);
    key->kid_len = kid.len;
    return true;
}

/* NULL, or what is wrong with it. */
static const char *jwks_read(hx_slice json, hx_arena *arena, hx_jwt_keys *keys)
{
    hx_slice list, jwk;
    if (!hx_json_is_clean_object(json, arena)) return "is not a JSON object, or has a member twice";
    if (!hx_json_pointer(json, HX_LIT("/keys"), &list)) {
        if (!hx_json_pointer(json, HX_LIT("/kty"), &jwk)) return "has neither `keys` nor `kty`: it is no JWKS document";
        if (!hx_json_pointer(json, HX_EMPTY, &jwk)) return "is no JSON";
        keys->count = jwk_read(jwk, arena, &keys->keys[0]) ? 1 : 0;
    } else {
        if (list.ptr[0] != '[') return "has `keys` that are no list";
        for (size_t i = 0; hx_json_pointer(list, hx_arena_printf(arena, "/%zu", i), &jwk); i++) {
            if (i == HX_JWT_KEYS_MAX) return "has more than 100 keys";
            if (jwk_read(jwk, arena, &keys->keys[keys->count])) keys->count++;
        }
    }
    return keys->count > 0
               ? NULL
               : "has no key that verifies signatures (RSA from 2048 bits on, P-256, P-384, P-521, Ed25519, "
                 "Ed448, or a secret of 32 bytes or more)";
}

hx_jwt_keys *hx_jwt_keys_from_jwks(hx_slice json, hx_error_text error)
{
    hx_arena arena = {0};
    hx_jwt_keys *keys = keys_new();
    const char *wrong = jwks_read(json, &arena, keys);
    if (wrong) {
        (void)hx_fail(error, "%s", wrong);
        hx_jwt_keys_free(&keys);
    }
    ERR_clear_error();
    hx_arena_free(&arena);
    return keys;
}

static EVP_PKEY *certificate_key(const unsigned char *der, long len)
{
    X509 *certificate = d2i_X509(NULL, &der, len);
    EVP_PKEY *key = certificate ? X509_get_pubkey(certificate) : NULL;
    X509_free(certificate);
    return key;
}

static EVP_PKEY *der_key(const unsigned char *der, long len, const char *structure)
{
    EVP_PKEY *key = NULL;
    size_t left = (size_t)len;
    OSSL_DECODER_CTX *context = OSSL_DECODER_CTX_new_for_pkey(&key, "DER", structure, NULL, EVP_PKEY_PUBLIC_KEY, NULL,
                                                              NULL);
    if (!context || OSSL_DECODER_from_data(context, &der, &left) != 1) key = NULL;
    OSSL_DECODER_CTX_free(context);
    return key;
}

static const char *pem_read(BIO *file, hx_jwt_key *key)
{
    char *label = NULL, *header = NULL;
    unsigned char *der = NULL;
    long len = 0;
    const char *wrong = NULL;
    if (PEM_read_bio(file, &label, &header, &der, &len) != 1)
        return "is no PEM file: it has no whole BEGIN … END block";
    if (strcmp(label, "CERTIFICATE") == 0 || strcmp(label, "X509 CERTIFICATE") == 0) {
        key->public_key = certificate_key(der, len);
    } else if (strcmp(label, "PUBLIC KEY") == 0) {
        key->public_key = der_key(der, len, "SubjectPublicKeyInfo");
    } else if (strcmp(label, "RSA PUBLIC KEY") == 0) {
        key->public_key = der_key(der, len, "type-specific");
    } else if (strstr(label, "PRIVATE KEY")) {
        wrong = "holds a private key: verifying needs, and should have, the public one only (openssl pkey -pubout)";
    } else {
        wrong = "holds neither a public key nor a certificate";
    }
    if (!wrong) wrong = key->public_key ? classify(key->public_key, &key->type) : "can't be decoded";
    OPENSSL_free(label);
    OPENSSL_free(header);
    OPENSSL_clear_free(der, (size_t)len);
    return wrong;
}

/* A chain's other certificates are its authorities', whose keys sign no tokens. */
static const char *pem_has_more(BIO *file)
{
    char *label = NULL, *header = NULL;
    unsigned char *der = NULL;
    long len = 0;
    if (PEM_read_bio(file, &label, &header, &der, &len) != 1) return NULL;
    OPENSSL_free(label);
    OPENSSL_free(header);
    OPENSSL_free(der);
    return "holds more than one key or certificate: leave one, or use a JWKS file for several";
}

hx_jwt_keys *hx_jwt_keys_from_pem(hx_slice pem, hx_error_text error)
{
    hx_jwt_keys *keys = keys_new();
    hx_jwt_key *key = &keys->keys[0];
    BIO *file = pem.len <= INT32_MAX ? BIO_new_mem_buf(pem.ptr, (int)pem.len) : NULL;
    HX_CHECK(file != NULL);
    const char *wrong = pem_read(file, key);
    if (!wrong) wrong = pem_has_more(file);
    keys->count = 1;
    key->allowed = wrong ? 0 : algorithms_for(key, NULL);
    BIO_free(file);
    ERR_clear_error();
    if (!wrong) return keys;
    (void)hx_fail(error, "%s", wrong);
    hx_jwt_keys_free(&keys);
    return NULL;
}

hx_jwt_keys *hx_jwt_keys_from_secret(hx_slice secret, hx_error_text error)
{
    if (hx_slice_starts(hx_slice_trim(secret), HX_LIT("-----BEGIN "))) {
        (void)hx_fail(error, "is a PEM file, whose public half anybody may know: use `key` for it");
        return NULL;
    }
    if (secret.len < SECRET_BYTES_MIN || secret.len > SECRET_BYTES_MAX) {
        (void)hx_fail(error, "holds a secret of %zu bytes; it has to be 32 to 65536 (RFC 7518, 3.2)", secret.len);
        return NULL;
    }
    hx_jwt_keys *keys = keys_new();
    bool copied = copy_secret(&keys->keys[0], secret);
    HX_CHECK(copied);
    keys->count = 1;
    keys->keys[0].allowed = algorithms_for(&keys->keys[0], NULL);
    return keys;
}

size_t hx_jwt_keys_count(const hx_jwt_keys *keys)
{
    return keys->count;
}

bool hx_jwt_keys_have_secret(const hx_jwt_keys *keys)
{
    for (size_t i = 0; i < keys->count; i++)
        if (keys->keys[i].secret) return true;
    return false;
}

hx_jwt_keys *hx_jwt_keys_share(const hx_jwt_keys *keys)
{
    hx_jwt_keys *shared = (hx_jwt_keys *)keys; /* its keys don't change, but its owners do */
    atomic_fetch_add_explicit(&shared->owners, 1, memory_order_relaxed);
    return shared;
}

void hx_jwt_keys_free(hx_jwt_keys **owned)
{
    hx_jwt_keys *keys = *owned;
    *owned = NULL;
    if (!keys || atomic_fetch_sub_explicit(&keys->owners, 1, memory_order_acq_rel) != 1) return;
    for (size_t i = 0; i < keys->count; i++) key_clear(&keys->keys[i]);
    free(keys);
}
