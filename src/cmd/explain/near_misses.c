/* SPDX-License-Identifier: Apache-2.0 */
/* hx_policy_find alone decides whether a route matches, over a set of that one route. Only for routes that don't match,
 * the two paths are compared here, to describe the difference. */
#include "cmd/explain/near_misses.h"

#include "config/describe/policy_fields.h"

#define SEGMENTS_MAX 64u

static bool matches(const hx_policy *route, hx_slice method, hx_slice path, hx_arena *arena)
{
    hx_policy_set one = {.routes = hx_arena_alloc(arena, sizeof *route), .count = 1};
    *one.routes = *route;
    hx_policy_compile(&one, arena);
    return hx_policy_find(&one, method, path) != NULL;
}

static size_t split(hx_slice path, hx_slice segments[SEGMENTS_MAX])
{
    size_t count = 0;
    hx_slice rest = hx_slice_from(path, 1);
    while (count < SEGMENTS_MAX && hx_slice_next(&rest, '/', &segments[count])) count++;
    return count;
}

static bool is_variable(hx_slice segment)
{
    return segment.len >= 2 && segment.ptr[0] == '{' && segment.ptr[segment.len - 1] == '}';
}

/* True for a likely typing error: half of the longer word is a common prefix. */
static bool is_like(hx_slice a, hx_slice b)
{
    size_t longer = a.len > b.len ? a.len : b.len, common = 0;
    while (common < a.len && common < b.len && hx_lower(a.ptr[common]) == hx_lower(b.ptr[common])) common++;
    return 2 * common >= longer;
}

/* Returns HX_EMPTY if the paths have little in common. */
static hx_slice path_difference(hx_slice template, hx_slice path, hx_arena *arena)
{
    hx_slice wanted[SEGMENTS_MAX], got[SEGMENTS_MAX];
    size_t wanted_count = split(template, wanted), got_count = split(path, got);
    size_t common = wanted_count < got_count ? wanted_count : got_count, differing = 0, at = 0, same = 0;
    for (size_t i = 0; i < common; i++) {
        if (is_variable(wanted[i]) && got[i].len > 0) continue;
        if (hx_slice_eq(wanted[i], got[i])) {
            same++;
            continue;
        }
        differing++;
        at = i;
    }
    if (wanted_count == got_count && differing == 1 && hx_slice_eq_nocase(wanted[at], got[at]))
        return hx_arena_printf(arena, "the path has \"%.*s\", not \"%.*s\": capitals count", HX_FMT(got[at]),
                               HX_FMT(wanted[at]));
    if (wanted_count == got_count && differing == 1 && (same > 0 || is_like(wanted[at], got[at])))
        return hx_arena_printf(arena, "the path has \"%.*s\", not \"%.*s\"", HX_FMT(got[at]), HX_FMT(wanted[at]));
    if (differing > 0 || same == 0) return HX_EMPTY;
    if (wanted_count == got_count + 1)
        return hx_arena_printf(arena, "the path has nothing for \"%.*s\"", HX_FMT(wanted[got_count]));
    if (wanted_count + 1 == got_count)
        return hx_arena_printf(arena, "the path goes on with \"/%.*s\"", HX_FMT(got[wanted_count]));
    return HX_EMPTY;
}

static bool come_close(const hx_policy *route, hx_slice method, hx_slice path, hx_arena *arena, hx_near_route *out)
{
    hx_slice own = route->method_count > 0 ? route->methods[0] : HX_LIT("POST");
    *out = (hx_near_route){.name = route->name, .match = hx_describe_match(route, arena), .why = HX_EMPTY};
    if (!hx_policy_takes(route, method)) {
        if (matches(route, own, path, arena)) out->why = hx_arena_printf(arena, "the method is %.*s", HX_FMT(method));
    } else {
        out->why = path_difference(route->path, path, arena);
    }
    return out->why.len > 0;
}

void hx_near_misses_of(const hx_policy_set *policies, const hx_policy *found, hx_slice method, hx_slice path,
                       hx_arena *arena, hx_explanation *out)
{
    bool is_route = found != &policies->defaults;
    size_t index = is_route ? (size_t)(found - policies->routes) : policies->count;
    hx_near_route near;
    out->route = is_route ? found->name : HX_EMPTY;
    out->match = is_route ? hx_describe_match(found, arena) : HX_EMPTY;
    out->number = is_route ? index + 1 : 0;
    for (size_t i = 0; i < index && out->near_count < HX_NEAR_ROUTES_MAX; i++)
        if (come_close(&policies->routes[i], method, path, arena, &near)) out->near[out->near_count++] = near;
    for (size_t i = index + 1; i < policies->count && out->behind_count < HX_NEAR_ROUTES_MAX; i++) {
        const hx_policy *route = &policies->routes[i];
        if (!matches(route, method, path, arena)) continue;
        out->behind[out->behind_count++] = (hx_near_route){.name = route->name,
                                                           .match = hx_describe_match(route, arena)};
    }
}
