/* SPDX-License-Identifier: Apache-2.0 */
/* A store behind a connection, whatever its server: the part that is the same for all of them.
 *
 *     driver.h, statements.def   what a server's client library has to do
 *     remote.c                   the calls of store.h, the store's counters and rules
 *     lane.h, lane.c             one connection, its calls, and what becomes of them when it fails
 *     round.c                    what is sent together, and in which transactions
 *     results.c                  what results mean for their calls
 *     items.c                    the same of calls about items
 *     upkeep.c                   statements for which no call waits
 *     waiters.c                  watches whose operation is in processing
 *
 * A server's own store embeds hx_remote as its first member, opens, and fills in its hx_store_ops with the functions
 * below, and with its own `close` and `last_epoch`. */
#ifndef HX_STORE_REMOTE_REMOTE_H
#define HX_STORE_REMOTE_REMOTE_H

#include "store/remote/driver.h"
#include "store/waiters.h"

#include <pthread.h>
#include <stdatomic.h>

#define HX_LANES 2u /* lanes of each loop */
#define HX_LOOPS_MAX 256u
#define HX_SKEW_WORTH_SAYING (2 * HX_SECOND)
#define HX_RETIRED_FOR HX_MINUTE /* how long claims are refused under rules that a node retires */
#define HX_SWEEP_ROWS 500u       /* most rows that one SWEEP removes */

typedef struct {
    hx_store store;
    const hx_driver *driver;
    bool has_own_time; /* a test's clock is used in place of the server's */
    bool is_pooled;    /* a pooler gives each transaction to any session: nothing can be listened for, and no more than
                        * one transaction is sent at a time, because a pooler may take a client that left in the middle
                        * of a pipeline for one that has had its results, and give the rest of them to the next */
    _Atomic bool is_unreachable, is_unusable; /* logged since the server could last be used */
    _Atomic hx_ms complained_at;              /* time at which a refusal was last logged */
    struct {
        hx_loop *loop;
        hx_lane *lanes[HX_LANES];
    } loops[HX_LOOPS_MAX];
    unsigned loop_count;
    _Atomic uint64_t commits, stale_writes, cleaned;
    _Atomic hx_ms server_ahead; /* how far the server's clock is ahead of this process's, which it set at the start */
    struct {
        _Atomic uint64_t live, processing, unknown, bytes;
    } counted;             /* result of the last COUNT */
    pthread_mutex_t mutex; /* guards the fields below */
    hx_waiters waiters;
    hx_arena rules_arena;
    hx_store_rules rules; /* result of the last RULES */
} hx_remote;

void hx_remote_init(hx_remote *r, const hx_store_ops *ops, const hx_driver *driver, const char *name,
                    const hx_store_options *options);
void hx_remote_free(hx_remote *r); /* frees the lanes too, but not `r` itself */

/* For hx_store_ops. */
void hx_remote_attach(hx_store *store, hx_loop *loop);
void hx_remote_submit(hx_store *store, hx_store_call *call);
void hx_remote_cancel(hx_store *store, hx_store_call *call);
hx_peek hx_remote_peek(hx_store *store, const hx_op *op, hx_arena *arena, size_t whole_max, hx_record *found);
void hx_remote_count(hx_store *store, hx_store_counts *out);
void hx_remote_rules(hx_store *store, hx_arena *arena, hx_store_rules *out);
uint64_t hx_remote_live_at_most(hx_store *store, hx_slice route);
bool hx_remote_limit(hx_store *store, const hx_store_options *options, hx_error_text error);

/* Replaces the rules by those that `arena` holds, which is taken over. */
void hx_remote_set_rules(hx_remote *r, hx_arena arena, hx_store_rules rules);
/* Ends a call, on its own loop. */
void hx_remote_end(hx_store_call *call, hx_store_result result);

/* waiters.c */
/* Adds a watch whose operation is in processing; false: there are too many. */
bool hx_remote_waiters_add(hx_remote *r, hx_store_call *watch) HX_MUST_USE;
/* Takes it out; false: another thread has taken it out already, and its end is on its way. */
bool hx_remote_waiters_remove(hx_remote *r, hx_store_call *watch) HX_MUST_USE;
/* Ends all watches of this process, on whatever thread, that this state of their operation ends. */
void hx_remote_waiters_notify(hx_remote *r, const hx_record *record);
/* Another node has settled the operation: the lanes that watch it recheck soon. */
void hx_remote_waiters_recheck(hx_remote *r, const hx_op *op);

#endif
