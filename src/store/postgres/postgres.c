/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing the store in PostgreSQL. Opening blocks, because nothing works without the store's secret; after
 * that everything goes through the lanes of store/remote, and nothing blocks. */
#include "store/postgres/postgres.h"

#include "base/check.h"
#include "base/log.h"
#include "store/postgres/migrate.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVER_VERSION_MIN 140000

static bool refuse(hx_error_text error, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(hx_error_text error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(error, sizeof(hx_error_text), format, arguments);
    va_end(arguments);
    size_t len = strlen(error);
    while (len > 0 && (error[len - 1] == '\n' || error[len - 1] == ' ')) error[--len] = '\0';
    for (size_t i = 0; i < len; i++)
        if (error[i] == '\n' || error[i] == '\t') error[i] = ' ';
    return false;
}

static PGconn *connect_and_wait(hx_postgres *p, hx_error_text error)
{
    PGconn *conn = p->pq->connectdbParams(p->target.keywords, p->target.values, 0);
    if (!conn) hx_fatal(HX_EXIT_BUG, "out of memory");
    if (p->pq->status(conn) == CONNECTION_OK) return conn;
    const char *message = p->pq->errorMessage(conn);
    bool is_read_only = strstr(message, "read-only") || strstr(message, "hot standby");
    (void)refuse(error, "PostgreSQL can't be used: %s%s", message,
                 is_read_only
                     ? " It is a standby, or the role or database is read-only: name the primary, or both, in the "
                       "store's URL"
                     : "");
    p->pq->finish(conn);
    return NULL;
}

/* Runs a query, with results in the binary format. NULL with a sentence in `error`. */
static PGresult *ask(hx_postgres *p, PGconn *conn, const char *sql, hx_error_text error)
{
    PGresult *result = p->pq->execParams(conn, sql, 0, NULL, NULL, NULL, NULL, 1);
    if (p->pq->resultStatus(result) == PGRES_TUPLES_OK) return result;
    const char *code = p->pq->resultErrorField(result, PG_DIAG_SQLSTATE);
    bool is_missing = code && (strcmp(code, "42P01") == 0 || strcmp(code, "3F000") == 0 || strcmp(code, "42883") == 0);
    bool is_forbidden = code && strcmp(code, "42501") == 0;
    const char *message = p->pq->resultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    (void)refuse(error, "PostgreSQL refuses: %s.%s", message ? message : p->pq->errorMessage(conn),
                 is_missing     ? " The schema hapax is missing: run hapax store migrate --store URL"
                 : is_forbidden ? " This role may not use the schema hapax: run hapax store migrate as its owner, or "
                                  "grant the role what hapax sql postgres names"
                                : "");
    p->pq->clear(result);
    return NULL;
}

/* Writes the secret and the note that the store is unfinished, in one statement: both, or neither. */
static bool set_secret(hx_postgres *p, PGconn *conn, const hx_store_options *options)
{
    static const char sql[] =
        "WITH taken AS (UPDATE hapax.store SET secret = $1 WHERE NOT EXISTS (SELECT FROM hapax.operations) "
        "AND NOT EXISTS (SELECT FROM hapax.rules) AND NOT EXISTS (SELECT FROM hapax.items) RETURNING 1) "
        "INSERT INTO hapax.operations (op, epoch, claim_ticket, write_ticket, changed_at, rule_version, state, "
        "from_state, attempt, route, reason, result, head) "
        "SELECT $2, $3, 0, 0, $4, $5, $6, $7, $8, $9, $10, $11, $12[1] FROM taken RETURNING 1";
    hx_record mark = *options->unfinished;
    hx_store_call call = {.record = &mark}, *calls[] = {&call};
    hx_parameters put = {0};
    hx_put_bytes(&put, (hx_slice){(const char *)options->secret, HX_SECRET_BYTES});
    hx_put_bytes(&put, (hx_slice){(const char *)mark.op.bytes, sizeof mark.op.bytes});
    hx_put_i64(&put, (int64_t)mark.epoch);
    hx_put_i64(&put, mark.changed_at);
    hx_put_i32(&put, (int32_t)mark.rule_version);
    hx_put_i32(&put, (int32_t)mark.state);
    hx_put_i32(&put, (int32_t)mark.from_state);
    hx_put_i32(&put, mark.attempt);
    hx_put_text(&put, mark.route);
    hx_put_text(&put, mark.reason);
    hx_put_text(&put, mark.result);
    hx_put_head_of(&put, &(hx_statement){.calls = calls, .count = 1});
    PGresult *result = p->pq->execParams(conn, sql, put.count, put.types, put.values, put.lengths, put.formats, 1);
    bool is_set = p->pq->resultStatus(result) == PGRES_TUPLES_OK && p->pq->ntuples(result) == 1;
    p->pq->clear(result);
    for (int i = 0; i < put.count; i++) hx_buf_free(&put.columns[i]);
    return is_set;
}

/* Replaces the store's secret by the one in `options`, if there is one. No gateway may have been started on the store:
 * it would go on with the secret that it has read. */
static bool replace_secret(hx_postgres *p, PGconn *conn, const hx_store_options *options, hx_error_text error)
{
    uint8_t *secret = p->remote.store.facts.secret;
    if (!options->secret) return true;
    HX_CHECK(options->unfinished != NULL);
    PGresult *result = ask(p, conn, "SELECT EXISTS (SELECT FROM hapax.rules)", error);
    if (!result) return false;
    bool is_used = hx_get_bytes(p->pq, result, 0, 0).ptr[0] != 0;
    p->pq->clear(result);
    if (is_used)
        return refuse(error, "a gateway has been started on this PostgreSQL store, and may be running: give a new "
                             "database, with hapax store migrate");
    if (memcmp(options->secret, secret, HX_SECRET_BYTES) == 0) return true;
    if (!set_secret(p, conn, options))
        return refuse(error, "this store holds operations under another secret: only an empty store, or the same one, "
                             "can take over the secret of another");
    memcpy(secret, options->secret, HX_SECRET_BYTES);
    return true;
}

/* Checks the server and the schema, and reads the secret, the time and whether commits are durable. */
static bool inspect(hx_postgres *p, PGconn *conn, const hx_store_options *options, hx_error_text error)
{
    const hx_libpq *pq = p->pq;
    if (pq->serverVersion(conn) < SERVER_VERSION_MIN)
        return refuse(error, "this server is PostgreSQL %d; version 14 or later is needed",
                      pq->serverVersion(conn) / 10000);
    PGresult *result =
        ask(p, conn,
            "SELECT version, secret, hapax.now(), pg_is_in_recovery(), " HX_POSTGRES_FORGETS
            ", current_setting('client_min_messages'), pg_backend_pid(), "
            "current_setting('default_transaction_isolation'), current_setting('server_encoding'), " HX_POSTGRES_DIGEST
            " FROM hapax.store s",
            error);
    if (!result) return false;
    bool is_one = pq->ntuples(result) == 1;
    int64_t version = is_one ? hx_get_i64(pq, result, 0, 0) : 0;
    hx_slice secret = is_one ? hx_get_bytes(pq, result, 0, 1) : HX_EMPTY;
    bool is_standby = is_one && hx_get_bytes(pq, result, 0, 3).ptr[0] != 0;
    if (!is_one || secret.len != HX_SECRET_BYTES) {
        pq->clear(result);
        return refuse(error, "the table hapax.store is damaged: it must have one row, with a secret of 32 bytes");
    }
    memcpy(p->remote.store.facts.secret, secret.ptr, HX_SECRET_BYTES);
    p->remote.is_pooled = hx_get_i64(pq, result, 0, 6) !=
                          pq->backendPID(conn); /* a pooler shows a process id of its own */
    hx_ms skew = hx_get_i64(pq, result, 0, 2) - hx_clock_now();
    hx_slice forgets = hx_arena_copy(&p->target.arena, hx_get_bytes(pq, result, 0, 4));
    bool hides_warnings = p->remote.is_pooled && hx_slice_eq(hx_get_bytes(pq, result, 0, 5), HX_LIT("error"));
    bool is_utf8 = hx_slice_eq(hx_get_bytes(pq, result, 0, 8), HX_LIT("UTF8"));
    bool sees_others = hx_slice_eq(hx_get_bytes(pq, result, 0, 7), HX_LIT("read committed"));
    hx_slice digest = hx_arena_copy(&p->target.arena, hx_get_bytes(pq, result, 0, 9));
    pq->clear(result);
    if (!is_utf8) return refuse(error, "this database is not in UTF-8: make one with ENCODING 'UTF8'");
    if (!sees_others)
        return refuse(error, "transactions of this role are not read committed by default, and would not see what "
                             "others have changed: ALTER ROLE … SET default_transaction_isolation = 'read committed'");
    if (is_standby) return refuse(error, "this server is a standby: name the primary, or both, in the store's URL");
    if (hides_warnings)
        return refuse(error, "this role's client_min_messages hides warnings, and with them that a commit has not "
                             "reached its standby: ALTER ROLE … SET client_min_messages = 'warning'");
    if (!hx_postgres_fits_schema(version, digest, error)) return false;
    hx_postgres_set_durability(p, forgets);
    p->remote.store.facts.durable = forgets.len == 0;
    if (options->moves_clock) hx_clock_set(hx_clock_now() + skew);
    if (skew > HX_SKEW_WORTH_SAYING || skew < -HX_SKEW_WORTH_SAYING) {
        hx_log_begin(HX_EVENT_store_clock_differs);
        hx_log_int("milliseconds", skew);
        hx_log_end();
    }
    return replace_secret(p, conn, options, error);
}

bool hx_postgres_fits_schema(int64_t version, hx_slice digest, hx_error_text error)
{
    int64_t newest = hx_postgres_schema_newest();
    if (version > newest)
        return refuse(error, "the schema has version %lld, and this program knows %lld: use a newer hapax",
                      (long long)version, (long long)newest);
    if (version < newest)
        return refuse(error, "the schema has version %lld, and this program needs %lld: run hapax store migrate",
                      (long long)version, (long long)newest);
    return hx_postgres_is_own_edit((unsigned)version, digest, error);
}

void hx_postgres_set_durability(hx_postgres *p, hx_slice why)
{
    bool may_forget = why.len > 0;
    if (atomic_exchange(&p->may_forget, may_forget) == may_forget) return;
    hx_log_begin(may_forget ? HX_EVENT_store_not_durable : HX_EVENT_store_durable);
    if (may_forget) hx_log_str("reason", why);
    hx_log_end();
}

static void read_rules(hx_postgres *p, const PGresult *result)
{
    hx_arena arena = {0};
    hx_store_rules rules = {0};
    for (int row = 0; row < p->pq->ntuples(result); row++)
        hx_store_rules_add(&rules, &arena, hx_get_bytes(p->pq, result, row, 0),
                           (uint32_t)hx_get_i64(p->pq, result, row, 1), (uint64_t)hx_get_i64(p->pq, result, row, 2));
    hx_remote_set_rules(&p->remote, arena, rules);
}

static bool open_store(hx_postgres *p, hx_slice url, const hx_store_options *options, hx_error_text error)
{
    if (!hx_dial_read(&p->target, url, "hapax", error)) return false;
    p->pq = p->target.pq;
    PGconn *conn = connect_and_wait(p, error);
    if (!conn) return false;
    hx_dial_keep_hosts(&p->target, conn);
    bool ok = inspect(p, conn, options, error);
    PGresult *rules = ok ? ask(p, conn, "SELECT * FROM hapax.rules_of(NULL)", error) : NULL;
    if (rules) read_rules(p, rules);
    p->pq->clear(rules);
    p->pq->finish(conn);
    return rules != NULL;
}

static bool postgres_last_epoch(hx_store *store, uint64_t *epoch, hx_error_text error)
{
    hx_postgres *p = (hx_postgres *)store;
    PGconn *conn = connect_and_wait(p, error);
    PGresult *result = conn ? ask(p, conn, "SELECT last_value FROM hapax.epochs", error) : NULL;
    if (result) *epoch = (uint64_t)hx_get_i64(p->pq, result, 0, 0);
    p->pq->clear(result);
    p->pq->finish(conn);
    return result != NULL;
}

static void postgres_close(hx_store *store)
{
    hx_postgres *p = (hx_postgres *)store;
    hx_remote_free(&p->remote);
    hx_arena_free(&p->target.arena);
    free(p);
}

hx_store *hx_postgres_open(hx_slice url, const hx_store_options *options, hx_error_text error)
{
    static const hx_store_ops ops = {hx_remote_attach, hx_remote_submit,   hx_remote_cancel, hx_remote_peek,
                                     hx_remote_count,  postgres_close,     hx_remote_rules,  hx_remote_live_at_most,
                                     hx_remote_limit,  postgres_last_epoch};
    hx_postgres *p = calloc(1, sizeof *p);
    if (!p) hx_fatal(HX_EXIT_BUG, "out of memory");
    hx_remote_init(&p->remote, &ops, &hx_postgres_driver, "postgres", options);
    if (open_store(p, url, options, error)) return &p->remote.store;
    postgres_close(&p->remote.store);
    return NULL;
}
