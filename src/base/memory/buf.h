/* SPDX-License-Identifier: Apache-2.0 */
/* A byte buffer that grows up to the limit given at its init. On an arena its memory is the arena's and needs no
 * freeing; with arena NULL it is on the heap, and hx_buf_free frees it. */
#ifndef HX_BASE_MEMORY_BUF_H
#define HX_BASE_MEMORY_BUF_H

#include "base/memory/arena.h"

#include <string.h>

typedef struct {
    char *data;
    size_t len;
    size_t cap;
    size_t max;
    hx_arena *arena;
} hx_buf;

void hx_buf_init(hx_buf *buf, hx_arena *arena, size_t bytes_max);
/* These return false, and leave the buffer unchanged, when the limit would be passed. */
bool hx_buf_append(hx_buf *buf, hx_slice bytes) HX_MUST_USE;
bool hx_buf_byte(hx_buf *buf, char byte) HX_MUST_USE;
bool hx_buf_printf(hx_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3))) HX_MUST_USE;
/* Makes space for `bytes` more at data + len; the caller fills it and adds to len. */
bool hx_buf_reserve(hx_buf *buf, size_t bytes) HX_MUST_USE;
/* Appends text whose size the caller has bounded: exceeding the limit fails an assertion. Inline, because message
 * heads are put together from dozens of small pieces. */
void hx_buf_put_slowly(hx_buf *buf, hx_slice bytes);

static inline void hx_buf_put(hx_buf *buf, hx_slice bytes)
{
    if (bytes.len <= buf->cap - buf->len && bytes.len > 0) {
        memcpy(buf->data + buf->len, bytes.ptr, bytes.len);
        buf->len += bytes.len;
    } else {
        hx_buf_put_slowly(buf, bytes);
    }
}

static inline void hx_buf_puts(hx_buf *buf, const char *terminated)
{
    hx_buf_put(buf, (hx_slice){terminated, strlen(terminated)});
}

/* Append a number in decimal, and bytes in lower-case hexadecimal, without printf, which would cost more than the
 * rest of a request's head. */
void hx_buf_put_decimal(hx_buf *buf, uint64_t number);
void hx_buf_put_hex(hx_buf *buf, const uint8_t *bytes, size_t len);
/* Removes the first `bytes`. */
void hx_buf_consume(hx_buf *buf, size_t bytes);
hx_slice hx_buf_slice(const hx_buf *buf);
void hx_buf_free(hx_buf *buf);

#endif
