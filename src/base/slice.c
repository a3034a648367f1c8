/* SPDX-License-Identifier: Apache-2.0 */
#include "base/slice.h"

#include <string.h>

hx_slice hx_slice_of(const char *terminated)
{
    return (hx_slice){terminated, strlen(terminated)};
}

bool hx_slice_eq(hx_slice a, hx_slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

char hx_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

bool hx_slice_eq_nocase(hx_slice a, hx_slice b)
{
    return a.len == b.len && hx_slice_starts_nocase(a, b);
}

bool hx_slice_starts(hx_slice s, hx_slice prefix)
{
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}

bool hx_slice_starts_nocase(hx_slice s, hx_slice prefix)
{
    if (s.len < prefix.len) return false;
    for (size_t i = 0; i < prefix.len; i++)
        if (hx_lower(s.ptr[i]) != hx_lower(prefix.ptr[i])) return false;
    return true;
}

bool hx_slice_ends(hx_slice s, hx_slice suffix)
{
    return s.len >= suffix.len && hx_slice_eq(hx_slice_from(s, s.len - suffix.len), suffix);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

hx_slice hx_slice_trim(hx_slice s)
{
    for (; s.len > 0 && is_blank(s.ptr[0]); s.ptr++) s.len--;
    while (s.len > 0 && is_blank(s.ptr[s.len - 1])) s.len--;
    return s;
}

hx_slice hx_slice_from(hx_slice s, size_t from)
{
    if (from > s.len) from = s.len;
    return (hx_slice){s.ptr + from, s.len - from};
}

hx_slice hx_slice_first(hx_slice s, size_t len)
{
    return (hx_slice){s.ptr, len < s.len ? len : s.len};
}

size_t hx_slice_find(hx_slice s, char byte)
{
    const char *at = s.len > 0 ? memchr(s.ptr, byte, s.len) : NULL;
    return at ? (size_t)(at - s.ptr) : SIZE_MAX;
}

bool hx_slice_next(hx_slice *rest, char separator, hx_slice *part)
{
    if (rest->ptr == NULL) return false;
    size_t at = hx_slice_find(*rest, separator);
    if (at == SIZE_MAX) {
        *part = *rest;
        *rest = (hx_slice){NULL, 0};
    } else {
        *part = hx_slice_first(*rest, at);
        *rest = hx_slice_from(*rest, at + 1);
    }
    return true;
}

int hx_slice_compare(hx_slice a, hx_slice b)
{
    size_t common = a.len < b.len ? a.len : b.len;
    int order = common > 0 ? memcmp(a.ptr, b.ptr, common) : 0;
    if (order != 0) return order;
    return a.len < b.len ? -1 : a.len > b.len;
}

bool hx_slice_to_u64(hx_slice s, uint64_t *out)
{
    uint64_t value = 0;
    if (s.len == 0) return false;
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9') return false;
        uint64_t digit = (uint64_t)(s.ptr[i] - '0');
        if (value > (UINT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

bool hx_slice_is_token(hx_slice s)
{
    /* One bit for each byte up to 127: 0-9 and !#$%&'*+-. in the first word, letters and ^_`|~ in the second. */
    static const uint64_t token[2] = {UINT64_C(0x03ff6cfa00000000), UINT64_C(0x57ffffffc7fffffe)};
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c > 127 || !(token[c >> 6] >> (c & 63) & 1)) return false;
    }
    return s.len > 0;
}
