/* SPDX-License-Identifier: Apache-2.0 */
/* Strict JSON: RFC 8259 in valid UTF-8, no lone surrogates, no member twice in one object (compared after unescaping),
 * bounded depth and member count. Nothing here recurses or touches the heap but through an arena. */
#ifndef HX_CORE_JSON_JSON_H
#define HX_CORE_JSON_JSON_H

#include "base/memory/buf.h"
#include "core/json/json_pointers.h"

#define HX_JSON_DEPTH_MAX 64u       /* arrays and objects inside each other */
#define HX_JSON_MEMBERS_MAX 100000u /* in the objects that are open at one time */
/* An `out` with this limit is never full. `1e20` has four bytes, and its canonical text 21. */
#define HX_JSON_CANONICAL_BYTES(text_len) (6u * (text_len) + 64u)

/* Appends the canonical form (RFC 8785 with the contract's numbers, see core/json/number.h) to `out`. False when `text`
 * is not clean JSON or `out` is full; what was appended is then taken back. */
bool hx_json_canonical(hx_slice text, hx_arena *arena, hx_buf *out) HX_MUST_USE;

/* Which parts of a text count. */
typedef struct {
    /* Pointers to values that are left out. A member is removed as if it had never been there. An item of an array
     * keeps its place, so that the others keep theirs: only its value doesn't count. A pointer that finds nothing
     * changes nothing, and the root can't be left out. */
    hx_pointers left_out;
    hx_pointers chosen; /* pointers whose values are wanted separately */
    hx_slice *values;   /* one for each chosen pointer: canonical, in the arena; ptr NULL: there is none */
} hx_json_selection;

/* Canonicalises a selection. In place of an item that is left out an array has a `?`, which is no JSON. What is left
 * out must be clean JSON, too, or the whole text is refused. A chosen value inside a value that is left out isn't
 * found. */
bool hx_json_canonical_of(hx_slice text, const hx_json_selection *selection, hx_arena *arena, hx_buf *out) HX_MUST_USE;

typedef enum {
    HX_JSON_FOUND,
    HX_JSON_MISSING,
    HX_JSON_MALFORMED, /* the text or the pointer is malformed, or a member on the way is repeated */
} hx_json_search;

/* Finds the value that an RFC 6901 pointer names: its raw text, without white space around it. */
hx_json_search hx_json_find(hx_slice text, hx_slice pointer, hx_slice *raw_value) HX_MUST_USE;
/* hx_json_find as a bool. */
bool hx_json_pointer(hx_slice text, hx_slice pointer, hx_slice *raw_value) HX_MUST_USE;

/* Whether it is a pointer by RFC 6901: empty, or beginning with a slash, with every ~ followed by 0 or 1. */
bool hx_json_is_pointer(hx_slice pointer);
/* Whether a raw value equals a word of the configuration: a string by its content, a number by its exact decimal
 * value, true, false and null by their names. Arrays and objects never do. */
bool hx_json_value_is(hx_slice raw, hx_slice wanted);

/* Decodes a string literal, quotes included in `raw`, to UTF-8. False when it isn't a clean one. *decoded points
 * into `raw` when nothing was escaped. */
bool hx_json_string(hx_slice raw, hx_arena *arena, hx_slice *decoded) HX_MUST_USE;

/* Appends a string literal, quotes included, for any bytes; bytes that aren't UTF-8 become U+FFFD. False, and `out`
 * unchanged, when it is full. */
bool hx_json_escape(hx_buf *out, hx_slice bytes) HX_MUST_USE;

/* Whether it is one clean JSON object: no object in it has a member twice. */
bool hx_json_is_clean_object(hx_slice text, hx_arena *arena);

#endif
