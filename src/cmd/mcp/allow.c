/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/mcp/allow.h"

#include "base/text.h"
#include "config/describe/policy_fields.h"

#include <string.h>

#define DESCRIPTION_MAX 4096u
#define URL_MAX 2000u

/* Bytes that URLs don't have, and those on which servers disagree. */
static bool is_clean(hx_slice url)
{
    for (size_t i = 0; i < url.len; i++) {
        char c = url.ptr[i];
        int escaped = hx_text_percent_at(url, i);
        if (c <= ' ' || c >= 0x7f || strchr("\"#<>\\^`{|}", c)) return false;
        if (escaped >= 0 && (escaped < ' ' || escaped == '\\' || escaped == '/' || escaped == 0x7f)) return false;
        if (c == '%' && escaped < 0) return false;
    }
    return true;
}

/* The path of a URL of this host; false: it is another host's, or its path is not in its plain form. */
static bool path_of(const hx_agent_host *host, hx_slice url, hx_arena *arena, hx_slice *path)
{
    if (!hx_slice_starts(url, host->url)) return false;
    hx_slice rest = hx_slice_from(url, host->url.len), normalized;
    *path = hx_slice_first(rest, hx_slice_find(rest, '?'));
    return path->len > 0 && path->ptr[0] == '/' && hx_path_normalize(*path, arena, &normalized) == HX_PATH_OK &&
           hx_slice_eq(*path, normalized);
}

const hx_agent_host *hx_mcp_allowed_host(const hx_config_mcp *mcp, hx_slice method, hx_slice url, hx_arena *arena,
                                         hx_error_text error)
{
    hx_slice path;
    if (url.len > URL_MAX || !is_clean(url)) {
        (void)hx_fail(error, "the URL has bytes or escapes that are not allowed here, or more than %u bytes", URL_MAX);
        return NULL;
    }
    for (size_t i = 0; i < mcp->host_count; i++) {
        const hx_agent_host *host = &mcp->hosts[i];
        if (!path_of(host, url, arena, &path)) continue;
        const hx_policy given = {.methods = &method, .method_count = 1, .path = path};
        for (size_t k = 0; k < host->match_count; k++)
            if (hx_policy_meets(&host->matches[k], &given)) return host;
    }
    (void)hx_fail(error, "this method, host or path is not allowed");
    return NULL;
}

bool hx_mcp_allows_header(const hx_agent_host *host, hx_slice name)
{
    if (hx_slice_eq_nocase(name, HX_LIT("accept")) || hx_slice_eq_nocase(name, HX_LIT("content-type"))) return true;
    for (size_t i = 0; i < host->header_count; i++)
        if (hx_slice_eq_nocase(name, host->headers[i])) return true;
    return false;
}

static bool is_word(hx_slice rule, hx_slice word)
{
    if (hx_slice_eq(rule, HX_LIT("*"))) return !hx_slice_starts(word, HX_LIT("-"));
    return hx_slice_eq(rule, word);
}

static bool matches(const hx_texts *rule, const hx_texts *command)
{
    bool is_open = rule->count > 0 && hx_slice_eq(rule->items[rule->count - 1], HX_LIT("**"));
    size_t fixed = rule->count - (is_open ? 1 : 0);
    if (fixed == 0 || (is_open ? command->count < fixed : command->count != fixed)) return false;
    for (size_t i = 0; i < fixed; i++)
        if (!is_word(rule->items[i], command->items[i])) return false;
    return true;
}

bool hx_mcp_allows_command(const hx_config_mcp *mcp, const hx_texts *command)
{
    for (size_t i = 0; i < mcp->command_count; i++)
        if (matches(&mcp->commands[i], command)) return true;
    return false;
}

static hx_slice described(hx_buf *out)
{
    return out->len > 0 ? hx_buf_slice(out) : HX_LIT("nothing; the operator has to add it to the configuration");
}

hx_slice hx_mcp_allowed_requests(const hx_config_mcp *mcp, hx_arena *arena)
{
    hx_buf out;
    hx_buf_init(&out, arena, DESCRIPTION_MAX);
    for (size_t i = 0; i < mcp->host_count; i++)
        for (size_t k = 0; k < mcp->hosts[i].match_count; k++)
            if (!hx_buf_printf(&out, "%s%.*s at %.*s", out.len > 0 ? "; " : "",
                               HX_FMT(hx_describe_match(&mcp->hosts[i].matches[k], arena)), HX_FMT(mcp->hosts[i].url)))
                return hx_buf_slice(&out);
    return described(&out);
}

hx_slice hx_mcp_allowed_commands(const hx_config_mcp *mcp, hx_arena *arena)
{
    hx_buf out;
    hx_buf_init(&out, arena, DESCRIPTION_MAX);
    for (size_t i = 0; i < mcp->command_count; i++)
        for (size_t k = 0; k < mcp->commands[i].count; k++)
            if (!hx_buf_printf(&out, "%s%.*s", k > 0 ? " " : i > 0 ? "; " : "", HX_FMT(mcp->commands[i].items[k])))
                return hx_buf_slice(&out);
    return described(&out);
}
