/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of this folder only: a configuration that is being read. */
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

/* One of `groups`. */
typedef struct {
    hx_slice name;
    const hx_yaml *at; /* its name, in the file */
    hx_policy policy;
    bool used;
} hx_group;

/* One time zone that a template has named. */
typedef struct hx_known_zone {
    hx_slice name;
    const struct hx_zone *zone; /* NULL: there is none of that name */
    struct hx_known_zone *next;
} hx_known_zone;

typedef struct {
    hx_config *config;
    bool upstreams_are_named;
    bool strict;
    bool whole; /* false: the file could not be read to its end, so that nothing in it is missing for sure */
    hx_problems problems;
    hx_problems notes; /* the configuration can be used nevertheless */
    hx_group *groups;
    size_t group_count;
    hx_known_zone *zones;
    hx_slice unknown_zone; /* the last one that was looked for in vain */
} hx_loader;

/* `"NAME" PREDICATE`, at the node's place. */
void hx_loader_wrong(hx_loader *loader, const hx_yaml *node, const char *name, const char *predicate);
/* Whether the value is of that kind; says what is expected if not. */
bool hx_loader_is(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_yaml_kind kind) HX_MUST_USE;
/* One line of text without control bytes. */
bool hx_loader_text(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice *text) HX_MUST_USE;
void hx_loader_bounded_text(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice *out);
/* Reads every option in a map into `owner`. `shared`: what the map is where it is no route's, such as "\"defaults\"";
 * else NULL. */
void hx_loader_options(hx_loader *loader, const hx_yaml *map, hx_option_place place, const char *shared, void *owner);
/* The same for a map below an option; maps below that are left to the caller. */
void hx_loader_map(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_option_place place, void *owner);
/* Whether a number, word or duration in `map` is not there, or was read: then what follows from it can be judged. */
bool hx_loader_is_well(hx_loader *loader, const hx_yaml *map, hx_option_place place, const char *name);

/* Reads what only a route has and is more than a leaf: its upstream, match, callers and key. What it says of its
 * answers and attempts is hx_outcomes_read's. */
void hx_config_route_option(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy);
/* Reads `defaults`, `groups` and `routes`, once everything else is known. */
void hx_routes_read(hx_loader *loader, const hx_yaml *root);
/* Judges routes against each other; `list` is their list in the file. */
void hx_conflicts_find(hx_loader *loader, const hx_yaml *list);

void hx_outcomes_pointer(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice *pointer);
/* NULL for a JSON pointer; else the end of a sentence about it: `, did you mean "/id"?` or empty. */
const char *hx_outcomes_not_a_pointer(hx_slice text, hx_arena *arena);
void hx_outcomes_request(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_probe *probe);
void hx_outcomes_authorize(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy);
/* Reads what a route says of its answers and attempts, and judges it together with what it inherits. `shared`: the node
 * is no route's. */
void hx_outcomes_read(hx_loader *loader, const hx_yaml *node, bool shared, hx_policy *policy);

void hx_callers_principals(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy);
void hx_callers_jwt(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy);
void hx_callers_rate(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy);
/* NULL where the application gets that header (its name in lower case) as the client sent it; else the end of a
 * sentence that begins with the header. What the application doesn't see tells no requests apart. */
const char *hx_callers_unseen(const hx_loader *loader, hx_slice name);
/* Forgets sources of keys that no policy uses. */
void hx_callers_compact(hx_config *config);

/* `overlap` until it is known what it follows from. */
#define HX_OVERLAP_UNSAID ((hx_ms)-1)

/* A hx_zone_finder whose `user` is the loader. */
const struct hx_zone *hx_zones_find(void *user, hx_slice name);
/* What can be done about an unknown zone, as the end of a sentence: `, did you mean "Europe/Paris"?` */
const char *hx_zones_hint(hx_slice name, hx_arena *arena);

void hx_options_key_template(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_key_rules *key);
void hx_options_key_read(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy);
/* Judges a route's key together with everything else it says, and derives what follows from it. */
void hx_options_key_finish(hx_loader *loader, const hx_yaml *node, hx_policy *policy);

void hx_lists_fingerprint(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy);
void hx_lists_names(hx_loader *loader, const hx_option *option, const hx_yaml *node, void *owner);
void hx_lists_counted(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_fingerprint_rules *rules);
void hx_lists_ignored(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_fingerprint_rules *rules);

void hx_edges_cors(hx_loader *loader, const hx_option *option, const hx_yaml *node);
void hx_edges_origins(hx_loader *loader, const hx_option *option, const hx_yaml *node);
void hx_edges_protocols(hx_loader *loader, const hx_option *option, const hx_yaml *node);
void hx_edges_networks(hx_loader *loader, const hx_option *option, const hx_yaml *node);

/* A file's name in the configuration: relative ones go by the directory of the configuration's own file. */
hx_slice hx_loader_path(const hx_loader *loader, hx_slice path);

#endif
