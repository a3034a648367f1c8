/* SPDX-License-Identifier: Apache-2.0 */
/* The part of YAML that a configuration needs: maps, lists and text, each with its place in the file. Duplicate keys,
 * anchors, aliases, tags, merge keys and second documents are mistakes here: they make a file say something other than
 * what it seems to say. Nothing is guessed: whether `no` is a word or a truth value is for the schema to know. */
#ifndef HX_CONFIG_YAML_H
#define HX_CONFIG_YAML_H

#include "config/problems.h"

#define HX_YAML_DEPTH_MAX 16u

typedef enum { HX_YAML_TEXT, HX_YAML_MAP, HX_YAML_LIST } hx_yaml_kind;

typedef struct hx_yaml {
    hx_yaml_kind kind;
    hx_slice text;                       /* of HX_YAML_TEXT; NULs and other control bytes are possible, by escapes */
    bool is_null;                        /* nothing was written, or ~ or null without quotes */
    bool refused;                        /* reported already: neither it nor what it is the key of needs a look */
    uint32_t line;                       /* from 1 */
    uint32_t column;                     /* from 1, in characters */
    struct hx_yaml *key;                 /* the key that this is the value of; NULL in a list */
    struct hx_yaml *first, *last, *next; /* of a map (the values) or a list */
    size_t count;
} hx_yaml;

/* The tree, in problems->arena, or NULL for a text that says nothing (or nothing that can be read). *whole is false
 * when something was so wrong that the rest could not be read. */
hx_yaml *hx_yaml_read(hx_slice text, hx_problems *problems, bool *whole) HX_MUST_USE;
/* The value of that key; NULL when it is missing, or `map` is NULL or not a map. */
hx_yaml *hx_yaml_get(const hx_yaml *map, const char *key);

#endif
