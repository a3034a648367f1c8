/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a store in SQLite: a file of ours, a new one, or a program's database that has our tables in it
 * (in_transaction.h). Anything else is refused, and not changed. */
#include "store/sqlite/file.h"
#include "store/sqlite/sqlite.h"

#include "base/check.h"
#include "base/log.h"
#include "base/rand.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CLOCK_SKEW_MAX HX_SECOND

static bool fail(const hx_sqlite *s, int rc, hx_error_text error)
{
    hx_sqlite_file_explain(s->path, rc, s->rows.db ? sqlite3_system_errno(s->rows.db) : errno, error);
    return false;
}

static bool is_file(const hx_sqlite *s, bool *there, hx_error_text error)
{
    struct stat st;
    *there = stat(s->path, &st) == 0;
    if (!*there || S_ISREG(st.st_mode)) return true;
    return hx_fail(error, "%s is not a file: sqlite: needs one, as in sqlite:%s%shapax.db", s->path,
                   S_ISDIR(st.st_mode) ? s->path : "", S_ISDIR(st.st_mode) ? "/" : "/var/lib/");
}

static int put_mark(hx_sqlite *s)
{
    static const hx_sqlite_row nothing;
    if (!s->options.unfinished) return SQLITE_OK;
    int rc = hx_sqlite_tables_become(&s->rows, &nothing, s->options.unfinished);
    return rc == SQLITE_OK ? hx_sqlite_tables_set_epoch(&s->rows, s->options.unfinished->epoch) : rc;
}

/* Makes or upgrades the tables in one transaction: of several processes that find none, or old ones, one does. */
static bool make_tables(hx_sqlite *s, hx_error_text error)
{
    int64_t format;
    bool empty = false;
    uint8_t secret[32];
    int rc = hx_sqlite_tables_run(&s->rows, HX_SQL_BEGIN_WRITE);
    if (rc == SQLITE_OK) rc = hx_sqlite_tables_identify(&s->rows, &format, secret);
    if (rc == SQLITE_OK && format == 0) {
        rc = hx_sqlite_file_is_empty(s->rows.db, &empty);
        if (rc == SQLITE_OK && !empty) {
            (void)hx_sqlite_tables_run(&s->rows, HX_SQL_ROLLBACK);
            return hx_fail(error,
                           "%s is a database of another program: name another file for the store, or have that program "
                           "make Hapax's tables in it first",
                           s->path);
        }
        if (rc == SQLITE_OK) rc = hx_sqlite_tables_create(s->rows.db, s->options.secret);
        if (rc == SQLITE_OK) rc = put_mark(s);
    } else if (rc == SQLITE_OK && hx_sqlite_tables_are_older(format)) {
        rc = hx_sqlite_tables_upgrade(s->rows.db, format);
    }
    if (rc == SQLITE_OK) rc = hx_sqlite_tables_run(&s->rows, HX_SQL_COMMIT);
    if (rc == SQLITE_OK) return true;
    (void)fail(s, rc, error);
    if (!sqlite3_get_autocommit(s->rows.db)) (void)hx_sqlite_tables_run(&s->rows, HX_SQL_ROLLBACK);
    return false;
}

/* Whether the store can be filled: it has the given secret, and no gateway has used it. */
static bool check_secret(hx_sqlite *s, hx_error_text error)
{
    bool used;
    if (memcmp(s->options.secret, s->store.facts.secret, 32) != 0)
        return hx_fail(error, "%s has another secret than the one given: it is another store; name an empty file",
                       s->path);
    int rc = hx_sqlite_tables_enforced(&s->rows, &used);
    if (rc != SQLITE_OK) return fail(s, rc, error);
    if (used) (void)hx_fail(error, "a gateway has been started on %s, and may be running: give a new store", s->path);
    return !used;
}

static bool read_secret(hx_sqlite *s, int64_t *format, hx_error_text error)
{
    int rc = hx_sqlite_tables_identify(&s->rows, format, s->store.facts.secret);
    if (rc != SQLITE_OK) return fail(s, rc, error);
    if (*format != 0 && (*format < HX_SQLITE_FORMAT_LEAST || *format > HX_SQLITE_FORMAT))
        return hx_fail(error,
                       "%s was written by %s version of Hapax (format %lld, this one reads %d): use that version",
                       s->path, *format > HX_SQLITE_FORMAT ? "a newer" : "an older", (long long)*format,
                       HX_SQLITE_FORMAT);
    return *format == 0 || !s->options.secret || check_secret(s, error);
}

/* The first process after a boot sets the store's clock, never behind the last change in the store; all others follow
 * it, as far as the host lets its clock be moved. */
static bool follow_clock(hx_sqlite *s, const hx_store_options *options, hx_error_text error)
{
    bool known;
    hx_ms now;
    int rc = hx_sqlite_tables_now(&s->rows, &now, &known);
    if (rc == SQLITE_OK && !known) {
        hx_ms stamp = hx_sqlite_file_last_stamp(&s->rows);
        if (!hx_store_follow_wall(options, stamp, error)) return false;
        hx_ms first = hx_clock_now() > stamp ? hx_clock_now() : stamp;
        rc = hx_sqlite_tables_run(&s->rows, HX_SQL_BEGIN_WRITE);
        if (rc == SQLITE_OK) rc = hx_sqlite_tables_set_clock(&s->rows, first);
        if (rc == SQLITE_OK) rc = hx_sqlite_tables_run(&s->rows, HX_SQL_COMMIT);
        if (rc == SQLITE_OK) rc = hx_sqlite_tables_now(&s->rows, &now, &known);
    }
    if ((rc & 0xff) == SQLITE_FULL) { /* stored responses can be served all the same, by this process's clock */
        if (!sqlite3_get_autocommit(s->rows.db)) (void)hx_sqlite_tables_run(&s->rows, HX_SQL_ROLLBACK);
        return true;
    }
    if (rc != SQLITE_OK) return fail(s, rc, error);
    hx_ms skew = now - hx_clock_now();
    if (options->moves_clock) hx_clock_set(now);
    if (skew < -CLOCK_SKEW_MAX || skew > CLOCK_SKEW_MAX) {
        hx_log_begin(HX_EVENT_store_clock_differs);
        hx_log_int("milliseconds", skew);
        hx_log_end();
    }
    return true;
}

static void disconnect(hx_sqlite *s)
{
    hx_sqlite_tables_end(&s->rows);
    hx_sqlite_tables_end(&s->aside);
    (void)sqlite3_close(s->rows.db);
    (void)sqlite3_close(s->aside.db);
    s->rows.db = s->aside.db = NULL;
}

static char *with_suffix(const char *path, const char *suffix)
{
    char *out = NULL;
    if (asprintf(&out, "%s%s", path, suffix) < 0) hx_fatal(HX_EXIT_BUG, "out of memory");
    return out;
}

/* A copy or restore was killed before it gave the file its name: a gateway would start on an empty store here. */
static bool is_begun(const hx_sqlite *s, hx_error_text error)
{
    char *making = with_suffix(s->path, "-begun");
    bool begun = access(making, F_OK) == 0;
    if (begun)
        (void)
            snprintf(error, sizeof(hx_error_text),
                     "%s is the beginning of a `hapax store copy`, `restore` or `salvage` that has not ended: run that "
                     "again",
                     making);
    free(making);
    return begun;
}

/* Makes a store that is to be filled under another name: it gets its own once it has the note that it is unfinished. */
static bool make_marked(hx_sqlite *s, hx_error_text error)
{
    char *path = s->path, *making = with_suffix(path, "-begun"), *log = with_suffix(making, "-journal");
    int rc;
    (void)!truncate(making, 0); /* left by a process that was killed; the name stays, for is_begun */
    (void)unlink(log);
    s->path = making;
    bool ok = hx_sqlite_file_make(s->path, error);
    if (ok) {
        s->rows.db = hx_sqlite_file_connect(making, false, &rc);
        ok = s->rows.db ? make_tables(s, error) : fail(s, rc, error);
        disconnect(s);
    }
    s->path = path;
    if (ok && link(making, path) != 0 && errno != EEXIST) ok = fail(s, SQLITE_CANTOPEN, error);
    (void)unlink(making);
    hx_sqlite_file_sync_directory(path);
    free(making);
    free(log);
    return ok;
}

/* Checks before it changes anything: a file of another program stays as it is. */
static bool open_file(hx_sqlite *s, hx_error_text error)
{
    int rc;
    int64_t format = 0;
    bool there, empty = false;
    if (!is_file(s, &there, error) || (!there && !s->options.unfinished && is_begun(s, error))) return false;
    if (!there && !(s->options.unfinished ? make_marked(s, error) : hx_sqlite_file_make(s->path, error))) return false;
    s->rows.db = hx_sqlite_file_connect(s->path, false, &rc);
    if (!s->rows.db) return fail(s, rc, error);
    (void)sqlite3_busy_handler(s->rows.db, hx_sqlite_file_busy, &s->is_locked_out);
    if (!read_secret(s, &format, error)) return false;
    if (sqlite3_db_readonly(s->rows.db, "main") == 1) return fail(s, SQLITE_READONLY, error);
    if (format == 0) {
        rc = hx_sqlite_file_is_empty(s->rows.db, &empty);
        if (rc != SQLITE_OK) return fail(s, rc, error);
    }
    if (format > 0 || empty)
        if (!hx_sqlite_file_set_log(s->path, s->rows.db, error) || !hx_sqlite_file_settle_log(s->path, &s->rows, error))
            return false;
    if (format < HX_SQLITE_FORMAT && (!make_tables(s, error) || !read_secret(s, &format, error))) return false;
    if (!s->options.now && !follow_clock(s, &s->options, error)) return false;
    rc = hx_sqlite_tables_changes(&s->rows, &s->changes);
    if (rc != SQLITE_OK) return fail(s, rc, error);
    s->aside.db = hx_sqlite_file_connect(s->path, true, &rc);
    return s->aside.db ? true : fail(s, rc, error);
}

static void discard(hx_sqlite *s)
{
    disconnect(s);
    hx_waiters_free(&s->waiters);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->mutex);
    pthread_mutex_destroy(&s->aside_mutex);
    pthread_mutex_destroy(&s->attaching);
    explicit_bzero(s->store.facts.secret, sizeof s->store.facts.secret);
    free(s->path);
    free(s);
}

void hx_sqlite_close(hx_store *store)
{
    hx_sqlite *s = (hx_sqlite *)store;
    pthread_mutex_lock(&s->mutex);
    s->stopping = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->writer, NULL);
    HX_CHECK(hx_list_empty(&s->calls) && hx_list_empty(&s->sweeps));
    for (unsigned i = 0; i < s->reader_count; i++) {
        hx_sqlite_tables_end(&s->readers[i].rows);
        (void)sqlite3_close(s->readers[i].rows.db);
    }
    discard(s);
}

static hx_sqlite *make(hx_slice path, const hx_store_options *options)
{
    hx_sqlite *s = calloc(1, sizeof *s);
    char *copy = malloc(path.len + 1);
    if (!s || !copy) hx_fatal(HX_EXIT_BUG, "out of memory");
    memcpy(copy, path.ptr, path.len);
    copy[path.len] = '\0';
    s->path = copy;
    s->options = *options;
    s->store = (hx_store){.ops = &hx_sqlite_ops,
                          .facts = {.name = "sqlite",
                                    .durable = true,
                                    .keeps_items = true,
                                    .takes_events = true,
                                    .shared = true,
                                    .owner = hx_rand_u64(),
                                    .now = options->now ? options->now : hx_clock_now}};
    pthread_cond_init(&s->wake, NULL);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_mutex_init(&s->aside_mutex, NULL);
    pthread_mutex_init(&s->attaching, NULL);
    hx_list_init(&s->calls);
    hx_list_init(&s->notified);
    hx_list_init(&s->sweeps);
    hx_waiters_init(&s->waiters, options);
    return s;
}

hx_store *hx_sqlite_open(hx_slice path, const hx_store_options *options, hx_error_text error)
{
    if (path.len == 0 || hx_slice_eq(path, HX_LIT(":memory:"))) {
        (void)hx_fail(error,
                      "sqlite: needs a file, as in sqlite:/var/lib/hapax.db; a store that keeps nothing is memory:");
        return NULL;
    }
    hx_sqlite *s = make(path, options);
    bool ok = hx_store_limit(&s->store, options, error) && open_file(s, error);
    if (!ok && s->rows.db && (sqlite3_errcode(s->rows.db) & 0xff) == SQLITE_FULL && hx_sqlite_use_reserve(s)) {
        disconnect(s);
        ok = open_file(s, error);
    }
    if (!ok) {
        discard(s);
        return NULL;
    }
    s->options.secret = NULL; /* the caller's */
    s->options.unfinished = NULL;
    hx_sqlite_check_space(s, true);
    hx_sqlite_set_log(s);
    int failed = pthread_create(&s->writer, NULL, hx_sqlite_writer, s);
    if (failed == 0) return &s->store;
    (void)hx_fail(error, "can't start a thread: %s", strerror(failed));
    discard(s);
    return NULL;
}
