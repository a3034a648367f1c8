/* SPDX-License-Identifier: Apache-2.0 */
/* A record's bytes in a counted block that never changes: for handing what became of an operation to waiters on other
 * threads, which show the same bytes. */
#ifndef HX_STORE_SHARED_RECORD_H
#define HX_STORE_SHARED_RECORD_H

#include "core/operation/record.h"

#include <stdatomic.h>

typedef struct hx_shared_record {
    atomic_uint references;
    /* The operation when the block was made; its state and lease may be newer than the bytes. */
    hx_state state;
    hx_ms lease_until;
    uint64_t epoch;
    size_t len; /* 0: a record exists, but can't be read back */
    char bytes[];
} hx_shared_record;

/* Allocates `len` bytes, which the caller fills. */
hx_shared_record *hx_shared_record_new(size_t len) __attribute__((returns_nonnull));

/* With one reference, which is the caller's. */
hx_shared_record *hx_shared_record_of(const hx_record *record) __attribute__((returns_nonnull));
hx_shared_record *hx_shared_record_hold(hx_shared_record *version); /* adds a holder; any thread */
void hx_shared_record_drop(hx_shared_record **owned);
/* As hx_record_decode takes them, for as long as the version is held. */
hx_slice hx_shared_record_bytes(const hx_shared_record *version);
/* The record, whose bytes are held for as long as the arena lives. */
void hx_shared_record_show(hx_shared_record *version, hx_arena *arena, hx_record *out);

#endif
