/* SPDX-License-Identifier: Apache-2.0 */
/* Why a request has the route it has: which others come close, and what doesn't fit in them. */
#ifndef HX_CMD_EXPLAIN_NEAR_MISSES_H
#define HX_CMD_EXPLAIN_NEAR_MISSES_H

#include "cmd/explain/collect.h"

/* Fills in route, match, number, near and behind. `path` is normalised; `found` is the defaults where no route is. */
void hx_near_misses_of(const hx_policy_set *policies, const hx_policy *found, hx_slice method, hx_slice path,
                       hx_arena *arena, hx_explanation *out);

#endif
