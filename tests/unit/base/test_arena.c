/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory/arena.h"

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

static void any_allocation_can_grow_and_keeps_its_bytes(void **state)
{
    (void)state;
    hx_arena arena = {0};
    size_t sizes[] = {100, 5000, 9000, 100000, 3000000};
    char *grown = hx_arena_alloc(&arena, sizes[0]), *other = NULL;
    memset(grown, 'a', sizes[0]);
    for (size_t i = 1; i < sizeof sizes / sizeof *sizes; i++) {
        other = hx_arena_alloc(&arena, 20000); /* so that it isn't the newest */
        memset(other, 'b', 20000);
        grown = hx_arena_grow(&arena, grown, sizes[i - 1], sizes[i]);
        for (size_t k = 0; k < sizes[i - 1]; k++) assert_int_equal(grown[k], 'a');
        memset(grown, 'a', sizes[i]);
    }
    for (size_t k = 0; k < 20000; k++) assert_int_equal(other[k], 'b');
    hx_arena_free(&arena);
    hx_arena_pool_drain();
}

static void note_end(void *what)
{
    char **at = *(char ***)what;
    *(*at)++ = *((char *)what + sizeof(char **));
}

static void what_goes_with_an_arena_ends_once_the_newest_first(void **state)
{
    (void)state;
    hx_arena arena = {0};
    char seen[4] = "", *next = seen;
    for (int c = 'a'; c < 'd'; c++) {
        struct {
            char **at;
            char name;
        } *mark = hx_arena_alloc(&arena, sizeof *mark);
        mark->at = &next;
        mark->name = (char)c;
        hx_arena_at_end(&arena, note_end, mark);
    }
    hx_arena_free(&arena);
    assert_string_equal(seen, "cba");
    hx_arena_free(&arena);
    assert_string_equal(seen, "cba");
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
        cmocka_unit_test(any_allocation_can_grow_and_keeps_its_bytes),
        cmocka_unit_test(what_goes_with_an_arena_ends_once_the_newest_first),
        cmocka_unit_test(printf_and_copies_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
