/* SPDX-License-Identifier: Apache-2.0 */
#include "core/operation/policy.h"

#include "core/operation/template.h"

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
        {"POST /1/2/3/4/5/6/7/8/9/10/1/2/3/4/5/6/7/8/9/20/1/2/3/4/5/6/7/8/9/30/1/2/3/4/5/6/7/8/9/40/1/2/3/4/5/6/7/8/9/"
         "50/1/2/3/4/5/6/7/8/9/60/1/2/3/4/5",
         "more than 64 segments"},
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
    hx_policy_compile(&set, &arena);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const hx_policy *found = hx_policy_find(&set, hx_slice_of(cases[i].method), hx_slice_of(cases[i].path));
        int route = found ? (int)(found - policies) : -1;
        if (route != cases[i].route) fail_msg("%s %s matched %d", cases[i].method, cases[i].path, route);
    }
    hx_arena_free(&arena);
}

/* What the compiled routes must agree with: every route after the other, segment by segment. */
static bool path_matches(hx_slice template, hx_slice path)
{
    hx_slice left, right;
    if (path.len == 0 || path.ptr[0] != '/') return false;
    while (hx_slice_next(&template, '/', &left)) {
        if (!hx_slice_next(&path, '/', &right)) return false;
        bool any = left.len > 0 && left.ptr[0] == '{' && right.len > 0;
        if (!any && !hx_slice_eq(left, right)) return false;
    }
    return !hx_slice_next(&path, '/', &right);
}

static const hx_policy *find_one_by_one(const hx_policy_set *set, hx_slice method, hx_slice path)
{
    for (const hx_policy *route = set->routes; route < set->routes + set->count; route++) {
        bool taken = route->method_count == 0 && !hx_method_is_safe(method);
        for (size_t m = 0; m < route->method_count; m++) taken = taken || hx_slice_eq(route->methods[m], method);
        if (taken && path_matches(route->path, path)) return route;
    }
    return NULL;
}

static uint32_t seed;

static uint32_t any_of(uint32_t count)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % count;
}

/* Few words and few segments, so that routes meet often. */
static size_t random_path(char *out, size_t room, bool template, uint32_t words, uint32_t depth)
{
    size_t len = 0;
    uint32_t segments = 1 + any_of(depth);
    for (uint32_t i = 0; i < segments; i++) {
        len += (size_t)snprintf(out + len, room - len, "/");
        if (template && any_of(3) == 0)
            len += (size_t)snprintf(out + len, room - len, "{p%u}", any_of(9));
        else if (i + 1 < segments || any_of(6) > 0) /* else it ends with a slash */
            len += (size_t)snprintf(out + len, room - len, "w%u", any_of(words));
    }
    return len;
}

static const char *const match_methods[] = {"",      "POST ",           "PUT ",   "PATCH ",     "DELETE ",   "GET ",
                                            "HEAD ", "POST,PUT,PATCH ", "PURGE ", "GET,PURGE ", "LOCK,POST "};
static const char *const methods[] = {"POST",    "PUT",   "PATCH", "DELETE", "GET",  "HEAD",
                                      "OPTIONS", "TRACE", "PURGE", "LOCK",   "post", "UNLOCK"};

static void compiled_routes_match_as_one_after_the_other_would(void **state)
{
    (void)state;
    unsigned found = 0, missed = 0, by_later = 0;
    for (uint32_t round = 0; round < 600; round++) {
        hx_arena arena = {0};
        seed = round;
        uint32_t words = 1 + any_of(4), depth = 1 + any_of(5);
        hx_policy_set set = {.count = round < 5 ? round : 1 + any_of(round % 50 == 0 ? 1000 : 40)};
        set.routes = hx_arena_alloc(&arena, (set.count + 1) * sizeof *set.routes);
        for (size_t i = 0; i < set.count; i++) {
            char path[200], match[256];
            const char *error = NULL;
            (void)random_path(path, sizeof path, true, words, depth);
            (void)snprintf(match, sizeof match, "%s%s",
                           match_methods[any_of(sizeof match_methods / sizeof match_methods[0])], path);
            set.routes[i] = hx_policy_default();
            if (!hx_policy_match(hx_slice_of(match), &arena, &set.routes[i], &error)) fail_msg("%s: %s", match, error);
        }
        hx_policy_compile(&set, &arena);
        for (int i = 0; i < 300; i++) {
            char path[200];
            hx_slice method = hx_slice_of(methods[any_of(sizeof methods / sizeof methods[0])]);
            hx_slice text = {path, random_path(path, sizeof path, false, words + 1, depth + 1)};
            const hx_policy *one = find_one_by_one(&set, method, text), *other = hx_policy_find(&set, method, text);
            if (one != other)
                fail_msg("round %u: %.*s %s: %td, not %td", round, HX_FMT(method), path,
                         other ? other - set.routes : -1, one ? one - set.routes : -1);
            found += one != NULL;
            missed += one == NULL;
            by_later += one && one > set.routes + 5;
        }
        hx_arena_free(&arena);
    }
    assert_true(found > 20000 && missed > 20000 && by_later > 2000);
}

static void odd_paths_are_no_routes(void **state)
{
    (void)state;
    static const char *const odd[] = {"", "*", "a", "a/b", "//", "///", "/a//", "/{x}/", "http://a/b"};
    hx_arena arena = {0};
    hx_policy policies[2] = {hx_policy_default(), hx_policy_default()};
    hx_policy_set set = {.routes = policies, .count = 2};
    const char *error = NULL;
    assert_true(hx_policy_match(HX_LIT("POST /a/{x}"), &arena, &policies[0], &error));
    assert_true(hx_policy_match(HX_LIT("POST /a/{x}/{y}/c"), &arena, &policies[1], &error));
    hx_policy_compile(&set, &arena);
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        if (hx_policy_find(&set, HX_LIT("POST"), hx_slice_of(odd[i]))) fail_msg("%s is matched", odd[i]);
    char deep[4000];
    memset(deep, '/', sizeof deep);
    assert_null(hx_policy_find(&set, HX_LIT("POST"), (hx_slice){deep, sizeof deep}));
    hx_policy_set none = {0};
    assert_null(hx_policy_find(&none, HX_LIT("POST"), HX_LIT("/a")));
    hx_policy_compile(&none, &arena);
    assert_null(hx_policy_find(&none, HX_LIT("POST"), HX_LIT("/")));
    hx_arena_free(&arena);
}

/* Which route is missed by a path; -1: none. */
static const struct {
    const char *path;
    int route;
} spellings[] = {
    {"/users/%40me", 0},
    {"/users%2f@me", 0},
    {"/users%2F/%40me", 0},
    {"/x%2f..%2fusers/@me", 0},
    {"/users/%2540me", 1},
    {"/Users/%2F", 1},
    {"/USERS/a%2Fb", 1}, /* where an escaped slash is data */
    {"/a%20b/%3A", 2},
    {"/a b/:", 2},
    {"/a%2520b/:", -1},
    {"/users%2Fa%2Fb", -1},
    {"/users/%zz", 1},
    {"/%", -1},
    {"/x", 3},
    {"/x/", 3},
    {"/X", 3},
    {"/x;a", 3},
    {"/x;a=%2Fb", 3},
    {"/x%3Ba", 3},
    {"/x%20", 3},
    {"/x%00", 3},
    {"/x%00.json", 3},
    {"/x%00/y", 3},
    {"/x.", 3},
    {"/x. .%20", 3},
    {"\\x", -1}, /* no path at all */
    {"/\\x", 3},
    {"/x\\", 3},
    {"/%5Cx", 3},
    {"//x", 3},
    {"/X/;a", 3},
    {"/a/..;/x", 3},
    {"/a\\..\\x", 3},
    {"/x//..", 3}, /* where empty segments count until the dots are resolved */
    {"/x//../", 3},
    {"/xy", -1},
    {"/x/y", -1},
    {"/y", -1},
    {"/.x", -1},
    {"/Exact", -1},
    {"/exact/", -1},
    {"/Passes", -1},
    {"/%7Busers%7D/@me", -1},
    {"/twice", 6},
    {"/TWICE", 6},
    {"/", -1},
};

static void no_spelling_hides_a_protected_route(void **state)
{
    (void)state;
    static const char *const matches[] = {"POST /users/@me", "/users/{id}",  "POST /a%20b/:", "POST /x",
                                          "POST /exact",     "POST /passes", "POST /twice/"};
    enum { ROUTES = sizeof matches / sizeof matches[0] };
    hx_arena arena = {0};
    hx_policy routes[ROUTES];
    hx_policy_set set = {.routes = routes, .count = ROUTES};
    const char *error = NULL;
    for (size_t i = 0; i < ROUTES; i++) {
        routes[i] = hx_policy_default();
        assert_true(hx_policy_match(hx_slice_of(matches[i]), &arena, &routes[i], &error));
    }
    routes[4].path_exact = true;
    routes[5].mode = HX_MODE_PASS;
    hx_policy_compile(&set, &arena);
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        const hx_policy *found = hx_policy_find_near(&set, HX_LIT("POST"), hx_slice_of(spellings[i].path), NULL,
                                                     &arena);
        if (found != (spellings[i].route < 0 ? NULL : &routes[spellings[i].route]))
            fail_msg("%s is route %d", spellings[i].path, found ? (int)(found - routes) : -1);
    }
    assert_null(hx_policy_find_near(&set, HX_LIT("GET"), HX_LIT("/users/%40me"), NULL, &arena));
    assert_null(hx_policy_find_near(&set, HX_LIT("POST"), HX_LIT("*"), NULL, &arena));
    /* What is another route's as it stands is a near miss only of what would take it before that one. */
    assert_ptr_equal(hx_policy_find_near(&set, HX_LIT("POST"), HX_LIT("/users/%40me"), &routes[1], &arena), &routes[0]);
    assert_null(hx_policy_find_near(&set, HX_LIT("POST"), HX_LIT("/users/%41me"), &routes[1], &arena));
    hx_arena_free(&arena);
}

static void what_stands_in_braces_is_found_by_its_name(void **state)
{
    (void)state;
    static const struct {
        const char *template, *path, *name, *value;
    } cases[] = {
        {"/matches/{id}/messages/{n}", "/matches/7/messages/9", "id", "7"},
        {"/matches/{id}/messages/{n}", "/matches/7/messages/9", "n", "9"},
        {"/matches/{id}", "/matches/a%3Ab", "id", "a%3Ab"},
        {"/matches/{id}", "/matches/7", "i", NULL},
        {"/matches/{id}", "/matches/7", "matches", NULL},
        {"/matches/{id}", "/matches", "id", NULL},
        {"/{a}/{a}", "/1/2", "a", "1"},
        {"/matches", "/matches", "id", NULL},
        {"", "/matches/7", "id", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hx_slice value = HX_EMPTY;
        bool found = hx_path_parameter(hx_slice_of(cases[i].template), hx_slice_of(cases[i].path),
                                       hx_slice_of(cases[i].name), &value);
        assert_int_equal(found, cases[i].value != NULL);
        if (found && !hx_slice_eq(value, hx_slice_of(cases[i].value)))
            fail_msg("%s: %.*s", cases[i].path, HX_FMT(value));
    }
}

static void the_version_follows_who_a_key_belongs_to(void **state)
{
    (void)state;
    hx_policy policy = hx_policy_default();
    uint32_t before = hx_policy_version(&policy);
    policy.lifetime = HX_HOUR;
    policy.key = (hx_key_rules){.format = HX_KEY_UUID, .len_min = 36, .len_max = 36};
    assert_int_equal(hx_policy_version(&policy), before);
    assert_int_equal(before & HX_RULE_NAMED, 0);
    policy.name = HX_LIT("named");
    assert_int_equal(hx_policy_version(&policy), before | HX_RULE_NAMED);
    policy.name = HX_LIT("renamed");
    before |= HX_RULE_NAMED;
    assert_int_equal(hx_policy_version(&policy), before);

    policy.principals[0] = (hx_principal_source){HX_PRINCIPAL_HEADER, HX_LIT("x-user")};
    uint32_t by_header = hx_policy_version(&policy);
    assert_int_not_equal(by_header, before);
    policy.principals[0] = (hx_principal_source){HX_PRINCIPAL_COOKIE, HX_LIT("x-user")};
    uint32_t by_cookie = hx_policy_version(&policy);
    assert_int_not_equal(by_cookie, by_header);
    policy.principals[0].name = HX_LIT("X-User");
    assert_int_not_equal(hx_policy_version(&policy), by_cookie);
    policy.principals[policy.principal_count++] = (hx_principal_source){HX_PRINCIPAL_AUTHORIZATION, HX_EMPTY};
    assert_int_not_equal(hx_policy_version(&policy), by_cookie);
}

typedef void (*change)(hx_policy *policy);

static const hx_slice one[] = {{"/a", 2}}, two[] = {{"/a", 2}, {"/b", 2}}, two_turned[] = {{"/b", 2}, {"/a", 2}};
static const hx_template by_body = {.parts = {{.canonical = {"body:/a", 7}}}, .count = 1};
static const hx_template by_query = {.parts = {{.canonical = {"query:a", 7}}}, .count = 1};

static void scope_principal(hx_policy *p)
{
    p->scope = HX_SCOPE_PRINCIPAL;
}
static void scope_route(hx_policy *p)
{
    p->scope = HX_SCOPE_ROUTE;
}
static void by_claim(hx_policy *p)
{
    p->principals[0] = (hx_principal_source){HX_PRINCIPAL_JWT_CLAIM, HX_LIT("sub")};
}
static void from_body(hx_policy *p)
{
    p->key.from = &by_body;
}
static void from_query(hx_policy *p)
{
    p->key.from = &by_query;
}
static void from_body_or_header(hx_policy *p)
{
    p->key.from = &by_body;
    p->key.prefer_header = true;
}
static void raw(hx_policy *p)
{
    p->fingerprint.body = HX_FINGERPRINT_RAW;
}
static void by_key(hx_policy *p)
{
    p->fingerprint.body = HX_FINGERPRINT_KEY;
}
static void one_pointer(hx_policy *p)
{
    p->fingerprint = (hx_fingerprint_rules){.body = HX_FINGERPRINT_POINTERS, .pointers = one, .pointer_count = 1};
}
static void two_pointers(hx_policy *p)
{
    p->fingerprint = (hx_fingerprint_rules){.body = HX_FINGERPRINT_POINTERS, .pointers = two, .pointer_count = 2};
}
static void one_ignored(hx_policy *p)
{
    p->fingerprint = (hx_fingerprint_rules){.ignored_pointers = one, .ignored_pointer_count = 1};
}
static void one_query_ignored(hx_policy *p)
{
    p->fingerprint = (hx_fingerprint_rules){.ignored_query = one, .ignored_query_count = 1};
}
static void one_header(hx_policy *p)
{
    p->fingerprint = (hx_fingerprint_rules){.headers = one, .header_count = 1};
}
static void scoped_key(hx_policy *p)
{
    p->forward_key = HX_FORWARD_KEY_SCOPED;
}
static void scoped_key_quoted(hx_policy *p)
{
    p->forward_key = HX_FORWARD_KEY_SCOPED;
    p->dialect = HX_DIALECT_IETF;
}
static void from_body_quoted(hx_policy *p)
{
    p->key.from = &by_body;
    p->dialect = HX_DIALECT_IETF;
}

static void every_rule_of_scope_key_and_fingerprint_has_its_version(void **state)
{
    (void)state;
    static const change changes[] = {scope_principal,
                                     scope_route,
                                     by_claim,
                                     from_body,
                                     from_query,
                                     from_body_or_header,
                                     raw,
                                     by_key,
                                     one_pointer,
                                     two_pointers,
                                     one_ignored,
                                     one_query_ignored,
                                     one_header,
                                     scoped_key,
                                     scoped_key_quoted,
                                     from_body_quoted};
    uint32_t versions[sizeof changes / sizeof changes[0] + 1];
    size_t count = 0;
    hx_policy policy = hx_policy_default();
    versions[count++] = hx_policy_version(&policy);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        policy = hx_policy_default();
        changes[i](&policy);
        versions[count] = hx_policy_version(&policy);
        for (size_t k = 0; k < count; k++)
            if (versions[k] == versions[count]) fail_msg("change %zu looks like change %zu", i, k);
        count++;
    }
}

static void rules_that_mean_the_same_have_one_version(void **state)
{
    (void)state;
    hx_policy policy = hx_policy_default(), other = policy;
    two_pointers(&policy);
    two_pointers(&other);
    other.fingerprint.pointers = two_turned;
    assert_int_equal(hx_policy_version(&policy), hx_policy_version(&other));
    other = policy = hx_policy_default();
    other.fingerprint_said = true;
    other.key.prefer_header = true; /* there is no other key */
    other.key.shared = true;
    other.require_principal = true;
    other.dialect = HX_DIALECT_IETF; /* the client's key goes up as it came, whatever the dialect */
    other.jwt.given = true;
    assert_int_equal(hx_policy_version(&policy), hx_policy_version(&other));
    policy.forward_key = other.forward_key = HX_FORWARD_KEY_SCOPED; /* one of ours is quoted there */
    assert_int_not_equal(hx_policy_version(&policy), hx_policy_version(&other));
}

static const struct hx_zone *no_zone(void *user, hx_slice name)
{
    (void)user, (void)name;
    return NULL;
}

static void templates_that_mean_the_same_have_one_version(void **state)
{
    (void)state;
    static const char *const texts[] = {"{header:X-A}:{window:60m}", "{header:x-a}:{window:1h}",
                                        "{header:x-a}{window:1h}"};
    uint32_t versions[3];
    hx_arena arena = {0};
    for (size_t i = 0; i < 3; i++) {
        hx_policy policy = hx_policy_default();
        const char *error = NULL;
        policy.key.from = hx_template_compile(hx_slice_of(texts[i]), no_zone, NULL, &arena, &error);
        if (error) fail_msg("%s", error);
        versions[i] = hx_policy_version(&policy);
    }
    assert_int_equal(versions[0], versions[1]);
    assert_int_not_equal(versions[1], versions[2]);
    hx_arena_free(&arena);
}

typedef struct {
    const char *name, *match;
} row;

typedef struct {
    uint32_t last, defaults;
} versions;

/* Those of the last of these routes, and of the defaults beside them. */
static versions versions_of(const row *rows, size_t count)
{
    hx_policy routes[4];
    hx_arena arena = {0};
    assert_in_range(count, 1, 4);
    for (size_t i = 0; i < count; i++) {
        const char *error = NULL;
        routes[i] = hx_policy_default();
        routes[i].name = hx_slice_of(rows[i].name);
        assert_true(hx_policy_match(hx_slice_of(rows[i].match), &arena, &routes[i], &error));
    }
    hx_policy_set set = {.routes = routes, .count = count, .defaults = hx_policy_default()};
    hx_policy_version_all(&set);
    assert_int_equal(set.defaults.rule_version & ~HX_RULE_MATCH, hx_policy_version(&set.defaults));
    for (size_t i = 0; i < count; i++)
        assert_int_equal(routes[i].rule_version & ~HX_RULE_MATCH, hx_policy_version(&routes[i]));
    hx_arena_free(&arena);
    return (versions){routes[count - 1].rule_version, set.defaults.rule_version};
}

#define VERSIONS(...) versions_of((const row[]){__VA_ARGS__}, sizeof((const row[]){__VA_ARGS__}) / sizeof(row))
#define VERSION(...) VERSIONS(__VA_ARGS__).last
#define DEFAULTS(...) VERSIONS(__VA_ARGS__).defaults

static void the_requests_that_come_to_a_route_are_in_its_version(void **state)
{
    (void)state;
    uint32_t version = VERSION({"a", "POST,PUT /x/{id}"});
    assert_true(version & HX_RULE_NAMED);
    static const char *const others[] = {"POST /x/{id}",   "POST,PATCH /x/{id}", "POST,PUT,PATCH /x/{id}", "/x/{id}",
                                         "POST,PUT /x",    "POST,PUT /y/{id}",   "POST,PUT /x/{id}/",      "/",
                                         "POST,PUT /x/id", "POST,PUT /{id}/x",   "POST,PUT /x/{id}/{k}",   "POST /x"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        uint32_t other = VERSION({"a", others[i]});
        if (other == version) fail_msg("%s", others[i]);
        assert_int_equal(other & ~HX_RULE_MATCH, version & ~HX_RULE_MATCH); /* its operations are made the same way */
    }
    assert_int_equal(VERSION({"b", "POST,PUT /x/{id}"}), version); /* the name stands beside it */
    assert_int_equal(VERSION({"a", "PUT,POST /x/{id}"}), version);
    assert_int_equal(VERSION({"a", "POST,PUT /x/{other}"}), version);
    /* What is called as its requests are needs no more than its name, and is found without the route. */
    assert_int_equal(VERSION({"POST /x", "POST /x"}) & HX_RULE_MATCH, 0);
    assert_int_not_equal(VERSION({"POST /x", "PUT /x"}) & HX_RULE_MATCH, 0);
    assert_int_not_equal(VERSION({"POST /x", "POST /y"}) & HX_RULE_MATCH, 0);
    assert_int_not_equal(VERSION({"POST /x", "POST,PUT /x"}) & HX_RULE_MATCH, 0);
    assert_int_not_equal(VERSION({"POST /x", "/x"}) & HX_RULE_MATCH, 0);
    assert_int_equal(VERSION({"POST,PUT /x/{id}", "POST,PUT /x/{id}"}), version);
    assert_int_equal(VERSION({"POST,PUT /x/{id}", "PUT,POST /x/{other}"}), version);
}

static void a_route_before_that_takes_its_requests_is_in_its_version(void **state)
{
    (void)state;
    uint32_t alone = VERSION({"a", "POST /x/{id}"});
    uint32_t behind = VERSION({"b", "POST /x/new"}, {"a", "POST /x/{id}"});
    assert_int_not_equal(behind, alone);
    assert_int_equal(behind & ~HX_RULE_MATCH, alone & ~HX_RULE_MATCH);
    assert_int_equal(VERSION({"c", "POST /x/new"}, {"a", "POST /x/{id}"}), behind);
    assert_int_not_equal(VERSION({"b", "POST /x/old"}, {"a", "POST /x/{id}"}), behind);
    assert_int_not_equal(VERSION({"b", "/x/new"}, {"a", "POST /x/{id}"}), alone);
    assert_int_not_equal(VERSION({"b", "POST /x/new"}, {"c", "POST /{k}/old"}, {"a", "POST /x/{id}"}), behind);
    /* These never take one of its requests. */
    assert_int_equal(VERSION({"b", "PUT /x/{id}"}, {"a", "POST /x/{id}"}), alone);
    assert_int_equal(VERSION({"b", "GET /x/{id}"}, {"c", "POST /x"}, {"d", "POST /x/{id}/"}, {"a", "POST /x/{id}"}),
                     alone);
    assert_int_equal(VERSION({"b", "GET /x/{id}"}, {"a", "/x/{id}"}), VERSION({"a", "/x/{id}"}));
}

static void what_routes_take_from_the_defaults_is_in_their_version(void **state)
{
    (void)state;
    uint32_t version = DEFAULTS({"a", "POST /x/{id}"}, {"b", "POST /y"});
    assert_int_not_equal(DEFAULTS({"a", "POST /x/{id}"}), version);
    assert_int_not_equal(DEFAULTS({"a", "POST /x/{id}"}, {"b", "POST /z"}), version);
    assert_int_not_equal(DEFAULTS({"a", "POST /x/{id}"}, {"b", "PUT /y"}), version);
    /* In another order, or with other names, it is as much. */
    assert_int_equal(DEFAULTS({"b", "POST /y"}, {"a", "POST /x/{id}"}), version);
    assert_int_equal(DEFAULTS({"c", "POST /x/{k}"}, {"d", "POST /y"}), version);
    /* Operations that are called as they would be without the route stay the same ones. */
    assert_int_equal(DEFAULTS({"a", "POST /x/{id}"}, {"b", "POST /y"}, {"POST /z", "POST /z"}), version);
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
        policy.mode = HX_MODE_SHADOW;
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
        cmocka_unit_test(compiled_routes_match_as_one_after_the_other_would),
        cmocka_unit_test(odd_paths_are_no_routes),
        cmocka_unit_test(no_spelling_hides_a_protected_route),
        cmocka_unit_test(what_stands_in_braces_is_found_by_its_name),
        cmocka_unit_test(every_rule_of_scope_key_and_fingerprint_has_its_version),
        cmocka_unit_test(templates_that_mean_the_same_have_one_version),
        cmocka_unit_test(rules_that_mean_the_same_have_one_version),
        cmocka_unit_test(the_version_follows_who_a_key_belongs_to),
        cmocka_unit_test(the_requests_that_come_to_a_route_are_in_its_version),
        cmocka_unit_test(a_route_before_that_takes_its_requests_is_in_its_version),
        cmocka_unit_test(what_routes_take_from_the_defaults_is_in_their_version),
        cmocka_unit_test(only_unsafe_methods_that_pass_are_exposed),
    };
    return cmocka_run_group_tests(tests, NULL, drain);
}
