/* SPDX-License-Identifier: Apache-2.0 */
/* What a reload can't change, because it is bound, opened or started once: the options at the top of the file without
 * the RELOAD flag. */
#ifndef HX_DAEMON_RESTART_ONLY_H
#define HX_DAEMON_RESTART_ONLY_H

#include "config/config.h"

/* Returns how many of them differ, with a line for each in `problems`. */
size_t hx_restart_only_differ(const hx_config *running, const hx_config *next, hx_buf *problems);

#endif
