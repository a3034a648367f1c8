/* SPDX-License-Identifier: Apache-2.0 */
/* Connections to PostgreSQL of a test itself, beside the store's. */
#ifndef HX_TESTS_STORE_DIRECT_H
#define HX_TESTS_STORE_DIRECT_H

#include "store/postgres/libpq.h"

#include <stdint.h>

extern const hx_libpq *pq; /* set by the test before anything else */

PGconn *connect_directly(void);
void do_sql(PGconn *conn, const char *sql);
int64_t ask(PGconn *conn, const char *sql); /* the first number of the result; -1: it has no row */
bool is_refused(PGconn *conn, const char *sql, const char *state);

#endif
