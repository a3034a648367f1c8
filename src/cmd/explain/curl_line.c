/* SPDX-License-Identifier: Apache-2.0 */
/* curl's flags, one by one, as its manual has them (8.x). */
#include "cmd/explain/curl_line.h"

#include "base/check.h"
#include "cmd/cli/cmd.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef enum { SWITCH, VALUE } flag_takes;
typedef enum { TAKEN, IGNORED, REFUSED } flag_fate;

typedef struct {
    const char *name;
    char letter;
    flag_takes takes;
    flag_fate fate;
    const char *instead;
} curl_flag;

static const curl_flag flags[] = {
#define X(name, letter, takes, fate, instead) {name, letter, takes, fate, instead},
#include "cmd/explain/curl_flags.def"
#undef X
};

#define FLAG_COUNT (sizeof flags / sizeof flags[0])

static bool fail(hx_curl *curl, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool fail(hx_curl *curl, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    curl->error = hx_arena_copy(curl->arena, hx_slice_of(text));
    return false;
}

void hx_curl_init(hx_curl *curl, hx_arena *arena)
{
    *curl = (hx_curl){.arena = arena};
    hx_buf_init(&curl->data, arena, HX_CURL_BODY_BYTES_MAX);
}

static bool read_named(hx_curl *curl, hx_slice path, hx_slice *out)
{
    const char *terminated = hx_arena_terminated(curl->arena, path);
    if (curl->stdin_used && strcmp(terminated, "-") == 0)
        return fail(curl, "The body can't come from standard input too: that is where the command line came from.");
    if (strcmp(terminated, "-") == 0) curl->stdin_used = true;
    return hx_cmd_read_file(terminated, HX_CURL_BODY_BYTES_MAX, curl->arena, out, &curl->error);
}

static bool append(hx_curl *curl, hx_slice bytes)
{
    if (hx_buf_append(&curl->data, bytes)) return true;
    return fail(curl, "The body has more than %u MiB.", HX_CURL_BODY_BYTES_MAX >> 20);
}

/* Several pieces of data are one form. */
static bool add_data(hx_curl *curl, hx_slice bytes, bool is_json)
{
    if (curl->is_form || curl->is_upload) return fail(curl, "Only one of -d, -F and -T can make the body.");
    bool joins = curl->has_data && !is_json;
    curl->has_data = true;
    return (!joins || append(curl, HX_LIT("&"))) && append(curl, bytes);
}

/* What -d reads from a file loses its line ends. */
static hx_slice without_line_ends(hx_curl *curl, hx_slice bytes)
{
    char *kept = hx_arena_alloc(curl->arena, bytes.len + 1);
    size_t len = 0;
    for (size_t i = 0; i < bytes.len; i++)
        if (bytes.ptr[i] != '\r' && bytes.ptr[i] != '\n' && bytes.ptr[i] != '\0') kept[len++] = bytes.ptr[i];
    return (hx_slice){kept, len};
}

static bool take_data(hx_curl *curl, hx_slice flag, hx_slice value)
{
    bool is_json = hx_slice_eq(flag, HX_LIT("json"));
    bool is_raw = hx_slice_eq(flag, HX_LIT("data-raw"));
    bool is_exact = is_json || hx_slice_eq(flag, HX_LIT("data-binary"));
    if (is_json) curl->is_json = true;
    if (is_raw || value.len == 0 || value.ptr[0] != '@') return add_data(curl, value, is_json);
    hx_slice bytes = HX_EMPTY;
    if (!read_named(curl, hx_slice_from(value, 1), &bytes)) return false;
    return add_data(curl, is_exact ? bytes : without_line_ends(curl, bytes), is_json);
}

/* As curl does it from 7.88 on: a space is a plus. */
static hx_slice percent_encoded(hx_curl *curl, hx_slice bytes)
{
    static const char digits[] = "0123456789ABCDEF";
    char *text = hx_arena_alloc(curl->arena, 3 * bytes.len + 1);
    size_t len = 0;
    for (size_t i = 0; i < bytes.len; i++) {
        unsigned char c = (unsigned char)bytes.ptr[i];
        bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
                        c == '.' || c == '_' || c == '~';
        if (is_plain || c == ' ') {
            text[len++] = (char)(c == ' ' ? '+' : c);
        } else {
            text[len++] = '%';
            text[len++] = digits[c >> 4];
            text[len++] = digits[c & 15];
        }
    }
    return (hx_slice){text, len};
}

/* content, =content, name=content, @file, name@file. */
static bool take_urlencoded(hx_curl *curl, hx_slice value)
{
    size_t equals = hx_slice_find(value, '='), at = hx_slice_find(value, '@');
    bool is_file = at < equals;
    size_t split = is_file ? at : equals;
    hx_slice name = split == SIZE_MAX ? HX_EMPTY : hx_slice_first(value, split);
    hx_slice content = split == SIZE_MAX ? value : hx_slice_from(value, split + 1);
    if (is_file && !read_named(curl, content, &content)) return false;
    content = percent_encoded(curl, content);
    if (name.len > 0) content = hx_arena_printf(curl->arena, "%.*s=%.*s", HX_FMT(name), HX_FMT(content));
    return add_data(curl, content, false);
}

/* What curl takes a file for, by its name. */
static const char *type_of(hx_slice path)
{
    static const char *const types[][2] = {{".gif", "image/gif"},       {".jpg", "image/jpeg"},
                                           {".jpeg", "image/jpeg"},     {".png", "image/png"},
                                           {".svg", "image/svg+xml"},   {".txt", "text/plain"},
                                           {".htm", "text/html"},       {".html", "text/html"},
                                           {".pdf", "application/pdf"}, {".xml", "application/xml"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        hx_slice ending = hx_slice_of(types[i][0]);
        if (path.len >= ending.len && hx_slice_eq_nocase(hx_slice_from(path, path.len - ending.len), ending))
            return types[i][1];
    }
    return "application/octet-stream";
}

typedef struct {
    hx_slice name, content, file_name, type;
    bool has_file_name;
} form_part;

/* What may follow the content of a part: ;type=… and ;filename=…. */
static bool take_part_options(hx_curl *curl, hx_slice options, form_part *part)
{
    hx_slice option;
    while (hx_slice_next(&options, ';', &option)) {
        option = hx_slice_trim(option);
        size_t equals = hx_slice_find(option, '=');
        hx_slice name = hx_slice_first(option, equals == SIZE_MAX ? option.len : equals);
        hx_slice value = equals == SIZE_MAX ? HX_EMPTY : hx_slice_from(option, equals + 1);
        if (value.len >= 2 && value.ptr[0] == '"' && value.ptr[value.len - 1] == '"')
            value = (hx_slice){value.ptr + 1, value.len - 2};
        if (hx_slice_eq(name, HX_LIT("type"))) {
            part->type = value;
        } else if (hx_slice_eq(name, HX_LIT("filename"))) {
            part->file_name = value;
            part->has_file_name = true;
        } else {
            return fail(curl, "-F: \";%.*s\" is not known here.", HX_FMT(option));
        }
    }
    return true;
}

static bool put_part(hx_curl *curl, const form_part *part)
{
    if (curl->has_data || curl->is_upload) return fail(curl, "Only one of -d, -F and -T can make the body.");
    curl->is_form = true;
    hx_slice head = hx_arena_printf(curl->arena,
                                    "--------------------------hapaxexplain\r\nContent-Disposition: form-data; "
                                    "name=\"%.*s\"",
                                    HX_FMT(part->name));
    if (part->has_file_name)
        head = hx_arena_printf(curl->arena, "%.*s; filename=\"%.*s\"", HX_FMT(head), HX_FMT(part->file_name));
    if (part->type.len > 0)
        head = hx_arena_printf(curl->arena, "%.*s\r\nContent-Type: %.*s", HX_FMT(head), HX_FMT(part->type));
    return append(curl, head) && append(curl, HX_LIT("\r\n\r\n")) && append(curl, part->content) &&
           append(curl, HX_LIT("\r\n"));
}

static hx_slice base_name(hx_slice path)
{
    for (size_t i = path.len; i > 0; i--)
        if (path.ptr[i - 1] == '/') return hx_slice_from(path, i);
    return path;
}

/* name=content, name=@file, name=<file. */
static bool take_form(hx_curl *curl, hx_slice value, bool is_literal)
{
    size_t equals = hx_slice_find(value, '=');
    if (equals == SIZE_MAX) return fail(curl, "-F needs name=content, not \"%.*s\".", HX_FMT(value));
    form_part part = {.name = hx_slice_first(value, equals),
                      .content = hx_slice_from(value, equals + 1),
                      .type = HX_EMPTY,
                      .file_name = HX_EMPTY};
    if (is_literal) return put_part(curl, &part);
    char first = part.content.len > 0 ? part.content.ptr[0] : '\0';
    size_t options_at = hx_slice_find(part.content, ';');
    if (options_at != SIZE_MAX) {
        hx_slice options = hx_slice_from(part.content, options_at + 1);
        part.content = hx_slice_first(part.content, options_at);
        if (!take_part_options(curl, options, &part)) return false;
    }
    if (first != '@' && first != '<') return put_part(curl, &part);
    hx_slice path = hx_slice_from(part.content, 1);
    if (first == '@') {
        if (!part.has_file_name) part.file_name = base_name(path);
        part.has_file_name = true;
        if (part.type.len == 0) part.type = hx_slice_of(type_of(path));
    }
    return read_named(curl, path, &part.content) && put_part(curl, &part);
}

static bool take_upload(hx_curl *curl, hx_slice value)
{
    hx_slice bytes = HX_EMPTY;
    if (curl->has_data || curl->is_form) return fail(curl, "Only one of -d, -F and -T can make the body.");
    curl->is_upload = true;
    return read_named(curl, value, &bytes) && append(curl, bytes);
}

static bool take_cookie(hx_curl *curl, hx_slice value)
{
    if (hx_slice_find(value, '=') == SIZE_MAX)
        return fail(curl, "-b \"%.*s\" names a file of cookies: give them as name=value.", HX_FMT(value));
    curl->cookie = curl->cookie.len > 0
                       ? hx_arena_printf(curl->arena, "%.*s; %.*s", HX_FMT(curl->cookie), HX_FMT(value))
                       : value;
    return true;
}

static bool take_header(hx_curl *curl, hx_slice value)
{
    if (value.len > 0 && value.ptr[0] == '@')
        return fail(curl, "-H @FILE is not known here: give the headers themselves.");
    if (curl->header_count == HX_CURL_HEADERS_MAX) return fail(curl, "There are more than %u -H.", HX_CURL_HEADERS_MAX);
    curl->headers[curl->header_count++] = value;
    return true;
}

static bool take_url(hx_curl *curl, hx_slice value)
{
    if (curl->url.len > 0)
        return fail(curl, "There are two URLs, \"%.*s\" and \"%.*s\": explain one request at a time.",
                    HX_FMT(hx_slice_first(curl->url, 100)), HX_FMT(hx_slice_first(value, 100)));
    if (value.len == 0) return fail(curl, "The URL is empty.");
    curl->url = value;
    return true;
}

bool hx_curl_take(hx_curl *curl, hx_slice flag, hx_slice value)
{
    const struct {
        const char *name;
        hx_slice *to;
    } texts[] = {{"request", &curl->method},
                 {"user", &curl->user},
                 {"oauth2-bearer", &curl->bearer},
                 {"user-agent", &curl->agent},
                 {"referer", &curl->referer}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (hx_slice_eq(flag, hx_slice_of(texts[i].name))) {
            *texts[i].to = value;
            return true;
        }
    if (hx_slice_eq(flag, HX_LIT("url"))) return take_url(curl, value);
    if (hx_slice_eq(flag, HX_LIT("header"))) return take_header(curl, value);
    if (hx_slice_eq(flag, HX_LIT("cookie"))) return take_cookie(curl, value);
    if (hx_slice_eq(flag, HX_LIT("data-urlencode"))) return take_urlencoded(curl, value);
    if (hx_slice_starts(flag, HX_LIT("data")) || hx_slice_eq(flag, HX_LIT("json"))) return take_data(curl, flag, value);
    if (hx_slice_eq(flag, HX_LIT("form"))) return take_form(curl, value, false);
    if (hx_slice_eq(flag, HX_LIT("form-string"))) return take_form(curl, value, true);
    if (hx_slice_eq(flag, HX_LIT("upload-file"))) return take_upload(curl, value);
    bool *given = hx_slice_eq(flag, HX_LIT("head"))      ? &curl->head
                  : hx_slice_eq(flag, HX_LIT("get"))     ? &curl->get
                  : hx_slice_eq(flag, HX_LIT("globoff")) ? &curl->globs_off
                                                         : NULL;
    HX_CHECK(given != NULL); /* a row that is taken has its place here */
    *given = true;
    return true;
}

/* One flag with its value, by its row. */
static bool take_flag(hx_curl *curl, const curl_flag *flag, hx_slice value)
{
    if (flag->fate == REFUSED) return fail(curl, "--%s: %s.", flag->name, flag->instead);
    return flag->fate == IGNORED || hx_curl_take(curl, hx_slice_of(flag->name), value);
}

static bool take_long(hx_curl *curl, hx_slice name, const hx_slice *next, bool *used_next)
{
    *used_next = false;
    for (size_t i = 0; i < FLAG_COUNT; i++) {
        if (!hx_slice_eq(name, hx_slice_of(flags[i].name))) continue;
        *used_next = flags[i].takes == VALUE;
        if (*used_next && !next) return fail(curl, "--%s needs a value.", flags[i].name);
        return take_flag(curl, &flags[i], *used_next ? *next : HX_EMPTY);
    }
    return fail(curl,
                "--%.*s is no flag of curl's that is known here; if it changes nothing about the request, leave it "
                "out.",
                HX_FMT(hx_slice_first(name, 100)));
}

/* -sSXPOST: switches, then perhaps one with its value, at once or as the next word. */
static bool take_letters(hx_curl *curl, hx_slice letters, const hx_slice *next, bool *used_next)
{
    *used_next = false;
    for (size_t at = 0; at < letters.len; at++) {
        const curl_flag *flag = NULL;
        for (size_t i = 0; i < FLAG_COUNT && !flag; i++)
            if (flags[i].letter != 0 && flags[i].letter == letters.ptr[at]) flag = &flags[i];
        if (!flag)
            return fail(curl,
                        "-%c is no flag of curl's that is known here; if it changes nothing about the request, leave "
                        "it out.",
                        letters.ptr[at]);
        if (flag->takes == SWITCH) {
            if (!take_flag(curl, flag, HX_EMPTY)) return false;
            continue;
        }
        hx_slice value = hx_slice_from(letters, at + 1);
        *used_next = value.len == 0;
        if (*used_next && !next) return fail(curl, "-%c needs a value.", letters.ptr[at]);
        return take_flag(curl, flag, *used_next ? *next : value);
    }
    return true;
}

static bool is_curl(hx_slice word)
{
    hx_slice name = base_name(word);
    return hx_slice_eq(name, HX_LIT("curl")) || hx_slice_eq_nocase(name, HX_LIT("curl.exe"));
}

bool hx_curl_take_words(hx_curl *curl, const hx_slice *words, size_t count)
{
    size_t i = count > 0 && (is_curl(words[0]) || hx_slice_eq(words[0], HX_LIT("$"))) ? 1 : 0;
    if (i == 1 && count > 1 && is_curl(words[1])) i = 2; /* with the prompt copied along */
    if (i == count) return fail(curl, "The command line is empty: `curl -X POST http://… -H … -d …`.");
    for (bool flags_end = false; i < count; i++) {
        hx_slice word = words[i];
        const hx_slice *next = i + 1 < count ? &words[i + 1] : NULL;
        bool used_next = false, ok;
        if (flags_end || word.len < 2 || word.ptr[0] != '-') {
            ok = take_url(curl, word);
        } else if (hx_slice_eq(word, HX_LIT("--"))) {
            flags_end = ok = true;
        } else if (word.ptr[1] == '-') {
            ok = take_long(curl, hx_slice_from(word, 2), next, &used_next);
        } else {
            ok = take_letters(curl, hx_slice_from(word, 1), next, &used_next);
        }
        if (!ok) return false;
        i += used_next;
    }
    return true;
}
