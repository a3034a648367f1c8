/* SPDX-License-Identifier: Apache-2.0 */
#include "config/describe/policy_fields.h"

#include "base/check.h"
#include "config/options.h"
#include "core/json/json_writer.h"
#include "core/operation/template.h"

#include <stdio.h>

#define BYTES_MAX (1024u * 1024u) /* lists are bounded, and so are their items */

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
    return hx_arena_printf(arena, "%s%.*s", prefixes[source->kind],
                           HX_FMT(source->kind == HX_PRINCIPAL_AUTHORIZATION ? HX_EMPTY : source->name));
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

/* Values as JSON. */

static void put_word(hx_buf *out, hx_option_place place, const char *name, unsigned value)
{
    hx_json_put_text(out, NULL, hx_option_word(option_of(place, name), value));
}

static bool put_null(hx_buf *out, bool is_nothing)
{
    if (is_nothing) hx_json_put_null(out, NULL);
    return is_nothing;
}

static void put_from(const hx_policy *route, hx_buf *out)
{
    if (!put_null(out, !route->key.from)) hx_json_put_text(out, NULL, route->key.from->text);
}

static void put_principal(const hx_policy *route, hx_buf *out)
{
    hx_arena arena = {0};
    hx_slice texts[HX_PRINCIPAL_SOURCES_MAX];
    for (size_t i = 0; i < route->principal_count; i++) texts[i] = hx_describe_principal(&route->principals[i], &arena);
    hx_json_put_list(out, NULL, texts, route->principal_count);
    hx_arena_free(&arena);
}

static void put_body(const hx_policy *route, hx_buf *out)
{
    switch (route->fingerprint.body) {
    case HX_FINGERPRINT_CANONICAL: hx_json_put_text(out, NULL, HX_LIT("canonical")); break;
    case HX_FINGERPRINT_RAW: hx_json_put_text(out, NULL, HX_LIT("raw")); break;
    case HX_FINGERPRINT_KEY: hx_json_put_text(out, NULL, HX_LIT("key")); break;
    case HX_FINGERPRINT_POINTERS:
        hx_json_put_list(out, NULL, route->fingerprint.pointers, route->fingerprint.pointer_count);
        break;
    }
}

static void put_jwt(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    if (put_null(out, !route->jwt.given)) return;
    const hx_jwt_source *source = &config->jwt_sources[route->jwt.source];
    hx_json_open(out, NULL, '{');
    hx_json_put_text(out, hx_describe_keys(source), source->where);
    hx_json_put_text(out, "issuer", route->jwt.rules.issuer);
    hx_json_put_text(out, "audience", route->jwt.rules.audience);
    hx_json_put_number(out, "leeway_ms", (uint64_t)route->jwt.rules.leeway);
    if (source->kind == HX_JWT_JWKS_URL) hx_json_put_number(out, "refresh_ms", (uint64_t)source->refresh);
    hx_json_close(out, '}');
}

static void put_authorize(const hx_policy *route, hx_buf *out)
{
    if (put_null(out, route->authorize_method.len == 0)) return;
    hx_json_open(out, NULL, '{');
    hx_json_put_text(out, "method", route->authorize_method);
    hx_json_put_text(out, "target", route->authorize_target);
    hx_json_close(out, '}');
}

static void put_rate(const hx_policy *route, hx_buf *out)
{
    if (put_null(out, route->rate.count == 0)) return;
    hx_json_open(out, NULL, '{');
    hx_json_put_number(out, "count", route->rate.count);
    hx_json_put_number(out, "per_ms", (uint64_t)route->rate.per);
    hx_json_close(out, '}');
}

static void put_probe(const hx_policy *route, hx_buf *out)
{
    const hx_probe *probe = &route->probe;
    if (put_null(out, probe->method.len == 0)) return;
    hx_json_open(out, NULL, '{');
    hx_json_put_text(out, "method", probe->method);
    hx_json_put_text(out, "target", probe->target);
    hx_json_open(out, "found", '{');
    hx_json_put_number(out, "status", probe->found_status);
    hx_json_put_text(out, "pointer", probe->found_pointer);
    hx_json_close(out, '}');
    if (probe->absent_status > 0) {
        hx_json_open(out, "absent", '{');
        hx_json_put_number(out, "status", probe->absent_status);
        hx_json_close(out, '}');
    }
    hx_json_open(out, "answer", '{');
    hx_json_put_number(out, "status", probe->answer_status > 0 ? probe->answer_status : probe->found_status);
    hx_json_put_text(out, "body", probe->answer_body);
    hx_json_close(out, '}');
    hx_json_put_number(out, "settle_ms", (uint64_t)probe->settle);
    hx_json_close(out, '}');
}

static void put_duplicate(const hx_policy *route, hx_buf *out)
{
    if (put_null(out, route->provider_duplicate.status == 0)) return;
    hx_json_open(out, NULL, '{');
    hx_json_put_number(out, "status", route->provider_duplicate.status);
    hx_json_put_text(out, "pointer", route->provider_duplicate.pointer);
    hx_json_put_text(out, "value", route->provider_duplicate.value);
    hx_json_close(out, '}');
}

static void put_outcome(const hx_policy *route, hx_buf *out)
{
    hx_json_open(out, NULL, '{');
    for (size_t i = 0; i < route->outcome_rule_count; i++) {
        char status[16];
        (void)snprintf(status, sizeof status, "%u", (unsigned)route->outcome_rules[i].status);
        hx_json_put_name(out, status);
        put_word(out, HX_PLACE_ROUTE, "outcome", route->outcome_rules[i].word);
    }
    hx_json_close(out, '}');
}

/* Lines of text. Each of these writes nothing where its fields are at their defaults. */

#define SAY(...)                                                                                                       \
    do {                                                                                                               \
        bool fits_ = hx_buf_printf(out, __VA_ARGS__);                                                                  \
        HX_CHECK(fits_);                                                                                               \
    } while (0)

/* "a, b, c" */
static void say_list(hx_buf *out, const hx_slice *items, size_t count, const char *prefix)
{
    for (size_t i = 0; i < count; i++) SAY("%s%s%.*s", i > 0 ? ", " : "", prefix, HX_FMT(items[i]));
}

static void say_principal(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    bool is_default = route->principal_count == 1 && route->principals[0].kind == HX_PRINCIPAL_AUTHORIZATION;
    if (is_default && !route->require_principal) return;
    hx_buf_puts(out, "callers by ");
    for (size_t i = 0; i < route->principal_count; i++)
        SAY("%s%.*s", i > 0 ? ", else " : "", HX_FMT(hx_describe_principal(&route->principals[i], out->arena)));
    if (route->require_principal) hx_buf_puts(out, "; without one 401");
}

static void say_scope(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    static const char *const scopes[] = {
        [HX_SCOPE_ROUTE_AND_PRINCIPAL] = "",
        [HX_SCOPE_PRINCIPAL] = "one key for all routes of this scope (scope principal)",
        [HX_SCOPE_ROUTE] = "all callers share their keys (scope route)",
        [HX_SCOPE_HOST] = "each host has keys of its own (scope host)",
    };
    hx_buf_puts(out, scopes[route->scope]);
}

static void say_jwt(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    if (!route->jwt.given) return;
    const hx_jwt_source *source = &config->jwt_sources[route->jwt.source];
    const hx_jwt_rules *rules = &route->jwt.rules;
    SAY("tokens verified by %s %.*s", hx_describe_keys(source), HX_FMT(source->where));
    if (rules->issuer.len > 0) SAY(", issuer %.*s", HX_FMT(rules->issuer));
    if (rules->audience.len > 0) SAY(", audience %.*s", HX_FMT(rules->audience));
}

static void say_authorize(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    if (route->authorize_method.len > 0)
        SAY("another credential is checked by %.*s %.*s", HX_FMT(route->authorize_method),
            HX_FMT(route->authorize_target));
}

static void say_shared(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    if (route->key.from && route->key.shared) hx_buf_puts(out, "unauthenticated callers share their operations");
}

static void say_overlap(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    if (route->key.from && route->key.from->has_bucket)
        SAY("for %s after a boundary the previous window is looked up first",
            hx_describe_duration(route->key.overlap, out->arena));
}

static void say_fingerprint(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    const hx_fingerprint_rules *rules = &route->fingerprint;
    size_t ignored = rules->ignored_pointer_count + rules->ignored_query_count;
    if (rules->body == (route->key.from ? HX_FINGERPRINT_KEY : HX_FINGERPRINT_CANONICAL) &&
        ignored + rules->header_count == 0)
        return;
    hx_buf_puts(out, "the same request by ");
    switch (rules->body) {
    case HX_FINGERPRINT_CANONICAL: hx_buf_puts(out, "all of it"); break;
    case HX_FINGERPRINT_RAW: hx_buf_puts(out, "its body byte by byte"); break;
    case HX_FINGERPRINT_POINTERS: say_list(out, rules->pointers, rules->pointer_count, ""); break;
    case HX_FINGERPRINT_KEY: hx_buf_puts(out, "its key"); break;
    }
    if (ignored > 0) hx_buf_puts(out, ", but ");
    say_list(out, rules->ignored_pointers, rules->ignored_pointer_count, "");
    if (rules->ignored_pointer_count > 0 && rules->ignored_query_count > 0) hx_buf_puts(out, ", ");
    say_list(out, rules->ignored_query, rules->ignored_query_count, "query:");
    if (rules->header_count > 0) hx_buf_puts(out, ", and header ");
    say_list(out, rules->headers, rules->header_count, "");
}

static void say_guarantee(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    if (route->guarantee != HX_GUARANTEE_NONE)
        SAY("guarantee %.*s", HX_FMT(hx_describe_word("guarantee", route->guarantee)));
}

static void say_retry(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    const hx_retry_policy *retry = &route->retry, user = hx_retry_policy_of_class(HX_CLASS_USER);
    if (retry->attempts == user.attempts && retry->total == user.total && retry->base == user.base &&
        retry->cap == user.cap && retry->jitter == user.jitter)
        return;
    if (retry->attempts == 1)
        hx_buf_puts(out, "sent once only");
    else
        SAY("up to %u attempts within %s, %s doubling to %s apart, jitter %.*s", retry->attempts,
            hx_describe_duration(retry->total, out->arena), hx_describe_duration(retry->base, out->arena),
            hx_describe_duration(retry->cap, out->arena),
            HX_FMT(hx_option_word(option_of(HX_PLACE_RETRY, "jitter"), retry->jitter)));
}

static void say_probe(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    const hx_probe *probe = &route->probe;
    if (probe->method.len == 0) return;
    SAY("%s: %.*s %.*s; found with %u%s%.*s, settled after %s",
        route->on_unknown == HX_ON_UNKNOWN_PROBE ? "when unknown" : "probe", HX_FMT(probe->method),
        HX_FMT(probe->target), probe->found_status, probe->found_pointer.len > 0 ? " and " : "",
        HX_FMT(probe->found_pointer), hx_describe_duration(probe->settle, out->arena));
    if (probe->absent_status > 0) SAY(", not there with %u", (unsigned)probe->absent_status);
}

static void say_duplicate(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    const hx_provider_duplicate *duplicate = &route->provider_duplicate;
    if (duplicate->status == 0) return;
    SAY("already applied: %u", duplicate->status);
    if (duplicate->value.len > 0) SAY(" with \"%.*s\" at %.*s", HX_FMT(duplicate->value), HX_FMT(duplicate->pointer));
}

static void say_outcome(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    for (size_t i = 0; i < route->outcome_rule_count; i++)
        SAY("%s%u: %.*s", i > 0 ? ", " : "", route->outcome_rules[i].status,
            HX_FMT(hx_describe_word("outcome", route->outcome_rules[i].word)));
}

static void say_dialect(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    if (route->dialect != HX_DIALECT_PLAIN) SAY("dialect %.*s", HX_FMT(hx_describe_word("dialect", route->dialect)));
}

static void say_limits(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    if (route->rate.count > 0) SAY("each caller: up to %.*s", HX_FMT(hx_describe_rate(&route->rate, out->arena)));
    if (route->quota > 0) SAY("%sup to %u live keys", route->rate.count > 0 ? ", " : "each caller: ", route->quota);
}

static void say_forward_key(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    if (route->forward_key == HX_FORWARD_KEY_SCOPED) hx_buf_puts(out, "the upstream gets a key made by Hapax");
}

static void say_deny_headers(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    if (route->deny_header_count > 0) hx_buf_puts(out, "headers not stored: ");
    say_list(out, route->deny_headers, route->deny_header_count, "");
}

static void say_result(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    if (route->result.len > 0) SAY("result at %.*s", HX_FMT(route->result));
}

static void say_formerly(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    if (route->formerly_count > 0) hx_buf_puts(out, "formerly ");
    say_list(out, route->formerly, route->formerly_count, "");
}

static void say_retry_safe(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    if (route->retry_safe)
        hx_buf_puts(out, "safe methods, and PUT and DELETE without a key, retried after resets, 502, 503 and 504");
}

static void put_text(hx_buf *out, hx_slice text)
{
    hx_json_put_text(out, NULL, text);
}

static void put_bool(hx_buf *out, bool value)
{
    hx_json_put_bool(out, NULL, value);
}

/* None is negative. */
static void put_number(hx_buf *out, int64_t number)
{
    hx_json_put_number(out, NULL, (uint64_t)number);
}

static void put_list(hx_buf *out, const hx_slice *items, size_t count)
{
    hx_json_put_list(out, NULL, items, count);
}

/* name, identifier, identifies operations?, published?, writes its value, words */
#define FIELDS(X)                                                                                                      \
    X("upstream", upstream, 0, 0, put_text(out, config->upstreams[route->upstream].url), NULL)                         \
    X("mode", mode, 0, 1, put_word(out, HX_PLACE_ROUTE, "mode", route->mode), NULL)                                    \
    X("path", path_exact, 0, 0, put_word(out, HX_PLACE_ROUTE, "path", route->path_exact), NULL)                        \
    X("because", because, 0, 0, put_text(out, route->because), NULL)                                                   \
    X("require", require, 0, 0, put_bool(out, route->require), NULL)                                                   \
    X("require_on_put", require_on_put, 0, 0, put_bool(out, route->require_on_put), NULL)                              \
    X("if_match_suffices", if_match_suffices, 0, 0, put_bool(out, route->if_match_suffices), NULL)                     \
    X("principal", principal, 1, 1, put_principal(route, out), say_principal)                                          \
    X("require_principal", require_principal, 0, 0, put_bool(out, route->require_principal), NULL)                     \
    X("scope", scope, 1, 1, put_word(out, HX_PLACE_ROUTE, "scope", route->scope), say_scope)                           \
    X("jwt", jwt, 0, 0, put_jwt(config, route, out), say_jwt)                                                          \
    X("authorize", authorize, 0, 0, put_authorize(route, out), say_authorize)                                          \
    X("key.from", from, 1, 0, put_from(route, out), NULL)                                                              \
    X("key.prefer", key_prefer, 1, 0, put_word(out, HX_PLACE_KEY, "prefer", route->key.prefer_header), NULL)           \
    X("key.shared", key_shared, 0, 0, put_bool(out, route->key.shared), say_shared)                                    \
    X("key.overlap_ms", key_overlap, 0, 0, put_number(out, route->key.overlap), say_overlap)                           \
    X("key.min", key_min, 0, 0, put_number(out, route->key.len_min), NULL)                                             \
    X("key.max", key_max, 0, 0, put_number(out, route->key.len_max), NULL)                                             \
    X("key.format", key_format, 0, 0, put_word(out, HX_PLACE_KEY, "format", route->key.format), NULL)                  \
    X("fingerprint.body", body, 1, 0, put_body(route, out), say_fingerprint)                                           \
    X("fingerprint.ignore", ignore, 1, 0,                                                                              \
      put_list(out, route->fingerprint.ignored_pointers, route->fingerprint.ignored_pointer_count), NULL)              \
    X("fingerprint.ignore_query", ignore_query, 1, 0,                                                                  \
      put_list(out, route->fingerprint.ignored_query, route->fingerprint.ignored_query_count), NULL)                   \
    X("fingerprint.headers", headers, 1, 0,                                                                            \
      put_list(out, route->fingerprint.headers, route->fingerprint.header_count), NULL)                                \
    X("guarantee", guarantee, 0, 0, put_word(out, HX_PLACE_ROUTE, "guarantee", route->guarantee), say_guarantee)       \
    X("on_unknown", on_unknown, 0, 0, put_word(out, HX_PLACE_ROUTE, "on_unknown", route->on_unknown), NULL)            \
    X("class", class, 0, 0, put_word(out, HX_PLACE_ROUTE, "class", route->class), NULL)                                \
    X("retry.attempts", retry_attempts, 0, 0, put_number(out, route->retry.attempts), say_retry)                       \
    X("retry.total_ms", retry_total, 0, 0, put_number(out, route->retry.total), NULL)                                  \
    X("retry.base_ms", retry_base, 0, 0, put_number(out, route->retry.base), NULL)                                     \
    X("retry.cap_ms", retry_cap, 0, 0, put_number(out, route->retry.cap), NULL)                                        \
    X("retry.jitter", retry_jitter, 0, 0, put_word(out, HX_PLACE_RETRY, "jitter", route->retry.jitter), NULL)          \
    X("probe", probe, 0, 0, put_probe(route, out), say_probe)                                                          \
    X("provider_duplicate", duplicate, 0, 0, put_duplicate(route, out), say_duplicate)                                 \
    X("outcome", outcome, 0, 0, put_outcome(route, out), say_outcome)                                                  \
    X("dialect", dialect, 0, 1, put_word(out, HX_PLACE_ROUTE, "dialect", route->dialect), say_dialect)                 \
    X("rate", rate, 0, 0, put_rate(route, out), say_limits)                                                            \
    X("quota", quota, 0, 0, put_number(out, route->quota), NULL)                                                       \
    X("forward_key", forward_key, 1, 0, put_word(out, HX_PLACE_ROUTE, "forward_key", route->forward_key),              \
      say_forward_key)                                                                                                 \
    X("deny_headers", deny_headers, 0, 0, put_list(out, route->deny_headers, route->deny_header_count),                \
      say_deny_headers)                                                                                                \
    X("result", result, 0, 0, put_text(out, route->result), say_result)                                                \
    X("formerly", formerly, 0, 0, put_list(out, route->formerly, route->formerly_count), say_formerly)                 \
    X("on_duplicate", on_duplicate, 0, 1, put_word(out, HX_PLACE_ROUTE, "on_duplicate", route->on_duplicate), NULL)    \
    X("on_failed", on_failed, 0, 1, put_word(out, HX_PLACE_ROUTE, "on_failed", route->on_failed_reject), NULL)         \
    X("on_store_down", on_store_down, 0, 0, put_word(out, HX_PLACE_ROUTE, "on_store_down", route->on_store_down_pass), \
      NULL)                                                                                                            \
    X("lifetime_ms", lifetime, 0, 0, put_number(out, route->lifetime), NULL)                                           \
    X("tombstone_ms", tombstone, 0, 0, put_number(out, route->tombstone), NULL)                                        \
    X("lease_ms", lease, 0, 0, put_number(out, route->lease), NULL)                                                    \
    X("wait_ms", wait, 0, 0, put_number(out, route->wait), NULL)                                                       \
    X("grace_ms", grace, 0, 0, put_number(out, route->grace), NULL)                                                    \
    X("upstream_timeout_ms", upstream_timeout, 0, 0, put_number(out, route->upstream_timeout), NULL)                   \
    X("body_max", body_max, 0, 0, put_number(out, (int64_t)route->body_bytes_max), NULL)                               \
    X("answer_max", answer_max, 0, 0, put_number(out, (int64_t)route->answer_bytes_max), NULL)                         \
    X("retry_safe", retry_safe, 0, 0, put_bool(out, route->retry_safe), say_retry_safe)

#define X(name, id, identifies, published, statement, words)                                                           \
    static void write_##id(const hx_config *config, const hx_policy *route, hx_buf *out)                               \
    {                                                                                                                  \
        (void)config;                                                                                                  \
        statement;                                                                                                     \
    }
FIELDS(X)
#undef X

static const hx_describe_field fields[] = {
#define X(name, id, identifies, published, statement, words) {name, identifies, published, write_##id, words},
    FIELDS(X)
#undef X
};
#define FIELD_COUNT (sizeof fields / sizeof fields[0])

const hx_describe_field *hx_describe_fields(size_t *count)
{
    *count = FIELD_COUNT;
    return fields;
}

void hx_describe_json(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    hx_slice open = HX_EMPTY; /* "key" while its members are written */
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        hx_slice name = hx_slice_of(fields[i].name), above = HX_EMPTY;
        size_t dot = hx_slice_find(name, '.');
        if (dot != SIZE_MAX) {
            above = hx_slice_first(name, dot);
            name = hx_slice_from(name, dot + 1);
        }
        bool same = hx_slice_eq(above, open);
        if (!same && open.len > 0) hx_json_close(out, '}');
        if (!same && above.len > 0) {
            hx_json_put_text(out, NULL, above);
            hx_buf_puts(out, ":{");
        }
        open = above;
        hx_json_put_name(out, name.ptr);
        fields[i].value(config, route, out);
    }
    HX_CHECK(open.len == 0); /* the last field is no member of another */
}

const char *hx_describe_text(const hx_config *config, const hx_policy *route, hx_arena *arena)
{
    hx_buf out;
    hx_buf_init(&out, arena, BYTES_MAX);
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        bool applies = route->mode != HX_MODE_PASS || fields[i].words == say_retry_safe;
        if (!fields[i].words || !applies) continue;
        size_t before = out.len;
        if (before > 0) hx_buf_puts(&out, "\n");
        size_t begin = out.len;
        fields[i].words(config, route, &out);
        if (out.len == begin) out.len = before;
    }
    return hx_arena_terminated(arena, hx_buf_slice(&out));
}

const char *hx_describe_value(const hx_describe_field *field, const hx_config *config, const hx_policy *route,
                              hx_arena *arena)
{
    hx_buf out;
    uint64_t number = 0;
    hx_slice name = hx_slice_of(field->name);
    hx_buf_init(&out, arena, BYTES_MAX);
    field->value(config, route, &out);
    hx_slice value = hx_buf_slice(&out);
    if (hx_slice_eq(name, HX_LIT("rate")) && route->rate.count > 0) /* as in the file */
        return hx_arena_terminated(arena, hx_describe_rate(&route->rate, arena));
    bool is_time = hx_slice_ends(name, HX_LIT("_ms")), is_size = hx_slice_ends(name, HX_LIT("_max"));
    if ((is_time || is_size) && hx_slice_to_u64(value, &number))
        return hx_option_write(option_of(HX_PLACE_ROUTE, is_time ? "lifetime" : "body_max"), number, arena);
    return hx_arena_terminated(arena, value);
}
