/* SPDX-License-Identifier: Apache-2.0 */
/* A migration is applied in one transaction that locks hapax.store first and reads the version under that lock, so two
 * processes migrate in turn, and the second finds nothing left. Where there is no schema yet, the second one waits at
 * its CREATE SCHEMA, fails, and reads the version again. Everything belongs to the transaction, nothing to the session:
 * it works through PgBouncer. Whether a COMMIT was done is read by the next transaction. */
#include "store/postgres/migrate.h"

#include "store/postgres/libpq.h"

#include <stdio.h>
#include <string.h>

#define OLDEST_SERVER 140000 /* the same as the store's */

typedef struct {
    const hx_libpq *pq;
    PGconn *conn;
    void (*report)(void *context, const char *sentence);
    void *context;
    char *error;
} migration;

unsigned hx_postgres_schema_newest(void)
{
    return hx_postgres_migrations[hx_postgres_migrations_count - 1].number;
}

bool hx_postgres_is_own_edit(unsigned version, hx_slice digest, hx_error_text error)
{
    const char *own = hx_postgres_migrations[version - 1].digest;
    if (hx_slice_eq(digest, hx_slice_of(own))) return true;
    return hx_fail(error,
                   "the schema hapax of this database was made by another build of hapax (version %u, edit %.*s; this "
                   "program has edit %s), and can't be migrated: save it with that build's hapax store backup, then "
                   "DROP SCHEMA hapax CASCADE, hapax store migrate, and hapax store restore; or use a new database",
                   version, HX_FMT(digest.len > 0 ? hx_slice_first(digest, 32) : HX_LIT("unknown")), own);
}

/* Makes one line of a message of libpq, which may have several. */
static void put_line(char *out, size_t bytes, const char *prefix, const char *text, const char *advice)
{
    size_t len = strlen(text);
    while (len > 0 && text[len - 1] == '\n') len--;
    (void)snprintf(out, bytes, "%s%.*s%s", prefix, (int)len, text, advice);
    for (char *at = out; *at != '\0'; at++)
        if (*at == '\n' || *at == '\t') *at = ' ';
}

static bool failed(migration *m, const char *what, PGresult *result)
{
    const char *primary = result ? m->pq->resultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    const char *state = result ? m->pq->resultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    const char *advice = "";
    char prefix[128];
    if (state && strcmp(state, "42501") == 0)
        advice = "; migrate as the owner of the schema, or as a role that may create one in this database";
    (void)snprintf(prefix, sizeof prefix, "%s: ", what);
    put_line(m->error, sizeof(hx_error_text), prefix, primary ? primary : m->pq->errorMessage(m->conn), advice);
    if (result) m->pq->clear(result);
    return false;
}

/* Runs statements without looking at their rows. */
static bool run(migration *m, const char *what, const char *sql)
{
    PGresult *result = m->pq->exec(m->conn, sql);
    ExecStatusType status = m->pq->resultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) return failed(m, what, result);
    m->pq->clear(result);
    return true;
}

/* Reads the single value of a query. */
static bool ask(migration *m, const char *what, const char *sql, char *value, size_t bytes)
{
    PGresult *result = m->pq->exec(m->conn, sql);
    value[0] = '\0';
    if (m->pq->resultStatus(result) != PGRES_TUPLES_OK) return failed(m, what, result);
    bool found = m->pq->ntuples(result) == 1;
    if (found) (void)snprintf(value, bytes, "%s", m->pq->getvalue(result, 0, 0));
    m->pq->clear(result);
    if (!found) (void)hx_fail(m->error, "%s: the server gave no row", what);
    return found;
}

static bool refuse(migration *m, const char *why)
{
    return hx_fail(m->error, "%s", why);
}

/* Whether a schema can be written to this server. */
static bool is_fit(migration *m)
{
    char value[32];
    const char *what = "asking the server what it is";
    if (m->pq->serverVersion(m->conn) < OLDEST_SERVER)
        return refuse(m, "this PostgreSQL is too old: version 14 or newer is needed");
    if (!ask(m, what, "SELECT pg_is_in_recovery()", value, sizeof value)) return false;
    if (value[0] == 't')
        return refuse(m, "this PostgreSQL is a standby: migrate on the primary "
                         "(with several hosts in the URL, add target_session_attrs=read-write)");
    if (!ask(m, what, "SELECT current_setting('transaction_read_only')", value, sizeof value)) return false;
    if (strcmp(value, "on") == 0)
        return refuse(m, "this PostgreSQL is read-only: look at default_transaction_read_only of the server, the "
                         "database and the role");
    if (!ask(m, what, "SELECT current_setting('server_encoding')", value, sizeof value)) return false;
    if (strcmp(value, "UTF8") != 0)
        return refuse(m, "this database is not in UTF-8: make one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE "
                         "template0");
    return true;
}

static bool is_readable(migration *m, const char *url)
{
    char *message = NULL;
    PQconninfoOption *options = m->pq->conninfoParse(url, &message);
    if (!options) hx_libpq_explain_url(m->pq, message, m->error, sizeof(hx_error_text));
    if (options) m->pq->conninfoFree(options);
    return options != NULL;
}

static bool connect_to(migration *m, const char *url)
{
    /* The parameters of the URL come later, and override those before it. */
    const char *names[] = {"connect_timeout", "fallback_application_name", "dbname", "client_encoding", NULL};
    const char *values[] = {"10", "hapax store migrate", url, "UTF8", NULL};
    m->conn = m->pq->connectdbParams(names, values, 1);
    if (m->conn && m->pq->status(m->conn) == CONNECTION_OK) return true;
    put_line(m->error, sizeof(hx_error_text),
             "PostgreSQL can't be reached: ", m->conn ? m->pq->errorMessage(m->conn) : "out of memory", "");
    return false;
}

/* Notices, of DROP … IF EXISTS for instance, are not shown. */
static void ignore_notice(void *context, const char *message)
{
    (void)context, (void)message;
}

/* 0: there is no schema. */
static bool read_version(migration *m, unsigned *version)
{
    static const char what[] = "reading the schema's version";
    char value[32];
    uint64_t number;
    *version = 0;
    if (!ask(m, what, "SELECT to_regclass('hapax.store') IS NOT NULL", value, sizeof value)) return false;
    if (value[0] != 't') return true;
    if (!ask(m, what, "SELECT version FROM hapax.store", value, sizeof value)) return false;
    if (!hx_slice_to_u64(hx_slice_of(value), &number) || number == 0 || number > UINT32_MAX)
        return refuse(m, "the version in hapax.store is not valid");
    *version = (unsigned)number;
    return true;
}

static bool apply(migration *m, const hx_migration *next)
{
    char what[96], sentence[96];
    unsigned version;
    (void)snprintf(what, sizeof what, "applying %s", next->name);
    if (!run(m, what, next->text) || !read_version(m, &version)) return false;
    if (version != next->number) return refuse(m, "a migration did not raise the schema's version: a bug of ours");
    if (!run(m, what, "COMMIT")) return false;
    (void)snprintf(sentence, sizeof sentence, "applied %s", next->name);
    m->report(m->context, sentence);
    return true;
}

/* Applies the next migration; *done: none is left. */
static bool step(migration *m, bool *done)
{
    unsigned version, newest = hx_postgres_schema_newest();
    *done = false;
    if (!run(m, "beginning a transaction", "BEGIN")) return false;
    if (!read_version(m, &version)) return false;
    const char *lock = "LOCK TABLE hapax.store IN EXCLUSIVE MODE";
    if (version > 0 && (!run(m, "waiting for another migration", lock) || !read_version(m, &version))) return false;
    if (version > newest)
        return hx_fail(m->error,
                       "the schema is version %u, and this program knows up to %u: use a newer hapax; a schema never "
                       "goes back",
                       version, newest);
    if (version > 0) {
        char digest[64];
        if (!ask(m, "reading the schema's edit", "SELECT " HX_POSTGRES_DIGEST " FROM hapax.store s", digest,
                 sizeof digest))
            return false;
        if (!hx_postgres_is_own_edit(version, hx_slice_of(digest), m->error)) return false;
    }
    *done = version == newest;
    if (*done) return run(m, "ending a transaction", "COMMIT");
    if (apply(m, &hx_postgres_migrations[version])) return true;
    bool was_none = version == 0; /* another process may have made it meanwhile */
    return was_none && run(m, "ending a transaction", "ROLLBACK") && read_version(m, &version) && version > 0;
}

static bool migrate(migration *m)
{
    char name[128], sentence[256];
    bool done = false;
    if (!is_fit(m) || !ask(m, "asking for the database's name", "SELECT current_database()", name, sizeof name))
        return false;
    while (!done)
        if (!step(m, &done)) return false;
    (void)snprintf(sentence, sizeof sentence, "database %s has schema version %u", name, hx_postgres_schema_newest());
    m->report(m->context, sentence);
    return true;
}

bool hx_postgres_migrate(const char *url, void (*report)(void *context, const char *sentence), void *context,
                         hx_error_text error)
{
    hx_error_text not_loaded;
    migration m = {.pq = hx_libpq_load(not_loaded), .report = report, .context = context, .error = error};
    error[0] = '\0';
    if (!m.pq) return hx_fail(error, "%s", not_loaded);
    bool ok = is_readable(&m, url) && connect_to(&m, url);
    if (ok) {
        (void)m.pq->setNoticeProcessor(m.conn, ignore_notice, NULL);
        ok = migrate(&m);
    }
    if (m.conn) m.pq->finish(m.conn);
    return ok;
}
