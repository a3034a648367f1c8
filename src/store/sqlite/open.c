/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a store in SQLite: a file of ours, a new one, or a program's database that has our tables in it
 * (in_transaction.h). Anything else is refused, and not changed.
 *
 * Nothing here opens the file but SQLite itself: closing any other descriptor of it would drop the locks that this
 * process holds on it, also those of connections that aren't ours. Its log has no such locks.
 *
 * What is read from the log need not be on the disk: the first process to open the database takes every complete
 * transaction in the log for committed, even one that was never synced, or whose sync failed and which is in memory
 * only. SQLite's own sync before the next checkpoint doesn't help there, because the pages are clean. So each start
 * writes the log again, byte for byte, and syncs it, before it shows anything (settle_log). A process that goes on
 * after a failed sync needs none of that: what failed was never visible, and is written over by the next commit. */
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

#define BUSY_WAIT_NS (10 * INT64_C(1000000000)) /* for the lock of another process */
#define LOCKED_OUT_WAIT_NS INT64_C(250000000)   /* the same, while the last wait was in vain */
#define BUSY_NS_MAX UINT64_C(8000000)
#define CLOCK_SKEW_MAX HX_SECOND

/* SQLite's busy handler: another process writes. Its transactions are short, so the first attempts follow each other
 * quickly; delays are random, so that several processes don't retry in step. `context` is hx_sqlite.is_locked_out, or
 * NULL. */
static int wait_for_others(void *context, int step)
{
    static _Thread_local int64_t began;
    bool *is_locked_out = context;
    int64_t max = is_locked_out && *is_locked_out ? LOCKED_OUT_WAIT_NS : BUSY_WAIT_NS;
    if (step == 0) began = hx_clock_mono_ns();
    if (hx_clock_mono_ns() - began >= max) {
        if (is_locked_out) *is_locked_out = true;
        return 0;
    }
    uint64_t ns = UINT64_C(100000) << (step < 7 ? step : 7);
    if (ns > BUSY_NS_MAX) ns = BUSY_NS_MAX;
    struct timespec pause = {0, (long)(ns / 2 + hx_rand_below(ns / 2))};
    (void)nanosleep(&pause, NULL);
    return 1;
}

static int run(sqlite3 *db, const char *sql)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

sqlite3 *hx_sqlite_connect(const char *path, bool reads_only, int *rc)
{
    sqlite3 *db = NULL;
    int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_READWRITE | SQLITE_OPEN_PRIVATECACHE;
    *rc = sqlite3_open_v2(path, &db, flags, NULL);
    if (*rc == SQLITE_OK) {
        (void)sqlite3_extended_result_codes(db, 1);
        (void)sqlite3_busy_handler(db, wait_for_others, NULL);
        *rc = run(db, "PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF");
    }
    if (*rc == SQLITE_OK && reads_only) *rc = run(db, "PRAGMA query_only = ON");
    if (*rc == SQLITE_OK) return db;
    if (db && sqlite3_system_errno(db) != 0) errno = sqlite3_system_errno(db);
    (void)sqlite3_close(db);
    return NULL;
}

void hx_sqlite_explain(const char *path, int rc, int system_errno, hx_error_text error)
{
    const char *why = system_errno != 0 ? strerror(system_errno) : sqlite3_errstr(rc);
    if (rc == SQLITE_READONLY_DBMOVED) {
        (void)hx_fail(error,
                      "%s was moved, removed or replaced while it was in use: put the same file back, or stop every "
                      "gateway before one is started on another file",
                      path);
        return;
    }
    switch (rc & 0xff) {
    case SQLITE_NOTADB: (void)hx_fail(error, "%s is no SQLite database: name another file for the store", path); return;
    case SQLITE_CORRUPT:
        (void)snprintf(
            error, sizeof(hx_error_text),
            "%s is damaged: stop every process that uses it, see `sqlite3 %s 'PRAGMA integrity_check'`, and restore a "
            "backup or save what `.recover` finds",
            path, path);
        return;
    case SQLITE_READONLY:
        (void)hx_fail(error,
                      "%s can't be written: give this user the right to write the file and the directory it is in "
                      "(SQLite makes files beside it)",
                      path);
        return;
    case SQLITE_FULL: (void)hx_fail(error, "no space for %s: free space on that disk", path); return;
    case SQLITE_BUSY:
        (void)hx_fail(error,
                      "%s was locked by another process for longer than ten seconds: find the process that has it "
                      "open (`fuser %s`), and end its transaction",
                      path, path);
        return;
    case SQLITE_CANTOPEN:
        (void)hx_fail(error,
                      "can't open %s: %s; its directory must be there, and this user must be able to write in it", path,
                      why);
        return;
    default: (void)hx_fail(error, "the store in %s can't be used: %s", path, why);
    }
}

static bool fail(const hx_sqlite *s, int rc, hx_error_text error)
{
    hx_sqlite_explain(s->path, rc, s->rows.db ? sqlite3_system_errno(s->rows.db) : errno, error);
    return false;
}

static void sync_directory_of(const char *path)
{
    char *slash = strrchr(path, '/'), *directory = slash ? strndup(path, (size_t)(slash - path) + 1) : NULL;
    int fd = open(directory ? directory : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(directory);
    if (fd < 0) return; /* this user can't read it; SQLite syncs it again with its log */
    (void)fsync(fd);
    close(fd);
}

static bool is_file(const hx_sqlite *s, bool *there, hx_error_text error)
{
    struct stat st;
    *there = stat(s->path, &st) == 0;
    if (!*there || S_ISREG(st.st_mode)) return true;
    return hx_fail(error, "%s is not a file: sqlite: needs one, as in sqlite:%s%shapax.db", s->path,
                   S_ISDIR(st.st_mode) ? s->path : "", S_ISDIR(st.st_mode) ? "/" : "/var/lib/");
}

/* A new file is readable to its owner alone: the secret is in it. No process has locks on it that this could drop. */
static bool make_file(const hx_sqlite *s, hx_error_text error)
{
    int fd = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return errno == EEXIST || fail(s, SQLITE_CANTOPEN, error);
    close(fd);
    sync_directory_of(s->path);
    return true;
}

/* Whether the database has no table at all. */
static int is_empty(sqlite3 *db, bool *out)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db, "SELECT count(*) FROM sqlite_schema", -1, &s, NULL);
    if (rc != SQLITE_OK) return rc;
    rc = sqlite3_step(s);
    *out = rc == SQLITE_ROW && sqlite3_column_int(s, 0) == 0;
    (void)sqlite3_finalize(s);
    return rc == SQLITE_ROW ? SQLITE_OK : rc;
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
        rc = is_empty(s->rows.db, &empty);
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

/* Turns the write-ahead log on: readers don't wait for the writer, and one sync is the commit. The file keeps that. */
static bool set_log(hx_sqlite *s, hx_error_text error)
{
    sqlite3_stmt *q = NULL;
    int rc = sqlite3_prepare_v2(s->rows.db, "PRAGMA journal_mode = WAL", -1, &q, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(q);
    bool is_wal = rc == SQLITE_ROW && sqlite3_column_text(q, 0) &&
                  strcmp((const char *)sqlite3_column_text(q, 0), "wal") == 0;
    if (rc == SQLITE_ROW) rc = sqlite3_step(q); /* the first row comes before the change is written */
    (void)sqlite3_finalize(q);
    if (rc != SQLITE_DONE) return fail(s, rc, error);
    if (!is_wal)
        (void)hx_fail(error,
                      "%s is where processes can't share memory (a network mount?): put the store on a local disk",
                      s->path);
    return is_wal;
}

static int write_again(int fd)
{
    char bytes[64 << 10];
    for (off_t at = 0;;) {
        ssize_t got = pread(fd, bytes, sizeof bytes, at);
        if (got > 0) got = pwrite(fd, bytes, (size_t)got, at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        if (got == 0) return fsync(fd) == 0 ? 0 : errno;
        at += got;
    }
}

/* Writes the log again and syncs it, inside a write transaction, so that no other process writes. */
static bool settle_log(hx_sqlite *s, hx_error_text error)
{
    int rc = hx_sqlite_tables_run(&s->rows, HX_SQL_BEGIN_WRITE);
    if (rc != SQLITE_OK) return fail(s, rc, error);
    int fd = open(sqlite3_filename_wal(sqlite3_db_filename(s->rows.db, "main")), O_RDWR | O_CLOEXEC);
    int failed = fd >= 0 ? write_again(fd) : errno == ENOENT ? 0 : errno;
    if (fd >= 0) close(fd);
    sync_directory_of(s->path);
    (void)hx_sqlite_tables_run(&s->rows, HX_SQL_ROLLBACK);
    if (failed)
        (void)hx_fail(error, "can't sync the log of the store in %s: %s; what is on the disk is not known", s->path,
                      strerror(failed));
    return !failed;
}

/* The time of the last change in the store; 0: it is empty. */
static hx_ms last_stamp(hx_sqlite *s)
{
    sqlite3_stmt *q;
    hx_record last = {0};
    size_t head_len, answer_len;
    if (hx_sqlite_tables_prepare(&s->rows, HX_SQL_HISTORY_LAST, &q) != SQLITE_OK) return 0;
    if (sqlite3_step(q) == SQLITE_ROW) {
        hx_slice head = {sqlite3_column_blob(q, 0), (size_t)sqlite3_column_bytes(q, 0)};
        if (head.len == 0 || hx_record_decode_head(head, &last, &head_len, &answer_len) != HX_RECORD_OK)
            last.changed_at = 0;
    }
    hx_sqlite_tables_reset(q);
    return last.changed_at;
}

/* The first process after a boot sets the store's clock, never behind the last change in the store; all others follow
 * it, as far as the host lets its clock be moved. */
static bool follow_clock(hx_sqlite *s, const hx_store_options *options, hx_error_text error)
{
    bool known;
    hx_ms now;
    int rc = hx_sqlite_tables_now(&s->rows, &now, &known);
    if (rc == SQLITE_OK && !known) {
        hx_ms stamp = last_stamp(s);
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
    bool ok = make_file(s, error);
    if (ok) {
        s->rows.db = hx_sqlite_connect(making, false, &rc);
        ok = s->rows.db ? make_tables(s, error) : fail(s, rc, error);
        disconnect(s);
    }
    s->path = path;
    if (ok && link(making, path) != 0 && errno != EEXIST) ok = fail(s, SQLITE_CANTOPEN, error);
    (void)unlink(making);
    sync_directory_of(path);
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
    if (!there && !(s->options.unfinished ? make_marked(s, error) : make_file(s, error))) return false;
    s->rows.db = hx_sqlite_connect(s->path, false, &rc);
    if (!s->rows.db) return fail(s, rc, error);
    (void)sqlite3_busy_handler(s->rows.db, wait_for_others, &s->is_locked_out);
    if (!read_secret(s, &format, error)) return false;
    if (sqlite3_db_readonly(s->rows.db, "main") == 1) return fail(s, SQLITE_READONLY, error);
    if (format == 0) {
        rc = is_empty(s->rows.db, &empty);
        if (rc != SQLITE_OK) return fail(s, rc, error);
    }
    if (format > 0 || empty)
        if (!set_log(s, error) || !settle_log(s, error)) return false;
    if (format < HX_SQLITE_FORMAT && (!make_tables(s, error) || !read_secret(s, &format, error))) return false;
    if (!s->options.now && !follow_clock(s, &s->options, error)) return false;
    rc = hx_sqlite_tables_changes(&s->rows, &s->changes);
    if (rc != SQLITE_OK) return fail(s, rc, error);
    s->aside.db = hx_sqlite_connect(s->path, true, &rc);
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
