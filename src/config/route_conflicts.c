/* SPDX-License-Identifier: Apache-2.0 */
/* Conflicts between routes: two with one name, one that never matches, a former name that is another route's. Routes
 * that share only some of their requests are legal, as the first one gets them; that is a warning. */
#include "base/memory/map.h"
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
        else if (name || !hx_slice_eq(before->key->text, HX_LIT("match"))) /* a duplicate `match` is reported as such */
            hx_config_problem_at(&loader->problems, at->line, at->column,
                                 "route %s is given twice; it is also on line %u",
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

/* Returns the last of the earlier routes that together match all requests of this one; NULL: some are left. */
static const hx_policy *covered_by(const hx_policy_set *set, size_t route)
{
    const hx_policy *later = &set->routes[route];
    uint32_t left = ((uint32_t)1 << later->method_count) - 1; /* a bit for each of its methods */
    for (const hx_policy *earlier = set->routes; earlier < later; earlier++) {
        if (earlier->path.len == 0 || !path_covers(earlier->path, later->path)) continue;
        for (size_t m = 0; m < later->method_count; m++)
            if (hx_policy_takes(earlier, later->methods[m])) left &= ~((uint32_t)1 << m);
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
        hx_config_problem_at(&loader->problems, match->line, match->column,
                             "this route never matches, because route %s before it matches all of its requests",
                             quoted);
    }
}

/* Warns of overlapping routes, unless a special one comes before a general one, which is the use of order. */
static void note_overlaps(hx_loader *loader, const hx_yaml *list)
{
    const hx_policy_set *set = &loader->config->policies;
    hx_arena *arena = &loader->config->arena;
    const hx_yaml *node = list->first;
    for (size_t i = 0; i < set->count && node; i++, node = node->next) {
        const hx_policy *later = &set->routes[i];
        const hx_yaml *match = hx_yaml_get(node, "match");
        for (size_t k = 0; k < i && match && later->path.len > 0; k++) {
            const hx_policy *earlier = &set->routes[k];
            if (earlier->path.len == 0 || !hx_policy_meets(earlier, later) || path_covers(later->path, earlier->path))
                continue;
            hx_config_problem_at(&loader->notes, match->line, match->column,
                                 "some requests match both route %s and route %s before it, which gets them",
                                 hx_quoted(arena, later->name), hx_quoted(arena, earlier->name));
        }
    }
}

static bool is_item(const hx_yaml *list, const hx_yaml *wanted)
{
    for (const hx_yaml *item = list->first; item; item = item->next)
        if (item == wanted) return true;
    return false;
}

typedef struct {
    hx_map *live; /* names to routes */
    hx_map *old;  /* names to their first place in a `formerly` */
} known_names;

static void check_old_name(hx_loader *loader, const known_names *known, const hx_policy *route, const hx_yaml *names,
                           hx_yaml *item)
{
    const hx_policy *now = hx_map_get(known->live, item->text);
    const hx_yaml *before = hx_map_get(known->old, item->text);
    const char *quoted = hx_quoted(&loader->config->arena, item->text);
    static const char both[] = "its operations can't belong to both";
    if (now == route)
        hx_config_problem_at(&loader->problems, item->line, item->column,
                             "\"formerly\" lists %s, which is the route's name now", quoted);
    else if (now)
        hx_config_problem_at(&loader->problems, item->line, item->column,
                             "\"formerly\" lists %s, which is the name of another route: %s", quoted, both);
    else if (before && !is_item(names, before)) /* a duplicate in one list is reported already */
        hx_config_problem_at(&loader->problems, item->line, item->column,
                             "\"formerly\" lists %s, as another route does on line %u: %s", quoted, before->line, both);
    else if (!before)
        hx_map_put(known->old, item->text, item);
}

/* Operations are known by a route's oldest name, so no name may belong to two routes. */
static void refuse_old_names(hx_loader *loader, const hx_yaml *list)
{
    const hx_policy_set *set = &loader->config->policies;
    known_names known = {.live = hx_map_new(), .old = hx_map_new()};
    const hx_yaml *node = list->first;
    for (size_t i = 0; i < set->count; i++)
        if (set->routes[i].name.len > 0) hx_map_put(known.live, set->routes[i].name, &set->routes[i]);
    for (size_t i = 0; i < set->count && node; i++, node = node->next) {
        const hx_yaml *names = hx_yaml_get(node, "formerly");
        if (!names || names->kind != HX_YAML_LIST) continue;
        for (hx_yaml *item = names->first; item; item = item->next)
            if (item->kind == HX_YAML_TEXT && !item->refused && item->text.len > 0)
                check_old_name(loader, &known, &set->routes[i], names, item);
    }
    hx_map_free(&known.live);
    hx_map_free(&known.old);
}

void hx_conflicts_find(hx_loader *loader, const hx_yaml *list)
{
    refuse_same_names(loader, list);
    refuse_old_names(loader, list);
    refuse_unreachable(loader, list);
    note_overlaps(loader, list);
}
