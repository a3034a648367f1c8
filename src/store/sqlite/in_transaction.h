/* SPDX-License-Identifier: Apache-2.0 */
/* Operations inside a program's own transaction, on its own connection to its own SQLite database: the effect and the
 * mark of the operation commit together, or neither does. That is exactly once, end to end.
 *
 *     hx_sqlite_prepare(db, error);                      once: makes Hapax's tables, all named hapax_…
 *
 *     BEGIN IMMEDIATE
 *       hx_sqlite_begin(db, &request, …)                 OK: it is yours; DONE: here is the answer; …
 *       … the effect …
 *       hx_sqlite_complete(db, &operation, &answer, …)   STALE: somebody has taken it over: roll back
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
    HX_IN_TRANSACTION_OK,        /* begin: it is yours. Others: done, once you commit */
    HX_IN_TRANSACTION_DONE,      /* begin: it has happened; `found` has its answer, completed or failed */
    HX_IN_TRANSACTION_RUNNING,   /* begin: somebody is at it until found->lease_until */
    HX_IN_TRANSACTION_UNKNOWN,   /* begin: it may have been executed before. See `redo` and `take_over` */
    HX_IN_TRANSACTION_EXPIRED,   /* begin: it has happened, too long ago for its answer to be kept */
    HX_IN_TRANSACTION_MISMATCH,  /* begin: the key stands for another request: `found` */
    HX_IN_TRANSACTION_STALE,     /* the operation isn't yours any more: roll back. `found` is what stands there */
    HX_IN_TRANSACTION_OUTSIDE,   /* no transaction is open on this connection */
    HX_IN_TRANSACTION_INVALID,   /* there is no key, a text is too long, an answer too large: a bug of the caller's */
    HX_IN_TRANSACTION_NO_TABLES, /* hx_sqlite_prepare has not been called, or the tables are a newer version's */
    HX_IN_TRANSACTION_BUSY,      /* another connection writes: roll back, and begin the transaction again */
    HX_IN_TRANSACTION_ERROR,     /* SQLite's: roll back. found->reason says what it was */
} hx_in_transaction_result;

typedef struct {
    hx_slice route;     /* what kind of operation it is: "refunds" */
    hx_slice principal; /* who asks; empty: nobody in particular */
    hx_slice key;
    hx_slice payload; /* what must be the same whenever the key is; empty: anything goes */
    hx_ms lease;      /* how long the program may take if it commits the beginning on its own; 0: 60 s */
    hx_ms lifetime;   /* how long the outcome is kept; 0: 24 h */
    hx_ms tombstone;  /* and how long after that the bare key; 0: not at all */
    /* Its effect is never committed but together with its mark: so where there is no mark nothing has happened, and
     * what was begun and not ended within its lease may be begun again. */
    bool redo;
    uint64_t take_over; /* the epoch of one unknown operation that may be begun again; 0: none */
} hx_in_transaction_request;

/* Names one execution of an operation. May be written down and used in a later transaction. */
typedef struct {
    hx_op op;
    uint64_t epoch;
    uint64_t owner; /* 0: begun by a gateway */
} hx_in_transaction_operation;

/* Makes the tables where there are none, inside the open transaction if there is one. False with a sentence. */
bool hx_sqlite_prepare(sqlite3 *db, char error[HX_STORE_ERROR_BYTES]) HX_MUST_USE;

/* The value of Hapax-Operation; false: it isn't one. */
bool hx_sqlite_operation_of(hx_slice header, hx_in_transaction_operation *out) HX_MUST_USE;

/* `found` gets what stands there, in `arena`, where the result says so. */
hx_in_transaction_result hx_sqlite_begin(sqlite3 *db, const hx_in_transaction_request *request, hx_arena *arena,
                                         hx_in_transaction_operation *out, hx_record *found) HX_MUST_USE;
/* It has happened, and this is its answer: body, headers and status are the caller's own, 1 to 999. */
hx_in_transaction_result hx_sqlite_complete(sqlite3 *db, const hx_in_transaction_operation *operation,
                                            const hx_answer *answer, hx_arena *arena, hx_record *found) HX_MUST_USE;
/* It was refused for good: later calls get this answer. Its effect should not be in this transaction. */
hx_in_transaction_result hx_sqlite_fail(sqlite3 *db, const hx_in_transaction_operation *operation,
                                        const hx_answer *answer, hx_arena *arena, hx_record *found) HX_MUST_USE;
/* Nothing has happened, and the key may be used again. `reason` is for operators. */
hx_in_transaction_result hx_sqlite_release(sqlite3 *db, const hx_in_transaction_operation *operation, hx_slice reason,
                                           hx_arena *arena, hx_record *found) HX_MUST_USE;
/* Cleans up to `max` operations whose time is over, for programs that have no gateway to do so. */
hx_in_transaction_result hx_sqlite_clean(sqlite3 *db, unsigned max, unsigned *cleaned) HX_MUST_USE;

#endif
