/* SPDX-License-Identifier: Apache-2.0 */
/* Routes that nearly match a request, and how they differ from it. */
#ifndef HX_CMD_EXPLAIN_NEAR_MISSES_H
#define HX_CMD_EXPLAIN_NEAR_MISSES_H

#include "cmd/explain/collect.h"

/* Sets route, match, number, near and behind. `path` is normalised; `found` is the defaults if no route matches. */
void hx_near_misses_of(const hx_policy_set *policies, const hx_policy *found, hx_slice method, hx_slice path,
                       hx_arena *arena, hx_explanation *out);

#endif
