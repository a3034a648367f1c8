/* SPDX-License-Identifier: Apache-2.0 */
#include "core/crypto/seal.h"

#include <stdarg.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

static const uint8_t secret[HX_SECRET_BYTES] = {1, 2, 3}, other[HX_SECRET_BYTES] = {3, 2, 1};

static void what_was_sealed_opens_and_nothing_else_does(void **unused)
{
    (void)unused;
    hx_arena arena = {0};
    hx_slice plain = HX_LIT("Authorization: Bearer hush"), opened;
    hx_slice sealed = hx_seal(secret, HX_LIT("request"), plain, &arena);
    assert_int_equal(sealed.len, plain.len + HX_SEAL_BYTES);
    assert_null(memmem(sealed.ptr, sealed.len, "hush", 4));
    assert_true(hx_seal_open(secret, HX_LIT("request"), sealed, &arena, &opened));
    assert_true(hx_slice_eq(opened, plain));
    assert_false(hx_seal_open(other, HX_LIT("request"), sealed, &arena, &opened));
    assert_false(hx_seal_open(secret, HX_LIT("response"), sealed, &arena, &opened));
    for (size_t i = 0; i < sealed.len; i++) {
        hx_slice copy = hx_arena_copy(&arena, sealed);
        ((char *)copy.ptr)[i] ^= 1;
        assert_false(hx_seal_open(secret, HX_LIT("request"), copy, &arena, &opened));
        assert_false(hx_seal_open(secret, HX_LIT("request"), hx_slice_first(sealed, i), &arena, &opened));
    }
    hx_arena_free(&arena);
}

static void nothing_can_be_sealed_and_no_two_are_alike(void **unused)
{
    (void)unused;
    hx_arena arena = {0};
    hx_slice opened, one = hx_seal(secret, HX_EMPTY, HX_EMPTY, &arena),
                     two = hx_seal(secret, HX_EMPTY, HX_EMPTY, &arena);
    assert_false(hx_slice_eq(one, two));
    assert_true(hx_seal_open(secret, HX_EMPTY, one, &arena, &opened));
    assert_int_equal(opened.len, 0);
    hx_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_sealed_opens_and_nothing_else_does),
        cmocka_unit_test(nothing_can_be_sealed_and_no_two_are_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
