/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on their way: out of a store or a backup, into a store or a backup, many at once. Nobody else runs the
 * loop meanwhile. */
#ifndef HX_STORE_TRANSFER_TRANSFER_H
#define HX_STORE_TRANSFER_TRANSFER_H

#include "store/transfer/backup_file.h"
#include "base/program/progress.h"
#include "store/store.h"

#define HX_MOVE_ERROR_BYTES (HX_BACKUP_ERROR_BYTES + 128u)

typedef struct hx_move {
    /* given by the caller; one of the first two, one of the next three */
    hx_store *from;
    hx_backup_reader *file;
    hx_store *to;
    hx_backup_writer *backup;
    hx_store *against; /* nothing is moved: what is in `from` is compared with what this one has of it */
    hx_loop *loop;     /* attached to the stores */
    hx_slice why;      /* into a store what is processing goes as unknown: the reason that it gets */
    hx_progress_bar *progress;
    void *context;
    /* What stands in `to` has another epoch or state; where stores are compared, `had` is what `against` has. */
    void (*differs)(void *context, const hx_record *had, const hx_record *found);
    /* given back */
    uint64_t moved;     /* written by this */
    uint64_t there;     /* the same stood there */
    uint64_t differing; /* another stood there, and was left */
    uint64_t ended;     /* its lifetime was over before it was read */
    uint64_t unsettled; /* of those moved: was processing */
    uint64_t epoch;     /* the highest that was seen */
    char error[HX_MOVE_ERROR_BYTES];
} hx_move;

/* False: see `error`; what was moved until then is there. */
bool hx_move_run(hx_move *move) HX_MUST_USE;

/* How many operations there are in each state. What ends by itself between `from` and `to` is counted apart: two counts
 * of the same operations, made at any time between the two, are equal. Processing counts as unknown. */
typedef struct {
    hx_ms from, to;
    uint64_t states[HX_EXPIRED + 1];
    uint64_t ending;
} hx_tally;

/* Of a store, or else of a file. */
bool hx_tally_run(hx_tally *tally, hx_loop *loop, hx_store *store, hx_backup_reader *file,
                  char error[HX_MOVE_ERROR_BYTES]) HX_MUST_USE;

/* Whether nothing but the mark is in the store (store/transfer/unfinished.h). */
bool hx_move_is_empty(hx_loop *loop, hx_store *store, bool *empty, char error[HX_MOVE_ERROR_BYTES]) HX_MUST_USE;
/* How many operations are being worked on: in processing, with a lease that is not over. */
bool hx_move_leased(hx_loop *loop, hx_store *store, uint64_t *count, char error[HX_MOVE_ERROR_BYTES]) HX_MUST_USE;
/* Epochs of the store are drawn above this one from now on. */
bool hx_move_raise(hx_loop *loop, hx_store *store, uint64_t epoch, char error[HX_MOVE_ERROR_BYTES]) HX_MUST_USE;

#endif
