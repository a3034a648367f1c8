/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that a route says, row by row, as JSON: `hapax check --json` prints the rows, and --diff compares them. */
#include "cmd/rules.h"

#include "base/check.h"
#include "config/options.h"
#include "core/json.h"
#include "core/template.h"

#define VALUE_BYTES_MAX (1024u * 1024u) /* lists are bounded, and so are their items */

static void put_text(hx_buf *out, hx_slice text)
{
    bool fits = hx_json_escape(out, text);
    HX_CHECK(fits);
}

static void put_member(hx_buf *out, const char *name, hx_slice text)
{
    hx_buf_puts(out, name);
    put_text(out, text);
}

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
    put_text(out, hx_option_word(option, value));
}

static void put_list(hx_buf *out, const hx_slice *items, size_t count)
{
    hx_buf_puts(out, "[");
    for (size_t i = 0; i < count; i++) {
        if (i > 0) hx_buf_puts(out, ",");
        put_text(out, items[i]);
    }
    hx_buf_puts(out, "]");
}

/* A row's writer, by what it puts. */
#define WRITER(name, statement)                                                                                        \
    static void write_##name(const hx_config *config, const hx_policy *route, hx_buf *out)                             \
    {                                                                                                                  \
        (void)config;                                                                                                  \
        statement;                                                                                                     \
    }

WRITER(mode, put_word(out, HX_PLACE_ROUTE, "mode", route->mode))
WRITER(because, put_text(out, route->because))
WRITER(require, put_bool(out, route->require))
WRITER(require_on_put, put_bool(out, route->require_on_put))
WRITER(if_match_suffices, put_bool(out, route->if_match_suffices))
WRITER(key_min, put_number(out, "", route->key.len_min))
WRITER(key_max, put_number(out, "", route->key.len_max))
WRITER(key_format, put_word(out, HX_PLACE_KEY, "format", route->key.format))
WRITER(key_prefer, put_word(out, HX_PLACE_KEY, "prefer", route->key.prefer_header))
WRITER(key_shared, put_bool(out, route->key.shared))
WRITER(key_overlap, put_number(out, "", route->key.overlap))
WRITER(scope, put_word(out, HX_PLACE_ROUTE, "scope", route->scope))
WRITER(require_principal, put_bool(out, route->require_principal))
WRITER(dialect, put_word(out, HX_PLACE_ROUTE, "dialect", route->dialect))
WRITER(forward_key, put_word(out, HX_PLACE_ROUTE, "forward_key", route->forward_key))
WRITER(quota, put_number(out, "", route->quota))
WRITER(result, put_text(out, route->result))
WRITER(formerly, put_list(out, route->formerly, route->formerly_count))
WRITER(deny_headers, put_list(out, route->deny_headers, route->deny_header_count))
WRITER(on_duplicate, put_word(out, HX_PLACE_ROUTE, "on_duplicate", route->on_duplicate))
WRITER(lifetime, put_number(out, "", route->lifetime))
WRITER(tombstone, put_number(out, "", route->tombstone))
WRITER(lease, put_number(out, "", route->lease))
WRITER(wait, put_number(out, "", route->wait))
WRITER(grace, put_number(out, "", route->grace))
WRITER(upstream_timeout, put_number(out, "", route->upstream_timeout))
WRITER(body_max, put_number(out, "", (long long)route->body_bytes_max))
WRITER(answer_max, put_number(out, "", (long long)route->answer_bytes_max))
WRITER(guarantee, put_word(out, HX_PLACE_ROUTE, "guarantee", route->guarantee))
WRITER(on_unknown, put_word(out, HX_PLACE_ROUTE, "on_unknown", route->on_unknown))
WRITER(class, put_word(out, HX_PLACE_ROUTE, "class", route->class))
WRITER(retry_attempts, put_number(out, "", route->retry.attempts))
WRITER(retry_total, put_number(out, "", route->retry.total))
WRITER(retry_base, put_number(out, "", route->retry.base))
WRITER(retry_cap, put_number(out, "", route->retry.cap))
WRITER(retry_jitter, put_word(out, HX_PLACE_RETRY, "jitter", route->retry.jitter))
WRITER(retry_safe, put_bool(out, route->retry_safe))
WRITER(ignore_query, put_list(out, route->fingerprint.ignored_query, route->fingerprint.ignored_query_count))
WRITER(ignore, put_list(out, route->fingerprint.ignored_pointers, route->fingerprint.ignored_pointer_count))
WRITER(headers, put_list(out, route->fingerprint.headers, route->fingerprint.header_count))
WRITER(upstream, put_text(out, config->upstreams[route->upstream].url))

static void write_from(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    if (route->key.from)
        put_text(out, route->key.from->text);
    else
        hx_buf_puts(out, "null");
}

static void write_principal(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    hx_arena arena = {0};
    hx_slice texts[HX_PRINCIPAL_SOURCES_MAX];
    (void)config;
    for (size_t i = 0; i < route->principal_count; i++) texts[i] = hx_rules_principal(&route->principals[i], &arena);
    put_list(out, texts, route->principal_count);
    hx_arena_free(&arena);
}

static void write_counted(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    switch (route->fingerprint.body) {
    case HX_FINGERPRINT_CANONICAL: hx_buf_puts(out, "\"canonical\""); break;
    case HX_FINGERPRINT_RAW: hx_buf_puts(out, "\"raw\""); break;
    case HX_FINGERPRINT_KEY: hx_buf_puts(out, "\"key\""); break;
    case HX_FINGERPRINT_POINTERS: put_list(out, route->fingerprint.pointers, route->fingerprint.pointer_count); break;
    }
}

static void write_jwt(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    static const char *const kinds[] = {
        [HX_JWT_KEY_FILE] = "{\"key\":",
        [HX_JWT_SECRET_FILE] = "{\"secret\":",
        [HX_JWT_JWKS_FILE] = "{\"jwks\":",
        [HX_JWT_JWKS_URL] = "{\"jwks_url\":",
    };
    if (!route->jwt.given) {
        hx_buf_puts(out, "null");
        return;
    }
    const hx_jwt_source *source = &config->jwt_sources[route->jwt.source];
    put_member(out, kinds[source->kind], source->where);
    put_member(out, ",\"issuer\":", route->jwt.rules.issuer);
    put_member(out, ",\"audience\":", route->jwt.rules.audience);
    put_number(out, ",\"leeway_ms\":", route->jwt.rules.leeway);
    if (source->kind == HX_JWT_JWKS_URL) put_number(out, ",\"refresh_ms\":", source->refresh);
    hx_buf_puts(out, "}");
}

static void write_authorize(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    if (route->authorize_method.len == 0) {
        hx_buf_puts(out, "null");
        return;
    }
    put_member(out, "{\"method\":", route->authorize_method);
    put_member(out, ",\"target\":", route->authorize_target);
    hx_buf_puts(out, "}");
}

static void write_rate(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    if (route->rate.count == 0) {
        hx_buf_puts(out, "null");
        return;
    }
    put_number(out, "{\"count\":", route->rate.count);
    put_number(out, ",\"per_ms\":", route->rate.per);
    hx_buf_puts(out, "}");
}

static void write_probe(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    const hx_probe *probe = &route->probe;
    (void)config;
    if (probe->method.len == 0) {
        hx_buf_puts(out, "null");
        return;
    }
    put_member(out, "{\"method\":", probe->method);
    put_member(out, ",\"target\":", probe->target);
    put_number(out, ",\"found\":{\"status\":", probe->found_status);
    put_member(out, ",\"pointer\":", probe->found_pointer);
    put_number(out, "},\"answer\":{\"status\":", probe->answer_status > 0 ? probe->answer_status : probe->found_status);
    put_member(out, ",\"body\":", probe->answer_body);
    put_number(out, "},\"settle_ms\":", (long long)probe->settle);
    hx_buf_puts(out, "}");
}

static void write_duplicate(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    if (route->provider_duplicate.status == 0) {
        hx_buf_puts(out, "null");
        return;
    }
    put_number(out, "{\"status\":", route->provider_duplicate.status);
    put_member(out, ",\"pointer\":", route->provider_duplicate.pointer);
    put_member(out, ",\"value\":", route->provider_duplicate.value);
    hx_buf_puts(out, "}");
}

static void write_outcome(const hx_config *config, const hx_policy *route, hx_buf *out)
{
    (void)config;
    hx_buf_puts(out, "{");
    for (size_t i = 0; i < route->outcome_rule_count; i++) {
        put_number(out, i > 0 ? ",\"" : "\"", route->outcome_rules[i].status);
        hx_buf_puts(out, "\":");
        put_word(out, HX_PLACE_ROUTE, "outcome", route->outcome_rules[i].word);
    }
    hx_buf_puts(out, "}");
}

static const hx_rule_row rows[] = {
    {"upstream", write_upstream, false},
    {"mode", write_mode, false},
    {"because", write_because, false},
    {"require", write_require, false},
    {"require_on_put", write_require_on_put, false},
    {"if_match_suffices", write_if_match_suffices, false},
    {"key.from", write_from, true},
    {"key.prefer", write_key_prefer, true},
    {"key.shared", write_key_shared, false},
    {"key.overlap_ms", write_key_overlap, false},
    {"key.min", write_key_min, false},
    {"key.max", write_key_max, false},
    {"key.format", write_key_format, false},
    {"scope", write_scope, true},
    {"principal", write_principal, true},
    {"require_principal", write_require_principal, false},
    {"jwt", write_jwt, false},
    {"authorize", write_authorize, false},
    {"fingerprint.body", write_counted, true},
    {"fingerprint.ignore", write_ignore, true},
    {"fingerprint.ignore_query", write_ignore_query, true},
    {"fingerprint.headers", write_headers, true},
    {"dialect", write_dialect, false},
    {"forward_key", write_forward_key, true},
    {"rate", write_rate, false},
    {"quota", write_quota, false},
    {"result", write_result, false},
    {"formerly", write_formerly, false},
    {"deny_headers", write_deny_headers, false},
    {"on_duplicate", write_on_duplicate, false},
    {"lifetime_ms", write_lifetime, false},
    {"tombstone_ms", write_tombstone, false},
    {"lease_ms", write_lease, false},
    {"wait_ms", write_wait, false},
    {"grace_ms", write_grace, false},
    {"upstream_timeout_ms", write_upstream_timeout, false},
    {"body_max", write_body_max, false},
    {"answer_max", write_answer_max, false},
    {"guarantee", write_guarantee, false},
    {"on_unknown", write_on_unknown, false},
    {"class", write_class, false},
    {"retry.attempts", write_retry_attempts, false},
    {"retry.total_ms", write_retry_total, false},
    {"retry.base_ms", write_retry_base, false},
    {"retry.cap_ms", write_retry_cap, false},
    {"retry.jitter", write_retry_jitter, false},
    {"retry_safe", write_retry_safe, false},
    {"probe", write_probe, false},
    {"provider_duplicate", write_duplicate, false},
    {"outcome", write_outcome, false},
};

const hx_rule_row *hx_rule_rows(size_t *count)
{
    *count = sizeof rows / sizeof rows[0];
    return rows;
}

void hx_rules_json(const hx_config *config, const hx_policy *route, hx_buf *out)
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
            put_text(out, above);
            hx_buf_puts(out, ":{");
        }
        open = above;
        put_text(out, name);
        hx_buf_puts(out, ":");
        rows[i].write(config, route, out);
    }
    HX_CHECK(open.len == 0); /* the last row stands by itself */
}

const char *hx_rule_value(const hx_rule_row *row, const hx_config *config, const hx_policy *route, hx_arena *arena)
{
    hx_buf out;
    uint64_t number = 0;
    hx_slice name = hx_slice_of(row->name);
    hx_buf_init(&out, arena, VALUE_BYTES_MAX);
    row->write(config, route, &out);
    hx_slice value = hx_buf_slice(&out);
    bool is_time = hx_slice_ends(name, HX_LIT("_ms")), is_size = hx_slice_ends(name, HX_LIT("_max"));
    if ((is_time || is_size) && hx_slice_to_u64(value, &number))
        return hx_option_write(hx_option_find(HX_PLACE_ROUTE, is_time ? HX_LIT("lifetime") : HX_LIT("body_max")),
                               number, arena);
    return hx_arena_terminated(arena, value);
}
