/* SPDX-License-Identifier: Apache-2.0 */
#include "core/json/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

static bool canonical(hx_slice text, hx_arena *arena, hx_slice *result)
{
    hx_buf out;
    hx_buf_init(&out, arena, HX_JSON_CANONICAL_BYTES(text.len));
    bool clean = hx_json_canonical(text, arena, &out);
    *result = hx_buf_slice(&out);
    return clean;
}

static void becomes(const char *text, const char *expected)
{
    hx_arena arena = {0};
    hx_slice result;
    if (!canonical(hx_slice_of(text), &arena, &result)) fail_msg("%s was not taken", text);
    if (!hx_slice_eq(result, hx_slice_of(expected))) fail_msg("%s became %.*s, not %s", text, HX_FMT(result), expected);
    hx_arena_free(&arena);
}

static void is_not_clean_slice(hx_slice text)
{
    hx_arena arena = {0};
    hx_slice result;
    if (canonical(text, &arena, &result)) fail_msg("%.*s was taken", HX_FMT(text));
    assert_int_equal(result.len, 0);
    hx_arena_free(&arena);
}

static void is_not_clean(const char *text)
{
    is_not_clean_slice(hx_slice_of(text));
}

static void members_are_sorted_and_space_is_dropped(void **state)
{
    (void)state;
    becomes(" { \"b\" : 1 , \"a\" : [ 1 , { \"d\" : null , \"c\" : true } ] , \"\" : false }\r\n\t",
            "{\"\":false,\"a\":[1,{\"c\":true,\"d\":null}],\"b\":1}");
    becomes("{}", "{}");
    becomes("[ ]", "[]");
    becomes("[[],{},[{}]]", "[[],{},[{}]]");
    becomes("\"x\"", "\"x\"");
    becomes(" -0 ", "0");
    becomes("{\"amount\":19.990,\"a\":1e2}", "{\"a\":100,\"amount\":19.99}");
    becomes("{\"aa\":1,\"a\":2,\"ab\":3}", "{\"a\":2,\"aa\":1,\"ab\":3}");
}

/* The example of RFC 8785, 3.2.3: U+10000 and above sort by their surrogates, before U+FB33. */
static void members_are_sorted_by_utf_16_code_units(void **state)
{
    (void)state;
    becomes("{\"\\u20ac\":\"Euro Sign\",\"\\r\":\"Carriage Return\",\"\\ufb33\":\"Hebrew Letter Dalet With Dagesh\","
            "\"1\":\"One\",\"\\ud83d\\ude00\":\"Emoji: Grinning Face\",\"\\u0080\":\"Control\","
            "\"\\u00f6\":\"Latin Small Letter O With Diaeresis\"}",
            "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\xc2\x80\":\"Control\","
            "\"\xc3\xb6\":\"Latin Small Letter O With Diaeresis\",\"\xe2\x82\xac\":\"Euro Sign\","
            "\"\xf0\x9f\x98\x80\":\"Emoji: Grinning Face\",\"\xef\xac\xb3\":\"Hebrew Letter Dalet With Dagesh\"}");
    becomes("{\"\xee\x80\x80\":1,\"\xf4\x8f\xbf\xbf\":2,\"\xed\x9f\xbf\":3}",
            "{\"\xed\x9f\xbf\":3,\"\xf4\x8f\xbf\xbf\":2,\"\xee\x80\x80\":1}");
    becomes("{\"\xf1\x80\x80\x80\":1,\"\xf0\x90\x80\x80\":2,\"\xef\xbf\xbd\":3,\"\xee\x80\x80\":4}",
            "{\"\xf0\x90\x80\x80\":2,\"\xf1\x80\x80\x80\":1,\"\xee\x80\x80\":4,\"\xef\xbf\xbd\":3}");
    /* Compared as they mean, not as they are written: a quote comes before a digit. */
    becomes("{\"1\":1,\"\\\"\":2}", "{\"\\\"\":2,\"1\":1}");
}

static void strings_are_escaped_as_rfc_8785_has_it(void **state)
{
    (void)state;
    becomes("\"\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\\"\\/\"",
            "\"\xe2\x82\xac$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"");
    becomes("\"\\b\\f\\n\\r\\t\\u0008\\u000C\\u000b\\u001f\\u007f\\u0000\"",
            "\"\\b\\f\\n\\r\\t\\b\\f\\u000b\\u001f\x7f\\u0000\"");
    becomes("\"\\u00e9\\ud834\\udd1e\\u2028\"", "\"\xc3\xa9\xf0\x9d\x84\x9e\xe2\x80\xa8\"");
}

static void a_member_twice_is_not_clean(void **state)
{
    (void)state;
    is_not_clean("{\"a\":1,\"a\":2}");
    is_not_clean("{\"a\":1,\"b\":2,\"a\":1}");
    is_not_clean("{\"a\":1,\"\\u0061\":2}");
    is_not_clean("[{\"x\":{\"b\":1,\"a\":1,\"b\":1}}]");
    becomes("{\"a\":{\"a\":{\"a\":1}},\"b\":[{\"a\":1},{\"a\":2}]}",
            "{\"a\":{\"a\":{\"a\":1}},\"b\":[{\"a\":1},{\"a\":2}]}");
}

static const char *const not_rfc_8259[] = {
    "",
    " ",
    "{",
    "}",
    "[",
    "]",
    "[1",
    "[1,",
    "[1,]",
    "[,1]",
    "[1 2]",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{,}",
    "{a:1}",
    "{1:1}",
    "{\"a\":1 \"b\":2}",
    "{\"a\":1]",
    "[1}",
    "{'a':1}",
    "1 2",
    "{}{}",
    "[]]",
    "nul",
    "nulls",
    "True",
    "tru",
    "truefalse",
    "NaN",
    "Infinity",
    "-",
    "-a",
    "+1",
    "01",
    "-01",
    "1.",
    ".5",
    "1.e1",
    "1e",
    "1e+",
    "1e1.5",
    "0x10",
    "1_000",
    "\"",
    "\"a",
    "\"\\\"",
    "\"\\",
    "\"\\x\"",
    "\"\\u12\"",
    "\"\\u12g4\"",
    "\"\\U0041\"",
    "\"a\nb\"",
    "\"\t\"",
    "'a'",
    "// c\n1",
    "/**/1",
    "[1]//",
    "\xef\xbb\xbf{}",
    "\"a\"b",
    "[\"a\":1]",
    "{\"a\":1:2}",
    "{\"a\",1}",
    ",",
    ":",
};

static void what_rfc_8259_does_not_allow_is_not_clean(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof not_rfc_8259 / sizeof *not_rfc_8259; i++) is_not_clean(not_rfc_8259[i]);
    is_not_clean_slice((hx_slice){"[1\0]", 4});
    is_not_clean_slice((hx_slice){"\"\0\"", 3});
    is_not_clean_slice((hx_slice){"1\0", 2});
    is_not_clean_slice((hx_slice){NULL, 0});
}

static void broken_unicode_is_not_clean(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "\"\xff\"",
        "\"\x80\"",
        "\"\xc0\x80\"",
        "\"\xc1\xbf\"",
        "\"\xe0\x9f\xbf\"",
        "\"\xf0\x8f\xbf\xbf\"",
        "\"\xed\xa0\x80\"",
        "\"\xed\xbf\xbf\"",
        "\"\xf4\x90\x80\x80\"",
        "\"\xf5\x80\x80\x80\"",
        "\"\xc3\"",
        "\"\xe2\x82\"",
        "\"\xf0\x9f\x98\"",
        "\"\xc3(\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800x\"",
        "\"\\ud800\\n\"",
        "\"\\ud800\\ud800\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\\ud800\"",
        "{\"\\ud800\":1}",
        "\"\xc3",
        "\"\xf0\x9f",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) is_not_clean(texts[i]);
    becomes("\"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\xc2\x80\xe0\xa0\x80\xf0\x90\x80\x80\"",
            "\"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\xc2\x80\xe0\xa0\x80\xf0\x90\x80\x80\"");
}

static hx_slice nested(hx_arena *arena, size_t depth, const char *open, const char *inside, char close)
{
    hx_buf text;
    hx_buf_init(&text, arena, depth * 8 + 8);
    for (size_t i = 0; i < depth; i++) hx_buf_puts(&text, open);
    hx_buf_puts(&text, inside);
    for (size_t i = 0; i < depth; i++) hx_buf_put(&text, (hx_slice){&close, 1});
    return hx_buf_slice(&text);
}

static void depth_is_bounded(void **state)
{
    (void)state;
    hx_arena arena = {0};
    hx_slice result, value;
    assert_true(canonical(nested(&arena, 64, "[", "", ']'), &arena, &result));
    assert_true(canonical(nested(&arena, 64, "{\"a\":", "1", '}'), &arena, &result));
    assert_true(hx_json_pointer(nested(&arena, 64, "[", "", ']'), HX_LIT("/0/0"), &value));
    is_not_clean_slice(nested(&arena, 65, "[", "", ']'));
    is_not_clean_slice(nested(&arena, 65, "{\"a\":", "1", '}'));
    is_not_clean_slice(nested(&arena, 1000000, "[", "", ']'));
    assert_false(hx_json_pointer(nested(&arena, 65, "[", "", ']'), HX_LIT("/0/0"), &value));
    assert_false(hx_json_pointer(nested(&arena, 1000000, "[", "", ']'), HX_LIT("/0/0"), &value));
    hx_arena_free(&arena);
}

/* An object of `count` members whose names run down from count - 1, each with an unsorted object as its value. */
static hx_slice backwards(hx_arena *arena, size_t count)
{
    hx_buf text;
    hx_buf_init(&text, arena, 40 * count + 8);
    hx_buf_puts(&text, "{");
    for (size_t i = count; i-- > 0;)
        assert_true(hx_buf_printf(&text, "\"%06zu\":{\"b\":%zu,\"a\":[]}%s", i, i, i > 0 ? "," : "}"));
    return hx_buf_slice(&text);
}

static void large_objects_are_sorted_too(void **state)
{
    (void)state;
    static const size_t counts[] = {15, 16, 17, 18, 31, 32, 33, 64, 1000, 99998};
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        hx_arena arena = {0};
        hx_slice result;
        hx_buf expected;
        assert_true(canonical(backwards(&arena, counts[n]), &arena, &result));
        hx_buf_init(&expected, &arena, 40 * counts[n] + 8);
        hx_buf_puts(&expected, "{");
        for (size_t i = 0; i < counts[n]; i++)
            assert_true(hx_buf_printf(&expected, "\"%06zu\":{\"a\":[],\"b\":%zu}%s", i, i,
                                      i + 1 < counts[n] ? "," : "}"));
        assert_true(hx_slice_eq(result, hx_buf_slice(&expected)));
        hx_arena_free(&arena);
    }
}

static void members_are_bounded(void **state)
{
    (void)state;
    hx_arena arena = {0};
    is_not_clean_slice(backwards(&arena, HX_JSON_MEMBERS_MAX + 1));
    hx_arena_free(&arena);
}

static void a_full_buffer_is_said_and_left_alone(void **state)
{
    (void)state;
    const hx_slice text = HX_LIT("{\"b\":[\"\\u0001\",1e20,true],\"a\":{\"x\":\"\\n\"}}");
    hx_arena arena = {0};
    hx_slice whole;
    assert_true(canonical(text, &arena, &whole));
    for (size_t max = 0; max < whole.len; max++) {
        hx_buf out;
        hx_buf_init(&out, &arena, 2 + max);
        hx_buf_puts(&out, ">>");
        assert_false(hx_json_canonical(text, &arena, &out));
        assert_true(hx_slice_eq(hx_buf_slice(&out), HX_LIT(">>")));
    }
    hx_buf out;
    hx_buf_init(&out, &arena, HX_JSON_CANONICAL_BYTES(text.len));
    hx_buf_puts(&out, ">>");
    assert_true(hx_json_canonical(text, &arena, &out));
    assert_true(hx_slice_eq(hx_slice_from(hx_buf_slice(&out), 2), whole));
    hx_arena_free(&arena);
}

static void the_stated_bound_is_enough_for_the_worst_growth(void **state)
{
    (void)state;
    hx_arena arena = {0};
    hx_buf text;
    hx_slice result;
    hx_buf_init(&text, &arena, 60000);
    hx_buf_puts(&text, "[1e20");
    while (text.len < 50000) hx_buf_puts(&text, ",1e20");
    hx_buf_puts(&text, "]");
    assert_true(canonical(hx_buf_slice(&text), &arena, &result));
    assert_true(canonical(HX_LIT("1e20"), &arena, &result));
    assert_true(canonical(HX_LIT("-1e-6"), &arena, &result));
    assert_true(canonical(HX_LIT("0"), &arena, &result));
    hx_arena_free(&arena);
}

static void points(const char *text, const char *pointer, hx_json_search expected, const char *value)
{
    hx_slice found = HX_LIT("untouched");
    hx_json_search search = hx_json_find(hx_slice_of(text), hx_slice_of(pointer), &found);
    if (search != expected) fail_msg("%s in %s: %d", pointer, text, (int)search);
    if (!hx_slice_eq(found, hx_slice_of(value ? value : "untouched")))
        fail_msg("%s in %s: %.*s", pointer, text, HX_FMT(found));
}

/* The examples of RFC 6901, 5. */
static void pointers_find_what_rfc_6901_says(void **state)
{
    (void)state;
    const char *text = " { \"foo\": [\"bar\", \"baz\"], \"\": 0, \"a/b\": 1, \"c%d\": 2, \"e^f\": 3, \"g|h\": 4,"
                       " \"i\\\\j\": 5, \"k\\\"l\": 6, \" \": 7, \"m~n\": 8 } ";
    points(text, "/foo", HX_JSON_FOUND, "[\"bar\", \"baz\"]");
    points(text, "/foo/0", HX_JSON_FOUND, "\"bar\"");
    points(text, "/foo/1", HX_JSON_FOUND, "\"baz\"");
    points(text, "/", HX_JSON_FOUND, "0");
    points(text, "/a~1b", HX_JSON_FOUND, "1");
    points(text, "/c%d", HX_JSON_FOUND, "2");
    points(text, "/i\\j", HX_JSON_FOUND, "5");
    points(text, "/k\"l", HX_JSON_FOUND, "6");
    points(text, "/ ", HX_JSON_FOUND, "7");
    points(text, "/m~0n", HX_JSON_FOUND, "8");
    points(" [1, 2] ", "", HX_JSON_FOUND, "[1, 2]");
    points("{\"\\u00e9\":{\"~1\":[{\"x\":null}]}}", "/\xc3\xa9/~01/0/x", HX_JSON_FOUND, "null");

    points(text, "/foo/2", HX_JSON_MISSING, NULL);
    points(text, "/foo/-", HX_JSON_MISSING, NULL);
    points(text, "/foo/00", HX_JSON_MISSING, NULL);
    points(text, "/foo/01", HX_JSON_MISSING, NULL);
    points(text, "/foo/", HX_JSON_MISSING, NULL);
    points(text, "/foo/18446744073709551616", HX_JSON_MISSING, NULL);
    points(text, "/fo", HX_JSON_MISSING, NULL);
    points(text, "/fooo", HX_JSON_MISSING, NULL);
    points(text, "/foo/0/x", HX_JSON_MISSING, NULL);
    points("{}", "/a", HX_JSON_MISSING, NULL);
    points("[]", "/0", HX_JSON_MISSING, NULL);
    points("1", "/0", HX_JSON_MISSING, NULL);
}

static void pointers_into_malformed_text_find_nothing(void **state)
{
    (void)state;
    points("{\"a\":1", "/a", HX_JSON_MALFORMED, NULL);
    points("{\"a\":1}x", "/a", HX_JSON_MALFORMED, NULL);
    points("{\"a\":1,\"b\":[1,]}", "/a", HX_JSON_MALFORMED, NULL);
    points("{\"a\":1,\"b\":\"\\ud800\"}", "/a", HX_JSON_MALFORMED, NULL);
    points("[1,{\"a\":1]]", "/0", HX_JSON_MALFORMED, NULL);
    points("", "", HX_JSON_MALFORMED, NULL);
    points("{\"a\":1}", "a", HX_JSON_MALFORMED, NULL);
    points("{\"a~\":1}", "/a~", HX_JSON_MALFORMED, NULL);
    points("{\"a~2\":1}", "/a~2", HX_JSON_MALFORMED, NULL);
    points("{\"a\":1,\"a\":2}", "/a", HX_JSON_MALFORMED, NULL);
    points("{\"a\":1,\"\\u0061\":2}", "/a", HX_JSON_MALFORMED, NULL);
}

static void pointers_are_told_from_other_text(void **state)
{
    (void)state;
    static const char *const pointers[] = {"", "/", "//", "/a", "/a/0", "/~0", "/~1", "/a~1b~0", "/ ", "/\xc3\xa4"};
    static const char *const others[] = {"a", "a/b", " /a", "#/a", "$.a", "~0", "/~", "/a~", "/~2", "/~~0", "/a~/b"};
    for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++)
        if (!hx_json_is_pointer(hx_slice_of(pointers[i]))) fail_msg("\"%s\" is one", pointers[i]);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (hx_json_is_pointer(hx_slice_of(others[i]))) fail_msg("\"%s\" is none", others[i]);
}

static void values_are_compared_by_what_they_mean(void **state)
{
    (void)state;
    static const struct {
        const char *raw, *wanted;
        bool same;
    } cases[] = {
        {"\"duplicate\"", "duplicate", true},
        {"\"dupl\\u0069cate\"", "duplicate", true},
        {"\"duplicate\"", "\"duplicate\"", false},
        {"\"duplicate\"", "duplicat", false},
        {"\"duplicate\"", "duplicates", false},
        {"\"Duplicate\"", "duplicate", false},
        {"\"\"", "", true},
        {"\"\"", "x", false},
        {"\"x\"", "", false},
        {"\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80", true},
        {"\"\\ud83d\\ude00\"", "\xf0\x9f\x98", false},
        {"\"409\"", "409", true},
        {"\"409\"", "409.0", false},
        {"409", "409", true},
        {"409", "409.0", true},
        {"4.09e2", "409", true},
        {"409", "410", false},
        {"409", "-409", false},
        {"409", "4090", false},
        {"409", "40.9", false},
        {"4.09", "4.091", false},
        {"4.091", "4.09", false},
        {"0", "-0.0e5", true},
        {"9007199254740993", "9007199254740992", false},
        {"9007199254740993", "9007199254740993", true},
        {"0.1", "1e-1", true},
        {"0.1", ".1", false},
        {"1", "01", false},
        {"1", "+1", false},
        {"1", "1 ", false},
        {"1", "", false},
        {"1", "-", false},
        {"1", "0x1", false},
        {"1", "true", false},
        {"1e9999999999999999999", "1e9999999999999999999", false}, /* no number that anybody means */
        {"true", "true", true},
        {"true", "True", false},
        {"true", "1", false},
        {"false", "false", true},
        {"false", "true", false},
        {"null", "null", true},
        {"null", "", false},
        {"{}", "{}", false},
        {"[1]", "[1]", false},
        {"[1]", "1", false},
        {"", "", false},
        {"\"x", "x", false}, /* what isn't clean is nothing */
        {"\"x\"y", "x", false},
        {"truex", "true", false},
        {"1 ", "1", false},
        {"x", "x", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (hx_json_value_is(hx_slice_of(cases[i].raw), hx_slice_of(cases[i].wanted)) != cases[i].same)
            fail_msg("%s and \"%s\"", cases[i].raw, cases[i].wanted);
}

static void string_literals_are_decoded(void **state)
{
    (void)state;
    hx_arena arena = {0};
    hx_slice decoded = HX_EMPTY, raw = HX_LIT("\"plain\"");
    assert_true(hx_json_string(raw, &arena, &decoded));
    assert_ptr_equal(decoded.ptr, raw.ptr + 1);
    assert_true(hx_slice_eq(decoded, HX_LIT("plain")));
    assert_true(hx_json_string(HX_LIT("\"\\u0000\\ud83d\\ude00\\/x\\u00E9\""), &arena, &decoded));
    assert_true(hx_slice_eq(decoded, (hx_slice){"\0\xf0\x9f\x98\x80/x\xc3\xa9", 9}));
    assert_true(hx_json_string(HX_LIT("\"\""), &arena, &decoded));
    assert_int_equal(decoded.len, 0);
    static const char *const bad[] = {"", "x", "1", "null", "\"", "\"a", "\"a\" ", " \"a\"", "\"\\ud800\"", "\"a\"b\""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(hx_json_string(hx_slice_of(bad[i]), &arena, &decoded));
    hx_arena_free(&arena);
}

static void escapes(hx_slice bytes, const char *expected)
{
    hx_buf out;
    hx_buf_init(&out, NULL, 256);
    assert_true(hx_json_escape(&out, bytes));
    if (!hx_slice_eq(hx_buf_slice(&out), hx_slice_of(expected)))
        fail_msg("%.*s, not %s", HX_FMT(hx_buf_slice(&out)), expected);
    hx_buf_free(&out);
}

static void any_bytes_can_be_written_as_a_literal(void **state)
{
    (void)state;
    escapes(HX_EMPTY, "\"\"");
    escapes((hx_slice){NULL, 0}, "\"\"");
    escapes(HX_LIT("a\"b\\c\n\x01\x7f"), "\"a\\\"b\\\\c\\n\\u0001\x7f\"");
    escapes((hx_slice){"\0x", 2}, "\"\\u0000x\"");
    escapes(HX_LIT("caf\xc3\xa9 \xf0\x9f\x98\x80"), "\"caf\xc3\xa9 \xf0\x9f\x98\x80\"");
    escapes(HX_LIT("\xff|\xc3|\xed\xa0\x80"), "\"\xef\xbf\xbd|\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    hx_buf out;
    hx_buf_init(&out, NULL, 6);
    assert_true(hx_buf_append(&out, HX_LIT("x")));
    assert_false(hx_json_escape(&out, HX_LIT("abcd")));
    assert_true(hx_slice_eq(hx_buf_slice(&out), HX_LIT("x")));
    assert_true(hx_json_escape(&out, HX_LIT("abc")));
    assert_true(hx_slice_eq(hx_buf_slice(&out), HX_LIT("x\"abc\"")));
    hx_buf_free(&out);
}

#define LIST_MAX 64

static size_t split(const char *list, hx_slice pointers[LIST_MAX])
{
    hx_slice rest = hx_slice_of(list), one;
    size_t count = 0;
    if (rest.len == 0) return 0;
    while (hx_slice_next(&rest, ' ', &one)) pointers[count++] = one;
    return count;
}

static bool select_from(const char *text, const char *left_out, const char *chosen, hx_slice values[LIST_MAX],
                        hx_arena *arena, hx_slice *result)
{
    hx_slice left_out_list[LIST_MAX], chosen_list[LIST_MAX];
    hx_json_selection selection = {.left_out = {left_out_list, split(left_out, left_out_list)},
                                   .chosen = {chosen_list, split(chosen, chosen_list)},
                                   .values = values};
    hx_buf out;
    hx_buf_init(&out, arena, 2 + HX_JSON_CANONICAL_BYTES(strlen(text)));
    hx_buf_puts(&out, ">>"); /* offsets count from the buffer's start, not the text's */
    bool clean = hx_json_canonical_of(hx_slice_of(text), &selection, arena, &out);
    *result = hx_slice_from(hx_buf_slice(&out), 2);
    return clean;
}

static void without(const char *left_out, const char *text, const char *expected)
{
    hx_arena arena = {0};
    hx_slice result;
    if (!select_from(text, left_out, "", NULL, &arena, &result)) fail_msg("%s was not taken", text);
    if (!hx_slice_eq(result, hx_slice_of(expected)))
        fail_msg("%s without %s became %.*s, not %s", text, left_out, HX_FMT(result), expected);
    hx_arena_free(&arena);
}

static void members_that_are_left_out_are_as_if_they_were_not_there(void **state)
{
    (void)state;
    without("/a", "{\"a\":1,\"b\":2,\"c\":3}", "{\"b\":2,\"c\":3}");
    without("/b", "{\"a\":1,\"b\":2,\"c\":3}", "{\"a\":1,\"c\":3}");
    without("/c", "{\"a\":1,\"b\":2,\"c\":3}", "{\"a\":1,\"b\":2}");
    without("/a /b", "{\"a\":1,\"b\":2,\"c\":3}", "{\"c\":3}");
    without("/c /b", "{\"a\":1,\"b\":2,\"c\":3}", "{\"a\":1}");
    without("/a /b /c", "{\"a\":1,\"b\":2,\"c\":3}", "{}");
    without("/a", "{\"c\":1,\"a\":{\"x\":[1,2]},\"b\":2}", "{\"b\":2,\"c\":1}");
    without("/a /c", "{ \"c\" : 1 , \"b\" : 2 , \"a\" : 3 }", "{\"b\":2}");
    without("/c", "{\"c\":1,\"b\":2,\"a\":3}", "{\"a\":3,\"b\":2}");
    without("/a/t /b/t", "{\"b\":{\"t\":1},\"a\":{\"u\":2,\"t\":1}}", "{\"a\":{\"u\":2},\"b\":{}}");
    without("/a/0/t", "{\"a\":[{\"t\":1,\"u\":2},{\"t\":1}]}", "{\"a\":[{\"u\":2},{\"t\":1}]}");
    without("/t", "{\"a\":{\"t\":1},\"t\":1}", "{\"a\":{\"t\":1}}");
    without("/\\u0061", "{\"a\":1}", "{\"a\":1}"); /* a pointer knows no such escapes */
    without("/a", "{\"\\u0061\":1}", "{}");
    without("/a~1b /m~0n", "{\"a/b\":1,\"m~n\":2,\"mn\":3}", "{\"mn\":3}");
    without("/a~1 /~0 /~1~0 /~0~1x~0~0", "{\"a/\":1,\"~\":2,\"/~\":3,\"~/x~~\":4,\"~~\":5}", "{\"~~\":5}");
    without("/ /~01", "{\"\":1,\"~1\":2,\"/\":3}", "{\"/\":3}");
    without("/\xc3\xa4", "{\"\\u00e4\":1,\"a\":2}", "{\"a\":2}");
}

static void items_that_are_left_out_keep_their_places(void **state)
{
    (void)state;
    without("/0", "[1,2,3]", "[?,2,3]");
    without("/1", "[1,2,3]", "[1,?,3]");
    without("/2 /0", "[1,2,3]", "[?,2,?]");
    without("/0", "[{\"a\":[1]}]", "[?]");
    without("/0", "[]", "[]");
    without("/00 /01 /- /+1 /-1 /1.0 /3 /18446744073709551617", "[1,2,3]", "[1,2,3]");
    without("/a/1/0", "{\"a\":[[1],[2,3]]}", "{\"a\":[[1],[?,3]]}");
    without("/0", "{\"0\":1,\"00\":2}", "{\"00\":2}");
}

static void pointers_may_overlap_or_lead_nowhere(void **state)
{
    (void)state;
    without("/a /a/b", "{\"a\":{\"b\":1,\"c\":2},\"d\":3}", "{\"d\":3}");
    without("/a/b /a", "{\"a\":{\"b\":1,\"c\":2},\"d\":3}", "{\"d\":3}");
    without("/a /a", "{\"a\":1}", "{}");
    without("/a/b/c /x /d/0 /d/x", "{\"a\":{\"b\":1},\"d\":3}", "{\"a\":{\"b\":1},\"d\":3}");
    without("/a", "[{\"a\":1}]", "[{\"a\":1}]");
    without("/a", "7", "7");
    without("", "{\"\":1}", "{\"\":1}");
}

static void what_is_left_out_is_still_checked(void **state)
{
    (void)state;
    static const char *const broken[] = {
        "{\"a\":1,\"a\":2}",
        "{\"a\":1,\"b\":2,\"a\":3}",
        "{\"b\":1,\"a\":1,\"b\":3}",
        "{\"a\":{\"x\":1,\"x\":2}}",
        "{\"a\":01}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":1,}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":}",
        "{\"a\":1}}",
        "{\"\\u0061\":1,\"c\":3,\"a\":2}",
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        hx_arena arena = {0};
        hx_slice result;
        if (select_from(broken[i], "/a /b", "", NULL, &arena, &result)) fail_msg("%s was taken", broken[i]);
        assert_int_equal(result.len, 0);
        hx_arena_free(&arena);
    }
}

/* `expected` has the values one after the other, `!` for one that is missing. */
static void chooses(const char *left_out, const char *chosen, const char *text, const char *expected)
{
    hx_arena arena = {0};
    hx_slice result, values[LIST_MAX], pointers[LIST_MAX];
    if (!select_from(text, left_out, chosen, values, &arena, &result)) fail_msg("%s was not taken", text);
    hx_buf got;
    hx_buf_init(&got, &arena, 4096);
    for (size_t i = 0; i < split(chosen, pointers); i++) {
        if (i > 0) hx_buf_puts(&got, " ");
        hx_buf_put(&got, values[i].ptr ? values[i] : HX_LIT("!"));
    }
    if (!hx_slice_eq(hx_buf_slice(&got), hx_slice_of(expected)))
        fail_msg("%s of %s is %.*s, not %s", chosen, text, HX_FMT(hx_buf_slice(&got)), expected);
    hx_arena_free(&arena);
}

static void chosen_values_come_in_their_canonical_form(void **state)
{
    (void)state;
    const char *text = " {\"b\" : [1.0, {\"z\":2,\"y\":1}], \"a\":\"\\u0041\" , \"n\":null}";
    chooses("", "/a /b /n /x", text, "\"A\" [1,{\"y\":1,\"z\":2}] null !");
    chooses("", "/b/1 /b/0 /b/2 /b/1/y /b/1/q", text, "{\"y\":1,\"z\":2} 1 ! 1 !");
    chooses("", "/a /a", text, "\"A\" \"A\"");
    chooses("/b/1/z", "/b /b/1 /b/1/z", text, "[1,{\"y\":1}] {\"y\":1} !");
    chooses("/b", "/b /b/0 /a", text, "! ! \"A\"");
    chooses("/b/0", "/b /b/0", text, "[?,{\"y\":1,\"z\":2}] !");
    chooses("", "/a", "[1]", "!");
    chooses("", "/a", "1", "!");

    /* The whole text, which a list of words can't name. */
    hx_arena arena = {0};
    hx_slice root[] = {HX_EMPTY, HX_LIT("/a")}, values[2];
    hx_json_selection selection = {.chosen = {root, 2}, .values = values};
    hx_buf out;
    hx_buf_init(&out, &arena, 4096);
    assert_true(hx_json_canonical_of(HX_LIT("{\"b\":1,\"a\":2}"), &selection, &arena, &out));
    assert_true(hx_slice_eq(values[0], HX_LIT("{\"a\":2,\"b\":1}")));
    assert_true(hx_slice_eq(values[1], HX_LIT("2")));
    hx_arena_free(&arena);
}

/* The last of 64, below others that share its way. */
static void as_many_pointers_as_allowed_are_followed(void **state)
{
    (void)state;
    char lists[LIST_MAX][16];
    hx_slice left_out[LIST_MAX], chosen[LIST_MAX], values[LIST_MAX];
    for (int i = 0; i < LIST_MAX; i++) {
        (void)snprintf(lists[i], sizeof lists[i], "/a/%d", i);
        chosen[i] = left_out[LIST_MAX - 1 - i] = hx_slice_of(lists[i]);
    }
    hx_arena arena = {0};
    hx_buf text, out, expected;
    hx_buf_init(&text, &arena, 4096);
    hx_buf_init(&expected, &arena, 4096);
    hx_buf_puts(&text, "{\"a\":[100");
    hx_buf_puts(&expected, "{\"a\":[?");
    for (int i = 1; i < LIST_MAX; i++) {
        assert_true(hx_buf_printf(&text, ",%d", 100 + i));
        hx_buf_puts(&expected, ",?");
    }
    hx_buf_puts(&text, ",7]}");
    hx_buf_puts(&expected, ",7]}");
    hx_json_selection selection = {.left_out = {left_out, LIST_MAX}};
    hx_buf_init(&out, &arena, 8192);
    assert_true(hx_json_canonical_of(hx_buf_slice(&text), &selection, &arena, &out));
    assert_true(hx_slice_eq(hx_buf_slice(&out), hx_buf_slice(&expected)));
    selection = (hx_json_selection){.chosen = {chosen, LIST_MAX}, .values = values};
    hx_buf_init(&out, &arena, 8192);
    assert_true(hx_json_canonical_of(hx_buf_slice(&text), &selection, &arena, &out));
    assert_true(hx_slice_eq(hx_buf_slice(&out), hx_buf_slice(&text)));
    assert_true(hx_slice_eq(values[0], HX_LIT("100")) && hx_slice_eq(values[63], HX_LIT("163")));
    hx_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_sorted_and_space_is_dropped),
        cmocka_unit_test(members_are_sorted_by_utf_16_code_units),
        cmocka_unit_test(strings_are_escaped_as_rfc_8785_has_it),
        cmocka_unit_test(a_member_twice_is_not_clean),
        cmocka_unit_test(what_rfc_8259_does_not_allow_is_not_clean),
        cmocka_unit_test(broken_unicode_is_not_clean),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(large_objects_are_sorted_too),
        cmocka_unit_test(members_are_bounded),
        cmocka_unit_test(a_full_buffer_is_said_and_left_alone),
        cmocka_unit_test(the_stated_bound_is_enough_for_the_worst_growth),
        cmocka_unit_test(pointers_find_what_rfc_6901_says),
        cmocka_unit_test(pointers_into_malformed_text_find_nothing),
        cmocka_unit_test(pointers_are_told_from_other_text),
        cmocka_unit_test(values_are_compared_by_what_they_mean),
        cmocka_unit_test(string_literals_are_decoded),
        cmocka_unit_test(any_bytes_can_be_written_as_a_literal),
        cmocka_unit_test(members_that_are_left_out_are_as_if_they_were_not_there),
        cmocka_unit_test(items_that_are_left_out_keep_their_places),
        cmocka_unit_test(pointers_may_overlap_or_lead_nowhere),
        cmocka_unit_test(what_is_left_out_is_still_checked),
        cmocka_unit_test(chosen_values_come_in_their_canonical_form),
        cmocka_unit_test(as_many_pointers_as_allowed_are_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
