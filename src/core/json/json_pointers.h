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

/* The pointers of `above`, which have led `depth` steps down, that go on through a member, or through an item of an
 * array. *ends gets those that end there. `name` is unescaped. */
uint64_t hx_pointers_to_member(const hx_pointers *pointers, uint64_t above, size_t depth, hx_slice name,
                               uint64_t *ends);
uint64_t hx_pointers_to_item(const hx_pointers *pointers, uint64_t above, size_t depth, uint64_t item, uint64_t *ends);

/* These avoid most calls of the two above, since a body may have many members. No pointer goes through a name none of
 * whose bits is in the filter. The next item is the first from `from` on that one goes through; UINT64_MAX: none. */
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
