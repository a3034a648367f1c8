/* SPDX-License-Identifier: Apache-2.0 */
/* Open addressing with linear probing; removal shifts the run back, so there are no tombstones. */
#include "base/memory/map.h"

#include "base/check.h"
#include "base/rand.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS_FIRST 16u

typedef struct {
    hx_slice key;
    uint64_t hash;
    void *value; /* NULL: empty */
} slot;

struct hx_map {
    slot *slots;
    size_t mask;
    size_t count;
    uint64_t seed;
};

/* Multiplies and folds, 8 bytes at a time, from a secret seed. */
static uint64_t hash_bytes(uint64_t seed, hx_slice key)
{
    uint64_t h = seed ^ (key.len * UINT64_C(0x9e3779b97f4a7c15));
    for (size_t i = 0; i < key.len; i += 8) {
        uint64_t word = 0;
        memcpy(&word, key.ptr + i, key.len - i < 8 ? key.len - i : 8);
        __uint128_t product = (__uint128_t)(h ^ word) * UINT64_C(0xd6e8feb86659fd93);
        h = (uint64_t)product ^ (uint64_t)(product >> 64) ^ seed;
    }
    return h ^ (h >> 29);
}

static slot *new_slots(size_t count)
{
    slot *slots = calloc(count, sizeof *slots);
    if (!slots) hx_fatal(HX_EXIT_BUG, "out of memory (%zu map slots)", count);
    return slots;
}

hx_map *hx_map_new(void)
{
    hx_map *map = calloc(1, sizeof *map);
    if (!map) hx_fatal(HX_EXIT_BUG, "out of memory");
    map->slots = new_slots(SLOTS_FIRST);
    map->mask = SLOTS_FIRST - 1;
    hx_rand_bytes(&map->seed, sizeof map->seed);
    return map;
}

void hx_map_free(hx_map **owned)
{
    hx_map *map = *owned;
    if (!map) return;
    free(map->slots);
    free(map);
    *owned = NULL;
}

static size_t find(const hx_map *map, uint64_t hash, hx_slice key)
{
    size_t i = hash & map->mask;
    while (map->slots[i].value && !(map->slots[i].hash == hash && hx_slice_eq(map->slots[i].key, key)))
        i = (i + 1) & map->mask;
    return i;
}

void *hx_map_get(const hx_map *map, hx_slice key)
{
    return map->slots[find(map, hash_bytes(map->seed, key), key)].value;
}

static void grow(hx_map *map)
{
    slot *old = map->slots;
    size_t old_count = map->mask + 1;
    map->slots = new_slots(old_count * 2);
    map->mask = old_count * 2 - 1;
    for (size_t i = 0; i < old_count; i++)
        if (old[i].value) map->slots[find(map, old[i].hash, old[i].key)] = old[i];
    free(old);
}

void *hx_map_put(hx_map *map, hx_slice key, void *value)
{
    HX_CHECK(value != NULL);
    if ((map->count + 1) * 4 > (map->mask + 1) * 3) grow(map);
    uint64_t hash = hash_bytes(map->seed, key);
    slot *s = &map->slots[find(map, hash, key)];
    void *before = s->value;
    *s = (slot){.key = key, .hash = hash, .value = value};
    if (!before) map->count++;
    return before;
}

void *hx_map_remove(hx_map *map, hx_slice key)
{
    size_t hole = find(map, hash_bytes(map->seed, key), key);
    void *before = map->slots[hole].value;
    if (!before) return NULL;
    map->count--;
    for (size_t i = (hole + 1) & map->mask; map->slots[i].value; i = (i + 1) & map->mask) {
        size_t home = map->slots[i].hash & map->mask;
        if (((i - home) & map->mask) < ((i - hole) & map->mask)) continue; /* its home slot still finds it here */
        map->slots[hole] = map->slots[i];
        hole = i;
    }
    map->slots[hole] = (slot){0};
    return before;
}

size_t hx_map_count(const hx_map *map)
{
    return map->count;
}

bool hx_map_next(const hx_map *map, size_t *cursor, hx_slice *key, void **value)
{
    for (; *cursor <= map->mask; (*cursor)++) {
        const slot *s = &map->slots[*cursor];
        if (!s->value) continue;
        *key = s->key;
        *value = s->value;
        (*cursor)++;
        return true;
    }
    return false;
}
