/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting to a PostgreSQL server on a loop, without blocking it.
 *
 * Several hosts: one that hangs must not keep the others from being tried, and libpq counts its time-out for each host
 * only where it may block. So after an attempt that took too long the caller begins the next one with the next host,
 * `skip`, and stays with the one that worked. */
#ifndef HX_STORE_POSTGRES_DIAL_H
#define HX_STORE_POSTGRES_DIAL_H

#include "base/memory/arena.h"
#include "store/postgres/libpq.h"
#include "store/postgres/names.h"

/* Where a server is, and how to connect. */
typedef struct {
    const hx_libpq *pq;
    const char **keywords; /* connection parameters, NULL-terminated, and their values; of several the last counts */
    const char **values;
    const char *hosts, *ports; /* from those values; NULL: no name has to be looked up */
    hx_arena arena;            /* memory of the fields above */
} hx_dial_target;

/* Loads libpq and reads a URL. `application` is the name that the server shows. False with a sentence in `error`; the
 * arena has to be freed either way. */
bool hx_dial_read(hx_dial_target *target, hx_slice url, const char *application, hx_error_text error) HX_MUST_USE;
/* Notes which hosts have to be looked up; `conn`, which may be NULL, is a connection that found further ones, in a
 * service file or the environment. */
void hx_dial_keep_hosts(hx_dial_target *target, PGconn *conn);

/* A connection that is being made. Zeroed at first. */
typedef struct {
    const hx_dial_target *target;
    hx_loop *loop;
    unsigned skip; /* hosts */
    PGconn *conn;  /* the caller's once `done` was told that it is made */
    hx_poll *poll;
    hx_offload *names; /* the lookup that precedes a connection */
    /* `error` NULL: it is made. Perhaps at once. */
    void (*done)(void *context, const char *error);
    void *context;
} hx_dial;

void hx_dial_start(hx_dial *dial);
/* Ends whatever was begun and closes the connection; `done` is not called. */
void hx_dial_stop(hx_dial *dial);
/* What an operator can do about an error of connecting; NULL: nothing special. */
const char *hx_dial_advice(const char *why);

#endif
