/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table from bytes to pointers. Keyed with a random seed, so that nobody outside can choose keys that collide.
 * The map does not copy keys: they live as long as their entry, usually inside the value. One thread at a time. */
#ifndef HX_BASE_MEMORY_MAP_H
#define HX_BASE_MEMORY_MAP_H

#include "base/slice.h"

typedef struct hx_map hx_map;

hx_map *hx_map_new(void);
void hx_map_free(hx_map **owned); /* the values are not the map's */
void *hx_map_get(const hx_map *map, hx_slice key);
/* Returns the value that stood there before, or NULL. */
void *hx_map_put(hx_map *map, hx_slice key, void *value);
void *hx_map_remove(hx_map *map, hx_slice key);
size_t hx_map_count(const hx_map *map);
/* Walks all entries in no order: start with *cursor = 0; false at the end. Not while putting or removing. */
bool hx_map_next(const hx_map *map, size_t *cursor, hx_slice *key, void **value);

#endif
