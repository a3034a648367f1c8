/* SPDX-License-Identifier: Apache-2.0 */
/* Hexadecimal digits: read in either case, written in lower case. */
#ifndef HX_BASE_HEX_H
#define HX_BASE_HEX_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/* Reads two digits for each of `bytes` bytes; false when one isn't a digit. */
static inline bool hx_hex_read(char *out, const char *digits, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        int byte = hx_hex_byte(digits + 2 * i);
        if (byte < 0) return false;
        out[i] = (char)byte;
    }
    return true;
}

/* The eight digits of four bytes, all at once: each nibble gets a byte of its own, to which '0' is added, or 'a' - 10
 * from ten on. Both integers are little-endian: their first byte in memory is the lowest. */
static inline uint64_t hx_hex_digits(uint32_t bytes)
{
    const uint64_t ones = 0x0101010101010101;
    uint64_t x = bytes;
    x = (x | x << 16) & 0x0000ffff0000ffff;
    x = (x | x << 8) & 0x00ff00ff00ff00ff;
    x = (x >> 4 | x << 8) & ones * 15;
    uint64_t is_letter = (x + ones * 6) >> 4 & ones;
    return x + ones * '0' + is_letter * ('a' - 10 - '0');
}

/* Writes two digits for each byte, without a terminator. */
static inline void hx_hex_write(char *out, const void *bytes, size_t len)
{
    const uint8_t *from = bytes;
    for (; len >= 4; len -= 4, from += 4, out += 8) {
        uint32_t four;
        memcpy(&four, from, 4);
        uint64_t digits = htole64(hx_hex_digits(le32toh(four)));
        memcpy(out, &digits, 8);
    }
    for (; len > 0; len--, from++) {
        *out++ = "0123456789abcdef"[*from >> 4];
        *out++ = "0123456789abcdef"[*from & 15];
    }
}

#endif
