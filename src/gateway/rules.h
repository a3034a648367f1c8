/* SPDX-License-Identifier: Apache-2.0 */
/* One generation of the configured rules. Whole and immutable: a reload, or a fresh set of keys, makes a
 * new one. Every worker uses one at a time, and a request keeps the one that it began with, so that no request sees two
 * of them. */
#ifndef HX_GATEWAY_RULES_H
#define HX_GATEWAY_RULES_H

#include "config/config.h"
#include "core/token/jwt.h"

#include <stdatomic.h>

typedef struct hx_rules {
    const hx_config *config;
    const hx_policy_set *policies; /* config's */
    /* By hx_jwt_policy.source; NULL: none could be had yet. */
    const hx_jwt_keys *jwt_keys[HX_JWT_SOURCES_MAX];
    uint64_t generation; /* from 1 */
    /* Workers that use it, will, or have requests which do: set to their number before it is handed out. The last one
     * to let go calls `unused`, on its own thread. */
    _Atomic unsigned users;
    void (*unused)(struct hx_rules *rules);
} hx_rules;

/* One worker's use of one generation. */
typedef struct hx_rules_use {
    hx_rules *rules;
    uint32_t requests;
    bool is_current;
} hx_rules_use;

/* When rules come into force: what is worth a look in their file, how many of their routes promise less than the
 * contract does, and the first of them. `shared`: other gateways may be at work on the store. */
void hx_rules_say_weaker(const hx_config *config, bool shared);

#endif
