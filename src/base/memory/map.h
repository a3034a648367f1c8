/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table from bytes to pointers. Its hash has a random seed, so that clients can't choose keys that collide.
 * The map doesn't copy keys: they must live as long as their entry, usually inside the value. One thread at a time. */
#ifndef HX_BASE_MEMORY_MAP_H
#define HX_BASE_MEMORY_MAP_H

#include "base/slice.h"

typedef struct hx_map hx_map;

hx_map *hx_map_new(void);
void hx_map_free(hx_map **owned); /* the caller owns the values */
void *hx_map_get(const hx_map *map, hx_slice key);
/* Returns the value that it replaces, or NULL. */
void *hx_map_put(hx_map *map, hx_slice key, void *value);
void *hx_map_remove(hx_map *map, hx_slice key);
size_t hx_map_count(const hx_map *map);
/* Iterates over all entries, in no order: start with *cursor = 0; false at the end. Don't put or remove meanwhile. */
bool hx_map_next(const hx_map *map, size_t *cursor, hx_slice *key, void **value);

#endif
