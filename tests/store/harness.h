/* SPDX-License-Identifier: Apache-2.0 */
/* What store tests share: a store under test with its own time, and calls that are waited for. */
#ifndef HX_TESTS_STORE_HARNESS_H
#define HX_TESTS_STORE_HARNESS_H

#include "store/store.h"

/* The time of every store that a test opens; starts at 2027-01-01. */
extern _Atomic hx_ms test_now;
hx_ms test_clock(void);

typedef struct {
    const char *backend; /* "memory" or "journal" */
    char directory[64];  /* of the journal */
    hx_store_options options;
    hx_store *store;
    hx_loop *loop;
    hx_arena arena;
    bool unretained; /* as the last settle said */
} bench;

/* Opens a new store. options.now is set by it. */
void bench_begin(bench *b, const char *backend, hx_store_options options);
/* Closes and opens again; for memory: nothing. */
void bench_restart(bench *b);
void bench_close(bench *b);
void bench_open(bench *b);
void bench_end(bench *b); /* and removes the directory */
void remove_directory(const char *path);
void new_directory(char path[64]);

hx_op op_of(uint64_t number);
/* A record in processing for operation `number`, all fields filled from it. */
hx_record record_of(uint64_t number);

typedef struct {
    hx_store_call call;
    bool done;
} waited;

void wait_for(bench *b, waited *w);
/* `found` may be NULL. */
void wait_for_state(bench *b, hx_op op, hx_state state, hx_record *found);
void wait_start(bench *b, waited *w); /* fills in loop, arena and done */

hx_store_result claim(bench *b, hx_record *record, uint64_t take_over, hx_record *found);
hx_store_result settle(bench *b, hx_record *record, hx_state state, hx_record *found);
hx_store_result renew(bench *b, hx_op op, uint64_t epoch, hx_ms lease_until, hx_record *found);
hx_store_result forget(bench *b, hx_op op, uint64_t epoch, hx_record *found);
uint64_t sweep(bench *b);
uint64_t last_epoch(bench *b);
/* A put; with `meta` NULL: a removal. */
hx_item item_of(const char *key, uint64_t version, const char *meta);
/* `version`, which may be NULL, gets that of what was written. */
hx_store_result commit_items(bench *b, hx_item *items, size_t count, bool urgent, uint64_t *version);
hx_store_result get_item(bench *b, const char *key, hx_item *found);
/* HX_ABSENT when there is nothing. */
hx_state peek(bench *b, hx_op op, hx_record *found);

#endif
