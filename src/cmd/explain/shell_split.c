/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a shell's grammar (POSIX 2.2, and $'…' of 2024) that a copied command line needs. */
#include "cmd/explain/curl_line.h"

#include "base/utf8.h"

#include <string.h>

typedef struct {
    hx_slice line;
    size_t at;
    hx_arena *arena;
    hx_buf word;
    bool in_word; /* a word may be empty: '' */
    hx_slice *error;
} splitter;

static bool fail(splitter *s, const char *sentence)
{
    *s->error = hx_slice_of(sentence);
    return false;
}

static bool more(const splitter *s)
{
    return s->at < s->line.len;
}

static char here(const splitter *s)
{
    return s->line.ptr[s->at];
}

static bool is_one_of(char byte, const char *set)
{
    return byte != '\0' && strchr(set, byte) != NULL;
}

static void put(splitter *s, char byte)
{
    hx_buf_put(&s->word, (hx_slice){&byte, 1});
}

static bool single_quoted(splitter *s)
{
    for (s->at++; more(s) && here(s) != '\''; s->at++) put(s, here(s));
    if (!more(s)) return fail(s, "A ' is opened and never closed.");
    s->at++;
    return true;
}

static bool is_name_byte(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* At the `$`. */
static bool is_expansion(const splitter *s)
{
    if (s->at + 1 >= s->line.len) return false;
    char next = s->line.ptr[s->at + 1];
    return is_name_byte(next) || is_one_of(next, "({@*#?!$-");
}

static bool refuse_expansion(splitter *s)
{
    hx_slice name = hx_slice_from(s->line, s->at + 1);
    size_t len = 0;
    while (len < name.len && len < 40 && is_name_byte(name.ptr[len])) len++;
    *s->error = hx_arena_printf(s->arena,
                                "$%.*s is something that only a shell can fill in: put its value there, or let your "
                                "shell do it by passing the line in double quotes.",
                                len > 0 ? (int)len : 1, name.ptr);
    return false;
}

static bool double_quoted(splitter *s)
{
    for (s->at++; more(s) && here(s) != '"'; s->at++) {
        char c = here(s);
        if (c == '`')
            return fail(s, "A command in `…` is something that only a shell can fill in: put its value there.");
        if (c == '$' && is_expansion(s)) return refuse_expansion(s);
        if (c == '\\' && s->at + 1 < s->line.len && is_one_of(s->line.ptr[s->at + 1], "$`\"\\\n")) {
            c = s->line.ptr[++s->at];
            if (c == '\n') continue;
        }
        put(s, c);
    }
    if (!more(s)) return fail(s, "A \" is opened and never closed.");
    s->at++;
    return true;
}

static bool is_digit_of(unsigned base, char c)
{
    int digit = hx_hex_digit(c);
    return digit >= 0 && (unsigned)digit < base;
}

/* So many digits of that base at most; false when there is none. */
static bool number(splitter *s, unsigned base, unsigned digits_max, uint32_t *value)
{
    unsigned digits = 0;
    *value = 0;
    for (; digits < digits_max && more(s) && is_digit_of(base, here(s)); digits++, s->at++)
        *value = *value * base + (uint32_t)hx_hex_digit(here(s));
    return digits > 0;
}

static bool put_utf8(splitter *s, uint32_t code)
{
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return fail(s, "In $'…' there is a \\u that is no character.");
    char bytes[4];
    size_t len = hx_utf8_put(bytes, code);
    for (size_t i = 0; i < len; i++) put(s, bytes[i]);
    return true;
}

/* After the backslash in $'…'. */
static bool escape(splitter *s)
{
    static const char letters[] = "abefnrtv\\'\"?", bytes[] = "\a\b\033\f\n\r\t\v\\'\"?";
    char c = here(s);
    const char *known = memchr(letters, c, sizeof letters - 1);
    uint32_t value;
    if (known) {
        put(s, bytes[known - letters]);
        s->at++;
        return true;
    }
    if (c >= '0' && c <= '7') {
        (void)number(s, 8, 3, &value);
        put(s, (char)(value & 0xff));
        return true;
    }
    s->at++;
    if (c == 'x' && number(s, 16, 2, &value)) {
        put(s, (char)value);
        return true;
    }
    if ((c == 'u' && number(s, 16, 4, &value)) || (c == 'U' && number(s, 16, 8, &value))) return put_utf8(s, value);
    return fail(s, "In $'…' there is a backslash before something that it means nothing for.");
}

static bool ansi_quoted(splitter *s)
{
    s->at += 2;
    while (more(s) && here(s) != '\'') {
        if (here(s) != '\\') {
            put(s, here(s));
            s->at++;
            continue;
        }
        s->at++;
        if (!more(s)) break;
        if (!escape(s)) return false;
    }
    if (!more(s)) return fail(s, "A $' is opened and never closed.");
    s->at++;
    return true;
}

static bool refuse_operator(splitter *s, char c)
{
    *s->error =
        hx_arena_printf(s->arena,
                        "There is a %c outside quotes: what a shell would do with it is no part of the request. "
                        "Leave it and what follows out, or put the URL in quotes.",
                        c);
    return false;
}

/* A backslash, or what has no quotes around it. */
static bool bare(splitter *s)
{
    char c = here(s);
    if (c == '\\') {
        s->at++;
        if (!more(s)) return fail(s, "The line ends with a backslash, and nothing follows.");
        c = here(s);
        s->at++;
        if (c == '\r' && more(s) && here(s) == '\n') c = '\n', s->at++;
        if (c == '\n') return true; /* the line goes on */
        s->in_word = true;
        put(s, c);
        return true;
    }
    if (is_one_of(c, "|&;<>()")) return refuse_operator(s, c);
    if (c == '`') return fail(s, "A command in `…` is something that only a shell can fill in: put its value there.");
    if (c == '^' && (s->at + 1 == s->line.len || is_one_of(s->line.ptr[s->at + 1], "\r\n\"^")))
        return fail(s, "This line is for Windows' cmd (it has ^ where lines go on): copy it as cURL for bash.");
    if (c == '$' && is_expansion(s)) return refuse_expansion(s);
    s->in_word = true;
    put(s, c);
    s->at++;
    return true;
}

/* One piece of a word: what is in one pair of quotes, or a byte. */
static bool piece(splitter *s)
{
    char c = here(s);
    bool is_ansi = c == '$' && s->at + 1 < s->line.len && s->line.ptr[s->at + 1] == '\'';
    if (c == '\'' || c == '"' || is_ansi) s->in_word = true;
    if (c == '\'') return single_quoted(s);
    if (c == '"') return double_quoted(s);
    return is_ansi ? ansi_quoted(s) : bare(s);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* A line feed ends the command; after it only blank lines may follow. */
static bool ends_here(splitter *s)
{
    for (size_t i = s->at; i < s->line.len; i++)
        if (!is_blank(s->line.ptr[i]) && s->line.ptr[i] != '\n')
            return fail(s, "There is more than one command: a line that goes on ends with a backslash.");
    s->at = s->line.len;
    return true;
}

bool hx_shell_split(hx_slice line, hx_arena *arena, hx_slice **words, size_t *count, hx_slice *error)
{
    splitter s = {.line = line, .arena = arena, .error = error};
    hx_slice *out = hx_arena_alloc(arena, HX_CURL_WORDS_MAX * sizeof *out);
    *error = HX_EMPTY;
    *words = out;
    *count = 0;
    while (more(&s) && (is_blank(here(&s)) || here(&s) == '\n')) s.at++;
    while (more(&s)) {
        if (is_blank(here(&s))) {
            s.at++;
            continue;
        }
        if (here(&s) == '#') { /* a comment */
            while (more(&s) && here(&s) != '\n') s.at++;
            continue;
        }
        if (here(&s) == '\n') return ends_here(&s);
        hx_buf_init(&s.word, arena, line.len + 1);
        s.in_word = false;
        while (more(&s) && !is_blank(here(&s)) && here(&s) != '\n')
            if (!piece(&s)) return false;
        if (!s.in_word) continue;
        if (*count == HX_CURL_WORDS_MAX) return fail(&s, "The line has too many words.");
        out[(*count)++] = hx_buf_slice(&s.word);
    }
    return true;
}
