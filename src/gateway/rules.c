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

static void say(const hx_policy_set *policies, hx_log_level level, bool (*fits)(const hx_policy *), const char *event)
{
    hx_slice first = HX_LIT("(any other)");
    int64_t count = fits(&policies->defaults);
    for (size_t i = policies->count; i > 0; i--) {
        if (!fits(&policies->routes[i - 1])) continue;
        first = policies->routes[i - 1].name;
        count++;
    }
    if (count == 0) return;
    hx_log_begin(level, event);
    hx_log_int("routes", count);
    hx_log_str("first", first);
    hx_log_end();
}

void hx_rules_say_weaker(const hx_policy_set *policies)
{
    say(policies, HX_LOG_WARN, is_watched, "routes in shadow mode are watched, not protected");
    say(policies, HX_LOG_INFO, is_unprotected, "routes pass unsafe methods unprotected");
}
