/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that a route says, row by row, as JSON: `hapax check --json` prints the rows, and --diff compares them. */
#include "config/describe/policy_text.h"

#include "base/check.h"
#include "config/options.h"
#include "core/json/json.h"
#include "core/operation/template.h"

#define VALUE_BYTES_MAX (1024u * 1024u) /* lists are bounded, and so are their items */

static void put_number(hx_buf *out, const char *name, long long number)
{
    hx_buf_puts(out, name);
    bool fits = hx_buf_printf(out, "%lld", number);
    HX_CHECK(fits);
}

static void put_bool(hx_buf *out, bool value)
{
    hx_buf_puts(out, value ? "true" : "false");
}

static void put_word(hx_buf *out, hx_option_place place, const char *name, unsigned value)
{
    const hx_option *option = hx_option_find(place, hx_slice_of(name));
    HX_CHECK(option != NULL);
    hx_json_put(out, "", hx_option_word(option, value));
}

static void put_list(hx_buf *out, const hx_slice *items, size_t count)
{
    hx_buf_puts(out, "[");
    for (size_t i = 0; i < count; i++) {
        hx_json_put(out, i > 0 ? "," : "", items[i]);
    }
    hx_buf_puts(out, "]");
}

static bool put_null(hx_buf *out, bool is_nothing)
{
    if (is_nothing) hx_buf_puts(out, "null");
    return is_nothing;
}

static void put_from(const hx_policy *route, hx_buf *out)
{
    if (!put_null(out, !route->key.from)) hx_json_put(out, "", route->key.from->text);
}

static void put_principal(const hx_policy *route, hx_buf *out)
{
    hx_arena arena = {0};
    hx_slice texts[HX_PRINCIPAL_SOURCES_MAX];
    for (size_t i = 0; i < route->principal_count; i++) texts[i] = hx_describe_principal(&route->principals[i], &arena);
    put_list(out, texts, route->principal_count);
    hx_arena_free(&arena);
}

static void put_counted(const hx_policy *route, hx_buf *out)
{
    switch (route->fingerprint.body) {
    case HX_FINGERPRINT_CANONICAL: hx_buf_puts(out, "\"canonical\""); break;
    case HX_FINGERPRINT_RAW: hx_buf_puts(out, "\"raw\""); break;
    case HX_FINGERPRINT_KEY: hx_buf_puts(out, "\"key\""); break;
    case HX_FINGERPRINT_POINTERS: put_list(out, route->fingerprint.pointers, route->fingerprint.pointer_count); break;
    }
}

static void put_jwt(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    if (put_null(out, !route->jwt.given)) return;
    const hx_jwt_source *source = &config->jwt_sources[route->jwt.source];
    hx_json_put(out, "{", hx_slice_of(hx_describe_keys(source)));
    hx_json_put(out, ":", source->where);
    hx_json_put(out, ",\"issuer\":", route->jwt.rules.issuer);
    hx_json_put(out, ",\"audience\":", route->jwt.rules.audience);
    put_number(out, ",\"leeway_ms\":", route->jwt.rules.leeway);
    if (source->kind == HX_JWT_JWKS_URL) put_number(out, ",\"refresh_ms\":", source->refresh);
    hx_buf_puts(out, "}");
}

static void put_authorize(const hx_policy *route, hx_buf *out)
{
    if (put_null(out, route->authorize_method.len == 0)) return;
    hx_json_put(out, "{\"method\":", route->authorize_method);
    hx_json_put(out, ",\"target\":", route->authorize_target);
    hx_buf_puts(out, "}");
}

static void put_rate(const hx_policy *route, hx_buf *out)
{
    if (put_null(out, route->rate.count == 0)) return;
    put_number(out, "{\"count\":", route->rate.count);
    put_number(out, ",\"per_ms\":", route->rate.per);
    hx_buf_puts(out, "}");
}

static void put_probe(const hx_policy *route, hx_buf *out)
{
    const hx_probe *probe = &route->probe;
    if (put_null(out, probe->method.len == 0)) return;
    hx_json_put(out, "{\"method\":", probe->method);
    hx_json_put(out, ",\"target\":", probe->target);
    put_number(out, ",\"found\":{\"status\":", probe->found_status);
    hx_json_put(out, ",\"pointer\":", probe->found_pointer);
    hx_buf_puts(out, "}");
    if (probe->absent_status > 0) put_number(out, ",\"absent\":{\"status\":", probe->absent_status);
    if (probe->absent_status > 0) hx_buf_puts(out, "}");
    put_number(out, ",\"answer\":{\"status\":", probe->answer_status > 0 ? probe->answer_status : probe->found_status);
    hx_json_put(out, ",\"body\":", probe->answer_body);
    put_number(out, "},\"settle_ms\":", (long long)probe->settle);
    hx_buf_puts(out, "}");
}

static void put_duplicate(const hx_policy *route, hx_buf *out)
{
    if (put_null(out, route->provider_duplicate.status == 0)) return;
    put_number(out, "{\"status\":", route->provider_duplicate.status);
    hx_json_put(out, ",\"pointer\":", route->provider_duplicate.pointer);
    hx_json_put(out, ",\"value\":", route->provider_duplicate.value);
    hx_buf_puts(out, "}");
}

static void put_outcome(const hx_policy *route, hx_buf *out)
{
    hx_buf_puts(out, "{");
    for (size_t i = 0; i < route->outcome_rule_count; i++) {
        put_number(out, i > 0 ? ",\"" : "\"", route->outcome_rules[i].status);
        hx_buf_puts(out, "\":");
        put_word(out, HX_PLACE_ROUTE, "outcome", route->outcome_rules[i].word);
    }
    hx_buf_puts(out, "}");
}

/* Name, identifier, whether it is part of the key, what it writes. */
#define OF_THE_KEY true
#define OTHER false
#define RULES(X)                                                                                                       \
    X("upstream", upstream, OTHER, hx_json_put(out, "", config->upstreams[route->upstream].url))                       \
    X("mode", mode, OTHER, put_word(out, HX_PLACE_ROUTE, "mode", route->mode))                                         \
    X("path", path_exact, OTHER, put_word(out, HX_PLACE_ROUTE, "path", route->path_exact))                             \
    X("because", because, OTHER, hx_json_put(out, "", route->because))                                                 \
    X("require", require, OTHER, put_bool(out, route->require))                                                        \
    X("require_on_put", require_on_put, OTHER, put_bool(out, route->require_on_put))                                   \
    X("if_match_suffices", if_match_suffices, OTHER, put_bool(out, route->if_match_suffices))                          \
    X("key.from", from, OF_THE_KEY, put_from(route, out))                                                              \
    X("key.prefer", key_prefer, OF_THE_KEY, put_word(out, HX_PLACE_KEY, "prefer", route->key.prefer_header))           \
    X("key.shared", key_shared, OTHER, put_bool(out, route->key.shared))                                               \
    X("key.overlap_ms", key_overlap, OTHER, put_number(out, "", route->key.overlap))                                   \
    X("key.min", key_min, OTHER, put_number(out, "", route->key.len_min))                                              \
    X("key.max", key_max, OTHER, put_number(out, "", route->key.len_max))                                              \
    X("key.format", key_format, OTHER, put_word(out, HX_PLACE_KEY, "format", route->key.format))                       \
    X("scope", scope, OF_THE_KEY, put_word(out, HX_PLACE_ROUTE, "scope", route->scope))                                \
    X("principal", principal, OF_THE_KEY, put_principal(route, out))                                                   \
    X("require_principal", require_principal, OTHER, put_bool(out, route->require_principal))                          \
    X("jwt", jwt, OTHER, put_jwt(config, route, out))                                                                  \
    X("authorize", authorize, OTHER, put_authorize(route, out))                                                        \
    X("fingerprint.body", counted, OF_THE_KEY, put_counted(route, out))                                                \
    X("fingerprint.ignore", ignore, OF_THE_KEY,                                                                        \
      put_list(out, route->fingerprint.ignored_pointers, route->fingerprint.ignored_pointer_count))                    \
    X("fingerprint.ignore_query", ignore_query, OF_THE_KEY,                                                            \
      put_list(out, route->fingerprint.ignored_query, route->fingerprint.ignored_query_count))                         \
    X("fingerprint.headers", headers, OF_THE_KEY,                                                                      \
      put_list(out, route->fingerprint.headers, route->fingerprint.header_count))                                      \
    X("dialect", dialect, OTHER, put_word(out, HX_PLACE_ROUTE, "dialect", route->dialect))                             \
    X("forward_key", forward_key, OF_THE_KEY, put_word(out, HX_PLACE_ROUTE, "forward_key", route->forward_key))        \
    X("rate", rate, OTHER, put_rate(route, out))                                                                       \
    X("quota", quota, OTHER, put_number(out, "", route->quota))                                                        \
    X("result", result, OTHER, hx_json_put(out, "", route->result))                                                    \
    X("formerly", formerly, OTHER, put_list(out, route->formerly, route->formerly_count))                              \
    X("deny_headers", deny_headers, OTHER, put_list(out, route->deny_headers, route->deny_header_count))               \
    X("on_duplicate", on_duplicate, OTHER, put_word(out, HX_PLACE_ROUTE, "on_duplicate", route->on_duplicate))         \
    X("on_failed", on_failed, OTHER, put_word(out, HX_PLACE_ROUTE, "on_failed", route->on_failed_reject))              \
    X("on_store_down", on_store_down, OTHER,                                                                           \
      put_word(out, HX_PLACE_ROUTE, "on_store_down", route->on_store_down_pass))                                       \
    X("lifetime_ms", lifetime, OTHER, put_number(out, "", route->lifetime))                                            \
    X("tombstone_ms", tombstone, OTHER, put_number(out, "", route->tombstone))                                         \
    X("lease_ms", lease, OTHER, put_number(out, "", route->lease))                                                     \
    X("wait_ms", wait, OTHER, put_number(out, "", route->wait))                                                        \
    X("grace_ms", grace, OTHER, put_number(out, "", route->grace))                                                     \
    X("upstream_timeout_ms", upstream_timeout, OTHER, put_number(out, "", route->upstream_timeout))                    \
    X("body_max", body_max, OTHER, put_number(out, "", (long long)route->body_bytes_max))                              \
    X("answer_max", answer_max, OTHER, put_number(out, "", (long long)route->answer_bytes_max))                        \
    X("guarantee", guarantee, OTHER, put_word(out, HX_PLACE_ROUTE, "guarantee", route->guarantee))                     \
    X("on_unknown", on_unknown, OTHER, put_word(out, HX_PLACE_ROUTE, "on_unknown", route->on_unknown))                 \
    X("class", class, OTHER, put_word(out, HX_PLACE_ROUTE, "class", route->class))                                     \
    X("retry.attempts", retry_attempts, OTHER, put_number(out, "", route->retry.attempts))                             \
    X("retry.total_ms", retry_total, OTHER, put_number(out, "", route->retry.total))                                   \
    X("retry.base_ms", retry_base, OTHER, put_number(out, "", route->retry.base))                                      \
    X("retry.cap_ms", retry_cap, OTHER, put_number(out, "", route->retry.cap))                                         \
    X("retry.jitter", retry_jitter, OTHER, put_word(out, HX_PLACE_RETRY, "jitter", route->retry.jitter))               \
    X("retry_safe", retry_safe, OTHER, put_bool(out, route->retry_safe))                                               \
    X("probe", probe, OTHER, put_probe(route, out))                                                                    \
    X("provider_duplicate", duplicate, OTHER, put_duplicate(route, out))                                               \
    X("outcome", outcome, OTHER, put_outcome(route, out))

#define X(name, id, part, statement)                                                                                   \
    static void write_##id(const hx_config *config, const hx_policy *route, hx_buf *out)                               \
    {                                                                                                                  \
        (void)config;                                                                                                  \
        statement;                                                                                                     \
    }
RULES(X)
#undef X

static const hx_rule_row rows[] = {
#define X(name, id, part, statement) {name, write_##id, part},
    RULES(X)
#undef X
};

const hx_rule_row *hx_describe_rows(size_t *count)
{
    *count = sizeof rows / sizeof rows[0];
    return rows;
}

void hx_describe_json(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    hx_slice open = HX_EMPTY; /* "key" while the rows below it are written */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        hx_slice name = hx_slice_of(rows[i].name), above = HX_EMPTY;
        size_t dot = hx_slice_find(name, '.');
        if (dot != SIZE_MAX) {
            above = hx_slice_first(name, dot);
            name = hx_slice_from(name, dot + 1);
        }
        bool same = hx_slice_eq(above, open);
        if (!same && open.len > 0) hx_buf_puts(out, "}");
        hx_buf_puts(out, ",");
        if (!same && above.len > 0) {
            hx_json_put(out, "", above);
            hx_buf_puts(out, ":{");
        }
        open = above;
        hx_json_put(out, "", name);
        hx_buf_puts(out, ":");
        rows[i].write(config, route, out);
    }
    HX_CHECK(open.len == 0); /* the last row stands by itself */
}

const char *hx_describe_value(const hx_rule_row *row, const hx_config *config, const hx_policy *route, hx_arena *arena)
{
    hx_buf out;
    uint64_t number = 0;
    hx_slice name = hx_slice_of(row->name);
    hx_buf_init(&out, arena, VALUE_BYTES_MAX);
    row->write(config, route, &out);
    hx_slice value = hx_buf_slice(&out);
    if (hx_slice_eq(name, HX_LIT("rate")) && route->rate.count > 0) /* as it is written in the file */
        return hx_arena_terminated(arena, hx_describe_rate(&route->rate, arena));
    bool is_time = hx_slice_ends(name, HX_LIT("_ms")), is_size = hx_slice_ends(name, HX_LIT("_max"));
    if ((is_time || is_size) && hx_slice_to_u64(value, &number))
        return hx_option_write(hx_option_find(HX_PLACE_ROUTE, is_time ? HX_LIT("lifetime") : HX_LIT("body_max")),
                               number, arena);
    return hx_arena_terminated(arena, value);
}
