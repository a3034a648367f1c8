/* SPDX-License-Identifier: Apache-2.0 */
/* Canonical text is clean, its own canonical form, and found whole by the empty pointer; any bytes survive being
 * written as a literal and read again, but for what isn't UTF-8. */
#include "base/check.h"
#include "core/json/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_canonical(hx_slice text, hx_arena *arena)
{
    hx_buf once, twice;
    hx_slice value;
    hx_buf_init(&once, arena, HX_JSON_CANONICAL_BYTES(text.len));
    bool clean = hx_json_canonical(text, arena, &once);
    bool readable = hx_json_pointer(text, HX_EMPTY, &value);
    HX_CHECK(!clean || readable);
    if (!clean) {
        HX_CHECK(once.len == 0);
        return;
    }
    hx_slice canonical = hx_buf_slice(&once);
    hx_buf_init(&twice, arena, HX_JSON_CANONICAL_BYTES(canonical.len));
    bool again = hx_json_canonical(canonical, arena, &twice);
    HX_CHECK(again && hx_slice_eq(canonical, hx_buf_slice(&twice)));
    bool whole = hx_json_pointer(canonical, HX_EMPTY, &value);
    HX_CHECK(whole && hx_slice_eq(value, canonical));
}

static void check_literal(hx_slice bytes, hx_arena *arena)
{
    hx_buf literal, again;
    hx_slice decoded;
    hx_buf_init(&literal, arena, 6 * bytes.len + 2);
    bool fits = hx_json_escape(&literal, bytes);
    HX_CHECK(fits);
    bool clean = hx_json_string(hx_buf_slice(&literal), arena, &decoded);
    HX_CHECK(clean);
    hx_buf_init(&again, arena, literal.len);
    fits = hx_json_escape(&again, decoded);
    HX_CHECK(fits && hx_slice_eq(hx_buf_slice(&literal), hx_buf_slice(&again)));
}

/* The first line is a pointer into the rest. */
static void check_pointer(hx_slice input)
{
    hx_slice rest = input, pointer, value;
    if (!hx_slice_next(&rest, '\n', &pointer) || rest.ptr == NULL) return;
    if (!hx_json_pointer(rest, pointer, &value)) return;
    HX_CHECK(value.len > 0 && value.ptr >= rest.ptr && value.ptr + value.len <= rest.ptr + rest.len);
    HX_CHECK(hx_json_pointer(value, HX_EMPTY, &value));
    HX_CHECK(hx_json_is_pointer(pointer));
    bool is_scalar = value.ptr[0] != '{' && value.ptr[0] != '[' && value.ptr[0] != '"';
    bool is_it = hx_json_value_is(value, value); /* but for exponents that no program means */
    HX_CHECK(is_scalar ? is_it || value.len > 15 : !is_it);
    (void)hx_json_value_is(value, pointer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hx_arena arena = {0};
    hx_slice input = {(const char *)data, size};
    check_canonical(input, &arena);
    check_literal(input, &arena);
    check_pointer(input);
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}
