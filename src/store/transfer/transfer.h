/* SPDX-License-Identifier: Apache-2.0 */
/* Moves operations and items out of a store or a backup file, into a store or a backup file, many at once. Items get
 * new versions in the target. The calling thread runs the loop, alone, until the function returns. A function that
 * returns false has put a sentence into `error`. */
#ifndef HX_STORE_TRANSFER_TRANSFER_H
#define HX_STORE_TRANSFER_TRANSFER_H

#include "store/transfer/backup_file.h"
#include "base/program/progress.h"
#include "store/store.h"

#define HX_TRANSFER_ERROR_BYTES (HX_BACKUP_ERROR_BYTES + 128u)

typedef struct hx_transfer {
    /* given by the caller: one source and one target */
    hx_store *from;
    hx_backup_reader *from_file;
    hx_store *to; /* has no operations */
    hx_backup_writer *to_file;
    hx_loop *loop;   /* attached to the stores */
    hx_slice reason; /* reason of processing operations, which are unknown in the target */
    hx_progress_bar *progress;
    /* given back */
    uint64_t moved;        /* operations */
    uint64_t items;        /* items that were moved */
    uint64_t ended;        /* number of operations and items that were not moved: their lifetime was over */
    uint64_t made_unknown; /* number of moved operations that were processing */
    uint64_t epoch;        /* highest epoch of a moved operation */
    char error[HX_TRANSFER_ERROR_BYTES];
} hx_transfer;

/* False: what was moved until then stays in the target. */
bool hx_transfer_run(hx_transfer *transfer) HX_MUST_USE;
/* Removes every operation and item of an unfinished store (store/transfer/unfinished.h), and leaves its note. */
bool hx_transfer_clear(hx_store *store, hx_loop *loop, hx_progress_bar *progress,
                       char error[HX_TRANSFER_ERROR_BYTES]) HX_MUST_USE;

/* The number of operations in each state, and of items. Those that end between `from` and `to` by themselves are apart,
 * so two counts of one store, made at any time between the two, are equal. Processing counts as unknown. */
typedef struct {
    hx_ms from, to;
    uint64_t states[HX_EXPIRED + 1];
    uint64_t items;
    uint64_t ending;
} hx_tally;

/* Counts the contents of `store`, or of `file` where that is NULL. */
bool hx_tally_run(hx_tally *tally, hx_loop *loop, hx_store *store, hx_backup_reader *file,
                  char error[HX_TRANSFER_ERROR_BYTES]) HX_MUST_USE;

/* Whether the store has no operations and no items. */
bool hx_transfer_is_empty(hx_loop *loop, hx_store *store, bool *empty, char error[HX_TRANSFER_ERROR_BYTES]) HX_MUST_USE;
/* The number of operations in processing whose lease is not over. */
bool hx_transfer_leased(hx_loop *loop, hx_store *store, uint64_t *count,
                        char error[HX_TRANSFER_ERROR_BYTES]) HX_MUST_USE;
/* From now on the store draws its epochs above this one. */
bool hx_transfer_raise(hx_loop *loop, hx_store *store, uint64_t epoch, char error[HX_TRANSFER_ERROR_BYTES]) HX_MUST_USE;

#endif
