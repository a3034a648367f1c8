/* SPDX-License-Identifier: Apache-2.0 */
/* A lane: one connection to a remote store, and the calls that use it.
 *
 * Each loop that is attached to the store has HX_LANES lanes of its own. A call goes to the first one that is connected
 * and whose round doesn't take long (300 ms), else to the first, and stays there. Usually all calls of a loop share
 * one lane, because larger batches are cheaper, and the other lane is for when that one hangs. A lane belongs to the
 * thread of its loop, and nothing in it is locked; threads share only what remote.h has under a mutex, and counters.
 *
 * A round is one batch of statements that a lane sends, and waits for, together: at most one statement for all claims,
 * one for all renewals, and so on (statements.def). A lane has one round at a time. Calls that come meanwhile gather
 * for the next one: the slower the server, the larger the rounds. A call ends when the transaction that its statement
 * is in has been committed, and not before: until then its result may still be undone.
 *
 * Until it ends, a call is in exactly one of these. Its memory is the caller's; the lane only links it.
 *
 *     waiting    for the next round
 *     round      sent, or about to be; its transaction has not ended
 *     delayed    another transaction, such as an application's, is in the way; waits again after 10 ms, up to CALL_MAX
 *     watching   a watch whose operation was found in processing: it ends when a call of this process settles the
 *                operation (waiters.c), or when a recheck finds that another process did (upkeep.c)
 *
 * Calls on one operation take effect in the order in which they came (G8): one that waits again goes in front of those
 * that came later, and while one is delayed, all later ones on its operation wait. Only reads go together. Calls about
 * items keep their order among themselves (items.c).
 *
 * The state of the connection, and the functions that change it (lane.c):
 *
 *     DOWN ──[connect_lane]──► CONNECTING ──[hx_lane_connected]──► READY: first a round with SETUP alone, then calls
 *      ▲                           │                                 │
 *      └──────[hx_lane_fail]───────┴─[hx_lane_fail, hx_lane_unusable]┘
 *
 * A lane that failed connects again: at once if its connection had worked, else after a delay that doubles. While
 * connecting fails, calls don't wait for it: each new one ends HX_STORE_UNAVAILABLE in the same turn of the loop,
 * together with all that wait; if none comes, those that wait end when they are older than DOWN_MAX (2 s).
 *
 * Each call has a ticket, a random number that is sent with it; that of a settle is computed from its outcome, so that
 * a caller that settles the same outcome again has the same ticket. The store keeps with each record the tickets of
 * the claim and of the last write, and those of the last minutes' commits of items. What a failure means for a call:
 *
 *     Certainly not done: it was never sent, and waits on; or the server has refused its transaction, of which nothing
 *     was committed then. Each call of that transaction is sent again, alone, so that one that can't succeed doesn't
 *     take others along. Refused alone, it is delayed, or ends: FULL for a claim or a commit on a full disk, else
 *     UNAVAILABLE.
 *
 *     In doubt: it was sent, and the lane failed before its commit was reported. It may have been committed, or may be
 *     yet, by a server that hangs. It goes back to the front of `waiting`, to be sent on the next connection with the
 *     same ticket: a store that finds the ticket has done the write already, and answers as it did then. It ends
 *     UNAVAILABLE, done or not, while connecting fails (above), or if the lane fails after CALL_MAX (10 s).
 *
 *     A claim that ends while it is in doubt may exist without a holder. Nothing was sent to the upstream under it, so
 *     it can be released: it is put among the abandoned claims, which the lane looks for and releases, until no
 *     statement that makes them can arrive any more. Past HX_ABANDONED_MAX a claim is left to its lease. */
#ifndef HX_STORE_REMOTE_LANE_H
#define HX_STORE_REMOTE_LANE_H

#include "store/remote/remote.h"

#define HX_ROUND_CALLS_MAX 256u
#define HX_ROUND_BYTES_MAX (4u << 20) /* of responses and items; a larger one goes alone */
#define HX_STATEMENTS_MAX 32u
#define HX_ABANDONED_MAX 4096u
#define HX_CLAIM_IS_LATE                                                                                               \
    (30 * HX_SECOND)                 /* a server refuses a claim or commit that arrives so long after it was sent */
#define HX_ROUND_MAX (5 * HX_SECOND) /* a round without a byte from the server: the lane fails */

typedef struct {
    hx_op op;
    uint64_t ticket;
    hx_ms until; /* by the loop's clock; no statement that makes this claim can succeed after it */
} hx_abandoned;

typedef enum { HX_LANE_DOWN, HX_LANE_CONNECTING, HX_LANE_READY } hx_lane_state;

typedef struct {
    hx_statement statements[HX_STATEMENTS_MAX];
    size_t count;
    size_t sent;                              /* statements */
    size_t at;                                /* the statement whose result comes next */
    hx_store_call *calls[HX_ROUND_CALLS_MAX]; /* in the order of the statements; NULL: it has left */
    size_t call_count;
    hx_op rechecks[HX_ROUND_CALLS_MAX]; /* the operations that RECHECK reads */
    size_t recheck_count;
    size_t abandoned, announced, awaited; /* how many of the lane's lists ABANDON, ANNOUNCE and AWAIT carry */
    bool is_open;                         /* the round is under way, since `since` */
    hx_ms since;
} hx_round;

/* The item calls of a round that is being put together. */
typedef struct {
    bool is_closed;   /* no further one may join */
    bool are_commits; /* else reads */
    size_t calls, count;
    uint32_t keys[2 * HX_COMMIT_ITEMS_MAX]; /* hashes of the commits' keys, odd: it is only checked; 0: free */
} hx_round_items;

struct hx_lane {
    hx_remote *store;
    hx_loop *loop;
    hx_lane_state state;
    unsigned failures;         /* to connect, in a row; a connection that breaks in its first round counts as one */
    unsigned connect_timeouts; /* a driver with several hosts starts with another one after each */
    bool is_new;               /* no round but SETUP has ended on this connection: a failure counts as one to connect */
    hx_timer timer;            /* DOWN: connects. Else: connecting, or the round, takes too long */
    hx_task begin;             /* begins a round, or ends what waits in vain, at the end of the loop's turn */
    bool is_scheduled;         /* `begin` is going to run */
    hx_round round;

    hx_link waiting, delayed, watching; /* of hx_store_call.own.link, oldest first */
    hx_timer delay;                     /* of `delayed` */

    /* Upkeep (upkeep.c): statements for which no call waits. They go out with the next round. */
    bool needs_setup;       /* the connection is new, and its server and schema have not been checked */
    bool is_listener;       /* the one lane of its process that listens for announcements */
    bool needs_listen;      /* is_listener, on a connection that doesn't listen yet */
    hx_timer recheck;       /* of `watching`, for what other nodes did without an announcement */
    hx_ms recheck_delay;    /* doubles while nothing new is watched */
    size_t recheck_left;    /* watches that this recheck has not sent yet */
    size_t recheck_size;    /* watches that there were when it began */
    bool recheck_is_due;    /* goes out with the next round */
    hx_task recheck_soon;   /* posted by hx_lane_recheck_soon */
    _Atomic bool is_posted; /* recheck_soon is going to run */
    hx_op *announcements;   /* operations that were settled here and that other nodes wait for */
    size_t announcement_count;
    hx_op *awaited; /* operations that are watched here, and whose end other nodes shall announce */
    size_t awaited_count;
    hx_abandoned *abandoned;
    size_t abandoned_count;
    bool abandon_is_due;
    hx_timer abandon_again;
};

/* lane.c */
hx_lane *hx_lane_new(hx_remote *store, hx_loop *loop); /* connects soon */
void hx_lane_free(hx_lane *lane);                      /* no call may be left on it */
void hx_lane_submit(hx_lane *lane, hx_store_call *call);
void hx_lane_schedule(hx_lane *lane);                      /* begins a round soon, if READY and none is open */
bool hx_lane_is_well(const hx_lane *lane);                 /* connected, and its round doesn't take long */
void hx_lane_put_first(hx_lane *lane, hx_link *calls);     /* they wait again, before all others */
void hx_lane_delay(hx_lane *lane, hx_store_call *call);    /* the server couldn't decide it yet */
bool hx_lane_delays(const hx_lane *lane, const hx_op *op); /* whether a call on this operation is delayed */
bool hx_lane_delays_items(const hx_lane *lane);            /* whether a call about items is delayed */
void hx_lane_give_up(hx_lane *lane, hx_store_call *call, hx_store_result result); /* ends a call without its result */
void hx_lane_took_too_long(hx_timer *timer);
void hx_lane_works(hx_lane *lane); /* SETUP found the server usable */

/* round.c */
void hx_round_begin(hx_task *begin); /* with what is waiting, and upkeep */
void hx_round_undo(hx_lane *lane);   /* the lane failed: what has not ended waits again, in front and in its order */

/* results.c */
/* The statement's transaction is committed: ends its calls, or gives them back to the lane. */
void hx_result_apply(hx_lane *lane, const hx_statement *s);

/* items.c */
size_t hx_items_bytes(const hx_store_call *commit);
/* Whether the call may go into the round with those before it; if not, no later one may. */
bool hx_items_may_join(hx_round_items *items, const hx_store_call *call);
void hx_items_end_commits(hx_lane *lane, const hx_statement *s);
void hx_items_end_gets(hx_lane *lane, const hx_statement *s);
void hx_items_end_scan(hx_lane *lane, const hx_statement *s);

/* upkeep.c */
bool hx_upkeep_is_due(const hx_lane *lane);
void hx_upkeep_failed(hx_lane *lane, hx_statement_kind kind); /* refused: it is not repeated in the next round */
void hx_upkeep_watch(hx_lane *lane, hx_store_call *watch);    /* its operation is in processing */
void hx_upkeep_announce(hx_lane *lane, const hx_op *op);      /* settled here, and awaited on another node */
void hx_upkeep_abandon_again(hx_lane *lane);                  /* some abandoned claims may still arrive */
void hx_lane_recheck_soon(hx_lane *lane);                     /* from any thread */

#endif
