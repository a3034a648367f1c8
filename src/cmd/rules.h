/* SPDX-License-Identifier: Apache-2.0 */
/* What a route says of its answers and attempts, for `hapax check`. */
#ifndef HX_CMD_RULES_H
#define HX_CMD_RULES_H

#include "base/buf.h"
#include "core/policy.h"

/* A line for each that isn't as it is by default, separated by line feeds; empty when all are. Terminated. */
const char *hx_rules_text(const hx_policy *route, hx_arena *arena);
/* Members of a JSON object, each behind a comma. */
void hx_rules_json(const hx_policy *route, hx_buf *out);

#endif
