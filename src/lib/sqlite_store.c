/* SPDX-License-Identifier: Apache-2.0 */
/* A store in a SQLite file, on the caller's thread: each call is a transaction of its own on the one connection of the
 * handle, which a mutex guards. The busy handler of store/sqlite/file.c waits for other processes. */
#include "lib/stores.h"
#include "store/sqlite/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
    pthread_mutex_t mutex;
    char *path;
    hx_sqlite_tables rows;
} sqlite_store;

/* Opening */

static int code_of(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return HAPAX_BUSY;
    case SQLITE_FULL: return HAPAX_FULL;
    case SQLITE_NOMEM: return HAPAX_NO_MEMORY;
    default: return HAPAX_UNAVAILABLE;
    }
}

static int explain(const sqlite_store *s, int rc, char *error)
{
    hx_sqlite_file_explain(s->path, rc, s->rows.db ? sqlite3_system_errno(s->rows.db) : 0, error);
    return code_of(rc);
}

/* Sets the store's clock if this is its first use since the boot, never behind its last change. */
static int set_clock(sqlite_store *s)
{
    hx_ms now;
    bool is_known;
    int rc = hx_sqlite_tables_now(&s->rows, &now, &is_known);
    if (rc != SQLITE_OK || is_known) return rc;
    hx_ms stamp = hx_sqlite_file_last_stamp(&s->rows), clock = hx_clock_now();
    rc = hx_sqlite_tables_run(&s->rows, HX_SQL_BEGIN_WRITE);
    if (rc == SQLITE_OK) rc = hx_sqlite_tables_set_clock(&s->rows, clock > stamp ? clock : stamp);
    if (rc == SQLITE_OK) rc = hx_sqlite_tables_run(&s->rows, HX_SQL_COMMIT);
    return rc;
}

/* Whether the file is new, or a store. One transaction: another process may be making the tables. */
static int identify(sqlite_store *s, int64_t *format, bool *is_empty)
{
    uint8_t secret[HX_SECRET_BYTES];
    int rc = hx_sqlite_tables_run(&s->rows, HX_SQL_BEGIN_READ);
    if (rc == SQLITE_OK) rc = hx_sqlite_tables_identify(&s->rows, format, secret);
    explicit_bzero(secret, sizeof secret);
    if (rc == SQLITE_OK && *format == 0) rc = hx_sqlite_file_is_empty(s->rows.db, is_empty);
    if (!sqlite3_get_autocommit(s->rows.db)) (void)hx_sqlite_tables_run(&s->rows, HX_SQL_ROLLBACK);
    return rc;
}

static int open_file(sqlite_store *s, char *error)
{
    int64_t format;
    struct stat st;
    bool is_empty = false;
    int rc;
    if (stat(s->path, &st) == 0 && !S_ISREG(st.st_mode))
        return hx_guest_fail(HAPAX_INVALID, "%s is not a file: sqlite: needs one", s->path);
    if (!hx_sqlite_file_make(s->path, error)) return HAPAX_UNAVAILABLE;
    s->rows.db = hx_sqlite_file_connect(s->path, false, &rc);
    if (!s->rows.db) return explain(s, rc, error);
    rc = identify(s, &format, &is_empty);
    if (rc != SQLITE_OK) return explain(s, rc, error);
    if (format == 0 && !is_empty)
        return hx_guest_fail(HAPAX_NOT_PREPARED,
                             "%s is a database of another program: name another file, or make Hapax's tables in it by "
                             "hapax_sqlite_prepare()",
                             s->path);
    if (!hx_sqlite_file_set_log(s->path, s->rows.db, error) || !hx_sqlite_file_settle_log(s->path, &s->rows, error))
        return HAPAX_UNAVAILABLE;
    int code = hx_lib_prepare(s->rows.db, error);
    if (code != HAPAX_OK) return code;
    rc = set_clock(s);
    return rc == SQLITE_OK ? HAPAX_OK : explain(s, rc, error);
}

static void sqlite_close(void *store)
{
    sqlite_store *s = store;
    hx_sqlite_tables_end(&s->rows);
    (void)sqlite3_close_v2(s->rows.db);
    (void)pthread_mutex_destroy(&s->mutex);
    free(s->path);
    free(s);
}

static int sqlite_open(const char *url, const hapax_options *options, void **store, char *error)
{
    const char *path = url + sizeof("sqlite:") - 1;
    (void)options;
    if (*path == '\0' || strcmp(path, ":memory:") == 0)
        return hx_guest_fail(HAPAX_INVALID, "sqlite: needs a file, as in sqlite:/var/lib/hapax.db");
    if (sqlite3_threadsafe() == 0)
        return hx_guest_fail(HAPAX_UNSUPPORTED, "this program's SQLite was built without threads");
    sqlite_store *s = calloc(1, sizeof *s);
    char *copy = strdup(path);
    if (!s || !copy) {
        free(s);
        free(copy);
        return hx_guest_fail(HAPAX_NO_MEMORY, "out of memory");
    }
    s->path = copy;
    (void)pthread_mutex_init(&s->mutex, NULL);
    int code = open_file(s, error);
    if (code == HAPAX_OK)
        *store = s;
    else
        sqlite_close(s);
    return code;
}

/* Transactions */

static int enter(sqlite_store *s, hx_sql begin, char *error)
{
    hx_guest_lock(hx_guest_call(), &s->mutex);
    /* a call that ran out of memory has left its transaction open */
    if (!sqlite3_get_autocommit(s->rows.db)) (void)hx_sqlite_tables_run(&s->rows, HX_SQL_ROLLBACK);
    int rc = hx_sqlite_tables_run(&s->rows, begin);
    return rc == SQLITE_OK ? HAPAX_OK : explain(s, rc, error);
}

/* Commits after OK, else undoes everything. */
static int leave(sqlite_store *s, int code, char *error)
{
    if (code == HAPAX_OK) {
        int rc = hx_sqlite_tables_run(&s->rows, HX_SQL_COMMIT);
        if (rc != SQLITE_OK) code = explain(s, rc, error);
    }
    if (!sqlite3_get_autocommit(s->rows.db)) (void)hx_sqlite_tables_run(&s->rows, HX_SQL_ROLLBACK);
    hx_guest_unlock(hx_guest_call());
    return code;
}

static int sqlite_begin(void *store, const hapax_request *request, hapax_claim *claim, hapax_record *record,
                        char *error)
{
    int code = enter(store, HX_SQL_BEGIN_WRITE, error);
    if (code == HAPAX_OK) code = hx_lib_begin(((sqlite_store *)store)->rows.db, request, claim, record, error);
    return leave(store, code, error);
}

static int sqlite_settle(void *store, const hapax_claim *claim, int to, const hapax_result *result, const char *reason,
                         hapax_record *record, char *error)
{
    sqlite3 *db = ((sqlite_store *)store)->rows.db;
    int code = enter(store, HX_SQL_BEGIN_WRITE, error);
    if (code == HAPAX_OK) code = hx_lib_settle(db, claim, to, result, reason, record, error);
    return leave(store, code, error);
}

static int sqlite_renew(void *store, const hapax_claim *claim, int64_t lease, hapax_record *record, char *error)
{
    hx_in_transaction_operation operation;
    hx_record found;
    if (!hx_lib_operation(claim, &operation)) return HAPAX_INVALID;
    int code = enter(store, HX_SQL_BEGIN_WRITE, error);
    if (code == HAPAX_OK) {
        hx_arena *arena = &hx_guest_call()->arena;
        sqlite3 *db = ((sqlite_store *)store)->rows.db;
        code = hx_lib_tell(hx_sqlite_renew(db, &operation, lease, arena, &found), &found, record, error);
    }
    return leave(store, code, error);
}

static int sqlite_find(void *store, const hapax_request *request, hapax_record *record, char *error)
{
    hx_record found;
    int code = enter(store, HX_SQL_BEGIN_READ, error);
    if (code == HAPAX_OK) {
        hx_arena *arena = &hx_guest_call()->arena;
        hx_in_transaction_request asked = hx_lib_request(request, arena);
        asked.redo = false;
        code = hx_lib_tell(hx_sqlite_find(((sqlite_store *)store)->rows.db, &asked, arena, &found), &found, record,
                           error);
    }
    code = leave(store, code, error);
    return code == HAPAX_OK ? hx_guest_fail(HAPAX_ABSENT, "there is no such operation") : code;
}

const hapax_store_type hx_lib_sqlite = {.size = sizeof hx_lib_sqlite,
                                        .scheme = "sqlite",
                                        .open = sqlite_open,
                                        .close = sqlite_close,
                                        .begin = sqlite_begin,
                                        .settle = sqlite_settle,
                                        .renew = sqlite_renew,
                                        .find = sqlite_find};
