/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the SQLite store share. Who may touch what:
 *
 *     loops   (sqlite.c)         the queue under the mutex; connections for reading
 *     clerk   (sqlite_clerk.c,   the connection that writes, the watches, the batch in hand
 *              sqlite_room.c)
 *     anyone  (sqlite.c)         one more connection for questions from any thread, under its own mutex
 *
 * Other processes do the same on the same file, each with a clerk of its own. */
#ifndef HX_STORE_SQLITE_SQLITE_H
#define HX_STORE_SQLITE_SQLITE_H

#include "store/shared_record.h"
#include "store/sqlite/tables.h"
#include "store/waiters.h"

#include <pthread.h>
#include <stdatomic.h>

#define HX_SQLITE_READERS_MAX 64u
#define HX_SQLITE_BATCH_MAX 512u

/* How much a batch may write. */
typedef enum {
    HX_ROOM_FOR_ALL,
    HX_ROOM_FOR_ENDS,  /* no new operations */
    HX_ROOM_FOR_SMALL, /* and outcomes without large answers */
    HX_ROOM_FOR_MARKS, /* and without any */
} hx_room;

/* A connection for reading, as many as there are loops; whoever reads takes one for as long as that takes. */
typedef struct {
    atomic_flag taken;
    hx_sqlite_tables rows;
} hx_sqlite_reader;

typedef struct hx_sqlite {
    hx_store store;
    char *path;
    hx_store_options options;

    pthread_mutex_t mutex;
    pthread_cond_t wake;
    /* under the mutex */
    hx_link calls;
    hx_store_call *cancels, *last_cancel;
    uint64_t sequence;
    bool stopping, is_asleep;

    pthread_t clerk;
    hx_sqlite_tables rows;
    hx_waiters waiters;
    hx_link notified; /* watches that end with the commit of this batch, by own.waiter.link */
    hx_link sweeps;
    const hx_store_rules *retired;
    struct {
        hx_store_call *calls[HX_SQLITE_BATCH_MAX];
        size_t count;
        hx_room room;
        uint64_t epoch, raised_to; /* 0: not asked for yet; as it shall be written */
        hx_ms now;
        uint64_t stale, cleaned, unretained, begun;
        const hx_store_rules *retired;
        bool reads; /* and does nothing else */
        bool has_claims;
    } batch;
    bool is_tight;        /* something found no room: only ends are written until there is some again */
    bool is_broken;       /* the reserve was given up, by this process, and isn't back */
    bool is_over_limit;   /* bytes_max is reached */
    bool is_below_floor;  /* others have filled the disk */
    uint64_t new_max;     /* so many operations may begin, by the room that there is */
    int64_t looked_at_ns; /* when room was last looked for */
    int64_t changes;      /* of the file, as others make them: as last seen */
    bool look_at_all;     /* watches must be looked at, whatever `changes` says */
    int64_t poll_ns;
    int last_error;     /* that was reported */
    bool is_locked_out; /* another process kept its lock for as long as a batch waits: until one succeeds, batches wait
                         * for a moment only, so that calls don't wait for all batches before theirs */

    _Atomic uint64_t bytes_max;
    _Atomic uint64_t commits, stale_writes, cleaned, unretained;

    pthread_mutex_t aside_mutex;
    hx_sqlite_tables aside;
    hx_store_counts last_counts; /* for when the file can't be read */

    pthread_mutex_t attaching;
    hx_sqlite_reader readers[HX_SQLITE_READERS_MAX];
    atomic_uint reader_count;
} hx_sqlite;

extern const hx_store_ops hx_sqlite_ops;
void hx_sqlite_close(hx_store *store);

/* A connection to the store's file, which waits for other processes where it has to; NULL with SQLite's code in *rc. */
sqlite3 *hx_sqlite_connect(const char *path, bool reads_only, int *rc);
/* A sentence about what SQLite said. */
void hx_sqlite_explain(const char *path, int rc, int system_errno, char error[HX_STORE_ERROR_BYTES]);

void *hx_sqlite_writer(void *context);
/* Ends a call on its loop. `shown` may be NULL, and is the caller's to drop. */
void hx_sqlite_post(hx_store_call *call, hx_store_result result, hx_shared_record *shown);

/* Whether there is room for new operations. What takes longer is looked at once a second, or `now`. */
void hx_sqlite_look_for_room(hx_sqlite *s, bool now);
/* How long the log may grow. */
void hx_sqlite_set_log(hx_sqlite *s);
/* Whether so many bytes of answers can be written now. */
bool hx_sqlite_has_room_for(hx_sqlite *s, uint64_t answer_bytes);
/* Gives up what is kept for the worst: true when there was something to give up. */
bool hx_sqlite_break_reserve(hx_sqlite *s);
/* Brings what is in the log into the file, so that the log can be written over instead of growing. */
void hx_sqlite_shorten_log(hx_sqlite *s);

#endif
