/* SPDX-License-Identifier: Apache-2.0 */
/* What a command writes: passed on to our own standard output and standard error at once, and recorded in the order in
 * which it came. A thread does both, so that a reader of ours who is slow delays the command, but no renewal of the
 * claim.
 *
 * The record is a row of frames: one byte that names the stream (1, 2), four bytes with the length, big-endian, and
 * that many bytes. Up to HX_OUTPUT_IN_MEMORY it is in memory, then in a file without a name. */
#ifndef HX_CMD_RUN_OUTPUT_H
#define HX_CMD_RUN_OUTPUT_H

#include "base/loop/loop.h"
#include "base/memory/buf.h"

#define HX_OUTPUT_IN_MEMORY (256u << 10)
#define HX_OUTPUT_MAX (8u << 20)

typedef struct {
    size_t max;   /* of the record, frames and all */
    bool is_kept; /* false: it is passed on only */
    bool is_lost; /* it was too long, or could not be written down */
    hx_buf memory;
    int file; /* -1: all is in memory */
    size_t bytes;
    void *mapped;
    /* of one attempt */
    int from[2];
    bool is_stuck[2]; /* nobody reads our own stream any more */
    int rest[2];      /* a pipe whose end says that no more will come */
    pthread_t thread;
    hx_loop *loop;
    hx_task ended;
    void *context; /* for `ended` */
} hx_output;

/* max 0: nothing is recorded. */
void hx_output_init(hx_output *o, size_t max);
/* Takes the descriptors, and reads them until both have ended; `ended` then runs on the loop. 0, or an errno. */
int hx_output_start(hx_output *o, hx_loop *loop, const int from[2], void (*ended)(hx_task *task));
/* No more will come: what is there is read, though others may still hold the descriptors open. */
void hx_output_finish(hx_output *o);
/* After `ended` has run. */
void hx_output_join(hx_output *o);
/* The record; it lives as long as `o`. False: there is none. */
bool hx_output_record(hx_output *o, hx_slice *record) HX_MUST_USE;
void hx_output_free(hx_output *o);

/* Writes a record to our own streams. False: it isn't one. */
bool hx_output_replay(hx_slice record) HX_MUST_USE;

#endif
