/* SPDX-License-Identifier: Apache-2.0 */
/* What the journal's files share. Threads, and what each may touch:
 *
 *     loops       (journal.c, list.c, items.c)      their half of their port; index and segments, for reading
 *     writer      (writer.c, operations.c, items.c, everything that changes: open operations, indexes, tail, and the
 *                  log.c, sweep.c, reserve.c)       accounts of segments
 *     background  (background.c, hint.c, archive.c) slow work on files: preparing segments, hints, archiving
 *
 * hx_journal_open runs the writer's part itself before there are threads. */
#ifndef HX_STORE_JOURNAL_JOURNAL_H
#define HX_STORE_JOURNAL_JOURNAL_H

#include "base/memory/map.h"
#include "store/item_bytes.h"
#include "store/item_index.h"
#include "store/journal/index.h"
#include "store/journal/log.h"
#include "store/journal/route_ids.h"
#include "store/shared_record.h"
#include "store/backend.h"
#include "store/waiters.h"

#include <pthread.h>
#include <stdatomic.h>

#define HX_SEGMENT_BYTES (64u << 20)
#define HX_SEGMENTS_MAX (1u << 14)       /* segments at a time: 1 TiB */
#define HX_SEGMENT_BYTES_MIN (16u << 20) /* size on a small disk; the largest response still fits */
#define HX_FREE_BYTES_FLOOR (256u << 20)
#define HX_LIMIT_SEGMENTS 8u /* a segment has at most the store's limit divided by this */
#define HX_PORTS_MAX 64u

typedef struct hx_journal hx_journal;

/* The most that settling a claim takes without its response, with the HX_FRAME_SYNCED behind it. */
#define HX_BARE_BYTES (2 * sizeof(hx_frame_head) + HX_RECORD_HEAD_MAX)

/* The segments that there must be; the last may be one that was never used. */
typedef struct {
    uint32_t first, last;
} hx_segment_range;

/* A message is a call's address, the lowest bit telling which of its two links it uses: 0 the call itself or its end,
 * 1 its cancelling or the end of that. A mailbox is a stack of them, newest first. */
typedef _Atomic uintptr_t hx_mailbox;

typedef struct hx_port {
    hx_journal *journal;
    hx_loop *loop;
    /* the loop's half */
    uintptr_t gathered, gathered_oldest;
    uint32_t gathered_count;
    hx_task hand_over;
    bool gathering, once_more;
    /* between */
    hx_mailbox to_writer, to_loop;
    /* the writer's half */
    uintptr_t ended, ended_oldest;
    hx_task wake;
} hx_port;

/* An operation in processing, or one that changes in the batch at hand. */
typedef struct hx_open {
    hx_op op;
    hx_state state; /* state as decided; the index has it once it is durable */
    uint64_t epoch;
    hx_ms lease_until;
    unsigned changes; /* number of changes in this batch */
    struct hx_open *next_free;
} hx_open;

typedef struct {
    hx_index_entry entry;
    hx_open *open; /* the operation; NULL: a moved record */
} hx_change;

/* Items (items.c). */
typedef struct {
    pthread_mutex_t lock;  /* of `index`, which the writer changes and loops read */
    hx_item_index index;   /* what is durable */
    hx_item_index pending; /* the changes of the batch at hand, the last one of each item; version 0: it is removed */
    /* The sweep: the earliest end of a lifetime, 0: none; when it last began a walk, and how far that has come. */
    hx_ms earliest, walked_at;
    size_t cursor_len;
    char cursor[HX_ITEM_KEY_MAX]; /* a key */
} hx_journal_items;

typedef enum {
    HX_JOB_HINT,    /* write the hint of the segment */
    HX_JOB_ARCHIVE, /* make an archive of the segment, and remove it */
    HX_JOB_PRUNE    /* remove the archives before the segment */
} hx_job_kind;

typedef struct hx_job {
    struct hx_job *next;
    hx_job_kind kind;
    uint32_t segment;
    bool reported;
} hx_job;

/* The archive, as far as the sweep knows it (archive.c). */
typedef struct {
    uint32_t first; /* number of the oldest .audit file, or of the first segment */
    hx_ms latest;   /* stamp of the last change in it; 0: not read yet */
} hx_archive;

typedef struct {
    pthread_t thread;
    bool running;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool stop;
    /* the segments to come, prepared in advance */
    hx_segment *spares;
    unsigned spare_count, spare_goal;
    uint32_t spare_number;  /* number of the next spare to prepare */
    bool failing;           /* the last attempt to prepare a spare failed */
    unsigned waiting_count; /* number of threads that wait for a spare */
    _Atomic uint64_t taken; /* bytes of the active segment that are in use, updated now and then */
    hx_job *first, **last;
} hx_background;

typedef enum { HX_SWEEP_IDLE, HX_SWEEP_LEASES, HX_SWEEP_EXPIRY, HX_SWEEP_ITEMS, HX_SWEEP_SEGMENTS } hx_sweep_phase;

typedef struct {
    hx_link waiting; /* sweep calls for the next pass */
    hx_link served;  /* sweep calls that end with this pass */
    hx_sweep_phase phase;
    uint32_t cursor; /* position in the index */
    hx_tail emptied; /* up to where records of the oldest segment were copied; segment 0: not begun */
    uint64_t cleaned;
    /* The earliest end of a lifetime in the index, in seconds since 1970, so that no sweep walks through millions
     * of entries to find that none is over; 0: not known yet. `seen` is the same for the walk that is under way. */
    uint32_t earliest, earliest_seen;
    hx_ms walked_at;
} hx_sweeping;

struct hx_journal {
    hx_store store;
    hx_store_options options; /* as given; the fields below replace some of them */
    _Atomic uint64_t bytes_max;
    _Atomic hx_ms audit_retention;
    char *path;
    bool salvaged; /* opened for reading only (salvage.c) */
    int dir_fd, lock_fd;

    hx_reclaim *readers;
    hx_index *index;
    hx_journal_items items;
    hx_route_ids *rules;
    _Atomic(hx_segment *) segments[HX_SEGMENTS_MAX]; /* by number, modulo */
    _Atomic uint32_t first_segment;

    _Atomic(hx_port *) ports[HX_PORTS_MAX];
    _Atomic unsigned port_count;
    pthread_mutex_t attaching;

    pthread_t writer;
    bool writing;             /* the writer's thread is running */
    _Atomic uint32_t asleep;  /* the writer sleeps until this many calls wait; 0: it is awake */
    _Atomic uint32_t waiting; /* calls in the mailboxes, or about to be */
    atomic_bool stop;

    /* the writer's */
    hx_frame_log log;
    hx_ms now;                              /* time of the current batch */
    hx_change changes[HX_BATCH_FRAMES_MAX]; /* changes that the next commit makes visible */
    unsigned change_count;
    hx_map *opened;
    hx_waiters waiters;
    hx_open *open_free;
    bool refuses_claims; /* too little space for new claims */
    const hx_store_rules *retired;
    bool has_moved;          /* the directory was moved: another start would not find this store */
    bool below_floor;        /* the disk has less free space than the floor */
    uint64_t spare_bytes;    /* bytes that fit in prepared segments, as far as the writer knows */
    bool lacks_space_logged; /* an outcome was stored without its response, and that was logged */
    struct {
        uint32_t recent;  /* number of calls in the last commit */
        uint32_t goal;    /* number of calls that the next commit should have */
        bool fresh;       /* the writer has not waited since the last commit */
        uint32_t in_vain; /* consecutive waits for more calls in which none came */
        uint32_t skip;    /* number of commits to make without waiting */
    } pacing;
    hx_sweeping sweep;
    hx_archive archive;

    hx_background background;
    hx_segment_range row; /* content of the file `segments`; used by the background thread only */
    _Atomic uint64_t bytes;
    struct {
        _Atomic uint64_t live, processing, unknown, stale_writes, cleaned, unretained;
    } counts;
};

extern const hx_store_ops hx_journal_ops;
/* For counters that one thread changes and others read. */
static inline void hx_journal_count_by(_Atomic uint64_t *counter, int64_t by)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed) + (uint64_t)by;
    atomic_store_explicit(counter, value, memory_order_relaxed);
}
hx_slice hx_journal_op_key(const hx_op *op);
void hx_journal_free(hx_journal *j);
/* The number of a record's rules. */
uint16_t hx_journal_rule(hx_journal *j, const hx_record *record);
hx_segment *hx_journal_segment(hx_journal *j, uint32_t number);
/* Changes index and accounts as a durable record says; state HX_ABSENT removes. */
void hx_journal_apply(hx_journal *j, const hx_index_entry *entry);
/* The journal has no more use for the segment: it goes, with the last of its pins. */
void hx_segment_drop(void *segment);
/* Reads the record at a place into memory of the caller's; false when it isn't what the entry says. A body of more than
 * `whole_max` bytes is checked and stays where it is, its segment pinned for as long as the arena lives; 0: never. */
bool hx_journal_read(hx_journal *j, const hx_index_entry *entry, hx_arena *arena, size_t whole_max,
                     hx_record *out) HX_MUST_USE;

#define HX_HEADS_BYTES (sizeof(hx_frame_head) + HX_RECORD_HEAD_MAX)
/* The same without its response; the record's texts are in `bytes`. */
bool hx_journal_read_head(hx_journal *j, const hx_index_entry *entry, char bytes[HX_HEADS_BYTES],
                          hx_record *out) HX_MUST_USE;
/* Reads a record of a salvaged journal that is known in part only. Its texts are in `arena`. */
bool hx_salvage_read(hx_journal *j, const hx_index_entry *entry, hx_arena *arena, hx_record *out) HX_MUST_USE;
void hx_journal_report_unreadable(const hx_journal *j, const hx_index_entry *entry);

/* The writer only. Appends to the batch, ending it first when it or the segment is full; false: no space on disk. */
bool hx_journal_append(hx_journal *j, hx_frame_kind kind, const hx_index_entry *entry, hx_open *open, hx_slice head,
                       const hx_answer *answer) HX_MUST_USE;
/* Makes space for a frame, ending the batch first when it or the segment is full. False: the disk has no space. */
bool hx_journal_make_room(hx_journal *j, uint64_t length) HX_MUST_USE;
/* The frame of a process that has opened the store; with an epoch, later ones are drawn above that. */
bool hx_journal_append_start(hx_journal *j, uint64_t epoch) HX_MUST_USE;
/* Ends the batch: writes it, syncs it, makes its changes visible in the index, and hands ended calls to their loops. */
void hx_journal_flush(hx_journal *j);
/* Turns an operation in processing into HX_UNKNOWN, or an outcome whose lifetime is over into HX_EXPIRED. An
 * operation that has changed since stays as it is. False: no space on disk. */
bool hx_journal_lapse(hx_journal *j, const hx_op *op, hx_state to, hx_slice reason);
/* Makes a record without a response durable, where there is none yet. False: no space on disk. */
bool hx_journal_put(hx_journal *j, const hx_record *record);
/* Decides a call that changes an operation, and ends it with the commit of this batch. */
void hx_journal_perform(hx_journal *j, hx_store_call *call);
void hx_journal_end_call(hx_store_call *call, hx_store_result result);
/* Hands the calls that have ended to their loops. */
void hx_journal_deliver(hx_journal *j);
void *hx_journal_writer(void *journal);
/* Whether a frame of `length` leaves as much free as its use must (reserve.c), beside what the claims in flight need;
 * it may wait for another segment to be prepared. Settling a claim without its response needs no permission. */
typedef enum { HX_RESERVE_CLAIM, HX_RESERVE_SWEEP, HX_RESERVE_RESPONSE, HX_RESERVE_URGENT } hx_reserve_use;
bool hx_journal_may_append(hx_journal *j, uint64_t length, hx_reserve_use use);
/* One bounded step; false: nothing to do. */
bool hx_journal_sweep_step(hx_journal *j);

void hx_mailbox_put(hx_mailbox *box, uintptr_t newest, uintptr_t oldest, bool *was_empty);
/* All messages, oldest first; their links lead to the next, 0 at the end. */
uintptr_t hx_mailbox_take(hx_mailbox *box);
static inline hx_store_call *hx_mail_call(uintptr_t mail)
{
    return (hx_store_call *)(mail & ~(uintptr_t)1); /* NOLINT(performance-no-int-to-ptr) */
}
static inline uintptr_t *hx_mail_next(uintptr_t mail)
{
    return &hx_mail_call(mail)->own.journal.next[mail & 1];
}

/* Takes the lock of a directory or a segment, until fd is closed. True: another process has it. A file system that
 * knows no such locks has at least that of the file `lock`. */
bool hx_lock_is_others(int fd) HX_MUST_USE;
/* Checks that a next start would find the directory by its path, and the active segment in it: j->has_moved. */
void hx_dir_check_place(hx_journal *j);

/* A list or a history, in steps on the caller's loop. */
void hx_journal_look_through(hx_journal *j, hx_store_call *call);

/* Items. */
void hx_items_init(hx_journal_items *items);
void hx_items_free(hx_journal_items *items);
/* On the caller's loop: encodes a commit; performs a get or a scan. */
void hx_items_encode(hx_store_call *call);
void hx_items_read(hx_journal *j, hx_store_call *call);
/* The writer only. Decides a commit, and ends it with the commit of this batch. */
void hx_items_commit(hx_journal *j, hx_store_call *call);
/* Shows the changes of a batch that is durable. */
void hx_items_flush(hx_journal *j);
/* What a frame at that offset leaves of an item; version 0: it is removed. Owned by the caller. */
hx_indexed_item *hx_items_indexed(const hx_item_head *head, uint32_t segment, uint64_t offset, uint64_t sequence);
/* Takes the item, and changes index and accounts. The lock is held, or there are no threads yet. */
void hx_items_apply(hx_journal *j, hx_indexed_item *item);
void hx_items_replay(hx_journal *j, const hx_frame *frame);
/* Copies the items of a frame forward that the index still finds there. False: no space on disk. */
bool hx_items_move(hx_journal *j, const hx_frame *frame, bool *any) HX_MUST_USE;
/* One bounded step of a walk that removes what has expired, and adds up how many. False: the walk is at its end. */
bool hx_items_expire(hx_journal *j, uint64_t *removed);
bool hx_items_time_to_walk(hx_journal *j);

/* The background thread. */
/* 0, or the errno of why there is no thread. */
int hx_background_start(hx_journal *j);
void hx_background_stop(hx_journal *j);
/* The next segment, waiting while it is being prepared; NULL: it can't be. */
hx_segment *hx_background_take_spare(hx_journal *j);
/* Whether new segments can be prepared; updates spare_bytes. */
bool hx_background_has_room(hx_journal *j);
/* Waits for one more segment than there is; false: it can't be made. */
bool hx_background_await_spare(hx_journal *j);
void hx_background_check_limits(hx_journal *j);
/* Counts the bytes of all files. */
void hx_background_count_bytes(hx_journal *j);
void hx_background_want(hx_journal *j, hx_job_kind kind, uint32_t segment);
/* 0, or an errno. */
int hx_background_write_hint(hx_journal *j, uint32_t segment);
hx_segment *hx_background_prepare(hx_journal *j, uint32_t number, int *error);
/* 0, or ENOSPC or EDQUOT; any other failure ends the process: a sync is never tried again. */
int hx_sync(const hx_journal *j, int fd);
int hx_write_all(int fd, const void *bytes, size_t len); /* returns 0, or an errno */

/* Makes NNNNNNNN.audit of NNNNNNNN.seg, then removes the segment and its hint. It can be repeated after a crash. 0, or
 * an errno. */
int hx_archive_write(hx_journal *j, uint32_t segment);
/* Removes the archives before `keep_from`. 0, or an errno. */
int hx_archive_prune(hx_journal *j, uint32_t keep_from);
/* The writer only: gives up archives that are older than the retention. True: there may be more. */
bool hx_archive_retire(hx_journal *j);

/* Reads the hint of a segment into index and tail; false: there is none that can be used, nothing has changed. */
bool hx_hint_load(hx_journal *j, uint32_t segment, const hx_segment_head *next, hx_tail *tail);
/* How many operations the hint has; 0 without one. */
uint64_t hx_hint_count(hx_journal *j, uint32_t segment);

#endif
