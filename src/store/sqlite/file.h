/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a store in SQLite and the connections to it, for the store of the daemon and for libhapax. Nothing here
 * starts a thread. */
#ifndef HX_STORE_SQLITE_FILE_H
#define HX_STORE_SQLITE_FILE_H

#include "base/fail.h"
#include "store/sqlite/tables.h"

/* Opens a connection to the file, which waits for the locks of other processes. NULL with SQLite's code in *rc. */
sqlite3 *hx_sqlite_file_connect(const char *path, bool reads_only, int *rc);
/* SQLite's busy handler of such a connection: waits up to ten seconds, then sets the bool at `context`, if it isn't
 * NULL; while that is true it waits for a moment only. */
int hx_sqlite_file_busy(void *context, int step);
/* Explains a code of SQLite, and what to do. */
void hx_sqlite_file_explain(const char *path, int rc, int system_errno, hx_error_text error);

/* Makes an empty file unless there is one, readable to its owner alone: the secret will be in it. */
bool hx_sqlite_file_make(const char *path, hx_error_text error) HX_MUST_USE;
void hx_sqlite_file_sync_directory(const char *path);
/* Whether the database has no table at all. */
int hx_sqlite_file_is_empty(sqlite3 *db, bool *out);
/* Turns the write-ahead log on. */
bool hx_sqlite_file_set_log(const char *path, sqlite3 *db, hx_error_text error) HX_MUST_USE;
/* Writes the log again and syncs it: from here on, what is read is on the disk. */
bool hx_sqlite_file_settle_log(const char *path, hx_sqlite_tables *rows, hx_error_text error) HX_MUST_USE;
/* The time of the last change in the store; 0: it is empty. */
hx_ms hx_sqlite_file_last_stamp(hx_sqlite_tables *rows);

#endif
