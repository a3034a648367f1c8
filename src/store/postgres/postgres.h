/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the PostgreSQL store among themselves. What is not PostgreSQL's own is in store/remote.
 *
 *     postgres.c     opening, closing
 *     dial.c         connecting
 *     connection.c   the driver: a connection of libpq, in pipeline mode
 *     statements.c   the SQL of each statement, and its parameters
 *     wire.c         parameters and rows, as bytes
 *     names.c        the addresses behind a server's name
 *     migrate.c      the schema
 *     feed.c         the rows of an outbox, for the relay of events; not part of the store
 *     libpq.c        loads the library */
#ifndef HX_STORE_POSTGRES_POSTGRES_H
#define HX_STORE_POSTGRES_POSTGRES_H

#include "store/postgres/dial.h"
#include "store/postgres/wire.h"
#include "store/remote/lane.h"

/* An expression: why a commit may be lost by a crash or a failover, '' where it can't be. */
#define HX_POSTGRES_FORGETS                                                                                            \
    "CASE WHEN current_setting('fsync') = 'off' THEN 'fsync is off' "                                                  \
    "WHEN current_setting('synchronous_commit') = 'off' THEN 'synchronous_commit is off' "                             \
    "WHEN current_setting('synchronous_commit') IN ('local', 'remote_write') "                                         \
    "AND current_setting('synchronous_standby_names') <> '' "                                                          \
    "THEN 'synchronous_commit does not wait until the standby has it on its disk' ELSE '' END"

typedef struct {
    hx_remote remote;
    const hx_libpq *pq; /* the target's */
    hx_dial_target target;
    _Atomic bool may_forget; /* HX_POSTGRES_FORGETS, as last logged */
} hx_postgres;

typedef struct {
    hx_lane lane;
    hx_dial dial;
    PGconn *conn; /* NULL: not connected */
    hx_poll *poll;
    bool is_undurable; /* the server warned that a commit of this round is not on its standby */
    hx_parameters parameters;
} hx_postgres_lane;

extern const hx_driver hx_postgres_driver;
/* The SQL of each kind of statement. */
extern const char *const hx_postgres_sql[HX_STATEMENT_KINDS];

/* Fills in the parameters of a statement. */
void hx_postgres_fill(const hx_lane *lane, const hx_statement *s, hx_parameters *p);
/* Whether this program is made for a schema of this version and digest; else why not. */
bool hx_postgres_fits_schema(int64_t version, hx_slice digest, hx_error_text error) HX_MUST_USE;
/* Takes note of HX_POSTGRES_FORGETS of a server, and logs a change. */
void hx_postgres_set_durability(hx_postgres *p, hx_slice why);

#endif
