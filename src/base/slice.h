/* SPDX-License-Identifier: Apache-2.0 */
/* A view of bytes that someone else owns. Everything that comes from the wire is a slice: it may hold any byte,
 * NUL too, and is never terminated. */
#ifndef HX_BASE_SLICE_H
#define HX_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HX_MUST_USE __attribute__((warn_unused_result))
#define HX_ALWAYS_INLINE __attribute__((always_inline)) static inline
/* For a large local of a hot function that is written before it is read: the compiler zeroes all others. */
#if defined(__has_attribute) && __has_attribute(uninitialized)
#define HX_UNINITIALIZED __attribute__((uninitialized))
#else
#define HX_UNINITIALIZED
#endif

typedef struct {
    const char *ptr;
    size_t len;
} hx_slice;

#define HX_LIT(s) ((hx_slice){(s), sizeof(s) - 1})
#define HX_EMPTY ((hx_slice){"", 0})
/* For printf: printf("%.*s", HX_FMT(slice)) */
#define HX_FMT(s) (int)(s).len, (s).ptr

hx_slice hx_slice_of(const char *terminated);
bool hx_slice_eq(hx_slice a, hx_slice b);
/* Ignores the case of ASCII letters only, as HTTP does for field names and tokens. */
bool hx_slice_eq_nocase(hx_slice a, hx_slice b);
bool hx_slice_starts(hx_slice s, hx_slice prefix);
bool hx_slice_starts_nocase(hx_slice s, hx_slice prefix);
bool hx_slice_ends(hx_slice s, hx_slice suffix);
/* Without leading and trailing spaces and tabs. */
hx_slice hx_slice_trim(hx_slice s);
/* The part from byte `from` on; empty when that is past the end. */
hx_slice hx_slice_from(hx_slice s, size_t from);
hx_slice hx_slice_first(hx_slice s, size_t len);
/* The position of the first `byte`, or SIZE_MAX. */
size_t hx_slice_find(hx_slice s, char byte);
/* Takes the part before the next `separator` off the front of *rest. False once nothing is left. */
bool hx_slice_next(hx_slice *rest, char separator, hx_slice *part);
int hx_slice_compare(hx_slice a, hx_slice b);
/* Reads decimal digits, without a sign; false on anything else or on overflow. */
bool hx_slice_to_u64(hx_slice s, uint64_t *out) HX_MUST_USE;
bool hx_slice_is_token(hx_slice s); /* RFC 9110 token, at least one byte */

char hx_lower(char c);

#endif
