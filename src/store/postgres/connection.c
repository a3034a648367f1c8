/* SPDX-License-Identifier: Apache-2.0 */
/* The driver of store/remote for PostgreSQL: one connection of libpq, in pipeline mode, on a loop. */
#include "store/postgres/postgres.h"

#include "base/check.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

#define COLUMN_BYTES_KEPT (1u << 20)

static const hx_libpq *libpq_of(const hx_lane *lane)
{
    return ((const hx_postgres *)lane->store)->pq;
}

static const PGresult *rows_of(const hx_remote_result *result)
{
    return (const PGresult *)result;
}

/* Connecting */

static void fail(hx_postgres_lane *own)
{
    const char *why = libpq_of(&own->lane)->errorMessage(own->conn);
    hx_lane_fail(&own->lane, why, hx_dial_advice(why));
}

/* A commit that was not confirmed by its standby is reported by a warning alone: its result says that it worked. */
static void notice_came(void *context, const PGresult *notice)
{
    hx_postgres_lane *own = context;
    const hx_libpq *pq = libpq_of(&own->lane);
    const char *message = pq->resultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY); /* in the server's language */
    const char *from = pq->resultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);
    bool is_known = from && strcmp(from, "SyncRepWaitForLSN") == 0;
    if (is_known || (message && strstr(message, "synchronous replication"))) own->is_undurable = true;
    hx_log_begin(HX_EVENT_server_notice);
    hx_log_text("notice", message ? message : "");
    hx_log_end();
}

static void receive(hx_postgres_lane *own);

static void flush(hx_postgres_lane *own)
{
    int left = libpq_of(&own->lane)->flush(own->conn);
    if (left < 0)
        fail(own);
    else
        hx_poll_for(own->poll, HX_POLL_READ | (left > 0 ? HX_POLL_WRITE : 0));
}

static void socket_ready(void *context, unsigned events)
{
    hx_postgres_lane *own = context;
    hx_lane_moved(&own->lane);
    if (events & HX_POLL_WRITE) flush(own);
    if (own->lane.state == HX_LANE_READY && events & HX_POLL_READ) receive(own);
}

static void dial_done(void *context, const char *error)
{
    hx_postgres_lane *own = context;
    const hx_libpq *pq = libpq_of(&own->lane);
    if (error) {
        hx_lane_fail(&own->lane, error, hx_dial_advice(error));
        return;
    }
    own->conn = own->dial.conn;
    own->dial.conn = NULL;
    (void)pq->setNoticeReceiver(own->conn, notice_came, own);
    if (pq->enterPipelineMode(own->conn) != 1) {
        fail(own);
        return;
    }
    own->poll = hx_poll_new(own->lane.loop, pq->socket(own->conn), socket_ready, own);
    hx_poll_for(own->poll, HX_POLL_READ);
    hx_lane_connected(&own->lane);
}

static void driver_connect(hx_lane *lane)
{
    hx_postgres_lane *own = (hx_postgres_lane *)lane;
    own->dial = (hx_dial){.target = &((const hx_postgres *)lane->store)->target,
                          .loop = lane->loop,
                          .skip = lane->connect_timeouts,
                          .done = dial_done,
                          .context = own};
    hx_dial_start(&own->dial);
}

static void driver_disconnect(hx_lane *lane)
{
    hx_postgres_lane *own = (hx_postgres_lane *)lane;
    hx_dial_stop(&own->dial);
    hx_poll_free(&own->poll);
    if (own->conn) libpq_of(lane)->finish(own->conn);
    own->conn = NULL;
    own->is_undurable = false;
    for (size_t i = 0; i < HX_PARAMETERS_MAX; i++) hx_buf_free(&own->parameters.columns[i]);
}

/* Statements and their results */

static void driver_send(hx_lane *lane, const hx_statement *statements, size_t count)
{
    hx_postgres_lane *own = (hx_postgres_lane *)lane;
    const hx_libpq *pq = libpq_of(lane);
    hx_parameters *p = &own->parameters;
    for (const hx_statement *s = statements; s < statements + count; s++) {
        hx_postgres_fill(lane, s, p);
        bool is_sent = pq->sendQueryParams(own->conn, hx_postgres_sql[s->kind], p->count, p->types, p->values,
                                           p->lengths, p->formats, 1) &&
                       (!s->ends_transaction || pq->pipelineSync(own->conn));
        if (!is_sent) {
            fail(own);
            return;
        }
    }
    flush(own);
}

static bool is_state(const hx_libpq *pq, const PGresult *result, const char *code)
{
    const char *found = result ? pq->resultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    return found && strncmp(found, code, strlen(code)) == 0;
}

/* The server is going down, starting, or not the primary. */
static bool is_wrong_server(const hx_libpq *pq, const PGresult *result)
{
    return is_state(pq, result, "57P") || is_state(pq, result, "25006") || is_state(pq, result, "08");
}

static hx_refusal driver_classify(const hx_lane *lane, const hx_remote_result *result)
{
    const hx_libpq *pq = libpq_of(lane);
    const PGresult *error = rows_of(result);
    const char *message = error ? pq->resultErrorField(error, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    hx_refusal refusal = {HX_REFUSED_FOR_GOOD, message ? message : "the transaction was aborted",
                          "see the server's log"};
    if (is_state(pq, error, "55P03") || is_state(pq, error, "40")) refusal.kind = HX_REFUSED_FOR_NOW;
    if (is_state(pq, error, "42P01") || is_state(pq, error, "42883") || is_state(pq, error, "3F000"))
        refusal.hint = "the schema is missing or older than this program: run hapax store migrate";
    if (is_state(pq, error, "42501"))
        refusal.hint = "this role lacks rights on the schema hapax: see hapax sql postgres";
    if (is_state(pq, error, "53100")) {
        refusal.kind = HX_REFUSED_AS_FULL;
        refusal.hint = "the server's disk is full";
    }
    return refusal;
}

/* Whether a new connection can be used: a failover may have led to a server with other settings, a migration to
 * another schema. Ends it if not. */
static bool check_setup(hx_lane *lane, PGresult *result)
{
    const hx_libpq *pq = libpq_of(lane);
    hx_error_text why;
    bool is_good = false;
    if (pq->resultStatus(result) != PGRES_TUPLES_OK) {
        const char *message = pq->resultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
        (void)snprintf(why, sizeof why, "%s: %s", message ? message : "it can't be set up",
                       driver_classify(lane, (hx_remote_result *)result).hint);
    } else if (pq->ntuples(result) != 1) {
        (void)snprintf(why, sizeof why, "the table hapax.store is damaged: it must have one row");
    } else {
        is_good = hx_postgres_fits_schema(hx_get_i64(pq, result, 0, 0), hx_get_bytes(pq, result, 0, 2), why);
    }
    if (is_good) {
        hx_postgres_set_durability((hx_postgres *)lane->store, hx_get_bytes(pq, result, 0, 1));
        return true;
    }
    pq->clear(result);
    hx_lane_unusable(lane, why);
    return false;
}

static void commit_came(hx_postgres_lane *own)
{
    if (own->is_undurable) {
        hx_lane_fail(&own->lane, "a commit did not reach the synchronous standby", NULL);
        return;
    }
    hx_lane_committed(&own->lane);
    if (own->lane.round.is_open) return;
    for (size_t i = 0; i < HX_PARAMETERS_MAX; i++) /* memory that one large response took is not kept */
        if (own->parameters.columns[i].cap > COLUMN_BYTES_KEPT) hx_buf_free(&own->parameters.columns[i]);
}

static void result_came(hx_postgres_lane *own, PGresult *result)
{
    hx_lane *lane = &own->lane;
    const hx_libpq *pq = libpq_of(lane);
    ExecStatusType status = pq->resultStatus(result);
    if (status == PGRES_PIPELINE_SYNC) {
        pq->clear(result);
        commit_came(own);
        return;
    }
    bool failed = status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK;
    if (failed && is_wrong_server(pq, result)) {
        hx_error_text why;
        (void)snprintf(why, sizeof why, "%s", pq->resultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
        pq->clear(result);
        hx_lane_fail(lane, why, hx_dial_advice(why));
        return;
    }
    bool is_setup = lane->round.statements[lane->round.at].kind == HX_STATEMENT_SETUP;
    if (is_setup && !check_setup(lane, result)) return;
    hx_lane_result(lane, (hx_remote_result *)result, failed);
}

static void receive(hx_postgres_lane *own)
{
    hx_lane *lane = &own->lane;
    const hx_libpq *pq = libpq_of(lane);
    if (!pq->consumeInput(own->conn)) {
        fail(own);
        return;
    }
    bool was_end = false;
    while (lane->state == HX_LANE_READY && lane->round.is_open && !pq->isBusy(own->conn)) {
        PGresult *result = pq->getResult(own->conn);
        if (result) {
            was_end = false;
            result_came(own, result);
        } else if (was_end || pq->status(own->conn) == CONNECTION_BAD) {
            fail(own); /* two ends in a row: libpq expects nothing more, though the round does */
        } else {
            was_end = true;
            hx_lane_statement_end(lane);
        }
    }
    for (PGnotify *note; lane->state == HX_LANE_READY && (note = pq->notifies(own->conn));) {
        hx_op op; /* hapax.tell_many sends it in hexadecimal */
        if (hx_op_read(hx_slice_of(note->extra), &op)) hx_lane_hear(lane, &op);
        pq->freemem(note);
    }
    if (lane->state == HX_LANE_READY && pq->status(own->conn) == CONNECTION_BAD) fail(own);
}

static size_t driver_row_count(const hx_lane *lane, const hx_remote_result *result)
{
    return (size_t)libpq_of(lane)->ntuples(rows_of(result));
}

static hx_remote_verdict driver_verdict(const hx_lane *lane, const hx_remote_result *result, size_t row)
{
    return hx_get_verdict(libpq_of(lane), rows_of(result), (int)row);
}

static bool driver_record(const hx_lane *lane, const hx_remote_result *result, size_t row, hx_ms now, hx_arena *arena,
                          hx_record *out)
{
    return hx_get_record(libpq_of(lane), rows_of(result), (int)row, now, arena, out);
}

static int64_t driver_number(const hx_lane *lane, const hx_remote_result *result, size_t row, unsigned column)
{
    return hx_get_i64(libpq_of(lane), rows_of(result), (int)row, (int)column);
}

static hx_slice driver_text(const hx_lane *lane, const hx_remote_result *result, size_t row, unsigned column)
{
    return hx_get_bytes(libpq_of(lane), rows_of(result), (int)row, (int)column);
}

static void driver_free_result(const hx_lane *lane, hx_remote_result *result)
{
    libpq_of(lane)->clear((PGresult *)result);
}

const hx_driver hx_postgres_driver = {
    .lane_bytes = sizeof(hx_postgres_lane),
    .connect = driver_connect,
    .disconnect = driver_disconnect,
    .send = driver_send,
    .classify = driver_classify,
    .row_count = driver_row_count,
    .verdict = driver_verdict,
    .record = driver_record,
    .number = driver_number,
    .text = driver_text,
    .free_result = driver_free_result,
};
