/* SPDX-License-Identifier: Apache-2.0 */
#include "core/json/json_pointers.h"

#include "base/check.h"

/* The token behind `depth` others; there is one, for the pointer has led that far and no further. */
static hx_slice token_of(hx_slice pointer, size_t depth, bool *last)
{
    hx_slice rest = hx_slice_from(pointer, 1), token = HX_EMPTY;
    for (size_t i = 0; i <= depth; i++) {
        bool there = hx_slice_next(&rest, '/', &token);
        HX_CHECK(there);
    }
    *last = rest.ptr == NULL;
    return token;
}

/* ~1 is / and ~0 is ~. */
static bool is_name(hx_slice token, hx_slice name)
{
    size_t at = 0;
    if (token.len < name.len) return false;
    for (size_t i = 0; i < token.len; i++, at++) {
        char wanted = token.ptr[i];
        if (wanted == '~' && i + 1 < token.len) wanted = token.ptr[++i] == '1' ? '/' : '~';
        if (at == name.len || name.ptr[at] != wanted) return false;
    }
    return at == name.len;
}

static bool is_index(hx_slice token, uint64_t *index)
{
    return hx_slice_to_u64(token, index) && (token.len == 1 || token.ptr[0] != '0');
}

/* hx_pointers_bit_of the name that a token encodes. */
static uint64_t bit_of_token(hx_slice token)
{
    if (token.len == 0) return hx_pointers_bit(0, 0, 0);
    size_t len = token.len;
    for (size_t i = 0; i < token.len; i++) len -= token.ptr[i] == '~';
    char first = token.ptr[0], last = token.ptr[token.len - 1];
    if (token.len > 1 && first == '~') first = token.ptr[1] == '1' ? '/' : '~';
    if (token.len > 1 && token.ptr[token.len - 2] == '~') last = last == '1' ? '/' : '~';
    return hx_pointers_bit(len, first, last);
}

uint64_t hx_pointers_filter(const hx_pointers *pointers, uint64_t above, size_t depth)
{
    uint64_t filter = 0;
    while (above != 0) {
        bool last;
        filter |= bit_of_token(token_of(pointers->items[hx_pointers_take(&above)], depth, &last));
    }
    return filter;
}

uint64_t hx_pointers_next_item(const hx_pointers *pointers, uint64_t above, size_t depth, uint64_t from)
{
    uint64_t next = UINT64_MAX;
    while (above != 0) {
        bool last;
        uint64_t index;
        if (is_index(token_of(pointers->items[hx_pointers_take(&above)], depth, &last), &index) && index >= from &&
            index < next)
            next = index;
    }
    return next;
}

uint64_t hx_pointers_root(const hx_pointers *pointers)
{
    uint64_t mask = 0;
    HX_CHECK(pointers->count <= HX_POINTERS_MAX);
    for (size_t i = 0; i < pointers->count; i++)
        if (pointers->items[i].len == 0) mask |= UINT64_C(1) << i;
    return mask;
}

uint64_t hx_pointers_below_root(const hx_pointers *pointers)
{
    uint64_t mask = 0;
    HX_CHECK(pointers->count <= HX_POINTERS_MAX);
    for (size_t i = 0; i < pointers->count; i++)
        if (pointers->items[i].len > 0) mask |= UINT64_C(1) << i;
    return mask;
}

uint64_t hx_pointers_to_member(const hx_pointers *pointers, uint64_t above, size_t depth, hx_slice name, uint64_t *ends)
{
    uint64_t further = 0;
    *ends = 0;
    while (above != 0) {
        bool last;
        size_t i = hx_pointers_take(&above);
        if (is_name(token_of(pointers->items[i], depth, &last), name)) *(last ? ends : &further) |= UINT64_C(1) << i;
    }
    return further;
}

uint64_t hx_pointers_to_item(const hx_pointers *pointers, uint64_t above, size_t depth, uint64_t item, uint64_t *ends)
{
    uint64_t further = 0;
    *ends = 0;
    while (above != 0) {
        bool last;
        uint64_t index;
        size_t i = hx_pointers_take(&above);
        if (is_index(token_of(pointers->items[i], depth, &last), &index) && index == item)
            *(last ? ends : &further) |= UINT64_C(1) << i;
    }
    return further;
}
