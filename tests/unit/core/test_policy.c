/* SPDX-License-Identifier: Apache-2.0 */
#include "core/policy.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const struct {
    const char *path, *normalized;
    hx_path_error error;
} paths[] = {
    {"/", "/", HX_PATH_OK},
    {"/refunds", "/refunds", HX_PATH_OK},
    {"/refunds/", "/refunds/", HX_PATH_OK},
    {"*", "*", HX_PATH_OK},
    {"", "", HX_PATH_OK},
    {"/file.txt", "/file.txt", HX_PATH_OK},
    {"/.well-known/x", "/.well-known/x", HX_PATH_OK},
    {"/...", "/...", HX_PATH_OK},
    /* unreserved characters are decoded, others keep their escape in upper case */
    {"/%72efunds", "/refunds", HX_PATH_OK},
    {"/%7e%41%5F%2d", "/~A_-", HX_PATH_OK},
    {"/a%3ab%3A", "/a%3Ab%3A", HX_PATH_OK},
    {"/%c3%a4", "/%C3%A4", HX_PATH_OK},
    {"/%7Bid%7d", "/%7Bid%7D", HX_PATH_OK},
    {"/%00", "/%00", HX_PATH_OK},
    {"/%2572", "/%2572", HX_PATH_OK},
    /* dot segments, decoded or not */
    {"/a/./b", "/a/b", HX_PATH_OK},
    {"/a/../b", "/b", HX_PATH_OK},
    {"/a/b/..", "/a/", HX_PATH_OK},
    {"/a/.", "/a/", HX_PATH_OK},
    {"/..", "/", HX_PATH_OK},
    {"/.", "/", HX_PATH_OK},
    {"/../../a", "/a", HX_PATH_OK},
    {"/a/%2e%2E/b", "/b", HX_PATH_OK},
    {"/a/.%2e/b", "/b", HX_PATH_OK},
    {"/a/%2E/b/../../../c", "/c", HX_PATH_OK},
    /* what can't be told apart safely */
    {"/a%2Fb", "/a%2Fb", HX_PATH_ENCODED_SLASH},
    {"/a%2fb/../c", "/c", HX_PATH_ENCODED_SLASH},
    {"//a", "/a", HX_PATH_EMPTY_SEGMENT},
    {"/a//b", "/a/b", HX_PATH_EMPTY_SEGMENT},
    {"/a//", "/a/", HX_PATH_EMPTY_SEGMENT},
    {"//", "/", HX_PATH_EMPTY_SEGMENT},
    {"/a//../b", "/b", HX_PATH_EMPTY_SEGMENT},
    {"/a%", "/a%", HX_PATH_BAD_ESCAPE},
    {"/a%4", "/a%4", HX_PATH_BAD_ESCAPE},
    {"/a%4g/%72", "/a%4g/r", HX_PATH_BAD_ESCAPE},
    {"/%zz//", "/%zz/", HX_PATH_BAD_ESCAPE},
};

static void paths_are_normalised(void **state)
{
    (void)state;
    hx_arena arena = {0};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        hx_slice normalized = HX_LIT("untouched"), again = HX_LIT("untouched");
        hx_path_error error = hx_path_normalize(hx_slice_of(paths[i].path), &arena, &normalized);
        if (error != paths[i].error || !hx_slice_eq(normalized, hx_slice_of(paths[i].normalized)))
            fail_msg("%s became \"%.*s\", error %d", paths[i].path, HX_FMT(normalized), (int)error);
        if (error != HX_PATH_OK) continue;
        assert_int_equal(hx_path_normalize(normalized, &arena, &again), HX_PATH_OK);
        assert_true(hx_slice_eq(again, normalized));
    }
    hx_arena_free(&arena);
}

static void plain_paths_cost_no_memory(void **state)
{
    (void)state;
    static const char *const plain[] = {"/", "/refunds", "/a/b/c/", "/file.txt", "/.well-known/x", "/..a/b.."};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        hx_arena arena = {0};
        hx_slice path = hx_slice_of(plain[i]), normalized;
        assert_int_equal(hx_path_normalize(path, &arena, &normalized), HX_PATH_OK);
        assert_ptr_equal(normalized.ptr, path.ptr);
        assert_null(arena.blocks);
        assert_null(arena.large);
    }
}

static void every_path_error_has_its_sentence(void **state)
{
    (void)state;
    for (int error = HX_PATH_OK; error <= HX_PATH_BAD_ESCAPE; error++)
        for (int other = HX_PATH_OK; other < error; other++)
            assert_string_not_equal(hx_path_error_text((hx_path_error)error), hx_path_error_text((hx_path_error)other));
}

static void a_match_is_methods_and_a_path(void **state)
{
    (void)state;
    static const struct {
        const char *match, *methods, *path;
    } cases[] = {
        {"POST /refunds", "POST", "/refunds"},
        {"POST,PATCH /refunds", "POST,PATCH", "/refunds"},
        {"  POST   /refunds/{id} ", "POST", "/refunds/{id}"},
        {"/refunds", "", "/refunds"},
        {"GET /", "GET", "/"},
        {"POST /%72efunds/../a/{x}/", "POST", "/a/{x}/"},
        {"PURGE /a%3ab", "PURGE", "/a%3Ab"},
    };
    hx_arena arena = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hx_policy policy = hx_policy_default();
        const char *error = "";
        if (!hx_policy_match(hx_slice_of(cases[i].match), &arena, &policy, &error))
            fail_msg("%s: %s", cases[i].match, error);
        char methods[64] = "";
        for (size_t m = 0; m < policy.method_count; m++)
            (void)snprintf(methods + strlen(methods), sizeof methods - strlen(methods), "%s%.*s", m > 0 ? "," : "",
                           HX_FMT(policy.methods[m]));
        assert_string_equal(methods, cases[i].methods);
        assert_true(hx_slice_eq(policy.path, hx_slice_of(cases[i].path)));
    }
    hx_arena_free(&arena);
}

static void a_bad_match_is_refused_with_a_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *match, *says;
    } cases[] = {
        {"", "method is missing"},
        {"POST", "path is missing"},
        {"POST ", "path is missing"},
        {"POST refunds", "begin with a slash"},
        {"post /refunds", "upper case"},
        {"POST,,PATCH /a", "method is missing"},
        {"POST, PATCH /a", "method is missing"},
        {"POST,POST /a", "listed twice"},
        {"P(ST /a", "not a word"},
        {"CONNECT /a", "CONNECT"},
        {"POST /a?b=c", "query"},
        {"POST /a#b", "fragment"},
        {"POST /a/*", "wildcard"},
        {"POST /a b", "space"},
        {"POST /a//b", "empty segment"},
        {"POST /a%2fb", "encoded slash"},
        {"POST /a%g", "hexadecimal"},
        {"POST /a/{id", "whole segment"},
        {"POST /a/id}", "whole segment"},
        {"POST /a/x{id}", "whole segment"},
        {"POST /a/{id}x", "whole segment"},
        {"POST /a/{}", "hold a name"},
        {"POST /a/{a{b}", "hold a name"},
    };
    hx_arena arena = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hx_policy policy = hx_policy_default();
        const char *error = NULL;
        if (hx_policy_match(hx_slice_of(cases[i].match), &arena, &policy, &error))
            fail_msg("%s is taken", cases[i].match);
        if (!strstr(error, cases[i].says)) fail_msg("%s: %s", cases[i].match, error);
    }
    hx_arena_free(&arena);
}

static void the_first_route_that_matches_decides(void **state)
{
    (void)state;
    static const char *const routes[] = {
        "POST /refunds", "POST,PATCH /refunds/{id}", "GET /refunds/{id}", "/any/{a}/{b}", "POST /refunds/{id}/void",
        "POST /",        "PATCH /refunds/special",
    };
    static const struct {
        const char *method, *path;
        int route;
    } cases[] = {
        {"POST", "/refunds", 0},
        {"PUT", "/refunds", -1},
        {"GET", "/refunds", -1},
        {"post", "/refunds", -1},
        {"POST", "/refunds/", -1},
        {"POST", "/refund", -1},
        {"POST", "/refundss", -1},
        {"POST", "/Refunds", -1},
        {"POST", "/refunds/1", 1},
        {"PATCH", "/refunds/special", 1},
        {"GET", "/refunds/1", 2},
        {"DELETE", "/refunds/1", -1},
        {"POST", "/refunds/1/", -1},
        {"POST", "/refunds/1/void", 4},
        {"POST", "/refunds//void", -1},
        {"PUT", "/any/x/y", 3},
        {"PURGE", "/any/x/y", 3},
        {"GET", "/any/x/y", -1},
        {"HEAD", "/any/x/y", -1},
        {"OPTIONS", "/any/x/y", -1},
        {"TRACE", "/any/x/y", -1},
        {"POST", "/any/x", -1},
        {"POST", "/any/x/y/z", -1},
        {"POST", "/any//y", -1},
        {"POST", "/", 5},
        {"POST", "", -1},
        {"POST", "*", -1},
        {"POST", "/refunds/%7Bid%7D", 1},
    };
    hx_arena arena = {0};
    hx_policy policies[sizeof routes / sizeof routes[0]];
    hx_policy_set set = {.routes = policies};
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        const char *error = NULL;
        policies[set.count] = hx_policy_default();
        assert_true(hx_policy_match(hx_slice_of(routes[i]), &arena, &policies[set.count++], &error));
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const hx_policy *found = hx_policy_find(&set, hx_slice_of(cases[i].method), hx_slice_of(cases[i].path));
        int route = found ? (int)(found - policies) : -1;
        if (route != cases[i].route) fail_msg("%s %s matched %d", cases[i].method, cases[i].path, route);
    }
    hx_arena_free(&arena);
}

static void the_version_follows_who_a_key_belongs_to(void **state)
{
    (void)state;
    hx_policy policy = hx_policy_default();
    uint32_t before = hx_policy_version(&policy);
    policy.lifetime = HX_HOUR;
    policy.key = (hx_key_rules){.format = HX_KEY_UUID, .len_min = 36, .len_max = 36};
    policy.name = HX_LIT("renamed");
    assert_int_equal(hx_policy_version(&policy), before);

    policy.principals[0] = (hx_principal_source){HX_PRINCIPAL_HEADER, HX_LIT("X-User")};
    uint32_t by_header = hx_policy_version(&policy);
    assert_int_not_equal(by_header, before);
    policy.principals[0].name = HX_LIT("x-user");
    assert_int_equal(hx_policy_version(&policy), by_header);
    policy.principals[0] = (hx_principal_source){HX_PRINCIPAL_COOKIE, HX_LIT("X-User")};
    uint32_t by_cookie = hx_policy_version(&policy);
    assert_int_not_equal(by_cookie, by_header);
    policy.principals[0].name = HX_LIT("x-user");
    assert_int_not_equal(hx_policy_version(&policy), by_cookie);
    policy.principals[policy.principal_count++] = (hx_principal_source){HX_PRINCIPAL_AUTHORIZATION, HX_EMPTY};
    assert_int_not_equal(hx_policy_version(&policy), by_cookie);
}

static void only_unsafe_methods_that_pass_are_exposed(void **state)
{
    (void)state;
    static const struct {
        const char *match;
        bool exposed;
    } cases[] = {{"POST /a", true}, {"GET,HEAD /a", false}, {"GET,PUT /a", true}, {"/a", true}};
    hx_arena arena = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hx_policy policy = hx_policy_default();
        const char *error = NULL;
        assert_true(hx_policy_match(hx_slice_of(cases[i].match), &arena, &policy, &error));
        assert_false(hx_policy_is_exposed(&policy));
        policy.mode = HX_MODE_PASS;
        assert_int_equal(hx_policy_is_exposed(&policy), cases[i].exposed);
    }
    hx_arena_free(&arena);
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
        cmocka_unit_test(paths_are_normalised),
        cmocka_unit_test(plain_paths_cost_no_memory),
        cmocka_unit_test(every_path_error_has_its_sentence),
        cmocka_unit_test(a_match_is_methods_and_a_path),
        cmocka_unit_test(a_bad_match_is_refused_with_a_sentence),
        cmocka_unit_test(the_first_route_that_matches_decides),
        cmocka_unit_test(the_version_follows_who_a_key_belongs_to),
        cmocka_unit_test(only_unsafe_methods_that_pass_are_exposed),
    };
    return cmocka_run_group_tests(tests, NULL, drain);
}
