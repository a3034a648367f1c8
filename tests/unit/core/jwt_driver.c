/* SPDX-License-Identifier: Apache-2.0 */
/* Reads lines of seven words: what the keys are (`jwks`, `pem`, `secret`, `none`), then in hexadecimal the keys, a
 * token, an issuer and an audience, then leeway and now in milliseconds. Answers each with a line: the error's name and
 * the payload in hexadecimal; or `keys` and why they weren't taken. test_jwt.py makes the tokens. */
#include "base/check.h"
#include "base/hex.h"
#include "core/token/jwt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const error_names[] = {
#define X(name, text) #name,
    HX_JWT_ERRORS(X)
#undef X
};

/* Each word has memory of just its size, so that a sanitizer sees a step too far. */
static char *decode(hx_slice hex)
{
    size_t len = hex.len / 2;
    char *bytes = malloc(len > 0 ? len : 1);
    HX_CHECK(bytes != NULL);
    for (size_t i = 0; i < len; i++) bytes[i] = (char)hx_hex_byte(hex.ptr + 2 * i);
    return bytes;
}

static hx_jwt_keys *load(hx_slice kind, hx_slice keys, hx_error_text error)
{
    if (hx_slice_eq(kind, HX_LIT("jwks"))) return hx_jwt_keys_from_jwks(keys, error);
    if (hx_slice_eq(kind, HX_LIT("pem"))) return hx_jwt_keys_from_pem(keys, error);
    return hx_jwt_keys_from_secret(keys, error);
}

static void answer(hx_slice kind, const hx_slice words[4], const hx_jwt_rules *rules, hx_ms now)
{
    hx_error_text error = "";
    hx_arena arena = {0};
    hx_slice payload = HX_EMPTY, unverified;
    bool has_keys = !hx_slice_eq(kind, HX_LIT("none"));
    hx_jwt_keys *keys = has_keys ? load(kind, words[0], error) : NULL;
    if (has_keys && !keys) {
        (void)printf("keys %s\n", error);
        return;
    }
    hx_jwt_error result = hx_jwt_verify(words[1], keys, rules, now, &arena, &payload);
    bool decoded = hx_jwt_payload(words[1], &arena, &unverified);
    HX_CHECK(decoded == (result != HX_JWT_NOT_A_TOKEN));
    HX_CHECK(!decoded || hx_slice_eq(payload, unverified));
    HX_CHECK(strlen(hx_jwt_error_text(result)) > 0);
    (void)printf("%s ", error_names[result]);
    for (size_t i = 0; i < payload.len; i++) (void)printf("%02x", (unsigned char)payload.ptr[i]);
    (void)puts("");
    hx_jwt_keys_free(&keys);
    hx_arena_free(&arena);
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    while ((len = getline(&line, &cap, stdin)) > 0) {
        hx_slice rest = {line, (size_t)len - 1}, kind, word, words[4];
        char *memory[4];
        bool there = hx_slice_next(&rest, ' ', &kind);
        for (int i = 0; i < 4; i++) {
            there = there && hx_slice_next(&rest, ' ', &word);
            HX_CHECK(there);
            memory[i] = decode(word);
            words[i] = (hx_slice){memory[i], word.len / 2};
        }
        char *end;
        hx_ms leeway = strtoll(rest.ptr, &end, 10), now = strtoll(end, NULL, 10);
        answer(kind, words, &(hx_jwt_rules){.issuer = words[2], .audience = words[3], .leeway = leeway}, now);
        for (int i = 0; i < 4; i++) free(memory[i]);
        (void)fflush(stdout);
    }
    free(line);
    hx_arena_pool_drain();
    return ferror(stdin) != 0;
}
