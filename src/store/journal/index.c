/* SPDX-License-Identifier: Apache-2.0 */
/* An entry is five words; entries are in chunks that never move, and are found through small tables:
 *
 *     hash of the operation -- first bits --> directory --> table of 1,024 slots: a byte of the hash, and a reference
 *
 * A full table is split in two (extendible hashing), so growing never stops the writer for longer than a table takes.
 * Tables and directories that a reader may hold are retired, not freed.
 *
 *     word 0, 1  operation
 *     word 2     segment 28 bits, unit 28, size class 4, entombed 1, state 3; 0: free, BUSY: being changed
 *     word 3     epoch 48, rule 16
 *     word 4     until 32, changed 24, principal 8; of a processing operation: the lease in ms
 *
 * Word 2 is a sequence lock by itself, because no two versions of a record lie in the same place: a reader that sees
 * the same word 2 before and after reading the others has read what belongs together. */
#include "store/journal/index.h"

#include "base/check.h"
#include "base/memory/huge_pages.h"
#include "base/rand.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 1024u
#define SLOTS_USED_MAX 896u
#define CHUNK_BITS 12u
#define CHUNK_ENTRIES (1u << CHUNK_BITS)
#define CHUNKS_MAX (1u << 16)
#define BUSY 1u
#define CLASS_BYTES_FIRST 512u

typedef struct {
    _Atomic uint64_t word[5];
} entry;

typedef struct table {
    struct table *next_free;
    hx_index *owner;
    unsigned depth; /* number of leading bits of the hash that all of its operations share */
    unsigned used;  /* slots that are or were in use */
    unsigned count;
    _Atomic uint8_t tags[SLOTS];  /* 0: never used */
    _Atomic uint32_t refs[SLOTS]; /* entry number + 1; 0: removed */
} table;

typedef struct {
    unsigned depth;
    _Atomic(table *) tables[];
} directory;

struct hx_index {
    hx_reclaim *readers;
    _Atomic(directory *) directory;
    uint64_t seed;
    uint32_t used;       /* number of entries that were ever in use */
    uint32_t free_first; /* first of the free entries: number + 1; the next one is in its word 3 */
    size_t count;
    hx_huge memory;     /* of tables and chunks: every lookup reads one of each, at random places */
    table *free_tables; /* tables that were split and that no reader can hold any more */
    _Atomic(entry *) chunks[CHUNKS_MAX];
};

_Static_assert(SLOTS == HX_INDEX_PART_MAX, "a part is a table");
_Static_assert(sizeof(entry) == 40, "ten million entries fit in 400 MB");

uint8_t hx_size_class(uint64_t bytes)
{
    uint8_t c = 0;
    while (c < 15 && hx_class_bytes(c) < bytes) c++;
    return c;
}

uint64_t hx_class_bytes(uint8_t size_class)
{
    return (uint64_t)CLASS_BYTES_FIRST << size_class;
}

void hx_index_pack(const hx_index_entry *e, uint64_t words[3])
{
    HX_CHECK(e->segment < 1u << 28 && e->unit < 1u << 28 && e->epoch <= HX_EPOCH_MAX);
    words[0] = (uint64_t)e->segment << 36 | (uint64_t)e->unit << 8 | (uint64_t)e->size_class << 4 |
               (uint64_t)e->entombed << 3 | (uint64_t)e->state;
    words[1] = e->epoch << 16 | e->rule;
    words[2] = (uint64_t)e->until_s << 32 | (uint64_t)(e->changed_min & 0xffffff) << 8 | e->principal;
    if (e->state == HX_PROCESSING) words[2] = (uint64_t)e->lease_until;
}

void hx_index_unpack(const uint64_t words[3], hx_index_entry *e)
{
    e->segment = (uint32_t)(words[0] >> 36);
    e->unit = (uint32_t)(words[0] >> 8) & 0xfffffff;
    e->size_class = (uint8_t)(words[0] >> 4 & 15);
    e->entombed = words[0] >> 3 & 1;
    e->state = (hx_state)(words[0] & 7);
    e->epoch = words[1] >> 16;
    e->rule = (uint16_t)words[1];
    bool leased = e->state == HX_PROCESSING;
    e->lease_until = leased ? (hx_ms)words[2] : 0;
    e->until_s = leased ? HX_UNTIL_NEVER : (uint32_t)(words[2] >> 32);
    e->changed_min = leased ? 0 : (uint32_t)(words[2] >> 8) & 0xffffff;
    e->principal = leased ? 0 : (uint8_t)words[2];
}

static uint64_t hash_op(uint64_t seed, const hx_op *op)
{
    uint64_t a, b;
    memcpy(&a, op->bytes, 8);
    memcpy(&b, op->bytes + 8, 8);
    __uint128_t product = (__uint128_t)(a ^ seed) * (b ^ UINT64_C(0xd6e8feb86659fd93));
    uint64_t h = ((uint64_t)product ^ (uint64_t)(product >> 64)) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static uint8_t tag_of(uint64_t hash)
{
    uint8_t tag = (uint8_t)(hash >> 10);
    return tag ? tag : 1;
}

static size_t place_in(const directory *d, uint64_t hash)
{
    return d->depth ? hash >> (64 - d->depth) : 0;
}

static table *new_table(hx_index *x, unsigned depth)
{
    table *t = x->free_tables;
    if (t) {
        x->free_tables = t->next_free;
        memset(t, 0, sizeof *t);
    } else {
        t = hx_huge_take(&x->memory, sizeof *t);
        if (!t) hx_fatal(HX_EXIT_BUG, "out of memory for the index");
    }
    t->owner = x;
    t->depth = depth;
    return t;
}

static void give_back_table(void *memory)
{
    table *t = memory;
    t->next_free = t->owner->free_tables;
    t->owner->free_tables = t;
}

static directory *new_directory(unsigned depth)
{
    HX_CHECK(depth < 32);
    directory *d = malloc(sizeof *d + ((size_t)1 << depth) * sizeof d->tables[0]);
    if (!d) hx_fatal(HX_EXIT_BUG, "out of memory for the index");
    d->depth = depth;
    return d;
}

hx_index *hx_index_new(hx_reclaim *readers, size_t expected)
{
    hx_index *x = calloc(1, sizeof *x);
    if (!x) hx_fatal(HX_EXIT_BUG, "out of memory for the index");
    x->readers = readers;
    x->seed = hx_rand_u64();
    unsigned depth = 0;
    while ((expected >> depth) > SLOTS_USED_MAX * 7 / 8) depth++;
    directory *d = new_directory(depth);
    for (size_t i = 0; i < (size_t)1 << depth; i++) atomic_init(&d->tables[i], new_table(x, depth));
    atomic_init(&x->directory, d);
    return x;
}

void hx_index_free(hx_index **owned)
{
    hx_index *x = *owned;
    if (!x) return;
    free(atomic_load(&x->directory));
    hx_huge_free(&x->memory);
    free(x);
    *owned = NULL;
}

static entry *entry_at(const hx_index *x, uint32_t number)
{
    entry *chunk = atomic_load_explicit(&x->chunks[number >> CHUNK_BITS], memory_order_acquire);
    return &chunk[number & (CHUNK_ENTRIES - 1)];
}

/* Reads an entry in one piece, waiting while it is being changed. False: it is free. */
static bool snapshot(const entry *e, hx_index_entry *out)
{
    for (;;) {
        uint64_t words[3] = {atomic_load_explicit(&e->word[2], memory_order_acquire)};
        if (words[0] == BUSY) continue;
        if (words[0] == 0) return false;
        uint64_t op[2] = {atomic_load_explicit(&e->word[0], memory_order_acquire),
                          atomic_load_explicit(&e->word[1], memory_order_acquire)};
        words[1] = atomic_load_explicit(&e->word[3], memory_order_acquire);
        words[2] = atomic_load_explicit(&e->word[4], memory_order_acquire);
        if (atomic_load_explicit(&e->word[2], memory_order_relaxed) != words[0]) continue;
        memcpy(out->op.bytes, op, sizeof op);
        hx_index_unpack(words, out);
        return true;
    }
}

static bool holds(const entry *e, const hx_op *op)
{
    uint64_t mine[2];
    memcpy(mine, op->bytes, sizeof mine);
    return atomic_load_explicit(&e->word[0], memory_order_relaxed) == mine[0] &&
           atomic_load_explicit(&e->word[1], memory_order_relaxed) == mine[1];
}

bool hx_index_find(const hx_index *x, const hx_op *op, hx_index_entry *out)
{
    HX_CHECK(hx_reclaim_is_entered(x->readers));
    return hx_index_get(x, op, out);
}

bool hx_index_get(const hx_index *x, const hx_op *op, hx_index_entry *out)
{
    uint64_t hash = hash_op(x->seed, op);
    uint8_t tag = tag_of(hash);
    const directory *d = atomic_load(&x->directory);
    const table *t = atomic_load(&d->tables[place_in(d, hash)]);
    for (size_t i = hash & (SLOTS - 1);; i = (i + 1) & (SLOTS - 1)) {
        uint8_t seen = atomic_load_explicit(&t->tags[i], memory_order_acquire);
        if (seen == 0) return false;
        if (seen != tag) continue;
        uint32_t ref = atomic_load_explicit(&t->refs[i], memory_order_acquire);
        if (ref == 0) continue;
        const entry *e = entry_at(x, ref - 1);
        if (holds(e, op) && snapshot(e, out) && hx_op_eq(&out->op, op)) return true;
    }
}

static int by_place(const void *a, const void *b)
{
    const hx_index_placed *one = a, *other = b;
    return one->place < other->place ? -1 : one->place > other->place;
}

/* A table holds all operations whose hashes begin with the same bits, so tables are parts in the order of hashes. A
 * table may be split while it is read; entries that have not changed are still found in it. */
size_t hx_index_part(const hx_index *x, uint64_t from, hx_index_placed out[HX_INDEX_PART_MAX], uint64_t *next)
{
    HX_CHECK(hx_reclaim_is_entered(x->readers));
    const directory *d = atomic_load(&x->directory);
    const table *t = atomic_load(&d->tables[place_in(d, from)]);
    uint64_t width = t->depth ? UINT64_C(1) << (64 - t->depth) : 0;
    uint64_t last = t->depth ? (from & ~(width - 1)) + (width - 1) : UINT64_MAX;
    size_t count = 0, kept = 0;
    for (size_t i = 0; i < SLOTS; i++) {
        uint32_t ref = atomic_load_explicit(&t->refs[i], memory_order_acquire);
        if (ref == 0 || !snapshot(entry_at(x, ref - 1), &out[count].entry)) continue;
        out[count].place = hash_op(x->seed, &out[count].entry.op);
        if (out[count].place >= from && out[count].place <= last) count++; /* else reused for another operation */
    }
    qsort(out, count, sizeof *out, by_place);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || !hx_op_eq(&out[i].entry.op, &out[kept - 1].entry.op)) out[kept++] = out[i];
    *next = last + 1;
    return kept;
}

void hx_index_prefetch(const hx_index *x, const hx_op *op)
{
    uint64_t hash = hash_op(x->seed, op);
    const directory *d = atomic_load_explicit(&x->directory, memory_order_relaxed);
    const table *t = atomic_load_explicit(&d->tables[place_in(d, hash)], memory_order_relaxed);
    size_t i = hash & (SLOTS - 1);
    __builtin_prefetch(t, 1);
    __builtin_prefetch(&t->tags[i], 1);
    __builtin_prefetch(&t->refs[i], 1);
}

/* Finds the slot that holds `op`. NULL: none does. Only for the writer. */
static _Atomic uint32_t *slot_of(const hx_index *x, uint64_t hash, const hx_op *op)
{
    const directory *d = atomic_load_explicit(&x->directory, memory_order_relaxed);
    table *t = atomic_load_explicit(&d->tables[place_in(d, hash)], memory_order_relaxed);
    uint8_t tag = tag_of(hash);
    for (size_t i = hash & (SLOTS - 1);; i = (i + 1) & (SLOTS - 1)) {
        uint8_t seen = atomic_load_explicit(&t->tags[i], memory_order_relaxed);
        if (seen == 0) return NULL;
        uint32_t ref = seen == tag ? atomic_load_explicit(&t->refs[i], memory_order_relaxed) : 0;
        if (ref && holds(entry_at(x, ref - 1), op)) return &t->refs[i];
    }
}

static void add_to(table *t, uint64_t hash, uint32_t ref)
{
    size_t i = hash & (SLOTS - 1);
    while (atomic_load_explicit(&t->tags[i], memory_order_relaxed) != 0 &&
           atomic_load_explicit(&t->refs[i], memory_order_relaxed) != 0)
        i = (i + 1) & (SLOTS - 1);
    if (atomic_load_explicit(&t->tags[i], memory_order_relaxed) == 0) t->used++;
    t->count++;
    atomic_store_explicit(&t->refs[i], ref, memory_order_release);
    atomic_store_explicit(&t->tags[i], tag_of(hash), memory_order_release);
}

static directory *double_directory(hx_index *x, directory *d)
{
    directory *wider = new_directory(d->depth + 1);
    for (size_t i = 0; i < (size_t)1 << d->depth; i++) {
        table *t = atomic_load_explicit(&d->tables[i], memory_order_relaxed);
        atomic_init(&wider->tables[2 * i], t);
        atomic_init(&wider->tables[2 * i + 1], t);
    }
    atomic_store(&x->directory, wider);
    hx_reclaim_retire(x->readers, d, free);
    return wider;
}

/* Makes space in the table of `hash`: splits it in two, or copies it without its removed slots. */
static void make_room(hx_index *x, uint64_t hash)
{
    directory *d = atomic_load_explicit(&x->directory, memory_order_relaxed);
    table *full = atomic_load_explicit(&d->tables[place_in(d, hash)], memory_order_relaxed);
    unsigned depth = full->count > SLOTS_USED_MAX / 2 ? full->depth + 1 : full->depth;
    if (depth > d->depth) d = double_directory(x, d);
    table *half[2] = {new_table(x, depth), depth > full->depth ? new_table(x, depth) : NULL};
    for (size_t i = 0; i < SLOTS; i++) {
        uint32_t ref = atomic_load_explicit(&full->refs[i], memory_order_relaxed);
        if (!ref) continue;
        const entry *e = entry_at(x, ref - 1);
        uint64_t words[2] = {atomic_load_explicit(&e->word[0], memory_order_relaxed),
                             atomic_load_explicit(&e->word[1], memory_order_relaxed)};
        hx_op op;
        memcpy(op.bytes, words, sizeof words);
        uint64_t h = hash_op(x->seed, &op);
        add_to(half[half[1] ? h >> (64 - depth) & 1 : 0], h, ref);
    }
    size_t span = (size_t)1 << (d->depth - full->depth), first = place_in(d, hash) / span * span;
    for (size_t i = 0; i < span; i++) atomic_store(&d->tables[first + i], half[half[1] && i >= span / 2 ? 1 : 0]);
    hx_reclaim_retire(x->readers, full, give_back_table);
}

static uint32_t take_entry(hx_index *x)
{
    if (x->free_first) {
        uint32_t number = x->free_first - 1;
        x->free_first = (uint32_t)atomic_load_explicit(&entry_at(x, number)->word[3], memory_order_relaxed);
        return number;
    }
    uint32_t number = x->used, chunk = number >> CHUNK_BITS;
    HX_CHECK(chunk < CHUNKS_MAX);
    if (!atomic_load_explicit(&x->chunks[chunk], memory_order_relaxed)) {
        entry *fresh = hx_huge_take(&x->memory, CHUNK_ENTRIES * sizeof *fresh);
        if (!fresh) hx_fatal(HX_EXIT_BUG, "out of memory for the index");
        atomic_store_explicit(&x->chunks[chunk], fresh, memory_order_release);
    }
    x->used++;
    return number;
}

static void write_entry(entry *e, const hx_index_entry *from)
{
    uint64_t words[3];
    hx_index_pack(from, words);
    atomic_store_explicit(&e->word[3], words[1], memory_order_release);
    atomic_store_explicit(&e->word[4], words[2], memory_order_release);
    atomic_store_explicit(&e->word[2], words[0], memory_order_release);
}

void hx_index_put(hx_index *x, const hx_index_entry *from, hx_index_entry *before)
{
    uint64_t hash = hash_op(x->seed, &from->op);
    const _Atomic uint32_t *slot = slot_of(x, hash, &from->op);
    before->state = HX_ABSENT;
    if (slot) {
        entry *e = entry_at(x, atomic_load_explicit(slot, memory_order_relaxed) - 1);
        (void)snapshot(e, before);
        atomic_store_explicit(&e->word[2], BUSY, memory_order_relaxed);
        write_entry(e, from);
        return;
    }
    directory *d = atomic_load_explicit(&x->directory, memory_order_relaxed);
    table *t = atomic_load_explicit(&d->tables[place_in(d, hash)], memory_order_relaxed);
    if (t->used >= SLOTS_USED_MAX) {
        make_room(x, hash);
        d = atomic_load_explicit(&x->directory, memory_order_relaxed);
        t = atomic_load_explicit(&d->tables[place_in(d, hash)], memory_order_relaxed);
    }
    uint32_t number = take_entry(x);
    entry *e = entry_at(x, number);
    uint64_t op[2];
    memcpy(op, from->op.bytes, sizeof op);
    atomic_store_explicit(&e->word[0], op[0], memory_order_release);
    atomic_store_explicit(&e->word[1], op[1], memory_order_release);
    write_entry(e, from);
    add_to(t, hash, number + 1);
    x->count++;
}

void hx_index_remove(hx_index *x, const hx_op *op, hx_index_entry *before)
{
    uint64_t hash = hash_op(x->seed, op);
    _Atomic uint32_t *slot = slot_of(x, hash, op);
    before->state = HX_ABSENT;
    if (!slot) return;
    uint32_t number = atomic_load_explicit(slot, memory_order_relaxed) - 1;
    entry *e = entry_at(x, number);
    (void)snapshot(e, before);
    atomic_store_explicit(slot, 0, memory_order_release);
    const directory *d = atomic_load_explicit(&x->directory, memory_order_relaxed);
    atomic_load_explicit(&d->tables[place_in(d, hash)], memory_order_relaxed)->count--;
    atomic_store_explicit(&e->word[2], 0, memory_order_relaxed);
    atomic_store_explicit(&e->word[3], x->free_first, memory_order_release);
    x->free_first = number + 1;
    x->count--;
}

void hx_index_renew(hx_index *x, const hx_op *op, hx_ms lease_until)
{
    const _Atomic uint32_t *slot = slot_of(x, hash_op(x->seed, op), op);
    if (!slot) return; /* the claim is not durable yet, and brings the lease when it is */
    entry *e = entry_at(x, atomic_load_explicit(slot, memory_order_relaxed) - 1);
    if ((atomic_load_explicit(&e->word[2], memory_order_relaxed) & 7) != HX_PROCESSING) return;
    atomic_store_explicit(&e->word[4], (uint64_t)lease_until, memory_order_release);
}

size_t hx_index_count(const hx_index *x)
{
    return x->count;
}

bool hx_index_next(const hx_index *x, uint32_t *cursor, uint32_t *steps, hx_index_entry *out)
{
    while (*cursor<x->used && * steps> 0) {
        --*steps;
        if (snapshot(entry_at(x, (*cursor)++), out)) return true;
    }
    return false;
}

bool hx_index_at_end(const hx_index *x, uint32_t cursor)
{
    return cursor >= x->used;
}
