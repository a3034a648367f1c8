/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the PostgreSQL store among themselves.
 *
 *     postgres.c             opening, and what is asked of the store as a whole
 *     postgres_lane.c        one connection: its rounds of statements, and what becomes of calls when it fails
 *     postgres_errands.c     what a lane does beside its calls
 *     postgres_statements.c  what each kind of statement is given, and what its result means
 *     postgres_connect.c     how a connection begins, and what is said of its end
 *     postgres_wire.c        parameters and verdicts, as bytes
 *     postgres_names.c       the addresses behind a server's name
 *     postgres_room.c        who waits for an operation that is under way
 *     postgres_schema.c      migrations
 *
 * Each loop that is attached has lanes of its own: nothing is shared between threads but the waiting room and the
 * counters. All that waits on a lane goes out together, as one round: at most one statement of each kind, in pipeline
 * mode, and one commit for all claims, renewals and outcomes. While a round is under way the next one gathers. */
#ifndef HX_STORE_POSTGRES_POSTGRES_H
#define HX_STORE_POSTGRES_POSTGRES_H

#include "store/postgres/libpq.h"
#include "store/postgres/names.h"
#include "store/store.h"
#include "store/shared_record.h"
#include "store/waiters.h"

#include <pthread.h>
#include <stdatomic.h>

#define HX_LANES 2u /* of a loop: one that works, and one for when that hangs */
#define HX_LOOPS_MAX 256u
#define HX_ROUND_CALLS_MAX 256u
#define HX_ROUND_BYTES_MAX (4u << 20) /* of answers; a larger one goes alone */
#define HX_STATEMENTS_MAX 32u
#define HX_ABANDONED_MAX 4096u
#define HX_SKEW_WORTH_SAYING (2 * HX_SECOND)
#define HX_CLAIM_IS_LATE (30 * HX_SECOND) /* for a statement that comes from a connection that was given up */

typedef struct hx_postgres hx_postgres;

/* Why what was committed may yet be forgotten, by a crash or a failover: an expression, '' where it can't be. */
#define HX_POSTGRES_FORGETS                                                                                            \
    "CASE WHEN current_setting('fsync') = 'off' THEN 'fsync is off' "                                                  \
    "WHEN current_setting('synchronous_commit') = 'off' THEN 'synchronous_commit is off' "                             \
    "WHEN current_setting('synchronous_commit') IN ('local', 'remote_write') "                                         \
    "AND current_setting('synchronous_standby_names') <> '' "                                                          \
    "THEN 'synchronous_commit does not wait until the standby has it on its disk' ELSE '' END"

typedef enum {
#define X(name, calls, operation, transaction, next) HX_STATEMENT_##name,
#include "store/remote/statements.def"
#undef X
    HX_STATEMENT_KINDS,
    HX_STATEMENT_NOTHING = HX_STATEMENT_KINDS
} hx_statement_kind;

typedef enum { HX_CALLS_NONE, HX_CALLS_ONE, HX_CALLS_MANY } hx_statement_calls;
typedef enum { HX_OPERATION_ANY, HX_OPERATION_READ, HX_OPERATION_WRITE } hx_statement_operation;
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
    hx_store_call **calls;
    size_t count;
    bool ends_transaction; /* a sync point follows */
    bool failed;
    PGresult *result;
} hx_statement;

typedef struct {
    hx_op op;
    uint64_t ticket;
    hx_ms until; /* by then its statement comes too late, wherever it is */
} hx_abandoned;

typedef enum { HX_LANE_DOWN, HX_LANE_CONNECTING, HX_LANE_READY } hx_lane_state;

typedef struct hx_lane {
    hx_postgres *store;
    hx_loop *loop;
    PGconn *conn;
    hx_poll *poll;
    hx_names_call *names; /* that are being looked up */
    hx_lane_state state;
    unsigned failures; /* to connect, in a row */
    unsigned turns;    /* with which host a connection begins: how many of the list come after the others */
    hx_timer timer;    /* connecting, or the round, takes too long; or it is time to connect again */
    hx_timer again;    /* for `later` */
    hx_task begin;     /* a round, at the end of the turn */
    bool will_begin;
    bool is_undurable; /* the server said so of a commit that is under way */
    hx_link waiting;   /* calls, in their order */
    hx_link later;     /* calls of which the server could say nothing */
    hx_link watching;  /* watches in the room */
    hx_timer look;     /* at what is watched */
    hx_ms look_delay;
    size_t look_left; /* watches that are still to be looked at, of those that there were when it began */
    size_t look_size; /* how many there were */
    bool will_look;
    bool listens;     /* it is the one of its process that does */
    bool will_set_up; /* its connection is new, and it isn't known yet whether it is good for anything */
    bool will_listen;
    bool is_fresh; /* and no round has ended on it yet */
    hx_task nudge; /* another node has settled something that is watched */
    _Atomic bool is_nudged;
    hx_op *told; /* operations that others wait for, and that were settled here */
    size_t told_count;
    hx_op *awaited; /* operations that are watched here, and shall be told of */
    size_t awaited_count;
    hx_abandoned *abandoned;
    size_t abandoned_count;
    bool will_abandon;
    hx_timer abandon_again;
    struct {
        hx_statement statements[HX_STATEMENTS_MAX];
        size_t count;
        size_t sent; /* how many of them */
        size_t at;   /* the statement whose result is awaited */
        hx_store_call *calls[HX_ROUND_CALLS_MAX];
        size_t call_count;
        size_t abandoned;                /* how many of them are in it */
        hx_op looks[HX_ROUND_CALLS_MAX]; /* at operations that are watched */
        size_t look_count;
        size_t told, awaited; /* how many of them are in it */
        bool is_open;
        hx_ms since;
    } round;
    struct hx_parameters *parameters;
} hx_lane;

struct hx_postgres {
    hx_store store;
    const hx_libpq *pq;
    const char **keywords; /* of a connection, and their values: NULL-terminated */
    const char **values;
    const char *hosts, *ports; /* of those; NULL: no name has to be looked up */
    hx_arena arena;            /* of those */
    bool has_own_time;
    bool is_pooled;          /* a session is nobody's: nothing is listened for, only looked at */
    _Atomic bool is_down;    /* said on the log, once */
    _Atomic bool may_forget; /* the same */
    _Atomic hx_ms complained_at;
    struct {
        hx_loop *loop;
        hx_lane lanes[HX_LANES];
    } * loops[HX_LOOPS_MAX];
    unsigned loop_count;
    pthread_mutex_t mutex; /* the room and the rules */
    hx_waiters waiters;
    _Atomic uint64_t commits, stale_writes, cleaned;
    _Atomic hx_ms server_ahead; /* of this process's time, since that was set by it */
    hx_arena rules_arena;
    hx_store_rules rules;
    struct {
        _Atomic uint64_t live, processing, unknown, bytes;
    } counted;
};

/* Whether this program is made for the schema's version; else a sentence. */
bool hx_postgres_fits_schema(int64_t version, char error[HX_STORE_ERROR_BYTES]) HX_MUST_USE;
/* HX_POSTGRES_FORGETS of a server that is connected to; what is new is said. */
void hx_postgres_take_durability(hx_postgres *p, hx_slice why);
/* Of hapax.rules_of. */
void hx_postgres_take_rules(hx_postgres *p, const PGresult *result);
/* The SQL of each kind of statement. */
extern const char *const hx_postgres_sql[HX_STATEMENT_KINDS];
/* The parameters of a statement. */
void hx_statement_fill(hx_lane *lane, const hx_statement *s);
/* Its result has come and is durable: ends its calls, or gives them back to the lane. */
void hx_statement_end(hx_lane *lane, hx_statement *s);
/* The same of one that failed and has no calls: it is not tried again at once. */
void hx_errand_failed(hx_lane *lane, const hx_statement *s);

/* The last value of a parameter of connections; NULL: there is none. */
const char *hx_postgres_parameter(const hx_postgres *p, const char *name);
/* Begins a connection; `found` are the hosts whose names were looked up, NULL: as libpq has found them. */
PGconn *hx_lane_connect(const hx_lane *lane, const hx_names *found);
/* A connection that broke is made anew, and nobody need know; one that can't be made is said once, until it can. */
void hx_lane_say(const hx_lane *lane, const char *why);
void hx_lane_say_that_it_works(const hx_lane *lane);
void hx_lane_schedule(hx_lane *lane);      /* a round, unless one is under way */
bool hx_lane_is_well(const hx_lane *lane); /* connected, and not kept waiting */
void hx_lane_init(hx_lane *lane, hx_postgres *p, hx_loop *loop);
void hx_lane_free(hx_lane *lane); /* nothing may wait on it */
void hx_lane_submit(hx_lane *lane, hx_store_call *call);
void hx_lane_nudge(hx_lane *lane); /* from any thread */
/* A watch came into the room. */
void hx_lane_watch(hx_lane *lane, hx_store_call *watch);
/* The server could say nothing of it yet. */
void hx_lane_try_later(hx_lane *lane, hx_store_call *call);
/* The server had told so much of others that it kept this for the next round. */
void hx_lane_ask_again(hx_lane *lane, hx_store_call *call);
/* Some claims that were given up may still come: they are looked for again. */
void hx_lane_abandon_later(hx_lane *lane);
/* A settled operation is awaited on another node. */
void hx_lane_tell(hx_lane *lane, const hx_op *op);
/* What another node's hapax.tell_many says: an operation in hexadecimal. */
void hx_lane_hear(hx_lane *lane, const char *text);
/* Ends a call, on its own loop. */
void hx_call_end(hx_store_call *call, hx_store_result result);

/* A watch whose operation is under way comes in; false: there is no room. */
bool hx_pg_waiters_enter(hx_postgres *p, hx_store_call *watch) HX_MUST_USE;
/* It goes out again; false: somebody has taken it out already, to end it. */
bool hx_pg_waiters_leave(hx_postgres *p, hx_store_call *watch) HX_MUST_USE;
/* This is what stands there now, for all in this process who wait for the operation to go on from where it was. */
void hx_pg_waiters_tell(hx_postgres *p, const hx_record *record);
/* Another node has settled it: who waits for it here looks at once. */
void hx_pg_waiters_nudge(hx_postgres *p, const hx_op *op);

#endif
