/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon put together: the store, the workers with their loops and listeners, the background loop, signals.
 * `hapax serve` runs it, and so does `hapax demo` with an application of its own behind it. */
#ifndef HX_DAEMON_DAEMON_H
#define HX_DAEMON_DAEMON_H

#include "config/config.h"

typedef struct hx_daemon hx_daemon;

/* Where the configuration came from, and comes from at a reload. */
typedef struct {
    const char *file; /* an absolute path; NULL: there is none, and nothing can be reloaded */
    hx_config_overrides flags;
    bool accept_rescope; /* at the start */
    bool accept_clock;   /* however far it is from what the store has seen */
} hx_daemon_source;

/* Opens the store and binds the addresses. Returns HX_EXIT_OK, or an exit code after having said on standard error what
 * is wrong; *out is to be closed in either case. `config` is the daemon's from here on; what `source` points to must
 * outlive it. */
int hx_daemon_open(hx_config *config, const hx_daemon_source *source, hx_daemon **out);
/* Serves until SIGTERM, SIGINT or SIGQUIT, then drains. Returns an exit code. A second signal ends it within a second;
 * what was under way then is unknown at the next start. SIGHUP reads the configuration again. */
int hx_daemon_run(hx_daemon *daemon);
void hx_daemon_close(hx_daemon **owned);

#endif
