/* SPDX-License-Identifier: Apache-2.0 */
/* What a remote store needs of the client library of its server: a connection, statements, and results.
 *
 * When to connect, what goes into a round, what is sent again and what a result means for a call is decided by lane.c,
 * round.c and results.c, in the same way for every server. All functions of a driver, and all that it calls, run on the
 * thread of the lane's loop and never wait. */
#ifndef HX_STORE_REMOTE_DRIVER_H
#define HX_STORE_REMOTE_DRIVER_H

#include "store/store.h"

typedef struct hx_lane hx_lane;
/* The result of a statement, as the client library has it. Only the driver looks into it. */
typedef struct hx_remote_result hx_remote_result;

typedef enum {
#define X(name, calls, operation, transaction, next) HX_STATEMENT_##name,
#include "store/remote/statements.def"
#undef X
    HX_STATEMENT_KINDS,
    HX_STATEMENT_NOTHING = HX_STATEMENT_KINDS
} hx_statement_kind;

typedef enum { HX_CALLS_NONE, HX_CALLS_ONE, HX_CALLS_MANY } hx_statement_calls;
typedef enum { HX_OPERATION_ANY, HX_OPERATION_READ, HX_OPERATION_WRITE, HX_OPERATION_ITEMS } hx_statement_operation;
typedef enum { HX_TRANSACTION_OWN, HX_TRANSACTION_SHARED } hx_statement_transaction;

/* The columns of statements.def, which explains them. */
typedef struct {
    hx_statement_calls calls;
    hx_statement_operation operation;
    hx_statement_transaction transaction;
    hx_statement_kind next;
} hx_statement_properties;

extern const hx_statement_properties hx_statements[HX_STATEMENT_KINDS];

typedef struct {
    hx_statement_kind kind;
    hx_store_call **calls; /* points into the round's array */
    size_t count;
    bool ends_transaction; /* a commit follows it */
    bool failed;
    hx_remote_result *result; /* owned by the round; NULL until it comes */
} hx_statement;

/* What one row of a result says of one operation. */
typedef struct {
    size_t place;           /* index of its call in the statement */
    hx_store_result result; /* not set with is_excess */
    bool is_excess;         /* the results of the round got too large: nothing was done, send the call again */
    uint64_t epoch;         /* claim: the epoch that was drawn. settle: 1 if other nodes wait for the operation */
    bool has_record;
} hx_remote_verdict;

/* Why the server refused a statement. */
typedef struct {
    enum {
        HX_REFUSED_FOR_GOOD,
        HX_REFUSED_FOR_NOW, /* another transaction is in the way: soon it won't be */
        HX_REFUSED_AS_FULL  /* no space on the server's disk */
    } kind;
    const char *message; /* message of the server; valid as long as the result */
    const char *hint;    /* advice for an operator */
} hx_refusal;

typedef struct {
    size_t lane_bytes; /* size of the driver's own lane struct, whose first member is an hx_lane */

    /* Starts to connect, and reports hx_lane_connected or hx_lane_fail: once, then or later. */
    void (*connect)(hx_lane *lane);
    /* Frees everything that connect and send have made, whatever state it is in. Nothing is reported afterwards. */
    void (*disconnect)(hx_lane *lane);
    /* Sends statements of the round, with a commit after each that ends its transaction. Then reports, for each
     * statement in order, hx_lane_result and hx_lane_statement_end, and for each commit hx_lane_committed; or
     * hx_lane_fail, which may be at once. */
    void (*send)(hx_lane *lane, const hx_statement *statements, size_t count);

    /* Of a result that was reported as failed; NULL where only another statement of its transaction has one. */
    hx_refusal (*classify)(const hx_lane *lane, const hx_remote_result *error);
    size_t (*row_count)(const hx_lane *lane, const hx_remote_result *result);
    hx_remote_verdict (*verdict)(const hx_lane *lane, const hx_remote_result *result, size_t row);
    /* Copies the record of a row into the arena, in the state that it has at `now`. False: its bytes are damaged. */
    bool (*record)(const hx_lane *lane, const hx_remote_result *result, size_t row, hx_ms now, hx_arena *arena,
                   hx_record *out);
    int64_t (*number)(const hx_lane *lane, const hx_remote_result *result, size_t row, unsigned column);
    hx_slice (*text)(const hx_lane *lane, const hx_remote_result *result, size_t row, unsigned column);
    void (*free_result)(const hx_lane *lane, hx_remote_result *result); /* does nothing for NULL */
} hx_driver;

/* What a driver reports. Each of these may end calls, whose completions may submit new ones, and may end in
 * hx_lane_fail: afterwards the driver goes on only if the lane is still HX_LANE_READY. */

/* The connection is there: rounds may be sent. */
void hx_lane_connected(hx_lane *lane);
/* Bytes came or went: the connection doesn't hang. */
void hx_lane_moved(hx_lane *lane);
/* The result of the statement that is next; the lane owns it from now on. A second one for the same statement (a commit
 * that failed) replaces the first. */
void hx_lane_result(hx_lane *lane, hx_remote_result *result, bool failed);
/* No further result comes for the statement that is next. */
void hx_lane_statement_end(hx_lane *lane);
/* The transaction has ended: it is durable, unless one of its statements failed, and then nothing of it was done. */
void hx_lane_committed(hx_lane *lane);
/* The connection failed, or can't be made, which is the same until SETUP is answered: `why`, which may be memory of the
 * connection. `hint` says what an operator can do about a connection that can't be made; NULL: a general one. What was
 * sent and not committed is in doubt. Disconnects. */
void hx_lane_fail(hx_lane *lane, const char *why, const char *hint);
/* The answer to SETUP says that this server can't be used, and `why`. Disconnects. */
void hx_lane_unusable(hx_lane *lane, const char *why);
/* Another node has announced the end of an operation. */
void hx_lane_hear(hx_lane *lane, const hx_op *op);

#endif
