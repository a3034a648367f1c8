/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/routes.h"

#include "admin/call.h"
#include "base/check.h"
#include "base/text.h"
#include "core/event/event.h"

#include <arpa/inet.h>

static const hx_admin_route routes[] = {
#define X(method, path, handler, scope, reach, text)                                                                   \
    {#method, path, hx_admin_##handler, HX_SCOPE_##scope, HX_REACH_##reach, text},
#include "admin/routes.def"
#undef X
};

#define ROUTE_COUNT (sizeof routes / sizeof routes[0])

const hx_admin_route *hx_admin_routes(size_t *count)
{
    *count = ROUTE_COUNT;
    return routes;
}

/* Puts a segment of a path where the row's segment, in braces, says. */
static bool take_parameter(hx_slice name, hx_slice given, hx_arena *arena, hx_admin_path *found, size_t *count)
{
    if (hx_slice_eq(name, HX_LIT("{id}"))) return hx_op_read(given, &found->op);
    HX_CHECK(*count < HX_ADMIN_PARAMETERS_MAX);
    hx_slice *place = &found->parameters[(*count)++];
    return hx_text_percent_decode(given, false, arena, place) && place->len > 0 &&
           place->len <= HX_ADMIN_PARAMETER_BYTES;
}

/* Whether `path` matches the row's, segment by segment. An escaped slash is part of its segment. */
static bool is_path(hx_slice wanted, hx_slice path, hx_arena *arena, hx_admin_path *found)
{
    hx_slice part, given;
    size_t count = 0;
    while (hx_slice_next(&wanted, '/', &part)) {
        if (!hx_slice_next(&path, '/', &given)) return false;
        bool is_parameter = part.len > 0 && part.ptr[0] == '{';
        if (!(is_parameter ? take_parameter(part, given, arena, found, &count) : hx_slice_eq(part, given)))
            return false;
    }
    return path.ptr == NULL;
}

static bool has_parameter(hx_slice query, hx_slice name)
{
    hx_slice part;
    while (query.len > 0 && hx_slice_next(&query, '&', &part))
        if (hx_slice_eq(hx_slice_first(part, hx_slice_find(part, '=')), name)) return true;
    return false;
}

const hx_admin_route *hx_admin_find_route(hx_slice method, hx_slice path, hx_slice query, hx_arena *arena,
                                          hx_admin_path *found, hx_buf *allowed)
{
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        hx_slice row = hx_slice_of(routes[i].path), pattern = hx_slice_first(row, hx_slice_find(row, '?'));
        hx_slice parameter = hx_slice_from(row, pattern.len + 1);
        if (!is_path(pattern, path, arena, found)) continue;
        bool is_method = hx_slice_eq(method, hx_slice_of(routes[i].method));
        if (is_method && (parameter.len == 0 || has_parameter(query, parameter))) return &routes[i];
        if (parameter.len > 0) continue; /* another row has the method without it */
        hx_buf_puts(allowed, allowed->len > 0 ? ", " : "Allow: ");
        hx_buf_puts(allowed, routes[i].method);
    }
    if (allowed->len > 0) hx_buf_puts(allowed, "\r\n");
    return NULL;
}

hx_admin_problem hx_admin_permit(const hx_admin_route *route, const hx_admin_caller *who)
{
    if (who->kind == HX_ADMIN_CALLER_USER) return HX_ADMIN_PROBLEM_COUNT;
    if (who->kind != HX_ADMIN_CALLER_TOKEN) return HX_ADMIN_NO_TOKEN;
    if (route->scope == HX_SCOPE_SOCKET) return HX_ADMIN_SOCKET_ONLY;
    if ((who->scopes & route->scope) == 0) return HX_ADMIN_NO_SCOPE;
    if (who->tenant.len > 0 && route->reach != HX_REACH_TENANT) return HX_ADMIN_WHOLE_STORE;
    return HX_ADMIN_PROBLEM_COUNT;
}

const char *hx_admin_scope_name(unsigned scope)
{
    switch (scope) {
#define X(id, bit, name, text)                                                                                         \
    case bit:                                                                                                          \
        return name;
#include "core/event/scopes.def"
#undef X
    case HX_SCOPE_ANY: return "any";
    default: return "socket";
    }
}

hx_slice hx_admin_caller_text(const hx_admin_caller *who, hx_arena *arena)
{
    hx_slice name = hx_slice_first(who->name, 64);
    if (who->kind == HX_ADMIN_CALLER_TOKEN) return hx_arena_printf(arena, "token %.*s", HX_FMT(name));
    return hx_arena_printf(arena, "%.*s%s(uid %u)", HX_FMT(name), name.len > 0 ? " " : "", (unsigned)who->uid);
}

hx_admin_problem hx_admin_choose_tenant(const hx_admin_caller *who, hx_slice named, hx_slice *tenant)
{
    *tenant = who->tenant;
    if (named.len == 0) return HX_ADMIN_PROBLEM_COUNT;
    if (who->tenant.len > 0 && !hx_slice_eq(who->tenant, named)) return HX_ADMIN_OTHER_TENANT;
    if (!hx_is_tenant(named)) return HX_ADMIN_MALFORMED;
    *tenant = named;
    return HX_ADMIN_PROBLEM_COUNT;
}

/* A page by address can't have been rebound: only a name can be made to lead to another address. */
static bool is_address(hx_slice host)
{
    char text[INET6_ADDRSTRLEN + 1];
    struct in6_addr address;
    bool is_v6 = host.len > 2 && host.ptr[0] == '[' && host.ptr[host.len - 1] == ']';
    if (is_v6) host = (hx_slice){host.ptr + 1, host.len - 2};
    if (host.len >= sizeof text) return false;
    memcpy(text, host.ptr, host.len);
    text[host.len] = '\0';
    return inet_pton(is_v6 ? AF_INET6 : AF_INET, text, &address) == 1;
}

bool hx_admin_is_own_host(hx_slice host, const hx_slice *names, size_t count)
{
    size_t end = host.len;
    while (end > 0 && host.ptr[end - 1] >= '0' && host.ptr[end - 1] <= '9') end--;
    if (end > 0 && host.ptr[end - 1] == ':') host = hx_slice_first(host, end - 1);
    if (is_address(host) || hx_slice_eq_nocase(host, HX_LIT("localhost"))) return true;
    for (size_t i = 0; i < count; i++)
        if (hx_slice_eq_nocase(host, names[i])) return true;
    return false;
}

bool hx_admin_is_own_origin(hx_slice origin, hx_slice host)
{
    const hx_slice schemes[] = {HX_LIT("http://"), HX_LIT("https://")};
    for (size_t i = 0; i < 2; i++)
        if (hx_slice_starts(origin, schemes[i]))
            return host.len > 0 && hx_slice_eq_nocase(hx_slice_from(origin, schemes[i].len), host);
    return false;
}
