/* SPDX-License-Identifier: Apache-2.0 */
/* Options about clients and proxies: `cors`, `upgrade` and `trusted_proxies`. */
#include "config/loader.h"
#include "base/text.h"

#include <string.h>

#define PORT_MAX 65535u

/* Browsers send a scheme, a host and the port where it isn't the scheme's own, in lower case; nothing else ever
 * equals that. */
static const char *check_origin(hx_slice text, hx_arena *arena)
{
    const char *wrong =
        hx_arena_printf(arena, "must list origins such as https://app.example.com, not %s", hx_quoted(arena, text)).ptr;
    if (hx_slice_eq(text, HX_LIT("*"))) return NULL;
    size_t colon = hx_slice_find(text, ':');
    hx_slice rest = colon == SIZE_MAX ? HX_EMPTY : hx_slice_from(text, colon);
    if (!hx_slice_starts(rest, HX_LIT("://")) || colon == 0) return wrong;
    hx_slice scheme = hx_slice_first(text, colon), host = hx_slice_from(rest, 3), port = HX_EMPTY;
    size_t slash = hx_slice_find(host, '/');
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] >= 'A' && text.ptr[i] <= 'Z')
            return hx_arena_printf(arena, "must list origins in lower case, as browsers send them, not %s",
                                   hx_quoted(arena, text))
                .ptr;
        if (text.ptr[i] <= ' ' || text.ptr[i] >= 0x7f || strchr("\"\\<>@?#*,", text.ptr[i])) return wrong;
    }
    if (slash != SIZE_MAX)
        return hx_arena_printf(arena, "%s: an origin ends after the host and port, \"%.*s\"", wrong,
                               HX_FMT(hx_slice_first(text, text.len - host.len + slash)))
            .ptr;
    size_t end = host.len > 0 && host.ptr[0] == '[' ? hx_slice_find(host, ']') : 0;
    if (end == SIZE_MAX) return wrong;
    size_t at = hx_slice_find(hx_slice_from(host, end), ':');
    uint64_t number;
    if (at != SIZE_MAX) {
        port = hx_slice_from(host, end + at + 1);
        host = hx_slice_first(host, end + at);
        if (!hx_slice_to_u64(port, &number) || port.ptr[0] == '0' || number > PORT_MAX)
            return hx_arena_printf(arena, "%s: the port after the colon must be 1 to 65535", wrong).ptr;
    }
    bool usual = (hx_slice_eq(scheme, HX_LIT("https")) && hx_slice_eq(port, HX_LIT("443"))) ||
                 (hx_slice_eq(scheme, HX_LIT("http")) && hx_slice_eq(port, HX_LIT("80")));
    if (usual)
        return hx_arena_printf(arena, "must list origins as browsers send them, without the scheme's own port, not %s",
                               hx_quoted(arena, text))
            .ptr;
    return host.len > 0 ? NULL : wrong;
}

void hx_options_cors_origins(hx_loader *loader, const hx_option *option, const hx_yaml *node)
{
    hx_config *config = loader->config;
    if (!hx_loader_is(loader, option, node, HX_YAML_LIST)) return;
    config->cors.origins = hx_arena_alloc(&config->arena, (HX_CORS_ORIGINS_MAX + 1) * sizeof *config->cors.origins);
    config->cors.origin_count = 0;
    if (!node->first) hx_loader_wrong(loader, node, option->name, "must not be empty; leave out \"cors\" instead");
    for (const hx_yaml *item = node->first; item; item = item->next) {
        hx_slice text;
        if (!hx_loader_text(loader, option, item, &text)) continue;
        const char *wrong = check_origin(text, &config->arena);
        for (size_t i = 0; i < config->cors.origin_count && !wrong; i++)
            if (hx_slice_eq(config->cors.origins[i], text)) wrong = "lists the same origin twice";
        if (!wrong && config->cors.origin_count == HX_CORS_ORIGINS_MAX)
            wrong = hx_arena_printf(&config->arena, "must be up to %u origins", HX_CORS_ORIGINS_MAX).ptr;
        if (!wrong && node->count > 1 && hx_slice_eq(text, HX_LIT("*")))
            wrong = "can't list others beside \"*\", which is all of them";
        if (wrong)
            hx_loader_wrong(loader, item, option->name, wrong);
        else
            config->cors.origins[config->cors.origin_count++] = text;
    }
}

void hx_options_cors_read(hx_loader *loader, const hx_option *option, const hx_yaml *node)
{
    hx_config *config = loader->config;
    hx_loader_map(loader, option, node, HX_PLACE_CORS, config);
    if (node->kind == HX_YAML_MAP && !node->refused && !hx_yaml_get(node, "origins"))
        hx_config_problem_at(&loader->problems, node->line, node->column,
                             "this \"cors\" has no \"origins\", such as [\"https://app.example.com\"]");
    const hx_yaml *credentials = hx_yaml_get(node, "credentials");
    if (config->cors.credentials && credentials && config->cors.origin_count == 1 &&
        hx_slice_eq(config->cors.origins[0], HX_LIT("*")))
        hx_loader_wrong(
            loader, credentials, "credentials",
            "can't be true for every origin (\"*\"): any page could read a user's responses; list the origins");
}

/* NULL: it is right. */
static const char *read_network(hx_slice text, hx_arena *arena, hx_network *network)
{
    hx_error_text error;
    if (!hx_network_parse(text, network, error))
        return hx_arena_printf(arena, "must list addresses and networks such as 10.0.0.0/8 or fd00::/8: %s %s",
                               hx_quoted(arena, text), error)
            .ptr;
    bool is_all = network->bits == 0 || (network->bits == HX_NETWORK_V4_BITS && hx_network_is_v4(network->bytes));
    if (!is_all) return NULL;
    return hx_arena_printf(arena, "must not list %s: every client could claim any address", hx_quoted(arena, text)).ptr;
}

void hx_options_cors_networks(hx_loader *loader, const hx_option *option, const hx_yaml *node)
{
    hx_config *config = loader->config;
    bool is_mcp = option->place == HX_PLACE_MCP, is_allow = is_mcp || option->place == HX_PLACE_EVENTS;
    hx_network *list = is_mcp ? config->mcp.allow : is_allow ? config->events.allow : config->trusted_proxies;
    size_t count = 0;
    if (!hx_loader_is(loader, option, node, HX_YAML_LIST)) return;
    for (const hx_yaml *item = node->first; item; item = item->next) {
        hx_slice text;
        hx_network network;
        if (!hx_loader_text(loader, option, item, &text)) continue;
        const char *wrong = read_network(text, &config->arena, &network);
        if (wrong && is_allow && hx_slice_ends(text, HX_LIT("/0")))
            wrong = hx_arena_printf(&config->arena, "must not list %s: every address could be reached",
                                    hx_quoted(&config->arena, text))
                        .ptr;
        if (!wrong && count == option->high)
            wrong = hx_arena_printf(&config->arena, "must be up to %zu entries", count).ptr;
        if (wrong)
            hx_loader_wrong(loader, item, option->name, wrong);
        else
            list[count++] = network;
    }
    if (is_mcp)
        config->mcp.allow_count = (uint32_t)count;
    else if (is_allow)
        config->events.allow_count = (uint32_t)count;
    else
        config->trusted_proxy_count = count;
}

/* Protocols that carry requests, which would reach the upstream unprotected. */
static bool carries_requests(hx_slice protocol)
{
    return hx_slice_eq(protocol, HX_LIT("h2c")) || hx_slice_eq(protocol, HX_LIT("h2")) ||
           hx_slice_eq(protocol, HX_LIT("h3")) || hx_slice_starts(protocol, HX_LIT("http"));
}

void hx_options_cors_protocols(hx_loader *loader, const hx_option *option, const hx_yaml *node)
{
    hx_config *config = loader->config;
    hx_arena *arena = &config->arena;
    if (!hx_loader_is(loader, option, node, HX_YAML_LIST)) return;
    config->upgrade_count = 0;
    for (const hx_yaml *item = node->first; item; item = item->next) {
        hx_slice text;
        const char *wrong = NULL;
        if (!hx_loader_text(loader, option, item, &text)) continue;
        hx_slice protocol = hx_text_lower(text, arena);
        if (!hx_slice_is_token(text))
            wrong = hx_arena_printf(arena, "must list protocols such as websocket, not %s", hx_quoted(arena, text)).ptr;
        else if (carries_requests(protocol))
            wrong = hx_arena_printf(arena, "can't list %s: requests inside it would pass Hapax unseen",
                                    hx_quoted(arena, text))
                        .ptr;
        else if (config->upgrade_count == HX_UPGRADES_MAX)
            wrong = hx_arena_printf(arena, "must be up to %u entries", HX_UPGRADES_MAX).ptr;
        if (wrong)
            hx_loader_wrong(loader, item, option->name, wrong);
        else
            config->upgrades[config->upgrade_count++] = protocol;
    }
}
