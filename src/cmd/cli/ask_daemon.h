/* SPDX-License-Identifier: Apache-2.0 */
/* Sends one request to the admin socket of a running daemon and reads the whole response. */
#ifndef HX_CMD_CLI_ASK_DAEMON_H
#define HX_CMD_CLI_ASK_DAEMON_H

#include "base/fail.h"
#include "base/memory/arena.h"

typedef struct {
    const char *method;
    hx_slice target; /* as it goes on the wire */
    hx_slice body;   /* JSON; empty: none */
    const char *key; /* Idempotency-Key, visible ASCII; NULL: none */
} hx_admin_request;

typedef struct {
    unsigned status;
    hx_slice body;
} hx_admin_reply;

/* `address`: "unix:/var/lib/hapax/admin.sock". False: no response came; `error` says why and what to do. Waits without
 * a limit. */
bool hx_ask_daemon(hx_slice address, const hx_admin_request *request, hx_arena *arena, hx_admin_reply *reply,
                   hx_error_text error) HX_MUST_USE;

/* The same, with a message on standard error unless the response has a status of 2xx. Returns -1 to go on, or the exit
 * code. */
int hx_ask_daemon_well(const char *command, hx_slice address, const hx_admin_request *request, hx_arena *arena,
                       hx_admin_reply *reply) HX_MUST_USE;

/* Prints why the daemon has refused a request; returns the exit code. */
int hx_ask_daemon_refused(const char *command, const hx_admin_reply *reply, hx_arena *arena);

/* The flags that say where the daemon is; NULL for those that were not given. */
typedef struct {
    const char *admin;  /* "unix:PATH" */
    const char *config; /* its file */
    const char *store;  /* "journal:DIR" */
} hx_admin_whereabouts;

/* The store that they name: --store, else the configuration's, else the one in the state directory. Returns -1 to go
 * on, or the exit code after a message on standard error. */
int hx_find_store(const char *command, const hx_admin_whereabouts *given, hx_arena *arena, hx_slice *store) HX_MUST_USE;

/* Finds its socket: the one that --admin names, else the one that the configuration names, else the store's. Returns -1
 * to go on, or the exit code after a message on standard error. */
int hx_find_daemon(const char *command, const hx_admin_whereabouts *given, hx_arena *arena,
                   hx_slice *address) HX_MUST_USE;

/* The store that the configuration `file` names, for a client: one that it can open itself, else the admin socket of
 * its daemon. Returns -1 to go on, or the exit code after a message on standard error. */
int hx_find_store_or_daemon(const char *command, const char *file, hx_arena *arena, hx_slice *url) HX_MUST_USE;

#endif
