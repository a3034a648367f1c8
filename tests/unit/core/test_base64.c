/* SPDX-License-Identifier: Apache-2.0 */
#include "core/token/base64.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

typedef bool (*decoder)(hx_slice text, hx_arena *arena, hx_slice *decoded);

/* From memory of just its size, so that a sanitizer sees a step too far. `expected` NULL: it is refused. */
static void decodes(decoder decode, const char *text, const char *expected)
{
    hx_arena arena = {0};
    hx_slice whole = hx_slice_of(text);
    char *copy = malloc(whole.len > 0 ? whole.len : 1);
    assert_non_null(copy);
    memcpy(copy, whole.ptr, whole.len);
    hx_slice decoded = HX_EMPTY;
    bool good = decode((hx_slice){copy, whole.len}, &arena, &decoded);
    if (good != (expected != NULL)) fail_msg("%s is %s", text, good ? "taken" : "refused");
    if (good && !hx_slice_eq(decoded, hx_slice_of(expected))) fail_msg("%s is \"%.*s\"", text, HX_FMT(decoded));
    free(copy);
    hx_arena_free(&arena);
}

static void what_has_one_spelling_is_read_and_written(void **state)
{
    (void)state;
    static const struct {
        const char *text, *bytes;
    } rows[] = {{"", ""},
                {"Zg", "f"},
                {"Zm8", "fo"},
                {"Zm9v", "foo"},
                {"Zm9vYg", "foob"},
                {"Zm9vYmE", "fooba"},
                {"Zm9vYmFy", "foobar"},
                {"-_-_", "\xfb\xff\xbf"},
                {"09az", "\xd3\xd6\xb3"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        decodes(hx_base64url_decode, rows[i].text, rows[i].bytes);
        decodes(hx_base64_decode_any, rows[i].text, rows[i].bytes);
        char text[16];
        size_t len = HX_BASE64URL_LEN(strlen(rows[i].bytes));
        hx_base64url_encode(text, (const uint8_t *)rows[i].bytes, strlen(rows[i].bytes));
        assert_true(hx_slice_eq((hx_slice){text, len}, hx_slice_of(rows[i].text)));
    }
}

static void a_token_has_one_spelling_only(void **state)
{
    (void)state;
    static const char *const refused[] = {"Zg==", "Zm8=", "+/+/", "Zh", "Zm9", "Z", "Zm9vY", "Zm 9v", "Zm9v\n", "é"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) decodes(hx_base64url_decode, refused[i], NULL);
}

static void a_credential_may_have_any(void **state)
{
    (void)state;
    decodes(hx_base64_decode_any, "Zg==", "f");
    decodes(hx_base64_decode_any, "Zg=", "f");
    decodes(hx_base64_decode_any, "Zm8=", "fo");
    decodes(hx_base64_decode_any, "Zh", "f"); /* what the stray bits are doesn't matter */
    decodes(hx_base64_decode_any, "+/-_", "\xfb\xff\xbf");
    decodes(hx_base64_decode_any, "==", "");
    static const char *const refused[] = {"===", "Zg===", "=Zg", "Z", "Zm9vY", "Zm 9v", "Zm9v\n", "Zm9v!"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) decodes(hx_base64_decode_any, refused[i], NULL);
}

static int drain(void **state)
{
    (void)state;
    hx_arena_pool_drain();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_has_one_spelling_is_read_and_written),
        cmocka_unit_test(a_token_has_one_spelling_only),
        cmocka_unit_test(a_credential_may_have_any),
    };
    return cmocka_run_group_tests(tests, NULL, drain);
}
