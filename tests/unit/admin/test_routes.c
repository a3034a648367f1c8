/* SPDX-License-Identifier: Apache-2.0 */
/* The table of requests: which row a path means, and that every row is closed to every caller without its right. */
#include "admin/routes.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define ID "00112233445566778899aabbccddeeff"
#define LENGTHY "/v1/operations/00112233445566778899aabbccddeeff0"

static hx_arena arena;

static int tear_down(void **state)
{
    (void)state;
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}

static const hx_admin_route *find(const char *method, const char *path, hx_admin_path *found, hx_slice *allowed)
{
    hx_buf lines;
    hx_buf_init(&lines, &arena, HX_ADMIN_ALLOWED_BYTES);
    hx_slice query = hx_slice_of(path), target = hx_slice_first(query, hx_slice_find(query, '?'));
    query = hx_slice_from(query, target.len + 1);
    const hx_admin_route *route = hx_admin_find_route(hx_slice_of(method), target, query, &arena, found, &lines);
    *allowed = hx_buf_slice(&lines);
    return route;
}

static void expect_row(const char *method, const char *path, const char *pattern)
{
    hx_admin_path found;
    hx_slice allowed;
    const hx_admin_route *route = find(method, path, &found, &allowed);
    if (!route) fail_msg("%s %s is no row", method, path);
    assert_string_equal(route->path, pattern);
    assert_string_equal(route->method, method);
}

static void a_path_means_one_row(void **state)
{
    (void)state;
    hx_admin_path found;
    hx_slice allowed;
    expect_row("GET", "/v1/operations", "/v1/operations");
    expect_row("POST", "/v1/operations/resolve", "/v1/operations/resolve");
    expect_row("GET", "/v1/events", "/v1/events");
    expect_row("GET", "/v1/events?after=1&stream=a", "/v1/events?stream");
    expect_row("GET", "/v1/events?streams=a&s=stream", "/v1/events");
    expect_row("POST", "/v1/events?stream=a", "/v1/events");
    expect_row("POST", "/v1/operations/" ID "/resolve", "/v1/operations/{id}/resolve");
    (void)find("GET", "/v1/operations/" ID "/history", &found, &allowed);
    assert_int_equal(found.op.bytes[1], 0x11);
    assert_int_equal(found.op.bytes[15], 0xff);
    static const char *const none[] = {
        "",           "/",           "/v1",         "/v1/operations/", "/v1/operations/xyz",
        "/V1/counts", "/v1//counts", "/v1/counts/", "v1/counts",       LENGTHY};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        if (find("GET", none[i], &found, &allowed)) fail_msg("%s is a row", none[i]);
        assert_int_equal(allowed.len, 0);
    }
    assert_null(find("PUT", "/v1/tokens", &found, &allowed));
    assert_true(hx_slice_eq(allowed, HX_LIT("Allow: POST, GET\r\n")));
}

static void a_parameter_is_any_text_that_is_not_too_long(void **state)
{
    (void)state;
    hx_admin_path found;
    hx_slice allowed;
    assert_non_null(find("DELETE", "/v1/tokens/a%2Fb%20%C3%A4", &found, &allowed));
    assert_true(hx_slice_eq(found.parameters[0], HX_LIT("a/b \xc3\xa4")));
    assert_null(find("DELETE", "/v1/tokens/", &found, &allowed));
    assert_null(find("DELETE", "/v1/tokens/a/b", &found, &allowed));
    assert_null(find("DELETE", "/v1/tokens/%2", &found, &allowed));
    assert_null(find("DELETE", "/v1/tokens/%zz", &found, &allowed));
    char path[600] = "/v1/tokens/";
    size_t len = strlen(path);
    memset(path + len, 'x', HX_ADMIN_PARAMETER_BYTES);
    assert_non_null(find("DELETE", path, &found, &allowed));
    path[len + HX_ADMIN_PARAMETER_BYTES] = 'x';
    assert_null(find("DELETE", path, &found, &allowed));
}

/* What a token with these scopes, bound to this tenant, may do with a row: by the table's own words, not the code's. */
static bool may(const hx_admin_route *route, unsigned scopes, bool is_bound)
{
    bool has_scope = route->scope == HX_SCOPE_PUBLISH   ? scopes & 1
                     : route->scope == HX_SCOPE_CONSUME ? scopes & 2
                     : route->scope == HX_SCOPE_OPERATE ? scopes & 4
                     : route->scope == HX_SCOPE_VIEW    ? scopes & 8
                     : route->scope == HX_SCOPE_ANY     ? scopes > 0
                                                        : false;
    return has_scope && (!is_bound || route->reach == HX_REACH_TENANT);
}

static void every_row_is_closed_without_its_scope(void **state)
{
    (void)state;
    size_t count, open = 0;
    const hx_admin_route *routes = hx_admin_routes(&count);
    for (size_t i = 0; i < count; i++) {
        hx_admin_caller who = {.kind = HX_ADMIN_CALLER_NOBODY, .scopes = 15};
        assert_int_equal(hx_admin_permit(&routes[i], &who), HX_ADMIN_NO_TOKEN);
        who.kind = HX_ADMIN_CALLER_USER;
        who.scopes = 0;
        assert_int_equal(hx_admin_permit(&routes[i], &who), HX_ADMIN_PROBLEM_COUNT);
        who.kind = HX_ADMIN_CALLER_TOKEN;
        for (unsigned bits = 0; bits < 32; bits++) {
            who.scopes = bits & 15;
            who.tenant = bits & 16 ? HX_LIT("acme") : HX_EMPTY;
            bool permitted = hx_admin_permit(&routes[i], &who) == HX_ADMIN_PROBLEM_COUNT;
            if (permitted != may(&routes[i], bits & 15, bits & 16))
                fail_msg("%s %s is %s for %u", routes[i].method, routes[i].path, permitted ? "open" : "closed", bits);
            open += permitted;
        }
    }
    assert_true(open > 0);
}

/* A row that nobody has thought about must not be reachable from outside. */
static void what_changes_the_daemon_is_for_the_socket_only(void **state)
{
    (void)state;
    size_t count;
    const hx_admin_route *routes = hx_admin_routes(&count);
    for (size_t i = 0; i < count; i++) {
        bool is_tokens = strncmp(routes[i].path, "/v1/tokens", 10) == 0 || strcmp(routes[i].path, "/v1/reload") == 0;
        bool is_get = strcmp(routes[i].method, "GET") == 0;
        if (is_tokens) assert_int_equal(routes[i].scope, HX_SCOPE_SOCKET);
        if (routes[i].scope == HX_SCOPE_VIEW) assert_true(is_get);
        assert_true(strlen(hx_admin_scope_name(routes[i].scope)) > 0);
    }
}

static void refusals_say_what_is_missing(void **state)
{
    (void)state;
    const hx_admin_route view = {.scope = HX_SCOPE_VIEW, .reach = HX_REACH_STORE},
                         publish = {.scope = HX_SCOPE_PUBLISH, .reach = HX_REACH_TENANT},
                         socket = {.scope = HX_SCOPE_SOCKET};
    hx_admin_caller who = {.kind = HX_ADMIN_CALLER_TOKEN, .scopes = HX_SCOPE_VIEW, .tenant = HX_LIT("acme")};
    assert_int_equal(hx_admin_permit(&publish, &who), HX_ADMIN_NO_SCOPE);
    assert_int_equal(hx_admin_permit(&socket, &who), HX_ADMIN_SOCKET_ONLY);
    assert_int_equal(hx_admin_permit(&view, &who), HX_ADMIN_WHOLE_STORE);
    who.scopes = HX_SCOPE_PUBLISH;
    assert_int_equal(hx_admin_permit(&publish, &who), HX_ADMIN_PROBLEM_COUNT);
}

static void a_bound_token_acts_in_its_tenant_alone(void **state)
{
    (void)state;
    const hx_admin_caller bound = {.kind = HX_ADMIN_CALLER_TOKEN, .tenant = HX_LIT("acme")},
                          unbound = {.kind = HX_ADMIN_CALLER_TOKEN, .tenant = HX_EMPTY},
                          user = {.kind = HX_ADMIN_CALLER_USER, .tenant = HX_EMPTY};
    hx_slice tenant;
    assert_int_equal(hx_admin_choose_tenant(&bound, HX_EMPTY, &tenant), HX_ADMIN_PROBLEM_COUNT);
    assert_true(hx_slice_eq(tenant, HX_LIT("acme")));
    assert_int_equal(hx_admin_choose_tenant(&bound, HX_LIT("acme"), &tenant), HX_ADMIN_PROBLEM_COUNT);
    assert_true(hx_slice_eq(tenant, HX_LIT("acme")));
    static const char *const others[] = {"globex", "acme2", "acm", "ACME", "acme/", " acme"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_int_equal(hx_admin_choose_tenant(&bound, hx_slice_of(others[i]), &tenant), HX_ADMIN_OTHER_TENANT);
        assert_true(hx_slice_eq(tenant, HX_LIT("acme"))); /* and a handler that goes on does no harm */
    }
    assert_int_equal(hx_admin_choose_tenant(&unbound, HX_EMPTY, &tenant), HX_ADMIN_PROBLEM_COUNT);
    assert_int_equal(tenant.len, 0);
    assert_int_equal(hx_admin_choose_tenant(&unbound, HX_LIT("globex"), &tenant), HX_ADMIN_PROBLEM_COUNT);
    assert_true(hx_slice_eq(tenant, HX_LIT("globex")));
    assert_int_equal(hx_admin_choose_tenant(&unbound, HX_LIT("a/b"), &tenant), HX_ADMIN_MALFORMED);
    assert_int_equal(hx_admin_choose_tenant(&user, HX_LIT("globex"), &tenant), HX_ADMIN_PROBLEM_COUNT);
}

static void a_host_is_an_address_or_a_name_of_ours(void **state)
{
    (void)state;
    const hx_slice names[] = {HX_LIT("hapax.example.com")};
    static const char *const ours[] = {"127.0.0.1",   "127.0.0.1:8081",    "[::1]:8081",
                                       "[::1]",       "10.1.2.3:9",        "localhost",
                                       "LocalHost:1", "hapax.example.com", "Hapax.Example.Com:8081"};
    static const char *const others[] = {"",
                                         ":8081",
                                         "evil.example",
                                         "localhost.evil.example",
                                         "127.0.0.1.evil.example",
                                         "127.0.0.1.evil.example:8081",
                                         "hapax.example.com.evil.example",
                                         "evil.hapax.example.com",
                                         "0x7f.1",
                                         "127.1",
                                         "2130706433",
                                         "[::1",
                                         "::1",
                                         "[evil.example]",
                                         "localhost:80:80"};
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (!hx_admin_is_own_host(hx_slice_of(ours[i]), names, 1)) fail_msg("%s is refused", ours[i]);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (hx_admin_is_own_host(hx_slice_of(others[i]), names, 1)) fail_msg("%s is taken", others[i]);
    assert_false(hx_admin_is_own_host(names[0], NULL, 0));
}

static void an_origin_is_the_page_of_the_api_itself(void **state)
{
    (void)state;
    const hx_slice host = HX_LIT("127.0.0.1:8081");
    assert_true(hx_admin_is_own_origin(HX_LIT("http://127.0.0.1:8081"), host));
    assert_true(hx_admin_is_own_origin(HX_LIT("https://hapax.example.com"), HX_LIT("Hapax.example.com")));
    static const char *const others[] = {"",
                                         "null",
                                         "http://",
                                         "127.0.0.1:8081",
                                         "http://127.0.0.1",
                                         "http://127.0.0.1:80811",
                                         "http://evil.example",
                                         "ftp://127.0.0.1:8081",
                                         "http://127.0.0.1:8081/",
                                         "file://"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (hx_admin_is_own_origin(hx_slice_of(others[i]), host)) fail_msg("%s is taken", others[i]);
    assert_false(hx_admin_is_own_origin(HX_LIT("http://"), HX_EMPTY));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_means_one_row),
        cmocka_unit_test(a_parameter_is_any_text_that_is_not_too_long),
        cmocka_unit_test(every_row_is_closed_without_its_scope),
        cmocka_unit_test(what_changes_the_daemon_is_for_the_socket_only),
        cmocka_unit_test(refusals_say_what_is_missing),
        cmocka_unit_test(a_bound_token_acts_in_its_tenant_alone),
        cmocka_unit_test(a_host_is_an_address_or_a_name_of_ours),
        cmocka_unit_test(an_origin_is_the_page_of_the_api_itself),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
