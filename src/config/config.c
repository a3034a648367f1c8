/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a configuration of a tree. Every option is read on its own, so that one mistake hides no other; what depends on
 * several options (a lifetime and its lease, a route and those before it) is checked when all of them have been read.
 * routes.c reads routes; the options_*.c files read options that are more than a number or a word. */
#include "config/config.h"

#include "base/check.h"
#include "config/address.h"
#include "config/loader.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORKERS_BY_DEFAULT_MAX 4u
#define NOTES_BYTES_MAX (128u * 1024u)

static const char *kind_name(const hx_yaml *node)
{
    return node->kind == HX_YAML_MAP ? "a map" : node->kind == HX_YAML_LIST ? "a list" : "text";
}

void hx_loader_wrong(hx_loader *loader, const hx_yaml *node, const char *name, const char *predicate)
{
    hx_config_problem_at(&loader->problems, node->line, node->column, "\"%s\" %s", name, predicate);
}

bool hx_loader_is(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_yaml_kind kind)
{
    if (node->refused) return false;
    if (node->kind == HX_YAML_TEXT && node->is_null) {
        const hx_yaml *at = node->key ? node->key : node;
        hx_config_problem_at(&loader->problems, at->line, at->column, "\"%s\" has no value; it %s", option->name,
                             hx_option_expects(option, &loader->config->arena));
        return false;
    }
    if (node->kind == kind) return true;
    bool braces = kind == HX_YAML_TEXT && node->kind == HX_YAML_MAP;
    hx_config_problem_at(&loader->problems, node->line, node->column, "\"%s\" %s, not %s%s", option->name,
                         hx_option_expects(option, &loader->config->arena), kind_name(node),
                         braces ? "; a value that starts with \"{\" needs quotes" : "");
    return false;
}

bool hx_loader_text(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice *text)
{
    if (!hx_loader_is(loader, option, node, HX_YAML_TEXT)) return false;
    hx_slice value = node->text;
    while (value.len > 0 && value.ptr[value.len - 1] == '\n') value.len--; /* at the end of a YAML block */
    for (size_t i = 0; i < value.len; i++)
        if ((unsigned char)value.ptr[i] < 0x20 || value.ptr[i] == 0x7f) {
            hx_loader_wrong(loader, node, option->name, "must not contain control bytes or line ends");
            return false;
        }
    *text = value;
    return true;
}

static void read_number(hx_loader *loader, const hx_option *option, const hx_yaml *node, void *owner)
{
    if (!hx_loader_is(loader, option, node, HX_YAML_TEXT)) return;
    uint64_t value = 0;
    const char *wrong = hx_option_read(option, node->text, &loader->config->arena, &value);
    if (wrong)
        hx_loader_wrong(loader, node, option->name, wrong);
    else
        hx_option_store(option, owner, value);
}

hx_slice hx_loader_path(const hx_loader *loader, hx_slice path)
{
    const char *file = loader->config->file, *slash = file ? strrchr(file, '/') : NULL;
    if (!slash || path.len == 0 || path.ptr[0] == '/') return path;
    return hx_arena_printf(&loader->config->arena, "%.*s%.*s", (int)(slash - file) + 1, file, HX_FMT(path));
}

/* Resolves stores like "journal:data", where a path follows the kind. */
static hx_slice address_path(const hx_loader *loader, hx_slice address, const char *kind)
{
    hx_slice prefix = hx_slice_of(kind);
    if (!hx_slice_starts(address, prefix)) return address;
    hx_slice path = hx_loader_path(loader, hx_slice_from(address, prefix.len));
    return hx_arena_printf(&loader->config->arena, "%s%.*s", kind, HX_FMT(path));
}

const char *hx_loader_add_listen(hx_loader *loader, hx_slice address, hx_slice *list, size_t *count)
{
    hx_arena *arena = &loader->config->arena;
    const char *wrong = hx_address_check_listen(address, arena);
    for (size_t i = 0; i < *count && !wrong; i++)
        if (hx_slice_eq(list[i], address)) wrong = "names the same address twice";
    if (!wrong && *count == HX_LISTEN_MAX)
        wrong = hx_arena_printf(arena, "must be up to %u addresses", HX_LISTEN_MAX).ptr;
    if (!wrong) list[(*count)++] = address;
    return wrong;
}

static void listen_on(hx_loader *loader, const hx_option *option, const hx_yaml *node)
{
    hx_config *config = loader->config;
    hx_slice address, *list = config->listen;
    size_t *count = &config->listen_count;
    if (option->place == HX_PLACE_API) {
        list = config->api.listen;
        count = &config->api.listen_count;
    } else if (option->place == HX_PLACE_INBOX) {
        list = config->inbox.listen;
        count = &config->inbox.listen_count;
    }
    if (!hx_loader_text(loader, option, node, &address)) return;
    const char *wrong = hx_loader_add_listen(loader, address, list, count);
    if (wrong) hx_loader_wrong(loader, node, option->name, wrong);
}

static void read_listen(hx_loader *loader, const hx_option *option, const hx_yaml *node)
{
    if (node->kind == HX_YAML_LIST && !node->first) hx_loader_wrong(loader, node, option->name, "must not be empty");
    if (node->kind != HX_YAML_LIST)
        listen_on(loader, option, node);
    else
        for (const hx_yaml *item = node->first; item; item = item->next) listen_on(loader, option, item);
}

static void add_upstream(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice name)
{
    hx_config *config = loader->config;
    hx_slice text;
    if (!hx_loader_text(loader, option, node, &text)) text = HX_EMPTY;
    hx_slice url = text;
    const char *wrong = text.len > 0 ? hx_address_check_upstream(text, &config->arena, &url) : NULL;
    if (config->upstream_count == HX_UPSTREAMS_MAX)
        wrong = hx_arena_printf(&config->arena, "must be up to %u names", HX_UPSTREAMS_MAX).ptr;
    if (wrong) hx_loader_wrong(loader, node, option->name, wrong);
    /* Keeps a wrong one too, so that routes which name it are not reported as well. */
    if (config->upstream_count < HX_UPSTREAMS_MAX)
        config->upstreams[config->upstream_count++] = (hx_config_upstream){name, url};
}

static void read_upstreams(hx_loader *loader, const hx_option *option, const hx_yaml *node)
{
    if (node->kind != HX_YAML_MAP) {
        add_upstream(loader, option, node, HX_EMPTY);
        return;
    }
    loader->upstreams_are_named = true;
    if (!node->first) hx_loader_wrong(loader, node, option->name, "must not be empty");
    for (const hx_yaml *value = node->first; value; value = value->next) {
        if (value->key->refused) continue;
        if (hx_slice_is_token(value->key->text))
            add_upstream(loader, option, value, value->key->text);
        else
            hx_config_problem_at(&loader->problems, value->key->line, value->key->column,
                                 "an upstream's name is a word of letters, digits, \"-\" and \"_\", not %s",
                                 hx_quoted(&loader->config->arena, value->key->text));
    }
}

static void read_store(hx_loader *loader, const hx_option *option, const hx_yaml *node)
{
    hx_slice store;
    if (!hx_loader_text(loader, option, node, &store)) return;
    if (hx_slice_eq(store, HX_LIT("memory"))) store = HX_LIT("memory:"); /* "memory:" would need quotes in YAML */
    const char *wrong = hx_address_check_store(store, &loader->config->arena);
    if (wrong)
        hx_loader_wrong(loader, node, option->name, wrong);
    else
        loader->config->store = address_path(loader, address_path(loader, store, "journal:"), "sqlite:");
}

static void read_admin(hx_loader *loader, const hx_option *option, const hx_yaml *node)
{
    hx_config *config = loader->config;
    hx_slice address;
    if (!hx_loader_text(loader, option, node, &address)) return;
    config->admin_off = hx_slice_eq(address, HX_LIT("off"));
    if (config->admin_off) return;
    const char *wrong = hx_address_check_admin(address, &config->arena);
    if (wrong)
        hx_loader_wrong(loader, node, option->name, wrong);
    else
        config->admin_listen = address;
}

/* Reads an option that is no map of further options. False: it is one. */
static bool read_leaf(hx_loader *loader, const hx_option *option, const hx_yaml *node, void *owner)
{
    hx_slice *text = (hx_slice *)(void *)((char *)owner + option->offset);
    switch (option->type) {
    case HX_OPTION_BOOL:
    case HX_OPTION_ENUM:
    case HX_OPTION_DURATION:
    case HX_OPTION_BYTES:
    case HX_OPTION_INTEGER: read_number(loader, option, node, owner); return true;
    case HX_OPTION_TEXT:
    case HX_OPTION_NAME: hx_loader_bounded_text(loader, option, node, text); return true;
    case HX_OPTION_POINTER: hx_options_answers_pointer(loader, option, node, text); return true;
    case HX_OPTION_REQUEST: hx_options_answers_request(loader, option, node, owner); return true;
    case HX_OPTION_SOCKET: read_admin(loader, option, node); return true;
    case HX_OPTION_TEMPLATE: hx_options_key_template(loader, option, node, owner); return true;
    case HX_OPTION_NAMES: hx_options_fingerprint_names(loader, option, node, owner); return true;
    case HX_OPTION_COUNTED: hx_options_fingerprint_counted(loader, option, node, owner); return true;
    case HX_OPTION_IGNORED: hx_options_fingerprint_ignored(loader, option, node, owner); return true;
    case HX_OPTION_ORIGINS: hx_options_cors_origins(loader, option, node); return true;
    case HX_OPTION_LISTEN: read_listen(loader, option, node); return true;
    case HX_OPTION_HOSTS: hx_options_api_hosts(loader, option, node); return true;
    case HX_OPTION_NETWORKS: hx_options_cors_networks(loader, option, node); return true;
    case HX_OPTION_STREAMS: hx_options_sources_streams(loader, option, node); return true;
    case HX_OPTION_SECRETS: hx_options_sources_secrets(loader, option, node, owner); return true;
    case HX_OPTION_URL: hx_options_sources_url(loader, option, node, text); return true;
    case HX_OPTION_ENDPOINTS: hx_options_endpoints_read(loader, option, node); return true;
    case HX_OPTION_AGENT_HOSTS: hx_options_mcp_hosts(loader, option, node); return true;
    case HX_OPTION_MATCHES: hx_options_mcp_matches(loader, option, node, owner); return true;
    case HX_OPTION_COMMANDS: hx_options_mcp_commands(loader, option, node); return true;
    default: return false;
    }
}

static void read_one(hx_loader *loader, const hx_option *option, const hx_yaml *node, void *owner)
{
    if (read_leaf(loader, option, node, owner)) return;
    switch (option->type) {
    case HX_OPTION_STORE: read_store(loader, option, node); break;
    case HX_OPTION_UPSTREAMS: read_upstreams(loader, option, node); break;
    case HX_OPTION_ADMIN: hx_loader_map(loader, option, node, HX_PLACE_ADMIN, owner); break;
    case HX_OPTION_API: hx_loader_map(loader, option, node, HX_PLACE_API, owner); break;
    case HX_OPTION_LIMITS: hx_loader_map(loader, option, node, HX_PLACE_LIMITS, &loader->config->limits); break;
    case HX_OPTION_CORS: hx_options_cors_read(loader, option, node); break;
    case HX_OPTION_PROTOCOLS: hx_options_cors_protocols(loader, option, node); break;
    case HX_OPTION_INBOX: hx_loader_map(loader, option, node, HX_PLACE_INBOX, owner); break;
    case HX_OPTION_EVENTS: hx_options_sources_events(loader, option, node); break;
    case HX_OPTION_MCP: hx_options_mcp_read(loader, option, node); break;
    case HX_OPTION_UPSTREAM:
    case HX_OPTION_MATCH:
    case HX_OPTION_PRINCIPALS:
    case HX_OPTION_JWT:
    case HX_OPTION_ASK:
    case HX_OPTION_FINGERPRINT:
    case HX_OPTION_RATE:
    case HX_OPTION_KEY: hx_config_route_option(loader, option, node, owner); break;
    case HX_OPTION_GROUP:    /* read later, after what they depend on: hx_routes_read, hx_options_answers_read, */
    case HX_OPTION_SOURCES:  /* hx_options_sources_read */
    case HX_OPTION_OUTBOXES: /* hx_options_outbox_read */
    case HX_OPTION_OUTCOMES:
    case HX_OPTION_STATUSES:
    case HX_OPTION_RETRY:
    case HX_OPTION_PROBE:
    case HX_OPTION_FOUND:
    case HX_OPTION_ABSENT:
    case HX_OPTION_ANSWER:
    case HX_OPTION_DUPLICATE:
    case HX_OPTION_DEFAULTS:
    case HX_OPTION_GROUPS:
    case HX_OPTION_ROUTES: break;
    default: hx_check_failed(__FILE__, __LINE__, "every type of option is read");
    }
}

void hx_loader_bounded_text(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice *out)
{
    hx_slice text;
    if (!hx_loader_text(loader, option, node, &text)) return;
    if (text.len >= option->low && text.len <= option->high)
        *out = text;
    else
        hx_loader_wrong(loader, node, option->name,
                        hx_arena_printf(&loader->config->arena, "must have %llu to %llu bytes, not %zu",
                                        (unsigned long long)option->low, (unsigned long long)option->high, text.len)
                            .ptr);
}

/* Returns the row of an option; NULL, after reporting it, if there is none of that name here. */
static const hx_option *known(hx_loader *loader, const hx_yaml *key, hx_option_place place)
{
    if (key->refused) return NULL;
    const hx_option *option = hx_option_find(place, key->text);
    hx_arena *arena = &loader->config->arena;
    if (!option)
        hx_config_problem_at(&loader->problems, key->line, key->column, "unknown option %s%s",
                             hx_quoted(arena, key->text), hx_option_hint(place, key->text, arena));
    return option;
}

void hx_loader_options(hx_loader *loader, const hx_yaml *map, hx_option_place place, const char *shared, void *owner)
{
    for (const hx_yaml *value = map->first; value; value = value->next) {
        const hx_option *option = known(loader, value->key, place);
        if (!option) continue;
        if (shared && (option->flags & HX_OPTION_ALONE))
            hx_config_problem_at(&loader->problems, value->key->line, value->key->column,
                                 "\"%s\" belongs to one route, not to %s", option->name, shared);
        else
            read_one(loader, option, value, owner);
    }
}

void hx_loader_map(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_option_place place, void *owner)
{
    if (!hx_loader_is(loader, option, node, HX_YAML_MAP)) return;
    for (const hx_yaml *value = node->first; value; value = value->next) {
        const hx_option *below = known(loader, value->key, place);
        if (below) (void)read_leaf(loader, below, value, owner);
    }
}

bool hx_loader_is_well(hx_loader *loader, const hx_yaml *map, hx_option_place place, const char *name)
{
    const hx_yaml *value = hx_yaml_get(map, name);
    uint64_t ignored = 0;
    return !value ||
           (value->kind == HX_YAML_TEXT && !value->is_null && !value->refused &&
            !hx_option_read(hx_option_find(place, hx_slice_of(name)), value->text, &loader->config->arena, &ignored));
}

static unsigned processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1; /* more than 1,024 processors: the operator has to set a number */
    int count = CPU_COUNT(&set);
    return count < 1 ? 1 : count < (int)WORKERS_BY_DEFAULT_MAX ? (unsigned)count : WORKERS_BY_DEFAULT_MAX;
}

static void apply_workers(hx_loader *loader, const char *text)
{
    const hx_option *option = hx_option_find(HX_PLACE_TOP, HX_LIT("workers"));
    uint64_t value = 0;
    const char *wrong = hx_option_read(option, hx_slice_of(text), &loader->config->arena, &value);
    if (wrong)
        hx_config_problem_of_flag(&loader->problems, "--workers %s", wrong);
    else
        hx_option_store(option, loader->config, value);
}

static void apply_upstream(hx_loader *loader, const char *text)
{
    hx_config *config = loader->config;
    hx_slice url;
    const char *wrong = hx_address_check_upstream(hx_arena_copy(&config->arena, hx_slice_of(text)), &config->arena,
                                                  &url);
    if (!wrong && loader->upstreams_are_named)
        wrong = hx_arena_printf(&config->arena, "can't replace the upstreams that %s names; change them there",
                                loader->problems.file)
                    .ptr;
    if (wrong) hx_config_problem_of_flag(&loader->problems, "--upstream %s", wrong);
    if (loader->upstreams_are_named) return;
    config->upstreams[0] = (hx_config_upstream){HX_EMPTY, url};
    config->upstream_count = 1;
}

static void apply_listen(hx_loader *loader, const hx_config_overrides *flags)
{
    hx_config *config = loader->config;
    config->listen_count = 0;
    for (size_t i = 0; i < flags->listen_count; i++) {
        hx_slice address = hx_arena_copy(&config->arena, hx_slice_of(flags->listen[i]));
        const char *wrong = hx_loader_add_listen(loader, address, config->listen, &config->listen_count);
        if (wrong) hx_config_problem_of_flag(&loader->problems, "--listen %s", wrong);
    }
}

static void apply_flags(hx_loader *loader, const hx_config_overrides *flags)
{
    hx_config *config = loader->config;
    if (flags->workers) apply_workers(loader, flags->workers);
    if (flags->upstream) apply_upstream(loader, flags->upstream);
    if (flags->listen_count > 0) apply_listen(loader, flags);
    if (flags->api) hx_options_api_flag(loader, flags->api);
    if (flags->require_key) config->require_key = true;
    if (flags->store) {
        config->store = hx_arena_copy(&config->arena, hx_slice_of(flags->store));
        const char *wrong = hx_address_check_store(config->store, &config->arena);
        if (wrong) hx_config_problem_of_flag(&loader->problems, "--store %s", wrong);
    }
}

/* The URL is written into JSON and headers without escaping. */
static void check_error_docs(hx_loader *loader, const hx_yaml *node)
{
    hx_slice url = loader->config->error_docs;
    bool fits = hx_slice_starts(url, HX_LIT("http://")) || hx_slice_starts(url, HX_LIT("https://"));
    for (size_t i = 0; i < url.len; i++)
        fits = fits && url.ptr[i] > ' ' && url.ptr[i] < 0x7f && !strchr("\"\\<>", url.ptr[i]);
    if (!fits)
        hx_config_problem_at(&loader->problems, node->line, node->column,
                             "\"error_docs\" must be a URL such as https://example.com/errors#");
}

/* Finds upstreams that are this gateway itself: a request would loop until no descriptor is left. */
static void refuse_itself(hx_loader *loader, const hx_yaml *root, bool by_flag)
{
    hx_config *config = loader->config;
    const hx_yaml *written = hx_yaml_get(root, "upstream");
    for (size_t i = 0; i < config->upstream_count * config->listen_count; i++) {
        const hx_config_upstream *upstream = &config->upstreams[i / config->listen_count];
        hx_slice listen = config->listen[i % config->listen_count];
        if (!hx_address_leads_to(upstream->url, listen)) continue;
        const char *wrong =
            hx_arena_printf(&config->arena,
                            "is an address on which Hapax itself listens (%.*s): one of them needs another "
                            "address",
                            HX_FMT(listen))
                .ptr;
        if (by_flag && !loader->upstreams_are_named)
            hx_config_problem_of_flag(&loader->problems, "--upstream %s", wrong);
        else if (written && written->kind == HX_YAML_MAP)
            for (const hx_yaml *node = written->first; node; node = node->next) {
                if (hx_slice_eq(node->key->text, upstream->name)) hx_loader_wrong(loader, node, "upstream", wrong);
            }
        else if (written)
            hx_loader_wrong(loader, written, "upstream", wrong);
    }
}

/* Sets defaults that need code. */
static void fill_in(hx_loader *loader, const hx_yaml *root)
{
    hx_config *config = loader->config;
    const hx_yaml *docs = hx_yaml_get(root, "error_docs");
    if (!docs)
        config->error_docs = HX_LIT("https://hapax.dev/errors/");
    else if (config->error_docs.len > 0)
        check_error_docs(loader, docs);
    config->connections_given = hx_yaml_get(hx_yaml_get(root, "limits"), "connections") != NULL;
    if (config->listen_count == 0)
        config->listen[config->listen_count++] = hx_slice_of(hx_option_find(HX_PLACE_TOP, HX_LIT("listen"))->fallback);
    for (size_t i = 0; i < config->listen_count && config->admin_listen.len > 0; i++)
        if (hx_slice_eq(config->listen[i], config->admin_listen))
            hx_loader_wrong(loader, hx_yaml_get(hx_yaml_get(root, "admin"), "listen"), "listen",
                            "names a socket that clients connect to; the one of \"admin\" must be another");
    if (config->store.len == 0 && !hx_yaml_get(root, "store")) {
        const char *store = hx_address_default_store(config->dev, &config->arena);
        if (store)
            config->store = hx_slice_of(store);
        else
            hx_config_problem_of_flag(&loader->problems,
                                      "no place for the store: set HOME, or give --store journal:DIR");
    }
    if (config->upstream_count > 0 || hx_yaml_get(root, "upstream") || !loader->whole) return;
    if (loader->agents_only && config->mcp_given) return;
    static const char missing[] = "no upstream: ";
    if (config->file)
        hx_config_problem_at(&loader->problems, 0, 0, "%swrite \"upstream: http://127.0.0.1:3000\", or give --upstream",
                             missing);
    else
        hx_config_problem_of_flag(&loader->problems, "%sgive --upstream http://127.0.0.1:3000, or --config FILE",
                                  missing);
}

static hx_config *new_config(const char *name, const hx_config_overrides *flags)
{
    hx_config *config = calloc(1, sizeof *config);
    if (!config) hx_fatal(HX_EXIT_BUG, "out of memory");
    config->file = name ? hx_arena_terminated(&config->arena, hx_slice_of(name)) : NULL;
    config->dev = flags && flags->dev;
    config->listen = hx_arena_alloc(&config->arena, HX_LISTEN_MAX * sizeof *config->listen);
    config->api.listen = hx_arena_alloc(&config->arena, HX_LISTEN_MAX * sizeof *config->api.listen);
    config->upstreams = hx_arena_alloc(&config->arena, HX_UPSTREAMS_MAX * sizeof *config->upstreams);
    config->inbox.listen = hx_arena_alloc(&config->arena, HX_LISTEN_MAX * sizeof *config->inbox.listen);
    config->store = HX_EMPTY;
    config->admin_listen = config->events.ca_file = HX_EMPTY;
    hx_option_defaults(HX_PLACE_TOP, config);
    hx_option_defaults(HX_PLACE_API, config);
    hx_option_defaults(HX_PLACE_LIMITS, &config->limits);
    hx_option_defaults(HX_PLACE_EVENTS, &config->events);
    hx_option_defaults(HX_PLACE_MCP, &config->mcp);
    config->mcp.intents = config->mcp.store = config->mcp.ca_file = HX_EMPTY;
    config->mcp.name = HX_LIT("hapax");
    config->workers = processors();
    config->log_readable = config->core_dumps = config->dev;
    config->upgrades[config->upgrade_count++] = HX_LIT("websocket");
    return config;
}

static void begin(hx_loader *loader, const char *name, const hx_config_overrides *flags)
{
    *loader = (hx_loader){.config = new_config(name, flags),
                          .strict = flags && flags->strict,
                          .agents_only = flags && flags->agents_only};
    loader->problems.arena = &loader->config->arena;
    loader->problems.file = loader->config->file;
    loader->notes.arena = &loader->config->arena;
    loader->notes.file = loader->config->file;
}

static hx_config *finish(hx_loader *loader, hx_buf *errors)
{
    if (loader->problems.count == 0) {
        hx_buf notes;
        hx_buf_init(&notes, &loader->config->arena, NOTES_BYTES_MAX);
        hx_problems_write(&loader->notes, &notes);
        loader->config->notes = hx_buf_slice(&notes);
        return loader->config;
    }
    hx_problems_write(&loader->problems, errors);
    hx_config_free(&loader->config);
    return NULL;
}

hx_config *hx_config_parse(const char *name, hx_slice text, const hx_config_overrides *flags, hx_buf *errors)
{
    hx_loader loader;
    begin(&loader, name, flags);
    hx_config *config = loader.config;
    hx_yaml *root = hx_yaml_read(text, &loader.problems, &loader.whole);
    if (root && root->kind != HX_YAML_MAP && !(root->kind == HX_YAML_TEXT && root->is_null)) {
        hx_config_problem_at(&loader.problems, root->line, root->column,
                             "a configuration is a map of options, such as \"upstream: http://127.0.0.1:3000\", not %s",
                             kind_name(root));
        return finish(&loader, errors);
    }
    if (root && root->kind == HX_YAML_MAP) hx_loader_options(&loader, root, HX_PLACE_TOP, NULL, config);
    if (flags) apply_flags(&loader, flags);
    fill_in(&loader, root);
    hx_options_api_finish(&loader, root, flags && flags->api);
    refuse_itself(&loader, root, flags && flags->upstream);
    hx_routes_read(&loader, root);
    hx_options_sources_read(&loader, root);
    hx_options_outbox_read(&loader, root);
    return finish(&loader, errors);
}

/* Reads the whole file. Returns NULL with errno set on failure, EFBIG if it is over the limit. */
static char *read_file(const char *file, size_t *len)
{
    struct stat about;
    char *text = NULL;
    int descriptor = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (descriptor < 0) return NULL;
    if (fstat(descriptor, &about) != 0) goto fail;
    if (S_ISDIR(about.st_mode)) {
        errno = EISDIR;
        goto fail;
    }
    text = malloc(HX_CONFIG_FILE_BYTES_MAX + 1);
    if (!text) goto fail;
    *len = 0;
    for (;;) {
        ssize_t got = read(descriptor, text + *len, HX_CONFIG_FILE_BYTES_MAX + 1 - *len);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) goto fail;
        if (got == 0) break;
        *len += (size_t)got;
        if (*len <= HX_CONFIG_FILE_BYTES_MAX) continue;
        errno = EFBIG;
        goto fail;
    }
    (void)close(descriptor);
    return text;
fail:;
    int error = errno;
    free(text);
    (void)close(descriptor);
    errno = error;
    return NULL;
}

hx_config *hx_config_load(const char *file, const hx_config_overrides *flags, hx_buf *errors)
{
    if (!file) return hx_config_parse(NULL, HX_EMPTY, flags, errors);
    size_t len = 0;
    char *text = read_file(file, &len);
    if (!text) {
        char reason[128];
        const char *why = errno == EFBIG ? "it is larger than 1 MiB" : strerror_r(errno, reason, sizeof reason);
        hx_loader loader;
        begin(&loader, file, flags);
        hx_config_problem_at(&loader.problems, 0, 0, "can't be read: %s", why);
        return finish(&loader, errors);
    }
    hx_config *config = hx_config_parse(file, (hx_slice){text, len}, flags, errors);
    free(text);
    return config;
}

void hx_config_free(hx_config **owned)
{
    hx_config *config = *owned;
    *owned = NULL;
    if (!config) return;
    hx_arena arena = config->arena;
    free(config);
    hx_arena_free(&arena);
}
