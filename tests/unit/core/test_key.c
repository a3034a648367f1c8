/* SPDX-License-Identifier: Apache-2.0 */
/* Contract §4, the first two bullets. */
#include "core/operation/key.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

static const hx_key_rules loose = {.format = HX_KEY_ANY, .len_min = 1, .len_max = 255};

static void check_slice(hx_slice value, const hx_key_rules *rules, hx_key_error expected, const char *expected_key)
{
    hx_arena arena = {0};
    hx_slice key = HX_LIT("untouched");
    hx_key_error error = hx_key_parse(value, rules, &arena, &key);
    if (error != expected)
        fail_msg("%.*s: %s, not %s", HX_FMT(value), hx_key_error_text(error), hx_key_error_text(expected));
    if (!hx_slice_eq(key, hx_slice_of(expected_key ? expected_key : "untouched")))
        fail_msg("%.*s: the key is %.*s", HX_FMT(value), HX_FMT(key));
    hx_arena_free(&arena);
}

static void takes(const char *value, const char *key)
{
    check_slice(hx_slice_of(value), &loose, HX_KEY_OK, key);
}

static void refuses(const char *value, hx_key_error error)
{
    check_slice(hx_slice_of(value), &loose, error, NULL);
}

static void a_bare_value_and_a_quoted_one_are_the_same_key(void **state)
{
    (void)state;
    takes("abc", "abc");
    takes("\"abc\"", "abc");
    takes("  abc\t", "abc");
    takes(" \"abc\" ", "abc");
    takes("a;b=c/d:e{}'\\~!", "a;b=c/d:e{}'\\~!");
    takes("\"a;b\\\\c\"", "a;b\\c");
    takes("\"say \\\"hi\\\", twice\"", "say \"hi\", twice");
}

static void parameters_are_ignored_but_must_be_parameters(void **state)
{
    (void)state;
    static const char *const fine[] = {
        ";a",        ";a=1",       ";a=-1.25", ";a=\"x;\\\"y\"",     "; a=tok/en:*;  b",    ";*k-_.9=*t",
        ";a=:aGk=:", ";a=?1;b=?0", ";a=::",    ";a=123456789012345", ";a=123456789012.123",
    };
    static const char *const bad[] = {
        "x",
        " ;a",
        ",\"b\"",
        ";",
        ";A=1",
        ";a=",
        ";a=;b",
        ";a=1.",
        ";a=.5",
        ";a=-",
        ";a=?2",
        ";a=?",
        ";a=:aGk",
        ";a=:a b:",
        ";a=\"x",
        ";a=1234567890123456",
        ";a=1234567890123.1",
        ";a=1.1234",
        ";a=(1)",
        ";a b",
        ";a=1x",
        "\"",
    };
    char value[64];
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        (void)snprintf(value, sizeof value, "\"abc\"%s", fine[i]);
        takes(value, "abc");
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        (void)snprintf(value, sizeof value, "\"abc\"%s", bad[i]);
        refuses(value, HX_KEY_BAD_BYTE);
    }
}

static void malformed_values_are_refused_by_name(void **state)
{
    (void)state;
    refuses("", HX_KEY_EMPTY);
    refuses(" \t ", HX_KEY_EMPTY);
    refuses("\"\"", HX_KEY_EMPTY);
    refuses("\"", HX_KEY_UNBALANCED_QUOTE);
    refuses("\"abc", HX_KEY_UNBALANCED_QUOTE);
    refuses("\"abc\\\"", HX_KEY_UNBALANCED_QUOTE);
    refuses("\"abc\\", HX_KEY_UNBALANCED_QUOTE);
    refuses("\"a\\bc\"", HX_KEY_BAD_BYTE);
    refuses("\"caf\xc3\xa9\"", HX_KEY_BAD_BYTE);
    refuses("caf\xc3\xa9", HX_KEY_BAD_BYTE);
    refuses("a b", HX_KEY_BAD_BYTE);
    refuses("a,b", HX_KEY_BAD_BYTE);
    refuses("\"a\", \"b\"", HX_KEY_BAD_BYTE);
    refuses("abc\"", HX_KEY_BAD_BYTE);
    refuses("a\tb", HX_KEY_CONTROL_BYTE);
    refuses("\"a\x7f\"", HX_KEY_CONTROL_BYTE);
    refuses("a\x1fz", HX_KEY_CONTROL_BYTE);
    check_slice((hx_slice){"a\0b", 3}, &loose, HX_KEY_CONTROL_BYTE, NULL);
    check_slice((hx_slice){"\"a\0\"", 4}, &loose, HX_KEY_CONTROL_BYTE, NULL);
    check_slice((hx_slice){NULL, 0}, &loose, HX_KEY_EMPTY, NULL);
}

static void the_length_is_that_of_the_key_and_16_to_255_by_default(void **state)
{
    (void)state;
    const hx_key_rules rules = HX_KEY_RULES_DEFAULT;
    char longest[256], quoted[258], too_long[257];
    memset(longest, 'k', 255);
    longest[255] = '\0';
    memset(too_long, 'k', 256);
    too_long[256] = '\0';
    (void)snprintf(quoted, sizeof quoted, "\"%s\"", longest); /* the quotes don't count */
    check_slice(HX_LIT("kkkkkkkkkkkkkkk"), &rules, HX_KEY_TOO_SHORT, NULL);
    check_slice(HX_LIT("kkkkkkkkkkkkkkkk"), &rules, HX_KEY_OK, "kkkkkkkkkkkkkkkk");
    check_slice(hx_slice_of(longest), &rules, HX_KEY_OK, longest);
    check_slice(hx_slice_of(quoted), &rules, HX_KEY_OK, longest);
    check_slice(hx_slice_of(too_long), &rules, HX_KEY_TOO_LONG, NULL);
    check_slice(HX_LIT("\"kkkkkkkkkkkkkkk\""), &rules, HX_KEY_TOO_SHORT, NULL);
    check_slice(HX_LIT("\"\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\""), &rules, HX_KEY_TOO_SHORT, NULL);
}

static void formats_are_uuid_and_uuid_of_version_4(void **state)
{
    (void)state;
    hx_key_rules uuid = HX_KEY_RULES_DEFAULT, uuid4 = HX_KEY_RULES_DEFAULT;
    uuid.format = HX_KEY_UUID;
    uuid4.format = HX_KEY_UUID4;
    const char *v4 = "8e03978e-40d5-43e8-bc93-6894a57f9324", *v1 = "c232ab00-9414-11ec-b3c8-9f6bdeced846";
    check_slice(hx_slice_of(v4), &uuid4, HX_KEY_OK, v4);
    check_slice(HX_LIT("\"8E03978E-40D5-43E8-AC93-6894A57F9324\""), &uuid4, HX_KEY_OK,
                "8E03978E-40D5-43E8-AC93-6894A57F9324");
    check_slice(hx_slice_of(v1), &uuid, HX_KEY_OK, v1);
    check_slice(hx_slice_of(v1), &uuid4, HX_KEY_BAD_FORMAT, NULL);
    check_slice(HX_LIT("8e03978e-40d5-43e8-7c93-6894a57f9324"), &uuid4, HX_KEY_BAD_FORMAT, NULL);
    check_slice(HX_LIT("8e03978e-40d5-43e8-cc93-6894a57f9324"), &uuid4, HX_KEY_BAD_FORMAT, NULL);
    check_slice(HX_LIT("8e03978e-40d5-43e8-bc93-6894a57f932"), &uuid, HX_KEY_BAD_FORMAT, NULL);
    check_slice(HX_LIT("8e03978e-40d5-43e8-bc93-6894a57f93240"), &uuid, HX_KEY_BAD_FORMAT, NULL);
    check_slice(HX_LIT("8e03978e040d5-43e8-bc93-6894a57f9324"), &uuid, HX_KEY_BAD_FORMAT, NULL);
    check_slice(HX_LIT("8e03978g-40d5-43e8-bc93-6894a57f9324"), &uuid, HX_KEY_BAD_FORMAT, NULL);
}

static void every_error_has_its_sentence(void **state)
{
    (void)state;
    for (int error = HX_KEY_OK; error <= HX_KEY_BAD_FORMAT; error++) {
        hx_slice text = hx_slice_of(hx_key_error_text((hx_key_error)error));
        assert_true(hx_slice_starts(text, HX_LIT("The key ")) && hx_slice_ends(text, HX_LIT(".")));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bare_value_and_a_quoted_one_are_the_same_key),
        cmocka_unit_test(parameters_are_ignored_but_must_be_parameters),
        cmocka_unit_test(malformed_values_are_refused_by_name),
        cmocka_unit_test(the_length_is_that_of_the_key_and_16_to_255_by_default),
        cmocka_unit_test(formats_are_uuid_and_uuid_of_version_4),
        cmocka_unit_test(every_error_has_its_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
