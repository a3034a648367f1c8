/* SPDX-License-Identifier: Apache-2.0 */
/* Fields are classified once, here: by length first, then by name, over the rows of fields.def. */
#include "net/http/message.h"

#include "base/check.h"

#include <string.h>

#define FIRST_FIELDS 16u
#define NAME_BYTES_MAX 31u
/* A Connection field names a handful of others; more is an attempt to waste our time with comparing. */
#define CONNECTION_OPTIONS_MAX 32u

static const struct {
    hx_slice name;
    uint8_t flags;
} known[HX_FIELD_COUNT] = {
    {{"", 0}, 0},
#define X(id, name, flags) {{name, sizeof(name) - 1}, flags},
#include "net/http/fields.def"
#undef X
};

/* The known names of one length are a chain: by_length[len] → next[id] → … → HX_FIELD_OTHER. */
static uint8_t by_length[NAME_BYTES_MAX + 1];
static uint8_t next_of_length[HX_FIELD_COUNT];

static bool is_plain[UINT8_MAX + 1]; /* letters, digits and the hyphen */

_Static_assert(HX_FIELD_COUNT <= UINT8_MAX, "identifiers are kept in bytes");

__attribute__((constructor)) static void chain_known_names(void)
{
    for (size_t id = HX_FIELD_COUNT - 1; id > HX_FIELD_OTHER; id--) {
        HX_CHECK(known[id].name.len <= NAME_BYTES_MAX);
        next_of_length[id] = by_length[known[id].name.len];
        by_length[known[id].name.len] = (uint8_t)id;
    }
    static const char plain[] = "-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for (size_t i = 0; plain[i] != '\0'; i++) is_plain[(uint8_t)plain[i]] = true;
}

static bool differ(const char *known_name, const char *name) /* in eight bytes; see below */
{
    uint64_t a, b;
    memcpy(&a, known_name, sizeof a);
    memcpy(&b, name, sizeof b);
    return a != (b | UINT64_C(0x2020202020202020));
}

/* Known names hold lower-case letters, digits and hyphens only, and names from the wire no control bytes: so setting
 * bit 5 makes a letter lower-case, leaves digits and hyphens as they are, and makes nothing else into any of them. */
static bool is_name(const char *known_name, const char *name, size_t len)
{
    size_t i = 0;
    for (; i + 8 <= len; i += 8)
        if (differ(known_name + i, name + i)) return false;
    if (len >= 8) return i == len || !differ(known_name + len - 8, name + len - 8);
    for (; i < len; i++)
        if ((name[i] | 0x20) != known_name[i]) return false;
    return true;
}

static hx_field_id classify(hx_slice name)
{
    if (name.len > NAME_BYTES_MAX) return HX_FIELD_OTHER;
    for (uint8_t id = by_length[name.len]; id != HX_FIELD_OTHER; id = next_of_length[id])
        if (is_name(known[id].name.ptr, name.ptr, name.len)) return (hx_field_id)id;
    return HX_FIELD_OTHER;
}

static bool is_odd(hx_slice name)
{
    size_t i = 0;
    while (i < name.len && is_plain[(uint8_t)name.ptr[i]]) i++;
    return i < name.len;
}

static char folded(char c)
{
    return is_plain[(uint8_t)c] ? hx_lower(c) : '-';
}

bool hx_fields_named_alike(hx_slice one, hx_slice other)
{
    if (one.len != other.len) return false;
    for (size_t i = 0; i < one.len; i++)
        if (folded(one.ptr[i]) != folded(other.ptr[i])) return false;
    return true;
}

hx_field_id hx_field_reads_as(const hx_field *field)
{
    char name[NAME_BYTES_MAX];
    if (field->name.len > sizeof name) return HX_FIELD_OTHER;
    for (size_t i = 0; i < field->name.len; i++) name[i] = folded(field->name.ptr[i]);
    return classify((hx_slice){name, field->name.len});
}

bool hx_fields_add(hx_fields *fields, hx_arena *arena, uint16_t count_max, hx_slice name, hx_slice value)
{
    if (fields->count >= count_max) return false;
    if (fields->count == fields->cap) {
        size_t cap = fields->cap ? fields->cap * 2u : FIRST_FIELDS;
        if (cap > count_max) cap = count_max;
        hx_field *items = hx_arena_alloc(arena, cap * sizeof *items);
        if (fields->count > 0) memcpy(items, fields->items, fields->count * sizeof *items);
        fields->items = items;
        fields->cap = (uint16_t)cap;
    }
    hx_field_id id = classify(name);
    uint8_t flags = id == HX_FIELD_OTHER && is_odd(name) ? HX_FIELD_ODD : known[id].flags;
    if (fields->lines[id] == 0) fields->first[id] = fields->count;
    if (fields->lines[id] < UINT8_MAX) fields->lines[id]++;
    fields->items[fields->count++] = (hx_field){.name = name, .value = hx_slice_trim(value), .id = id, .flags = flags};
    return true;
}

/* A field that Hapax knows and that isn't hop-by-hop by itself has a meaning end to end: a client that could have it
 * dropped by a proxy could change what a request means. */
static bool may_be_dropped(hx_field_id id)
{
    return id == HX_FIELD_OTHER || known[id].flags == HX_FIELD_HOP;
}

static bool mark_one(hx_fields *fields, hx_slice name)
{
    hx_field_id id = classify(name);
    if (!may_be_dropped(id)) return false;
    if (id != HX_FIELD_OTHER) return true; /* its row in fields.def has HX_FIELD_HOP */
    for (size_t i = 0; i < fields->count; i++) {
        hx_field *field = &fields->items[i];
        if (field->id == HX_FIELD_OTHER && hx_slice_eq_nocase(field->name, name)) field->flags |= HX_FIELD_HOP;
    }
    return true;
}

bool hx_fields_mark_hops(hx_fields *fields)
{
    if (fields->lines[HX_FIELD_CONNECTION] == 0) return true;
    unsigned options = 0;
    for (size_t i = fields->first[HX_FIELD_CONNECTION]; i < fields->count; i++) {
        if (fields->items[i].id != HX_FIELD_CONNECTION) continue;
        hx_slice rest = fields->items[i].value, part;
        while (hx_slice_next(&rest, ',', &part)) {
            hx_slice option = hx_slice_trim(part);
            if (++options > CONNECTION_OPTIONS_MAX) return false;
            if (option.len == 0) continue; /* RFC 9110 5.6.1: empty elements are to be ignored */
            if (!hx_slice_is_token(option) || !mark_one(fields, option)) return false;
        }
    }
    return true;
}

hx_slice hx_fields_get(const hx_fields *fields, hx_field_id id)
{
    HX_CHECK(id > HX_FIELD_OTHER && id < HX_FIELD_COUNT);
    return fields->lines[id] > 0 ? fields->items[fields->first[id]].value : HX_EMPTY;
}

const hx_field *hx_fields_find(const hx_fields *fields, hx_slice name)
{
    hx_field_id id = classify(name);
    if (id != HX_FIELD_OTHER) return fields->lines[id] > 0 ? &fields->items[fields->first[id]] : NULL;
    for (size_t i = 0; i < fields->count; i++) {
        const hx_field *field = &fields->items[i];
        if (field->id == HX_FIELD_OTHER && hx_slice_eq_nocase(field->name, name)) return field;
    }
    return NULL;
}

void hx_field_write(hx_buf *out, hx_slice name, hx_slice value)
{
    hx_buf_put(out, name);
    hx_buf_put(out, HX_LIT(": "));
    hx_buf_put(out, value);
    hx_buf_put(out, HX_LIT("\r\n"));
}

hx_slice hx_status_reason(unsigned status)
{
    switch (status) {
#define X(code, text)                                                                                                  \
    case code: return HX_LIT(text);
        X(100, "Continue")
        X(101, "Switching Protocols")
        X(200, "OK")
        X(201, "Created")
        X(202, "Accepted")
        X(203, "Non-Authoritative Information")
        X(204, "No Content")
        X(205, "Reset Content")
        X(206, "Partial Content")
        X(300, "Multiple Choices")
        X(301, "Moved Permanently")
        X(302, "Found")
        X(303, "See Other")
        X(304, "Not Modified")
        X(307, "Temporary Redirect")
        X(308, "Permanent Redirect")
        X(400, "Bad Request")
        X(401, "Unauthorized")
        X(402, "Payment Required")
        X(403, "Forbidden")
        X(404, "Not Found")
        X(405, "Method Not Allowed")
        X(406, "Not Acceptable")
        X(408, "Request Timeout")
        X(409, "Conflict")
        X(410, "Gone")
        X(411, "Length Required")
        X(412, "Precondition Failed")
        X(413, "Content Too Large")
        X(414, "URI Too Long")
        X(415, "Unsupported Media Type")
        X(416, "Range Not Satisfiable")
        X(417, "Expectation Failed")
        X(421, "Misdirected Request")
        X(422, "Unprocessable Content")
        X(423, "Locked")
        X(425, "Too Early")
        X(426, "Upgrade Required")
        X(428, "Precondition Required")
        X(429, "Too Many Requests")
        X(431, "Request Header Fields Too Large")
        X(500, "Internal Server Error")
        X(501, "Not Implemented")
        X(502, "Bad Gateway")
        X(503, "Service Unavailable")
        X(504, "Gateway Timeout")
        X(505, "HTTP Version Not Supported")
#undef X
    default: return HX_EMPTY;
    }
}
