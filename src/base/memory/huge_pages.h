/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for what is large, lives long and is looked up at random: in huge pages where the kernel has them, so that
 * millions of entries don't cost a walk through page tables each. It is taken piece by piece and given back all at
 * once. One thread takes; any may read what was taken. */
#ifndef HX_BASE_MEMORY_HUGE_PAGES_H
#define HX_BASE_MEMORY_HUGE_PAGES_H

#include <stddef.h>

#define HX_HUGE_BYTES_MAX ((size_t)1 << 20) /* of a piece */

typedef struct {
    struct hx_huge_block *blocks;
    size_t used; /* of the newest */
} hx_huge;

/* Zeroed, and aligned to 64 bytes. NULL: there is no memory. */
void *hx_huge_take(hx_huge *huge, size_t bytes);
void hx_huge_free(hx_huge *huge);

#endif
