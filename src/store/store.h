/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of a store, which every backend keeps. It remembers operations; it decides nothing about HTTP.
 *
 *  G1  Durable: a call that ends HX_STORE_OK has been written so that no crash, restart or power cut undoes it
 *      (but for stores that say otherwise: memory). Nothing a reader sees could still be undone that way.
 *  G2  One winner: of all claims for an operation that is absent (or expired without a tombstone), one gets OK; the
 *      others get EXISTS and the record that stands there.
 *  G3  Fenced: a settle or renew whose epoch the record no longer carries changes nothing and ends STALE, with the
 *      record that stands there.
 *  G4  Epochs grow and are never used twice: not after a release, an expiry, a restart, a restore or a copy.
 *  G5  Within one epoch the first durable outcome wins. processing may become anything; unknown may become completed,
 *      failed or absent; completed and failed are final until they expire (a settle of those ends STALE).
 *  G6  Only completed and failed expire. processing whose lease has passed becomes unknown, never absent; unknown
 *      stays. The end of a lifetime is kept to the second, rounded up (hx_store_lapsed).
 *  G7  A watch ends once, when its operation has left processing in the watched epoch, or was not in it to begin with.
 *  G8  Every call's completion fires exactly once, on its own loop, never inside the call that started it; a cancelled
 *      call's too. Calls of one loop on one operation take effect in the order in which they were made (but for
 *      those that a connection to a shared store holds when it hangs: others go on meanwhile).
 *  G9  Opening an exclusive store turns every processing record of an earlier start into unknown before anything else.
 *
 * Calls come from the loops that were attached before they ran. The memory of a call is the caller's and lives until
 * its completion; the store allocates nothing on the heap for a claim, a settle or a peek once it is warm. */
#ifndef HX_STORE_STORE_H
#define HX_STORE_STORE_H

#include "base/fail.h"
#include "base/memory/list.h"
#include "base/loop/loop.h"
#include "core/operation/lifecycle.h"
#include "store/call_state.h"

typedef struct hx_store hx_store;

typedef enum {
    HX_STORE_OK,
    HX_STORE_EXISTS,      /* claim: `found` is what stands there */
    HX_STORE_STALE,       /* settle, renew: `found` is what stands there, state HX_ABSENT when nothing does. claim: what
                           * was to be taken over is gone, and nothing stands there */
    HX_STORE_FULL,        /* no room for a new operation, or too many waiters; what is in flight still settles */
    HX_STORE_UNAVAILABLE, /* the backend can't be reached; whether the write happened is not known */
    HX_STORE_CANCELLED,
    HX_STORE_RETIRED, /* claim: its rules are not in force (hx_store_retire, hx_store_enforce); nothing was written */
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
} hx_store_verb;

/* For operators: a page of records. What is zero or empty in the filter leaves nothing out. */
typedef struct {
    /* given by the caller */
    unsigned states; /* bits: 1u << HX_UNKNOWN and so on */
    hx_slice route;
    hx_slice reason;    /* how the reason begins */
    hx_ms changed_from; /* from then on */
    hx_ms changed_before;
    hx_digest key; /* the MAC of a clear key */
    bool has_key;
    const hx_slice *paths; /* only what was made under no named route, on one of these: "POST /refunds" */
    size_t path_count;
    unsigned records_max; /* 1 to HX_STORE_PAGE_MAX */
    uint64_t cursor;      /* 0 for the first page; given back for the next, good until the store is closed */
    /* given back, in the call's arena */
    hx_record *records; /* without the headers and bodies of their answers */
    size_t count;
    bool more; /* there may be */
} hx_store_page;

#define HX_STORE_PAGE_MAX 1000u

/* Rules by which operations are told apart: a named route and its version (HX_RULE_NAMED is set then), or those that
 * hold where no route is named, for whatever method and path. */
typedef struct {
    hx_slice route; /* empty: of all that has no named route; for hx_store_retire also one method and path */
    uint32_t version;
    uint64_t live; /* operations: processing, unknown, completed and failed, tombstones */
} hx_store_rule;

typedef struct {
    hx_store_rule *rules; /* no two alike, in no order */
    size_t count, cap;
    uint64_t others; /* live under rules that there was no room to tell apart */
} hx_store_rules;

/* One asynchronous call, embedded in whatever made it. Zero it, then use one of the functions below. */
typedef struct hx_store_call {
    /* given by the caller */
    hx_store_verb verb;
    hx_loop *loop;
    hx_arena *arena; /* where the bytes of `found` go; belongs to the loop's thread */
    hx_record
        *record; /* claim, settle, import: what to write. Not changed until done, but for the epoch, which claim sets */
    hx_op op;    /* renew, watch, forget, history, read */
    uint64_t epoch;              /* renew, watch, forget; in a claim: the unknown epoch to take over, 0 for none */
    hx_ms lease_until;           /* renew */
    hx_slice reason;             /* forget */
    unsigned states;             /* forget: bits of the states in which it may stand; 0: any */
    hx_store_page *page;         /* list, history */
    size_t whole_max;            /* a longer body of `found` may be left in its file (body_file), which stays open as
                                  * long as the arena; 0: never */
    const hx_store_rules *rules; /* retire, enforce */
    void (*done)(struct hx_store_call *call);
    /* given back */
    hx_store_result result;
    hx_record found; /* EXISTS, STALE, and what a watch ended with. A released operation's answer is handed to its
                       * watchers as a record in state HX_ABSENT with that answer; status 0 means there is none */
    bool unretained; /* settle: the outcome is durable, but there was no room for its answer: nobody will find that */
    uint64_t count;  /* sweep: how many operations it cleaned */
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
 * take_over: 0, or the epoch of an unknown record that may be sent again. */
void hx_store_claim(hx_store *store, hx_store_call *call, hx_record *record, uint64_t take_over);
/* Ends record->epoch of record->op in record->state: HX_COMPLETED, HX_FAILED, HX_UNKNOWN, or HX_ABSENT to release it
 * (its answer then goes to the watchers and is not kept). A claim in flight can always be ended, on a full disk too: if
 * all else fails its outcome is kept without the answer (answer.retained is false in what others find). */
void hx_store_settle(hx_store *store, hx_store_call *call, hx_record *record);
void hx_store_renew(hx_store *store, hx_store_call *call, const hx_op *op, uint64_t epoch, hx_ms lease_until);
/* Ends when the operation has left processing in `epoch`; `found` is what it became. */
void hx_store_watch(hx_store *store, hx_store_call *call, const hx_op *op, uint64_t epoch);
/* Removes a record by an operator's word, if it carries `epoch` (0: any), isn't processing, and stands in one of
 * call->states: an epoch alone doesn't tell an unknown operation from one whose answer has come since. `reason` says
 * who and why, and lives until done. */
void hx_store_forget(hx_store *store, hx_store_call *call, const hx_op *op, uint64_t epoch, hx_slice reason);
/* The operations that the filter of `page` leaves in, in no particular order. A list is not a snapshot: what changes
 * meanwhile may be missing or come in either state, never twice in one list. Both this and a history work in small
 * steps on the caller's loop, and read from disk there: call them from a loop on which no request waits. */
void hx_store_list(hx_store *store, hx_store_call *call, hx_store_page *page);
/* Every version of one operation's record that is still on disk, oldest first, whether the operation still stands or
 * not. With page->has_key: of every operation that has or had the key, and `op` is NULL. Of the filter nothing else but
 * records_max and cursor is looked at. It may read the whole log. */
void hx_store_history(hx_store *store, hx_store_call *call, const hx_op *op, hx_store_page *page);
/* Cleans what has expired, in small steps, and turns lapsed leases into unknown. count says how many it cleaned. */
void hx_store_sweep(hx_store *store, hx_store_call *call);
/* From now on claims under these rules end RETIRED; what was retired before is not any more, and with NULL nothing is.
 * When it ends, hx_store_rules counts every claim that came before. `rules` live until the next call of this kind has
 * ended. */
void hx_store_retire(hx_store *store, hx_store_call *call, const hx_store_rules *rules);
/* What stands there: `found`, state HX_ABSENT when nothing does. Where hx_store_peek can tell, this does no more. */
void hx_store_read(hx_store *store, hx_store_call *call, const hx_op *op);
/* On a shared store: these are the rules from now on, of every node. A claim whose route has another version than the
 * one that was enforced last ends RETIRED, until its node enforces what it has. Elsewhere it does nothing. `rules` are
 * all that are in force, the one without a route for what has no named route; they live until done. */
void hx_store_enforce(hx_store *store, hx_store_call *call, const hx_store_rules *rules);
/* For moving a store: writes the record as it is, its epoch too, and sees to it that later epochs are greater. EXISTS:
 * something stands there, of whatever epoch, and nothing was written. A record in HX_ABSENT writes nothing but raises
 * the epochs above its own. */
void hx_store_import(hx_store *store, hx_store_call *call, hx_record *record);
/* Ends a watch early: its completion fires soon, CANCELLED, or with its result if that came first. */
void hx_store_cancel(hx_store *store, hx_store_call *call);

typedef enum {
    HX_PEEK_FOUND,
    HX_PEEK_ABSENT,
    HX_PEEK_ASK /* this store can't tell without asking: claim, and see what it finds */
} hx_peek;

/* A look without waiting or locking, from an attached loop's thread. The bytes of the record are put into `arena`.
 * An operation that has expired is absent. A claim that is not yet durable may be missing. A record whose bytes can't
 * be read back (a damaged disk) is reported on the log and is HX_PEEK_FOUND with state HX_UNKNOWN. */
hx_peek hx_store_peek(hx_store *store, const hx_op *op, hx_arena *arena, hx_record *found);
/* The same, but a body of more than `whole_max` bytes may be left in its file, as for a call. */
hx_peek hx_store_peek_large(hx_store *store, const hx_op *op, hx_arena *arena, size_t whole_max, hx_record *found);

typedef struct {
    const char *name; /* "journal" */
    bool durable;
    bool shared;        /* other processes may be at work on it: claims of others end with their leases alone */
    uint64_t owner;     /* drawn at each start */
    uint64_t orphans;   /* operations of an earlier start that this one has turned into unknown (G9) */
    uint8_t secret[32]; /* for MACs; lives with the store */
    hx_ms (*now)(void);
} hx_store_facts;

/* Gauges, and counters since the store was opened; observe/metrics.def says what each is. */
typedef struct {
#define STORE(name, ...) uint64_t name;
#include "observe/metrics.def"
} hx_store_counts;

typedef struct {
    hx_ms (*now)(void); /* NULL: hx_clock_now. Tests bring their own time */
    bool check_clock;   /* a gateway's: a wall clock that can't be right stops it */
    /* The host gives its clock (base/clock.h) to this store: opening moves it, never behind the last change in the
     * store, and to the time of a shared store. Without it opening changes nothing of the process. */
    bool moves_clock;
    uint64_t bytes_max;          /* store_max, over all files, the archive too; 0: no limit */
    uint32_t segment_bytes;      /* journal; 0: 64 MiB, less where bytes_max or the disk is small */
    bool make_parents;           /* journal: the directories above it, too */
    uint64_t free_bytes_floor;   /* below it new claims are refused; 0: 256 MiB, or a sixteenth of a small disk */
    unsigned waiters_per_op_max; /* 0: 1,000 */
    unsigned waiters_max;        /* 0: 10,000 */
    const uint8_t *secret; /* of a store that is made or filled by this: 32 bytes; NULL: drawn. One that is there with
                            * another, or on a shared store with rules that a gateway has enforced, is not opened */
    const hx_record
        *mark; /* with a secret; unknown, without an answer. A store that is made by this, or gets its secret
                            * by this, is never seen without it */
} hx_store_options;

/* Takes part from now on: before the loop runs, on any thread. */
void hx_store_attach(hx_store *store, hx_loop *loop);
const hx_store_facts *hx_store_about(const hx_store *store);
void hx_store_count(hx_store *store, hx_store_counts *out);
/* Under which rules there are live operations, and how many. At once, whatever their number: what has expired since the
 * last sweep may still be counted, what is not durable yet is not. Any thread; in `arena`. */
void hx_store_rules_of(hx_store *store, hx_arena *arena, hx_store_rules *out);
/* How many operations of this method and path there may be that were made under no named route; never too few, and 0
 * nearly always when there is none. hx_store_list tells for certain. Any thread. */
uint64_t hx_store_live_at_most(hx_store *store, hx_slice route);
/* bytes_max and waiters as in `options`, from now on. False with a sentence in `error`: nothing has changed. Any
 * thread, one at a time. */
bool hx_store_limit(hx_store *store, const hx_store_options *options, hx_error_text error) HX_MUST_USE;
/* All loops must have ended their calls. What was acknowledged is on disk already; closing leaves a hint for a quick
 * start. */
void hx_store_close(hx_store **owned);

/* Opens "journal:DIR", "sqlite:FILE", "postgres://…" or "memory:" (store/open.c). On failure returns NULL with a
 * sentence for people in `error` that says what is wrong and what to do; nothing has been changed on disk then. */
hx_store *hx_store_open(hx_slice url, const hx_store_options *options, hx_error_text error);
/* The least `bytes_max` with which such a store can be opened; 0: any. */
uint64_t hx_store_bytes_least(hx_slice url);
#define HX_JOURNAL_BYTES_LEAST (UINT64_C(48) << 20) /* three segments of the smallest size */
#define HX_SQLITE_BYTES_LEAST (UINT64_C(1) << 20)

/* For backends: what stands behind an hx_store. */
typedef struct {
    void (*attach)(hx_store *store, hx_loop *loop);
    void (*submit)(hx_store *store, hx_store_call *call);
    void (*cancel)(hx_store *store, hx_store_call *call);
    hx_peek (*peek)(hx_store *store, const hx_op *op, hx_arena *arena, size_t whole_max, hx_record *found);
    void (*count)(hx_store *store, hx_store_counts *out);
    void (*close)(hx_store *store);
    void (*rules)(hx_store *store, hx_arena *arena, hx_store_rules *out);
    uint64_t (*live_at_most)(hx_store *store, hx_slice route);
    bool (*limit)(hx_store *store, const hx_store_options *options, hx_error_text error);
    uint64_t (*last_epoch)(hx_store *store);
} hx_store_ops;

struct hx_store { /* the first member of every backend's own struct */
    const hx_store_ops *ops;
    hx_store_facts facts;
};

#define HX_STORE_ANSWER_MAX (15u << 20) /* headers and body of an answer that is kept; more is a bug of the caller's */
#define HX_STORE_WAITERS_PER_OP_MAX 1000u
#define HX_STORE_WAITERS_MAX 10000u

/* Whether a lifetime that ends at `at` is over. The same rounding for all, so that no two ways of asking disagree. */
static inline bool hx_store_lapsed(hx_ms at, hx_ms now)
{
    return hx_lifecycle_is_over(at, now);
}

/* For stores that go by this machine's clock: compares the wall clock with the last stamp in the store, 0 where it is
 * empty, and with moves_clock sets the process's clock by both. False with a sentence in `error` where that can't be
 * right; nothing has changed then. */
bool hx_store_follow_wall(const hx_store_options *options, hx_ms stamp, hx_error_text error) HX_MUST_USE;

/* Decides a claim, settle, renew, forget or import: HX_STORE_OK, or as what it is refused. */
hx_store_result hx_store_decide(const hx_store_call *call, hx_stored stored);
/* hx_lifecycle_state_at, while a clock that may be wrong is held. */
static inline hx_state hx_store_state_at(const hx_record *record, hx_ms now)
{
    return hx_lifecycle_state_at(record, now - hx_clock_held());
}
/* Whether the filter leaves the record in. */
bool hx_store_page_wants(const hx_store_page *page, const hx_record *record);
/* Whether a version belongs to the history that the call asks for. */
bool hx_store_history_wants(const hx_store_call *call, const hx_record *record);
/* Counts `live` more under these rules, of which `rules` gets a copy where it has none. */
void hx_store_rules_add(hx_store_rules *rules, hx_arena *arena, hx_slice route, uint32_t version, uint64_t live);
/* Whether a claim of this record is under rules that are retired; `rules` may be NULL. */
bool hx_store_is_retired(const hx_store_rules *rules, const hx_record *record);
/* Adds a copy; there must be room. */
void hx_store_page_add(hx_store_page *page, hx_arena *arena, const hx_record *record);

/* The highest epoch that was ever drawn, for moving a store. On a thread and at a time when nobody claims. */
uint64_t hx_store_last_epoch(hx_store *store);

hx_store *hx_store_memory_open(const hx_store_options *options);
/* `url` as libpq has it. */
hx_store *hx_postgres_open(hx_slice url, const hx_store_options *options, hx_error_text error);
hx_store *hx_sqlite_open(hx_slice path, const hx_store_options *options, hx_error_text error);
hx_store *hx_journal_open(hx_slice path, const hx_store_options *options, hx_error_text error);
/* What a damaged journal still holds, and what not. */
typedef struct {
    /* given by the caller: gets a sentence for people about each place */
    void (*report)(void *context, const char *sentence);
    void *context;
    bool moves_clock; /* as in hx_store_options */
    /* given back */
    uint64_t records; /* that could be read */
    uint64_t answers; /* of these: but for their answers, so that those are not retained */
    uint64_t lost;    /* numbers of frames: so many records at most, for some are about none */
    uint64_t places;  /* of which not even that is known */
    hx_ms stamp;      /* the latest */
} hx_salvage;
/* Opens a damaged journal for hx_store_list, _read, _count and _last_epoch, without changing anything on disk. NULL
 * with a sentence in `error`. */
hx_store *hx_journal_salvage(hx_slice path, hx_salvage *found, hx_error_text error);

#endif
