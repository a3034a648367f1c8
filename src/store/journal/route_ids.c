/* SPDX-License-Identifier: Apache-2.0 */
/* A row is written before the size says that it is there, and never changes then; so readers need no lock. */
#include "store/journal/route_ids.h"

#include "base/check.h"
#include "base/crc32c.h"
#include "base/memory/map.h"
#include "core/operation/policy.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES_MAX (sizeof(uint32_t) + 255u)

typedef struct {
    char *key; /* version, then the name or the bucket; NULL for 0 */
    hx_route_ids_row row;
    _Atomic uint64_t live;
} line;

struct hx_route_ids {
    hx_map *numbers;
    _Atomic uint32_t size;
    uint16_t last; /* the one asked for last */
    line lines[HX_ROUTE_IDS_ROWS];
};

hx_route_ids *hx_route_ids_new(void)
{
    hx_route_ids *book = calloc(1, sizeof *book); /* pages that no row needs are never touched */
    if (!book) hx_fatal(HX_EXIT_BUG, "out of memory for the index");
    book->numbers = hx_map_new();
    atomic_init(&book->size, 1);
    return book;
}

void hx_route_ids_free(hx_route_ids **owned)
{
    hx_route_ids *book = *owned;
    if (!book) return;
    for (uint32_t i = 1; i < atomic_load(&book->size); i++) free(book->lines[i].key);
    hx_map_free(&book->numbers);
    free(book);
    *owned = NULL;
}

static uint16_t bucket_of(hx_slice route)
{
    return (uint16_t)(hx_crc32c(0, route) % HX_ROUTE_IDS_BUCKETS);
}

hx_route_ids_row hx_route_ids_row_of(hx_slice route, uint32_t version)
{
    if (version & HX_RULE_NAMED) return (hx_route_ids_row){.name = route, .version = version};
    return (hx_route_ids_row){.bucket = bucket_of(route), .version = version & HX_RULE_IDENTITY};
}

static bool same_row(const hx_route_ids_row *a, const hx_route_ids_row *b)
{
    return a->version == b->version && a->bucket == b->bucket && hx_slice_eq(a->name, b->name);
}

static size_t write_key(const hx_route_ids_row *row, char key[KEY_BYTES_MAX])
{
    HX_CHECK(row->name.len <= KEY_BYTES_MAX - sizeof row->version);
    memcpy(key, &row->version, sizeof row->version);
    const void *rest = row->version & HX_RULE_NAMED ? (const void *)row->name.ptr : &row->bucket;
    size_t len = row->version & HX_RULE_NAMED ? row->name.len : sizeof row->bucket;
    if (len > 0) memcpy(key + sizeof row->version, rest, len);
    return sizeof row->version + len;
}

uint16_t hx_route_ids_number(hx_route_ids *book, const hx_route_ids_row *row)
{
    if (book->last > 0 && same_row(row, &book->lines[book->last].row)) return book->last;
    char key[KEY_BYTES_MAX];
    size_t len = write_key(row, key);
    const void *known = hx_map_get(book->numbers, (hx_slice){key, len});
    if (known) return book->last = (uint16_t)(uintptr_t)known;
    uint32_t number = atomic_load_explicit(&book->size, memory_order_relaxed);
    if (number == HX_ROUTE_IDS_ROWS) return 0;
    line *to = &book->lines[number];
    to->key = malloc(len);
    if (!to->key) hx_fatal(HX_EXIT_BUG, "out of memory for the index");
    memcpy(to->key, key, len);
    to->row = *row;
    if (row->name.len > 0) to->row.name.ptr = to->key + sizeof row->version;
    hx_map_put(book->numbers, (hx_slice){to->key, len}, (void *)(uintptr_t)number); /* NOLINT */
    atomic_store_explicit(&book->size, number + 1, memory_order_release);
    return book->last = (uint16_t)number;
}

void hx_route_ids_count(hx_route_ids *book, uint16_t number, int by)
{
    HX_CHECK(number < atomic_load_explicit(&book->size, memory_order_relaxed));
    _Atomic uint64_t *live = &book->lines[number].live;
    uint64_t before = atomic_load_explicit(live, memory_order_relaxed);
    HX_CHECK(by > 0 || before > 0);
    atomic_store_explicit(live, before + (uint64_t)(int64_t)by, memory_order_relaxed);
}

uint32_t hx_route_ids_size(const hx_route_ids *book)
{
    return atomic_load_explicit(&book->size, memory_order_acquire);
}

hx_route_ids_row hx_route_ids_row_at(const hx_route_ids *book, uint16_t number)
{
    return number < hx_route_ids_size(book) ? book->lines[number].row : (hx_route_ids_row){0};
}

bool hx_route_ids_may_be(const hx_route_ids *book, uint16_t number, hx_slice route)
{
    if (number == 0) return true;
    hx_route_ids_row row = hx_route_ids_row_at(book, number);
    return row.version & HX_RULE_NAMED ? hx_slice_eq(row.name, route) : row.bucket == bucket_of(route);
}

void hx_route_ids_mark(hx_route_ids_parts *parts, hx_slice path)
{
    uint16_t bucket = bucket_of(path);
    parts->bits[bucket / 64] |= UINT64_C(1) << bucket % 64;
}

bool hx_route_ids_may_be_in(const hx_route_ids *book, uint16_t number, const hx_route_ids_parts *parts)
{
    if (number == 0) return true;
    hx_route_ids_row row = hx_route_ids_row_at(book, number);
    return !(row.version & HX_RULE_NAMED) && (parts->bits[row.bucket / 64] >> row.bucket % 64 & 1) != 0;
}

static uint64_t live_at(const hx_route_ids *book, uint32_t number)
{
    return atomic_load_explicit(&book->lines[number].live, memory_order_relaxed);
}

/* Those without a name first: they are added up, so they are looked for among few. */
void hx_route_ids_report(const hx_route_ids *book, hx_arena *arena, hx_store_rules *out)
{
    uint32_t size = hx_route_ids_size(book);
    *out = (hx_store_rules){.others = live_at(book, 0)};
    for (uint32_t i = 1; i < size; i++) {
        const hx_route_ids_row *row = &book->lines[i].row;
        uint64_t live = row->version & HX_RULE_NAMED ? 0 : live_at(book, i);
        if (live > 0) hx_store_rules_add(out, arena, HX_EMPTY, row->version, live);
    }
    for (uint32_t i = 1; i < size; i++) {
        const hx_route_ids_row *row = &book->lines[i].row;
        uint64_t live = row->version & HX_RULE_NAMED ? live_at(book, i) : 0;
        if (live > 0) hx_store_rules_add(out, arena, row->name, row->version, live);
    }
}

uint64_t hx_route_ids_live_at_most(const hx_route_ids *book, hx_slice route)
{
    uint32_t size = hx_route_ids_size(book);
    uint16_t bucket = bucket_of(route);
    uint64_t most = live_at(book, 0);
    for (uint32_t i = 1; i < size; i++) {
        const hx_route_ids_row *row = &book->lines[i].row;
        if (!(row->version & HX_RULE_NAMED) && row->bucket == bucket) most += live_at(book, i);
    }
    return most;
}
