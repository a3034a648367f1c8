/* SPDX-License-Identifier: Apache-2.0 */
/* Puts rules into force: those of the start, those of each reload, and the same rules with new keys of tokens. Each
 * becomes a generation (daemon/generation.h). It lives on the background loop and does one thing at a time, in the
 * steps of reload_steps.def: that table says what a reload does and what takes each step back. A reload that is refused
 * changes nothing.
 *
 *     read ─► compare ─► keys ─► check ─► retire ─► recheck ─► readmit ─► enforce ─► hand_out ─► accept ─► finish
 *                                  └──── nothing to retire ─────►┘  └─ not shared ─►┘
 *
 * Retiring comes between two checks because requests run meanwhile: after the first one nothing begins under rules that
 * go, and the second one sees what began before. Rules stay retired until only the newest generation is in use. */
#ifndef HX_DAEMON_RELOAD_H
#define HX_DAEMON_RELOAD_H

#include "daemon/generation.h"
#include "admin/admin.h"
#include "daemon/daemon.h"
#include "gateway/rules.h"

typedef struct hx_reload hx_reload;

typedef struct {
    const hx_daemon_source *source;
    hx_loop *loop; /* the background loop */
    hx_store *store;
    unsigned worker_count;
    /* Hands the rules to every worker; each calls hx_reload_used once it uses them. Returns false if the daemon is
     * stopping, and hands out nothing then. */
    bool (*hand_out)(void *context, hx_rules *rules);
    /* Called once the rules are in force: on the loop, in the turn in which they are handed out, and at the start. */
    void (*in_force)(void *context, const hx_rules *before, const hx_rules *rules);
    void *context;
} hx_reload_needs;

hx_reload *hx_reload_new(const hx_reload_needs *needs);

/* The first generation, while no other thread runs: turns the loop until its rules are in force, or refused. Returns
 * HX_EXIT_OK with them in *rules, or an exit code after printing on standard error what is wrong. Takes `config`. */
int hx_reload_first(hx_reload *r, hx_config *config, hx_rules **rules);
/* Just before the loop's thread runs: reloads are accepted, and keys fetched again, from now on. */
void hx_reload_start(hx_reload *r);

/* Queues a reload. On the loop's thread. */
void hx_reload_ask(hx_reload *r, hx_admin_reload *request);
/* A worker says, on its own thread, that it uses the rules that were handed out last. */
void hx_reload_used(hx_reload *r);
/* How many generations are in use. On the loop's thread. */
unsigned hx_reload_generations(const hx_reload *r);
/* A use of the newest configuration, for what points into it whatever is reloaded later; after hx_reload_first. */
hx_generation_config *hx_reload_hold_config(hx_reload *r);
/* Fetches the keys of source `i` soon, because a token names one that it doesn't have. Any thread, at any rate. */
void hx_reload_want_keys(hx_reload *r, unsigned i);

/* Fetches no more keys, and waits for none. On the loop's thread. */
void hx_reload_stop_keys(hx_reload *r);
/* Refuses further reloads; `stopped` is called later, when nothing is under way any more. On the loop's thread. */
void hx_reload_stop(hx_reload *r, void (*stopped)(void *context), void *context);
/* After all loops have ended and before the workers are cleared: generations that become unused are not reported. */
void hx_reload_let_go(hx_reload *r);
/* After hx_reload_let_go. */
void hx_reload_free(hx_reload **owned);

#endif
