/* SPDX-License-Identifier: Apache-2.0 */
/* Generations of the rules: the first one at the start, another one at each reload and for each fresh set of keys. It
 * lives on the background loop. A reload goes through these steps, and whatever is wrong ends it with nothing changed:
 *
 *     read     the file, under the flags of the start            mistakes, options that can't change while running
 *     compare  with every generation that requests still use     routes that become one need a restart
 *     keys     of tokens, from their files
 *     survey   what the store holds                              live operations under other rules
 *     retire   rules that go, so that no request under the       a claim that came in between: as above
 *              generation before begins an operation that later ones don't know; then survey again
 *     enforce  on a store that other nodes use, too: theirs      the store can't be reached
 *              are older from here on, until they reload
 *     hand out to every worker, on its own loop                  the store's limits; a daemon that is stopping
 *
 * A generation is freed when the last request under it has ended. When only the newest is left nothing is retired any
 * more. */
#ifndef HX_DAEMON_RELOAD_H
#define HX_DAEMON_RELOAD_H

#include "admin/admin.h"
#include "daemon/daemon.h"
#include "gateway/rules.h"

typedef struct hx_reload hx_reload;

typedef struct {
    const hx_daemon_source *source;
    hx_loop *loop; /* the background's */
    hx_store *store;
    unsigned worker_count;
    /* Hands the rules to every worker; each calls hx_reload_used once it uses them. False: the daemon is stopping,
     * and nothing was handed out. */
    bool (*hand_out)(void *context, hx_rules *rules);
    /* They are in force: on the loop, in the turn in which they were handed out, or at the start. */
    void (*in_force)(void *context, const hx_rules *before, const hx_rules *rules);
    void *context;
} hx_reload_needs;

hx_reload *hx_reload_new(const hx_reload_needs *needs);

/* At the start, while no thread runs: opens the keys, and turns the loop until the store has said whether these rules
 * can hold. HX_EXIT_OK with the first generation in *rules, or an exit code after having said on standard error what is
 * wrong. `config` is the reloader's from here on. */
int hx_reload_begin(hx_reload *reloader, hx_config *config, hx_rules **rules);
/* Once the loop's thread is about to run: keys are fetched anew from now on. */
void hx_reload_start(hx_reload *reloader);

/* On the loop's thread. One after the other. */
void hx_reload_ask(hx_reload *reloader, hx_admin_reload *reload);
/* By a worker, on its own thread: it uses the rules that were handed out last. */
void hx_reload_used(hx_reload *reloader);
/* How many generations are in use. On the loop's thread. */
unsigned hx_reload_generations(const hx_reload *reloader);
/* Any thread, often: a token's key is in none of the sets of source `i`. */
void hx_reload_want_keys(hx_reload *reloader, unsigned i);

/* On the loop's thread: takes no more. `stopped` is called, perhaps at once, when nothing is under way any more. */
void hx_reload_stop(hx_reload *reloader, void (*stopped)(void *context), void *context);
/* After all loops have ended: nobody is told any more when a generation is unused. Before the workers are cleared. */
void hx_reload_let_go(hx_reload *reloader);
/* After that. */
void hx_reload_free(hx_reload **owned);

#endif
