/* SPDX-License-Identifier: Apache-2.0 */
/* Between config.c, routes.c and outcomes.c only: a configuration that is being read. */
#ifndef HX_CONFIG_LOADER_H
#define HX_CONFIG_LOADER_H

#include "config/config.h"
#include "config/options.h"
#include "config/yaml.h"

typedef struct {
    hx_config *config;
    bool upstreams_are_named;
    bool strict;
    bool whole; /* false: the file could not be read to its end, so that nothing in it is missing for sure */
    hx_problems problems;
} hx_loader;

/* `"NAME" PREDICATE`, at the node's place. */
void hx_loader_wrong(hx_loader *loader, const hx_yaml *node, const char *name, const char *predicate);
/* Whether the value is of that kind; says what is expected if not. */
bool hx_loader_is(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_yaml_kind kind) HX_MUST_USE;
/* One line of text without control bytes. */
bool hx_loader_text(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice *text) HX_MUST_USE;
void hx_loader_bounded_text(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice *out);
/* Reads every option in a map into `owner`; `shared`: the map is `defaults`. */
void hx_loader_options(hx_loader *loader, const hx_yaml *map, hx_option_place place, bool shared, void *owner);
/* The same for a map below an option; maps below that are left to the caller. */
void hx_loader_map(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_option_place place, void *owner);
/* Whether a number, word or duration in `map` is not there, or was read: then what follows from it can be judged. */
bool hx_loader_is_well(hx_loader *loader, const hx_yaml *map, hx_option_place place, const char *name);

/* Reads UPSTREAM, MATCH, PRINCIPALS and KEY. */
void hx_route_option(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy);
void hx_outcomes_pointer(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice *pointer);
void hx_outcomes_request(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_probe *probe);
/* Reads what a route says of its answers and attempts, and judges it together with what it inherits. `shared`: the node
 * is `defaults`. */
void hx_outcomes_read(hx_loader *loader, const hx_yaml *node, bool shared, hx_policy *policy);
/* Reads `defaults` and `routes`, once everything else is known. */
void hx_routes_read(hx_loader *loader, const hx_yaml *root);

#endif
