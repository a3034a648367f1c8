/* SPDX-License-Identifier: Apache-2.0 */
#include "core/event/api_token.h"

#include <stdarg.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#define TOKEN "hpx_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"

static const uint8_t secret[HX_SECRET_BYTES] = {1, 2, 3}, other_secret[HX_SECRET_BYTES] = {1, 2, 4};
static hx_arena arena;

static int tear_down(void **state)
{
    (void)state;
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}

static hx_api_token asked(const char *text)
{
    hx_api_token token;
    hx_error_text error;
    if (!hx_api_token_read(hx_slice_of(text), &arena, &token, error)) fail_msg("%s: %s", text, error);
    return token;
}

static void expect_refused(const char *text, const char *part)
{
    hx_api_token token;
    hx_error_text error;
    if (hx_api_token_read(hx_slice_of(text), &arena, &token, error))
        fail_msg("%s was taken", text);
    else if (!strstr(error, part))
        fail_msg("%s: \"%s\" has no \"%s\"", text, error, part);
}

static void a_token_is_found_in_its_header(void **state)
{
    (void)state;
    uint8_t random[HX_API_TOKEN_RANDOM];
    char text[HX_API_TOKEN_BYTES];
    for (size_t i = 0; i < sizeof random; i++) random[i] = (uint8_t)i;
    hx_api_token_write(random, text);
    assert_true(hx_slice_eq((hx_slice){text, sizeof text}, HX_LIT(TOKEN)));
    static const char *const good[] = {"Bearer " TOKEN, "bearer " TOKEN, "BEARER   " TOKEN " "};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        hx_slice token = HX_EMPTY;
        assert_true(hx_api_token_find(hx_slice_of(good[i]), &token));
        assert_true(hx_slice_eq(token, HX_LIT(TOKEN)));
    }
}

static void what_can_be_no_token_is_not_looked_up(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      TOKEN,
                                      "Bearer",
                                      "Bearer ",
                                      "Bearer" TOKEN,
                                      "Bearer\t" TOKEN,
                                      "Basic " TOKEN,
                                      "Bearer " TOKEN "8",
                                      "Bearer hpx_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh",
                                      "Bearer HPX_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
                                      "Bearer hpx_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwd/h8",
                                      "Bearer " TOKEN ", Bearer " TOKEN,
                                      "Bearer hpx_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwd h8"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        hx_slice token;
        if (hx_api_token_find(hx_slice_of(bad[i]), &token)) fail_msg("\"%s\" was taken", bad[i]);
    }
}

static void a_key_says_nothing_of_its_token(void **state)
{
    (void)state;
    hx_mac *mac = hx_mac_new(secret), *other = hx_mac_new(other_secret);
    hx_slice key = hx_api_token_key(mac, HX_LIT(TOKEN), &arena);
    assert_int_equal(key.len, 2 + 64);
    assert_memory_equal(key.ptr, "t/", 2);
    assert_true(hx_slice_eq(key, hx_api_token_key(mac, HX_LIT(TOKEN), &arena)));
    assert_false(hx_slice_eq(key, hx_api_token_key(other, HX_LIT(TOKEN), &arena)));
    assert_false(hx_slice_eq(key, hx_api_token_key(mac, HX_LIT(TOKEN "x"), &arena)));
    assert_true(hx_is_api_token_id(hx_api_token_id(key)));
    assert_memory_equal(hx_api_token_id(key).ptr, key.ptr + 2, HX_API_TOKEN_ID_DIGITS);
    hx_mac_free(&mac);
    hx_mac_free(&other);
}

static void what_was_asked_for_comes_back_from_the_store(void **state)
{
    (void)state;
    hx_api_token token = asked("{\"name\":\"shop-1\",\"scopes\":[\"view\",\"publish\",\"view\"],\"tenant\":\"acme\"}");
    assert_int_equal(hx_api_token_scopes(&token), HX_SCOPE_PUBLISH | HX_SCOPE_VIEW);
    assert_int_equal(token.scopes.count, 2);
    assert_true(hx_slice_eq(token.scopes.items[0], HX_LIT("publish"))); /* in the order of the table */
    token.created_at = 1771502400000;
    token.created_by = HX_LIT("alice (uid 1000)");
    hx_buf meta;
    hx_api_token back;
    hx_buf_init(&meta, &arena, HX_API_TOKEN_META_MAX);
    hx_api_token_encode(&token, &meta);
    assert_true(hx_api_token_decode(HX_LIT("t/0123456789abcdef"), hx_buf_slice(&meta), &arena, &back));
    assert_true(hx_slice_eq(back.id, HX_LIT("0123456789ab")));
    assert_true(hx_slice_eq(back.name, HX_LIT("shop-1")));
    assert_true(hx_slice_eq(back.tenant, HX_LIT("acme")));
    assert_true(hx_slice_eq(back.created_by, token.created_by));
    assert_int_equal(back.created_at, token.created_at);
    assert_int_equal(hx_api_token_scopes(&back), HX_SCOPE_PUBLISH | HX_SCOPE_VIEW);
    assert_int_equal(asked("{\"name\":\"a\",\"scopes\":[\"consume\"],\"tenant\":null}").tenant.len, 0);
}

/* A stored token that can't be read in full must not get more rights for it. */
static void what_is_not_understood_grants_nothing(void **state)
{
    (void)state;
    hx_api_token token;
    const hx_slice key = HX_LIT("t/0123456789abcdef");
    assert_true(hx_api_token_decode(key, HX_LIT("{\"name\":\"a\",\"scopes\":[\"view\",\"rule\"]}"), &arena, &token));
    assert_int_equal(hx_api_token_scopes(&token), HX_SCOPE_VIEW);
    assert_true(hx_api_token_decode(key, HX_LIT("{\"name\":\"a\"}"), &arena, &token));
    assert_int_equal(hx_api_token_scopes(&token), 0);
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"name\":\"a\",\"tenant\":7}",
                                      "{\"name\":\"a\",\"tenant\":\"/\"}",
                                      "{\"name\":\"a\",\"scopes\":\"view\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (hx_api_token_decode(key, hx_slice_of(bad[i]), &arena, &token)) fail_msg("%s was taken", bad[i]);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    expect_refused("", "JSON object");
    expect_refused("{\"scopes\":[\"view\"]}", "\"name\"");
    expect_refused("{\"name\":\"a b\",\"scopes\":[\"view\"]}", "\"name\"");
    expect_refused("{\"name\":\"a/b\",\"scopes\":[\"view\"]}", "\"name\"");
    expect_refused("{\"name\":\"0123456789AB\",\"scopes\":[\"view\"]}", "like an id");
    expect_refused("{\"name\":\"a\"}", "\"scopes\"");
    expect_refused("{\"name\":\"a\",\"scopes\":[]}", "\"scopes\"");
    expect_refused("{\"name\":\"a\",\"scopes\":[\"view\",\"views\"]}", "\"scopes\"");
    expect_refused("{\"name\":\"a\",\"scopes\":\"view\"}", "list");
    expect_refused("{\"name\":\"a\",\"scopes\":[\"view\"],\"tenant\":\"x y\"}", "\"tenant\"");
    expect_refused("{\"name\":\"a\",\"scopes\":[\"view\"],\"created_by\":\"me\"}", "\"created_by\"");
    expect_refused("{\"name\":\"a\",\"scopes\":[\"view\"],\"id\":\"x\"}", "\"id\"");
    char lengthy[100] = "{\"scopes\":[\"view\"],\"name\":\"";
    size_t len = strlen(lengthy);
    memset(lengthy + len, 'n', HX_API_TOKEN_NAME_MAX + 1);
    memcpy(lengthy + len + HX_API_TOKEN_NAME_MAX + 1, "\"}", 3);
    expect_refused(lengthy, "1 to 64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_is_found_in_its_header),
        cmocka_unit_test(what_can_be_no_token_is_not_looked_up),
        cmocka_unit_test(a_key_says_nothing_of_its_token),
        cmocka_unit_test(what_was_asked_for_comes_back_from_the_store),
        cmocka_unit_test(what_is_not_understood_grants_nothing),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
