/* SPDX-License-Identifier: Apache-2.0 */
#include "core/token/base64.h"

static int digit_of(char c, bool any)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '-' || (any && c == '+')) return 62;
    return c == '_' || (any && c == '/') ? 63 : -1;
}

static bool decode(hx_slice text, bool any, hx_arena *arena, hx_slice *decoded)
{
    if (text.len % 4 == 1) return false;
    char *bytes = hx_arena_alloc(arena, text.len / 4 * 3 + 3);
    size_t len = 0;
    uint32_t bits = 0;
    unsigned count = 0;
    for (size_t i = 0; i < text.len; i++) {
        int digit = digit_of(text.ptr[i], any);
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        count += 6;
        if (count < 8) continue;
        count -= 8;
        bytes[len++] = (char)(bits >> count & 0xff);
    }
    if (!any && (bits & ((1u << count) - 1)) != 0) return false;
    *decoded = (hx_slice){bytes, len};
    return true;
}

bool hx_base64url_decode(hx_slice text, hx_arena *arena, hx_slice *decoded)
{
    return decode(text, false, arena, decoded);
}

bool hx_base64_decode_any(hx_slice text, hx_arena *arena, hx_slice *decoded)
{
    for (int i = 0; i < 2 && text.len > 0 && text.ptr[text.len - 1] == '='; i++) text.len--;
    return decode(text, true, arena, decoded);
}

void hx_base64url_encode(char *out, const uint8_t *bytes, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint32_t bits = 0;
    unsigned count = 0;
    for (size_t i = 0; i < len; i++) {
        bits = bits << 8 | bytes[i];
        for (count += 8; count >= 6; count -= 6) *out++ = digits[bits >> (count - 6) & 63];
    }
    if (count > 0) *out = digits[bits << (6 - count) & 63];
}
