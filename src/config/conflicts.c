/* SPDX-License-Identifier: Apache-2.0 */
/* Routes against each other: no two with one name, none that can't be reached, no name that was one's and is another's.
 * Routes that share only some of their requests are legal, as the first one written takes them; that is worth a note. */
#include "base/map.h"
#include "config/loader.h"

static void refuse_same_names(hx_loader *loader, const hx_yaml *list)
{
    const hx_policy_set *set = &loader->config->policies;
    hx_map *seen = hx_map_new();
    const hx_yaml *node = list->first;
    for (size_t i = 0; i < set->count && node; i++, node = node->next) {
        hx_yaml *name = hx_yaml_get(node, "name"), *match = hx_yaml_get(node, "match");
        hx_yaml *at = name ? name : match;
        if (set->routes[i].name.len == 0 || !at) continue;
        const hx_yaml *before = hx_map_get(seen, set->routes[i].name);
        if (!before)
            hx_map_put(seen, set->routes[i].name, at);
        else if (name || !hx_slice_eq(before->key->text, HX_LIT("match"))) /* two of `match` are told as such */
            hx_problem_at(&loader->problems, at->line, at->column, "route %s is given twice; it is also on line %u",
                          hx_quoted(&loader->config->arena, set->routes[i].name), before->line);
    }
    hx_map_free(&seen);
}

/* Whether every path that `b` matches is matched by `a` too. */
static bool path_covers(hx_slice a, hx_slice b)
{
    hx_slice left, right;
    while (hx_slice_next(&a, '/', &left)) {
        if (!hx_slice_next(&b, '/', &right)) return false;
        bool any = left.len > 0 && left.ptr[0] == '{' && right.len > 0;
        if (!any && !hx_slice_eq(left, right)) return false;
    }
    return !hx_slice_next(&b, '/', &right);
}

static bool takes(const hx_policy *route, hx_slice method)
{
    if (route->method_count == 0) return !hx_method_is_safe(method);
    for (size_t i = 0; i < route->method_count; i++)
        if (hx_slice_eq(route->methods[i], method)) return true;
    return false;
}

/* The last of the earlier routes that together leave nothing for this one; NULL when something is left. */
static const hx_policy *covered_by(const hx_policy_set *set, size_t route)
{
    const hx_policy *later = &set->routes[route];
    uint32_t left = ((uint32_t)1 << later->method_count) - 1; /* a bit for each of its methods */
    for (const hx_policy *earlier = set->routes; earlier < later; earlier++) {
        if (earlier->path.len == 0 || !path_covers(earlier->path, later->path)) continue;
        for (size_t m = 0; m < later->method_count; m++)
            if (takes(earlier, later->methods[m])) left &= ~((uint32_t)1 << m);
        /* All unsafe methods are more than any list of them. */
        if (later->method_count == 0 ? earlier->method_count == 0 : left == 0) return earlier;
    }
    return NULL;
}

static void refuse_unreachable(hx_loader *loader, const hx_yaml *list)
{
    const hx_policy_set *set = &loader->config->policies;
    const hx_yaml *node = list->first;
    for (size_t i = 0; i < set->count && node; i++, node = node->next) {
        if (set->routes[i].path.len == 0) continue;
        const hx_policy *earlier = covered_by(set, i);
        const hx_yaml *match = hx_yaml_get(node, "match");
        if (!earlier || !match) continue;
        const char *quoted = hx_quoted(&loader->config->arena, earlier->name);
        hx_problem_at(&loader->problems, match->line, match->column,
                      "this route never matches, as route %s before it takes all of its requests", quoted);
    }
}

void hx_conflicts_find(hx_loader *loader, const hx_yaml *list)
{
    refuse_same_names(loader, list);
    refuse_unreachable(loader, list);
}
