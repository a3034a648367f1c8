/* SPDX-License-Identifier: Apache-2.0 */
/* hapax check: reads a configuration as `hapax serve` would, opens nothing, and shows what protects each route. */
#include "cmd/cli/cmd.h"

#include "base/check.h"
#include "daemon/policy_diff.h"
#include "config/describe/policy_fields.h"
#include "config/describe/source_fields.h"
#include "config/address.h"
#include "core/json/json_writer.h"
#include "core/operation/template.h"
#include "store/store.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define JSON_BYTES_MAX (32u * 1024u * 1024u) /* of one piece; 1,000 routes may each inherit long lists */
#define ERRORS_BYTES_MAX (256u * 1024u)

typedef struct {
    hx_cmd_config config;
    const char *old; /* --diff */
    bool json;
} arguments;

static void take(void *user, const char *flag, const char *value)
{
    arguments *given = user;
    if (strcmp(flag, "json") == 0)
        given->json = true;
    else if (strcmp(flag, "diff") == 0)
        given->old = value;
    else if (strcmp(flag, "strict") == 0)
        given->config.overrides.strict = true;
    else {
        bool known = hx_cmd_config_take(&given->config, flag, value);
        HX_CHECK(known);
    }
}

/* "required", "optional", or both by method. */
static const char *key_rule(const hx_policy *route, hx_arena *arena)
{
    if (route->key.from)
        return hx_arena_printf(arena, "key made of %.*s%s", HX_FMT(route->key.from->text),
                               route->key.prefer_header ? ", where none is sent" : "")
            .ptr;
    if (!route->require) return "key optional";
    if (route->if_match_suffices) return "key or If-Match required";
    if (route->method_count == 1 && hx_policy_takes(route, HX_LIT("PUT")))
        return route->require_on_put ? "key required" : "key optional on PUT";
    if (hx_policy_takes(route, HX_LIT("PUT")) && !route->require_on_put) return "key required, but optional on PUT";
    return "key required";
}

static const char *protection(const hx_policy *route, hx_arena *arena)
{
    static const char *const duplicates[] = {
        [HX_DUPLICATE_REPLAY] = "response replayed",
        [HX_DUPLICATE_REJECT] = "duplicates rejected",
        [HX_DUPLICATE_NOOP] = "duplicates answered with {}",
    };
    if (hx_policy_is_exposed(route)) {
        const char *what = route->mode == HX_MODE_SHADOW ? "nothing (shadow mode)" : "nothing";
        return route->because.len > 0 ? hx_arena_printf(arena, "%s: %.*s", what, HX_FMT(route->because)).ptr
                                      : hx_arena_printf(arena, "%s, without a reason", what).ptr;
    }
    if (hx_policy_is_safe(route) || route->mode != HX_MODE_PROTECT) return "not needed: its methods are safe";
    const char *kept = hx_describe_duration(route->lifetime, arena),
               *barred = hx_describe_duration(route->tombstone, arena);
    bool is_open = !route->require && hx_policy_is_optional(route);
    return hx_arena_printf(arena, "%s; %s for %s%s%s%s", key_rule(route, arena), duplicates[route->on_duplicate], kept,
                           route->tombstone > 0 ? ", then refused for " : "", route->tombstone > 0 ? barred : "",
                           is_open ? "; without a key: not protected" : "")
        .ptr;
}

static size_t columns(const char *text)
{
    size_t count = 0;
    for (; *text; text++) count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

typedef struct {
    const char *name, *match, *protection;
    bool exposed;
    const char *rules; /* lines below it */
} row;

static void print_cell(const char *text, size_t width)
{
    size_t taken = columns(text);
    (void)printf("%s%*s", text, (int)(width > taken ? width - taken : 0) + 2, "");
}

static void print_rows(const row *rows, size_t count)
{
    bool colours = hx_cmd_colours(stdout);
    size_t name_width = 0, match_width = 0;
    for (size_t i = 0; i < count; i++) {
        if (columns(rows[i].name) > name_width) name_width = columns(rows[i].name);
        if (columns(rows[i].match) > match_width) match_width = columns(rows[i].match);
    }
    for (size_t i = 0; i < count; i++) {
        bool title = i == 0;
        const char *colour = !colours ? "" : title ? "\033[1m" : rows[i].exposed ? "\033[33m" : "\033[32m";
        (void)printf("  %s", colours && title ? colour : "");
        print_cell(rows[i].name, name_width);
        print_cell(rows[i].match, match_width);
        (void)printf("%s%s%s\n", colour, rows[i].protection, colours ? "\033[0m" : "");
        hx_slice rules = hx_slice_of(rows[i].rules), line;
        while (rules.len > 0 && hx_slice_next(&rules, '\n', &line))
            (void)printf("  %*s%.*s\n", (int)(name_width + match_width + 4), "", HX_FMT(line));
    }
}

static bool passes_anything(const hx_policy *route)
{
    return hx_policy_is_exposed(route) || hx_policy_is_optional(route);
}

/* The row for requests that match no route. */
static row rest_of(const hx_config *config, hx_arena *arena)
{
    const hx_policy_set *set = &config->policies;
    bool exposed = hx_policy_is_exposed(&set->defaults);
    return (row){set->count > 0 ? "(any other)" : "(any)", "unsafe methods", protection(&set->defaults, arena),
                 exposed || !set->require_key, hx_describe_text(config, &set->defaults, arena)};
}

static void print_table(const hx_config *config, hx_arena *arena)
{
    const hx_policy_set *set = &config->policies;
    row *rows = hx_arena_alloc(arena, (set->count + 2) * sizeof *rows);
    size_t count = 0;
    rows[count++] = (row){"route", "match", "what protects it", false, ""};
    for (size_t i = 0; i < set->count; i++) {
        const hx_policy *route = &set->routes[i];
        rows[count++] = (row){hx_arena_terminated(arena, route->name), hx_describe_match(route, arena).ptr,
                              protection(route, arena), passes_anything(route), hx_describe_text(config, route, arena)};
    }
    rows[count++] = rest_of(config, arena);
    print_rows(rows, count);
}

static void print_exposed(const hx_config *config)
{
    const hx_policy_set *set = &config->policies;
    size_t count = hx_policy_is_exposed(&set->defaults) ? 1 : 0;
    for (size_t i = 0; i < set->count; i++) count += passes_anything(&set->routes[i]);
    (void)printf("\n%zu of these let unsafe methods pass unprotected%s\n", count, count > 0 ? ":" : ".");
    for (size_t i = 0; i < set->count; i++) {
        const hx_policy *route = &set->routes[i];
        if (!passes_anything(route)) continue;
        const char *how = route->mode == HX_MODE_SHADOW ? " (shadow mode)"
                          : route->mode == HX_MODE_PASS ? ""
                          : route->require              ? " (without a key, where none is required)"
                                                        : " (without a key)";
        (void)printf("  %.*s:%s%.*s%s\n", HX_FMT(route->name), route->because.len > 0 ? " " : "",
                     HX_FMT(route->because), how);
    }
    if (hx_policy_is_exposed(&set->defaults))
        (void)printf("  what matches no route: %.*s\n", HX_FMT(set->defaults.because));
    if (!set->require_key)
        (void)printf("Requests without a key that match no route also pass (require_key: true refuses them).\n");
}

static const char *network_text(const hx_network *network, hx_arena *arena)
{
    char *text = hx_arena_alloc(arena, HX_NETWORK_TEXT_BYTES);
    hx_network_text(network, text);
    return text;
}

static void print_edges(const hx_config *config, hx_arena *arena)
{
    for (size_t i = 0; i < config->cors.origin_count; i++)
        (void)printf("  cors      %.*s%s\n", HX_FMT(config->cors.origins[i]),
                     config->cors.credentials ? " with credentials" : "");
    for (size_t i = 0; i < config->trusted_proxy_count; i++)
        (void)printf("  trusted   %s\n", network_text(&config->trusted_proxies[i], arena));
    bool is_usual = config->upgrade_count == 1 && hx_slice_eq(config->upgrades[0], HX_LIT("websocket"));
    if (config->upgrade_count == 0) (void)printf("  upgrade   none\n");
    for (size_t i = 0; i < config->upgrade_count && !is_usual; i++)
        (void)printf("  upgrade   %.*s\n", HX_FMT(config->upgrades[i]));
    if (!config->upstream_keepalive)
        (void)printf("  keepalive off: a connection to the application for each request\n");
    if (config->publish_policy) (void)printf("  publishes /.well-known/idempotency\n");
}

static void print_sources(const hx_config *config, hx_arena *arena)
{
    row *rows = hx_arena_alloc(arena, (config->source_count + 1) * sizeof *rows);
    hx_slice path = config->inbox.listen_count > 0 ? HX_LIT("/inbox") : config->inbox.path;
    rows[0] = (row){"source", "path", "what is verified", false, ""};
    for (size_t i = 0; i < config->source_count; i++) {
        const hx_source *source = &config->sources[i];
        rows[i + 1] = (row){hx_arena_terminated(arena, source->name),
                            hx_arena_printf(arena, "POST %.*s/%.*s", HX_FMT(path), HX_FMT(source->name)).ptr,
                            hx_describe_verified(source, arena), source->place_count == 0,
                            hx_describe_source(source, arena)};
    }
    (void)printf("\n");
    print_rows(rows, config->source_count + 1);
}

static void print_events(const hx_config *config, hx_arena *arena)
{
    hx_slice lines = hx_slice_of(hx_describe_events(&config->events, arena)), line;
    for (const char *title = "\n  events"; hx_slice_next(&lines, '\n', &line); title = "        ")
        (void)printf("%s  %.*s\n", title, HX_FMT(line));
    for (size_t i = 0; i < config->events.allow_count; i++)
        (void)printf("          may go to %s\n", network_text(&config->events.allow[i], arena));
    for (size_t i = 0; i < config->events.endpoint_count; i++) {
        const hx_config_endpoint *given = &config->events.endpoints[i];
        (void)printf("          endpoint cfg_%.*s gets them at %.*s\n", HX_FMT(given->name),
                     HX_FMT(given->endpoint.url));
    }
}

/* Adds a note if the file can't be read on this machine. */
static void note_file(hx_slice *notes, const char *kind, hx_slice path, hx_arena *arena)
{
    if (access(hx_arena_terminated(arena, path), R_OK) == 0) return;
    *notes = hx_arena_printf(arena, "%.*sthe %s %.*s can't be read here (%s): the daemon doesn't start without it\n",
                             HX_FMT(*notes), kind, HX_FMT(path), strerror(errno));
}

/* The notes of the configuration, and one for each file of keys that doesn't exist on this machine. */
static hx_slice notes_of(const hx_config *config, hx_arena *arena)
{
    hx_slice notes = config->notes;
    for (size_t i = 0; i < config->jwt_source_count; i++)
        if (config->jwt_sources[i].kind != HX_JWT_JWKS_URL)
            note_file(&notes, "key file", config->jwt_sources[i].where, arena);
    for (size_t i = 0; i < config->source_count; i++)
        for (size_t k = 0; k < config->sources[i].place_count; k++)
            if (!config->sources[i].places[k].is_variable)
                note_file(&notes, "secret file", config->sources[i].places[k].name, arena);
    for (size_t i = 0; i < config->events.endpoint_count; i++)
        for (size_t k = 0; k < config->events.endpoints[i].place_count; k++)
            if (!config->events.endpoints[i].places[k].is_variable)
                note_file(&notes, "secret file", config->events.endpoints[i].places[k].name, arena);
    if (config->events.ca_file.len > 0) note_file(&notes, "file of certificates", config->events.ca_file, arena);
    return notes;
}

static void print_agents(const hx_config_mcp *mcp, hx_arena *arena)
{
    (void)printf("\nAgents of \"%.*s\" (hapax mcp) may use:\n", HX_FMT(mcp->name));
    for (size_t i = 0; i < mcp->host_count; i++)
        for (size_t k = 0; k < mcp->hosts[i].match_count; k++)
            (void)printf("  %.*s  at %.*s%s\n", HX_FMT(hx_describe_match(&mcp->hosts[i].matches[k], arena)),
                         HX_FMT(mcp->hosts[i].url), mcp->hosts[i].credentials.len > 0 ? ", with credentials" : "");
    for (size_t i = 0; i < mcp->command_count; i++) {
        (void)printf(" ");
        for (size_t k = 0; k < mcp->commands[i].count; k++) (void)printf(" %.*s", HX_FMT(mcp->commands[i].items[k]));
        (void)printf("\n");
    }
    for (size_t i = 0; i < mcp->allow_count; i++)
        (void)printf("  addresses in %s\n", network_text(&mcp->allow[i], arena));
    if (mcp->host_count + mcp->command_count == 0) (void)printf("  nothing\n");
}

static void print_gateway(const hx_config *config, hx_arena *arena)
{
    (void)printf("\n");
    for (size_t i = 0; i < config->listen_count; i++) (void)printf("  listen    %.*s\n", HX_FMT(config->listen[i]));
    for (size_t i = 0; i < config->upstream_count; i++) {
        const hx_config_upstream *upstream = &config->upstreams[i];
        (void)printf("  upstream  %.*s%s%.*s\n", HX_FMT(upstream->name), upstream->name.len > 0 ? " = " : "",
                     HX_FMT(upstream->url));
    }
    (void)printf("  store     %.*s\n  workers   %u\n", HX_FMT(hx_address_shown(config->store, arena)), config->workers);
    if (config->admin_off || config->admin_listen.len > 0)
        (void)printf("  admin     %.*s\n", HX_FMT(config->admin_off ? HX_LIT("off") : config->admin_listen));
    for (size_t i = 0; i < config->api.listen_count; i++)
        (void)printf("  api       %.*s\n", HX_FMT(config->api.listen[i]));
    for (size_t i = 0; i < config->api.host_count; i++)
        (void)printf("  api host  %.*s\n", HX_FMT(config->api.hosts[i]));
    for (size_t i = 0; i < config->inbox.listen_count && config->source_count > 0; i++)
        (void)printf("  inbox     %.*s\n", HX_FMT(config->inbox.listen[i]));
    if (config->inbox.path.len > 0 && config->source_count > 0)
        (void)printf("  inbox     %.*s, on the listeners above\n", HX_FMT(config->inbox.path));
    for (size_t i = 0; i < config->outbox_count; i++)
        (void)printf("  outbox    %.*s = %.*s\n", HX_FMT(config->outboxes[i].name),
                     HX_FMT(hx_address_shown(config->outboxes[i].database, arena)));
    print_edges(config, arena);
    (void)printf("\n");
    print_table(config, arena);
    if (config->source_count > 0) print_sources(config, arena);
    if (config->source_count > 0 || config->events_given) print_events(config, arena);
}

static void print_summary(const hx_config *config, bool strict)
{
    hx_arena arena = {0};
    (void)printf("%s is valid.\n", config->file ? config->file : "This");
    if (config->upstream_count > 0) print_gateway(config, &arena);
    if (config->mcp_given) print_agents(&config->mcp, &arena);
    if (strict) print_exposed(config);
    hx_slice rest = notes_of(config, &arena), line;
    if (rest.len > 0) (void)printf("\nWarnings:\n");
    while (rest.len > 0 && hx_slice_next(&rest, '\n', &line)) (void)printf("  %.*s\n", HX_FMT(line));
    hx_arena_free(&arena);
}

static void put_route(hx_buf *out, const hx_config *config, const hx_policy *route, hx_arena *arena)
{
    hx_json_open(out, NULL, '{');
    hx_json_put_text(out, "name", route->name);
    hx_json_put_text(out, "match", hx_describe_match(route, arena));
    hx_json_put_text(out, "protection", hx_slice_of(protection(route, arena)));
    hx_json_put_bool(out, "protected", route->mode == HX_MODE_PROTECT);
    hx_describe_json(config, route, out);
    hx_json_close(out, '}');
}

static void flush(hx_buf *out)
{
    if (out->len > 0) (void)fwrite(out->data, 1, out->len, stdout); /* main checks for write errors at exit */
    out->len = 0;
}

static void put_edges(hx_buf *out, const hx_config *config, hx_arena *arena)
{
    hx_json_open(out, "cors", '{');
    hx_json_put_list(out, "origins", config->cors.origins, config->cors.origin_count);
    hx_json_put_bool(out, "credentials", config->cors.credentials);
    hx_json_close(out, '}');
    hx_json_open(out, "trusted_proxies", '[');
    for (size_t i = 0; i < config->trusted_proxy_count; i++)
        hx_json_put_text(out, NULL, hx_slice_of(network_text(&config->trusted_proxies[i], arena)));
    hx_json_close(out, ']');
    hx_json_put_list(out, "upgrade", config->upgrades, config->upgrade_count);
    hx_json_put_bool(out, "upstream_keepalive", config->upstream_keepalive);
    hx_json_put_bool(out, "publish_policy", config->publish_policy);
}

static void put_sources(hx_buf *out, const hx_config *config, hx_arena *arena)
{
    const hx_config_events *events = &config->events;
    hx_json_open(out, "inbox", '{');
    hx_json_put_list(out, "listen", config->inbox.listen, config->inbox.listen_count);
    hx_json_close(out, '}');
    hx_json_open(out, "sources", '[');
    for (size_t i = 0; i < config->source_count; i++) hx_describe_source_json(&config->sources[i], out);
    hx_json_close(out, ']');
    hx_json_open(out, "outbox", '[');
    for (size_t i = 0; i < config->outbox_count; i++) {
        hx_json_open(out, NULL, '{');
        hx_json_put_text(out, "name", config->outboxes[i].name);
        hx_json_put_text(out, "database", hx_address_shown(config->outboxes[i].database, arena));
        hx_json_close(out, '}');
    }
    hx_json_close(out, ']');
    hx_json_open(out, "events", '{');
    hx_json_put_number(out, "attempts", events->attempts);
    hx_json_put_number(out, "retention_ms", (uint64_t)events->retention);
    hx_json_put_number(out, "dead_retention_ms", (uint64_t)events->dead_retention);
    hx_json_put_number(out, "disable_after_ms", (uint64_t)events->disable_after);
    hx_json_put_number(out, "pause_max_ms", (uint64_t)events->pause_max);
    hx_json_put_number(out, "schedule_max_ms", (uint64_t)events->schedule_max);
    hx_json_put_number(out, "payload_max", events->payload_bytes_max);
    hx_json_put_number(out, "response_max", events->response_bytes_max);
    hx_json_open(out, "allow", '[');
    for (size_t i = 0; i < events->allow_count; i++)
        hx_json_put_text(out, NULL, hx_slice_of(network_text(&events->allow[i], arena)));
    hx_json_close(out, ']');
    hx_json_put_text(out, "ca_file", events->ca_file);
    hx_json_open(out, "streams", '[');
    for (size_t i = 0; i < events->stream_count; i++) {
        hx_json_open(out, NULL, '{');
        hx_json_put_text(out, "match", events->streams[i].match);
        hx_json_put_number(out, "retention_ms", (uint64_t)events->streams[i].retention);
        hx_json_close(out, '}');
    }
    hx_json_close(out, ']');
    hx_json_close(out, '}');
}

static void put_agents(hx_buf *out, const hx_config_mcp *mcp, hx_arena *arena)
{
    hx_json_open(out, "mcp", '{');
    hx_json_put_text(out, "name", mcp->name);
    hx_json_open(out, "hosts", '[');
    for (size_t i = 0; i < mcp->host_count; i++) {
        const hx_agent_host *host = &mcp->hosts[i];
        hx_json_open(out, NULL, '{');
        hx_json_put_text(out, "url", host->url);
        hx_json_open(out, "match", '[');
        for (size_t k = 0; k < host->match_count; k++)
            hx_json_put_text(out, NULL, hx_describe_match(&host->matches[k], arena));
        hx_json_close(out, ']');
        hx_json_put_list(out, "headers", host->headers, host->header_count);
        hx_json_put_text(out, "credentials", host->credentials);
        hx_json_close(out, '}');
    }
    hx_json_close(out, ']');
    hx_json_open(out, "commands", '[');
    for (size_t i = 0; i < mcp->command_count; i++)
        hx_json_put_list(out, NULL, mcp->commands[i].items, mcp->commands[i].count);
    hx_json_close(out, ']');
    hx_json_open(out, "allow", '[');
    for (size_t i = 0; i < mcp->allow_count; i++)
        hx_json_put_text(out, NULL, hx_slice_of(network_text(&mcp->allow[i], arena)));
    hx_json_close(out, ']');
    hx_json_close(out, '}');
}

static void write_json(const hx_config *config, hx_buf *out)
{
    hx_arena arena = {0};
    hx_json_open(out, NULL, '{');
    hx_json_put_bool(out, "ok", true);
    hx_json_put_list(out, "errors", NULL, 0);
    hx_json_put_lines(out, "notes", notes_of(config, &arena));
    hx_json_put_list(out, "listen", config->listen, config->listen_count);
    hx_json_open(out, "upstreams", '[');
    for (size_t i = 0; i < config->upstream_count; i++) {
        hx_json_open(out, NULL, '{');
        hx_json_put_text(out, "name", config->upstreams[i].name);
        hx_json_put_text(out, "url", config->upstreams[i].url);
        hx_json_close(out, '}');
    }
    hx_json_close(out, ']');
    put_edges(out, config, &arena);
    hx_json_put_text(out, "store", hx_address_shown(config->store, &arena));
    hx_json_put_text(out, "admin", config->admin_off ? HX_LIT("off") : config->admin_listen);
    hx_json_open(out, "api", '{');
    hx_json_put_list(out, "listen", config->api.listen, config->api.listen_count);
    hx_json_put_list(out, "hosts", config->api.hosts, config->api.host_count);
    hx_json_put_bool(out, "insecure", config->api.insecure);
    hx_json_close(out, '}');
    hx_json_put_number(out, "workers", config->workers);
    hx_json_put_bool(out, "require_key", config->require_key);
    put_sources(out, config, &arena);
    if (config->mcp_given) put_agents(out, &config->mcp, &arena);
    hx_json_open(out, "routes", '[');
    for (size_t i = 0; i < config->policies.count; i++) {
        if (i > 0) hx_buf_puts(out, ","); /* the buffer was flushed */
        put_route(out, config, &config->policies.routes[i], &arena);
        flush(out);
    }
    hx_json_close(out, ']');
    hx_json_put_name(out, "defaults");
    put_route(out, config, &config->policies.defaults, &arena);
    hx_buf_puts(out, "}\n");
    hx_arena_free(&arena);
}

static int show(const arguments *given)
{
    hx_buf errors, json;
    hx_config_overrides without = given->config.overrides; /* --strict applies to the new file only */
    without.strict = false;
    hx_buf_init(&errors, NULL, ERRORS_BYTES_MAX);
    hx_buf_init(&json, NULL, JSON_BYTES_MAX);
    hx_config *old = given->old ? hx_config_load(given->old, &without, &errors) : NULL;
    hx_config *config = hx_config_load(given->config.file, &given->config.overrides, &errors);
    uint64_t least = config ? hx_store_bytes_least(config->store) : 0;
    if (config && config->store_bytes_max > 0 && config->store_bytes_max < least) {
        bool fits = hx_buf_printf(&errors,
                                  "%s: \"store_max\" is too small for this store: it must be at least %llu MiB\n",
                                  config->file ? config->file : "flags", (unsigned long long)(least >> 20));
        HX_CHECK(fits); /* `errors` is empty so far */
        hx_config_free(&config);
    }
    bool good = config && (old || !given->old);
    int code = good ? HX_EXIT_OK : HX_EXIT_USAGE;
    if (!good) (void)fwrite(errors.data, 1, errors.len, stderr);
    if (!good && given->json) {
        hx_json_open(&json, NULL, '{');
        hx_json_put_bool(&json, "ok", false);
        hx_json_put_lines(&json, "errors", hx_buf_slice(&errors));
        hx_buf_puts(&json, "}\n");
    }
    if (good && given->old)
        code = hx_diff_print(old, config, given->json);
    else if (good && given->json)
        write_json(config, &json);
    else if (good)
        print_summary(config, given->config.overrides.strict);
    flush(&json);
    hx_config_free(&old);
    hx_config_free(&config);
    hx_buf_free(&errors);
    hx_buf_free(&json);
    return code;
}

int hx_cmd_check(int argc, char **argv)
{
    arguments given = {0};
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 1, take, &given, &operands);
    if (code >= 0) return code;
    if (operands < argc && given.config.file) return hx_cmd_misused(argv[0], "give FILE or --config, not both");
    if (operands < argc) given.config.file = argv[operands];
    if (given.old && !given.config.file)
        return hx_cmd_misused(argv[0], "--diff needs a second file: `hapax check --diff old.yaml new.yaml`");
    if (!given.config.file && !given.config.overrides.upstream)
        return hx_cmd_misused(argv[0], "check needs a file: `hapax check hapax.yaml`");
    if (given.config.too_many_listen) return hx_cmd_misused(argv[0], "--listen is given too often");
    given.config.overrides.agents_only = true;
    return show(&given);
}
