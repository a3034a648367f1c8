/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/openapi/schema.h"

#include "base/check.h"
#include "core/json/json_writer.h"
#include "core/operation/record.h"

typedef struct {
    const char *name, *text, *members;
} schema_row;

static const schema_row schemas[] = {
#define X(name, text, members) {#name, text, members},
#include "admin/openapi/schemas.def"
#undef X
};

#define DEPTH_MAX 4u /* of lists and objects in a type */
#define SCHEMA_COUNT (sizeof schemas / sizeof schemas[0])

/* Types that are no object, and how they are written where they are used. */
static const struct {
    const char *name, *json;
} scalars[] = {{"any", "{}"},
               {"text", "{\"type\":\"string\"}"},
               {"int", "{\"type\":\"integer\",\"minimum\":0}"},
               {"bool", "{\"type\":\"boolean\"}"},
               {"id", "{\"type\":\"string\",\"pattern\":\"^[0-9a-f]{32}$\"}"},
               {"mac", "{\"type\":\"string\",\"pattern\":\"^[0-9a-f]{64}$\"}"},
               {"time", "{\"type\":\"string\",\"format\":\"date-time\"}"},
               {"span", "{\"type\":\"string\",\"pattern\":\"^[0-9]+(ms|s|m|h|d)$\",\"examples\":[\"30s\"]}"}};

static const schema_row *find_schema(hx_slice name)
{
    for (size_t i = 0; i < SCHEMA_COUNT; i++)
        if (hx_slice_eq(name, hx_slice_of(schemas[i].name))) return &schemas[i];
    return NULL;
}

const char *hx_schema_text(hx_slice name)
{
    const schema_row *row = find_schema(name);
    return row ? row->text : "JSON.";
}

hx_schema_walk hx_schema_walk_over(const char *members)
{
    return (hx_schema_walk){.members = hx_slice_of(members), .after = HX_EMPTY};
}

bool hx_schema_next(hx_schema_walk *walk, hx_schema_member *out)
{
    hx_slice item;
    if (walk->members.len == 0) *walk = (hx_schema_walk){.members = walk->after, .after = HX_EMPTY};
    if (walk->members.len == 0) return false;
    (void)hx_slice_next(&walk->members, ',', &item);
    item = hx_slice_trim(item);
    if (hx_slice_starts(item, HX_LIT("+"))) {
        const schema_row *other = find_schema(hx_slice_from(item, 1));
        HX_CHECK(other && walk->after.len == 0);
        *walk = (hx_schema_walk){.members = hx_slice_of(other->members), .after = walk->members};
        (void)hx_slice_next(&walk->members, ',', &item);
        item = hx_slice_trim(item);
    }
    out->name = hx_slice_first(item, hx_slice_find(item, ' '));
    out->type = hx_slice_from(item, out->name.len + 1);
    out->is_required = hx_slice_ends(out->name, HX_LIT("!"));
    if (out->is_required) out->name.len--;
    return true;
}

bool hx_schema_has_required(hx_slice name)
{
    const schema_row *row = find_schema(name);
    HX_CHECK(row);
    hx_schema_walk walk = hx_schema_walk_over(row->members);
    hx_schema_member member;
    while (hx_schema_next(&walk, &member))
        if (member.is_required) return true;
    return false;
}

void hx_schema_put_name(hx_buf *out, hx_slice name)
{
    hx_json_put_text(out, NULL, name);
    hx_buf_puts(out, ":");
}

static bool is_object_name(hx_slice type)
{
    return type.len > 0 && type.ptr[0] >= 'A' && type.ptr[0] <= 'Z';
}

static void put_reference(hx_buf *out, hx_slice name)
{
    hx_json_open(out, NULL, '{');
    hx_json_put_name(out, "$ref");
    hx_buf_puts(out, "\"#/components/schemas/");
    hx_buf_put(out, name);
    hx_buf_puts(out, "\"}");
}

/* a|b: words, or objects. */
static void put_choice(hx_buf *out, hx_slice choice)
{
    bool are_objects = is_object_name(choice);
    hx_slice one;
    hx_json_open(out, NULL, '{');
    hx_json_open(out, are_objects ? "anyOf" : "enum", '[');
    while (hx_slice_next(&choice, '|', &one))
        if (are_objects)
            put_reference(out, one);
        else
            hx_json_put_text(out, NULL, one);
    hx_json_close(out, ']');
    hx_json_close(out, '}');
}

static void put_scalar(hx_buf *out, hx_slice type)
{
    size_t i = 0;
    while (i < sizeof scalars / sizeof scalars[0] && !hx_slice_eq(type, hx_slice_of(scalars[i].name))) i++;
    HX_CHECK(i < sizeof scalars / sizeof scalars[0]);
    hx_json_put_raw(out, NULL, hx_slice_of(scalars[i].json));
}

/* What is around a type is opened from the outside in, and closed in the reverse order. */
void hx_schema_put_type(hx_buf *out, const char *name, hx_slice type)
{
    const char *closing[DEPTH_MAX];
    size_t depth = 0;
    hx_json_put_raw(out, name, HX_EMPTY);
    for (; type.ptr[0] == '[' || type.ptr[0] == '{' || hx_slice_ends(type, HX_LIT("?")); depth++) {
        bool may_be_null = hx_slice_ends(type, HX_LIT("?"));
        HX_CHECK(depth < DEPTH_MAX);
        hx_buf_puts(out, may_be_null          ? "{\"anyOf\":["
                         : type.ptr[0] == '[' ? "{\"type\":\"array\",\"items\":"
                                              : "{\"type\":\"object\",\"additionalProperties\":");
        closing[depth] = may_be_null ? ",{\"type\":\"null\"}]}" : "}";
        type = may_be_null ? hx_slice_first(type, type.len - 1) : hx_slice_first(hx_slice_from(type, 1), type.len - 2);
    }
    if (hx_slice_find(type, '|') != SIZE_MAX)
        put_choice(out, type);
    else if (is_object_name(type))
        put_reference(out, type);
    else
        put_scalar(out, type);
    while (depth > 0) hx_buf_puts(out, closing[--depth]);
}

static void put_words(hx_buf *out, const char *name, const char *const *words, size_t count)
{
    hx_json_open(out, name, '{');
    hx_json_open(out, "enum", '[');
    for (size_t i = 0; i < count; i++) hx_json_put_text(out, NULL, hx_slice_of(words[i]));
    hx_json_close(out, ']');
    hx_json_close(out, '}');
}

/* Words that other tables list. */
static void put_lists(hx_buf *out)
{
#define X(name, number, text) text,
    static const char *const states[] = {HX_STATES(X)};
#undef X
    static const char *const delivery_states[] = {
#define X(id, name, queue, has_ended, text) name,
#include "core/event/states.def"
#undef X
        "absent", "unreadable"};
    static const char *const scopes[] = {
#define X(id, bit, name, text) name,
#include "core/event/scopes.def"
#undef X
    };
    put_words(out, "State", states, sizeof states / sizeof states[0]);
    put_words(out, "DeliveryState", delivery_states, sizeof delivery_states / sizeof delivery_states[0]);
    put_words(out, "Scope", scopes, sizeof scopes / sizeof scopes[0]);
}

void hx_schema_put_all(hx_buf *out)
{
    hx_schema_walk walk;
    hx_schema_member member;
    hx_json_open(out, "schemas", '{');
    put_lists(out);
    for (size_t i = 0; i < SCHEMA_COUNT; i++) {
        hx_buf_puts(out, ",\n");
        hx_json_open(out, schemas[i].name, '{');
        hx_json_put_text(out, "type", HX_LIT("object"));
        hx_json_put_text(out, "description", hx_slice_of(schemas[i].text));
        hx_json_open(out, "properties", '{');
        for (walk = hx_schema_walk_over(schemas[i].members); hx_schema_next(&walk, &member);) {
            hx_schema_put_name(out, member.name);
            hx_schema_put_type(out, NULL, member.type);
        }
        hx_json_close(out, '}');
        hx_json_open(out, "required", '[');
        for (walk = hx_schema_walk_over(schemas[i].members); hx_schema_next(&walk, &member);)
            if (member.is_required) hx_json_put_text(out, NULL, member.name);
        hx_json_close(out, ']');
        hx_json_close(out, '}');
    }
    hx_json_close(out, '}');
}
