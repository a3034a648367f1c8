/* SPDX-License-Identifier: Apache-2.0 */
/* Work on a store that follows from numbers alone, and the checks of what it finds there. */
#ifndef HX_TESTS_CRASH_WORKLOAD_H
#define HX_TESTS_CRASH_WORKLOAD_H

#include "plan.h"
#include "world.h"

#define SEGMENT_BYTES (64u * 1024u)
#define BATCHES 700u

typedef struct {
    const char *folder; /* of the store */
    uint32_t segment_bytes;
    uint64_t batches; /* how far a whole run goes */
    uint32_t body_max;
    const crash_report *shim;   /* once it has fired, claims may be refused; NULL: never */
    crash_shim_space_fn *space; /* frees space again; NULL: outcomes may be refused too */
} workload;

/* Opens the store, or ends the process with what is wrong. */
void workload_open(const workload *w);
/* The same, but hands back a refusal. */
bool workload_try_open(const workload *w, hx_error_text error);
void workload_close(void);
/* Whatever was cut off, torn or begun: the chain of what is left is whole, down to a checkpoint. The store must be
 * closed. */
void workload_audit(void);

/* Looks at every operation: what was acknowledged must be there, what was asked for may be, nothing else. Afterwards
 * the model knows which. */
void workload_reconcile(void);
/* Nothing may have changed since the model last knew. */
void workload_compare(const char *when);
/* From the batch after the last one in the log to the end, with sweeps and reopenings. */
void workload_run(const workload *w);
/* Asks for every operation by a claim, settles half of what was free, and compares. */
void workload_probe(void);
/* For checks from outside. peek: false when the operation is absent. */
bool workload_peek(uint32_t op, hx_arena *arena, hx_record *found);
/* NULL if the store keeps no items, or those of the model (items.h). */
const char *workload_items_differ(const item_model *items, bool *unreadable);
const hx_store_facts *workload_facts(void);
/* Claims a new operation, and returns its epoch. */
uint64_t workload_fresh_epoch(void);
/* Long after: outcomes are gone, what is unknown stays. */
void workload_outlive(void);

#endif
