/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rule_changes.h"

#include "base/check.h"

#include <string.h>

static const hx_slice usual_methods[] = {{"POST", 4}, {"PUT", 3}, {"PATCH", 5}, {"DELETE", 6}};
#define USUAL_METHODS (sizeof usual_methods / sizeof usual_methods[0])

/* Whether the match of the route counts. It doesn't for the defaults, nor for routes that became one: `formerly` says
 * that those had other requests. A route that was renamed keeps its match. */
static bool counts_match(const hx_policy *policy, hx_slice name, uint32_t version)
{
    return policy->formerly_count < 2 && hx_slice_eq(hx_policy_identity(policy), name) && (version & HX_RULE_NAMED);
}

/* Whether operations that began under that name and version are known by the same key under this policy. */
static bool is_same(const hx_policy *policy, hx_slice name, uint32_t version)
{
    uint32_t bits = counts_match(policy, name, version) ? ~HX_RULE_NAMED : HX_RULE_IDENTITY;
    return (policy->rule_version & bits) == (version & bits);
}

static bool keeps_operations(const hx_policy *route)
{
    return route->mode == HX_MODE_PROTECT;
}

static bool is_called(const hx_policy *route, hx_slice name)
{
    if (hx_slice_eq(route->name, name)) return true;
    for (size_t i = 0; i < route->formerly_count; i++)
        if (hx_slice_eq(route->formerly[i], name)) return true;
    return false;
}

/* Finds the route whose operations are known by the name; else the one that has, or had, the name. */
static const hx_policy *route_called(const hx_policy_set *set, hx_slice name)
{
    const hx_policy *found = NULL;
    for (size_t i = 0; i < set->count; i++) {
        const hx_policy *route = &set->routes[i];
        if (hx_slice_eq(hx_policy_identity(route), name)) return route;
        if (is_called(route, name) && (!found || hx_slice_eq(found->name, name))) found = route;
    }
    return found;
}

/* Whether `name` is a method and a path that match no route of the set, so that the defaults hold for it. */
static bool is_by_default(const hx_policy_set *set, hx_slice name)
{
    size_t space = hx_slice_find(name, ' ');
    if (space == SIZE_MAX || !hx_slice_is_token(hx_slice_first(name, space)))
        return false; /* "POST,PUT" is no method */
    hx_slice path = hx_slice_from(name, space + 1);
    if (path.len == 0 || path.ptr[0] != '/' || hx_slice_find(path, '{') < path.len) return false;
    return hx_policy_find(set, hx_slice_first(name, space), path) == NULL;
}

static size_t methods_of(const hx_policy *route, const hx_slice **methods)
{
    *methods = route->method_count > 0 ? route->methods : usual_methods;
    return route->method_count > 0 ? route->method_count : USUAL_METHODS;
}

hx_changes_path *hx_changes_paths(const hx_policy_set *set, hx_arena *arena, size_t *count)
{
    size_t most = 0;
    const hx_slice *methods;
    for (size_t i = 0; i < set->count; i++) most += methods_of(&set->routes[i], &methods);
    hx_changes_path *paths = hx_arena_alloc(arena, (most + 1) * sizeof *paths);
    *count = 0;
    for (size_t i = 0; i < set->count; i++) {
        const hx_policy *route = &set->routes[i];
        if (hx_slice_find(route->path, '{') < route->path.len) continue;
        size_t method_count = methods_of(route, &methods);
        for (size_t m = 0; m < method_count; m++) {
            if (hx_method_is_safe(methods[m])) continue;                         /* never keyed */
            if (hx_policy_find(set, methods[m], route->path) != route) continue; /* an earlier route has it */
            paths[(*count)++] = (hx_changes_path){hx_arena_printf(arena, "%.*s %.*s", HX_FMT(methods[m]),
                                                                  HX_FMT(route->path)),
                                                  route};
        }
    }
    return paths;
}

/* Ends a line. A line that does not fit is dropped, and still counted. */
static size_t say(hx_buf *out, bool fits)
{
    const hx_slice ways_out = HX_LIT("wait until they have expired, or accept with --accept-rescope that their keys "
                                     "run again as new ones\n");
    bool whole = fits && hx_buf_append(out, ways_out);
    (void)whole;
    return 1;
}

static unsigned long long number(uint64_t count)
{
    return (unsigned long long)count;
}

static const char *operations(uint64_t count)
{
    return count == 1 ? "live operation" : "live operations";
}

static bool had_version(const hx_policy *was, uint32_t version)
{
    return ((hx_policy_version(was) ^ version) & HX_RULE_IDENTITY) == 0;
}

/* Names the option that makes the rules other ones. Only a hash of the old rules is known, so it is found where one
 * option alone has changed, from its default or from one of a few values. */
static const char *changed_option(const hx_policy *is, uint32_t version)
{
    const hx_policy usual = hx_policy_default();
    if (had_version(is, version)) return "which requests match it, by its own match or by routes before it";
    hx_policy was = *is;
    memcpy(was.principals, usual.principals, sizeof was.principals);
    was.principal_count = usual.principal_count;
    if (had_version(&was, version)) return "principal";
    was = *is;
    for (was.scope = HX_SCOPE_ROUTE_AND_PRINCIPAL; was.scope <= HX_SCOPE_HOST; was.scope++)
        if (had_version(&was, version)) return "scope";
    was = *is;
    was.fingerprint = usual.fingerprint;
    if (had_version(&was, version)) return "fingerprint";
    was.key.from = NULL; /* its fingerprint is another one by default */
    if (had_version(&was, version)) return "key.from";
    was = *is;
    was.forward_key = is->forward_key == HX_FORWARD_KEY_SCOPED ? HX_FORWARD_KEY_AS_IT_CAME : HX_FORWARD_KEY_SCOPED;
    if (had_version(&was, version)) return "forward_key";
    was = *is;
    was.dialect = is->dialect == HX_DIALECT_IETF ? HX_DIALECT_PLAIN : HX_DIALECT_IETF;
    if (had_version(&was, version)) return "dialect";
    return "principal, scope, key, fingerprint, forward_key or dialect; `hapax check --diff OLD NEW` says which";
}

static size_t say_changed(hx_buf *out, hx_slice name, const hx_policy *route, const hx_store_rule *rule)
{
    return say(out, hx_buf_printf(out, "route \"%.*s\" has %llu %s under other rules (%s): leave those as they were, ",
                                  HX_FMT(name), number(rule->live), operations(rule->live),
                                  changed_option(route, rule->version)));
}

/* Checks operations of a named route. */
static size_t check_named(const hx_policy_set *next, const hx_store_rule *rule, hx_buf *out)
{
    const hx_policy *route = route_called(next, rule->route);
    hx_slice name = rule->route;
    if (!route && is_by_default(next, name)) {
        route = &next->defaults;
        name = HX_EMPTY;
    }
    if (!route)
        return say(out, hx_buf_printf(out,
                                      "route \"%.*s\" has %llu %s and is not there any more: list the name in "
                                      "\"formerly\" of the route that takes its place, ",
                                      HX_FMT(rule->route), number(rule->live), operations(rule->live)));
    if (!keeps_operations(route))
        return say(out, hx_buf_printf(out, "route \"%.*s\" has %llu %s and is not protected now: ", HX_FMT(rule->route),
                                      number(rule->live), operations(rule->live)));
    return is_same(route, name, rule->version) ? 0 : say_changed(out, rule->route, route, rule);
}

/* Checks operations that ran under the defaults, on a path that now has a route. */
static size_t check_path(const hx_policy_set *next, const hx_store_rule *rule, hx_buf *out)
{
    size_t space = hx_slice_find(rule->route, ' ');
    HX_CHECK(space != SIZE_MAX);
    const hx_policy *route = hx_policy_find(next, hx_slice_first(rule->route, space),
                                            hx_slice_from(rule->route, space + 1));
    HX_CHECK(route != NULL);
    if (!keeps_operations(route))
        return say(out,
                   hx_buf_printf(out, "%.*s has %llu %s, and route \"%.*s\" does not protect it now: ",
                                 HX_FMT(rule->route), number(rule->live), operations(rule->live), HX_FMT(route->name)));
    if (!is_called(route, rule->route))
        return say(out, hx_buf_printf(out,
                                      "route \"%.*s\" takes over %.*s, which has %llu %s under the defaults: say "
                                      "\"formerly: ['%.*s']\" in that route, ",
                                      HX_FMT(route->name), HX_FMT(rule->route), number(rule->live),
                                      operations(rule->live), HX_FMT(rule->route)));
    return is_same(route, rule->route, rule->version) ? 0 : say_changed(out, route->name, route, rule);
}

/* Checks operations that ran under one version of the defaults, except on paths that have a route now. */
static size_t check_defaults(const hx_policy_set *next, const hx_store_rule *rule, const hx_store_rules *paths,
                             hx_buf *out)
{
    uint64_t live = rule->live;
    for (size_t i = 0; i < paths->count; i++)
        if (paths->rules[i].version == rule->version) live -= paths->rules[i].live < live ? paths->rules[i].live : live;
    if (live == 0) return 0;
    if (!keeps_operations(&next->defaults))
        return say(out, hx_buf_printf(out, "what matches no route has %llu %s, and the defaults protect nothing now: ",
                                      number(live), operations(live)));
    if (is_same(&next->defaults, HX_EMPTY, rule->version)) return 0;
    return say(out, hx_buf_printf(out,
                                  "what matches no route has %llu %s under other rules (%s) than the defaults have "
                                  "now: leave those as they were, ",
                                  number(live), operations(live), changed_option(&next->defaults, rule->version)));
}

static hx_store_rule *find_rule(const hx_store_rules *among, hx_slice route, uint32_t version)
{
    for (size_t i = 0; i < among->count; i++)
        if (among->rules[i].version == version && hx_slice_eq(among->rules[i].route, route)) return &among->rules[i];
    return NULL;
}

/* Counts a problem, unless it was accepted before: then its line is removed again. */
static size_t remember(hx_changes_memory *memory, const hx_store_rule *rule, hx_buf *problems, size_t from)
{
    bool all_paths = !(rule->version & HX_RULE_NAMED) && find_rule(&memory->accepted, HX_EMPTY, rule->version);
    if (all_paths || find_rule(&memory->accepted, rule->route, rule->version)) {
        problems->len = from;
        return 0;
    }
    hx_store_rules_add(&memory->wrong, memory->arena, rule->route, rule->version, rule->live);
    return 1;
}

static bool has_route(const hx_policy_set *next, hx_slice name)
{
    size_t space = hx_slice_find(name, ' ');
    return space != SIZE_MAX && hx_policy_find(next, hx_slice_first(name, space), hx_slice_from(name, space + 1));
}

/* Whether operations under rules that were given up are still unknown to `next`. */
static bool is_still_wrong(const hx_policy_set *next, const hx_store_rule *accepted, hx_buf *out)
{
    static const hx_store_rules none;
    size_t from = out->len, wrong;
    hx_store_rule rule = {.route = accepted->route, .version = accepted->version, .live = 1};
    if (rule.version & HX_RULE_NAMED) {
        wrong = check_named(next, &rule, out);
    } else if (has_route(next, rule.route)) {
        wrong = check_path(next, &rule, out);
    } else {
        wrong = check_defaults(next, &rule, &none, out);
    }
    out->len = from;
    return wrong > 0;
}

size_t hx_changes_check(const hx_policy_set *next, const hx_store_rules *live, const hx_store_rules *paths,
                        hx_changes_memory *memory, hx_buf *problems)
{
    size_t count = 0;
    for (size_t i = 0; i < memory->accepted.count; i++)
        memory->accepted.rules[i].live = is_still_wrong(next, &memory->accepted.rules[i], problems);
    for (size_t i = 0; i < live->count; i++) {
        const hx_store_rule *rule = &live->rules[i];
        size_t from = problems->len;
        if (rule->version == HX_RULE_SHADOW) continue; /* shadow mode: no client relies on it */
        size_t wrong = rule->version & HX_RULE_NAMED ? check_named(next, rule, problems)
                                                     : check_defaults(next, rule, paths, problems);
        if (wrong > 0) count += remember(memory, rule, problems, from);
    }
    for (size_t i = 0; i < paths->count; i++) {
        size_t from = problems->len;
        if (check_path(next, &paths->rules[i], problems) > 0)
            count += remember(memory, &paths->rules[i], problems, from);
    }
    if (live->others > 0) /* which can't be recorded as accepted either */
        count += say(problems, hx_buf_printf(problems, "%llu %s are under more rules than the store can count apart: ",
                                             number(live->others), operations(live->others)));
    return count;
}

/* Whether operations that begin under this name now would be known by another one. */
static bool joins(const hx_policy_set *next, const hx_policy *route, hx_slice identity)
{
    return route && route_called(next, identity) == route && !hx_slice_eq(identity, hx_policy_identity(route));
}

/* Whether two different rules have the same version by chance, so that the store would take operations of one for the
 * other's. */
static bool is_mistaken(const hx_policy *was, const hx_policy *is, hx_slice name)
{
    if (!keeps_operations(was) || !keeps_operations(is) || !is_same(is, name, was->rule_version)) return false;
    return was->rule_identity != is->rule_identity ||
           (counts_match(is, name, was->rule_version) && was->rule_match != is->rule_match);
}

/* Checks the route, or the defaults, that get its operations. */
static bool is_heir_mistaken(const hx_policy *was, const hx_policy_set *next)
{
    hx_slice name = hx_policy_identity(was);
    const hx_policy *is = route_called(next, name);
    if (is) return is_mistaken(was, is, name);
    return is_by_default(next, name) && is_mistaken(was, &next->defaults, HX_EMPTY);
}

static size_t say_mistaken(hx_buf *problems, const hx_policy *route)
{
    bool fits =
        hx_buf_printf(problems,
                      "route \"%.*s\" has other rules whose version is the same by chance as that of the rules in "
                      "force: give it another name as well, without \"formerly\"\n",
                      HX_FMT(route->name));
    (void)fits;
    return 1;
}

static size_t check_mistaken(const hx_policy_set *running, const hx_policy_set *next, hx_buf *problems)
{
    size_t count = 0;
    for (size_t i = 0; i < running->count; i++)
        if (is_heir_mistaken(&running->routes[i], next)) count += say_mistaken(problems, &running->routes[i]);
    for (size_t i = 0; i < next->count; i++)
        for (size_t k = 0; k <= next->routes[i].formerly_count; k++) {
            const hx_policy *is = &next->routes[i];
            hx_slice name = k < is->formerly_count ? is->formerly[k] : is->name;
            if (is_by_default(running, name) && is_mistaken(&running->defaults, is, name))
                count += say_mistaken(problems, is);
        }
    if (!is_mistaken(&running->defaults, &next->defaults, HX_EMPTY)) return count;
    bool fits = hx_buf_printf(problems, "the defaults have other rules whose version is the same by chance as that of "
                                        "the rules in force: change them in two steps\n");
    (void)fits;
    return count + 1;
}

size_t hx_changes_check_joined(const hx_policy_set *running, const hx_policy_set *next, hx_buf *problems)
{
    size_t count = check_mistaken(running, next, problems);
    for (size_t i = 0; i < next->count; i++) {
        const hx_policy *route = &next->routes[i];
        hx_slice other = HX_EMPTY;
        if (!keeps_operations(route)) continue;
        for (size_t k = 0; k < running->count; k++) {
            hx_slice identity = hx_policy_identity(&running->routes[k]);
            if (keeps_operations(&running->routes[k]) && joins(next, route, identity)) other = identity;
        }
        for (size_t k = 0; k <= route->formerly_count; k++) {
            hx_slice name = k < route->formerly_count ? route->formerly[k] : route->name;
            if (is_by_default(running, name) && joins(next, route, name)) other = name;
        }
        if (other.len == 0) continue;
        bool fits = hx_buf_printf(problems,
                                  "route \"%.*s\" is known as \"%.*s\" and takes over what runs as \"%.*s\": that "
                                  "needs a restart, because requests under the old rules may be in flight\n",
                                  HX_FMT(route->name), HX_FMT(hx_policy_identity(route)), HX_FMT(other));
        (void)fits;
        count++;
    }
    return count;
}

/* Whether `next` knows an operation that begins under this name and version. */
static bool is_known(const hx_policy_set *next, hx_slice identity, uint32_t version)
{
    const hx_policy *route = route_called(next, identity);
    if (!route)
        return is_by_default(next, identity) && keeps_operations(&next->defaults) &&
               is_same(&next->defaults, HX_EMPTY, version);
    return keeps_operations(route) && hx_slice_eq(hx_policy_identity(route), identity) &&
           is_same(route, identity, version);
}

void hx_changes_retired(const hx_policy_set *running, const hx_policy_set *next, hx_arena *arena, hx_store_rules *out)
{
    for (size_t i = 0; i < running->count; i++) {
        const hx_policy *route = &running->routes[i];
        hx_slice identity = hx_policy_identity(route);
        if (keeps_operations(route) && !is_known(next, identity, route->rule_version))
            hx_store_rules_add(out, arena, identity, route->rule_version, 0);
    }
    const hx_policy *defaults = &running->defaults;
    if (!keeps_operations(defaults)) return;
    if (!keeps_operations(&next->defaults) || !is_same(&next->defaults, HX_EMPTY, defaults->rule_version))
        hx_store_rules_add(out, arena, HX_EMPTY, defaults->rule_version, 0);
    size_t count;
    hx_changes_path *paths = hx_changes_paths(next, arena, &count);
    for (size_t i = 0; i < count; i++)
        if (is_by_default(running, paths[i].text) && !is_known(next, paths[i].text, defaults->rule_version))
            hx_store_rules_add(out, arena, paths[i].text, defaults->rule_version, 0);
}
