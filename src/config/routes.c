/* SPDX-License-Identifier: Apache-2.0 */
/* `defaults`, `groups` and `routes`. A group starts as a copy of the defaults, and a route as a copy of its group or of
 * the defaults; its own options then override those. */
#include "base/check.h"
#include "config/loader.h"

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
    if (!loader->whole) return; /* it may be in the part that can't be read */
    const char *nearest = hx_nearest(name, config->upstream_count, upstream_at, config);
    const char *quoted = hx_quoted(&config->arena, name);
    if (nearest)
        hx_config_problem_at(&loader->problems, node->line, node->column, "unknown upstream %s, did you mean \"%s\"?",
                             quoted, nearest);
    else
        hx_config_problem_at(
            &loader->problems, node->line, node->column,
            "unknown upstream %s: routes refer to names in the map \"upstream\" at the top of the file", quoted);
}

/* Methods of the IANA registry that servers get, and those of caches and UPnP. */
static const char *const known_methods[] = {"DELETE",   "GET",         "HEAD",        "OPTIONS",    "PATCH",
                                            "POST",     "PUT",         "TRACE",       "ACL",        "BIND",
                                            "CHECKIN",  "CHECKOUT",    "COPY",        "LABEL",      "LINK",
                                            "LOCK",     "M-SEARCH",    "MERGE",       "MKACTIVITY", "MKCALENDAR",
                                            "MKCOL",    "MKWORKSPACE", "MOVE",        "NOTIFY",     "ORDERPATCH",
                                            "PROPFIND", "PROPPATCH",   "PURGE",       "QUERY",      "REBIND",
                                            "REPORT",   "SEARCH",      "SUBSCRIBE",   "UNBIND",     "UNCHECKOUT",
                                            "UNLINK",   "UNLOCK",      "UNSUBSCRIBE", "UPDATE",     "VERSION-CONTROL"};
#define KNOWN_METHODS (sizeof known_methods / sizeof known_methods[0])

static const char *method_at(size_t i, const void *nothing)
{
    (void)nothing;
    return known_methods[i];
}

/* Returns NULL if the method is known; else what is wrong with it. */
static const char *check_method(hx_slice method, hx_arena *arena)
{
    for (size_t i = 0; i < KNOWN_METHODS; i++)
        if (hx_slice_eq(hx_slice_of(known_methods[i]), method)) return NULL;
    if (hx_slice_eq(method, HX_LIT("*")) || hx_slice_eq(method, HX_LIT("ANY")) || hx_slice_eq(method, HX_LIT("ALL")))
        return "for all methods but GET, HEAD, OPTIONS and TRACE write the path alone";
    if (hx_slice_find(method, '|') != SIZE_MAX) return "methods are separated by commas, as in \"POST,PUT /refunds\"";
    const char *nearest = hx_nearest(method, KNOWN_METHODS, method_at, NULL), *quoted = hx_quoted(arena, method);
    return nearest ? hx_arena_printf(arena, "unknown method %s, did you mean \"%s\"?", quoted, nearest).ptr
                   : hx_arena_printf(arena, "unknown method %s", quoted).ptr;
}

void hx_config_route_match(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy)
{
    hx_slice text;
    const char *wrong = NULL;
    if (!hx_loader_text(loader, option, node, &text)) return;
    bool is_read = hx_policy_match(text, &loader->config->arena, policy, &wrong);
    for (size_t i = 0; is_read && !wrong && i < policy->method_count; i++)
        wrong = check_method(policy->methods[i], &loader->config->arena);
    if (wrong) {
        policy->path = HX_EMPTY;
        hx_config_problem_at(&loader->problems, node->line, node->column, "\"match\" %s can't be used: %s",
                             hx_quoted(&loader->config->arena, text), wrong);
    }
}

void hx_config_route_option(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy)
{
    switch (option->type) {
    case HX_OPTION_UPSTREAM: read_upstream(loader, option, node, policy); break;
    case HX_OPTION_MATCH: hx_config_route_match(loader, option, node, policy); break;
    case HX_OPTION_PRINCIPALS: hx_options_callers_principals(loader, option, node, policy); break;
    case HX_OPTION_JWT: hx_options_callers_jwt(loader, option, node, policy); break;
    case HX_OPTION_RATE: hx_options_callers_rate(loader, option, node, policy); break;
    case HX_OPTION_ASK: hx_options_answers_authorize(loader, option, node, policy); break;
    case HX_OPTION_FINGERPRINT: hx_options_fingerprint_read(loader, option, node, policy); break;
    case HX_OPTION_KEY: hx_options_key_read(loader, option, node, policy); break;
    default: hx_check_failed(__FILE__, __LINE__, "an option of a route's own");
    }
}

/* A key whose response expires while its request may still be running would run a second time. */
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
    if (!at || policy->lifetime >= least) return; /* without `at` it is reported for the defaults */
    const hx_option *option = hx_option_find(HX_PLACE_ROUTE, HX_LIT("lifetime"));
    hx_arena *arena = &loader->config->arena;
    hx_config_problem_at(
        &loader->problems, at->line, at->column,
        "\"lifetime\" must be at least lease + upstream_timeout + the total time for retries, which is %s; it "
        "is %s",
        hx_option_write(option, (uint64_t)least, arena), hx_option_write(option, (uint64_t)policy->lifetime, arena));
}

static void check_because(hx_loader *loader, const hx_yaml *node, const hx_policy *policy)
{
    bool is_exposed = hx_policy_is_exposed(policy);
    if (!loader->strict || policy->because.len > 0) return;
    if (!is_exposed && !hx_policy_is_optional(policy)) return;
    const hx_yaml *at = hx_yaml_get(node, is_exposed ? "mode" : "require");
    if (!at) at = node;
    hx_config_problem_at(&loader->problems, at->line, at->column, "an unsafe method %s here; say why: \"because: …\"",
                         !is_exposed && policy->require   ? "(PUT) without a key passes unprotected"
                         : !is_exposed                    ? "without a key passes unprotected"
                         : policy->mode == HX_MODE_SHADOW ? "is only watched, not protected,"
                                                          : "passes unprotected");
}

static void read_require(const hx_yaml *node, hx_policy *policy)
{
    const hx_yaml *require = hx_yaml_get(node, "require");
    if (!require || require->kind != HX_YAML_TEXT) return;
    policy->require_on_put = policy->require;
    policy->if_match_suffices = hx_slice_eq(require->text, HX_LIT("key-or-if-match"));
}

static void read_policy(hx_loader *loader, const hx_yaml *node, const char *shared, hx_policy *policy)
{
    hx_loader_options(loader, node, HX_PLACE_ROUTE, shared, policy);
    read_require(node, policy);
    hx_options_answers_read(loader, node, shared != NULL, policy);
    check_lifetime(loader, node, policy);
}

static void read_defaults(hx_loader *loader, const hx_yaml *node)
{
    hx_policy *defaults = &loader->config->policies.defaults;
    *defaults = hx_policy_default();
    hx_option_defaults(HX_PLACE_ROUTE, defaults);
    defaults->key.overlap = HX_OVERLAP_UNSAID;
    if (loader->config->dev) {
        defaults->key.len_min = 1;
        defaults->release_5xx = true;
    }
    const hx_option *option = hx_option_find(HX_PLACE_TOP, HX_LIT("defaults"));
    if (!node || !hx_loader_is(loader, option, node, HX_YAML_MAP)) return;
    read_policy(loader, node, "\"defaults\"", defaults);
    const hx_yaml *from = hx_yaml_get(hx_yaml_get(node, "key"), "from");
    if (from && !from->key->refused)
        hx_config_problem_at(
            &loader->problems, from->key->line, from->key->column,
            "\"from\" belongs to a route or a group, not to \"defaults\": what matches no route has no key of "
            "its own");
    defaults->key.from = NULL;
    if (hx_policy_is_exposed(defaults)) check_because(loader, node, defaults); /* `require` is checked for each route */
}

static void read_group(hx_loader *loader, const hx_option *option, const hx_yaml *node)
{
    hx_config *config = loader->config;
    if (node->key->refused) return;
    if (loader->group_count == HX_GROUPS_MAX) {
        hx_loader_wrong(loader, node, option->name,
                        hx_arena_printf(&config->arena, "must be up to %u groups", HX_GROUPS_MAX).ptr);
        return;
    }
    hx_group *group = &loader->groups[loader->group_count++];
    *group = (hx_group){.name = node->key->text, .at = node->key, .policy = config->policies.defaults};
    group->policy.fingerprint_said = false; /* a default fingerprint is not meant for natural keys */
    if (!hx_slice_is_token(group->name))
        hx_config_problem_at(&loader->problems, node->key->line, node->key->column,
                             "a group's name is a word of letters, digits, \"-\" and \"_\", not %s",
                             hx_quoted(&config->arena, group->name));
    if (!hx_loader_is(loader, option, node, HX_YAML_MAP)) return;
    read_policy(loader, node, "a group", &group->policy);
}

static void read_groups(hx_loader *loader, const hx_yaml *map)
{
    const hx_option *option = hx_option_find(HX_PLACE_TOP, HX_LIT("groups"));
    if (!hx_loader_is(loader, option, map, HX_YAML_MAP)) return;
    size_t count = map->count < HX_GROUPS_MAX ? map->count : HX_GROUPS_MAX;
    loader->groups = hx_arena_alloc(&loader->config->arena, (count + 1) * sizeof *loader->groups);
    for (const hx_yaml *node = map->first; node; node = node->next) read_group(loader, option, node);
}

static const char *group_at(size_t i, const void *groups)
{
    return ((const hx_group *)groups)[i].name.ptr;
}

/* Returns the policy that a route starts from. */
static const hx_policy *base_of(hx_loader *loader, const hx_yaml *node)
{
    const hx_policy *defaults = &loader->config->policies.defaults;
    const hx_yaml *at = hx_yaml_get(node, "group");
    hx_arena *arena = &loader->config->arena;
    hx_slice name;
    if (!at || !hx_loader_text(loader, hx_option_find(HX_PLACE_ROUTE, HX_LIT("group")), at, &name)) return defaults;
    for (size_t i = 0; i < loader->group_count; i++) {
        if (!hx_slice_eq(loader->groups[i].name, name)) continue;
        loader->groups[i].used = true;
        return &loader->groups[i].policy;
    }
    if (!loader->whole) return defaults; /* it may be in the part that can't be read */
    const char *nearest = hx_nearest(name, loader->group_count, group_at, loader->groups);
    const char *quoted = hx_quoted(arena, name);
    if (nearest)
        hx_config_problem_at(&loader->problems, at->line, at->column, "unknown group %s, did you mean \"%s\"?", quoted,
                             nearest);
    else
        hx_config_problem_at(&loader->problems, at->line, at->column,
                             "unknown group %s: routes refer to names in the map \"groups\" at the top of the file",
                             quoted);
    return defaults;
}

static void name_route(hx_loader *loader, const hx_yaml *node, hx_policy *route)
{
    const hx_yaml *match = hx_yaml_get(node, "match");
    if (!match) hx_config_problem_at(&loader->problems, node->line, node->column, "this route has no \"match\"");
    if (hx_yaml_get(node, "name") || !match || route->path.len == 0) return;
    const hx_option *name = hx_option_find(HX_PLACE_ROUTE, HX_LIT("name"));
    route->name = hx_slice_trim(match->text);
    if (route->name.len > name->high)
        hx_config_problem_at(&loader->problems, match->line, match->column,
                             "\"match\" is too long to be the route's name too (%llu bytes); give the route a \"name\"",
                             (unsigned long long)name->high);
}

static hx_slice safe_method_of(const hx_policy *route)
{
    for (size_t i = 0; i < route->method_count; i++)
        if (hx_method_is_safe(route->methods[i])) return route->methods[i];
    return HX_EMPTY;
}

/* Reports options that do nothing for safe methods, whose requests are always streamed through. On a route with safe
 * methods only they are a mistake; if its group sets them, they are ignored. */
static void check_safe_methods(hx_loader *loader, const hx_yaml *node, hx_policy *route)
{
    const hx_yaml *said[] = {route->key.from ? hx_yaml_get(hx_yaml_get(node, "key"), "from") : NULL,
                             route->require_principal ? hx_yaml_get(node, "require_principal") : NULL,
                             route->require ? hx_yaml_get(node, "require") : NULL};
    hx_slice method = safe_method_of(route);
    bool all = hx_policy_is_safe(route);
    if (method.len == 0 || route->mode == HX_MODE_PASS) return;
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        if (!said[i] || (!all && i == 2)) continue; /* `require` applies to the unsafe methods */
        hx_config_problem_at(all ? &loader->problems : &loader->notes, said[i]->line, said[i]->column,
                             "\"%.*s\" does nothing for %.*s: it needs no key, and is always streamed through",
                             HX_FMT(said[i]->key->text), HX_FMT(method));
    }
    if (!all) return;
    route->key.from = NULL;
    route->require = route->require_principal = false;
}

static void read_route(hx_loader *loader, const hx_yaml *node, hx_policy *route)
{
    *route = loader->config->policies.defaults;
    if (node->refused) return;
    if (node->kind != HX_YAML_MAP) {
        hx_config_problem_at(&loader->problems, node->line, node->column,
                             "a route is a map of options, such as {match: POST /refunds}");
        return;
    }
    const hx_policy *base = base_of(loader, node);
    *route = *base;
    if (base == &loader->config->policies.defaults) route->fingerprint_said = false;
    read_policy(loader, node, NULL, route);
    name_route(loader, node, route);
    check_safe_methods(loader, node, route);
    check_because(loader, node, route);
    hx_options_key_finish(loader, node, route);
}

static void read_routes(hx_loader *loader, const hx_yaml *list)
{
    hx_config *config = loader->config;
    hx_policy_set *set = &config->policies;
    const hx_option *option = hx_option_find(HX_PLACE_TOP, HX_LIT("routes"));
    if (!hx_loader_is(loader, option, list, HX_YAML_LIST)) return;
    if (list->count > HX_ROUTES_MAX) {
        hx_config_problem_at(&loader->problems, list->line, list->column,
                             "\"routes\" has %zu routes; up to %u are possible", list->count, HX_ROUTES_MAX);
        return;
    }
    set->routes = hx_arena_alloc(&config->arena, (list->count + 1) * sizeof *set->routes);
    for (const hx_yaml *node = list->first; node; node = node->next) {
        hx_policy *route = &set->routes[set->count++];
        read_route(loader, node, route);
    }
    hx_conflicts_find(loader, list);
}

void hx_routes_read(hx_loader *loader, const hx_yaml *root)
{
    hx_policy_set *set = &loader->config->policies;
    const hx_yaml *groups = hx_yaml_get(root, "groups"), *routes = hx_yaml_get(root, "routes");
    read_defaults(loader, hx_yaml_get(root, "defaults"));
    if (groups) read_groups(loader, groups);
    if (routes) read_routes(loader, routes);
    for (size_t i = 0; i < loader->group_count; i++)
        if (!loader->groups[i].used)
            hx_config_problem_at(&loader->notes, loader->groups[i].at->line, loader->groups[i].at->column,
                                 "no route is in group %s", hx_quoted(&loader->config->arena, loader->groups[i].name));
    set->require_key = loader->config->require_key;
    bool is_open = !set->require_key && !hx_policy_is_exposed(&set->defaults) && set->defaults.because.len == 0;
    if (loader->strict && is_open)
        hx_config_problem_at(
            &loader->problems, root ? root->line : 1, root ? root->column : 1,
            "unsafe requests without a key pass unprotected to every path that no route names; refuse them "
            "(\"require_key: true\") or say why (\"defaults: {because: …}\")");
    /* Requests that match no route need a key only with `require_key`, and then by the default methods. */
    set->defaults.require = set->require_key;
    set->defaults.require_on_put = false;
    if (set->defaults.key.overlap == HX_OVERLAP_UNSAID) set->defaults.key.overlap = 0;
    hx_policy_version_all(set);
    hx_options_callers_compact(loader->config);
    hx_policy_compile(set, &loader->config->arena);
}
