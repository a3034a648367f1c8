/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

static void assert_text(hx_slice text, const char *expected)
{
    if (!hx_slice_eq(text, hx_slice_of(expected))) fail_msg("\"%.*s\" is not \"%s\"", HX_FMT(text), expected);
}

/* In memory of just its size, so that a sanitizer sees a step too far. */
static hx_slice alone(const char *text)
{
    hx_slice whole = hx_slice_of(text);
    char *copy = malloc(whole.len > 0 ? whole.len : 1);
    assert_non_null(copy);
    memcpy(copy, whole.ptr, whole.len);
    return (hx_slice){copy, whole.len};
}

static void letters_are_lowered_and_nothing_else(void **state)
{
    (void)state;
    hx_arena arena = {0};
    hx_slice plain = HX_LIT("x-[@`{ \xc3\x84");
    assert_ptr_equal(hx_text_lower(plain, &arena).ptr, plain.ptr);
    assert_text(hx_text_lower(HX_LIT("X-aZ[@`{ \xc3\x84"), &arena), "x-az[@`{ \xc3\x84");
    assert_text(hx_text_lower(HX_EMPTY, &arena), "");
    hx_arena_free(&arena);
}

static void a_host_is_spelled_in_one_way(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"Shop.Example", "shop.example"},
                                          {"shop.example:80", "shop.example"},
                                          {"shop.example:", "shop.example"},
                                          {"shop.example:8080", "shop.example:8080"},
                                          {"shop.example:080", "shop.example:080"},
                                          {"[::1]", "[::1]"},
                                          {"[::1]:80", "[::1]"},
                                          {"[FE::80]", "[fe::80]"},
                                          {"10.0.0.80", "10.0.0.80"},
                                          {"80", "80"},
                                          {"", ""}};
    hx_arena arena = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_text(hx_text_host(hx_slice_of(rows[i][0]), HX_LIT("80"), &arena), rows[i][1]);
    hx_arena_free(&arena);
}

static void percent_escapes_are_decoded(void **state)
{
    (void)state;
    static const struct {
        const char *text, *plain, *form; /* NULL: refused */
    } rows[] = {
        {"", "", ""},
        {"a b", "a b", "a b"},
        {"a+b", "a+b", "a b"},
        {"%41%7a%5A", "AzZ", "AzZ"},
        {"%2B+", "++", "+ "},
        {"%c3%A4", "\xc3\xa4", "\xc3\xa4"},
        {"%2541", "%41", "%41"},
        {"%", NULL, NULL},
        {"a%4", NULL, NULL},
        {"%4g", NULL, NULL},
        {"%g4", NULL, NULL},
        {"%%41", NULL, NULL},
    };
    hx_arena arena = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        hx_slice text = alone(rows[i].text), decoded;
        for (int form = 0; form < 2; form++) {
            const char *expected = form ? rows[i].form : rows[i].plain;
            bool good = hx_text_percent_decode(text, form, &arena, &decoded);
            if (good != (expected != NULL)) fail_msg("%s", rows[i].text);
            if (good) assert_text(decoded, expected);
        }
        free((char *)text.ptr);
    }
    hx_slice plain = HX_LIT("a+b"), decoded;
    assert_true(hx_text_percent_decode(plain, false, &arena, &decoded));
    assert_ptr_equal(decoded.ptr, plain.ptr);
    hx_arena_free(&arena);
}

static void quoted_strings_are_taken_off_the_front(void **state)
{
    (void)state;
    static const struct {
        const char *text, *value, *rest; /* NULL: refused */
    } rows[] = {
        {"\"\"", "", ""},
        {"\"a, b\";c", "a, b", ";c"},
        {"\"a\\\"b\\\\\" x", "a\"b\\", " x"},
        {"\"\\a\"\"b\"", "a", "\"b\""},
        {"\"", NULL, NULL},
        {"\"a", NULL, NULL},
        {"\"a\\", NULL, NULL},
        {"\"a\\\"", NULL, NULL},
    };
    hx_arena arena = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        hx_slice text = alone(rows[i].text), rest = text, value;
        bool good = hx_text_take_quoted(&rest, &arena, &value);
        if (good != (rows[i].value != NULL)) fail_msg("%s", rows[i].text);
        if (good) {
            assert_text(value, rows[i].value);
            assert_text(rest, rows[i].rest);
        }
        free((char *)text.ptr);
    }
    hx_arena_free(&arena);
}

static int drain(void **state)
{
    (void)state;
    hx_arena_pool_drain();
    return 0;
}

static void what_is_percent_encoded_decodes_to_itself(void **state)
{
    (void)state;
    hx_arena arena = {0};
    char bytes[256];
    for (int i = 0; i < 256; i++) bytes[i] = (char)i;
    hx_slice all = {bytes, sizeof bytes}, decoded;
    hx_buf text;
    hx_buf_init(&text, &arena, 3 * sizeof bytes);
    hx_text_percent_put(&text, all);
    assert_true(hx_text_percent_decode(hx_buf_slice(&text), true, &arena, &decoded) && hx_slice_eq(decoded, all));
    text.len = 0;
    hx_text_percent_put(&text, HX_LIT("a-Z_0.~/\xc3"));
    assert_text(hx_buf_slice(&text), "a-Z_0.~%2F%C3");
    hx_arena_free(&arena);
}

static void header_lines_come_one_by_one(void **state)
{
    (void)state;
    static const struct {
        const char *line, *name, *value;
    } expected[] = {
        {"Age: 7\r\n", "Age", "7"},
        {"Vary:\tOrigin \n", "Vary", "Origin"},
        {"no colon\r\n", "", ""},
        {":\r\n", "", ""},
        {"Location: http://[::1]:80/\r\n", "Location", "http://[::1]:80/"},
        {"X: last", "X", "last"},
    };
    hx_slice rest = HX_LIT("Age: 7\r\nVary:\tOrigin \nno colon\r\n:\r\nLocation: http://[::1]:80/\r\nX: last");
    hx_text_header header;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_true(hx_text_next_header(&rest, &header));
        assert_text(header.line, expected[i].line);
        assert_text(header.name, expected[i].name);
        assert_text(header.value, expected[i].value);
    }
    assert_false(hx_text_next_header(&rest, &header));
    assert_false(hx_text_split_header(HX_LIT("no colon"), &header));
    assert_true(hx_text_split_header(HX_LIT("A:b\r"), &header));
    assert_text(header.value, "b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_is_spelled_in_one_way),
        cmocka_unit_test(letters_are_lowered_and_nothing_else),
        cmocka_unit_test(percent_escapes_are_decoded),
        cmocka_unit_test(quoted_strings_are_taken_off_the_front),
        cmocka_unit_test(what_is_percent_encoded_decodes_to_itself),
        cmocka_unit_test(header_lines_come_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, drain);
}
