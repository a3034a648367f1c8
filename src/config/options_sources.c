/* SPDX-License-Identifier: Apache-2.0 */
/* `inbox`, `sources` and `events`. */
#include "base/text.h"
#include "config/address.h"
#include "config/loader.h"

#include <string.h>

#define GUARD_BY_DEFAULT HX_HOUR
#define GUARD_UNSAID ((hx_ms)-1)
#define NUMBER_OF(array) (sizeof(array) / sizeof(array)[0])

static void add_secret(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_source *source)
{
    static const char usual[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    bool is_variable = strcmp(option->name, "secret_env") == 0;
    hx_slice name;
    if (!hx_loader_text(loader, option, node, &name)) return;
    const char *wrong = NULL;
    if (name.len == 0 || hx_slice_eq(name, HX_LIT("-"))) /* "-" would be standard input */
        wrong = "must be the name of a file or an environment variable";
    else if (is_variable && strspn(hx_arena_terminated(&loader->config->arena, name), usual) < name.len)
        wrong = "must be the name of an environment variable: capitals, digits and \"_\"";
    else if (source->place_count == HX_WEBHOOK_SECRETS_MAX)
        wrong = hx_arena_printf(&loader->config->arena, "is one too many: a source has up to %u secrets",
                                HX_WEBHOOK_SECRETS_MAX)
                    .ptr;
    if (!is_variable) name = hx_loader_path(loader, name);
    for (size_t i = 0; i < source->place_count && !wrong; i++)
        if (source->places[i].is_variable == is_variable && hx_slice_eq(source->places[i].name, name))
            wrong = "lists the same secret twice";
    if (wrong)
        hx_loader_wrong(loader, node, option->name, wrong);
    else
        source->places[source->place_count++] = (hx_webhook_secret_place){name, is_variable};
}

void hx_options_sources_secrets(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_source_said *said)
{
    if (node->kind == HX_YAML_LIST && !node->first) hx_loader_wrong(loader, node, option->name, "must not be empty");
    if (node->kind != HX_YAML_LIST)
        add_secret(loader, option, node, &said->source);
    else
        for (const hx_yaml *item = node->first; item; item = item->next)
            add_secret(loader, option, item, &said->source);
}

void hx_options_sources_url(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice *url)
{
    hx_slice text = {NULL, 0};
    hx_loader_bounded_text(loader, option, node, &text);
    if (!text.ptr) return;
    const char *wrong = hx_address_check_target(text, &loader->config->arena);
    if (wrong)
        hx_loader_wrong(loader, node, option->name, wrong);
    else
        *url = text;
}

/* A stream's name may end with the one "*" of a pattern. */
static void read_stream_rule(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_stream_rule *rule)
{
    *rule = (hx_stream_rule){.match = HX_EMPTY};
    hx_loader_map(loader, option, node, HX_PLACE_STREAM, rule);
    if (node->kind != HX_YAML_MAP) return;
    const hx_yaml *match = hx_yaml_get(node, "match");
    hx_slice name = rule->match;
    if (hx_slice_ends(name, HX_LIT("*"))) name.len--;
    if (match && rule->match.len > 0 && name.len > 0 && !hx_is_stream(name))
        hx_loader_wrong(loader, match, "match", "must be a stream's name: letters, digits, \"-\", \"_\" and \".\"");
    if (loader->whole && (!match || !hx_yaml_get(node, "retention")))
        hx_config_problem_at(&loader->problems, node->line, node->column,
                             "each of \"streams\" needs \"match\" and \"retention\"");
}

void hx_options_sources_streams(hx_loader *loader, const hx_option *option, const hx_yaml *node)
{
    hx_config *config = loader->config;
    if (!hx_loader_is(loader, option, node, HX_YAML_LIST)) return;
    if (node->count > option->high) {
        hx_config_problem_at(&loader->problems, node->line, node->column,
                             "\"streams\" has %zu rules; up to %u are possible", node->count, HX_STREAM_RULES_MAX);
        return;
    }
    config->events.streams = hx_arena_zalloc(&config->arena, (node->count + 1) * sizeof *config->events.streams);
    for (const hx_yaml *item = node->first; item; item = item->next)
        read_stream_rule(loader, option, item, &config->events.streams[config->events.stream_count++]);
}

void hx_options_sources_events(hx_loader *loader, const hx_option *option, const hx_yaml *node)
{
    hx_config_events *events = &loader->config->events;
    loader->config->events_given = true;
    hx_loader_map(loader, option, node, HX_PLACE_EVENTS, events);
    events->ca_file = hx_loader_path(loader, events->ca_file);
}

static void check_word(hx_loader *loader, const hx_yaml *node, const char *name, hx_slice text)
{
    if (text.len > 0 && !hx_is_tenant(text))
        hx_loader_wrong(loader, hx_yaml_get(node, name), name,
                        hx_arena_printf(&loader->config->arena, "must be letters, digits, \"-\" and \"_\", not %s",
                                        hx_quoted(&loader->config->arena, text))
                            .ptr);
}

static void check_header(hx_loader *loader, const hx_yaml *node, const char *name, hx_slice text)
{
    if (text.len > 0 && !hx_slice_is_token(text))
        hx_loader_wrong(loader, hx_yaml_get(node, name), name,
                        hx_arena_printf(&loader->config->arena, "must be the name of a header, not %s",
                                        hx_quoted(&loader->config->arena, text))
                            .ptr);
}

static void lacks(hx_loader *loader, const hx_yaml *node, const char *what)
{
    if (loader->whole) hx_config_problem_at(&loader->problems, node->line, node->column, "this source has no %s", what);
}

/* Completes "hmac" by what is written. */
static void complete_scheme(hx_loader *loader, const hx_yaml *node, hx_source_said *said)
{
    hx_arena *arena = &loader->config->arena;
    hx_webhook_scheme *scheme = &said->source.scheme;
    size_t problems = loader->problems.count;
    if (!hx_yaml_get(node, "signature_header"))
        lacks(loader, node, "\"signature_header\", which \"scheme: hmac\" needs");
    check_header(loader, node, "signature_header", said->signature_header);
    check_header(loader, node, "timestamp_header", said->timestamp_header);
    scheme->signature_header = hx_arena_terminated(arena, said->signature_header);
    scheme->prefix = hx_arena_terminated(arena, said->prefix);
    scheme->encoding = said->is_base64 ? HX_WEBHOOK_BASE64 : HX_WEBHOOK_HEX;
    if (said->timestamp_header.len > 0) scheme->timestamp_header = hx_arena_terminated(arena, said->timestamp_header);
    if (said->signed_text.len > 0) scheme->signed_text = hx_arena_terminated(arena, said->signed_text);
    const char *mistake = hx_webhook_scheme_mistake(scheme);
    const hx_yaml *at = hx_yaml_get(node, "signed");
    if (!at) at = hx_yaml_get(node, "timestamp_header");
    if (mistake && at && loader->problems.count == problems)
        hx_config_problem_at(&loader->problems, at->line, at->column, "\"%.*s\" can't be used. %s",
                             HX_FMT(at->key->text), mistake);
}

/* Reports each of these options if it is given. */
static void refuse_given(hx_loader *loader, const hx_yaml *node, const char *const *names, size_t count,
                         const char *why)
{
    for (size_t i = 0; i < count; i++) {
        const hx_yaml *at = hx_yaml_get(node, names[i]);
        if (at) hx_loader_wrong(loader, at->key, names[i], why);
    }
}

static void check_signature(hx_loader *loader, const hx_yaml *node, hx_source_said *said)
{
    static const char *const of_hmac[] = {"signature_header", "encoding", "prefix", "timestamp_header", "signed"};
    static const char *const of_secrets[] = {"secret_file", "secret_env"}, *const of_time[] = {"tolerance"};
    hx_webhook_scheme *scheme = &said->source.scheme;
    const hx_yaml *at = hx_yaml_get(node, "scheme");
    bool is_none = strcmp(scheme->name, "none") == 0;
    if (strcmp(scheme->name, "hmac") == 0)
        complete_scheme(loader, node, said);
    else
        refuse_given(loader, node, of_hmac, NUMBER_OF(of_hmac), "is for \"scheme: hmac\"");
    bool has_time = strstr(scheme->signed_text, "{timestamp}") != NULL;
    if (!has_time) refuse_given(loader, node, of_time, 1, "does nothing: this source's requests have no timestamp");
    if (is_none) {
        refuse_given(loader, node, of_secrets, NUMBER_OF(of_secrets), "does nothing with \"scheme: none\"");
        hx_config_problem_at(loader->strict ? &loader->problems : &loader->notes, at->line, at->column,
                             "\"scheme: none\" verifies nothing: whoever can reach the inbox may send these events");
    } else if (!hx_yaml_get(node, "secret_file") && !hx_yaml_get(node, "secret_env")) {
        lacks(loader, node, "\"secret_file\" or \"secret_env\", so that its requests can be verified");
    }
}

static void check_id(hx_loader *loader, const hx_yaml *node, const hx_source *source)
{
    static const char *const names[] = {"dedupe_key", "id_header", "id_pointer"};
    const hx_yaml *first = NULL;
    check_header(loader, node, "id_header", source->id_header);
    for (size_t i = 0; i < NUMBER_OF(names); i++) {
        const hx_yaml *at = hx_yaml_get(node, names[i]);
        if (at && first)
            hx_config_problem_at(&loader->problems, at->key->line, at->key->column,
                                 "\"%s\" can't be used beside \"%.*s\": an event has one id", names[i],
                                 HX_FMT(first->key->text));
        if (!first) first = at;
    }
    if (!first && !source->scheme.id_header && !source->scheme.id_pointer)
        lacks(loader, node, "\"dedupe_key\", \"id_header\" or \"id_pointer\": where is an event's id?");
}

/* The default of `replay_guard` needs the scheme and the place of the id. */
static void set_guard(hx_loader *loader, const hx_yaml *node, hx_source *source)
{
    const hx_yaml *at = hx_yaml_get(node, "replay_guard");
    bool is_signed = source->dedupe_key || hx_id_is_signed(source);
    if (at && source->replay_guard > 0 && is_signed)
        hx_loader_wrong(loader, at->key, "replay_guard",
                        "is for events whose id isn't signed: those of github and shopify, or with \"id_header\"");
    if (!at) source->replay_guard = !is_signed && source->place_count > 0 ? GUARD_BY_DEFAULT : 0;
}

static void read_source(hx_loader *loader, const hx_yaml *node, hx_source *source)
{
    static const hx_webhook_scheme none = {.name = "none", .prefix = "", .signed_text = "", .other_keys = ""};
    hx_source_said said = {.source = {.name = HX_EMPTY,
                                      .tenant = HX_EMPTY,
                                      .deliver = HX_EMPTY,
                                      .id_header = HX_EMPTY,
                                      .id_pointer = HX_EMPTY,
                                      .replay_guard = GUARD_UNSAID}};
    if (node->refused) return;
    if (node->kind != HX_YAML_MAP) {
        hx_config_problem_at(&loader->problems, node->line, node->column,
                             "a source is a map of options, such as {name: stripe, scheme: stripe, …}");
        return;
    }
    hx_option_defaults(HX_PLACE_SOURCE, &said);
    hx_loader_options(loader, node, HX_PLACE_SOURCE, NULL, &said);
    check_word(loader, node, "name", said.source.name);
    check_word(loader, node, "tenant", said.source.tenant);
    if (!hx_yaml_get(node, "name")) lacks(loader, node, "\"name\"");
    if (!hx_yaml_get(node, "deliver")) lacks(loader, node, "\"deliver\", the URL of the application's handler");
    if (!hx_yaml_get(node, "scheme"))
        lacks(loader, node, "\"scheme\": how does the sender sign its requests?");
    else if (hx_loader_is_well(loader, node, HX_PLACE_SOURCE, "scheme")) {
        size_t count;
        const hx_webhook_scheme *schemes = hx_webhook_schemes(&count);
        said.source.scheme = said.scheme < count ? schemes[said.scheme] : none;
        check_signature(loader, node, &said);
        check_id(loader, node, &said.source);
        set_guard(loader, node, &said.source);
    }
    *source = said.source;
}

static void refuse_same_names(hx_loader *loader, const hx_yaml *list)
{
    const hx_source *sources = loader->config->sources;
    const hx_yaml *node = list->first;
    for (size_t i = 0; node; i++, node = node->next) {
        const hx_yaml *before = list->first;
        for (size_t k = 0; k < i && sources[i].name.len > 0; k++, before = before->next) {
            if (!hx_slice_eq(sources[k].name, sources[i].name)) continue;
            const hx_yaml *at = hx_yaml_get(node, "name");
            hx_config_problem_at(&loader->problems, at->line, at->column,
                                 "source %s is given twice; it is also on line %u",
                                 hx_quoted(&loader->config->arena, sources[i].name), hx_yaml_get(before, "name")->line);
            break;
        }
    }
}

static bool is_under(hx_slice path, hx_slice folder)
{
    return hx_slice_starts(path, folder) && path.len > folder.len && path.ptr[folder.len] == '/';
}

/* The address that `origin` leads to; empty: none of the list. */
static hx_slice reached(hx_slice origin, const hx_slice *listen, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (hx_address_leads_to(origin, listen[i])) return listen[i];
    return HX_EMPTY;
}

/* An event's duplicate may call the handler for as long as the source's window; a route of ours must still know the key
 * of the first call then. */
static void check_target(hx_loader *loader, const hx_yaml *at, const hx_source *source, bool routes_are_well)
{
    const hx_config *config = loader->config;
    hx_arena *arena = &loader->config->arena;
    size_t host = hx_slice_find(source->deliver, '/') + 2;
    size_t end = host + hx_slice_find(hx_slice_from(source->deliver, host), '/');
    hx_slice origin = hx_slice_first(source->deliver, end), path = hx_slice_from(source->deliver, end);
    hx_slice inbox = reached(origin, config->inbox.listen, config->inbox.listen_count);
    if (inbox.len > 0)
        hx_config_problem_at(&loader->problems, at->line, at->column,
                             "\"deliver\" leads to the inbox itself (%.*s), not to the application", HX_FMT(inbox));
    if (reached(origin, config->listen, config->listen_count).len == 0 || !routes_are_well) return;
    path = hx_slice_first(path, hx_slice_find(path, '?'));
    if (hx_path_normalize(path, arena, &path) != HX_PATH_OK) return; /* the gateway refuses it */
    if (config->inbox.path.len > 0 && is_under(path, config->inbox.path))
        hx_config_problem_at(&loader->problems, at->line, at->column,
                             "\"deliver\" leads to the inbox itself (%.*s), not to the application",
                             HX_FMT(config->inbox.path));
    const hx_policy *route = hx_policy_find(&config->policies, HX_LIT("POST"), path);
    const char *name = route ? hx_arena_printf(arena, "of route %s", hx_quoted(arena, route->name)).ptr
                             : "under \"defaults\"";
    if (!route) route = &config->policies.defaults;
    if (route->mode != HX_MODE_PROTECT || route->lifetime >= source->window) return;
    const hx_option *option = hx_option_find(HX_PLACE_SOURCE, HX_LIT("window"));
    hx_config_problem_at(&loader->problems, at->line, at->column,
                         "\"deliver\" leads to this gateway, and \"lifetime\" %s is %s: it must be at least the "
                         "\"window\" of the source, %s",
                         name, hx_option_write(option, (uint64_t)route->lifetime, arena),
                         hx_option_write(option, (uint64_t)source->window, arena));
}

/* Segments of letters, digits and "-._~": nothing that could be written in another way. */
static bool is_plain_path(hx_slice path)
{
    hx_slice rest = hx_slice_from(path, 1), segment;
    if (path.ptr[0] != '/' || rest.len == 0) return false;
    for (size_t i = 0; i < rest.len; i++)
        if (!hx_text_is_unreserved(rest.ptr[i]) && rest.ptr[i] != '/') return false;
    while (hx_slice_next(&rest, '/', &segment))
        if (segment.len == 0 || hx_slice_eq(segment, HX_LIT(".")) || hx_slice_eq(segment, HX_LIT(".."))) return false;
    return true;
}

static void check_path(hx_loader *loader, const hx_yaml *at)
{
    const hx_config *config = loader->config;
    hx_slice folder = config->inbox.path;
    if (!is_plain_path(folder)) {
        hx_loader_wrong(loader, at, "path", "must be a path such as /inbox, without a slash at its end");
        return;
    }
    for (size_t i = 0; i < config->policies.count; i++) {
        hx_slice route = config->policies.routes[i].path;
        if (!is_under(route, folder)) continue;
        hx_config_problem_at(&loader->problems, at->line, at->column,
                             "route \"%.*s\" is under the path of the inbox, %.*s: its requests would never reach it",
                             HX_FMT(config->policies.routes[i].name), HX_FMT(folder));
    }
}

static void check_inbox(hx_loader *loader, const hx_yaml *root)
{
    hx_config *config = loader->config;
    const hx_yaml *inbox = hx_yaml_get(root, "inbox"), *at = hx_yaml_get(inbox, "listen");
    if (config->source_count == 0) {
        if (inbox && loader->whole)
            hx_config_problem_at(&loader->notes, inbox->key->line, inbox->key->column,
                                 "there are no \"sources\", so the inbox is not opened");
        return;
    }
    if (config->inbox.path.len > 0) check_path(loader, hx_yaml_get(inbox, "path"));
    if (!at && config->inbox.path.len == 0) {
        hx_slice usual = hx_slice_of(hx_option_find(HX_PLACE_INBOX, HX_LIT("listen"))->fallback);
        config->inbox.listen[config->inbox.listen_count++] = usual;
    }
    if (!at) at = hx_yaml_get(root, "sources");
    for (size_t i = 0; i < config->inbox.listen_count; i++) {
        hx_slice address = config->inbox.listen[i];
        bool is_taken = hx_slice_eq(config->admin_listen, address);
        for (size_t k = 0; k < config->listen_count; k++)
            is_taken = is_taken || (hx_slice_eq(config->listen[k], address) && !hx_slice_ends(address, HX_LIT(":0")));
        for (size_t k = 0; k < config->api.listen_count; k++)
            is_taken = is_taken ||
                       (hx_slice_eq(config->api.listen[k], address) && !hx_slice_ends(address, HX_LIT(":0")));
        if (is_taken)
            hx_config_problem_at(&loader->problems, at->line, at->column,
                                 "the inbox can't listen on %.*s: another listener has that address", HX_FMT(address));
    }
}

void hx_options_sources_read(hx_loader *loader, const hx_yaml *root)
{
    hx_config *config = loader->config;
    const hx_yaml *list = hx_yaml_get(root, "sources");
    const hx_option *option = hx_option_find(HX_PLACE_TOP, HX_LIT("sources"));
    bool is_list = list && hx_loader_is(loader, option, list, HX_YAML_LIST);
    bool routes_are_well = loader->problems.count == 0;
    if (is_list && list->count > option->high) {
        hx_config_problem_at(&loader->problems, list->line, list->column,
                             "\"sources\" has %zu sources; up to %u are possible", list->count, HX_SOURCES_MAX);
        return;
    }
    if (is_list) {
        config->sources = hx_arena_zalloc(&config->arena, (list->count + 1) * sizeof *config->sources);
        for (const hx_yaml *node = list->first; node; node = node->next)
            read_source(loader, node, &config->sources[config->source_count++]);
        refuse_same_names(loader, list);
    }
    check_inbox(loader, root);
    const hx_yaml *node = is_list ? list->first : NULL;
    for (size_t i = 0; node; i++, node = node->next)
        if (config->sources[i].deliver.len > 0)
            check_target(loader, hx_yaml_get(node, "deliver"), &config->sources[i], routes_are_well);
}
