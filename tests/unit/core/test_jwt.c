/* SPDX-License-Identifier: Apache-2.0 */
/* The examples of RFC 7515, and one set of keys used by many threads. test_jwt.py has the forgeries. */
#include "core/token/jwt.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#define PAYLOAD "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
#define MEANS "{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n \"http://example.com/is_root\":true}"
#define EXPIRES (1300819380 * HX_SECOND)
#define THREADS 4
#define ROUNDS 200

/* Appendices A.1, A.2 and A.3. */
static const struct {
    const char *jwk;
    const char *token;
} examples[] = {
    {"{\"kty\":\"oct\",\"k\":"
     "\"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow\"}",
     "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9." PAYLOAD ".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"},
    {"{\"kty\":\"RSA\",\"n\":\"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1"
     "Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e"
     "-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2"
     "ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ\",\"e\":\"AQAB\"}",
     "eyJhbGciOiJSUzI1NiJ9." PAYLOAD
     ".cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUA"
     "r7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--"
     "xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_Io"
     "ypGlUPQGe77Rw"},
    {"{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","
     "\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}",
     "eyJhbGciOiJFUzI1NiJ9." PAYLOAD
     ".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"},
};
#define EXAMPLES (sizeof examples / sizeof *examples)

static hx_jwt_keys *all_keys(void)
{
    hx_arena arena = {0};
    hx_error_text error;
    hx_slice set = hx_arena_printf(&arena, "{\"keys\":[%s,%s,%s]}", examples[0].jwk, examples[1].jwk, examples[2].jwk);
    hx_jwt_keys *keys = hx_jwt_keys_from_jwks(set, error);
    if (!keys) fail_msg("%s", error);
    hx_arena_free(&arena);
    return keys;
}

/* Another signature, as well written. */
static hx_slice forged(hx_slice token, hx_arena *arena)
{
    char *copy = hx_arena_terminated(arena, token);
    char *signature = strrchr(copy, '.') + 1;
    *signature = *signature == 'A' ? 'B' : 'A';
    return (hx_slice){copy, token.len};
}

static void the_examples_of_the_standard_are_verified(void **state)
{
    (void)state;
    const hx_jwt_rules rules = {.issuer = HX_LIT("joe"), .audience = HX_EMPTY};
    hx_arena arena = {0};
    hx_jwt_keys *keys = all_keys();
    assert_int_equal(hx_jwt_keys_count(keys), EXAMPLES);
    assert_true(hx_jwt_keys_have_secret(keys));
    for (size_t i = 0; i < EXAMPLES; i++) {
        hx_slice payload, token = hx_slice_of(examples[i].token);
        assert_int_equal(hx_jwt_verify(token, keys, &rules, EXPIRES - 1, &arena, &payload), HX_JWT_OK);
        assert_true(hx_slice_eq(payload, HX_LIT(MEANS)));
        assert_int_equal(hx_jwt_verify(token, keys, &rules, EXPIRES, &arena, &payload), HX_JWT_EXPIRED);
        token = forged(token, &arena);
        assert_int_equal(hx_jwt_verify(token, keys, &rules, EXPIRES - 1, &arena, &payload), HX_JWT_BAD_SIGNATURE);
    }
    hx_jwt_keys_free(&keys);
    assert_null(keys);
    hx_arena_free(&arena);
}

static void public_keys_are_no_secret(void **state)
{
    (void)state;
    hx_error_text error;
    hx_jwt_keys *keys = hx_jwt_keys_from_jwks(hx_slice_of(examples[1].jwk), error);
    assert_non_null(keys);
    assert_false(hx_jwt_keys_have_secret(keys));
    hx_jwt_keys_free(&keys);
}

static void every_error_has_its_sentence(void **state)
{
    (void)state;
    for (hx_jwt_error error = HX_JWT_OK; error <= HX_JWT_BAD_AUDIENCE; error++) {
        const char *text = hx_jwt_error_text(error);
        assert_true(strlen(text) > 10 && text[strlen(text) - 1] == '.');
    }
}

static _Atomic size_t failed;

/* Verifies with a share of its own, which it frees: the last thread to end frees the set. */
static void *verify_often(void *context)
{
    const hx_jwt_rules rules = {.issuer = HX_EMPTY, .audience = HX_EMPTY};
    hx_jwt_keys *keys = context;
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < EXAMPLES; i++) {
            hx_arena arena = {0};
            hx_slice payload;
            hx_jwt_keys *mine = hx_jwt_keys_share(keys);
            hx_slice token = hx_slice_of(examples[i].token);
            failed += hx_jwt_verify(token, mine, &rules, 0, &arena, &payload) != HX_JWT_OK;
            token = forged(token, &arena);
            failed += hx_jwt_verify(token, mine, &rules, 0, &arena, &payload) != HX_JWT_BAD_SIGNATURE;
            hx_jwt_keys_free(&mine);
            hx_arena_free(&arena);
        }
    }
    hx_jwt_keys_free(&keys);
    hx_arena_pool_drain();
    return NULL;
}

static void threads_share_a_set(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    hx_jwt_keys *keys = all_keys();
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, verify_often, hx_jwt_keys_share(keys)), 0);
    hx_jwt_keys_free(&keys);
    for (size_t i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_examples_of_the_standard_are_verified),
        cmocka_unit_test(public_keys_are_no_secret),
        cmocka_unit_test(every_error_has_its_sentence),
        cmocka_unit_test(threads_share_a_set),
    };
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    hx_arena_pool_drain();
    return result;
}
