/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is freed all at once. A request has one arena, and so has a configuration. Blocks come from a pool that
 * belongs to one thread, so that a request's memory costs neither the heap nor a lock once the pool is warm.
 * An arena belongs to one thread at a time. */
#ifndef HX_BASE_MEMORY_ARENA_H
#define HX_BASE_MEMORY_ARENA_H

#include "base/slice.h"

#define HX_ARENA_BLOCK_BYTES (16u * 1024u)

typedef struct hx_arena_block hx_arena_block;
typedef struct hx_arena_end hx_arena_end;

typedef struct {
    hx_arena_block *blocks; /* newest first */
    hx_arena_block *large;  /* allocations too big for a block, straight from the heap */
    char *next;
    char *end;
    hx_arena_end *ends; /* functions to call when the arena is freed, newest first */
} hx_arena;

/* An arena that is all zero bytes is empty and ready: hx_arena a = {0}. */

/* Never NULL: when there is no memory, hx_fatal is called. Aligned for any type; not zeroed. */
void *hx_arena_alloc(hx_arena *arena, size_t bytes) __attribute__((returns_nonnull, malloc, alloc_size(2)));
void *hx_arena_zalloc(hx_arena *arena, size_t bytes) __attribute__((returns_nonnull, malloc, alloc_size(2)));
hx_slice hx_arena_copy(hx_arena *arena, hx_slice bytes);
char *hx_arena_terminated(hx_arena *arena, hx_slice bytes); /* a NUL-terminated copy */
hx_slice hx_arena_printf(hx_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Extends an allocation in place, if it is the newest and its block has space. */
bool hx_arena_extend(hx_arena *arena, const void *newest, size_t old_bytes, size_t new_bytes) HX_MUST_USE;
/* Extends any allocation, in place or by moving it; a large one leaves no unused memory behind. */
void *hx_arena_grow(hx_arena *arena, void *old, size_t old_bytes, size_t new_bytes) __attribute__((returns_nonnull));
/* Registers `end`, which is called with `what` when the arena is freed, before its memory is: for resources that its
 * contents hold. */
void hx_arena_at_end(hx_arena *arena, void (*end)(void *what), void *what);
void hx_arena_free(hx_arena *arena);

/* Gives this thread's spare blocks back to the heap; call it when a thread ends. */
void hx_arena_pool_drain(void);

#endif
