/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/query.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static hx_arena arena;

static int tear_down(void **state)
{
    (void)state;
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}

static const char *query(const char *text, hx_slice *stream, hx_slice *after)
{
    const hx_admin_word words[] = {{"stream", stream}, {"after", after}};
    return hx_admin_query(hx_slice_of(text), &arena, words, 2);
}

static void parameters_are_decoded(void **state)
{
    (void)state;
    hx_slice stream, after;
    assert_null(query("after=7&&stream=a%26b%3D+c&", &stream, &after));
    assert_true(hx_slice_eq(stream, HX_LIT("a&b=+c")));
    assert_true(hx_slice_eq(after, HX_LIT("7")));
    assert_null(query("", &stream, &after));
    assert_int_equal(stream.len + after.len, 0);
    assert_null(query("stream", &stream, &after));
    assert_int_equal(stream.len, 0);
}

static void what_is_not_meant_is_refused(void **state)
{
    (void)state;
    hx_slice stream, after;
    assert_string_equal(query("strem=a", &stream, &after), "there is no parameter \"strem\" here");
    assert_string_equal(query("after=1&stream=a&after=1", &stream, &after), "after is given twice");
    assert_string_equal(query("after=%4", &stream, &after), "the query has a broken % escape");
    assert_string_equal(query("after=%zz&strem=", &stream, &after), "the query has a broken % escape");
}

/* The cursor that a page gives, as a client would send it. */
static hx_slice cursor_of(const hx_item_page *page)
{
    hx_buf out;
    hx_buf_init(&out, &arena, HX_ADMIN_CURSOR_BYTES);
    hx_admin_put_cursor(&out, page);
    hx_slice text = hx_buf_slice(&out);
    const size_t name = sizeof("\"cursor\":\"") - 1;
    return text.len == 0 ? text : (hx_slice){text.ptr + name, text.len - name - 1};
}

static void a_page_goes_on_where_the_last_one_ended(void **state)
{
    (void)state;
    char key[HX_ITEM_KEY_MAX], queue[HX_ITEM_QUEUE_MAX]; /* the longest, with bytes of any value in the key */
    memset(key, '\0', sizeof key);
    memset(queue, 'q', sizeof queue);
    hx_item items[] = {{.key = HX_LIT("a"), .queue = HX_EMPTY},
                       {.key = {key, sizeof key}, .queue = {queue, sizeof queue}, .due = INT64_MAX}};
    hx_item_page page = {.items = items, .count = 2, .more = true}, next = {0};
    assert_null(hx_admin_page(HX_LIT("7"), cursor_of(&page), &arena, &next));
    assert_int_equal(next.items_max, 7);
    assert_true(hx_slice_eq(next.after.key, items[1].key));
    assert_true(hx_slice_eq(next.after.queue, items[1].queue));
    assert_true(next.after.due == INT64_MAX);
    page.count = 1;
    assert_null(hx_admin_page(HX_EMPTY, cursor_of(&page), &arena, &next));
    assert_int_equal(next.items_max, HX_ADMIN_PAGE_ITEMS);
    assert_true(hx_slice_eq(next.after.key, HX_LIT("a")));
    assert_int_equal(next.after.queue.len, 0);
    page.more = false;
    assert_int_equal(cursor_of(&page).len, 0);
}

static void a_cursor_from_elsewhere_is_refused(void **state)
{
    (void)state;
    hx_item_page page = {0};
    /* Not hexadecimal, half a byte, no key, a due time that is none, and a key or a queue that is too long. */
    static const char *const bad[] = {"x",          "zz",       "3",
                                      "30",         "3000",     "300000",
                                      "2d31000061", "00000061", "3939393939393939393939393939393939393939000061"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (!hx_admin_page(HX_EMPTY, hx_slice_of(bad[i]), &arena, &page)) fail_msg("%s was taken", bad[i]);
    char lengthy[2 * (HX_ITEM_KEY_MAX + 4) + 1] = "300000";
    memset(lengthy + 6, '6', 2 * HX_ITEM_KEY_MAX);
    assert_null(hx_admin_page(HX_EMPTY, hx_slice_of(lengthy), &arena, &page));
    memset(lengthy + 6, '6', 2 * (HX_ITEM_KEY_MAX + 1));
    assert_non_null(hx_admin_page(HX_EMPTY, hx_slice_of(lengthy), &arena, &page));
    memset(lengthy, '6', sizeof lengthy - 1);
    lengthy[0] = '3';
    memset(lengthy + 1, '0', 3);
    memset(lengthy + 4 + 2 * (HX_ITEM_QUEUE_MAX + 1), '0', 2);
    assert_non_null(hx_admin_page(HX_EMPTY, hx_slice_of(lengthy), &arena, &page));
    static const char *const limits[] = {"0", "1001", "-1", "x", "99999999999999999999"};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        assert_non_null(hx_admin_page(hx_slice_of(limits[i]), HX_EMPTY, &arena, &page));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_decoded),
        cmocka_unit_test(what_is_not_meant_is_refused),
        cmocka_unit_test(a_page_goes_on_where_the_last_one_ended),
        cmocka_unit_test(a_cursor_from_elsewhere_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
