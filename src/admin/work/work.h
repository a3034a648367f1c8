/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that a program runs itself, over the API: it claims one, works, and says how it ended. The store's state
 * machine is the same as for requests through the gateway.
 *
 *     claim ──► processing ──[complete, fail]──► completed, failed: every later claim gets the result
 *                 │  ▲ [renew]      [release] ──► absent: the next claim may run it
 *                 └──── the lease lapses ───────► unknown: the claimant can still complete it, nobody else may begin
 *
 * An operation belongs to the tenant and the name of the token that claimed it: others see nothing of it. The claimant
 * is a text that the caller has drawn before its first call: whoever repeats a claim with it gets the same epoch, so
 * that a response that was lost can be asked for again. It is stored as record.proof.
 *
 * What the store's record has no place for is in an item, "w/ID": the number of attempts, checkpoints, progress, the
 * deadline, and a request to cancel. It is written after the claim: a crash between the two loses a count, never a
 * claim. */
#ifndef HX_ADMIN_WORK_WORK_H
#define HX_ADMIN_WORK_WORK_H

#include "admin/call.h"

#define HX_WORK_CHECKPOINTS_BYTES (64u << 10)

/* The item beside an operation. */
typedef struct {
    uint64_t attempts;
    hx_ms deadline; /* 0: none */
    hx_slice progress;
    hx_slice cancel;      /* why somebody wants it to end; empty: nobody does */
    hx_slice checkpoints; /* a JSON object, in the item's body */
} hx_work_notes;

/* What a request has in its body; each handler takes some of it. */
typedef struct {
    hx_slice id, name, key, claimant, correlation_id, reason, progress, tenant;
    hx_slice input, result, error, value; /* JSON */
    uint64_t epoch;
    hx_ms lease, wait, lifetime, deadline;
    bool repeats_safely;
} hx_work_given;

typedef struct hx_work {
    hx_admin_call *call;
    hx_work_given given;
    hx_slice principal; /* tenant and name of the caller */
    hx_record record;
    hx_store_call store;
    hx_item item;
    hx_work_notes notes;
    hx_timer timer;
    bool is_new, may_wait;
    unsigned tries;
    void (*noted)(struct hx_work *work);
    void (*change)(struct hx_work *work); /* of the notes, before they are written; NULL: they are only read */
} hx_work;

/* Reads the body by these members. NULL: it is malformed, or the tenant is another one, and the call was answered. */
hx_work *hx_work_begin(hx_admin_call *call, const char *const *members);
hx_digest hx_work_mac(const hx_work *work, char tag, hx_slice text);
#define HX_WORK_TAG_PRINCIPAL 'p'
#define HX_WORK_TAG_CLAIMANT 'c'

/* Reads the notes of record.op, lets work->change change them, and writes them; `noted` follows either way. */
void hx_work_note(hx_work *work, void (*change)(hx_work *work), void (*noted)(hx_work *work));
/* Reads the operation that work->given names into work->record. `done` follows if the caller may see it; else the call
 * was answered. */
void hx_work_read(hx_work *work, void (*done)(hx_store_call *store));
/* False: it isn't there, isn't the caller's or can't be read, and the call was answered. */
bool hx_work_was_read(hx_work *work) HX_MUST_USE;
/* Answers with the operation, its notes and, where it has ended, its result. */
void hx_work_answer(hx_work *work, unsigned status);

#endif
