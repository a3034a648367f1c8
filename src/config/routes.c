/* SPDX-License-Identifier: Apache-2.0 */
/* `defaults` and `routes`. A route begins as a copy of the defaults; its own options then overwrite it. */
#include "base/map.h"
#include "config/loader.h"

#include <string.h>

#define UUID_BYTES 36u

static const char *upstream_at(size_t i, const void *config)
{
    const hx_config_upstream *upstream = &((const hx_config *)config)->upstreams[i];
    return upstream->name.len > 0 ? upstream->name.ptr : NULL;
}

static void read_upstream(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy)
{
    hx_config *config = loader->config;
    hx_slice name;
    if (!hx_loader_text(loader, option, node, &name)) return;
    for (size_t i = 0; i < config->upstream_count; i++)
        if (config->upstreams[i].name.len > 0 && hx_slice_eq(config->upstreams[i].name, name)) {
            policy->upstream = (unsigned)i;
            return;
        }
    if (!loader->whole) return; /* it may stand where we could not read */
    const char *nearest = hx_nearest(name, config->upstream_count, upstream_at, config);
    const char *quoted = hx_quoted(&config->arena, name);
    if (nearest)
        hx_problem_at(&loader->problems, node->line, node->column, "unknown upstream %s, did you mean \"%s\"?", quoted,
                      nearest);
    else
        hx_problem_at(&loader->problems, node->line, node->column,
                      "unknown upstream %s: routes refer to names in the map \"upstream\" at the top of the file",
                      quoted);
}

static bool read_principal(hx_slice text, hx_principal_source *source)
{
    static const struct {
        hx_slice prefix;
        hx_principal_kind kind;
    } kinds[] = {
        {{"header:", 7}, HX_PRINCIPAL_HEADER},
        {{"cookie:", 7}, HX_PRINCIPAL_COOKIE},
    };
    if (hx_slice_eq(text, HX_LIT("authorization"))) {
        *source = (hx_principal_source){HX_PRINCIPAL_AUTHORIZATION, HX_EMPTY};
        return true;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (!hx_slice_starts(text, kinds[i].prefix)) continue;
        *source = (hx_principal_source){kinds[i].kind, hx_slice_from(text, kinds[i].prefix.len)};
        return hx_slice_is_token(source->name);
    }
    return false;
}

static bool same_principal(const hx_principal_source *a, const hx_principal_source *b)
{
    if (a->kind != b->kind) return false;
    return a->kind == HX_PRINCIPAL_HEADER ? hx_slice_eq_nocase(a->name, b->name) : hx_slice_eq(a->name, b->name);
}

static void add_principal(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy)
{
    hx_slice text;
    hx_principal_source source = {0};
    if (!hx_loader_text(loader, option, node, &text)) return;
    const char *wrong = NULL;
    if (!read_principal(text, &source))
        wrong = hx_arena_printf(&loader->config->arena, "must be authorization, header:NAME or cookie:NAME, not %s",
                                hx_quoted(&loader->config->arena, text))
                    .ptr;
    for (size_t i = 0; i < policy->principal_count && !wrong; i++)
        if (same_principal(&policy->principals[i], &source)) wrong = "lists the same source twice";
    if (!wrong && policy->principal_count == HX_PRINCIPAL_SOURCES_MAX)
        wrong = hx_arena_printf(&loader->config->arena, "must be up to %u sources", HX_PRINCIPAL_SOURCES_MAX).ptr;
    if (wrong)
        hx_loader_wrong(loader, node, option->name, wrong);
    else
        policy->principals[policy->principal_count++] = source;
}

static void read_principals(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy)
{
    if (node->kind == HX_YAML_LIST && !node->first) {
        hx_loader_wrong(loader, node, option->name, "must not be empty: all callers would share their keys");
        return;
    }
    policy->principal_count = 0;
    if (node->kind != HX_YAML_LIST)
        add_principal(loader, option, node, policy);
    else
        for (const hx_yaml *item = node->first; item; item = item->next) add_principal(loader, option, item, policy);
}

static void read_match(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy)
{
    hx_slice text;
    const char *wrong = NULL;
    if (!hx_loader_text(loader, option, node, &text)) return;
    if (!hx_policy_match(text, &loader->config->arena, policy, &wrong)) {
        policy->path = HX_EMPTY;
        hx_problem_at(&loader->problems, node->line, node->column, "\"match\" %s can't be used: %s",
                      hx_quoted(&loader->config->arena, text), wrong);
    }
}

static void read_key(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy)
{
    hx_key_rules *key = &policy->key;
    hx_loader_map(loader, option, node, HX_PLACE_KEY, key);
    if (!hx_loader_is_well(loader, node, HX_PLACE_KEY, "min") ||
        !hx_loader_is_well(loader, node, HX_PLACE_KEY, "max") ||
        !hx_loader_is_well(loader, node, HX_PLACE_KEY, "format"))
        return;
    const hx_yaml *min = hx_yaml_get(node, "min"), *max = hx_yaml_get(node, "max");
    const hx_yaml *at = max ? max : min ? min : node;
    if (key->len_min > key->len_max)
        hx_problem_at(&loader->problems, at->line, at->column, "no key fits: \"min\" is %u, \"max\" is %u",
                      key->len_min, key->len_max);
    else if (key->format != HX_KEY_ANY && (key->len_min > UUID_BYTES || key->len_max < UUID_BYTES))
        hx_problem_at(&loader->problems, at->line, at->column,
                      "no key fits: a UUID has %u characters, \"min\" is %u, \"max\" is %u", UUID_BYTES, key->len_min,
                      key->len_max);
}

void hx_route_option(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy)
{
    switch (option->type) {
    case HX_OPTION_UPSTREAM: read_upstream(loader, option, node, policy); break;
    case HX_OPTION_MATCH: read_match(loader, option, node, policy); break;
    case HX_OPTION_PRINCIPALS: read_principals(loader, option, node, policy); break;
    default: read_key(loader, option, node, policy);
    }
}

/* A key whose answer is gone while its request may still be running would run a second time. */
static void check_lifetime(hx_loader *loader, const hx_yaml *node, const hx_policy *policy)
{
    static const char *const names[] = {"lifetime", "lease", "upstream_timeout", "class"};
    const hx_yaml *at = NULL, *retry = hx_yaml_get(node, "retry");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!hx_loader_is_well(loader, node, HX_PLACE_ROUTE, names[i])) return;
        if (!at) at = hx_yaml_get(node, names[i]);
    }
    if (!hx_loader_is_well(loader, retry, HX_PLACE_RETRY, "total")) return;
    if (!at) at = hx_yaml_get(retry, "total");
    hx_ms least = policy->lease + policy->upstream_timeout + policy->retry.total;
    if (!at || policy->lifetime >= least) return; /* without `at` it was told where the defaults stand */
    const hx_option *option = hx_option_find(HX_PLACE_ROUTE, HX_LIT("lifetime"));
    hx_arena *arena = &loader->config->arena;
    hx_problem_at(
        &loader->problems, at->line, at->column,
        "\"lifetime\" must be at least lease + upstream_timeout + the total time for retries, which is %s; it "
        "is %s",
        hx_option_write(option, (uint64_t)least, arena), hx_option_write(option, (uint64_t)policy->lifetime, arena));
}

static void check_because(hx_loader *loader, const hx_yaml *node, const hx_policy *policy)
{
    if (!loader->strict || !hx_policy_is_exposed(policy) || policy->because.len > 0) return;
    const hx_yaml *at = hx_yaml_get(node, "mode");
    if (!at) at = node;
    hx_problem_at(&loader->problems, at->line, at->column,
                  "an unsafe method passes unprotected here; say why: \"because: …\"");
}

static void read_policy(hx_loader *loader, const hx_yaml *node, bool shared, hx_policy *policy)
{
    hx_loader_options(loader, node, HX_PLACE_ROUTE, shared, policy);
    if (hx_yaml_get(node, "require")) policy->require_on_put = policy->require;
    hx_outcomes_read(loader, node, shared, policy);
    check_lifetime(loader, node, policy);
    check_because(loader, node, policy);
    policy->rule_version = hx_policy_version(policy);
}

static void read_defaults(hx_loader *loader, const hx_yaml *node)
{
    hx_policy *defaults = &loader->config->policies.defaults;
    *defaults = hx_policy_default();
    hx_option_defaults(HX_PLACE_ROUTE, defaults);
    if (loader->config->dev) {
        defaults->key.len_min = 1;
        defaults->release_5xx = true;
    }
    defaults->rule_version = hx_policy_version(defaults);
    const hx_option *option = hx_option_find(HX_PLACE_TOP, HX_LIT("defaults"));
    if (node && hx_loader_is(loader, option, node, HX_YAML_MAP)) read_policy(loader, node, true, defaults);
}

static void read_route(hx_loader *loader, const hx_yaml *node, hx_policy *route)
{
    if (node->refused) return;
    if (node->kind != HX_YAML_MAP) {
        hx_problem_at(&loader->problems, node->line, node->column,
                      "a route is a map of options, such as {match: POST /refunds}");
        return;
    }
    read_policy(loader, node, false, route);
    const hx_yaml *match = hx_yaml_get(node, "match");
    if (!match) hx_problem_at(&loader->problems, node->line, node->column, "this route has no \"match\"");
    if (hx_yaml_get(node, "name") || !match || route->path.len == 0) return;
    const hx_option *name = hx_option_find(HX_PLACE_ROUTE, HX_LIT("name"));
    route->name = hx_slice_trim(match->text);
    if (route->name.len > name->high)
        hx_problem_at(&loader->problems, match->line, match->column,
                      "\"match\" is too long to be the route's name too (%llu bytes); give the route a \"name\"",
                      (unsigned long long)name->high);
}

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

static void read_routes(hx_loader *loader, const hx_yaml *list)
{
    hx_config *config = loader->config;
    hx_policy_set *set = &config->policies;
    const hx_option *option = hx_option_find(HX_PLACE_TOP, HX_LIT("routes"));
    if (!hx_loader_is(loader, option, list, HX_YAML_LIST)) return;
    if (list->count > HX_ROUTES_MAX) {
        hx_problem_at(&loader->problems, list->line, list->column, "\"routes\" holds %zu routes; up to %u are possible",
                      list->count, HX_ROUTES_MAX);
        return;
    }
    set->routes = hx_arena_alloc(&config->arena, (list->count + 1) * sizeof *set->routes);
    for (const hx_yaml *node = list->first; node; node = node->next) {
        hx_policy *route = &set->routes[set->count++];
        *route = set->defaults;
        read_route(loader, node, route);
    }
    refuse_same_names(loader, list);
    refuse_unreachable(loader, list);
}

void hx_routes_read(hx_loader *loader, const hx_yaml *root)
{
    hx_policy_set *set = &loader->config->policies;
    read_defaults(loader, hx_yaml_get(root, "defaults"));
    const hx_yaml *routes = hx_yaml_get(root, "routes");
    if (routes) read_routes(loader, routes);
    set->require_key = loader->config->require_key;
    /* What matches no route needs a key only where the whole gateway asks for one, and then as the contract lists. */
    set->defaults.require = set->require_key;
    set->defaults.require_on_put = false;
}
