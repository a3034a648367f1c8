/* SPDX-License-Identifier: Apache-2.0 */
#include "core/operation/key.h"

#include "base/check.h"
#include "base/hex.h"

#include <string.h>

#define INTEGER_DIGITS_MAX 15u
#define DECIMAL_WHOLE_DIGITS_MAX 12u
#define DECIMAL_FRACTION_DIGITS_MAX 3u

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_alpha(char c)
{
    return is_lower(hx_lower(c));
}

static bool is_control(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7f;
}

static bool is_printable(char c)
{
    return c >= 0x20 && c < 0x7f;
}

/* The length of the Structured Field string that opens `s`, both quotes included. */
static hx_key_error string_length(hx_slice s, size_t *len, bool *escaped)
{
    *escaped = false;
    for (size_t i = 1; i < s.len; i++) {
        if (s.ptr[i] == '"') {
            *len = i + 1;
            return HX_KEY_OK;
        }
        if (!is_printable(s.ptr[i])) return HX_KEY_BAD_BYTE;
        if (s.ptr[i] != '\\') continue;
        *escaped = true;
        if (++i < s.len && s.ptr[i] != '"' && s.ptr[i] != '\\') return HX_KEY_BAD_BYTE;
    }
    return HX_KEY_UNBALANCED_QUOTE;
}

static size_t digits_at(hx_slice s, size_t from)
{
    size_t i = from;
    while (i < s.len && is_digit(s.ptr[i])) i++;
    return i - from;
}

/* Each of these takes one kind of bare item (RFC 8941, 3.3) off the front of *rest. */

static bool take_number(hx_slice *rest)
{
    size_t at = rest->ptr[0] == '-' ? 1 : 0;
    size_t whole = digits_at(*rest, at);
    if (whole == 0) return false;
    at += whole;
    if (at < rest->len && rest->ptr[at] == '.') {
        size_t fraction = digits_at(*rest, at + 1);
        if (whole > DECIMAL_WHOLE_DIGITS_MAX || fraction == 0 || fraction > DECIMAL_FRACTION_DIGITS_MAX) return false;
        at += 1 + fraction;
    } else if (whole > INTEGER_DIGITS_MAX) {
        return false;
    }
    *rest = hx_slice_from(*rest, at);
    return true;
}

static bool take_token(hx_slice *rest)
{
    size_t at = 1;
    while (at < rest->len &&
           (rest->ptr[at] == ':' || rest->ptr[at] == '/' || hx_slice_is_token((hx_slice){rest->ptr + at, 1})))
        at++;
    *rest = hx_slice_from(*rest, at);
    return true;
}

static bool take_bytes(hx_slice *rest)
{
    size_t at = 1;
    while (at < rest->len && (is_alpha(rest->ptr[at]) || is_digit(rest->ptr[at]) || rest->ptr[at] == '+' ||
                              rest->ptr[at] == '/' || rest->ptr[at] == '='))
        at++;
    if (at == rest->len || rest->ptr[at] != ':') return false;
    *rest = hx_slice_from(*rest, at + 1);
    return true;
}

static bool take_boolean(hx_slice *rest)
{
    if (rest->len < 2 || (rest->ptr[1] != '0' && rest->ptr[1] != '1')) return false;
    *rest = hx_slice_from(*rest, 2);
    return true;
}

static bool take_string(hx_slice *rest)
{
    size_t len;
    bool escaped;
    if (string_length(*rest, &len, &escaped) != HX_KEY_OK) return false;
    *rest = hx_slice_from(*rest, len);
    return true;
}

static bool take_bare_item(hx_slice *rest)
{
    if (rest->len == 0) return false;
    char c = rest->ptr[0];
    if (c == '"') return take_string(rest);
    if (c == ':') return take_bytes(rest);
    if (c == '?') return take_boolean(rest);
    if (c == '-' || is_digit(c)) return take_number(rest);
    return (is_alpha(c) || c == '*') && take_token(rest);
}

/* Only parameters may follow the string: anything else isn't an item, and its meaning is unknown. */
static bool are_parameters(hx_slice rest)
{
    while (rest.len > 0) {
        if (rest.ptr[0] != ';') return false;
        rest = hx_slice_from(rest, 1);
        while (rest.len > 0 && rest.ptr[0] == ' ') rest = hx_slice_from(rest, 1);
        if (rest.len == 0 || !(is_lower(rest.ptr[0]) || rest.ptr[0] == '*')) return false;
        size_t name = 1;
        while (name < rest.len && (is_lower(rest.ptr[name]) || is_digit(rest.ptr[name]) ||
                                   (rest.ptr[name] != '\0' && strchr("_-.*", rest.ptr[name]) != NULL)))
            name++;
        rest = hx_slice_from(rest, name);
        if (rest.len == 0 || rest.ptr[0] != '=') continue;
        rest = hx_slice_from(rest, 1);
        if (!take_bare_item(&rest)) return false;
    }
    return true;
}

static hx_slice unescape(hx_slice inside, hx_arena *arena)
{
    char *text = hx_arena_alloc(arena, inside.len);
    size_t len = 0;
    for (size_t i = 0; i < inside.len; i++) {
        if (inside.ptr[i] == '\\') i++;
        text[len++] = inside.ptr[i];
    }
    return (hx_slice){text, len};
}

static hx_key_error read_quoted(hx_slice value, hx_arena *arena, hx_slice *key)
{
    size_t len;
    bool escaped;
    hx_key_error error = string_length(value, &len, &escaped);
    if (error != HX_KEY_OK) return error;
    if (!are_parameters(hx_slice_from(value, len))) return HX_KEY_BAD_BYTE;
    if (value.len - len > HX_KEY_PARAMETERS_MAX) return HX_KEY_LONG_PARAMETERS;
    hx_slice inside = {value.ptr + 1, len - 2};
    *key = escaped ? unescape(inside, arena) : inside;
    return HX_KEY_OK;
}

static hx_key_error read_bare(hx_slice value, hx_slice *key)
{
    for (size_t i = 0; i < value.len; i++) {
        char c = value.ptr[i];
        if (!is_printable(c) || c == ' ' || c == ',' || c == '"') return HX_KEY_BAD_BYTE;
    }
    *key = value;
    return HX_KEY_OK;
}

/* 8-4-4-4-12 hexadecimal digits; version 4 also fixes the version and the variant (RFC 9562). */
static bool is_uuid(hx_slice key, bool version_4)
{
    if (key.len != 36) return false;
    for (size_t i = 0; i < key.len; i++) {
        char c = key.ptr[i];
        if (i == 8 || i == 13 || i == 18 || i == 23) {
            if (c != '-') return false;
        } else if (hx_hex_digit(c) < 0) {
            return false;
        }
    }
    char variant = hx_lower(key.ptr[19]);
    return !version_4 || (key.ptr[14] == '4' && (variant == '8' || variant == '9' || variant == 'a' || variant == 'b'));
}

static hx_key_error check_rules(hx_slice key, const hx_key_rules *rules)
{
    if (key.len == 0) return HX_KEY_EMPTY;
    if (key.len < rules->len_min) return HX_KEY_TOO_SHORT;
    if (key.len > rules->len_max) return HX_KEY_TOO_LONG;
    if (rules->format != HX_KEY_ANY && !is_uuid(key, rules->format == HX_KEY_UUID4)) return HX_KEY_BAD_FORMAT;
    return HX_KEY_OK;
}

hx_key_error hx_key_parse(hx_slice field_value, const hx_key_rules *rules, hx_arena *arena, hx_slice *key)
{
    hx_slice value = hx_slice_trim(field_value), found = HX_EMPTY;
    if (value.len == 0) return HX_KEY_EMPTY;
    for (size_t i = 0; i < value.len; i++)
        if (is_control(value.ptr[i])) return HX_KEY_CONTROL_BYTE;
    hx_key_error error = value.ptr[0] == '"' ? read_quoted(value, arena, &found) : read_bare(value, &found);
    if (error == HX_KEY_OK) error = check_rules(found, rules);
    if (error == HX_KEY_OK) *key = found;
    return error;
}

hx_slice hx_key_parameters(hx_slice field_value)
{
    hx_slice value = hx_slice_trim(field_value);
    size_t len;
    bool escaped;
    if (value.len == 0 || value.ptr[0] != '"' || string_length(value, &len, &escaped) != HX_KEY_OK) return HX_EMPTY;
    return hx_slice_from(value, len);
}

const char *hx_key_error_text(hx_key_error error)
{
    static const char *const texts[] = {
#define X(name, text) text,
        HX_KEY_ERRORS(X)
#undef X
    };
    HX_CHECK((size_t)error < sizeof texts / sizeof *texts);
    return texts[error];
}
