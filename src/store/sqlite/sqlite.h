/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the SQLite store share, and which thread may use what:
 *
 *     loops (sqlite.c)                       the queue, under the mutex; connections for reading
 *     the writer thread (writer.c, reserve.c)   the connection that writes, the waiters, the current batch
 *     any thread (sqlite.c)                  one more connection, `aside`, under a mutex of its own
 *     who has the connection (items.c)       what it reads and writes of items on it
 *
 * Other processes use the same file at the same time, each with a writer of its own. */
#ifndef HX_STORE_SQLITE_SQLITE_H
#define HX_STORE_SQLITE_SQLITE_H

#include "store/shared_record.h"
#include "store/sqlite/tables.h"
#include "store/waiters.h"

#include <pthread.h>
#include <stdatomic.h>

#define HX_SQLITE_READERS_MAX 64u
#define HX_SQLITE_BATCH_MAX 512u

/* What a batch may write, by the space on the disk. */
typedef enum {
    HX_SPACE_FOR_ALL,
    HX_SPACE_FOR_ENDS,   /* no new operations, and of items only urgent commits */
    HX_SPACE_FOR_SMALL,  /* the same, and no large commits, and outcomes without large responses */
    HX_SPACE_FOR_STATES, /* no new operations, no items, and outcomes without their responses */
} hx_sqlite_space;

/* The row of an item, before a commit changes it. */
typedef struct {
    int64_t id; /* 0: there is none */
    hx_ms expires_at;
} hx_sqlite_item_row;

/* A connection for reading; there are as many as loops. It is taken for one read. */
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

    /* the writer's */
    pthread_t writer;
    hx_sqlite_tables rows;
    hx_waiters waiters;
    hx_link notified; /* watches that end with the commit of this batch, by own.waiter.link */
    hx_link sweeps;
    const hx_store_rules *retired;
    struct {
        hx_store_call *calls[HX_SQLITE_BATCH_MAX];
        size_t count;
        hx_sqlite_space space;
        uint64_t epoch;     /* last epoch that was drawn; 0: not read yet */
        uint64_t raised_to; /* the epoch to write at the end; 0: none */
        hx_ms now;
        uint64_t stale, cleaned, unretained, begun;
        const hx_store_rules *retired;
        bool reads; /* the batch only reads */
        bool has_claims;
    } batch;
    bool is_tight;        /* a write found the disk full: no new operations until there is space again */
    bool is_reserve_used; /* this process has used the reserve and not restored it yet */
    bool is_over_limit;   /* bytes_max is reached */
    bool is_below_floor;  /* the disk has less free space than free_bytes_floor */
    uint64_t new_max;     /* most operations that may begin in a batch, by the free space */
    hx_sqlite_item_row items[HX_COMMIT_ITEMS_MAX]; /* of the commit that is under way */
    int64_t checked_at_ns;                         /* time of the last full check of the space */
    int64_t changes;                               /* PRAGMA data_version, as last read */
    bool recheck_all;                              /* the watches must be rechecked, whatever `changes` says */
    int64_t poll_ns;
    int last_error;     /* error that was last logged */
    bool is_locked_out; /* another process kept its lock for as long as a batch waits: until one succeeds, batches wait
                         * for a moment only, so that calls don't wait for all batches before theirs */

    _Atomic uint64_t bytes_max;
    _Atomic hx_ms audit_retention;
    _Atomic uint64_t item_commits; /* that have not ended */
    _Atomic uint64_t commits, stale_writes, cleaned, unretained;

    pthread_mutex_t aside_mutex;
    hx_sqlite_tables aside;
    hx_store_counts last_counts; /* returned when the file can't be read */

    pthread_mutex_t attaching;
    hx_sqlite_reader readers[HX_SQLITE_READERS_MAX];
    atomic_uint reader_count;
} hx_sqlite;

extern const hx_store_ops hx_sqlite_ops;
void hx_sqlite_close(hx_store *store);

void *hx_sqlite_writer(void *context);
/* Ends a call on its loop. `shown` may be NULL, and is the caller's to drop. */
void hx_sqlite_post(hx_store_call *call, hx_store_result result, hx_shared_record *shown);

/* Checks the free space, and sets what a batch may write. The costly part is done once a second, or `now`. */
void hx_sqlite_check_space(hx_sqlite *s, bool now);
/* Sets how long the log may become. */
void hx_sqlite_set_log(hx_sqlite *s);
/* Whether so many bytes of responses can be written now. */
bool hx_sqlite_has_space_for(hx_sqlite *s, uint64_t answer_bytes);
/* Removes the reserve, so that its space can be used. False: there was none. */
bool hx_sqlite_use_reserve(hx_sqlite *s);
/* The space that a commit of items takes, in claims. */
uint64_t hx_sqlite_claims_of(const hx_store_call *commit);
/* Checkpoints the log into the file, so that the log is reused instead of growing. */
void hx_sqlite_shorten_log(hx_sqlite *s);

/* Items, inside a transaction of the caller. All but the first return SQLite's code, as those of tables.h do. */
size_t hx_sqlite_item_bytes(const hx_store_call *commit);
/* Compares the versions, and finds the rows. commit->stale is set where one differs. */
int hx_sqlite_items_compare(hx_sqlite_tables *rows, hx_store_call *commit, hx_ms now, hx_sqlite_item_row *found);
/* Makes the changes of a commit under commit->version. */
int hx_sqlite_items_write(hx_sqlite_tables *rows, const hx_store_call *commit, const hx_sqlite_item_row *found);
/* A get or scan. What it finds is in `arena`. */
int hx_sqlite_items_read(hx_sqlite_tables *rows, hx_store_call *call, hx_arena *arena, hx_ms now);
/* How many expired items one transaction should remove, at most `max`: fewer where their bodies are large. */
int hx_sqlite_items_over(hx_sqlite_tables *rows, hx_ms now, unsigned max, unsigned *count);
int hx_sqlite_items_drop(hx_sqlite_tables *rows, hx_ms now, unsigned max, unsigned *dropped);

#endif
