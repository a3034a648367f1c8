/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory/huge_pages.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#define PIECES 200u

static bool is_all(const unsigned char *piece, size_t bytes, unsigned char value)
{
    for (size_t i = 0; i < bytes; i++)
        if (piece[i] != value) return false;
    return true;
}

/* Pieces of all sizes, over several blocks: each is zeroed, aligned, and nobody else's. */
static void pieces_are_zeroed_aligned_and_apart(void **state)
{
    (void)state;
    hx_huge huge = {0};
    unsigned char *pieces[PIECES];
    size_t sizes[PIECES], sum = 0;
    uint32_t random = 4711;
    for (unsigned i = 0; i < PIECES; i++) {
        random = random * 1664525u + 1013904223u;
        sizes[i] = i == 0 ? 0 : i == 1 ? 1 : i % 10 == 2 ? HX_HUGE_BYTES_MAX : (random >> 8) % 40000;
        pieces[i] = hx_huge_take(&huge, sizes[i]);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % 64, 0);
        if (!is_all(pieces[i], sizes[i], 0)) fail_msg("piece %u isn't zeroed", i);
        memset(pieces[i], (int)(i % 255 + 1), sizes[i]);
        sum += sizes[i];
    }
    assert_true(sum > (size_t)16 << 20); /* more than a few blocks */
    for (unsigned i = 0; i < PIECES; i++)
        if (!is_all(pieces[i], sizes[i], (unsigned char)(i % 255 + 1))) fail_msg("piece %u was written over", i);
    hx_huge_free(&huge);
    assert_true(huge.blocks == NULL && huge.used == 0);
}

static void what_was_freed_can_be_taken_from_again(void **state)
{
    (void)state;
    hx_huge huge = {0};
    hx_huge_free(&huge); /* nothing was taken */
    for (int round = 0; round < 3; round++) {
        unsigned char *piece = hx_huge_take(&huge, HX_HUGE_BYTES_MAX);
        assert_non_null(piece);
        assert_true(is_all(piece, HX_HUGE_BYTES_MAX, 0));
        memset(piece, 0xff, HX_HUGE_BYTES_MAX);
        hx_huge_free(&huge);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_zeroed_aligned_and_apart),
        cmocka_unit_test(what_was_freed_can_be_taken_from_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
