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

/* What of a text counts. */
typedef struct {
    /* A member that one of these leads to is as if it weren't there. An array's item keeps its place, so that the
     * others keep theirs: only its value doesn't count. What leads nowhere is fine, and the root stays. */
    hx_pointers left_out;
    hx_pointers chosen; /* these are wanted apart */
    hx_slice *values;   /* room for one of each chosen: canonical, in the arena; ptr NULL: there is none */
} hx_json_selection;

/* The same without what is left out, in whose place an array has a `?`, which is no JSON. It is checked all the same:
 * what isn't clean there makes the whole text unclean. What is chosen below something left out isn't there. */
bool hx_json_canonical_of(hx_slice text, const hx_json_selection *selection, hx_arena *arena, hx_buf *out) HX_MUST_USE;

typedef enum {
    HX_JSON_FOUND,
    HX_JSON_MISSING,
    HX_JSON_MALFORMED, /* the text or the pointer is, or a member on the way stands there twice */
} hx_json_search;

/* The value that an RFC 6901 pointer names, as it stands in `text`, without white space around it. */
hx_json_search hx_json_find(hx_slice text, hx_slice pointer, hx_slice *raw_value) HX_MUST_USE;
/* Whether it was found. */
bool hx_json_pointer(hx_slice text, hx_slice pointer, hx_slice *raw_value) HX_MUST_USE;

/* Whether it is one by RFC 6901: empty, or begins with a slash, with every ~ followed by 0 or 1. */
bool hx_json_is_pointer(hx_slice pointer);
/* Whether a value, as hx_json_pointer() gives it, is what a configuration wrote: a string by its content, a number by
 * its exact decimal value, true, false and null by their names. Arrays and objects are none. */
bool hx_json_value_is(hx_slice raw, hx_slice wanted);

/* The UTF-8 bytes of a string literal, quotes included in `raw`. False when it isn't a clean one. Points into `raw`
 * when nothing was escaped. */
bool hx_json_string(hx_slice raw, hx_arena *arena, hx_slice *decoded) HX_MUST_USE;

/* Appends a string literal, quotes included, for any bytes; what isn't UTF-8 becomes U+FFFD. False when `out` is full,
 * which is then as it was. */
bool hx_json_escape(hx_buf *out, hx_slice bytes) HX_MUST_USE;

/* Whether it is one JSON object, clean throughout: no member stands twice anywhere in it. */
bool hx_json_is_clean_object(hx_slice text, hx_arena *arena);

#endif
