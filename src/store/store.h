/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of a store, which every backend keeps. It remembers operations; it decides nothing about HTTP.
 *
 *  G1  Durable: a call that ends HX_STORE_OK has been written so that no crash, restart or power cut undoes it
 *      (except in a store whose facts say otherwise: memory). Nothing a reader sees could still be undone that way.
 *  G2  One winner: of all claims for an operation that is absent, one gets OK; the others get EXISTS and the current
 *      record. What has expired is absent, or HX_EXPIRED, which can't be claimed, while the store keeps its tombstone.
 *  G3  Fenced: a settle or renew whose epoch the record no longer carries changes nothing and ends STALE, with the
 *      current record. So does a renew of what has left processing.
 *  G4  Epochs grow and are never used twice: not after a release, an expiry, a restart, a restore or a copy.
 *  G5  Within one epoch the first durable outcome wins. processing may become anything; unknown may become completed,
 *      failed or absent; completed and failed are final until they expire (a settle of those ends STALE).
 *  G6  Only completed and failed expire, to the second, rounded up (hx_store_lapsed); unknown stays. A sweep makes
 *      processing with a lease that is over unknown, never absent. The epoch stays: its holder can still settle it.
 *  G7  A watch ends once, when its operation has left processing in the watched epoch, or was not in it to begin with.
 *  G8  Every call's completion fires exactly once, on its own loop, never inside the call that started it; a cancelled
 *      call's too. Calls of one loop on one operation take effect in the order in which they were made (except
 *      those that a connection to a shared store holds when it hangs: later ones overtake them).
 *  G9  Opening an exclusive store turns every processing record of an earlier start into unknown before anything else.
 *
 * Calls come from the threads of attached loops. A call and what it points to are the caller's, and live until its
 * completion. The journal allocates nothing on the heap for a claim, a settle or a peek once it is warm. Backends
 * include store/backend.h. */
#ifndef HX_STORE_STORE_H
#define HX_STORE_STORE_H

#include "base/fail.h"
#include "base/memory/list.h"
#include "base/loop/loop.h"
#include "core/operation/lifecycle.h"
#include "store/call_state.h"
#include "store/items.h"

typedef struct hx_store hx_store;

typedef enum {
    HX_STORE_OK,
    HX_STORE_EXISTS,      /* claim, import: `found` is the current record */
    HX_STORE_STALE,       /* settle, renew, forget: `found` is the current record, state HX_ABSENT where there is none.
                           * claim: the operation to take over is absent. commit: `stale` is an item with another
                           * version */
    HX_STORE_FULL,        /* no space for a new operation or item, or too many waiters; what is in flight still
                           * settles */
    HX_STORE_UNAVAILABLE, /* the backend can't be reached, or refuses; a write may have happened or not */
    HX_STORE_CANCELLED,
    HX_STORE_RETIRED, /* claim: its rules are not in force (hx_store_retire, hx_store_enforce); it wrote nothing */
} hx_store_result;

typedef enum {
    HX_STORE_CLAIM,
    HX_STORE_SETTLE,
    HX_STORE_RENEW,
    HX_STORE_WATCH,
    HX_STORE_FORGET,
    HX_STORE_SWEEP,
    HX_STORE_LIST,
    HX_STORE_HISTORY,
    HX_STORE_RETIRE,
    HX_STORE_READ,
    HX_STORE_ENFORCE,
    HX_STORE_IMPORT,
    HX_STORE_COMMIT, /* this and the next two: store/items.h */
    HX_STORE_GET,
    HX_STORE_SCAN,
} hx_store_verb;

/* A page of records, for operators. A field of the filter that is zero or empty excludes nothing. */
typedef struct {
    /* given by the caller */
    unsigned states; /* bits: 1u << HX_UNKNOWN and so on */
    hx_slice route;
    hx_slice reason;      /* a prefix of the reason */
    hx_ms changed_from;   /* changed at this time or later */
    hx_ms changed_before; /* changed before this time */
    hx_digest key;        /* the MAC of a clear key, with has_key */
    bool has_key;
    const hx_slice *paths; /* only operations without a named route, on one of these: "POST /refunds" */
    size_t path_count;
    unsigned records_max; /* 1 to HX_STORE_PAGE_MAX */
    uint64_t cursor;      /* 0 for the first page; given back for the next, valid until the store is closed */
    /* given back, in the call's arena */
    hx_record *records; /* without the headers and bodies of their responses */
    size_t count;
    bool more; /* there may be more pages */
} hx_store_page;

#define HX_STORE_PAGE_MAX 1000u

/* Rules under which operations are claimed: a named route and its version (which has HX_RULE_NAMED set), or the rules
 * of all requests without a named route. */
typedef struct {
    hx_slice route; /* empty: without a named route; for hx_store_retire also one method and path */
    uint32_t version;
    uint64_t live; /* operations: processing, unknown, completed, failed, and tombstones */
} hx_store_rule;

typedef struct {
    hx_store_rule *rules; /* no two are equal; in no order */
    size_t count, cap;
    uint64_t others; /* live operations under rules past the limit of rules that a store counts apart */
} hx_store_rules;

/* One asynchronous call, embedded in what made it. Zero it, then use one of the functions below. */
typedef struct hx_store_call {
    /* given by the caller */
    hx_store_verb verb;
    hx_loop *loop;
    hx_arena *arena;             /* of the loop's thread; gets the bytes of `found` */
    hx_record *record;           /* claim, settle, import: the record to write. Only its epoch is changed, by a claim */
    hx_op op;                    /* renew, watch, forget, history, read */
    uint64_t epoch;              /* renew, watch, forget; in a claim: the unknown epoch to take over, 0 for none */
    hx_ms lease_until;           /* renew */
    hx_slice reason;             /* forget */
    unsigned states;             /* forget: bits of the states that the operation may be in; 0: any */
    hx_store_page *page;         /* list, history */
    size_t whole_max;            /* a longer body of `found` may be left in its file (body_file), which stays open as
                                  * long as the arena lives; 0: never */
    const hx_store_rules *rules; /* retire, enforce */
    hx_item *items;              /* commit, get; get fills them in */
    size_t item_count;
    bool urgent;             /* commit */
    hx_item_page *item_page; /* scan */
    void (*done)(struct hx_store_call *call);
    /* given back */
    hx_store_result result;
    hx_record found;  /* EXISTS, STALE, and the record that a watch ended with. The response of a released operation is
                      * handed to its watchers as a record in state HX_ABSENT; status 0 means there is none */
    bool unretained;  /* settle: the outcome is durable, but there was no space for its response */
    uint64_t count;   /* sweep: how many operations and items it removed */
    uint64_t version; /* commit: of all items that it put */
    const hx_item *stale; /* commit that ended STALE */
    /* the store's own */
    struct {
        hx_task task;
        hx_link link;
        struct {
            hx_link link;
            struct hx_waiter_group *group; /* NULL: it doesn't wait */
        } waiter;                          /* a watch among the waiters of its operation (store/waiters.h) */
        struct hx_shared_record *shown;    /* held until the completion, which shows it as `found` */
        union {
            hx_memory_call memory;
            hx_journal_call journal;
            hx_sqlite_call sqlite;
            hx_remote_call remote;
        };
    } own;
} hx_store_call;

/* Makes record->op processing under a new epoch, which it writes into record->epoch. record->state is HX_PROCESSING.
 * take_over: 0, or the epoch of an unknown record that may be sent again; EXISTS if the record has changed since. */
void hx_store_claim(hx_store *store, hx_store_call *call, hx_record *record, uint64_t take_over);
/* Ends record->epoch of record->op in record->state: HX_COMPLETED, HX_FAILED, HX_UNKNOWN, or HX_ABSENT to release it
 * (its response then goes to the watchers and is not kept). A claim in flight can always be settled, on a full disk
 * too: at worst its outcome is kept without the response (answer.retained is false in what others find). */
void hx_store_settle(hx_store *store, hx_store_call *call, hx_record *record);
void hx_store_renew(hx_store *store, hx_store_call *call, const hx_op *op, uint64_t epoch, hx_ms lease_until);
/* Ends when the operation has left processing in `epoch`; `found` is what it became. */
void hx_store_watch(hx_store *store, hx_store_call *call, const hx_op *op, uint64_t epoch);
/* Removes a record on behalf of an operator, if it carries `epoch` (0: any), isn't processing, and is in one of
 * call->states; else STALE. An epoch alone doesn't tell an unknown operation from one that was settled since. `reason`
 * says who and why. */
void hx_store_forget(hx_store *store, hx_store_call *call, const hx_op *op, uint64_t epoch, hx_slice reason);
/* Lists the operations that match the filter of `page`, in no particular order. A list is not a snapshot: an operation
 * that changes meanwhile may be missing or come in either state, never twice in one list. Lists and histories work in
 * small steps on the caller's loop, and read from disk there: call them from a loop on which no request waits. */
void hx_store_list(hx_store *store, hx_store_call *call, hx_store_page *page);
/* Lists every version of one operation's record that is still on disk, oldest first, whether the operation still exists
 * or not. With page->has_key: of every operation that has or had the key, and `op` is NULL. The rest of the filter is
 * ignored. It may read the whole log. */
void hx_store_history(hx_store *store, hx_store_call *call, const hx_op *op, hx_store_page *page);
/* Removes what has expired, in small steps, and makes operations with a lapsed lease unknown. */
void hx_store_sweep(hx_store *store, hx_store_call *call);
/* Claims under these rules end RETIRED from now on; on a shared store in every process, for at least a minute. A call
 * replaces the rules of the one before; NULL: none. When it ends, hx_store_rules_of counts all claims that came before.
 * `rules` live until the next call of this kind has ended. */
void hx_store_retire(hx_store *store, hx_store_call *call, const hx_store_rules *rules);
/* Reads the current record into `found`, state HX_ABSENT where there is none: by a peek, where the store can. */
void hx_store_read(hx_store *store, hx_store_call *call, const hx_op *op);
/* Makes these the rules of every node of a shared store: a claim whose route has another version than the one that was
 * enforced last ends RETIRED, until its node enforces its own. On any other store it does nothing. `rules` are all
 * rules in force, the one with an empty route for requests without a named route; they live until done. */
void hx_store_enforce(hx_store *store, hx_store_call *call, const hx_store_rules *rules);
/* For filling a store from another: writes the record as it is, with its epoch, and makes later epochs greater. EXISTS:
 * there is a record, of whatever epoch, and nothing was written. A record in HX_ABSENT only raises the epochs. */
void hx_store_import(hx_store *store, hx_store_call *call, hx_record *record);
/* Ends a watch early, no other call: it completes soon, with CANCELLED, or with its result if that came first. */
void hx_store_cancel(hx_store *store, hx_store_call *call);

typedef enum {
    HX_PEEK_FOUND,
    HX_PEEK_ABSENT,
    HX_PEEK_ASK /* the store can't look without waiting: use hx_store_read, or claim */
} hx_peek;

/* Reads the current record without waiting or locking, from an attached loop's thread, with its bytes in `arena`. An
 * operation that has expired is absent, or found in HX_EXPIRED (G2). A claim that is not yet durable may be missing. A
 * record whose bytes can't be read back (a damaged disk) is logged, and found as `unreadable`. */
hx_peek hx_store_peek(hx_store *store, const hx_op *op, hx_arena *arena, hx_record *found);
/* The same, but a body of more than `whole_max` bytes may be left in its file, as for a call. */
hx_peek hx_store_peek_large(hx_store *store, const hx_op *op, hx_arena *arena, size_t whole_max, hx_record *found);

#define HX_STORE_HOME_BYTES 512u

typedef struct {
    const char *name; /* "journal" */
    bool durable;
    bool keeps_items;
    bool takes_events; /* programs write events into it in their own transactions: HX_ITEM_OUTBOX_QUEUE */
    bool shared;       /* other processes may use it: claims of theirs end with their leases only */
    uint64_t owner;    /* drawn at each start */
    /* Another store has another one, and a copy of the files, too: machine and path, or system and database. Empty: it
     * can't be told. */
    char home[HX_STORE_HOME_BYTES];
    uint64_t orphans;   /* operations of an earlier start that became unknown when the store was opened (G9) */
    uint8_t secret[32]; /* for MACs; lives with the store */
    hx_ms (*now)(void);
} hx_store_facts;

/* Gauges, and counters since the store was opened; observe/metrics.def says what each is. */
typedef struct {
#define STORE(name, ...) uint64_t name;
#include "observe/metrics.def"
} hx_store_counts;

#define HX_AUDIT_RETENTION (90 * HX_DAY)
#define HX_AUDIT_FOREVER INT64_MAX

typedef struct {
    hx_ms (*now)(void); /* NULL: hx_clock_now. Tests bring their own time */
    bool check_clock;   /* refuse to open where the wall clock can't be right: for a gateway */
    /* The host gives its clock (base/clock.h) to this store: opening moves it, never behind the last change in the
     * store, and to the time of a shared store. Without it opening changes nothing of the process. */
    bool moves_clock;
    uint64_t bytes_max;          /* store_max, over all files with the archive; 0: no limit */
    hx_ms audit_retention;       /* how long changes of state are kept for the audit, at least; 0: 90 days */
    uint32_t segment_bytes;      /* journal; 0: 64 MiB, less where bytes_max or the disk is small */
    bool make_parents;           /* journal: create the directories above it, too */
    uint64_t free_bytes_floor;   /* below it new claims are refused; 0: 256 MiB, or a sixteenth of a small disk */
    unsigned waiters_per_op_max; /* 0: 1,000 */
    unsigned waiters_max;        /* 0: 10,000 */
    /* For filling a store from another. The secret of a store that is created or filled, 32 bytes; NULL: drawn. A store
     * that has another one, or a shared store with rules that a gateway has enforced, is not opened. */
    const uint8_t *secret;
    /* With a secret: the note that the store is unfinished (transfer/unfinished.h), a record in HX_UNKNOWN without a
     * response. Nobody sees a store that is created by this, or gets its secret by this, without the note. */
    const hx_record *unfinished;
} hx_store_options;

/* Lets a loop make calls; before the loop runs. Any thread may call this and the next eight. */
void hx_store_attach(hx_store *store, hx_loop *loop);
const hx_store_facts *hx_store_about(const hx_store *store);
void hx_store_count(hx_store *store, hx_store_counts *out);
/* Counts a job that was not run because its key was taken. jobs/skipped_jobs.h adds it to the item that keeps the
 * number. */
void hx_store_note_conflict(hx_store *store);
#define HX_ITEM_JOB_CONFLICTS "scheduler_job_conflict" /* its meta is the number */
/* For that: how many are not in the item yet; and that the item has `kept` now, `added` of these among them. */
uint64_t hx_store_new_conflicts(hx_store *store);
void hx_store_keep_conflicts(hx_store *store, uint64_t kept, uint64_t added);
/* The rules under which there are live operations, with their numbers, in `arena`. It takes no time for many
 * operations: what has expired since the last sweep may still be counted, what is not durable yet is not. */
void hx_store_rules_of(hx_store *store, hx_arena *arena, hx_store_rules *out);
/* An upper bound of the operations of this method and path without a named route; a remote store counts all paths
 * together. 0: there are none. hx_store_list counts them exactly. */
uint64_t hx_store_live_at_most(hx_store *store, hx_slice route);
/* Takes bytes_max, audit_retention and the limits of waiters from `options`. False with a sentence in `error`: nothing
 * has changed. One thread at a time. */
bool hx_store_limit(hx_store *store, const hx_store_options *options, hx_error_text error) HX_MUST_USE;
/* All calls must have ended. What was acknowledged is on disk already; closing leaves a hint for a quick start. */
void hx_store_close(hx_store **owned);

/* Opens "journal:DIR", "sqlite:FILE", "postgres://…" or "memory:" (store/open.c). On failure it returns NULL with a
 * message in `error` that says what is wrong and what to do, and has changed nothing on disk. */
hx_store *hx_store_open(hx_slice url, const hx_store_options *options, hx_error_text error);
/* The least bytes_max with which a store of this kind can be opened; 0: any. */
uint64_t hx_store_bytes_least(hx_slice url);
#define HX_JOURNAL_BYTES_LEAST (UINT64_C(48) << 20) /* three segments of the smallest size */
#define HX_SQLITE_BYTES_LEAST (UINT64_C(1) << 20)

#define HX_STORE_ANSWER_MAX (15u << 20) /* headers and body of a response that is kept; the caller checks it */

/* Whether a lifetime that ends at `at` is over, with the one rounding that all stores use. */
static inline bool hx_store_lapsed(hx_ms at, hx_ms now)
{
    return hx_lifecycle_is_over(at, now);
}
/* hx_lifecycle_state_at, less the time for which a clock that may be wrong is held. */
static inline hx_state hx_store_state_at(const hx_record *record, hx_ms now)
{
    return hx_lifecycle_state_at(record, now - hx_clock_held());
}
/* The time before which changes of state needn't be kept. */
static inline hx_ms hx_store_audit_until(hx_ms retention, hx_ms now)
{
    return now - hx_clock_held() - (retention > 0 ? retention : HX_AUDIT_RETENTION);
}
/* Whether the lifetime of an item is over. */
static inline bool hx_item_is_over(hx_ms expires_at, hx_ms now)
{
    return expires_at > 0 && hx_store_lapsed(expires_at, now - hx_clock_held());
}
/* Counts `live` more operations under these rules, adding a copy of them to `rules` where they are new. */
void hx_store_rules_add(hx_store_rules *rules, hx_arena *arena, hx_slice route, uint32_t version, uint64_t live);
/* The highest epoch that was ever drawn; while there are no claims. False with a sentence in `error` where the store
 * can't be read. */
bool hx_store_last_epoch(hx_store *store, uint64_t *epoch, hx_error_text error) HX_MUST_USE;

hx_store *hx_store_memory_open(const hx_store_options *options);
/* The salvage of a damaged journal. */
typedef struct {
    /* given by the caller */
    void (*report)(void *context, const char *sentence); /* called for each damaged place */
    void *context;
    bool moves_clock; /* as in hx_store_options */
    /* given back */
    uint64_t records; /* records that could be read */
    uint64_t answers; /* records of these whose response could not be read, and is not retained */
    uint64_t lost;    /* frames that are missing: an upper bound of the records that were lost */
    uint64_t places;  /* damaged places with an unknown number of frames */
    hx_ms stamp;      /* the latest in any frame */
} hx_salvage;
/* Opens a damaged journal for hx_store_list, _read, _count and _last_epoch, without changing anything on disk. NULL
 * with a message in `error`. */
hx_store *hx_journal_salvage(hx_slice path, hx_salvage *found, hx_error_text error);

#endif
