/* SPDX-License-Identifier: Apache-2.0 */
/* Where the newest record of each live operation lies, in 40 bytes an operation. One thread changes it (the journal's
 * writer); any thread reads it, without a lock, between hx_reclaim_enter and hx_reclaim_leave. */
#ifndef HX_STORE_JOURNAL_INDEX_H
#define HX_STORE_JOURNAL_INDEX_H

#include "core/operation/record.h"
#include "base/memory/epoch_reclaim.h"

#define HX_PLACE_UNIT 16u /* records begin at multiples of it */
#define HX_UNTIL_NEVER UINT32_MAX

typedef struct {
    hx_op op;
    hx_state state; /* HX_ABSENT: there is none */
    uint32_t segment;
    uint32_t unit; /* offset in the segment / HX_PLACE_UNIT */
    uint8_t size_class;
    uint64_t epoch;
    uint16_t rule;        /* route id */
    uint32_t until_s;     /* end of its lifetime, in seconds since 1970; unknown operations: HX_UNTIL_NEVER */
    bool entombed;        /* a tombstone follows the lifetime, until the time in the record */
    uint32_t changed_min; /* time of the last change: minutes since 1970, 24 bits */
    uint8_t principal;    /* the first byte of its MAC: a filter for searches */
    hx_ms lease_until;    /* processing operations only, instead of the three fields above */
} hx_index_entry;

static inline bool hx_entry_is_over(const hx_index_entry *entry, hx_ms now)
{
    return entry->until_s != HX_UNTIL_NEVER && now - hx_clock_held() >= (hx_ms)entry->until_s * HX_SECOND;
}

typedef struct hx_index hx_index;

hx_index *hx_index_new(hx_reclaim *readers, size_t expected);
/* After its readers: what they still hold is given back to it. */
void hx_index_free(hx_index **owned);

/* Any thread between hx_reclaim_enter and hx_reclaim_leave, which it checks. */
bool hx_index_find(const hx_index *index, const hx_op *op, hx_index_entry *out);
/* The same for the writer, which retires nothing while it looks. */
bool hx_index_get(const hx_index *index, const hx_op *op, hx_index_entry *out);

#define HX_INDEX_PART_MAX 1024u

typedef struct {
    uint64_t place; /* hash of the operation, constant while the index exists */
    hx_index_entry entry;
} hx_index_placed;

/* Any thread, as hx_index_find. The index in parts, in the order of places: all entries from place `from` on to the end
 * of that part, none twice. *next is where the following part begins, 0 after the last. What is put or removed
 * meanwhile may be missing. */
size_t hx_index_part(const hx_index *index, uint64_t from, hx_index_placed out[HX_INDEX_PART_MAX], uint64_t *next);

/* The writer only. Says that `op` will be looked up soon: with millions of operations that is mostly waiting for
 * memory, and a batch can wait for all of it at once. */
void hx_index_prefetch(const hx_index *index, const hx_op *op);
/* `before` gets the entry that was replaced (state HX_ABSENT: there was none). */
void hx_index_put(hx_index *index, const hx_index_entry *from, hx_index_entry *before);
void hx_index_remove(hx_index *index, const hx_op *op, hx_index_entry *before);
void hx_index_renew(hx_index *index, const hx_op *op, hx_ms lease_until);
size_t hx_index_count(const hx_index *index);
/* Walks all entries in the order of memory: *cursor from 0. Entries may be put and removed on the way; those that are
 * put may be missed. Looks at no more than *steps places, counting them down; false at the end or when out of steps. */
bool hx_index_next(const hx_index *index, uint32_t *cursor, uint32_t *steps, hx_index_entry *out);
bool hx_index_at_end(const hx_index *index, uint32_t cursor);

/* As the 24 bytes that follow the operation, in memory and in hint files. */
void hx_index_pack(const hx_index_entry *entry, uint64_t words[3]);
void hx_index_unpack(const uint64_t words[3], hx_index_entry *entry);
/* The class of a record of `bytes`, and the most that a record of that class has. */
uint8_t hx_size_class(uint64_t bytes);
uint64_t hx_class_bytes(uint8_t size_class);

#endif
