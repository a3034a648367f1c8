/* SPDX-License-Identifier: Apache-2.0 */
/* The routes of a world, one for each thing that an application may declare. Times differ from run to run, so that
 * leases lapse and lifetimes end while clients still ask. */
#include "world.h"

#include "base/check.h"
#include "core/operation/template.h"

#include <string.h>

static const struct {
    const char *name, *match, *path;
} rows[SIM_ROUTES] = {
    [SIM_ROUTE_NONE] = {"none", "POST /none", "/none"},
    [SIM_ROUTE_ATOMIC] = {"atomic", "POST /atomic", "/atomic"},
    [SIM_ROUTE_IDEMPOTENT] = {"idempotent", "POST /idempotent", "/idempotent"},
    [SIM_ROUTE_PROBE] = {"probe", "POST /probe", "/probe"},
    [SIM_ROUTE_RENAMED] = {"renamed", "POST /renamed", "/renamed"},
    [SIM_ROUTE_WINDOW] = {"window", "POST /window", "/window"},
    [SIM_ROUTE_TRANSACTIONAL] = {"transactional", "POST /transactional", "/transactional"},
    [SIM_ROUTE_DEFAULT] = {"", "", "/other"},
};

hx_slice sim_route_path(unsigned route)
{
    return hx_slice_of(rows[route].path);
}

const hx_policy *sim_policy(const sim_op *op)
{
    return op->route == SIM_ROUTE_DEFAULT ? &world.policies.defaults : &world.routes[op->route];
}

bool sim_may_repeat(const sim_op *op)
{
    return op->route == SIM_ROUTE_IDEMPOTENT || sim_is_marked(op);
}

bool sim_is_hourly(const sim_op *op)
{
    return op->route == SIM_ROUTE_WINDOW;
}

bool sim_is_marked(const sim_op *op)
{
    return op->route == SIM_ROUTE_TRANSACTIONAL;
}

static void choose_times(hx_policy *policy)
{
    policy->lease = sim_chance(SIM_BY_WORLD, 500) ? sim_span(SIM_BY_WORLD, 6 * HX_SECOND, 60 * HX_SECOND)
                                                  : 60 * HX_SECOND;
    policy->lifetime = 24 * HX_HOUR;
    if (sim_chance(SIM_BY_WORLD, 600))
        policy->lifetime = policy->lease + 12 * HX_SECOND + sim_span(SIM_BY_WORLD, 0, 5 * HX_MINUTE);
    if (sim_chance(SIM_BY_WORLD, 300)) policy->tombstone = sim_span(SIM_BY_WORLD, HX_SECOND, 10 * HX_MINUTE);
    if (sim_chance(SIM_BY_WORLD, 400)) policy->wait = sim_span(SIM_BY_WORLD, HX_SECOND, 10 * HX_SECOND);
    if (sim_chance(SIM_BY_WORLD, 400)) policy->grace = sim_span(SIM_BY_WORLD, HX_SECOND, 60 * HX_SECOND);
    if (sim_chance(SIM_BY_WORLD, 150))
        policy->on_duplicate = sim_choose(SIM_BY_WORLD, 2) ? HX_DUPLICATE_NOOP : HX_DUPLICATE_REJECT;
    if (sim_chance(SIM_BY_WORLD, 50)) policy->answer_bytes_max = 40; /* too little for any answer */
    if (sim_chance(SIM_BY_WORLD, 200)) policy->retry = hx_retry_policy_of_class(HX_CLASS_BACKGROUND);
    if (sim_chance(SIM_BY_WORLD, 500)) policy->upstream_timeout = sim_span(SIM_BY_WORLD, 2 * HX_SECOND, 60 * HX_SECOND);
}

static void compile(hx_policy_set *set)
{
    hx_policy_version_all(set);
    hx_policy_compile(set, &world.arena);
}

void sim_routes_make(void)
{
    static hx_slice older = {"older", 5};
    hx_policy defaults = hx_policy_default();
    choose_times(&defaults);
    for (unsigned i = 0; i < SIM_ROUTE_DEFAULT; i++) {
        const char *error = "";
        hx_policy *policy = &world.routes[i];
        *policy = hx_policy_default();
        policy->name = hx_slice_of(rows[i].name);
        bool good = hx_policy_match(hx_slice_of(rows[i].match), &world.arena, policy, &error);
        HX_CHECK(good);
        choose_times(policy);
    }
    world.routes[SIM_ROUTE_ATOMIC].guarantee = HX_GUARANTEE_ATOMIC;
    world.routes[SIM_ROUTE_IDEMPOTENT].guarantee = HX_GUARANTEE_IDEMPOTENT;
    hx_policy *marked = &world.routes[SIM_ROUTE_TRANSACTIONAL];
    marked->guarantee = HX_GUARANTEE_TRANSACTIONAL;
    marked->lifetime += marked->upstream_timeout + marked->retry.total; /* its mark may come long before its answer */
    world.routes[SIM_ROUTE_NONE].outcome_rules[0] = (hx_outcome_rule){.status = 501, .word = HX_WORD_RELEASE};
    world.routes[SIM_ROUTE_NONE].outcome_rule_count = 1;
    hx_policy *probe = &world.routes[SIM_ROUTE_PROBE];
    probe->on_unknown = HX_ON_UNKNOWN_PROBE;
    probe->answer_bytes_max = defaults.body_bytes_max; /* what it finds must fit */
    probe->probe = (hx_probe){.method = HX_LIT("GET"),
                              .target = HX_LIT("/probe?key={key}"),
                              .found_status = 200,
                              .found_pointer = HX_LIT("/data/0"),
                              .answer_status = 201,
                              .answer_body = HX_LIT("/data/0"),
                              .settle = SIM_SETTLE};
    probe->provider_duplicate = (hx_provider_duplicate){.status = 409,
                                                        .pointer = HX_LIT("/code"),
                                                        .value = HX_LIT("duplicate")};
    hx_policy *window = &world.routes[SIM_ROUTE_WINDOW];
    const char *error = "";
    window->key.from = hx_template_compile(HX_LIT("{header:X-Thing}:{window:1h}"), NULL, NULL, &world.arena, &error);
    window->key.overlap = window->lease + window->retry.total;
    HX_CHECK(window->key.from != NULL);
    hx_policy *renamed = &world.routes[SIM_ROUTE_RENAMED];
    memcpy(world.routes_before, world.routes, sizeof world.routes);
    renamed->formerly = &older;
    renamed->formerly_count = 1;
    world.policies = (hx_policy_set){.routes = world.routes, .count = SIM_ROUTE_DEFAULT, .defaults = defaults};
    world.policies_before = world.policies;
    world.policies_before.routes = world.routes_before;
    world.is_renamed = sim_choose(SIM_BY_WORLD, 2) == 0;
    compile(&world.policies);
    compile(&world.policies_before);
}
