/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the store whether rules can hold: which operations live under other ones (daemon/rule_changes.h). Counting them
 * costs nothing; records are read only of paths without a named route that a route of the new rules takes over. What is
 * found wrong is looked at once more after a sweep, so that nothing is refused for operations that have expired.
 *
 * What an operator accepts is remembered in the store, like an unfinished copy (store/transfer/unfinished.h): as one
 * record for each of the rules that are gone, under an operation that no request can have. Any store can keep it, every
 * node reads it, and it comes along in a copy. */
#ifndef HX_DAEMON_LIVE_CHECK_H
#define HX_DAEMON_LIVE_CHECK_H

#include "daemon/rule_changes.h"

typedef struct hx_live_check {
    /* given by the caller */
    hx_loop *loop; /* attached to the store; reads from disk there */
    hx_store *store;
    const hx_policy_set *policies; /* that shall hold */
    hx_buf *problems;              /* gets a line for each; what stands in it stays */
    bool swept;                    /* at first: don't sweep */
    void (*done)(struct hx_live_check *check);
    /* given back */
    size_t count; /* of problems */
    bool failed;  /* the store could not be asked: a problem that nobody can accept */
    /* its own */
    size_t problems_from;
    hx_arena arena;
    hx_arena page_arena;
    hx_store_rules live, by_path;
    hx_arena memory_arena;
    hx_changes_memory memory;
    size_t at; /* of the memory */
    hx_record record;
    hx_store_page page;
    hx_store_call call;
} hx_live_check;

/* `done` is called once, perhaps at once, on the loop's thread. */
void hx_live_check_start(hx_live_check *check);
/* Before the rules are in force: forgets that those among them that were gone are. `done` as above, `failed` says how
 * it went. */
void hx_live_check_readmit(hx_live_check *check, void (*done)(struct hx_live_check *check));
/* When they are in force: remembers what was found wrong as accepted. As above. */
void hx_live_check_accept(hx_live_check *check, void (*done)(struct hx_live_check *check));
void hx_live_check_free(hx_live_check *check); /* any number of times */

#endif
