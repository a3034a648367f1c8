/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon: it opens the store, runs the workers with their loops and listeners and the background loop, and handles
 * signals. `hapax serve` runs it, and so does `hapax demo`, with an application of its own as the upstream. */
#ifndef HX_DAEMON_DAEMON_H
#define HX_DAEMON_DAEMON_H

#include "config/config.h"

typedef struct hx_daemon hx_daemon;

/* Where the configuration comes from, at the start and at a reload. */
typedef struct {
    const char *file; /* an absolute path; NULL: no file, and no reload */
    hx_config_overrides flags;
    bool accept_rescope; /* accept changed rules at the start */
    bool accept_clock;   /* accept any clock, however far it is from the store's last stamp */
} hx_daemon_source;

/* Opens the store and binds the addresses. Returns HX_EXIT_OK, or an exit code after printing on standard error what is
 * wrong; *out must be closed in either case. Takes `config`; `source` must outlive the daemon. */
int hx_daemon_open(hx_config *config, const hx_daemon_source *source, hx_daemon **out);
/* Serves until SIGTERM, SIGINT or SIGQUIT, then drains. Returns an exit code. A second signal ends it within a second;
 * operations in flight are unknown at the next start then. SIGHUP reloads the configuration. */
int hx_daemon_run(hx_daemon *daemon);
void hx_daemon_close(hx_daemon **owned);

#endif
