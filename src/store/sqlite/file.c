/* SPDX-License-Identifier: Apache-2.0 */
/* What is read from the log need not be on the disk: the first process to open the database takes every complete
 * transaction in the log for committed, even one that was never synced, or whose sync failed and which is in memory
 * only. SQLite's own sync before the next checkpoint doesn't help there, because the pages are clean. So each start
 * writes the log again, byte for byte, and syncs it, before it shows anything (hx_sqlite_file_settle_log). A process
 * that goes on after a failed sync needs none of that: what failed was never visible, and is written over by the next
 * commit.
 *
 * Nothing here opens the file but SQLite itself: closing any other descriptor of it would drop the locks that this
 * process holds on it, also those of connections that aren't ours. Its log has no such locks. */
#include "store/sqlite/file.h"

#include "base/rand.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BUSY_WAIT_NS (10 * INT64_C(1000000000)) /* for the lock of another process */
#define LOCKED_OUT_WAIT_NS INT64_C(250000000)   /* the same, while the last wait was in vain */
#define BUSY_NS_MAX UINT64_C(8000000)

/* SQLite's busy handler: another process writes. Its transactions are short, so the first attempts follow each other
 * quickly; delays are random, so that several processes don't retry in step. `context` is a bool, or NULL. */
int hx_sqlite_file_busy(void *context, int step)
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

sqlite3 *hx_sqlite_file_connect(const char *path, bool reads_only, int *rc)
{
    sqlite3 *db = NULL;
    int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_READWRITE | SQLITE_OPEN_PRIVATECACHE;
    *rc = sqlite3_open_v2(path, &db, flags, NULL);
    if (*rc == SQLITE_OK) {
        (void)sqlite3_extended_result_codes(db, 1);
        (void)sqlite3_busy_handler(db, hx_sqlite_file_busy, NULL);
        *rc = run(db, "PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF");
    }
    if (*rc == SQLITE_OK && reads_only) *rc = run(db, "PRAGMA query_only = ON");
    if (*rc == SQLITE_OK) return db;
    if (db && sqlite3_system_errno(db) != 0) errno = sqlite3_system_errno(db);
    (void)sqlite3_close(db);
    return NULL;
}

void hx_sqlite_file_explain(const char *path, int rc, int system_errno, hx_error_text error)
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

static bool fail(const char *path, sqlite3 *db, int rc, hx_error_text error)
{
    hx_sqlite_file_explain(path, rc, db ? sqlite3_system_errno(db) : errno, error);
    return false;
}

void hx_sqlite_file_sync_directory(const char *path)
{
    char *slash = strrchr(path, '/'), *directory = slash ? strndup(path, (size_t)(slash - path) + 1) : NULL;
    int fd = open(directory ? directory : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(directory);
    if (fd < 0) return; /* this user can't read it; SQLite syncs it again with its log */
    (void)fsync(fd);
    close(fd);
}

/* A new file is readable to its owner alone: the secret is in it. No process has locks on it that this could drop. */
bool hx_sqlite_file_make(const char *path, hx_error_text error)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return errno == EEXIST || fail(path, NULL, SQLITE_CANTOPEN, error);
    close(fd);
    hx_sqlite_file_sync_directory(path);
    return true;
}

/* Whether the database has no table at all. */
int hx_sqlite_file_is_empty(sqlite3 *db, bool *out)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db, "SELECT count(*) FROM sqlite_schema", -1, &s, NULL);
    if (rc != SQLITE_OK) return rc;
    rc = sqlite3_step(s);
    *out = rc == SQLITE_ROW && sqlite3_column_int(s, 0) == 0;
    (void)sqlite3_finalize(s);
    return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static int ask_for_log(sqlite3 *db, bool *is_wal)
{
    sqlite3_stmt *q = NULL;
    int rc = sqlite3_prepare_v2(db, "PRAGMA journal_mode = WAL", -1, &q, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(q);
    *is_wal = rc == SQLITE_ROW && sqlite3_column_text(q, 0) &&
              strcmp((const char *)sqlite3_column_text(q, 0), "wal") == 0;
    if (rc == SQLITE_ROW) rc = sqlite3_step(q); /* the first row comes before the change is written */
    (void)sqlite3_finalize(q);
    return rc;
}

/* Turns the write-ahead log on: readers don't wait for the writer, and one sync is the commit. The file keeps that.
 * Where several processes do so at once, SQLite doesn't ask the busy handler, which could wait for ever. */
bool hx_sqlite_file_set_log(const char *path, sqlite3 *db, hx_error_text error)
{
    bool is_wal = false;
    int rc = ask_for_log(db, &is_wal);
    for (int step = 0; (rc & 0xff) == SQLITE_BUSY && hx_sqlite_file_busy(NULL, step); step++)
        rc = ask_for_log(db, &is_wal);
    if (rc != SQLITE_DONE) return fail(path, db, rc, error);
    if (!is_wal)
        (void)hx_fail(error,
                      "%s is where processes can't share memory (a network mount?): put the store on a local disk",
                      path);
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
bool hx_sqlite_file_settle_log(const char *path, hx_sqlite_tables *rows, hx_error_text error)
{
    int rc = hx_sqlite_tables_run(rows, HX_SQL_BEGIN_WRITE);
    if (rc != SQLITE_OK) return fail(path, rows->db, rc, error);
    int fd = open(sqlite3_filename_wal(sqlite3_db_filename(rows->db, "main")), O_RDWR | O_CLOEXEC);
    int failed = fd >= 0 ? write_again(fd) : errno == ENOENT ? 0 : errno;
    if (fd >= 0) close(fd);
    hx_sqlite_file_sync_directory(path);
    (void)hx_sqlite_tables_run(rows, HX_SQL_ROLLBACK);
    if (failed)
        (void)hx_fail(error, "can't sync the log of the store in %s: %s; what is on the disk is not known", path,
                      strerror(failed));
    return !failed;
}

/* The time of the last change in the store; 0: it is empty. */
hx_ms hx_sqlite_file_last_stamp(hx_sqlite_tables *rows)
{
    sqlite3_stmt *q;
    hx_record last = {0};
    size_t head_len, answer_len;
    if (hx_sqlite_tables_prepare(rows, HX_SQL_HISTORY_LAST, &q) != SQLITE_OK) return 0;
    if (sqlite3_step(q) == SQLITE_ROW) {
        hx_slice head = {sqlite3_column_blob(q, 0), (size_t)sqlite3_column_bytes(q, 0)};
        if (head.len == 0 || hx_record_decode_head(head, &last, &head_len, &answer_len) != HX_RECORD_OK)
            last.changed_at = 0;
    }
    hx_sqlite_tables_reset(q);
    return last.changed_at;
}
