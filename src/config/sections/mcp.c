/* SPDX-License-Identifier: Apache-2.0 */
/* `mcp`: what agents may do through `hapax mcp`. */
#include "config/address.h"
#include "config/loader.h"

static void wrong_at(hx_loader *loader, const hx_yaml *node, const char *what)
{
    hx_config_problem_at(&loader->problems, node->line, node->column, "%s", what);
}

static bool fits(hx_loader *loader, const hx_option *option, const hx_yaml *node)
{
    if (!hx_loader_is(loader, option, node, HX_YAML_LIST)) return false;
    if (node->count <= option->high) return true;
    hx_config_problem_at(&loader->problems, node->line, node->column, "\"%s\" has %zu entries; up to %llu are possible",
                         option->name, node->count, (unsigned long long)option->high);
    return false;
}

void hx_options_mcp_matches(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_agent_host *host)
{
    if (!fits(loader, option, node)) return;
    host->matches = hx_arena_zalloc(&loader->config->arena, (node->count + 1) * sizeof *host->matches);
    for (const hx_yaml *item = node->first; item; item = item->next)
        hx_config_route_match(loader, option, item, &host->matches[host->match_count++]);
}

/* An origin: a URL that ends behind its host and port. */
static void check_url(hx_loader *loader, const hx_yaml *node, hx_agent_host *host)
{
    hx_arena *arena = &loader->config->arena;
    hx_slice url = host->url;
    if (hx_slice_ends(url, HX_LIT("/"))) url.len--;
    size_t scheme = hx_slice_starts(url, HX_LIT("https://")) ? 8 : 7;
    const char *wrong = hx_address_check_target(hx_arena_printf(arena, "%.*s/", HX_FMT(url)), arena);
    hx_slice authority = hx_slice_from(url, scheme);
    if (!wrong && (hx_slice_find(authority, '/') != SIZE_MAX || hx_slice_find(authority, '?') != SIZE_MAX))
        wrong = "must end behind the host and port; paths are in \"match\"";
    for (size_t i = 0; !wrong && i < url.len; i++)
        if (url.ptr[i] != hx_lower(url.ptr[i])) wrong = "must be in lower case";
    if (wrong) hx_loader_wrong(loader, node, "url", wrong);
    host->url = url;
}

static void read_host(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_agent_host *host)
{
    *host = (hx_agent_host){.url = HX_EMPTY, .credentials = HX_EMPTY};
    hx_loader_map(loader, option, node, HX_PLACE_AGENT_HOST, host);
    if (node->refused || node->kind != HX_YAML_MAP) return;
    const hx_yaml *url = hx_yaml_get(node, "url");
    if (url && host->url.len > 0) check_url(loader, url, host);
    if (!url && loader->whole) wrong_at(loader, node, "this host has no \"url\"");
    if (!hx_yaml_get(node, "match") && loader->whole)
        wrong_at(loader, node, "this host has no \"match\": nothing could be sent to it");
    host->credentials = hx_loader_path(loader, host->credentials);
}

void hx_options_mcp_hosts(hx_loader *loader, const hx_option *option, const hx_yaml *node)
{
    hx_config_mcp *mcp = &loader->config->mcp;
    if (!fits(loader, option, node)) return;
    mcp->hosts = hx_arena_zalloc(&loader->config->arena, (node->count + 1) * sizeof *mcp->hosts);
    for (const hx_yaml *item = node->first; item; item = item->next) {
        hx_agent_host *host = &mcp->hosts[mcp->host_count++];
        read_host(loader, option, item, host);
        for (size_t i = 0; i + 1 < mcp->host_count; i++)
            if (host->url.len > 0 && hx_slice_eq(mcp->hosts[i].url, host->url))
                hx_loader_wrong(loader, hx_yaml_get(item, "url"), "url", "is that of an earlier host");
    }
}

static void read_command(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_texts *command)
{
    *command = (hx_texts){0};
    if (!hx_loader_is(loader, option, node, HX_YAML_LIST)) return;
    if (node->count == 0 || node->count > HX_AGENT_WORDS_MAX) {
        hx_config_problem_at(&loader->problems, node->line, node->column, "a command has 1 to %u words",
                             HX_AGENT_WORDS_MAX);
        return;
    }
    command->items = hx_arena_alloc(&loader->config->arena, node->count * sizeof *command->items);
    for (const hx_yaml *item = node->first; item; item = item->next) {
        hx_slice word;
        if (!hx_loader_text(loader, option, item, &word)) continue;
        if (item == node->first && (word.len == 0 || word.ptr[0] != '/'))
            hx_loader_wrong(loader, item, "commands", "must begin with the whole path of a program");
        if (hx_slice_eq(word, HX_LIT("**")) && item->next)
            hx_loader_wrong(loader, item, "commands", "can have ** as the last word only");
        command->items[command->count++] = word;
    }
}

void hx_options_mcp_commands(hx_loader *loader, const hx_option *option, const hx_yaml *node)
{
    hx_config_mcp *mcp = &loader->config->mcp;
    if (!fits(loader, option, node)) return;
    mcp->commands = hx_arena_zalloc(&loader->config->arena, (node->count + 1) * sizeof *mcp->commands);
    for (const hx_yaml *item = node->first; item; item = item->next)
        read_command(loader, option, item, &mcp->commands[mcp->command_count++]);
}

/* Commands of several processes share the store, as those of `hapax run` do. */
static void check_store(hx_loader *loader, const hx_yaml *node, hx_config_mcp *mcp)
{
    hx_arena *arena = &loader->config->arena;
    const char *wrong = hx_address_check_store(mcp->store, arena);
    if (!wrong && (hx_slice_starts(mcp->store, HX_LIT("journal:")) || hx_slice_starts(mcp->store, HX_LIT("memory"))))
        wrong = "must be sqlite:FILE or postgres://…, which several processes can use";
    if (wrong) hx_loader_wrong(loader, node, "store", wrong);
    if (hx_slice_starts(mcp->store, HX_LIT("sqlite:")))
        mcp->store = hx_arena_printf(arena, "sqlite:%.*s",
                                     HX_FMT(hx_loader_path(loader, hx_slice_from(mcp->store, strlen("sqlite:")))));
}

void hx_options_mcp_read(hx_loader *loader, const hx_option *option, const hx_yaml *node)
{
    hx_config_mcp *mcp = &loader->config->mcp;
    const hx_yaml *name = hx_yaml_get(node, "name"), *store = hx_yaml_get(node, "store");
    loader->config->mcp_given = true;
    hx_loader_map(loader, option, node, HX_PLACE_MCP, mcp);
    if (name && !hx_is_tenant(mcp->name))
        hx_loader_wrong(loader, name, "name", "must be letters, digits, \"-\" and \"_\"");
    if (store && mcp->store.len > 0) check_store(loader, store, mcp);
    mcp->intents = hx_loader_path(loader, mcp->intents);
    mcp->ca_file = hx_loader_path(loader, mcp->ca_file);
}
