/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for large, long-lived tables with random lookups, in huge pages where the kernel has them, so that a lookup
 * among millions of entries costs no walk through page tables. It is allocated piece by piece and freed all at once.
 * One thread allocates; any thread may read. */
#ifndef HX_BASE_MEMORY_HUGE_PAGES_H
#define HX_BASE_MEMORY_HUGE_PAGES_H

#include <stddef.h>

#define HX_HUGE_BYTES_MAX ((size_t)1 << 20) /* bytes of a piece */

typedef struct {
    struct hx_huge_block *blocks;
    size_t used; /* bytes used of the newest piece */
} hx_huge;

/* Allocates zeroed memory, aligned to 64 bytes. NULL when there is none. */
void *hx_huge_take(hx_huge *huge, size_t bytes);
void hx_huge_free(hx_huge *huge);

#endif
