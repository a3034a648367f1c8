/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of events as `hapax serve` runs it, on the background loop: with the clients that send its attempts, and
 * the inbox and the relays. It runs where the configuration has an API, sources or outboxes. */
#ifndef HX_DAEMON_EVENTS_H
#define HX_DAEMON_EVENTS_H

#include "config/config.h"
#include "events/inbox/inbox_server.h"

typedef struct hx_daemon_events hx_daemon_events;

typedef struct {
    hx_loop *loop; /* attached to the store */
    hx_store *store;
    const hx_config *config; /* lives as long as the events */
    uint32_t connections_max;
} hx_daemon_events_needs;

/* 0, or an exit code after a message on standard error. *out is NULL where there are no events. */
int hx_daemon_events_open(const hx_daemon_events_needs *needs, hx_daemon_events **out);
/* NULL: there is none. */
hx_engine *hx_daemon_events_engine(const hx_daemon_events *events);
/* NULL: there is none. */
hx_inbox_server *hx_daemon_events_inbox(const hx_daemon_events *events);
/* These begin and end what they say; `events` may be NULL. */
void hx_daemon_events_start(hx_daemon_events *events);
void hx_daemon_events_stop_inbox(hx_daemon_events *events, void (*stopped)(void *context), void *context);
void hx_daemon_events_stop(hx_daemon_events *events, void (*stopped)(void *context), void *context);
void hx_daemon_events_free(hx_daemon_events **owned);

#endif
