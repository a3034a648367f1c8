/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

static void allocations_are_aligned_and_do_not_overlap(void **state)
{
    (void)state;
    hx_arena arena = {0};
    char *seen[200];
    for (size_t i = 0; i < 200; i++) {
        seen[i] = hx_arena_alloc(&arena, i * 17);
        assert_int_equal((uintptr_t)seen[i] % 16, 0);
        memset(seen[i], (int)i, i * 17);
    }
    for (size_t i = 0; i < 200; i++)
        for (size_t j = 0; j < i * 17; j++) assert_int_equal((unsigned char)seen[i][j], i);
    hx_arena_free(&arena);
    hx_arena_pool_drain();
}

static void the_newest_allocation_can_grow_where_it_stands(void **state)
{
    (void)state;
    hx_arena arena = {0};
    char *first = hx_arena_alloc(&arena, 100);
    assert_true(hx_arena_extend(&arena, first, 100, 1000));
    char *second = hx_arena_alloc(&arena, 10);
    assert_true(second >= first + 1000);
    assert_false(hx_arena_extend(&arena, first, 1000, 2000));
    assert_false(hx_arena_extend(&arena, second, 10, HX_ARENA_BLOCK_BYTES));
    hx_arena_free(&arena);
    hx_arena_pool_drain();
}

static void printf_and_copies_are_whole(void **state)
{
    (void)state;
    hx_arena arena = {0};
    hx_slice text = hx_arena_printf(&arena, "%s-%d", "refund", 7);
    assert_true(hx_slice_eq(text, HX_LIT("refund-7")));
    assert_string_equal(hx_arena_terminated(&arena, hx_slice_first(text, 6)), "refund");
    assert_int_equal(hx_arena_copy(&arena, HX_EMPTY).len, 0);
    hx_arena_free(&arena);
    hx_arena_pool_drain();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_aligned_and_do_not_overlap),
        cmocka_unit_test(the_newest_allocation_can_grow_where_it_stands),
        cmocka_unit_test(printf_and_copies_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
