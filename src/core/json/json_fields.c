/* SPDX-License-Identifier: Apache-2.0 */
#include "core/json/json_fields.h"

#include "core/json/json.h"
#include "core/json/json_walk.h"
#include "core/json/json_writer.h"
#include "core/time/rfc3339.h"
#include "core/time/units.h"

#define NUMBER_MAX (UINT64_C(1) << 53) /* that every reader of JSON takes exactly */

static const hx_json_field *find_field(const hx_json_shape *shape, hx_slice name)
{
    for (size_t i = 0; i < shape->count; i++)
        if (hx_slice_eq(name, hx_slice_of(shape->fields[i].name))) return &shape->fields[i];
    return NULL;
}

static bool read_texts(hx_slice value, hx_arena *arena, hx_texts *out)
{
    hx_slice none, raw;
    *out = (hx_texts){0};
    if (value.ptr[0] != '[') return false;
    for (hx_json_walk walk = hx_json_walk_over(value); hx_json_walk_next(&walk, &none, &raw);) out->count++;
    out->items = hx_arena_alloc(arena, (out->count + 1) * sizeof *out->items);
    hx_json_walk walk = hx_json_walk_over(value);
    for (size_t i = 0; hx_json_walk_next(&walk, &none, &raw); i++)
        if (!hx_json_string(raw, arena, &out->items[i])) return false;
    return true;
}

static bool read_moment(hx_slice value, unsigned use, hx_json_kind kind, hx_arena *arena, hx_ms *out)
{
    uint64_t number;
    hx_slice text;
    if (use == HX_JSON_STORED) {
        if (!hx_slice_to_u64(value, &number) || number > INT64_MAX) return false;
        *out = (hx_ms)number;
        return true;
    }
    if (!hx_json_string(value, arena, &text)) return false;
    return kind == HX_JSON_TIME ? hx_rfc3339_read(text, out) : hx_unit_read(text, out);
}

static bool read_value(const hx_json_field *field, unsigned use, hx_slice value, hx_arena *arena, void *place)
{
    switch (field->kind) {
    case HX_JSON_TEXT: return hx_json_string(value, arena, place);
    case HX_JSON_TEXTS: return read_texts(value, arena, place);
    case HX_JSON_NUMBER: {
        uint64_t number;
        if (!hx_slice_to_u64(value, &number) || number > NUMBER_MAX) return false;
        *(uint64_t *)place = number;
        return true;
    }
    case HX_JSON_TIME:
    case HX_JSON_SPAN: return read_moment(value, use, field->kind, arena, place);
    case HX_JSON_BOOL:
        *(bool *)place = hx_slice_eq(value, HX_LIT("true"));
        return *(bool *)place || hx_slice_eq(value, HX_LIT("false"));
    case HX_JSON_RAW: *(hx_slice *)place = value; return true;
    }
    return false;
}

static const char *words_of(hx_json_kind kind)
{
    static const char *const words[] = {[HX_JSON_TEXT] = "a text",
                                        [HX_JSON_TEXTS] = "a list of texts",
                                        [HX_JSON_NUMBER] = "a whole number",
                                        [HX_JSON_TIME] = "a time such as \"2026-02-19T12:00:00Z\"",
                                        [HX_JSON_SPAN] = "a duration such as \"30s\"",
                                        [HX_JSON_BOOL] = "true or false",
                                        [HX_JSON_RAW] = "JSON"};
    return words[kind];
}

bool hx_json_read(const hx_json_shape *shape, unsigned use, hx_slice object, hx_arena *arena, void *out,
                  hx_error_text error)
{
    hx_slice raw_name, value, name;
    bool is_object = use == HX_JSON_GIVEN ? hx_json_is_clean_object(object, arena)
                                          : hx_json_find(object, HX_EMPTY, &value) == HX_JSON_FOUND;
    if (!is_object || hx_json_find(object, HX_EMPTY, &object) != HX_JSON_FOUND || object.ptr[0] != '{')
        return hx_fail(error, "the body must be a JSON object in UTF-8, with no member twice");
    hx_json_walk walk = hx_json_walk_over(object);
    while (hx_json_walk_next(&walk, &raw_name, &value)) {
        if (!hx_json_string(raw_name, arena, &name)) return hx_fail(error, "the body has a malformed name");
        const hx_json_field *field = find_field(shape, name);
        if (!field || !(field->uses & use)) {
            if (use != HX_JSON_GIVEN) continue; /* of a later version */
            return hx_fail(error, "there is no member \"%.*s\" here", (int)(name.len < 80 ? name.len : 80), name.ptr);
        }
        if (hx_slice_eq(value, HX_LIT("null"))) continue;
        if (!read_value(field, use, value, arena, (char *)out + field->offset))
            return hx_fail(error, "\"%s\" must be %s", field->name, words_of(field->kind));
    }
    return true;
}

void hx_json_put_time(hx_buf *out, const char *name, hx_ms at)
{
    char text[HX_RFC3339_BYTES];
    if (at > 0)
        hx_json_put_text(out, name, hx_rfc3339(at, text));
    else
        hx_json_put_null(out, name);
}

static void put_span(hx_buf *out, const char *name, hx_ms span)
{
    const hx_unit *unit = hx_time_units;
    while (unit[1].name && (uint64_t)span % unit->factor != 0) unit++;
    char text[32];
    hx_buf written = {.data = text, .cap = sizeof text, .max = sizeof text};
    hx_buf_put_decimal(&written, (uint64_t)span / unit->factor);
    hx_buf_puts(&written, unit->name);
    hx_json_put_text(out, name, hx_buf_slice(&written));
}

static bool is_empty(const hx_json_field *field, const void *place)
{
    switch (field->kind) {
    case HX_JSON_TEXT:
    case HX_JSON_RAW: return ((const hx_slice *)place)->len == 0;
    case HX_JSON_TEXTS: return ((const hx_texts *)place)->count == 0;
    case HX_JSON_NUMBER: return *(const uint64_t *)place == 0;
    case HX_JSON_TIME:
    case HX_JSON_SPAN: return *(const hx_ms *)place == 0;
    case HX_JSON_BOOL: return !*(const bool *)place;
    }
    return true;
}

static void write_value(const hx_json_field *field, unsigned use, const void *place, hx_buf *out)
{
    bool stored = use == HX_JSON_STORED;
    switch (field->kind) {
    case HX_JSON_TEXT: hx_json_put_text(out, field->name, *(const hx_slice *)place); break;
    case HX_JSON_TEXTS: {
        const hx_texts *texts = place;
        hx_json_put_list(out, field->name, texts->items, texts->count);
        break;
    }
    case HX_JSON_NUMBER: hx_json_put_number(out, field->name, *(const uint64_t *)place); break;
    case HX_JSON_TIME:
        if (stored)
            hx_json_put_number(out, field->name, (uint64_t) * (const hx_ms *)place);
        else
            hx_json_put_time(out, field->name, *(const hx_ms *)place);
        break;
    case HX_JSON_SPAN:
        if (stored)
            hx_json_put_number(out, field->name, (uint64_t) * (const hx_ms *)place);
        else
            put_span(out, field->name, *(const hx_ms *)place);
        break;
    case HX_JSON_BOOL: hx_json_put_bool(out, field->name, *(const bool *)place); break;
    case HX_JSON_RAW: {
        const hx_slice *raw = place;
        hx_json_put_raw(out, field->name, raw->len > 0 ? *raw : HX_LIT("null"));
        break;
    }
    }
}

void hx_json_write(const hx_json_shape *shape, unsigned use, const void *from, hx_buf *out)
{
    for (size_t i = 0; i < shape->count; i++) {
        const hx_json_field *field = &shape->fields[i];
        const void *place = (const char *)from + field->offset;
        if (!(field->uses & use) || (use == HX_JSON_STORED && is_empty(field, place))) continue;
        write_value(field, use, place, out);
    }
}
