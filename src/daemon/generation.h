/* SPDX-License-Identifier: Apache-2.0 */
/* One generation of the rules, with the configuration and the keys of tokens that it points into. It lives until the
 * last request under it has ended (gateway/rules.h). Everything here happens on the background loop's thread. */
#ifndef HX_DAEMON_GENERATION_H
#define HX_DAEMON_GENERATION_H

#include "base/loop/loop.h"
#include "base/memory/list.h"
#include "gateway/rules.h"
#include "jobs/jwks.h"

/* A configuration that several generations may share: new keys of tokens make a generation of the same rules. */
typedef struct {
    hx_config *config;
    unsigned uses;
} hx_generation_config;

/* Takes the configuration; the caller has the first use. */
hx_generation_config *hx_generation_config_new(hx_config *config);
hx_generation_config *hx_generation_config_use(hx_generation_config *shared);
/* Frees the configuration with its last use. *owned may be NULL. */
void hx_generation_config_drop(hx_generation_config **owned);

typedef struct {
    hx_rules rules;
    hx_generation_config *config;
    hx_jwt_keys *keys[HX_JWT_SOURCES_MAX];
    hx_link link; /* link of the list of generations in use */
    hx_task gone;
    void *owner; /* the reload, for rules.unused */
} hx_generation;

/* Appends generation `number` to `list`, with the newest keys of `jwks` (NULL: none). `workers` will use it; the last
 * one that stops calls `unused`, on its own thread. */
hx_generation *hx_generation_new(hx_generation_config *config, hx_jwks *jwks, uint64_t number, unsigned workers,
                                 hx_link *list);
/* Takes it out of its list. */
void hx_generation_free(hx_generation **owned);

#endif
