/* SPDX-License-Identifier: Apache-2.0 */
/* Several JSON pointers (RFC 6901) followed at once through one text. A set of them is a mask, one bit each; a step
 * down keeps those that lead that way, so that off their ways nothing is compared at all. */
#ifndef HX_CORE_JSON_JSON_POINTERS_H
#define HX_CORE_JSON_JSON_POINTERS_H

#include "base/slice.h"

#define HX_POINTERS_MAX 64u

typedef struct {
    const hx_slice *items; /* each passes hx_json_is_pointer */
    size_t count;          /* up to HX_POINTERS_MAX */
} hx_pointers;

/* Those that lead below the root, and those that are the root itself. */
uint64_t hx_pointers_below_root(const hx_pointers *pointers);
uint64_t hx_pointers_root(const hx_pointers *pointers);

/* Of the pointers in `above`, which have led `depth` steps down, those that lead through a member, or an array's item,
 * and further. Those that end there are left in *ends. A name is unescaped. */
uint64_t hx_pointers_to_member(const hx_pointers *pointers, uint64_t above, size_t depth, hx_slice name,
                               uint64_t *ends);
uint64_t hx_pointers_to_item(const hx_pointers *pointers, uint64_t above, size_t depth, uint64_t item, uint64_t *ends);

/* What spares those two most of their calls, for a body may have many members. A name none of whose bits is in the
 * filter is on no way; the first item from `from` on that is on one, UINT64_MAX: none. */
uint64_t hx_pointers_filter(const hx_pointers *pointers, uint64_t above, size_t depth);
uint64_t hx_pointers_next_item(const hx_pointers *pointers, uint64_t above, size_t depth, uint64_t from);

static inline uint64_t hx_pointers_bit(size_t len, char first, char last)
{
    return UINT64_C(1) << ((len * 29 + (unsigned char)first * 13u + (unsigned char)last * 7u) & 63);
}

static inline uint64_t hx_pointers_bit_of(hx_slice name)
{
    return name.len == 0 ? hx_pointers_bit(0, 0, 0) : hx_pointers_bit(name.len, name.ptr[0], name.ptr[name.len - 1]);
}

/* Takes one bit off a mask that isn't 0, and says which. */
static inline size_t hx_pointers_take(uint64_t *mask)
{
    size_t which = (size_t)__builtin_ctzll(*mask);
    *mask &= *mask - 1;
    return which;
}

#endif
