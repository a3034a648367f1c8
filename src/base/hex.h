/* SPDX-License-Identifier: Apache-2.0 */
/* Hexadecimal digits: read in either case, written in lower case. */
#ifndef HX_BASE_HEX_H
#define HX_BASE_HEX_H

#include <stddef.h>
#include <stdint.h>

/* The value of a digit; -1 when `c` is none. */
static inline int hx_hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte that two digits make; -1 when they aren't digits. */
static inline int hx_hex_byte(const char digits[2])
{
    int high = hx_hex_digit(digits[0]), low = hx_hex_digit(digits[1]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Writes two digits for each byte, without a terminator. */
static inline void hx_hex_write(char *out, const void *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *from = bytes;
    for (size_t i = 0; i < len; i++) {
        *out++ = digits[from[i] >> 4];
        *out++ = digits[from[i] & 15];
    }
}

#endif
