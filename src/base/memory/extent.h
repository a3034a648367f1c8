/* SPDX-License-Identifier: Apache-2.0 */
/* A range of bytes in an open file, for content that is too large for memory: a response in the store, or a spooled
 * body. */
#ifndef HX_BASE_MEMORY_EXTENT_H
#define HX_BASE_MEMORY_EXTENT_H

#include "base/slice.h"

typedef struct {
    int fd;
    uint64_t at;
    uint64_t len;
} hx_extent;

/* Reads the first `len` bytes, which the extent must have. False when they can't be read. */
bool hx_extent_read(const hx_extent *extent, char *to, size_t len) HX_MUST_USE;

#endif
