/* SPDX-License-Identifier: Apache-2.0 */
/* hapax check --diff: what another configuration changes about the routes, and what a reload would make of it. */
#ifndef HX_DAEMON_POLICY_DIFF_H
#define HX_DAEMON_POLICY_DIFF_H

#include "config/config.h"

/* Prints it. Returns HX_EXIT_OK when a reload would take it whatever operations live, else HX_EXIT_USAGE. */
int hx_diff_print(const hx_config *old, const hx_config *now, bool json);

/* Adds a line for each route that `now` has other rules for its live operations than `old`, naming the ones that
 * changed. Nothing where there is no room left. */
void hx_diff_explain(const hx_config *old, const hx_config *now, hx_buf *lines);

#endif
