/* SPDX-License-Identifier: Apache-2.0 */
#include "core/json/json_walk.h"

#include "base/utf8.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_space(hx_slice *text)
{
    while (text->len > 0 && is_space(text->ptr[0])) *text = hx_slice_from(*text, 1);
}

static size_t string_len(hx_slice text)
{
    size_t at = 1;
    while (at < text.len) {
        at += hx_utf8_plain_bytes(text.ptr + at, text.ptr + text.len);
        if (at == text.len || text.ptr[at] == '"') break;
        at += text.ptr[at] == '\\' ? 2 : 1;
    }
    return at < text.len ? at + 1 : text.len;
}

/* How long the value is that begins here: up to what follows it at its own depth. */
static size_t value_len(hx_slice text)
{
    size_t at = 0, depth = 0;
    while (at < text.len) {
        char c = text.ptr[at];
        if (c == '"') {
            at += string_len(hx_slice_from(text, at));
            if (depth == 0) return at;
            continue;
        }
        if (depth == 0 && (c == ',' || c == ']' || c == '}' || is_space(c))) return at;
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        at++;
        if (depth == 0 && (c == '}' || c == ']')) return at;
    }
    return text.len;
}

hx_json_walk hx_json_walk_over(hx_slice container)
{
    bool is_object = container.len >= 2 && container.ptr[0] == '{';
    bool is_array = container.len >= 2 && container.ptr[0] == '[';
    if (!is_object && !is_array) return (hx_json_walk){.rest = HX_EMPTY};
    return (hx_json_walk){.rest = {container.ptr + 1, container.len - 2}, .is_object = is_object};
}

static hx_slice take(hx_slice *text, size_t len)
{
    hx_slice taken = hx_slice_first(*text, len);
    *text = hx_slice_from(*text, len);
    skip_space(text);
    return taken;
}

bool hx_json_walk_next(hx_json_walk *walk, hx_slice *name, hx_slice *value)
{
    hx_slice *rest = &walk->rest;
    skip_space(rest);
    if (rest->len == 0) return false;
    *name = HX_EMPTY;
    if (walk->is_object) {
        *name = take(rest, string_len(*rest));
        (void)take(rest, 1); /* the colon */
    }
    *value = take(rest, value_len(*rest));
    if (rest->len > 0) (void)take(rest, 1); /* the comma */
    return true;
}
