/* SPDX-License-Identifier: Apache-2.0 */
/* hapax check --diff: what another configuration changes about the routes, and whether a reload would accept it. */
#ifndef HX_DAEMON_POLICY_DIFF_H
#define HX_DAEMON_POLICY_DIFF_H

#include "config/config.h"

/* Prints the differences. Returns HX_EXIT_OK if a reload would accept them whatever operations live, else
 * HX_EXIT_USAGE. */
int hx_diff_print(const hx_config *old, const hx_config *now, bool json);

/* Adds a line for each route whose live operations `now` would not know, naming the options that changed. Adds nothing
 * if the lines don't fit. */
void hx_diff_explain(const hx_config *old, const hx_config *now, hx_buf *lines);

#endif
