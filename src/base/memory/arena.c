/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory/arena.h"

#include "base/check.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPARE_BLOCKS_MAX 1024u /* 16 MiB a thread */
#define ALIGNMENT alignof(max_align_t)

struct hx_arena_block {
    struct hx_arena_block *next;
    alignas(max_align_t) char bytes[];
};

struct hx_arena_end {
    struct hx_arena_end *next;
    void (*run)(void *what);
    void *what;
};

static _Thread_local struct {
    hx_arena_block *first;
    unsigned count;
} spare;

static hx_arena_block *heap_block(size_t bytes)
{
    hx_arena_block *block = malloc(sizeof *block + bytes);
    if (!block) hx_fatal(HX_EXIT_BUG, "out of memory (%zu bytes)", bytes);
    return block;
}

static hx_arena_block *take_block(void)
{
    hx_arena_block *block = spare.first;
    if (!block) return heap_block(HX_ARENA_BLOCK_BYTES - sizeof *block);
    spare.first = block->next;
    spare.count--;
    return block;
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
}

static void *alloc_large(hx_arena *arena, size_t bytes)
{
    hx_arena_block *block = heap_block(bytes);
    block->next = arena->large;
    arena->large = block;
    return block->bytes;
}

void *hx_arena_alloc(hx_arena *arena, size_t bytes)
{
    size_t wanted = aligned(bytes > 0 ? bytes : 1); /* zero bytes need an address, too, and an empty arena has none */
    HX_CHECK(wanted >= bytes);
    if (wanted > (size_t)(arena->end - arena->next)) {
        size_t room = HX_ARENA_BLOCK_BYTES - sizeof(hx_arena_block);
        /* Half a block at most is wasted at the end of a block. */
        if (wanted > room / 2) return alloc_large(arena, bytes);
        hx_arena_block *block = take_block();
        block->next = arena->blocks;
        arena->blocks = block;
        arena->next = block->bytes;
        arena->end = block->bytes + room;
    }
    void *result = arena->next;
    arena->next += wanted;
    return result;
}

void *hx_arena_zalloc(hx_arena *arena, size_t bytes)
{
    return memset(hx_arena_alloc(arena, bytes), 0, bytes);
}

hx_slice hx_arena_copy(hx_arena *arena, hx_slice bytes)
{
    char *copy = hx_arena_alloc(arena, bytes.len);
    if (bytes.len > 0) memcpy(copy, bytes.ptr, bytes.len);
    return (hx_slice){copy, bytes.len};
}

char *hx_arena_terminated(hx_arena *arena, hx_slice bytes)
{
    char *copy = hx_arena_alloc(arena, bytes.len + 1);
    if (bytes.len > 0) memcpy(copy, bytes.ptr, bytes.len);
    copy[bytes.len] = '\0';
    return copy;
}

hx_slice hx_arena_printf(hx_arena *arena, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    char *first = arena->next; /* nearly always it fits into what is left of the block */
    int len = vsnprintf(first, (size_t)(arena->end - first), format, args);
    va_end(args);
    HX_CHECK(len >= 0);
    char *text = hx_arena_alloc(arena, (size_t)len + 1);
    if (text != first) (void)vsnprintf(text, (size_t)len + 1, format, again);
    va_end(again);
    return (hx_slice){text, (size_t)len};
}

bool hx_arena_extend(hx_arena *arena, const void *newest, size_t old_bytes, size_t new_bytes)
{
    size_t old_len = aligned(old_bytes), new_len = aligned(new_bytes);
    if (arena->next == NULL || (const char *)newest + old_len != arena->next) return false;
    if (new_len < old_len || new_len - old_len > (size_t)(arena->end - arena->next)) return false;
    arena->next += new_len - old_len;
    return true;
}

static void *grow_large(hx_arena_block **at, size_t bytes)
{
    hx_arena_block *block = realloc(*at, sizeof *block + bytes);
    if (!block) hx_fatal(HX_EXIT_BUG, "out of memory (%zu bytes)", bytes);
    *at = block;
    return block->bytes;
}

void *hx_arena_grow(hx_arena *arena, void *old, size_t old_bytes, size_t new_bytes)
{
    if (hx_arena_extend(arena, old, old_bytes, new_bytes)) return old;
    for (hx_arena_block **at = &arena->large; *at; at = &(*at)->next)
        if ((*at)->bytes == old) return grow_large(at, new_bytes);
    return memcpy(hx_arena_alloc(arena, new_bytes), old, old_bytes);
}

void hx_arena_at_end(hx_arena *arena, void (*end)(void *what), void *what)
{
    hx_arena_end *row = hx_arena_alloc(arena, sizeof *row);
    *row = (hx_arena_end){.next = arena->ends, .run = end, .what = what};
    arena->ends = row;
}

void hx_arena_free(hx_arena *arena)
{
    for (const hx_arena_end *end = arena->ends; end; end = end->next) end->run(end->what);
    for (hx_arena_block *block = arena->blocks, *next; block; block = next) {
        next = block->next;
        if (spare.count >= SPARE_BLOCKS_MAX) {
            free(block);
            continue;
        }
        block->next = spare.first;
        spare.first = block;
        spare.count++;
    }
    for (hx_arena_block *block = arena->large, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    *arena = (hx_arena){0};
}

void hx_arena_pool_drain(void)
{
    for (hx_arena_block *block = spare.first, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    spare.first = NULL;
    spare.count = 0;
}
