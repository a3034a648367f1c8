/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a configuration: a whole one, in which every promise of config.h holds, or lines that say what is wrong,
 * without a byte that could move a terminal's cursor. */
#include "base/check.h"
#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_status(unsigned status)
{
    return status >= 200 && status <= 599;
}

static void check_outcomes(const hx_policy *policy)
{
    const hx_probe *probe = &policy->probe;
    const hx_retry_policy *retry = &policy->retry;
    bool asks = probe->method.len > 0, has_pointers = probe->found_pointer.len > 0 || probe->answer_body.len > 0;
    HX_CHECK(policy->class != HX_CLASS_WEBHOOK && !retry->schedule);
    HX_CHECK(retry->attempts >= 1 && retry->attempts <= HX_RETRY_ATTEMPTS_MAX && retry->base <= retry->cap);
    HX_CHECK(asks || (policy->on_unknown == HX_ON_UNKNOWN_HOLD && policy->provider_duplicate.status == 0));
    HX_CHECK(!asks || (probe->target.ptr[0] == '/' && is_status(probe->found_status) && probe->settle > 0));
    HX_CHECK(!asks || !has_pointers || hx_slice_eq(probe->method, HX_LIT("GET")));
    HX_CHECK(policy->outcome_rule_count <= HX_OUTCOME_RULES_MAX);
    for (size_t i = 0; i < policy->outcome_rule_count; i++) {
        const hx_outcome_rule *rule = &policy->outcome_rules[i];
        HX_CHECK(is_status(rule->status) && rule->word >= HX_WORD_STORE && rule->word <= HX_WORD_NOT_EXECUTED);
        for (size_t k = 0; k < i; k++) HX_CHECK(policy->outcome_rules[k].status != rule->status);
    }
}

static void check_names(const hx_slice *names, size_t count, size_t most)
{
    HX_CHECK(count <= most);
    for (size_t i = 0; i < count; i++) {
        HX_CHECK(names[i].len > 0 && names[i].len <= 1000);
        for (size_t k = 0; k < i; k++) HX_CHECK(!hx_slice_eq(names[i], names[k]));
    }
}

static void check_key(const hx_policy *policy)
{
    const hx_fingerprint_rules *rules = &policy->fingerprint;
    HX_CHECK(policy->key.overlap >= 0);
    HX_CHECK(!policy->key.from || policy->key.shared || policy->require_principal); /* nobody shares by accident */
    HX_CHECK(policy->key.from || rules->body != HX_FINGERPRINT_KEY);
    HX_CHECK(rules->body != HX_FINGERPRINT_POINTERS || rules->pointer_count > 0);
    HX_CHECK(rules->body != HX_FINGERPRINT_RAW || rules->ignored_pointer_count == 0);
    check_names(rules->pointers, rules->pointer_count, HX_FINGERPRINT_LIST_MAX);
    check_names(rules->ignored_pointers, rules->ignored_pointer_count, HX_FINGERPRINT_LIST_MAX);
    check_names(rules->ignored_query, rules->ignored_query_count, HX_FINGERPRINT_LIST_MAX);
    check_names(rules->headers, rules->header_count, HX_FINGERPRINT_LIST_MAX);
    check_names(policy->formerly, policy->formerly_count, HX_NAMES_MAX);
    check_names(policy->deny_headers, policy->deny_header_count, HX_NAMES_MAX);
}

static void check_policy(const hx_config *config, const hx_policy *policy)
{
    check_key(policy);
    HX_CHECK(!policy->jwt.given || policy->jwt.source < config->jwt_source_count);
    HX_CHECK((policy->authorize_method.len > 0) == (policy->authorize_target.len > 0));
    HX_CHECK((policy->rate.count == 0) == (policy->rate.per == 0));
    HX_CHECK(policy->upstream < config->upstream_count);
    HX_CHECK(policy->principal_count > 0 && policy->principal_count <= HX_PRINCIPAL_SOURCES_MAX);
    HX_CHECK(policy->key.len_min >= 1 && policy->key.len_min <= policy->key.len_max);
    HX_CHECK(policy->lifetime >= policy->lease + policy->upstream_timeout + policy->retry.total);
    check_outcomes(policy);
    HX_CHECK((policy->rule_version & ~HX_RULE_MATCH) == hx_policy_version(policy));
}

static void check_source(const hx_source *source)
{
    bool is_none = hx_slice_eq(hx_slice_of(source->scheme.name), HX_LIT("none"));
    bool is_hmac = hx_slice_eq(hx_slice_of(source->scheme.name), HX_LIT("hmac"));
    HX_CHECK(hx_is_tenant(source->name) && (source->tenant.len == 0 || hx_is_tenant(source->tenant)));
    HX_CHECK(hx_slice_starts(source->deliver, HX_LIT("http")) && source->body_bytes_max <= 4u << 20);
    HX_CHECK(is_none == (source->place_count == 0)); /* nothing is unverified by accident */
    HX_CHECK(source->place_count <= HX_WEBHOOK_SECRETS_MAX && source->secret_count == 0);
    HX_CHECK(!is_hmac || !hx_webhook_scheme_mistake(&source->scheme));
    HX_CHECK((source->dedupe_key != NULL) + (source->id_header.len > 0) + (source->id_pointer.len > 0) <= 1);
    HX_CHECK(source->dedupe_key || source->id_header.len > 0 || source->id_pointer.len > 0 ||
             source->scheme.id_header || source->scheme.id_pointer);
    HX_CHECK(source->replay_guard >= 0 && source->window > 0 && source->timeout > 0);
}

static void check_config(const hx_config *config)
{
    const hx_policy_set *set = &config->policies;
    HX_CHECK(config->listen_count > 0 && config->upstream_count > 0 && config->store.len > 0);
    HX_CHECK(!config->admin_off || config->admin_listen.len == 0);
    HX_CHECK(config->workers >= 1 && config->workers <= 64);
    HX_CHECK(config->jwt_source_count <= HX_JWT_SOURCES_MAX && config->trusted_proxy_count <= HX_TRUSTED_PROXIES_MAX);
    for (size_t i = 0; i < config->jwt_source_count; i++) HX_CHECK(config->jwt_sources[i].where.len > 0);
    HX_CHECK(config->source_count == 0 || config->inbox.listen_count > 0);
    for (size_t i = 0; i < config->source_count; i++) {
        check_source(&config->sources[i]);
        for (size_t k = 0; k < i; k++) HX_CHECK(!hx_slice_eq(config->sources[i].name, config->sources[k].name));
    }
    HX_CHECK(!config->cors.credentials || config->cors.origin_count > 0);
    HX_CHECK(set->tree != NULL && set->defaults.key.from == NULL);
    HX_CHECK((set->defaults.rule_version & HX_RULE_NAMED) == 0);
    check_policy(config, &set->defaults);
    for (size_t i = 0; i < set->count; i++) {
        check_policy(config, &set->routes[i]);
        HX_CHECK(set->routes[i].name.len > 0 && set->routes[i].name.len <= 255);
        HX_CHECK(set->routes[i].rule_version & HX_RULE_NAMED);
        for (size_t k = 0; k < i; k++)
            HX_CHECK(!hx_slice_eq(hx_policy_identity(&set->routes[i]), hx_policy_identity(&set->routes[k])));
        HX_CHECK(set->routes[i].path.len > 0 && set->routes[i].path.ptr[0] == '/');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const hx_config_overrides flags = {.upstream = size % 2 ? "http://127.0.0.1:3000" : NULL, .dev = size % 3 == 0};
    hx_buf errors;
    hx_buf_init(&errors, NULL, 64u * 1024u);
    hx_config *config = hx_config_parse("f", (hx_slice){(const char *)data, size}, &flags, &errors);
    HX_CHECK((config == NULL) == (errors.len > 0));
    for (size_t i = 0; i < errors.len; i++) HX_CHECK(errors.data[i] == '\n' || (unsigned char)errors.data[i] >= 0x20);
    if (config) check_config(config);
    hx_config_free(&config);
    hx_buf_free(&errors);
    hx_arena_pool_drain();
    return 0;
}
