/* SPDX-License-Identifier: Apache-2.0 */
/* Options about callers: `principal`, `jwt` and `rate`. */
#include "config/loader.h"
#include "base/text.h"
#include "core/time/units.h"

#include <string.h>

#define NAME_BYTES_MAX 255u
#define NUMBER_OF(array) (sizeof(array) / sizeof(array)[0])

/* The name in lower case, with `-` for every other byte, as the gateway compares names when it forwards. */
static bool is_named_like(hx_slice name, hx_slice beginning)
{
    for (size_t i = 0; i < beginning.len; i++) {
        if (i == name.len) return false;
        char c = name.ptr[i];
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if ((is_plain ? c : '-') != beginning.ptr[i]) return false;
    }
    return true;
}

const char *hx_options_callers_unseen(const hx_loader *loader, hx_slice name)
{
    static const char *const never[] = {"connection",
                                        "keep-alive",
                                        "proxy-connection",
                                        "proxy-authenticate",
                                        "proxy-authorization",
                                        "te",
                                        "trailer",
                                        "transfer-encoding",
                                        "content-length",
                                        "upgrade",
                                        "http2-settings",
                                        "expect",
                                        "forwarded",
                                        "x-forwarded-for",
                                        "traceparent",
                                        "x-correlation-id"};
    bool is_ours = is_named_like(name, HX_LIT("hapax-"));
    for (size_t i = 0; i < NUMBER_OF(never) && !is_ours; i++)
        is_ours = name.len == strlen(never[i]) && is_named_like(name, hx_slice_of(never[i]));
    if (is_ours) return "is removed or replaced by Hapax: the upstream never gets the client's value";
    if (loader->config->trusted_proxy_count == 0 && is_named_like(name, HX_LIT("x-forwarded-")))
        return "reaches the upstream from \"trusted_proxies\" only, and there are none";
    return NULL;
}

static bool read_principal(hx_slice text, hx_arena *arena, hx_principal_source *source)
{
    static const struct {
        hx_slice prefix;
        hx_principal_kind kind;
    } kinds[] = {
        {{"header:", 7}, HX_PRINCIPAL_HEADER},
        {{"cookie:", 7}, HX_PRINCIPAL_COOKIE},
        {{"jwt:", 4}, HX_PRINCIPAL_JWT_CLAIM},
    };
    if (hx_slice_eq(text, HX_LIT("authorization"))) {
        *source = (hx_principal_source){HX_PRINCIPAL_AUTHORIZATION, HX_EMPTY};
        return true;
    }
    for (size_t i = 0; i < NUMBER_OF(kinds); i++) {
        if (!hx_slice_starts(text, kinds[i].prefix)) continue;
        *source = (hx_principal_source){kinds[i].kind, hx_slice_from(text, kinds[i].prefix.len)};
        /* Names of headers are case-insensitive, so their case must not change the key. */
        if (source->kind == HX_PRINCIPAL_HEADER) source->name = hx_text_lower(source->name, arena);
        /* Names of claims may be URLs. */
        return kinds[i].kind == HX_PRINCIPAL_JWT_CLAIM ? source->name.len > 0 : hx_slice_is_token(source->name);
    }
    return false;
}

static bool same_principal(const hx_principal_source *a, const hx_principal_source *b)
{
    return a->kind == b->kind && hx_slice_eq(a->name, b->name);
}

static const char *not_a_principal(hx_slice text, hx_arena *arena)
{
    if (hx_slice_starts(text, HX_LIT("mtls:")))
        return "can't be taken from a client's certificate: that needs a TLS listener, which this version doesn't "
               "have; "
               "a proxy in front can pass it in a header, for header:NAME";
    return hx_arena_printf(arena, "must be authorization, header:NAME, cookie:NAME or jwt:CLAIM, not %s",
                           hx_quoted(arena, text))
        .ptr;
}

static void add_principal(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy)
{
    hx_arena *arena = &loader->config->arena;
    hx_slice text;
    hx_principal_source source = {0};
    if (!hx_loader_text(loader, option, node, &text)) return;
    const char *wrong = read_principal(text, arena, &source) ? NULL : not_a_principal(text, arena);
    const char *unseen = source.kind == HX_PRINCIPAL_HEADER ? hx_options_callers_unseen(loader, source.name) : NULL;
    if (!wrong && unseen)
        wrong = hx_arena_printf(arena, "can't be %s: that header %s", hx_quoted(arena, text), unseen).ptr;
    if (!wrong && source.name.len > NAME_BYTES_MAX)
        wrong = hx_arena_printf(arena, "has a name of %zu bytes; up to %u are possible", source.name.len,
                                NAME_BYTES_MAX)
                    .ptr;
    for (size_t i = 0; i < policy->principal_count && !wrong; i++)
        if (same_principal(&policy->principals[i], &source)) wrong = "lists the same source twice";
    if (!wrong && policy->principal_count == HX_PRINCIPAL_SOURCES_MAX)
        wrong = hx_arena_printf(arena, "must be up to %u sources", HX_PRINCIPAL_SOURCES_MAX).ptr;
    if (wrong)
        hx_loader_wrong(loader, node, option->name, wrong);
    else
        policy->principals[policy->principal_count++] = source;
}

void hx_options_callers_principals(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy)
{
    if (node->kind == HX_YAML_LIST && !node->first) {
        hx_loader_wrong(loader, node, option->name, "must not be empty: all callers would share their keys");
        return;
    }
    policy->principal_count = 0;
    if (node->kind != HX_YAML_LIST)
        add_principal(loader, option, node, policy);
    else
        for (const hx_yaml *item = node->first; item; item = item->next) add_principal(loader, option, item, policy);
}

/* The options of the four sources of keys, in the order of hx_jwt_source's kinds. */
static const char *const source_names[] = {
    [HX_JWT_KEY_FILE] = "key",
    [HX_JWT_SECRET_FILE] = "secret",
    [HX_JWT_JWKS_FILE] = "jwks",
    [HX_JWT_JWKS_URL] = "jwks_url",
};

static hx_slice *source_field(hx_jwt_said *said, size_t kind)
{
    hx_slice *fields[] = {
        [HX_JWT_KEY_FILE] = &said->key,
        [HX_JWT_SECRET_FILE] = &said->secret,
        [HX_JWT_JWKS_FILE] = &said->jwks,
        [HX_JWT_JWKS_URL] = &said->jwks_url,
    };
    return fields[kind];
}

static bool is_url(hx_slice url)
{
    size_t begin = hx_slice_starts(url, HX_LIT("http://")) ? 7 : hx_slice_starts(url, HX_LIT("https://")) ? 8 : 0;
    if (begin == 0 || url.len == begin || url.ptr[begin] == '/') return false;
    for (size_t i = begin; i < url.len; i++)
        if (url.ptr[i] <= ' ' || url.ptr[i] >= 0x7f || url.ptr[i] == '#') return false;
    return true;
}

/* Finds the source that the map names itself; *count is how many it names. */
static hx_jwt_source own_source(const hx_yaml *node, hx_jwt_said *said, unsigned *count)
{
    hx_jwt_source source = {.where = HX_EMPTY};
    for (size_t kind = 0; kind < NUMBER_OF(source_names); kind++) {
        if (!hx_yaml_get(node, source_names[kind])) continue;
        source.kind = kind;
        source.where = *source_field(said, kind);
        ++*count;
    }
    return source;
}

/* Returns the index of the source; routes that name the same one share it. */
static unsigned intern_source(hx_loader *loader, const hx_yaml *node, hx_jwt_source source)
{
    hx_config *config = loader->config;
    if (source.kind != HX_JWT_JWKS_URL) source.refresh = 0;
    for (unsigned i = 0; i < config->jwt_source_count; i++) {
        const hx_jwt_source *known = &config->jwt_sources[i];
        if (known->kind == source.kind && known->refresh == source.refresh && hx_slice_eq(known->where, source.where))
            return i;
    }
    if (config->jwt_source_count == HX_JWT_SOURCES_MAX) {
        hx_config_problem_at(&loader->problems, node->line, node->column,
                             "\"jwt\" names one source of keys too many: a configuration has up to %u",
                             HX_JWT_SOURCES_MAX);
        return 0;
    }
    config->jwt_sources[config->jwt_source_count] = source;
    return (unsigned)config->jwt_source_count++;
}

void hx_options_callers_jwt(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy)
{
    if (node->kind == HX_YAML_TEXT && hx_slice_eq(node->text, HX_LIT("off"))) {
        policy->jwt = (hx_jwt_policy){.rules = {.issuer = HX_EMPTY, .audience = HX_EMPTY}};
        return;
    }
    if (!hx_loader_is(loader, option, node, HX_YAML_MAP)) return;
    hx_jwt_said said = {.rules = policy->jwt.rules};
    hx_jwt_source inherited = {.where = HX_EMPTY};
    hx_ms leeway = said.rules.leeway;
    hx_option_defaults(HX_PLACE_JWT, &said);
    if (policy->jwt.given) {
        inherited = loader->config->jwt_sources[policy->jwt.source];
        said.rules.leeway = leeway;
        if (inherited.kind == HX_JWT_JWKS_URL) said.refresh = inherited.refresh;
    }
    size_t problems = loader->problems.count;
    hx_loader_map(loader, option, node, HX_PLACE_JWT, &said);
    unsigned count = 0;
    hx_jwt_source source = own_source(node, &said, &count);
    if (count == 0) source = inherited;
    if (count > 1 || (count == 0 && !policy->jwt.given))
        hx_config_problem_at(
            &loader->problems, node->line, node->column,
            "\"jwt\" must have exactly one of \"key\", \"secret\", \"jwks\" and \"jwks_url\": where do the "
            "keys come from?");
    const hx_yaml *url = hx_yaml_get(node, "jwks_url"), *refresh = hx_yaml_get(node, "refresh");
    if (url && said.jwks_url.len > 0 && !is_url(said.jwks_url))
        hx_loader_wrong(loader, url, "jwks_url",
                        "must be a URL such as https://login.example.com/.well-known/jwks.json");
    if (refresh && count <= 1 && source.kind != HX_JWT_JWKS_URL && source.where.len > 0)
        hx_loader_wrong(loader, refresh, "refresh", "is for \"jwks_url\": a file is read again by `hapax reload`");
    if (loader->problems.count != problems) return;
    source.refresh = said.refresh;
    if (count > 0 && source.kind != HX_JWT_JWKS_URL) source.where = hx_loader_path(loader, source.where);
    policy->jwt = (hx_jwt_policy){.given = true, .source = intern_source(loader, node, source), .rules = said.rules};
}

void hx_options_callers_compact(hx_config *config)
{
    hx_policy_set *set = &config->policies;
    unsigned moved[HX_JWT_SOURCES_MAX] = {0};
    bool used[HX_JWT_SOURCES_MAX] = {false};
    size_t kept = 0;
    if (set->defaults.jwt.given) used[set->defaults.jwt.source] = true;
    for (size_t i = 0; i < set->count; i++)
        if (set->routes[i].jwt.given) used[set->routes[i].jwt.source] = true;
    for (unsigned i = 0; i < config->jwt_source_count; i++) {
        moved[i] = (unsigned)kept;
        if (used[i]) config->jwt_sources[kept++] = config->jwt_sources[i];
    }
    config->jwt_source_count = kept;
    if (set->defaults.jwt.given) set->defaults.jwt.source = moved[set->defaults.jwt.source];
    for (size_t i = 0; i < set->count; i++)
        if (set->routes[i].jwt.given) set->routes[i].jwt.source = moved[set->routes[i].jwt.source];
}

/* Reads a rate like "50/s". */
void hx_options_callers_rate(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy)
{
    hx_arena *arena = &loader->config->arena;
    hx_slice text;
    if (!hx_loader_text(loader, option, node, &text)) return;
    if (hx_slice_eq(text, HX_LIT("off"))) {
        policy->rate = (hx_rate){0};
        return;
    }
    size_t slash = hx_slice_find(text, '/');
    hx_slice number = hx_slice_trim(hx_slice_first(text, slash)), unit = HX_EMPTY;
    if (slash != SIZE_MAX) unit = hx_slice_trim(hx_slice_from(text, slash + 1));
    hx_ms per = hx_unit_span(unit);
    uint64_t count = 0;
    if (per < HX_SECOND || !hx_slice_to_u64(number, &count))
        hx_loader_wrong(
            loader, node, option->name,
            hx_arena_printf(arena, "%s, not %s", hx_option_expects(option, arena), hx_quoted(arena, text)).ptr);
    else if (count < option->low || count > option->high)
        hx_loader_wrong(loader, node, option->name,
                        hx_arena_printf(arena, "must allow %llu to %llu requests, not %s",
                                        (unsigned long long)option->low, (unsigned long long)option->high,
                                        hx_quoted(arena, text))
                            .ptr);
    else
        policy->rate = (hx_rate){.count = (uint32_t)count, .per = per};
}
