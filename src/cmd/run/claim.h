/* SPDX-License-Identifier: Apache-2.0 */
/* The claim of a run, in a store that this process opens (claim_store.c) or at a daemon that it asks
 * (claim_daemon.c). It has one key and makes one call at a time, and a renewal beside it. All calls but `renew` run the
 * loop until they have ended. Results are those of the store: UNAVAILABLE calls can be repeated. */
#ifndef HX_CMD_RUN_CLAIM_H
#define HX_CMD_RUN_CLAIM_H

#include "store/store.h"

#define HX_RUN_ROUTE "hapax run"
#define HX_RUN_LEASE (30 * HX_SECOND)

typedef struct hx_run_claim hx_run_claim;

typedef struct {
    /* Claims the key: OK, or EXISTS with what it is. */
    hx_store_result (*claim)(hx_run_claim *c, hx_record *found);
    /* What the key is now, state HX_ABSENT where it is nothing. */
    hx_store_result (*read)(hx_run_claim *c, hx_record *found);
    /* Waits until `found`, which is processing, may have ended: its claim, or its lease. */
    void (*await)(hx_run_claim *c, const hx_record *found);
    /* Renews the lease; c->renewed follows, from the loop. */
    void (*renew)(hx_run_claim *c);
    /* Writes the outcome in c->record; STALE: the operation is `found` now. */
    hx_store_result (*settle)(hx_run_claim *c, hx_record *found);
    /* The number of attempts before the one that is claimed, or was read; 0 where it can't be told. */
    unsigned (*attempts)(hx_run_claim *c);
    /* Keeps that number for the next claim, while this one is held. One that is lost is no more than a number too
     * low. */
    void (*note_attempts)(hx_run_claim *c, unsigned attempts);
    /* Counts a job that was not run because its key was taken. */
    void (*note_skip)(hx_run_claim *c);
    void (*close)(hx_run_claim *c);
} hx_run_claim_ops;

struct hx_run_claim { /* the first member of either's own struct */
    const hx_run_claim_ops *ops;
    hx_loop *loop;
    hx_arena *arena;
    hx_slice key;
    char *const *argv; /* the command; NULL: there is none */
    hx_ms lifetime;
    bool no_wait;
    hx_record record; /* the claim, and later its outcome; op, epoch and lease_until are set by `claim` */
    hx_ms (*now)(void);
    void (*renewed)(hx_run_claim *c, hx_store_result result); /* given by who renews */
    void *context;                                            /* of `renewed` */
    bool is_refused;                                          /* UNAVAILABLE, and it will stay so: c->error says why */
    hx_error_text error;                                      /* of the last call that was UNAVAILABLE; may be empty */
};

/* Opens a store for the key, command and lifetime of `given`. NULL with a sentence in `error`. */
hx_run_claim *hx_run_claim_in_store(const hx_run_claim *given, hx_slice url, hx_error_text error);
/* The same at "unix:PATH" or "http://HOST:PORT", which need not answer yet. `token`: empty for none. */
hx_run_claim *hx_run_claim_at_daemon(const hx_run_claim *given, hx_slice url, hx_slice token, hx_error_text error);
void hx_run_claim_close(hx_run_claim **owned);

#endif
