/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the API's listeners: `api` and --api. */
#include "config/address.h"
#include "config/loader.h"

void hx_options_api_hosts(hx_loader *loader, const hx_option *option, const hx_yaml *node)
{
    hx_config *config = loader->config;
    if (!hx_loader_is(loader, option, node, HX_YAML_LIST)) return;
    for (const hx_yaml *item = node->first; item; item = item->next) {
        hx_slice name;
        if (!hx_loader_text(loader, option, item, &name)) continue;
        const char *wrong = hx_address_check_host(name, &config->arena);
        if (!wrong && config->api.host_count == HX_API_HOSTS_MAX)
            wrong = hx_arena_printf(&config->arena, "must be up to %u names", HX_API_HOSTS_MAX).ptr;
        if (wrong)
            hx_loader_wrong(loader, item, option->name, wrong);
        else
            config->api.hosts[config->api.host_count++] = name;
    }
}

void hx_options_api_flag(hx_loader *loader, const char *text)
{
    hx_config *config = loader->config;
    config->api.listen_count = 0;
    const char *wrong = hx_loader_add_listen(loader, hx_arena_copy(&config->arena, hx_slice_of(text)),
                                             config->api.listen, &config->api.listen_count);
    if (wrong) hx_config_problem_of_flag(&loader->problems, "--api %s", wrong);
}

/* What is wrong with an address beside the rest of the configuration. */
static const char *objection(const hx_config *config, hx_slice address)
{
    for (size_t i = 0; i < config->listen_count; i++)
        if (hx_slice_eq(config->listen[i], address) && !hx_slice_ends(address, HX_LIT(":0"))) /* 0: any free port */
            return "names an address that clients of the gateway connect to; the API needs another one";
    if (hx_slice_eq(config->admin_listen, address)) return "names the socket of \"admin\"; the API needs another one";
    if (config->api.insecure || hx_address_is_local(address)) return NULL;
    return "must be a loopback address such as 127.0.0.1:8081, because tokens would cross the network unencrypted. "
           "Put a proxy with TLS in front of it, or write \"insecure: true\" under \"api\"";
}

void hx_options_api_finish(hx_loader *loader, const hx_yaml *root, bool by_flag)
{
    const hx_config *config = loader->config;
    const hx_yaml *written = by_flag ? NULL : hx_yaml_get(hx_yaml_get(root, "api"), "listen");
    for (size_t i = 0; i < config->api.listen_count; i++) {
        hx_slice address = config->api.listen[i];
        const char *wrong = objection(config, address);
        const hx_yaml *at = written && written->kind == HX_YAML_LIST ? written->first : written;
        while (at && at->next && !hx_slice_eq(at->text, address)) at = at->next;
        if (wrong && at)
            hx_loader_wrong(loader, at, "listen", wrong);
        else if (wrong)
            hx_config_problem_of_flag(&loader->problems, "--api %s", wrong);
        else if (!hx_address_is_local(address))
            hx_config_problem_at(&loader->notes, at ? at->line : UINT32_MAX, at ? at->column : 0,
                                 "the API on %.*s is not encrypted: whoever sees its traffic has the tokens",
                                 HX_FMT(address));
    }
}
