/* SPDX-License-Identifier: Apache-2.0 */
/* A token is taken apart strictly, its signature is checked by the keys that fit, and only then do its claims count.
 * Nothing but the arena is touched, and nothing of OpenSSL's outlives a call, so that threads share a set freely. */
#include "core/token/jwt.h"

#include "core/token/base64.h"
#include "core/json/json.h"
#include "core/token/jwt_keys.h"

#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/rsa.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES_MAX 64u /* of exp and nbf */
#define AUDIENCES_MAX 100u

const hx_jwt_algorithm hx_jwt_algorithms[] = {
#define X(name, scheme, type, digest, bits) {name, HX_JWT_##scheme, HX_JWT_##type, digest, bits},
    HX_JWT_ALGORITHMS(X)
#undef X
};
const size_t hx_jwt_algorithm_count = sizeof hx_jwt_algorithms / sizeof *hx_jwt_algorithms;
_Static_assert(sizeof hx_jwt_algorithms / sizeof *hx_jwt_algorithms <= 32, "hx_jwt_key.allowed has a bit for each");

const char *hx_jwt_error_text(hx_jwt_error error)
{
    static const char *const texts[] = {
#define X(name, text) text,
        HX_JWT_ERRORS(X)
#undef X
    };
    return texts[error];
}

typedef struct {
    hx_slice signed_part; /* header and payload, as they came */
    hx_slice header;
    hx_slice payload;
    hx_slice signature;
} token_parts;

static bool take_apart(hx_slice token, hx_arena *arena, token_parts *parts)
{
    if (token.len > HX_JWT_BYTES_MAX) return false;
    size_t first = hx_slice_find(token, '.');
    if (first == SIZE_MAX || first == 0) return false;
    hx_slice rest = hx_slice_from(token, first + 1);
    size_t second = hx_slice_find(rest, '.');
    if (second == SIZE_MAX || second == 0) return false;
    parts->signed_part = hx_slice_first(token, first + 1 + second);
    /* A third dot, which an encrypted token has, is no digit of base64url. */
    return hx_base64url_decode(hx_slice_first(token, first), arena, &parts->header) &&
           hx_base64url_decode(hx_slice_first(rest, second), arena, &parts->payload) &&
           hx_base64url_decode(hx_slice_from(rest, second + 1), arena, &parts->signature) &&
           hx_json_is_clean_object(parts->header, arena) && hx_json_is_clean_object(parts->payload, arena);
}

typedef struct {
    hx_slice alg;
    hx_slice kid;
    bool has_kid;
} token_header;

static hx_jwt_error read_header(hx_slice json, hx_arena *arena, token_header *out)
{
    static const char *const refused[] = {"/crit", "/b64", "/enc", "/zip"};
    hx_slice raw;
    if (!hx_json_pointer(json, HX_LIT("/alg"), &raw) || !hx_json_string(raw, arena, &out->alg))
        return HX_JWT_NOT_A_TOKEN;
    out->has_kid = hx_json_pointer(json, HX_LIT("/kid"), &raw);
    if (out->has_kid && !hx_json_string(raw, arena, &out->kid)) return HX_JWT_NOT_A_TOKEN;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (hx_json_find(json, hx_slice_of(refused[i]), &raw) != HX_JSON_MISSING) return HX_JWT_UNSUPPORTED;
    for (size_t i = 0; i < hx_jwt_algorithm_count; i++)
        if (hx_slice_eq(out->alg, hx_slice_of(hx_jwt_algorithms[i].name))) return HX_JWT_OK;
    return HX_JWT_UNSUPPORTED;
}

static bool hmac_matches(const hx_jwt_algorithm *algorithm, const hx_jwt_key *key, const token_parts *parts)
{
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    if (!HMAC(algorithm->digest(), key->secret, (int)key->secret_len, (const unsigned char *)parts->signed_part.ptr,
              parts->signed_part.len, mac, &len))
        return false;
    return parts->signature.len == len && CRYPTO_memcmp(mac, parts->signature.ptr, len) == 0;
}

static size_t coordinate_bytes(hx_jwt_key_type type)
{
    return type == HX_JWT_P256 ? 32 : type == HX_JWT_P384 ? 48 : 66;
}

/* A token has r and s side by side in fixed width; OpenSSL wants them in DER. */
static bool ecdsa_to_der(hx_slice raw, size_t width, hx_arena *arena, hx_slice *der)
{
    if (raw.len != 2 * width) return false;
    const unsigned char *bytes = (const unsigned char *)raw.ptr;
    ECDSA_SIG *pair = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn(bytes, (int)width, NULL), *s = BN_bin2bn(bytes + width, (int)width, NULL);
    bool made = pair && r && s && ECDSA_SIG_set0(pair, r, s) == 1;
    if (!made) {
        BN_free(r);
        BN_free(s);
        ECDSA_SIG_free(pair);
        return false;
    }
    int len = i2d_ECDSA_SIG(pair, NULL);
    if (len > 0) {
        unsigned char *out = hx_arena_alloc(arena, (size_t)len), *end = out;
        made = i2d_ECDSA_SIG(pair, &end) == len;
        *der = (hx_slice){(char *)out, (size_t)len};
    }
    ECDSA_SIG_free(pair);
    return made && len > 0;
}

static bool public_key_verifies(const hx_jwt_algorithm *algorithm, const hx_jwt_key *key, const token_parts *parts,
                                hx_arena *arena)
{
    hx_slice signature = parts->signature;
    if (algorithm->scheme == HX_JWT_ECDSA && !ecdsa_to_der(signature, coordinate_bytes(key->type), arena, &signature))
        return false;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    EVP_PKEY_CTX *settings = NULL; /* the context's */
    const EVP_MD *digest = algorithm->digest ? algorithm->digest() : NULL;
    bool fine = context && EVP_DigestVerifyInit(context, &settings, digest, NULL, key->public_key) == 1;
    if (fine && algorithm->scheme == HX_JWT_PSS)
        fine = EVP_PKEY_CTX_set_rsa_padding(settings, RSA_PKCS1_PSS_PADDING) == 1 &&
               EVP_PKEY_CTX_set_rsa_pss_saltlen(settings, RSA_PSS_SALTLEN_DIGEST) == 1 &&
               EVP_PKEY_CTX_set_rsa_mgf1_md(settings, digest) == 1;
    fine = fine && EVP_DigestVerify(context, (const unsigned char *)signature.ptr, signature.len,
                                    (const unsigned char *)parts->signed_part.ptr, parts->signed_part.len) == 1;
    EVP_MD_CTX_free(context);
    return fine;
}

/* The algorithm of that name which this key allows, or NULL. */
static const hx_jwt_algorithm *allowed_by(const hx_jwt_key *key, hx_slice name)
{
    for (size_t i = 0; i < hx_jwt_algorithm_count; i++)
        if ((key->allowed >> i & 1) && hx_slice_eq(name, hx_slice_of(hx_jwt_algorithms[i].name)))
            return &hx_jwt_algorithms[i];
    return NULL;
}

/* Whether only the secret's length forbids the algorithm (RFC 7518, 3.2). */
static bool is_too_short(const hx_jwt_key *key, hx_slice name)
{
    size_t needed = hx_slice_eq(name, HX_LIT("HS384")) ? 48 : hx_slice_eq(name, HX_LIT("HS512")) ? 64 : 0;
    return key->type == HX_JWT_OCT && key->secret_len < needed && allowed_by(key, HX_LIT("HS256"));
}

static hx_jwt_error check_signature(const hx_jwt_keys *keys, const token_header *header, const token_parts *parts,
                                    hx_arena *arena)
{
    bool kid_known = false, verified = false, short_secret = false;
    unsigned tries = 0;
    for (size_t i = 0; i < keys->count && tries < HX_JWT_TRIES_MAX && !verified; i++) {
        const hx_jwt_key *key = &keys->keys[i];
        if (key->has_kid && header->has_kid) {
            if (!hx_slice_eq((hx_slice){key->kid, key->kid_len}, header->kid)) continue;
            kid_known = true;
        }
        const hx_jwt_algorithm *algorithm = allowed_by(key, header->alg);
        if (!algorithm && is_too_short(key, header->alg)) short_secret = true;
        if (!algorithm) continue;
        tries++;
        verified = algorithm->scheme == HX_JWT_HMAC ? hmac_matches(algorithm, key, parts)
                                                    : public_key_verifies(algorithm, key, parts, arena);
    }
    ERR_clear_error(); /* errors of a forged signature must not be taken for the next call's */
    if (verified) return HX_JWT_OK;
    if (tries == 0 && short_secret) return HX_JWT_SHORT_SECRET;
    return tries == 0 || (header->has_kid && !kid_known) ? HX_JWT_NO_KEY : HX_JWT_BAD_SIGNATURE;
}

/* A NumericDate (RFC 7519, 2) in milliseconds. A double holds those of the next 280,000 years exactly. */
static bool read_date(hx_slice raw, double *milliseconds)
{
    char text[NUMBER_BYTES_MAX + 1];
    bool is_number = raw.ptr[0] == '-' || (raw.ptr[0] >= '0' && raw.ptr[0] <= '9');
    if (!is_number || raw.len > NUMBER_BYTES_MAX) return false;
    memcpy(text, raw.ptr, raw.len);
    text[raw.len] = '\0';
    *milliseconds = strtod(text, NULL) * 1000.0;
    return true;
}

static hx_jwt_error check_dates(hx_slice payload, hx_ms leeway, hx_ms now)
{
    hx_slice raw;
    double at;
    if (hx_json_pointer(payload, HX_LIT("/exp"), &raw)) {
        if (!read_date(raw, &at)) return HX_JWT_BAD_CLAIMS;
        if ((double)now >= at + (double)leeway) return HX_JWT_EXPIRED;
    }
    if (hx_json_pointer(payload, HX_LIT("/nbf"), &raw)) {
        if (!read_date(raw, &at)) return HX_JWT_BAD_CLAIMS;
        if ((double)now < at - (double)leeway) return HX_JWT_NOT_YET;
    }
    return HX_JWT_OK;
}

hx_ms hx_jwt_valid_until(hx_slice payload, const hx_jwt_rules *rules)
{
    hx_slice raw;
    double at;
    if (!hx_json_pointer(payload, HX_LIT("/exp"), &raw) || !read_date(raw, &at)) return INT64_MAX;
    double until = at + (double)rules->leeway;
    return until < 9e15 ? (hx_ms)until : INT64_MAX; /* what a double holds exactly */
}

static bool is_string(hx_slice raw, hx_slice wanted)
{
    return raw.ptr[0] == '"' && hx_json_value_is(raw, wanted);
}

static bool is_for(hx_slice payload, hx_slice audience, hx_arena *arena)
{
    hx_slice raw, item;
    if (!hx_json_pointer(payload, HX_LIT("/aud"), &raw)) return false;
    if (raw.ptr[0] != '[') return is_string(raw, audience);
    for (size_t i = 0; i < AUDIENCES_MAX && hx_json_pointer(raw, hx_arena_printf(arena, "/%zu", i), &item); i++)
        if (is_string(item, audience)) return true;
    return false;
}

static hx_jwt_error check_claims(hx_slice payload, const hx_jwt_rules *rules, hx_ms now, hx_arena *arena)
{
    hx_slice raw;
    hx_jwt_error error = check_dates(payload, rules->leeway, now);
    if (error != HX_JWT_OK) return error;
    if (rules->issuer.len > 0 && !(hx_json_pointer(payload, HX_LIT("/iss"), &raw) && is_string(raw, rules->issuer)))
        return HX_JWT_BAD_ISSUER;
    return rules->audience.len == 0 || is_for(payload, rules->audience, arena) ? HX_JWT_OK : HX_JWT_BAD_AUDIENCE;
}

hx_jwt_error hx_jwt_verify(hx_slice token, const hx_jwt_keys *keys, const hx_jwt_rules *rules, hx_ms now,
                           hx_arena *arena, hx_slice *payload)
{
    token_parts parts;
    token_header header = {.kid = HX_EMPTY};
    if (!take_apart(token, arena, &parts)) return HX_JWT_NOT_A_TOKEN;
    hx_jwt_error error = read_header(parts.header, arena, &header);
    if (error == HX_JWT_NOT_A_TOKEN) return error;
    *payload = parts.payload;
    if (error == HX_JWT_OK) error = keys ? check_signature(keys, &header, &parts, arena) : HX_JWT_NO_KEY;
    return error == HX_JWT_OK ? check_claims(parts.payload, rules, now, arena) : error;
}

bool hx_jwt_payload(hx_slice token, hx_arena *arena, hx_slice *payload)
{
    token_parts parts;
    token_header header;
    if (!take_apart(token, arena, &parts) || read_header(parts.header, arena, &header) == HX_JWT_NOT_A_TOKEN)
        return false;
    *payload = parts.payload;
    return true;
}
