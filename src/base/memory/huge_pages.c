/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory/huge_pages.h"

#include "base/check.h"

#include <stdint.h>
#include <sys/mman.h>

#define BLOCK_BYTES ((size_t)2 << 20) /* a huge page of x86-64 and of most others */
#define ALIGNMENT 64u

typedef struct hx_huge_block {
    struct hx_huge_block *next;
} block;

/* Maps memory aligned to a huge page. */
static block *new_block(void)
{
    char *area = mmap(NULL, 2 * BLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) return NULL;
    size_t before = (BLOCK_BYTES - (uintptr_t)area % BLOCK_BYTES) % BLOCK_BYTES;
    if (before > 0) (void)munmap(area, before);
    (void)munmap(area + before + BLOCK_BYTES, BLOCK_BYTES - before);
    (void)madvise(area + before, BLOCK_BYTES, MADV_HUGEPAGE); /* a kernel without huge pages uses small ones */
    return (block *)(void *)(area + before);
}

void *hx_huge_take(hx_huge *huge, size_t bytes)
{
    HX_CHECK(bytes <= HX_HUGE_BYTES_MAX);
    bytes = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (!huge->blocks || huge->used + bytes > BLOCK_BYTES) {
        block *fresh = new_block();
        if (!fresh) return NULL;
        fresh->next = huge->blocks;
        huge->blocks = fresh;
        huge->used = ALIGNMENT;
    }
    void *piece = (char *)huge->blocks + huge->used;
    huge->used += bytes;
    return piece;
}

void hx_huge_free(hx_huge *huge)
{
    for (block *b = huge->blocks, *next; b; b = next) {
        next = b->next;
        (void)munmap(b, BLOCK_BYTES);
    }
    *huge = (hx_huge){0};
}
