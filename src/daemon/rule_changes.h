/* SPDX-License-Identifier: Apache-2.0 */
/* Rules are part of the key: an operation is known by its route's oldest name, and by the route's match, principal, key
 * and fingerprint options. If those change while operations live, their keys would run again as new ones. A start and a
 * reload look for such changes before the new rules are in force. Everything here is pure; live_check.h asks the store.
 *
 * Not found: an operation under the defaults whose path is taken over by a route with parameters. */
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

/* Acceptances: rules whose operations an operator has given up. Each holds until its rules are in force again. */
typedef struct {
    hx_arena *arena;
    hx_store_rules accepted; /* set by the caller; `live` becomes 0 where the next rules know their operations again */
    hx_store_rules wrong;    /* result: rules that would have to be accepted too */
} hx_changes_memory;

/* Checks that every live operation is still known under the rules of `next`, or was given up. `live` counts all that
 * the store has; `paths` counts those among them that ran under the defaults on a path of hx_changes_paths, by that
 * path. Returns the number of problems, and adds a line for each to `problems`. */
size_t hx_changes_check(const hx_policy_set *next, const hx_store_rules *live, const hx_store_rules *paths,
                        hx_changes_memory *memory, hx_buf *problems);

/* Finds what only a reload has to refuse: routes that become one, because requests under the old rules may be in
 * flight, and two of one key would not find each other; and rules whose versions are the same by chance, which the
 * store would take for one (a start can't see that, see HX_RULE_IDENTITY). Returns and adds lines like
 * hx_changes_check. */
size_t hx_changes_check_joined(const hx_policy_set *running, const hx_policy_set *next, hx_buf *problems);

/* Adds the rules of `running` under which `next` would not know an operation, so that none may begin under them. */
void hx_changes_retired(const hx_policy_set *running, const hx_policy_set *next, hx_arena *arena, hx_store_rules *out);

#endif
