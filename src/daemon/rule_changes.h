/* SPDX-License-Identifier: Apache-2.0 */
/* Rules are part of the key: an operation is known by its route's oldest name, and by what the route says of
 * its match, principals, keys and fingerprints. Where that changes while operations live, their keys would run again
 * as new ones.
 * So it is looked for before new rules hold, at a start and at a reload. Everything here is pure; whoever calls asks
 * the store.
 *
 * What is not seen: an operation that ran under the defaults and whose path a route with parameters takes over. */
#ifndef HX_DAEMON_RULE_CHANGES_H
#define HX_DAEMON_RULE_CHANGES_H

#include "base/memory/buf.h"
#include "core/operation/policy.h"
#include "store/store.h"

typedef struct {
    hx_slice text; /* "POST /refunds" */
    const hx_policy *route;
} hx_changes_path;

/* The paths without parameters that the routes of a set take from the defaults. */
hx_changes_path *hx_changes_paths(const hx_policy_set *set, hx_arena *arena, size_t *count);

/* What an operator has accepted: that the operations under these rules are given up. That holds until the rules are in
 * force again, and new operations begun under them. */
typedef struct {
    hx_arena *arena;
    hx_store_rules accepted; /* before; the caller's. `live` is 0 afterwards where the next rules know them again */
    hx_store_rules wrong;    /* given back: what would have to be accepted, too */
} hx_changes_memory;

/* Whether every live operation is still known under the rules of `next`, or was given up. `live` is all that the store
 * has; `paths` those of them that ran under the defaults on a path of hx_changes_paths, by that path. Returns how many
 * things are wrong, and says each on a line of its own. */
size_t hx_changes_check(const hx_policy_set *next, const hx_store_rules *live, const hx_store_rules *paths,
                        hx_changes_memory *memory, hx_buf *problems);

/* At a reload only: routes that become one. Requests under the old rules may be on their way, so that two of one key
 * would not see each other; at a start there are none. And rules that become one in the store, because their versions
 * are the same by chance; a start can't know of those (see HX_RULE_IDENTITY). As above. */
size_t hx_changes_check_joined(const hx_policy_set *running, const hx_policy_set *next, hx_buf *problems);

/* Adds the rules of `running` under which `next` doesn't know operations any more: from here on none may be begun. */
void hx_changes_retired(const hx_policy_set *running, const hx_policy_set *next, hx_arena *arena, hx_store_rules *out);

#endif
