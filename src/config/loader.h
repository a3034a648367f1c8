/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration that is being read. For the files of this folder only. */
#ifndef HX_CONFIG_LOADER_H
#define HX_CONFIG_LOADER_H

#include "config/config.h"
#include "config/options.h"
#include "config/yaml.h"

/* `jwt`, as it is written. */
typedef struct {
    hx_slice key, secret, jwks, jwks_url;
    hx_jwt_rules rules;
    hx_ms refresh;
} hx_jwt_said;

/* One of `sources`, as it is written. */
typedef struct {
    hx_source source;
    uint32_t scheme; /* index in the table of schemes; behind it: none */
    hx_slice signature_header, timestamp_header, prefix, signed_text;
    bool is_base64;
} hx_source_said;

/* One of `groups`. */
typedef struct {
    hx_slice name;
    const hx_yaml *at; /* the node of its name */
    hx_policy policy;
    bool used;
} hx_group;

/* One time zone that a template has named. */
typedef struct hx_known_zone {
    hx_slice name;
    const struct hx_zone *zone; /* NULL: no zone has that name */
    struct hx_known_zone *next;
} hx_known_zone;

typedef struct {
    hx_config *config;
    bool upstreams_are_named;
    bool strict;
    bool agents_only;
    bool whole; /* false: the file can't be read to its end, so what seems missing may be in the rest */
    hx_problems problems;
    hx_problems notes; /* warnings: the configuration can be used */
    hx_group *groups;
    size_t group_count;
    hx_known_zone *zones;
    hx_slice unknown_zone; /* name of the last time zone that was not found */
} hx_loader;

/* Reports `"NAME" PREDICATE` at the place of the node. */
void hx_loader_wrong(hx_loader *loader, const hx_yaml *node, const char *name, const char *predicate);
/* Whether the value is of that kind; reports what is expected if not. */
bool hx_loader_is(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_yaml_kind kind) HX_MUST_USE;
/* Reads one line of text without control bytes. */
bool hx_loader_text(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice *text) HX_MUST_USE;
void hx_loader_bounded_text(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice *out);
/* Reads every option of a map into `owner`. `shared` is the name of a map that is not a route's, such as
 * "\"defaults\""; else NULL. */
void hx_loader_options(hx_loader *loader, const hx_yaml *map, hx_option_place place, const char *shared, void *owner);
/* The same for a map below an option; maps below that are left to the caller. */
void hx_loader_map(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_option_place place, void *owner);
/* Whether a number, word or duration in `map` is missing or valid, so that what depends on it can be checked. */
bool hx_loader_is_well(hx_loader *loader, const hx_yaml *map, hx_option_place place, const char *name);

/* Reads options of a route that are more than a number or a word: upstream, match, callers and key.
 * hx_options_answers_read reads those about responses and attempts. */
void hx_config_route_option(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy);
/* Reads `defaults`, `groups` and `routes`, after everything else. */
void hx_routes_read(hx_loader *loader, const hx_yaml *root);
/* Reports conflicts between routes; `list` is their list in the file. */
void hx_conflicts_find(hx_loader *loader, const hx_yaml *list);

void hx_options_answers_pointer(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice *pointer);
/* Returns NULL for a JSON pointer; else the end of a sentence: `, did you mean "/id"?` or empty. */
const char *hx_options_answers_not_a_pointer(hx_slice text, hx_arena *arena);
void hx_options_answers_request(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_probe *probe);
void hx_options_answers_authorize(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy);
/* Reads the options about responses and attempts, and checks them together with inherited ones. `shared`: the node is
 * `defaults` or a group. */
void hx_options_answers_read(hx_loader *loader, const hx_yaml *node, bool shared, hx_policy *policy);

void hx_options_callers_principals(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy);
void hx_options_callers_jwt(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy);
void hx_options_callers_rate(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy);
/* Returns NULL if the upstream gets that header (its name in lower case) as the client sent it; else the end of a
 * sentence that begins with the header. A header that the upstream doesn't get can't distinguish requests. */
const char *hx_options_callers_unseen(const hx_loader *loader, hx_slice name);
/* Removes sources of keys that no policy uses. */
void hx_options_callers_compact(hx_config *config);

/* `overlap` before its default is computed. */
#define HX_OVERLAP_UNSAID ((hx_ms)-1)

/* A hx_zone_finder whose `user` is the loader. */
const struct hx_zone *hx_options_zones_find(void *user, hx_slice name);
/* The end of a sentence about an unknown zone: `, did you mean "Europe/Paris"?` */
const char *hx_options_zones_hint(hx_slice name, hx_arena *arena);

/* Adds an address to listen on to `list`, which has space for HX_LISTEN_MAX. NULL, or a predicate. */
const char *hx_loader_add_listen(hx_loader *loader, hx_slice address, hx_slice *list, size_t *count) HX_MUST_USE;

void hx_options_api_hosts(hx_loader *loader, const hx_option *option, const hx_yaml *node);
/* --api, which replaces the addresses of the file. */
void hx_options_api_flag(hx_loader *loader, const char *text);
/* Checks `api` when everything has been read. `by_flag`: its addresses are those of --api. */
void hx_options_api_finish(hx_loader *loader, const hx_yaml *root, bool by_flag);

/* Reads a template into its field of `owner`. */
void hx_options_key_template(hx_loader *loader, const hx_option *option, const hx_yaml *node, void *owner);
void hx_options_key_read(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy);
/* Checks a route's key together with its other options, and computes the defaults that depend on it. */
void hx_options_key_finish(hx_loader *loader, const hx_yaml *node, hx_policy *policy);

void hx_options_fingerprint_read(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy);
void hx_options_fingerprint_names(hx_loader *loader, const hx_option *option, const hx_yaml *node, void *owner);
void hx_options_fingerprint_counted(hx_loader *loader, const hx_option *option, const hx_yaml *node,
                                    hx_fingerprint_rules *rules);
void hx_options_fingerprint_ignored(hx_loader *loader, const hx_option *option, const hx_yaml *node,
                                    hx_fingerprint_rules *rules);

void hx_options_cors_read(hx_loader *loader, const hx_option *option, const hx_yaml *node);
void hx_options_cors_origins(hx_loader *loader, const hx_option *option, const hx_yaml *node);
void hx_options_cors_protocols(hx_loader *loader, const hx_option *option, const hx_yaml *node);
void hx_options_cors_networks(hx_loader *loader, const hx_option *option, const hx_yaml *node);

/* Reads `sources`, and checks them together with `inbox` and the routes, after everything else. */
void hx_options_sources_read(hx_loader *loader, const hx_yaml *root);
void hx_options_sources_secrets(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_source_said *said);
void hx_options_sources_url(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice *url);
void hx_options_sources_streams(hx_loader *loader, const hx_option *option, const hx_yaml *node);
void hx_options_sources_events(hx_loader *loader, const hx_option *option, const hx_yaml *node);
/* Reads `events.endpoints`. */
void hx_options_endpoints_read(hx_loader *loader, const hx_option *option, const hx_yaml *node);

/* Reads `outbox`, when the store is known. */
void hx_options_outbox_read(hx_loader *loader, const hx_yaml *root);

/* Reads `mcp`, and what is in it. */
void hx_options_mcp_read(hx_loader *loader, const hx_option *option, const hx_yaml *node);
void hx_options_mcp_hosts(hx_loader *loader, const hx_option *option, const hx_yaml *node);
void hx_options_mcp_matches(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_agent_host *host);
void hx_options_mcp_commands(hx_loader *loader, const hx_option *option, const hx_yaml *node);

/* Reads methods and a path into the policy. */
void hx_config_route_match(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy);

/* The path of a file that the configuration names; relative paths start at the directory of the configuration file. */
hx_slice hx_loader_path(const hx_loader *loader, hx_slice path);

#endif
