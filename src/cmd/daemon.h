/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon put together: the store, the workers with their loops and listeners, the background loop, signals.
 * `hapax serve` runs it, and so does `hapax demo` with an application of its own behind it. */
#ifndef HX_CMD_DAEMON_H
#define HX_CMD_DAEMON_H

#include "config/config.h"

typedef struct hx_daemon hx_daemon;

/* Opens the store and binds the addresses. Returns HX_EXIT_OK, or an exit code after having said on standard error what
 * is wrong; *out is to be closed in either case. `config` must outlive the daemon. */
int hx_daemon_open(const hx_config *config, hx_daemon **out);
/* Serves until SIGTERM or SIGINT, then drains. Returns an exit code. A second signal ends it at once; what was under
 * way then is unknown at the next start. */
int hx_daemon_run(hx_daemon *daemon);
void hx_daemon_close(hx_daemon **owned);

#endif
