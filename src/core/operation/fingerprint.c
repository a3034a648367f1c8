/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes, under tag 'F' and in this order: method, host, path, "?" where there is a query, query, media type,
 * Content-Encoding, If-Match, If-None-Match, If-Unmodified-Since, the body's kind, the body, and then name and value of
 * each header that the rules choose. With HX_FINGERPRINT_KEY: the natural key alone, under tag 'n'.
 * A multipart body (kind 'M') is a digest under tag 'M' of its preamble, each part's header block and content, and its
 * epilogue: everything but the boundary, which clients draw for each attempt. Chosen values (kind 'V') each follow
 * their pointer, with their lengths.
 * For a natural key a form is a digest under tag 'U' of its parts' names and contents: the same photo under another
 * file name is the same photo. Each follows a letter: 'n' a name, 'h' any other line of a part's header block but its
 * type and length, 'c' the content. */
#include "core/operation/fingerprint.h"

#include "base/memory/buf.h"
#include "base/check.h"
#include "core/json/json.h"
#include "base/text.h"

#include <string.h>

#define BOUNDARY_BYTES_MAX 70u /* RFC 2046, 5.1.1 */

_Static_assert(HX_FINGERPRINT_LIST_MAX <= HX_POINTERS_MAX, "a route's pointers are followed at once");

const char *hx_fingerprint_part_text(hx_fingerprint_part part)
{
    static const char *const texts[] = {
#define X(name, text) text,
        HX_FINGERPRINT_PARTS(X)
#undef X
    };
    HX_CHECK(part < HX_PART_COUNT);
    return texts[part];
}

typedef struct {
    hx_slice type; /* type/subtype */
    hx_slice charset;
    hx_slice boundary;
    bool has_charset;
    bool has_boundary;
} media_type;

/* Takes a parameter's value, a token or a quoted string, off the front of *rest. */
static bool take_value(hx_slice *rest, hx_arena *arena, hx_slice *value)
{
    if (rest->len == 0 || rest->ptr[0] != '"') {
        *value = hx_slice_trim(hx_slice_first(*rest, hx_slice_find(*rest, ';')));
        *rest = hx_slice_from(*rest, hx_slice_find(*rest, ';'));
        return hx_slice_is_token(*value);
    }
    if (!hx_text_take_quoted(rest, arena, value)) return false;
    *rest = hx_slice_trim(*rest);
    return true;
}

/* Takes "; name=value" off the front of *rest; an empty one, which is allowed, has no name. */
static bool take_parameter(hx_slice *rest, hx_arena *arena, hx_slice *name, hx_slice *value)
{
    *name = *value = HX_EMPTY;
    if (rest->ptr[0] != ';') return false;
    *rest = hx_slice_trim(hx_slice_from(*rest, 1));
    if (rest->len == 0 || rest->ptr[0] == ';') return true;
    size_t equals = hx_slice_find(*rest, '=');
    *name = hx_slice_first(*rest, equals);
    *rest = hx_slice_from(*rest, equals == SIZE_MAX ? rest->len : equals + 1);
    return hx_slice_is_token(*name) && take_value(rest, arena, value);
}

/* RFC 9110, 8.3.1. False when it isn't a media type, or names its charset or boundary twice. */
static bool parse_media_type(hx_slice text, hx_arena *arena, media_type *out)
{
    *out = (media_type){.type = HX_EMPTY, .charset = HX_EMPTY, .boundary = HX_EMPTY};
    if (text.len == 0) return false;
    size_t semicolon = hx_slice_find(text, ';');
    out->type = hx_slice_trim(hx_slice_first(text, semicolon));
    size_t slash = hx_slice_find(out->type, '/');
    if (slash == SIZE_MAX || !hx_slice_is_token(hx_slice_first(out->type, slash)) ||
        !hx_slice_is_token(hx_slice_from(out->type, slash + 1)))
        return false;
    hx_slice rest = hx_slice_from(text, semicolon);
    while (rest.len > 0) {
        hx_slice name, value;
        if (!take_parameter(&rest, arena, &name, &value)) return false;
        if (hx_slice_eq_nocase(name, HX_LIT("charset"))) {
            if (out->has_charset) return false;
            out->has_charset = true;
            out->charset = value;
        } else if (hx_slice_eq_nocase(name, HX_LIT("boundary"))) {
            if (out->has_boundary) return false;
            out->has_boundary = true;
            out->boundary = value;
        }
    }
    return true;
}

static hx_slice normal_media_type(const media_type *type, hx_arena *arena)
{
    hx_slice name = hx_text_lower(type->type, arena);
    if (!type->has_charset) return name;
    hx_buf text;
    hx_slice mark = HX_LIT(";charset=");
    hx_buf_init(&text, arena, name.len + mark.len + type->charset.len);
    hx_buf_put(&text, name);
    hx_buf_put(&text, mark);
    hx_buf_put(&text, hx_text_lower(type->charset, arena));
    return hx_buf_slice(&text);
}

static bool is_json(const media_type *type)
{
    if (type->has_charset && !hx_slice_eq_nocase(type->charset, HX_LIT("utf-8")) &&
        !hx_slice_eq_nocase(type->charset, HX_LIT("utf8")))
        return false;
    hx_slice suffix = HX_LIT("+json");
    hx_slice last = hx_slice_from(type->type, type->type.len - (type->type.len < suffix.len ? 0 : suffix.len));
    return hx_slice_eq_nocase(type->type, HX_LIT("application/json")) || hx_slice_eq_nocase(last, suffix);
}

static bool find_bytes(hx_slice in, hx_slice wanted, size_t *at)
{
    const char *found = in.len > 0 ? memmem(in.ptr, in.len, wanted.ptr, wanted.len) : NULL;
    if (!found) return false;
    *at = (size_t)(found - in.ptr);
    return true;
}

/* Splits off the bytes before the next delimiter line; *rest is then what follows `--boundary`. */
static bool before_delimiter(hx_slice *rest, hx_slice delimiter, hx_slice *before)
{
    size_t at;
    if (!find_bytes(*rest, delimiter, &at)) return false;
    *before = hx_slice_first(*rest, at);
    *rest = hx_slice_from(*rest, at + delimiter.len);
    return true;
}

/* The one name in "form-data; name=…; filename=…". */
static bool find_name(hx_slice disposition, hx_arena *arena, hx_slice *found)
{
    size_t semicolon = hx_slice_find(disposition, ';'), names = 0;
    hx_slice rest = hx_slice_from(disposition, semicolon), name, value;
    while (rest.len > 0) {
        if (!take_parameter(&rest, arena, &name, &value)) return false;
        if (!hx_slice_eq_nocase(name, HX_LIT("name"))) continue;
        *found = value;
        names++;
    }
    return names == 1;
}

static void mac_lettered(hx_mac *mac, hx_slice letter, hx_slice text)
{
    hx_mac_part(mac, letter);
    hx_mac_part(mac, text);
}

static void mac_form_header(hx_mac *mac, hx_slice line, hx_arena *arena)
{
    size_t colon = hx_slice_find(line, ':');
    hx_slice field = hx_slice_first(line, colon), name;
    if (hx_slice_eq_nocase(field, HX_LIT("Content-Type")) || hx_slice_eq_nocase(field, HX_LIT("Content-Length")))
        return;
    if (hx_slice_eq_nocase(field, HX_LIT("Content-Disposition")) &&
        find_name(hx_slice_trim(hx_slice_from(line, colon + 1)), arena, &name))
        mac_lettered(mac, HX_LIT("n"), name);
    else
        mac_lettered(mac, HX_LIT("h"), line);
}

static void mac_form_part(hx_mac *mac, hx_slice headers, hx_slice content, hx_arena *arena)
{
    while (headers.len > 0) {
        size_t end;
        if (!find_bytes(headers, HX_LIT("\r\n"), &end)) end = headers.len;
        mac_form_header(mac, hx_slice_first(headers, end), arena);
        headers = hx_slice_from(headers, end + 2 < headers.len ? end + 2 : headers.len);
    }
    mac_lettered(mac, HX_LIT("c"), content);
}

/* One part into the MAC: its header block, then its content. `form` as below. */
static bool mac_body_part(hx_mac *mac, hx_slice part, hx_arena *form)
{
    size_t blank;
    hx_slice headers = HX_EMPTY, content;
    if (hx_slice_starts(part, HX_LIT("\r\n"))) {
        content = hx_slice_from(part, 2);
    } else {
        if (!find_bytes(part, HX_LIT("\r\n\r\n"), &blank)) return false;
        headers = hx_slice_first(part, blank);
        content = hx_slice_from(part, blank + 4);
    }
    if (form) {
        mac_form_part(mac, headers, content, form);
    } else {
        hx_mac_part(mac, headers);
        hx_mac_part(mac, content);
    }
    return true;
}

static hx_slice skip_padding(hx_slice s)
{
    while (s.len > 0 && (s.ptr[0] == ' ' || s.ptr[0] == '\t')) s = hx_slice_from(s, 1);
    return s;
}

/* False when the body isn't well-formed multipart (RFC 2046, 5.1); a line that opens like the boundary and goes on
 * otherwise is read in two ways by those who receive it, so it isn't either. `form`: space for the names of a form's
 * parts; NULL: they are taken whole. */
static bool digest_multipart(hx_mac *mac, hx_slice body, hx_slice boundary, hx_arena *form, hx_digest *digest)
{
    char room[4 + BOUNDARY_BYTES_MAX] = "\r\n--";
    if (boundary.len == 0 || boundary.len > BOUNDARY_BYTES_MAX) return false;
    memcpy(room + 4, boundary.ptr, boundary.len);
    hx_slice delimiter = {room, 4 + boundary.len}, rest = body, part = HX_EMPTY;

    if (hx_slice_starts(rest, hx_slice_from(delimiter, 2))) {
        rest = hx_slice_from(rest, delimiter.len - 2); /* no preamble: the first line needs no line before it */
    } else if (!before_delimiter(&rest, delimiter, &part)) {
        return false;
    }
    hx_mac_begin(mac, form ? 'U' : 'M');
    if (!form) hx_mac_part(mac, part);
    while (!hx_slice_starts(rest, HX_LIT("--"))) {
        rest = skip_padding(rest);
        if (!hx_slice_starts(rest, HX_LIT("\r\n"))) return false;
        rest = hx_slice_from(rest, 2);
        if (!before_delimiter(&rest, delimiter, &part) || !mac_body_part(mac, part, form)) return false;
    }
    rest = skip_padding(hx_slice_from(rest, 2));
    if (rest.len > 0 && !hx_slice_starts(rest, HX_LIT("\r\n"))) return false;
    if (!form) hx_mac_part(mac, rest);
    *digest = hx_mac_end(mac);
    return true;
}

/* Joins fields, each with its length, so that a value that moved from one to another is seen. */
static void put_framed(hx_buf *text, hx_slice field)
{
    uint64_t length = field.len;
    hx_buf_put(text, (hx_slice){(const char *)&length, sizeof length});
    hx_buf_put(text, field);
}

static hx_slice framed_values(const hx_slice *pointers, const hx_slice *values, size_t count, hx_arena *arena)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += pointers[i].len + values[i].len + 2 * sizeof(uint64_t);
    hx_buf text;
    hx_buf_init(&text, arena, bytes);
    for (size_t i = 0; i < count; i++) {
        put_framed(&text, pointers[i]);
        put_framed(&text,
                   values[i].ptr ? values[i] : HX_EMPTY); /* no JSON text is empty, so an empty one means "missing" */
    }
    return hx_buf_slice(&text);
}

static bool leads_anywhere(const hx_slice *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (values[i].ptr) return true;
    return false;
}

static bool normalise_json(hx_fingerprint_input *in, const hx_fingerprint_rules *rules, hx_arena *arena)
{
    bool choose = rules->body == HX_FINGERPRINT_POINTERS;
    hx_buf text;
    hx_buf_init(&text, arena, HX_JSON_CANONICAL_BYTES(in->body.len));
    if (!choose && rules->ignored_pointer_count == 0) {
        if (!hx_json_canonical(in->body, arena, &text)) return false;
    } else {
        hx_slice values[HX_FINGERPRINT_LIST_MAX];
        hx_json_selection selection = {.left_out = {rules->ignored_pointers, rules->ignored_pointer_count},
                                       .chosen = {rules->pointers, choose ? rules->pointer_count : 0},
                                       .values = values};
        HX_CHECK(selection.chosen.count <= HX_FINGERPRINT_LIST_MAX);
        if (!hx_json_canonical_of(in->body, &selection, arena, &text)) return false;
        /* Where none of them leads anywhere the whole body counts: all requests would be the same otherwise. */
        if (choose && leads_anywhere(values, rules->pointer_count)) {
            in->normal.body_kind = 'V';
            in->normal.body = framed_values(rules->pointers, values, rules->pointer_count, arena);
            return true;
        }
    }
    in->normal.body_kind = 'J';
    in->normal.body = hx_buf_slice(&text);
    return true;
}

/* Compares a percent-encoded name. A `+` is not decoded: only the application knows whether it means a space, and in
 * doubt a parameter counts. */
static bool decodes_to(hx_slice coded, hx_slice name)
{
    size_t at = 0;
    for (size_t i = 0; i < coded.len; i++, at++) {
        int byte = hx_text_percent_at(coded, i);
        if (at == name.len || name.ptr[at] != (byte < 0 ? coded.ptr[i] : (char)byte)) return false;
        if (byte >= 0) i += 2;
    }
    return at == name.len;
}

static bool is_ignored(const hx_fingerprint_rules *rules, hx_slice parameter)
{
    hx_slice name = hx_slice_first(parameter, hx_slice_find(parameter, '='));
    for (size_t i = 0; i < rules->ignored_query_count; i++)
        if (decodes_to(name, rules->ignored_query[i])) return true;
    return false;
}

/* Removes the ignored parameters; where none is left, there is no query at all. */
static void normalise_query(hx_fingerprint_input *in, const hx_fingerprint_rules *rules, hx_arena *arena)
{
    in->normal.query = in->query;
    in->normal.has_query = in->has_query;
    if (rules->ignored_query_count == 0 || in->query.len == 0) return;
    hx_slice rest = in->query, parameter;
    bool any = false;
    hx_buf text;
    hx_buf_init(&text, arena, in->query.len);
    while (hx_slice_next(&rest, '&', &parameter)) {
        if (is_ignored(rules, parameter)) continue;
        if (any) hx_buf_puts(&text, "&");
        hx_buf_put(&text, parameter);
        any = true;
    }
    in->normal.query = hx_buf_slice(&text);
    in->normal.has_query = any;
}

static hx_slice normal_coding(const hx_fingerprint_input *in, hx_arena *arena)
{
    hx_slice coding = hx_text_lower(hx_slice_trim(in->content_encoding), arena);
    return hx_slice_eq(coding, HX_LIT("identity")) ? HX_EMPTY : coding;
}

static bool is_multipart(const media_type *type)
{
    return hx_slice_starts_nocase(type->type, HX_LIT("multipart/"));
}

/* Empty when it isn't well-formed. `form` as above. */
static hx_slice parts_digest(hx_mac *mac, hx_slice body, hx_slice boundary, hx_arena *form, hx_arena *arena)
{
    hx_digest digest;
    if (!digest_multipart(mac, body, boundary, form, &digest)) return HX_EMPTY;
    return hx_arena_copy(arena, (hx_slice){(const char *)digest.bytes, sizeof digest.bytes});
}

hx_slice hx_fingerprint_body_hashed(hx_mac *mac, const hx_fingerprint_input *in, hx_arena *arena)
{
    media_type type;
    bool is_parts = parse_media_type(hx_slice_trim(in->content_type), arena, &type) && is_multipart(&type) &&
                    normal_coding(in, arena).len == 0;
    if (!is_parts) return in->body;
    bool is_form = hx_slice_eq_nocase(type.type, HX_LIT("multipart/form-data"));
    hx_slice digest = parts_digest(mac, in->body, type.boundary, is_form ? arena : NULL, arena);
    return digest.len > 0 ? digest : in->body;
}

bool hx_fingerprint_is_json(const hx_fingerprint_input *in, hx_arena *arena)
{
    media_type type;
    return parse_media_type(hx_slice_trim(in->content_type), arena, &type) && is_json(&type) &&
           normal_coding(in, arena).len == 0;
}

static const hx_fingerprint_rules *rules_of(const hx_fingerprint_input *in)
{
    static const hx_fingerprint_rules usual = {0};
    return in->rules ? in->rules : &usual;
}

static bool key_says_it_all(const hx_fingerprint_input *in)
{
    return rules_of(in)->body == HX_FINGERPRINT_KEY && in->key.len > 0;
}

static void normalise(hx_mac *mac, hx_fingerprint_input *in, hx_arena *arena)
{
    if (in->normal.done) return;
    in->normal.done = true;

    const hx_fingerprint_rules *rules = rules_of(in);
    normalise_query(in, rules, arena);
    in->normal.content_encoding = normal_coding(in, arena);
    hx_slice content_type = hx_slice_trim(in->content_type);
    in->normal.body_kind = 'R';
    in->normal.body = in->body;
    in->normal.media_type = content_type;

    media_type type;
    if (!parse_media_type(content_type, arena, &type)) return;
    bool as_it_is = in->normal.content_encoding.len > 0 || rules->body == HX_FINGERPRINT_RAW;
    if (is_multipart(&type)) {
        /* Raw multipart keeps its whole type, because the boundary decides what the bytes mean. */
        hx_slice digest = as_it_is ? HX_EMPTY : parts_digest(mac, in->body, type.boundary, NULL, arena);
        if (digest.len == 0) return;
        in->normal.body_kind = 'M';
        in->normal.body = digest;
    } else if (!as_it_is && is_json(&type)) {
        (void)normalise_json(in, rules, arena); /* anything that isn't clean stays raw */
    }
    in->normal.media_type = normal_media_type(&type, arena);
}

hx_digest hx_fingerprint(hx_mac *mac, hx_fingerprint_input *in, hx_arena *arena)
{
    if (key_says_it_all(in)) {
        hx_mac_begin(mac, 'n');
        hx_mac_part(mac, in->key);
        return hx_mac_end(mac);
    }
    normalise(mac, in, arena);
    hx_mac_begin(mac, 'F');
    hx_mac_part(mac, in->method);
    hx_mac_part(mac, in->host);
    hx_mac_part(mac, in->path);
    hx_mac_part(mac, in->normal.has_query ? HX_LIT("?") : HX_EMPTY);
    hx_mac_part(mac, in->normal.query);
    hx_mac_part(mac, in->normal.media_type);
    hx_mac_part(mac, in->normal.content_encoding);
    hx_mac_part(mac, hx_slice_trim(in->if_match));
    hx_mac_part(mac, hx_slice_trim(in->if_none_match));
    hx_mac_part(mac, hx_slice_trim(in->if_unmodified_since));
    hx_mac_part(mac, (hx_slice){&in->normal.body_kind, 1});
    hx_mac_part(mac, in->normal.body);
    const hx_fingerprint_rules *rules = rules_of(in);
    HX_CHECK(rules->header_count == 0 || in->headers != NULL);
    for (size_t i = 0; i < rules->header_count; i++) {
        hx_mac_part(mac, rules->headers[i]);
        hx_mac_part(mac, hx_slice_trim(in->headers[i]));
    }
    return hx_mac_end(mac);
}

static hx_slice framed(const hx_slice *fields, size_t count, hx_arena *arena)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += hx_slice_trim(fields[i]).len;
    if (bytes == 0) return HX_EMPTY;
    hx_buf text;
    hx_buf_init(&text, arena, bytes + count * sizeof(uint64_t));
    for (size_t i = 0; i < count; i++) put_framed(&text, hx_slice_trim(fields[i]));
    return hx_buf_slice(&text);
}

void hx_fingerprint_parts(hx_mac *mac, hx_fingerprint_input *in, hx_arena *arena, uint64_t parts[HX_PART_COUNT])
{
    if (key_says_it_all(in)) {
        memset(parts, 0, HX_PART_COUNT * sizeof *parts); /* none that could differ */
        return;
    }
    normalise(mac, in, arena);
    const hx_slice conditions[] = {in->if_match, in->if_none_match, in->if_unmodified_since};
    const hx_fingerprint_rules *rules = rules_of(in);
    HX_CHECK(rules->header_count == 0 || in->headers != NULL);
    parts[HX_PART_METHOD] = hx_mac_short(mac, 'm', in->method);
    parts[HX_PART_PATH] = hx_mac_short(mac, 'p', in->path);
    parts[HX_PART_QUERY] = hx_mac_short(mac, in->normal.has_query ? '?' : 'q', in->normal.query);
    parts[HX_PART_MEDIA_TYPE] = hx_mac_short(mac, 't', in->normal.media_type);
    parts[HX_PART_CONTENT_ENCODING] = hx_mac_short(mac, 'c', in->normal.content_encoding);
    parts[HX_PART_PRECONDITIONS] = hx_mac_short(mac, 'i', framed(conditions, 3, arena));
    parts[HX_PART_BODY] = hx_mac_short(mac, in->normal.body_kind, in->normal.body);
    parts[HX_PART_HOST] = hx_mac_short(mac, 'H', in->host);
    parts[HX_PART_HEADERS] = 0; /* the same as in records written before headers could be chosen */
    if (rules->header_count > 0)
        parts[HX_PART_HEADERS] = hx_mac_short(mac, 'h', framed(in->headers, rules->header_count, arena));
}
