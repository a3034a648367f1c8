/* SPDX-License-Identifier: Apache-2.0 */
/* Operations inside a program's own transaction, on its own connection to its own SQLite database: the effect and the
 * mark of the operation commit together, or neither does. That is exactly once, end to end.
 *
 *     hx_sqlite_prepare(db, error);                      once: makes Hapax's tables, all named hapax_…
 *
 *     BEGIN IMMEDIATE
 *       hx_sqlite_begin(db, &request, …)                 OK: it is yours; DONE: found has the response; …
 *       … the effect …
 *       hx_sqlite_complete(db, &operation, &answer, …)   STALE: it was taken over: roll back
 *     COMMIT                                             from here on it has happened, once
 *
 * Nothing here begins, commits or rolls back a transaction; each call is a savepoint, so that one that fails leaves
 * nothing behind. Nothing here starts a thread or keeps anything between calls. What a call has written counts when the
 * caller commits, and as far as the caller's own settings go (`PRAGMA synchronous`).
 *
 * An operation may also have been begun by a gateway whose store is this database: then its name comes with the
 * request, as the header Hapax-Operation, and the program only ends it.
 *
 * Begin the transaction with BEGIN IMMEDIATE: one that has read before may not be able to write any more, and fails
 * with BUSY. */
#ifndef HX_STORE_SQLITE_IN_TRANSACTION_H
#define HX_STORE_SQLITE_IN_TRANSACTION_H

#include "store/store.h"

typedef struct sqlite3 sqlite3;

typedef enum {
    HX_IN_TRANSACTION_OK,        /* begin: the operation is the caller's. Others: done once the transaction commits */
    HX_IN_TRANSACTION_DONE,      /* begin: it is completed or failed; `found` has its response */
    HX_IN_TRANSACTION_RUNNING,   /* begin: it is processing, until found->lease_until */
    HX_IN_TRANSACTION_UNKNOWN,   /* begin: it may have been executed before. See `redo` and `take_over` */
    HX_IN_TRANSACTION_EXPIRED,   /* begin: it was executed; its response has expired */
    HX_IN_TRANSACTION_MISMATCH,  /* begin: the key was used for another request: `found` */
    HX_IN_TRANSACTION_STALE,     /* the operation is no longer the caller's: roll back. `found` is its record */
    HX_IN_TRANSACTION_DAMAGED,   /* its record can't be read, and can't be ended: roll back. It stays unknown until an
                                  * operator forgets it */
    HX_IN_TRANSACTION_OUTSIDE,   /* no transaction is open on this connection */
    HX_IN_TRANSACTION_INVALID,   /* no key; a text, a time span or a response too long: a bug of the caller */
    HX_IN_TRANSACTION_NO_TABLES, /* hx_sqlite_prepare has not been called, or a newer version made the tables */
    HX_IN_TRANSACTION_BUSY,      /* another connection writes: roll back, and begin the transaction again */
    HX_IN_TRANSACTION_ERROR,     /* SQLite failed: roll back. found->reason is its message */
} hx_in_transaction_result;

typedef struct {
    hx_slice route;     /* kind of the operation, such as "refunds" */
    hx_slice principal; /* the identity of the caller; empty: all callers share their keys */
    hx_slice key;
    hx_slice payload; /* compared with the payload of earlier uses of the key; empty: not compared */
    /* Time spans of at most 100 years of 365 days: */
    hx_ms lease;     /* how long the program may take if it commits the beginning on its own; 0: 60 s */
    hx_ms lifetime;  /* how long the outcome is kept; 0: 24 h */
    hx_ms tombstone; /* how long a tombstone is kept after that; 0: none */
    /* The effect is only ever committed together with its mark. So without a mark nothing has happened, and an
     * operation that was not ended within its lease may be begun again. */
    bool redo;
    uint64_t take_over; /* the epoch of an unknown operation that may be begun again; 0: none */
} hx_in_transaction_request;

/* Names one execution of an operation. May be written down and used in a later transaction. */
typedef struct {
    hx_op op;
    uint64_t epoch;
    uint64_t owner; /* 0: begun by a gateway */
} hx_in_transaction_operation;

/* Makes the tables where there are none, and brings older ones up to date, inside the open transaction if there is one.
 * False with a sentence. */
bool hx_sqlite_prepare(sqlite3 *db, hx_error_text error) HX_MUST_USE;

/* The value of Hapax-Operation; false: it isn't one. */
bool hx_sqlite_operation_of(hx_slice header, hx_in_transaction_operation *out) HX_MUST_USE;

/* `found` gets the record, in `arena`, where the result says so; with OK it is the new one, without its texts. */
hx_in_transaction_result hx_sqlite_begin(sqlite3 *db, const hx_in_transaction_request *request, hx_arena *arena,
                                         hx_in_transaction_operation *out, hx_record *found) HX_MUST_USE;
/* Completes it with this response; body and headers are the caller's memory, the status is 1 to 999. */
hx_in_transaction_result hx_sqlite_complete(sqlite3 *db, const hx_in_transaction_operation *operation,
                                            const hx_answer *answer, hx_arena *arena, hx_record *found) HX_MUST_USE;
/* Fails it for good: later calls get this response. Its effect should not be in this transaction. */
hx_in_transaction_result hx_sqlite_fail(sqlite3 *db, const hx_in_transaction_operation *operation,
                                        const hx_answer *answer, hx_arena *arena, hx_record *found) HX_MUST_USE;
/* Releases it: nothing has happened, and the key may be used again. `reason` is for operators. */
hx_in_transaction_result hx_sqlite_release(sqlite3 *db, const hx_in_transaction_operation *operation, hx_slice reason,
                                           hx_arena *arena, hx_record *found) HX_MUST_USE;
/* Holds the operation for `lease` from now on, at most 100 years of 365 days. STALE: it has ended, or its lease has
 * lapsed and it is unknown. */
hx_in_transaction_result hx_sqlite_renew(sqlite3 *db, const hx_in_transaction_operation *operation, hx_ms lease,
                                         hx_arena *arena, hx_record *found) HX_MUST_USE;
/* What became of it: DONE, RUNNING, UNKNOWN, EXPIRED or MISMATCH, as begin would say; OK: there is none. Changes
 * nothing, and the open transaction need not be one that writes. */
hx_in_transaction_result hx_sqlite_find(sqlite3 *db, const hx_in_transaction_request *request, hx_arena *arena,
                                        hx_record *found) HX_MUST_USE;
/* Puts an event, JSON as the API takes it, into the outbox of the store: a gateway on this database publishes it once
 * the transaction has committed. *found gets the reason of an ERROR. */
hx_in_transaction_result hx_sqlite_publish(sqlite3 *db, hx_slice event, hx_arena *arena, hx_record *found) HX_MUST_USE;
/* Removes up to `max` expired operations, for programs that have no gateway to do so. */
hx_in_transaction_result hx_sqlite_clean(sqlite3 *db, unsigned max, unsigned *cleaned) HX_MUST_USE;

#endif
