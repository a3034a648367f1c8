/* SPDX-License-Identifier: Apache-2.0 */
#include "store/direct.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

const hx_libpq *pq;

PGconn *connect_directly(void)
{
    /* A test that has failed leaves its locks to the next. */
    static const char bounds[] = "-c statement_timeout=60s -c idle_in_transaction_session_timeout=60s";
    const char *const keywords[] = {"dbname", "options", NULL};
    const char *const values[] = {getenv("HAPAX_TEST_POSTGRES_DIRECT"), bounds, NULL}; // NOLINT(concurrency-mt-unsafe)
    PGconn *conn = pq->connectdbParams(keywords, values, 1);
    if (pq->status(conn) != CONNECTION_OK) hx_fatal(1, "%s", pq->errorMessage(conn));
    return conn;
}

void do_sql(PGconn *conn, const char *sql)
{
    PGresult *result = pq->exec(conn, sql);
    ExecStatusType status = pq->resultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) hx_fatal(1, "%s: %s", sql, pq->errorMessage(conn));
    pq->clear(result);
}

int64_t ask(PGconn *conn, const char *sql)
{
    PGresult *result = pq->exec(conn, sql);
    if (pq->resultStatus(result) != PGRES_TUPLES_OK) hx_fatal(1, "%s: %s", sql, pq->errorMessage(conn));
    int64_t number = pq->ntuples(result) > 0 ? strtoll(pq->getvalue(result, 0, 0), NULL, 10) : -1;
    pq->clear(result);
    return number;
}

bool is_refused(PGconn *conn, const char *sql, const char *state)
{
    PGresult *result = pq->exec(conn, sql);
    const char *found = pq->resultErrorField(result, PG_DIAG_SQLSTATE);
    bool refused = found && strcmp(found, state) == 0;
    pq->clear(result);
    return refused;
}
