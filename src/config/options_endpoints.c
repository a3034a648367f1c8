/* SPDX-License-Identifier: Apache-2.0 */
/* `events.endpoints`: endpoints as the API takes them, with a name, and with their secrets in files or variables. Their
 * members are checked by what checks the API's. */
#include "config/loader.h"
#include "core/json/json.h"
#include "core/json/json_writer.h"

#include <string.h>

#define JSON_BYTES_MAX (64u << 20) /* more than a file can have */

static bool is_ours(hx_slice name)
{
    return hx_slice_eq(name, HX_LIT("name")) || hx_slice_eq(name, HX_LIT("secret_file")) ||
           hx_slice_eq(name, HX_LIT("secret_env"));
}

static hx_json_kind kind_of(hx_slice name)
{
    for (size_t i = 0; i < hx_endpoint_shape.count; i++)
        if (hx_slice_eq(name, hx_slice_of(hx_endpoint_shape.fields[i].name))) return hx_endpoint_shape.fields[i].kind;
    return HX_JSON_TEXT;
}

/* A scalar as the member's kind wants it: what reads as JSON, such as 5 or true, as it is, any other as a text. */
static void put_scalar(hx_arena *arena, hx_buf *out, const char *name, hx_json_kind kind, const hx_yaml *node)
{
    hx_buf canonical;
    hx_buf_init(&canonical, arena, HX_JSON_CANONICAL_BYTES(node->text.len));
    bool is_text = kind == HX_JSON_TEXT || kind == HX_JSON_TEXTS || kind == HX_JSON_SPAN;
    if (!is_text && hx_json_canonical(node->text, arena, &canonical))
        hx_json_put_raw(out, name, hx_buf_slice(&canonical));
    else
        hx_json_put_text(out, name, node->text);
}

static void put_member(hx_arena *arena, hx_buf *out, const hx_yaml *node)
{
    const char *name = hx_arena_terminated(arena, node->key->text);
    hx_json_kind kind = kind_of(node->key->text);
    if (node->kind == HX_YAML_TEXT && kind != HX_JSON_TEXTS) {
        put_scalar(arena, out, name, kind, node);
        return;
    }
    hx_json_open(out, name, node->kind == HX_YAML_MAP ? '{' : '[');
    if (node->kind == HX_YAML_TEXT) put_scalar(arena, out, NULL, kind, node);
    for (const hx_yaml *item = node->first; item; item = item->next)
        if (item->kind == HX_YAML_TEXT)
            put_scalar(arena, out, item->key ? hx_arena_terminated(arena, item->key->text) : NULL, kind, item);
    hx_json_close(out, node->kind == HX_YAML_MAP ? '}' : ']');
}

/* The member that a sentence begins with, in quotes, is where the mistake is. */
static void refuse(hx_loader *loader, const hx_yaml *node, const char *sentence)
{
    const hx_yaml *at = NULL;
    const char *end = sentence[0] == '"' ? strchr(sentence + 1, '"') : NULL;
    if (end) {
        hx_slice name = {sentence + 1, (size_t)(end - sentence - 1)};
        at = hx_yaml_get(node, hx_arena_terminated(&loader->config->arena, name));
    }
    if (!at) at = node;
    hx_config_problem_at(&loader->problems, at->line, at->column, "%s", sentence);
}

static void read_endpoint(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_config_endpoint *out)
{
    hx_arena *arena = &loader->config->arena;
    hx_source_said said = {.source = {.name = HX_EMPTY}};
    const hx_yaml *name = hx_yaml_get(node, "name"), *in_clear = hx_yaml_get(node, "secrets");
    hx_error_text error;
    hx_buf json;
    out->endpoint = hx_endpoint_new;
    out->name = name && name->kind == HX_YAML_TEXT ? name->text : HX_EMPTY;
    if (!hx_is_tenant(out->name) || out->name.len > HX_SOURCE_NAME_MAX)
        refuse(loader, node, "\"name\" must be given: 1 to 64 letters, digits, - and _");
    if (in_clear) refuse(loader, node, "\"secrets\" must not be in the file: use \"secret_file\" or \"secret_env\"");
    for (size_t i = 0; i < 2; i++) {
        hx_option place = *option;
        place.name = i == 0 ? "secret_file" : "secret_env";
        const hx_yaml *at = hx_yaml_get(node, place.name);
        if (at) hx_options_sources_secrets(loader, &place, at, &said);
    }
    out->place_count = said.source.place_count < HX_ENDPOINT_SECRETS_MAX ? said.source.place_count
                                                                         : HX_ENDPOINT_SECRETS_MAX;
    memcpy(out->places, said.source.places, out->place_count * sizeof out->places[0]);
    if (said.source.place_count > HX_ENDPOINT_SECRETS_MAX) refuse(loader, node, "an endpoint has up to 4 secrets");
    if (said.source.place_count == 0 && !in_clear)
        refuse(loader, node, "this endpoint has no \"secret_file\" or \"secret_env\", with which it would be signed");
    hx_buf_init(&json, arena, JSON_BYTES_MAX);
    hx_json_open(&json, NULL, '{');
    for (const hx_yaml *member = node->first; member; member = member->next)
        if (!is_ours(member->key->text) && member != in_clear && !member->is_null) put_member(arena, &json, member);
    hx_json_close(&json, '}');
    out->given = hx_buf_slice(&json);
    if (!hx_endpoint_read(out->given, arena, &out->endpoint, error)) refuse(loader, node, error);
}

static void refuse_same_name(hx_loader *loader, const hx_yaml *node, const hx_config_events *events)
{
    const hx_config_endpoint *last = &events->endpoints[events->endpoint_count - 1];
    for (const hx_config_endpoint *other = events->endpoints; other < last; other++)
        if (last->name.len > 0 && hx_slice_eq(other->name, last->name))
            refuse(loader, node, "\"name\" must be another one: the list has an endpoint with this name");
}

void hx_options_endpoints_read(hx_loader *loader, const hx_option *option, const hx_yaml *node)
{
    hx_config_events *events = &loader->config->events;
    if (!hx_loader_is(loader, option, node, HX_YAML_LIST)) return;
    if (node->count > HX_CONFIG_ENDPOINTS_MAX) {
        hx_config_problem_at(&loader->problems, node->line, node->column,
                             "\"endpoints\" has %zu endpoints; up to %u are possible", node->count,
                             HX_CONFIG_ENDPOINTS_MAX);
        return;
    }
    events->endpoints = hx_arena_zalloc(&loader->config->arena, (node->count + 1) * sizeof *events->endpoints);
    for (const hx_yaml *item = node->first; item; item = item->next) {
        if (item->refused) continue;
        if (item->kind != HX_YAML_MAP) {
            refuse(loader, item, "an endpoint is a map of options, such as {name: billing, url: https://…, …}");
            continue;
        }
        read_endpoint(loader, option, item, &events->endpoints[events->endpoint_count++]);
        refuse_same_name(loader, item, events);
    }
}
