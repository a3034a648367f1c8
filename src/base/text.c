/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include "base/hex.h"

#include <string.h>

static bool has_upper(hx_slice text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] != hx_lower(text.ptr[i])) return true;
    return false;
}

hx_slice hx_text_lower(hx_slice text, hx_arena *arena)
{
    if (!has_upper(text)) return text;
    char *lower = hx_arena_alloc(arena, text.len);
    for (size_t i = 0; i < text.len; i++) lower[i] = hx_lower(text.ptr[i]);
    return (hx_slice){lower, text.len};
}

hx_slice hx_text_host(hx_slice host, hx_slice port, hx_arena *arena)
{
    size_t colon = host.len;
    while (colon > 0 && host.ptr[colon - 1] >= '0' && host.ptr[colon - 1] <= '9') colon--;
    hx_slice digits = hx_slice_from(host, colon);
    bool has_port = colon > 0 && host.ptr[colon - 1] == ':';
    if (has_port && (digits.len == 0 || hx_slice_eq(digits, port))) host = hx_slice_first(host, colon - 1);
    return hx_text_lower(host, arena);
}

int hx_text_percent_at(hx_slice text, size_t i)
{
    return text.ptr[i] != '%' || text.len - i < 3 ? -1 : hx_hex_byte(text.ptr + i + 1);
}

bool hx_text_percent_decode(hx_slice text, bool plus_is_space, hx_arena *arena, hx_slice *decoded)
{
    *decoded = text;
    if (hx_slice_find(text, '%') == SIZE_MAX && (!plus_is_space || hx_slice_find(text, '+') == SIZE_MAX)) return true;
    char *bytes = hx_arena_alloc(arena, text.len);
    size_t len = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (c == '%') {
            int byte = hx_text_percent_at(text, i);
            if (byte < 0) return false;
            c = (char)byte;
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        bytes[len++] = c;
    }
    *decoded = (hx_slice){bytes, len};
    return true;
}

bool hx_text_is_unreserved(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

void hx_text_percent_write(char out[3], unsigned char byte)
{
    static const char digits[] = "0123456789ABCDEF";
    out[0] = '%';
    out[1] = digits[byte >> 4];
    out[2] = digits[byte & 15];
}

void hx_text_percent_put(hx_buf *out, hx_slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        char escaped[3];
        hx_text_percent_write(escaped, (unsigned char)text.ptr[i]);
        bool is_plain = hx_text_is_unreserved(text.ptr[i]);
        hx_buf_put(out, is_plain ? (hx_slice){text.ptr + i, 1} : (hx_slice){escaped, sizeof escaped});
    }
}

bool hx_text_split_header(hx_slice line, hx_text_header *header)
{
    const char *colon = line.len > 0 ? memchr(line.ptr, ':', line.len) : NULL, *end = line.ptr + line.len;
    *header = (hx_text_header){.line = line, .name = HX_EMPTY, .value = HX_EMPTY};
    if (!colon) return false;
    header->name = (hx_slice){line.ptr, (size_t)(colon - line.ptr)};
    if (end[-1] == '\n') end--;
    if (end[-1] == '\r') end--;
    header->value = hx_slice_trim((hx_slice){colon + 1, (size_t)(end - colon) - 1});
    return true;
}

bool hx_text_next_header(hx_slice *block, hx_text_header *header)
{
    if (block->len == 0) return false;
    const char *end = memchr(block->ptr, '\n', block->len);
    size_t len = end ? (size_t)(end - block->ptr) + 1 : block->len;
    (void)hx_text_split_header((hx_slice){block->ptr, len}, header);
    block->ptr += len;
    block->len -= len;
    return true;
}

bool hx_text_take_quoted(hx_slice *rest, hx_arena *arena, hx_slice *value)
{
    size_t end = 1, escapes = 0;
    for (; end < rest->len && rest->ptr[end] != '"'; end++) {
        if (rest->ptr[end] != '\\') continue;
        escapes++;
        end++;
    }
    if (end >= rest->len) return false;
    *value = (hx_slice){rest->ptr + 1, end - 1};
    *rest = hx_slice_from(*rest, end + 1);
    if (escapes == 0) return true;
    char *text = hx_arena_alloc(arena, value->len - escapes);
    size_t len = 0;
    for (size_t i = 0; i < value->len; i++) {
        if (value->ptr[i] == '\\') i++;
        text[len++] = value->ptr[i];
    }
    *value = (hx_slice){text, len};
    return true;
}

hx_slice hx_text_without_line_end(hx_slice secret)
{
    hx_slice line = secret;
    if (line.len > 0 && line.ptr[line.len - 1] == '\n') line.len--;
    if (line.len < secret.len && line.len > 0 && line.ptr[line.len - 1] == '\r') line.len--;
    for (size_t i = 0; i < line.len; i++)
        if (line.ptr[i] < 0x20 || line.ptr[i] > 0x7e) return secret;
    return line;
}
