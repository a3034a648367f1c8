/* SPDX-License-Identifier: Apache-2.0 */
/* A record's bytes in a counted block that never changes: for handing what became of an operation to waiters on other
 * threads, which show the same bytes. */
#ifndef HX_STORE_SHARED_RECORD_H
#define HX_STORE_SHARED_RECORD_H

#include "core/operation/record.h"

typedef struct hx_version hx_version;

/* With one reference, which is the caller's. */
hx_version *hx_version_of(const hx_record *record) __attribute__((returns_nonnull));
hx_version *hx_version_hold(hx_version *version); /* one more, from any thread */
void hx_version_drop(hx_version **owned);
/* As hx_record_decode takes them, for as long as the version is held. */
hx_slice hx_version_bytes(const hx_version *version);
/* The record, whose bytes are held for as long as the arena lives. */
void hx_version_show(hx_version *version, hx_arena *arena, hx_record *out);

#endif
