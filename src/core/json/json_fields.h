/* SPDX-License-Identifier: Apache-2.0 */
/* JSON objects as structs, by a table of their members: one table for what a client gives, what is stored and what is
 * shown.
 *
 *     static const hx_json_field fields[] = {
 *         HX_JSON_FIELD(hx_endpoint, url, TEXT, HX_JSON_GIVEN | HX_JSON_STORED | HX_JSON_SHOWN),
 *
 * A member that is absent or null leaves zero, false, or an empty text. What is zero or empty isn't stored. */
#ifndef HX_CORE_JSON_JSON_FIELDS_H
#define HX_CORE_JSON_JSON_FIELDS_H

#include "base/clock.h"
#include "base/fail.h"
#include "base/memory/buf.h"

typedef struct {
    hx_slice *items;
    size_t count;
} hx_texts;

typedef enum {
    HX_JSON_TEXT,   /* hx_slice */
    HX_JSON_TEXTS,  /* hx_texts: an array of texts */
    HX_JSON_NUMBER, /* uint64_t */
    HX_JSON_TIME,   /* hx_ms: a number in a store, RFC 3339 elsewhere */
    HX_JSON_SPAN,   /* hx_ms: milliseconds in a store, "30s" elsewhere */
    HX_JSON_BOOL,   /* bool */
    HX_JSON_RAW     /* hx_slice: any JSON */
} hx_json_kind;

/* Where a member occurs. */
#define HX_JSON_GIVEN 1u  /* in what a client sends */
#define HX_JSON_STORED 2u /* in a store */
#define HX_JSON_SHOWN 4u  /* in what a client gets */

typedef struct {
    const char *name;
    hx_json_kind kind;
    size_t offset;
    unsigned uses;
} hx_json_field;

#define HX_JSON_FIELD(type, member, kind, uses)                                                                        \
    {                                                                                                                  \
#member, HX_JSON_##kind, offsetof(type, member), uses                                                          \
    }

typedef struct {
    const hx_json_field *fields;
    size_t count;
} hx_json_shape;

#define HX_JSON_SHAPE(fields)                                                                                          \
    {                                                                                                                  \
        fields, sizeof(fields) / sizeof((fields)[0])                                                                   \
    }

/* Reads the members for `use` into `out`, which the caller has filled with defaults; the rest stays as it is. Texts
 * point into `object` or are in the arena. False with a sentence in `error`: it isn't a JSON object, a member has the
 * wrong type, or, for HX_JSON_GIVEN, isn't in the table or occurs twice. */
bool hx_json_read(const hx_json_shape *shape, unsigned use, hx_slice object, hx_arena *arena, void *out,
                  hx_error_text error) HX_MUST_USE;
/* Writes the members for `use`, without the braces around them. */
void hx_json_write(const hx_json_shape *shape, unsigned use, const void *from, hx_buf *out);
/* An RFC 3339 text, or null where `at` is 0. */
void hx_json_put_time(hx_buf *out, const char *name, hx_ms at);

#endif
