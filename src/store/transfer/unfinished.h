/* SPDX-License-Identifier: Apache-2.0 */
/* The note in a store that says where its contents come from. It is a record under an operation that no request can
 * have, all zeros, so every kind of store can keep it, and it belongs to no route's rules.
 *
 *     state      meaning
 *     unknown    a `hapax store copy`, `restore` or `salvage` fills the store, or was cut short; no gateway starts
 *     processing the same: a run takes the store over from one that was cut short
 *     completed  the store was restored from a backup, or salvaged with losses; a copy of it keeps the note
 *     absent     neither */
#ifndef HX_STORE_TRANSFER_UNFINISHED_H
#define HX_STORE_TRANSFER_UNFINISHED_H

#include "store/store.h"

/* Whether this is the operation of the note. */
bool hx_unfinished_is(const hx_op *op);

typedef struct {
    bool is_there;
    bool unfinished;
    bool processing;     /* an earlier run was killed while it took the store over */
    const char *by;      /* the `hapax store` command that fills or filled the store: "copy", "restore" or "salvage" */
    uint64_t epoch;      /* epoch of the note itself */
    uint64_t generation; /* number of restores in the store's past */
    hx_ms taken_at;      /* time of the backup; after a salvage: of the last change that was found */
    hx_ms restored_at;
} hx_unfinished;

/* Reads the note of a store. False: the store can't be reached. */
bool hx_unfinished_read(hx_store *store, hx_loop *loop, hx_unfinished *out) HX_MUST_USE;
/* The note of a store that `by` fills. The store draws its epochs above the note's. */
hx_record hx_unfinished_record(const char *by, uint64_t epoch);
/* Writes that note into a store without one, and reads it back. */
hx_store_result hx_unfinished_begin(hx_store *store, hx_loop *loop, const char *by, uint64_t epoch,
                                    hx_unfinished *out) HX_MUST_USE;
/* Takes an unfinished store over from an earlier run, by a new epoch of its note: that run can no longer end the store,
 * should it still be at work. STALE: another run was faster. */
hx_store_result hx_unfinished_take_over(hx_store *store, hx_loop *loop, hx_unfinished *note) HX_MUST_USE;
/* The store is whole: the note becomes `origin`, or is removed where that has no generation. */
hx_store_result hx_unfinished_end(hx_store *store, hx_loop *loop, const hx_unfinished *unfinished,
                                  const hx_unfinished *origin) HX_MUST_USE;

/* Before a gateway uses the store. HX_EXIT_STORE, with a message on standard error: it is unfinished or can't be
 * reached. Else HX_EXIT_OK; a restored or salvaged store is logged. */
int hx_unfinished_admit(hx_store *store, hx_loop *loop);

#endif
