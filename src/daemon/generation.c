/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/generation.h"

#include "base/check.h"

#include <stdlib.h>

hx_generation_config *hx_generation_config_new(hx_config *config)
{
    hx_generation_config *shared = malloc(sizeof *shared);
    HX_CHECK(shared != NULL);
    *shared = (hx_generation_config){.config = config, .uses = 1};
    return shared;
}

hx_generation_config *hx_generation_config_use(hx_generation_config *shared)
{
    shared->uses++;
    return shared;
}

void hx_generation_config_drop(hx_generation_config **owned)
{
    hx_generation_config *shared = *owned;
    *owned = NULL;
    if (!shared || --shared->uses > 0) return;
    hx_config_free(&shared->config);
    free(shared);
}

hx_generation *hx_generation_new(hx_generation_config *config, hx_jwks *jwks, uint64_t number, unsigned workers,
                                 hx_link *list)
{
    hx_generation *g = calloc(1, sizeof *g);
    HX_CHECK(g != NULL);
    g->config = hx_generation_config_use(config);
    g->rules.config = config->config;
    g->rules.policies = &config->config->policies;
    g->rules.generation = number;
    atomic_init(&g->rules.users, workers);
    for (size_t i = 0; jwks && i < config->config->jwt_source_count; i++)
        g->rules.jwt_keys[i] = g->keys[i] = hx_jwks_keys(jwks, i);
    hx_list_append(list, &g->link);
    return g;
}

void hx_generation_free(hx_generation **owned)
{
    hx_generation *g = *owned;
    *owned = NULL;
    hx_list_remove(&g->link);
    for (size_t i = 0; i < HX_JWT_SOURCES_MAX; i++) hx_jwt_keys_free(&g->keys[i]);
    hx_generation_config_drop(&g->config);
    free(g);
}
