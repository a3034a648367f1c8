/* SPDX-License-Identifier: Apache-2.0 */
/* The part of YAML that a configuration needs: maps, lists and text, each with its place in the file. Duplicate keys,
 * anchors, aliases, tags, merge keys and second documents are mistakes here: they make a file say something other than
 * what it seems to say. Scalars stay text: the schema decides whether `no` is a word or a truth value. */
#ifndef HX_CONFIG_YAML_H
#define HX_CONFIG_YAML_H

#include "config/problems.h"

#define HX_YAML_DEPTH_MAX 16u

typedef enum { HX_YAML_TEXT, HX_YAML_MAP, HX_YAML_LIST } hx_yaml_kind;

typedef struct hx_yaml {
    hx_yaml_kind kind;
    hx_slice text;                       /* value of an HX_YAML_TEXT; escapes may yield NULs and control bytes */
    bool is_null;                        /* no value, or ~ or null without quotes */
    bool refused;                        /* reported already; skip it, and the value if it is a key */
    uint32_t line;                       /* from 1 */
    uint32_t column;                     /* from 1, in characters */
    struct hx_yaml *key;                 /* the key of this value; NULL in a list */
    struct hx_yaml *first, *last, *next; /* children of a list, or values of a map; `next` links them */
    size_t count;
} hx_yaml;

/* Returns the tree, in problems->arena; NULL: the text is empty or can't be read. *whole is false if the rest of the
 * text could not be read. */
hx_yaml *hx_yaml_read(hx_slice text, hx_problems *problems, bool *whole) HX_MUST_USE;
/* Returns the value of that key; NULL: it is missing, or `map` is NULL or no map. */
hx_yaml *hx_yaml_get(const hx_yaml *map, const char *key);

#endif
