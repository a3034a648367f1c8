/* SPDX-License-Identifier: Apache-2.0 */
/* Options that a reload can't change, because they are bound, opened or started once: those at the top of the file
 * without the RELOAD flag. */
#ifndef HX_DAEMON_RESTART_ONLY_H
#define HX_DAEMON_RESTART_ONLY_H

#include "config/config.h"

/* Returns how many of them differ, and adds a line for each to `problems`. */
size_t hx_restart_only_differ(const hx_config *running, const hx_config *next, hx_buf *problems);

#endif
