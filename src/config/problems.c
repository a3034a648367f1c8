/* SPDX-License-Identifier: Apache-2.0 */
#include "config/problems.h"

#include "base/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_MAX 1024u
#define QUOTED_BYTES_MAX 60u
#define WORD_BYTES_MAX 48u
#define REST_BYTES 40u /* reserved for "… and 7 more" */

static void add(hx_problems *problems, uint32_t line, uint32_t column, const char *format, va_list args)
{
    size_t order = problems->count++;
    if (order >= HX_PROBLEMS_MAX) return;
    char text[TEXT_BYTES_MAX];
    int len = vsnprintf(text, sizeof text, format, args);
    size_t kept = len < 0 ? 0 : (size_t)len < sizeof text ? (size_t)len : sizeof text - 1;
    problems->kept[order] = (hx_config_problem){
        .line = line,
        .column = column,
        .order = (uint32_t)order,
        .text = hx_arena_copy(problems->arena, (hx_slice){text, kept}),
    };
}

void hx_config_problem_at(hx_problems *problems, uint32_t line, uint32_t column, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(problems, line, column, format, args);
    va_end(args);
}

void hx_config_problem_of_flag(hx_problems *problems, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(problems, UINT32_MAX, 0, format, args);
    va_end(args);
}

static int by_place(const void *left, const void *right)
{
    const hx_config_problem *a = left, *b = right;
    if (a->line != b->line) return a->line < b->line ? -1 : 1;
    if (a->column != b->column) return a->column < b->column ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static bool write_one(const hx_config_problem *problem, const char *file, hx_buf *out)
{
    if (problem->line == UINT32_MAX) return hx_buf_printf(out, "%.*s\n", HX_FMT(problem->text));
    if (problem->line == 0) return hx_buf_printf(out, "%s: %.*s\n", file, HX_FMT(problem->text));
    return hx_buf_printf(out, "%s:%u:%u: %.*s\n", file, problem->line, problem->column, HX_FMT(problem->text));
}

void hx_problems_write(hx_problems *problems, hx_buf *out)
{
    size_t kept = problems->count < HX_PROBLEMS_MAX ? problems->count : HX_PROBLEMS_MAX;
    size_t written = 0;
    qsort(problems->kept, kept, sizeof problems->kept[0], by_place);
    for (; written < kept; written++) {
        size_t before = out->len;
        bool fits = write_one(&problems->kept[written], problems->file, out);
        bool last = written + 1 == problems->count;
        if (fits && (last || out->max - out->len >= REST_BYTES)) continue;
        out->len = before;
        break;
    }
    if (written == problems->count) return;
    bool fits = hx_buf_printf(out, "… and %zu more\n", problems->count - written);
    HX_CHECK(fits || out->max < REST_BYTES);
}

static size_t sequence_len(char lead)
{
    unsigned char c = (unsigned char)lead;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

const char *hx_quoted(hx_arena *arena, hx_slice text)
{
    char *out = hx_arena_alloc(arena, QUOTED_BYTES_MAX * 4 + 8);
    size_t len = 0;
    out[len++] = '"';
    size_t i = 0;
    while (i < text.len) {
        unsigned char c = (unsigned char)text.ptr[i];
        size_t step = sequence_len(text.ptr[i]);
        if (i + step > text.len || i + step > QUOTED_BYTES_MAX) break;
        bool control = c < 0x20 || c == 0x7f || (c == 0xc2 && (unsigned char)text.ptr[i + 1] < 0xa0);
        if (control) {
            len += (size_t)snprintf(out + len, 5, "\\x%02x", c == 0xc2 ? (unsigned char)text.ptr[i + 1] : c);
        } else {
            memcpy(out + len, text.ptr + i, step);
            len += step;
        }
        i += step;
    }
    if (i < text.len) {
        memcpy(out + len, "…", strlen("…"));
        len += strlen("…");
    }
    out[len++] = '"';
    out[len] = '\0';
    return out;
}

static char folded(char c)
{
    return c == '-' ? '_' : hx_lower(c);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Edit distance: insertions, deletions, substitutions and swapped neighbours (optimal string alignment). */
static size_t distance(hx_slice a, hx_slice b)
{
    size_t rows[3][WORD_BYTES_MAX + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b.len; j++) last[j] = j;
    for (size_t i = 1; i <= a.len; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b.len; j++) {
            bool same = folded(a.ptr[i - 1]) == folded(b.ptr[j - 1]);
            row[j] = least(least(last[j], row[j - 1]) + 1, last[j - 1] + (same ? 0 : 1));
            bool swapped = i > 1 && j > 1 && folded(a.ptr[i - 1]) == folded(b.ptr[j - 2]) &&
                           folded(a.ptr[i - 2]) == folded(b.ptr[j - 1]);
            if (swapped) row[j] = least(row[j], before[j - 2] + 1);
        }
        size_t *free_row = before;
        before = last;
        last = row;
        row = free_row;
    }
    return last[b.len];
}

const char *hx_nearest(hx_slice word, size_t count, const char *(*name)(size_t i, const void *user), const void *user)
{
    if (word.len < 2 || word.len > WORD_BYTES_MAX) return NULL;
    const char *nearest = NULL;
    size_t best = word.len < 4 ? 2 : word.len / 3 + 2; /* one more than the distance of a typing error */
    for (size_t i = 0; i < count; i++) {
        const char *candidate = name(i, user);
        if (!candidate || strlen(candidate) > WORD_BYTES_MAX) continue;
        size_t far = distance(word, hx_slice_of(candidate));
        if (far < best && far < strlen(candidate)) {
            best = far;
            nearest = candidate;
        }
    }
    return nearest;
}
