/* SPDX-License-Identifier: Apache-2.0 */
/* The first byte says what the rest is: a token, a JWKS document, a PEM file, or a payload. No token that isn't one of
 * the two which the key here has made is valid, and what a claim names opens with its kind. */
#include "base/check.h"
#include "core/operation/identity.h"
#include "core/token/jwt.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char secret[] = "0123456789abcdef0123456789abcdef";

static void check_token(hx_slice token, hx_arena *arena)
{
    static hx_jwt_keys *keys;
    const hx_jwt_rules rules = {.issuer = HX_EMPTY, .audience = HX_EMPTY};
    hx_error_text error;
    hx_slice payload, unverified;
    if (!keys) keys = hx_jwt_keys_from_secret(hx_slice_of(secret), error);
    HX_CHECK(keys != NULL);
    hx_jwt_error result = hx_jwt_verify(token, keys, &rules, 0, arena, &payload);
    bool is_token = hx_jwt_payload(token, arena, &unverified);
    HX_CHECK(is_token == (result != HX_JWT_NOT_A_TOKEN));
    if (is_token) HX_CHECK(hx_slice_eq(payload, unverified) && payload.len >= 2);
    /* Valid ones are in the corpus; a changed one would be a forgery. */
    if (result == HX_JWT_OK)
        HX_CHECK(hx_slice_eq(payload, HX_LIT("{\"sub\":\"alice\"}")) ||
                 hx_slice_eq(payload, HX_LIT("{\"iss\":\"joe\",\"sub\":\"bob\",\"exp\":4102444800}")));
}

static void check_keys(hx_jwt_keys *keys, const char *error)
{
    if (keys) {
        HX_CHECK(hx_jwt_keys_count(keys) > 0 && hx_jwt_keys_count(keys) <= HX_JWT_KEYS_MAX);
    } else {
        HX_CHECK(strlen(error) > 0 && strlen(error) < sizeof(hx_error_text));
    }
    hx_jwt_keys_free(&keys);
}

static void check_claim(hx_slice payload, hx_arena *arena)
{
    hx_identity who;
    bool found = hx_identity_of_claim(payload, HX_LIT("tenant"), arena, &who);
    HX_CHECK(found == (who.principal.len > 0) && who.proof.len == 0);
    if (found) HX_CHECK(memcmp(who.principal.ptr, "claim", sizeof "claim") == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hx_arena arena = {0};
    hx_error_text error = "";
    if (size == 0) return 0;
    hx_slice rest = {(const char *)data + 1, size - 1};
    switch (data[0]) {
    case 'j': check_keys(hx_jwt_keys_from_jwks(rest, error), error); break;
    case 'p': check_keys(hx_jwt_keys_from_pem(rest, error), error); break;
    case 'c': check_claim(rest, &arena); break;
    default: check_token(rest, &arena); break;
    }
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}
