/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/rules.h"

#include "base/log.h"

static bool is_watched(const hx_policy *policy)
{
    return policy->mode == HX_MODE_SHADOW;
}

static bool is_unprotected(const hx_policy *policy)
{
    return policy->mode == HX_MODE_PASS && hx_policy_is_exposed(policy);
}

static void say(const hx_policy_set *policies, bool (*fits)(const hx_policy *), hx_log_event event)
{
    hx_slice first = HX_LIT("(any other)");
    int64_t count = fits(&policies->defaults);
    for (size_t i = policies->count; i > 0; i--) {
        if (!fits(&policies->routes[i - 1])) continue;
        first = policies->routes[i - 1].name;
        count++;
    }
    if (count == 0) return;
    hx_log_begin(event);
    hx_log_int("routes", count);
    hx_log_str("first", first);
    hx_log_end();
}

static bool is_counted_here(const hx_policy *policy)
{
    return policy->quota > 0 || policy->rate.count > 0;
}

void hx_rules_say_weaker(const hx_config *config, bool shared)
{
    const hx_policy_set *policies = &config->policies;
    hx_slice rest = config->notes, line;
    while (rest.len > 0 && hx_slice_next(&rest, '\n', &line)) {
        if (line.len == 0) continue;
        hx_log_begin(HX_EVENT_configuration_warning);
        hx_log_str("note", line);
        hx_log_end();
    }
    if (shared) say(policies, is_counted_here, HX_EVENT_limits_per_gateway);
    say(policies, is_watched, HX_EVENT_routes_in_shadow);
    say(policies, is_unprotected, HX_EVENT_routes_unprotected);
}
