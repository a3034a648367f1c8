/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static void fill_to_the_limit(hx_arena *arena)
{
    hx_buf buf;
    hx_buf_init(&buf, arena, 1000);
    for (int i = 0; i < 100; i++) assert_true(hx_buf_append(&buf, HX_LIT("0123456789")));
    assert_false(hx_buf_byte(&buf, 'x'));
    assert_int_equal(buf.len, 1000);
    for (size_t i = 0; i < 1000; i++) assert_int_equal(buf.data[i], '0' + (char)(i % 10));
    hx_buf_consume(&buf, 995);
    assert_true(hx_slice_eq(hx_buf_slice(&buf), HX_LIT("56789")));
    hx_buf_free(&buf);
}

static void a_buffer_refuses_what_passes_its_limit(void **state)
{
    (void)state;
    hx_arena arena = {0};
    fill_to_the_limit(NULL);
    fill_to_the_limit(&arena);
    hx_arena_free(&arena);
    hx_arena_pool_drain();
}

static void formatted_text_is_appended_whole_or_not_at_all(void **state)
{
    (void)state;
    hx_buf buf;
    hx_buf_init(&buf, NULL, 16);
    assert_true(hx_buf_printf(&buf, "%s", "12345678"));
    assert_false(hx_buf_printf(&buf, "%s", "123456789"));
    assert_true(hx_slice_eq(hx_buf_slice(&buf), HX_LIT("12345678")));
    hx_buf_free(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_refuses_what_passes_its_limit),
        cmocka_unit_test(formatted_text_is_appended_whole_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
