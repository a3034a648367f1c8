/* SPDX-License-Identifier: Apache-2.0 */
/* Paths in the form in which they are matched (normalised), and in the form in which other servers may read them
 * (folded). The first decides which route a request has; the second finds out whether it was about to miss a
 * protected one. */
#include "core/operation/policy.h"

#include "base/check.h"
#include "base/text.h"

#include <string.h>

static bool is_dot_segment(hx_slice segment)
{
    return (segment.len == 1 && segment.ptr[0] == '.') ||
           (segment.len == 2 && segment.ptr[0] == '.' && segment.ptr[1] == '.');
}

/* One pass over the bytes, because nearly every path is plain. */
static bool is_plain(hx_slice path)
{
    size_t begin = 1;
    for (size_t i = 1; i <= path.len; i++) {
        if (i < path.len && path.ptr[i] == '%') return false;
        if (i < path.len && path.ptr[i] != '/') continue;
        hx_slice segment = {path.ptr + begin, i - begin};
        if (is_dot_segment(segment) || (segment.len == 0 && i < path.len)) return false;
        begin = i + 1;
    }
    return true;
}

typedef struct {
    char *ptr;
    size_t len;
    hx_path_error error; /* the first */
} output;

static void note(output *out, hx_path_error error)
{
    if (out->error == HX_PATH_OK) out->error = error;
}

static void put_decoded(output *out, hx_slice segment)
{
    for (size_t i = 0; i < segment.len; i++) {
        int byte = hx_text_percent_at(segment, i);
        if (byte < 0) {
            if (segment.ptr[i] == '%') note(out, HX_PATH_BAD_ESCAPE);
            out->ptr[out->len++] = segment.ptr[i];
            continue;
        }
        if (byte == '/') note(out, HX_PATH_ENCODED_SLASH);
        if (hx_text_is_unreserved((char)byte)) {
            out->ptr[out->len++] = (char)byte;
        } else { /* %3a and %3A are the same byte */
            hx_text_percent_write(out->ptr + out->len, (unsigned char)byte);
            out->len += 3;
        }
        i += 2;
    }
}

/* Removes the segment that begins at `begin`, which was just written, if it is "." or "..", and with ".." the
 * segment before it. Returns whether it did. */
static bool drop_dots(output *out, size_t begin)
{
    hx_slice segment = {out->ptr + begin, out->len - begin};
    if (!is_dot_segment(segment)) return false;
    out->len = begin;
    if (segment.len == 2 && out->len > 1) {
        out->len--; /* the slash after the segment before */
        while (out->ptr[out->len - 1] != '/') out->len--;
    }
    return true;
}

static hx_path_error normalize(hx_slice path, hx_arena *arena, hx_slice *normalized)
{
    output out = {.ptr = hx_arena_alloc(arena, path.len)}; /* it never gets longer */
    out.ptr[out.len++] = '/';
    hx_slice rest = hx_slice_from(path, 1), segment;
    while (hx_slice_next(&rest, '/', &segment)) {
        bool last = rest.ptr == NULL;
        size_t begin = out.len;
        put_decoded(&out, segment);
        if (drop_dots(&out, begin)) continue;
        if (segment.len == 0 && !last) note(&out, HX_PATH_EMPTY_SEGMENT); /* left out, as many servers do */
        if (segment.len > 0 && !last) out.ptr[out.len++] = '/';
    }
    *normalized = (hx_slice){out.ptr, out.len};
    return out.error;
}

hx_path_error hx_path_normalize(hx_slice path, hx_arena *arena, hx_slice *normalized)
{
    *normalized = path;
    if (path.len == 0 || path.ptr[0] != '/' || is_plain(path)) return HX_PATH_OK; /* "*" and what isn't a path too */
    return normalize(path, arena, normalized);
}

/* Whether the byte separates segments where escaped slashes or backslashes are read as slashes. */
static bool is_separator(int c, bool is_escaped, unsigned reading)
{
    return (c == '/' && (!is_escaped || (reading & HX_READ_SLASH))) || (c == '\\' && (reading & HX_READ_BACKSLASH));
}

/* A byte of a segment, in lower case. A brace and a slash that are data stay escaped: neither means anything there. */
static void put_folded(output *out, char c)
{
    const char *escaped = c == '{' ? "%7b" : c == '/' ? "%2f" : NULL;
    if (escaped) {
        memcpy(out->ptr + out->len, escaped, 3);
        out->len += 3;
    } else {
        out->ptr[out->len++] = hx_lower(c);
    }
}

/* Ends the segment that begins there: removes its parameters, and the bytes that servers drop at its end. */
static void end_folded(output *out, size_t begin, unsigned reading, unsigned *possible)
{
    size_t whole = out->len, end = begin;
    while (end < whole && out->ptr[end] != ';') end++;
    out->len = end;
    if (end > begin && drop_dots(out, begin)) return;
    while (out->len > begin && ((unsigned char)out->ptr[out->len - 1] <= ' ' || out->ptr[out->len - 1] == '.'))
        out->len--;
    if (out->len == begin) {
        *possible |= HX_READ_EMPTY;
        if (!(reading & HX_READ_EMPTY)) return;
        out->len = whole;
    }
    out->ptr[out->len++] = '/';
}

/* Removes repeated slashes, and one at the end. */
static hx_slice without_empty_segments(output *out)
{
    size_t kept = 1;
    for (size_t i = 1; i < out->len; i++)
        if (out->ptr[i] != '/' || out->ptr[kept - 1] != '/') out->ptr[kept++] = out->ptr[i];
    return (hx_slice){out->ptr, kept > 1 && out->ptr[kept - 1] == '/' ? kept - 1 : kept};
}

hx_slice hx_path_fold(hx_slice path, unsigned reading, char *room, unsigned *possible)
{
    output out = {.ptr = room};
    out.ptr[out.len++] = '/';
    size_t begin = out.len;
    for (size_t i = 1; i < path.len; i++) {
        int byte = hx_text_percent_at(path, i), c = byte < 0 ? (unsigned char)path.ptr[i] : byte;
        if (byte >= 0) i += 2;
        if (c == '/' && byte >= 0) *possible |= HX_READ_SLASH;
        if (c == '\\') *possible |= HX_READ_BACKSLASH;
        if (c == '\0') *possible |= HX_READ_NUL;
        if (c == '\0' && (reading & HX_READ_NUL)) break;
        if (is_separator(c, byte >= 0, reading)) {
            end_folded(&out, begin, reading, possible);
            begin = out.len;
        } else {
            put_folded(&out, (char)c);
        }
    }
    end_folded(&out, begin, reading, possible);
    return without_empty_segments(&out);
}

hx_slice hx_path_fold_template(hx_slice path_template, char *room)
{
    unsigned possible = 0;
    output out = {.ptr = room};
    hx_slice rest = path_template, segment;
    out.ptr[out.len++] = '/';
    while (hx_slice_next(&rest, '/', &segment)) {
        size_t begin = out.len;
        if (segment.len > 0 && segment.ptr[0] == '{') {
            memcpy(out.ptr + out.len, "{}/", 3);
            out.len += 3;
            continue;
        }
        for (size_t i = 0; i < segment.len; i++) {
            int byte = hx_text_percent_at(segment, i);
            put_folded(&out, byte < 0 ? segment.ptr[i] : (char)byte);
            if (byte >= 0) i += 2;
        }
        end_folded(&out, begin, 0, &possible);
    }
    return without_empty_segments(&out);
}

const char *hx_path_error_text(hx_path_error error)
{
    switch (error) {
    case HX_PATH_OK: return "The path is well-formed.";
    case HX_PATH_ENCODED_SLASH: return "The path holds an encoded slash (%2F).";
    case HX_PATH_EMPTY_SEGMENT: return "The path holds an empty segment (//).";
    case HX_PATH_BAD_ESCAPE: return "The path holds a \"%\" without two hexadecimal digits.";
    }
    hx_check_failed(__FILE__, __LINE__, "a path error that is known");
}
