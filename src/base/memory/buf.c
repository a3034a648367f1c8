/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory/buf.h"

#include "base/check.h"
#include "base/hex.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BYTES 256u

void hx_buf_init(hx_buf *buf, hx_arena *arena, size_t bytes_max)
{
    *buf = (hx_buf){.max = bytes_max, .arena = arena};
}

static void grow(hx_buf *buf, size_t cap)
{
    if (buf->arena) {
        buf->data = buf->data ? hx_arena_grow(buf->arena, buf->data, buf->cap, cap) : hx_arena_alloc(buf->arena, cap);
    } else {
        char *data = realloc(buf->data, cap);
        if (!data) hx_fatal(HX_EXIT_BUG, "out of memory (%zu bytes)", cap);
        buf->data = data;
    }
    buf->cap = cap;
}

bool hx_buf_reserve(hx_buf *buf, size_t bytes)
{
    if (bytes > buf->max - buf->len) return false;
    size_t needed = buf->len + bytes;
    if (needed <= buf->cap) return true;
    size_t cap = buf->cap ? buf->cap : FIRST_BYTES;
    while (cap < needed) cap *= 2;
    grow(buf, cap < buf->max ? cap : buf->max);
    return true;
}

bool hx_buf_append(hx_buf *buf, hx_slice bytes)
{
    if (!hx_buf_reserve(buf, bytes.len)) return false;
    if (bytes.len > 0) memcpy(buf->data + buf->len, bytes.ptr, bytes.len);
    buf->len += bytes.len;
    return true;
}

bool hx_buf_byte(hx_buf *buf, char byte)
{
    return hx_buf_append(buf, (hx_slice){&byte, 1});
}

bool hx_buf_printf(hx_buf *buf, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    HX_CHECK(len >= 0);
    bool fits = hx_buf_reserve(buf, (size_t)len + 1); /* vsnprintf writes a NUL behind the text */
    if (fits) {
        (void)vsnprintf(buf->data + buf->len, (size_t)len + 1, format, again);
        buf->len += (size_t)len;
    }
    va_end(again);
    return fits;
}

void hx_buf_put_slowly(hx_buf *buf, hx_slice bytes)
{
    bool fits = hx_buf_append(buf, bytes);
    HX_CHECK(fits);
}

void hx_buf_put_decimal(hx_buf *buf, uint64_t number)
{
    char digits[20];
    size_t from = sizeof digits;
    do {
        digits[--from] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    hx_buf_put(buf, (hx_slice){digits + from, sizeof digits - from});
}

void hx_buf_put_hex(hx_buf *buf, const uint8_t *bytes, size_t len)
{
    bool fits = hx_buf_reserve(buf, 2 * len);
    HX_CHECK(fits);
    hx_hex_write(buf->data + buf->len, bytes, len);
    buf->len += 2 * len;
}

void hx_buf_consume(hx_buf *buf, size_t bytes)
{
    HX_CHECK(bytes <= buf->len);
    buf->len -= bytes;
    if (buf->len > 0) memmove(buf->data, buf->data + bytes, buf->len);
}

hx_slice hx_buf_slice(const hx_buf *buf)
{
    return buf->data ? (hx_slice){buf->data, buf->len} : HX_EMPTY;
}

void hx_buf_free(hx_buf *buf)
{
    if (!buf->arena) free(buf->data);
    buf->data = NULL;
    buf->len = buf->cap = 0;
}
