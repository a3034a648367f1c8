/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the store which live operations new rules would not know (daemon/rule_changes.h). The store counts operations by
 * route, so this is cheap; records are read only for paths that a route of the new rules takes over from the defaults.
 * If something is wrong the check is repeated after a sweep, so that nothing is refused for operations that have
 * expired.
 *
 * What an operator accepts is recorded in the store, like an unfinished copy (store/transfer/unfinished.h): one record
 * for each rule that is given up, under an operation that no request can have. Every kind of store can keep it, every
 * node reads it, and a copy of the store has it too. */
#ifndef HX_DAEMON_LIVE_CHECK_H
#define HX_DAEMON_LIVE_CHECK_H

#include "daemon/rule_changes.h"

typedef struct hx_live_check {
    /* given by the caller */
    hx_loop *loop; /* loop that is attached to the store; disk reads run on it */
    hx_store *store;
    const hx_policy_set *policies; /* the new rules */
    hx_buf *problems;              /* gets a line for each problem, after what it has */
    bool swept;                    /* a sweep has run; set by the caller: don't sweep */
    void (*done)(struct hx_live_check *check);
    /* given back */
    size_t count; /* number of problems */
    bool failed;  /* the store can't be reached: a problem that can't be accepted */
    /* its own */
    size_t problems_from;
    hx_arena arena;
    hx_arena page_arena;
    hx_store_rules live, by_path;
    hx_arena memory_arena;
    hx_changes_memory memory;
    size_t at; /* index of the row of `memory` that is being written */
    hx_record record;
    hx_store_page page;
    hx_store_call call;
} hx_live_check;

/* `done` is called once, perhaps at once, on the loop's thread. */
void hx_live_check_start(hx_live_check *check);
/* Before the rules are in force: removes acceptances of rules that are in force again. `done` as above; `failed` if the
 * store can't be reached. */
void hx_live_check_readmit(hx_live_check *check, void (*done)(struct hx_live_check *check));
/* When the rules are in force: records every problem that was found as accepted. `done` and `failed` as above. */
void hx_live_check_accept(hx_live_check *check, void (*done)(struct hx_live_check *check));
void hx_live_check_free(hx_live_check *check); /* may be called repeatedly */

#endif
