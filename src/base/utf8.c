/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include <stdbool.h>
#include <string.h>

#define EACH_BYTE UINT64_C(0x0101010101010101)

/* A bit for each byte of a word that is zero; bytes above it may have theirs set, too. */
static uint64_t zero_bytes(uint64_t word)
{
    return (word - EACH_BYTE) & ~word & (0x80 * EACH_BYTE);
}

size_t hx_utf8_plain_bytes(const char *at, const char *end)
{
    const char *from = at;
    for (uint64_t word; end - at >= 8; at += 8) {
        memcpy(&word, at, sizeof word);
        uint64_t controls = (word - 0x20 * EACH_BYTE) | word; /* below a space, or not ASCII */
        uint64_t others = zero_bytes(word ^ 0x7f * EACH_BYTE) | zero_bytes(word ^ '"' * EACH_BYTE) |
                          zero_bytes(word ^ '\\' * EACH_BYTE);
        if (((controls & (0x80 * EACH_BYTE)) | others) != 0) break;
    }
    while (at < end && *at >= 0x20 && *at < 0x7f && *at != '"' && *at != '\\') at++;
    return (size_t)(at - from);
}

static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

size_t hx_utf8_bytes(const char *at, const char *end)
{
    size_t left = (size_t)(end - at);
    if (left == 0) return 0;
    unsigned char lead = (unsigned char)at[0];
    if (lead < 0x80) return 1;
    if (lead < 0xc2 || left < 2 || !is_continuation(at[1])) return 0;
    if (lead < 0xe0) return 2;
    unsigned char second = (unsigned char)at[1];
    if (left < 3 || !is_continuation(at[2])) return 0;
    if (lead < 0xf0) {
        bool overlong = lead == 0xe0 && second < 0xa0;
        bool surrogate = lead == 0xed && second >= 0xa0;
        return overlong || surrogate ? 0 : 3;
    }
    if (lead > 0xf4 || left < 4 || !is_continuation(at[3])) return 0;
    bool overlong = lead == 0xf0 && second < 0x90;
    bool too_high = lead == 0xf4 && second >= 0x90;
    return overlong || too_high ? 0 : 4;
}

size_t hx_utf8_put(char out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

unsigned hx_utf8_harmful(const char *at, size_t len)
{
    const unsigned char *c = (const unsigned char *)at;
    unsigned code = len == 2   ? (c[0] & 0x1fu) << 6 | (c[1] & 0x3fu)
                    : len == 3 ? (c[0] & 0x0fu) << 12 | (c[1] & 0x3fu) << 6 | (c[2] & 0x3fu)
                               : 0;
    bool is_one = (code >= 0x80 && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
                  (code >= 0x2066 && code <= 0x2069);
    return is_one ? code : 0;
}
