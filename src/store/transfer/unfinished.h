/* SPDX-License-Identifier: Apache-2.0 */
/* The mark of a store: a record under an operation that no request can have, all zeros. Any store can keep it, and it
 * comes along in a copy. While a copy, restore or salvage fills a store its mark is unknown, and no gateway starts on
 * it; a restored store, or one that was salvaged with losses, keeps it as completed, so that it can be seen where the
 * store comes from. It belongs to no route's rules. */
#ifndef HX_STORE_TRANSFER_UNFINISHED_H
#define HX_STORE_TRANSFER_UNFINISHED_H

#include "store/store.h"

/* A call that is waited for, on a loop that nobody else runs. */
typedef struct {
    hx_store_call call;
    bool done;
} hx_awaited;

void hx_await_begin(hx_awaited *awaited, hx_loop *loop, hx_arena *arena);
hx_store_result hx_await(hx_awaited *awaited);

bool hx_unfinished_is(const hx_op *op);

typedef struct {
    bool is_there;
    bool unfinished;
    const char *by;      /* the `hapax store` that is under way, or was: "copy", "restore" or "salvage" */
    uint64_t epoch;      /* of the mark itself */
    uint64_t generation; /* how many restores lie behind the store */
    hx_ms taken_at;      /* the backup */
    hx_ms restored_at;
} hx_unfinished;

/* False: the store can't be asked. */
bool hx_unfinished_read(hx_store *store, hx_loop *loop, hx_unfinished *out) HX_MUST_USE;
/* The record of a store that is not finished. It keeps what `earlier` says of restores; NULL: there were none. */
hx_record hx_unfinished_text(const char *by, uint64_t epoch, const hx_unfinished *earlier, hx_arena *arena);
/* Marks a store as not finished, whose mark is *mark; epochs are drawn above `epoch` from then on. */
hx_store_result hx_unfinished_begin(hx_store *store, hx_loop *loop, const char *by, uint64_t epoch,
                                    hx_unfinished *mark) HX_MUST_USE;
/* It is whole. `restored` says where it comes from; without a generation that is nothing to keep. */
hx_store_result hx_unfinished_end(hx_store *store, hx_loop *loop, const hx_unfinished *unfinished,
                                  const hx_unfinished *restored) HX_MUST_USE;

/* Before a gateway uses the store: HX_EXIT_OK, or HX_EXIT_STORE after having said on standard error that it is not
 * whole, or that nobody can tell. That it was restored is said on the log. */
int hx_unfinished_admit(hx_store *store, hx_loop *loop);

#endif
