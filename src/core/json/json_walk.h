/* SPDX-License-Identifier: Apache-2.0 */
/* Iterates over the members of a JSON object, or the elements of an array, that core/json/json.h has found well-formed.
 * Each is looked at once, where a pointer for each would read the text from its beginning every time. */
#ifndef HX_CORE_JSON_JSON_WALK_H
#define HX_CORE_JSON_JSON_WALK_H

#include "base/slice.h"

typedef struct {
    hx_slice rest;
    bool is_object;
} hx_json_walk;

/* `container` is the raw value, from its bracket or brace to the other. Anything else is an empty walk. */
hx_json_walk hx_json_walk_over(hx_slice container);
/* Returns the next one, raw; `name` is the raw string of a member, quotes included, and empty for an element. False
 * at the end. */
bool hx_json_walk_next(hx_json_walk *walk, hx_slice *name, hx_slice *value);

#endif
