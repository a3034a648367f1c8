/* SPDX-License-Identifier: Apache-2.0 */
#include "config/describe/policy_text.h"

#include "base/check.h"
#include "config/options.h"
#include "core/operation/template.h"

#define TEXT_BYTES_MAX (1024u * 1024u) /* lists are bounded, and so are their items */

static const hx_option *option_of(hx_option_place place, const char *name)
{
    const hx_option *option = hx_option_find(place, hx_slice_of(name));
    HX_CHECK(option != NULL);
    return option;
}

hx_slice hx_describe_word(const char *option, unsigned value)
{
    return hx_option_word(option_of(HX_PLACE_ROUTE, option), value);
}

const char *hx_describe_duration(hx_ms span, hx_arena *arena)
{
    return hx_option_write(option_of(HX_PLACE_ROUTE, "lifetime"), (uint64_t)span, arena);
}

static void begin_line(hx_buf *out)
{
    if (out->len > 0) hx_buf_puts(out, "\n");
}

/* "a, b, c" */
static void put_list(hx_buf *out, const hx_slice *items, size_t count, const char *prefix)
{
    for (size_t i = 0; i < count; i++) {
        if (i > 0) hx_buf_puts(out, ", ");
        hx_buf_puts(out, prefix);
        hx_buf_put(out, items[i]);
    }
}

hx_slice hx_describe_match(const hx_policy *route, hx_arena *arena)
{
    hx_slice methods = HX_EMPTY;
    for (size_t i = 0; i < route->method_count; i++)
        methods = hx_arena_printf(arena, "%.*s%s%.*s", HX_FMT(methods), i > 0 ? "," : "", HX_FMT(route->methods[i]));
    return hx_arena_printf(arena, "%.*s%s%.*s", HX_FMT(methods), methods.len > 0 ? " " : "", HX_FMT(route->path));
}

hx_slice hx_describe_principal(const hx_principal_source *source, hx_arena *arena)
{
    static const char *const prefixes[] = {
        [HX_PRINCIPAL_AUTHORIZATION] = "authorization",
        [HX_PRINCIPAL_HEADER] = "header:",
        [HX_PRINCIPAL_COOKIE] = "cookie:",
        [HX_PRINCIPAL_JWT_CLAIM] = "jwt:",
    };
    return hx_arena_printf(arena, "%s%.*s", prefixes[source->kind], HX_FMT(source->name));
}

const char *hx_describe_keys(const hx_jwt_source *source)
{
    static const char *const words[] = {
        [HX_JWT_KEY_FILE] = "key",
        [HX_JWT_SECRET_FILE] = "secret",
        [HX_JWT_JWKS_FILE] = "jwks",
        [HX_JWT_JWKS_URL] = "jwks_url",
    };
    return words[source->kind];
}

hx_slice hx_describe_rate(const hx_rate *rate, hx_arena *arena)
{
    static const struct {
        hx_ms per;
        const char *unit;
    } units[] = {{HX_SECOND, "s"}, {HX_MINUTE, "m"}, {HX_HOUR, "h"}, {HX_DAY, "d"}};
    if (rate->count == 0) return HX_EMPTY;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (rate->per == units[i].per) return hx_arena_printf(arena, "%u/%s", rate->count, units[i].unit);
    return hx_arena_printf(arena, "%u/%s", rate->count, hx_describe_duration(rate->per, arena));
}

static bool is_known_as_usual(const hx_policy *route)
{
    return route->principal_count == 1 && route->principals[0].kind == HX_PRINCIPAL_AUTHORIZATION;
}

static void put_callers(const hx_config *config, const hx_policy *route, hx_buf *out, hx_arena *arena)
{
    if (!is_known_as_usual(route) || route->require_principal) {
        begin_line(out);
        hx_buf_puts(out, "callers by ");
        for (size_t i = 0; i < route->principal_count; i++) {
            if (i > 0) hx_buf_puts(out, ", else ");
            hx_buf_put(out, hx_describe_principal(&route->principals[i], arena));
        }
        if (route->require_principal) hx_buf_puts(out, "; without one 401");
    }
    if (route->scope != HX_SCOPE_ROUTE_AND_PRINCIPAL) {
        begin_line(out);
        static const char *const scopes[] = {[HX_SCOPE_PRINCIPAL] =
                                                 "one key for all routes of this scope (scope principal)",
                                             [HX_SCOPE_ROUTE] = "all callers share their keys (scope route)",
                                             [HX_SCOPE_HOST] = "each host has keys of its own (scope host)"};
        hx_buf_puts(out, scopes[route->scope]);
    }
    if (route->jwt.given) {
        const hx_jwt_source *source = &config->jwt_sources[route->jwt.source];
        begin_line(out);
        hx_buf_put(out, hx_arena_printf(arena, "tokens verified by %s %.*s", hx_describe_keys(source),
                                        HX_FMT(source->where)));
        if (route->jwt.rules.issuer.len > 0)
            hx_buf_put(out, hx_arena_printf(arena, ", issuer %.*s", HX_FMT(route->jwt.rules.issuer)));
        if (route->jwt.rules.audience.len > 0)
            hx_buf_put(out, hx_arena_printf(arena, ", audience %.*s", HX_FMT(route->jwt.rules.audience)));
    }
    if (route->authorize_method.len > 0) {
        begin_line(out);
        hx_buf_put(out, hx_arena_printf(arena, "another credential is asked about by %.*s %.*s",
                                        HX_FMT(route->authorize_method), HX_FMT(route->authorize_target)));
    }
}

static void put_natural(const hx_policy *route, hx_buf *out, hx_arena *arena)
{
    const hx_key_rules *key = &route->key;
    if (key->shared) {
        begin_line(out);
        hx_buf_puts(out, "callers who can't be told apart share their operations");
    }
    if (key->from->has_bucket) {
        begin_line(out);
        hx_buf_put(out, hx_arena_printf(arena, "for %s after a boundary the time before it is looked up first",
                                        hx_describe_duration(key->overlap, arena)));
    }
}

static void put_fingerprint(const hx_policy *route, hx_buf *out)
{
    const hx_fingerprint_rules *rules = &route->fingerprint;
    bool usual = rules->body == (route->key.from ? HX_FINGERPRINT_KEY : HX_FINGERPRINT_CANONICAL) &&
                 rules->ignored_pointer_count + rules->ignored_query_count + rules->header_count == 0;
    if (usual) return;
    begin_line(out);
    hx_buf_puts(out, "the same request by ");
    switch (rules->body) {
    case HX_FINGERPRINT_CANONICAL: hx_buf_puts(out, "all of it"); break;
    case HX_FINGERPRINT_RAW: hx_buf_puts(out, "its body byte by byte"); break;
    case HX_FINGERPRINT_POINTERS: put_list(out, rules->pointers, rules->pointer_count, ""); break;
    case HX_FINGERPRINT_KEY: hx_buf_puts(out, "its key"); break;
    }
    if (rules->ignored_pointer_count + rules->ignored_query_count > 0) {
        hx_buf_puts(out, ", but ");
        put_list(out, rules->ignored_pointers, rules->ignored_pointer_count, "");
        if (rules->ignored_pointer_count > 0 && rules->ignored_query_count > 0) hx_buf_puts(out, ", ");
        put_list(out, rules->ignored_query, rules->ignored_query_count, "query:");
    }
    if (rules->header_count > 0) hx_buf_puts(out, ", and header ");
    put_list(out, rules->headers, rules->header_count, "");
}

static void put_wire(const hx_policy *route, hx_buf *out, hx_arena *arena)
{
    if (route->dialect != HX_DIALECT_PLAIN) {
        begin_line(out);
        hx_buf_put(out, hx_arena_printf(arena, "dialect %.*s", HX_FMT(hx_describe_word("dialect", route->dialect))));
    }
    if (route->rate.count > 0 || route->quota > 0) {
        begin_line(out);
        hx_buf_puts(out, "each caller: ");
        if (route->rate.count > 0)
            hx_buf_put(out, hx_arena_printf(arena, "up to %.*s", HX_FMT(hx_describe_rate(&route->rate, arena))));
        if (route->quota > 0)
            hx_buf_put(out,
                       hx_arena_printf(arena, "%sup to %u live keys", route->rate.count > 0 ? ", " : "", route->quota));
    }
    if (route->forward_key == HX_FORWARD_KEY_SCOPED) {
        begin_line(out);
        hx_buf_puts(out, "the application gets a key of the operation's own");
    }
    if (route->deny_header_count > 0) {
        begin_line(out);
        hx_buf_puts(out, "not kept: ");
        put_list(out, route->deny_headers, route->deny_header_count, "");
    }
    if (route->result.len > 0) {
        begin_line(out);
        hx_buf_put(out, hx_arena_printf(arena, "result at %.*s", HX_FMT(route->result)));
    }
    if (route->formerly_count > 0) {
        begin_line(out);
        hx_buf_puts(out, "formerly ");
        put_list(out, route->formerly, route->formerly_count, "");
    }
}

static bool is_retried_as_usual(const hx_retry_policy *retry)
{
    hx_retry_policy usual = hx_retry_policy_of_class(HX_CLASS_USER);
    return retry->attempts == usual.attempts && retry->total == usual.total && retry->base == usual.base &&
           retry->cap == usual.cap && retry->jitter == usual.jitter;
}

static void put_retries(const hx_policy *route, hx_buf *out, hx_arena *arena)
{
    const hx_retry_policy *retry = &route->retry;
    begin_line(out);
    if (retry->attempts == 1)
        hx_buf_puts(out, "sent once only");
    else
        hx_buf_put(out,
                   hx_arena_printf(arena, "up to %u attempts within %s, %s doubling to %s apart, jitter %.*s",
                                   retry->attempts, hx_describe_duration(retry->total, arena),
                                   hx_describe_duration(retry->base, arena), hx_describe_duration(retry->cap, arena),
                                   HX_FMT(hx_option_word(option_of(HX_PLACE_RETRY, "jitter"), retry->jitter))));
}

static void put_probe(const hx_policy *route, hx_buf *out, hx_arena *arena)
{
    const hx_probe *probe = &route->probe;
    begin_line(out);
    hx_buf_puts(out, route->on_unknown == HX_ON_UNKNOWN_PROBE ? "when unknown" : "probe");
    hx_buf_put(out,
               hx_arena_printf(arena, ": %.*s %.*s; found with %u%s%.*s, settled after %s", HX_FMT(probe->method),
                               HX_FMT(probe->target), probe->found_status, probe->found_pointer.len > 0 ? " and " : "",
                               HX_FMT(probe->found_pointer), hx_describe_duration(probe->settle, arena)));
    if (probe->absent_status > 0)
        hx_buf_put(out, hx_arena_printf(arena, ", not there with %u", (unsigned)probe->absent_status));
}

static void put_duplicate(const hx_provider_duplicate *duplicate, hx_buf *out, hx_arena *arena)
{
    begin_line(out);
    hx_buf_put(out, hx_arena_printf(arena, "already applied: %u", duplicate->status));
    if (duplicate->value.len > 0)
        hx_buf_put(out, hx_arena_printf(arena, " with \"%.*s\" at %.*s", HX_FMT(duplicate->value),
                                        HX_FMT(duplicate->pointer)));
}

static void put_outcomes(const hx_policy *route, hx_buf *out, hx_arena *arena)
{
    begin_line(out);
    for (size_t i = 0; i < route->outcome_rule_count; i++) {
        const hx_outcome_rule *rule = &route->outcome_rules[i];
        hx_buf_put(out, hx_arena_printf(arena, "%s%u: %.*s", i > 0 ? ", " : "", rule->status,
                                        HX_FMT(hx_describe_word("outcome", rule->word))));
    }
}

const char *hx_describe_text(const hx_config *config, const hx_policy *route, hx_arena *arena)
{
    hx_buf out;
    hx_buf_init(&out, arena, TEXT_BYTES_MAX);
    if (route->mode != HX_MODE_PASS) {
        put_callers(config, route, &out, arena);
        if (route->key.from) put_natural(route, &out, arena);
        put_fingerprint(route, &out);
        if (route->guarantee != HX_GUARANTEE_NONE) {
            begin_line(&out);
            hx_buf_put(&out, hx_arena_printf(arena, "guarantee %.*s",
                                             HX_FMT(hx_describe_word("guarantee", route->guarantee))));
        }
        if (!is_retried_as_usual(&route->retry)) put_retries(route, &out, arena);
        if (route->probe.method.len > 0) put_probe(route, &out, arena);
        if (route->provider_duplicate.status > 0) put_duplicate(&route->provider_duplicate, &out, arena);
        if (route->outcome_rule_count > 0) put_outcomes(route, &out, arena);
        put_wire(route, &out, arena);
    }
    if (route->retry_safe) {
        begin_line(&out);
        hx_buf_puts(&out, "safe methods, and PUT and DELETE without a key, sent again after resets, 502, 503 and 504");
    }
    return hx_arena_terminated(arena, hx_buf_slice(&out));
}
