/* SPDX-License-Identifier: Apache-2.0 */
/* A key that was taken keeps the rules, and is the same key when it is sent quoted. */
#include "base/memory/buf.h"
#include "base/check.h"
#include "core/operation/key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const hx_key_rules rules = {.format = HX_KEY_ANY, .len_min = 1, .len_max = 64};
    hx_arena arena = {0};
    hx_slice key, again;
    if (hx_key_parse((hx_slice){(const char *)data, size}, &rules, &arena, &key) == HX_KEY_OK) {
        hx_buf quoted;
        HX_CHECK(key.len >= rules.len_min && key.len <= rules.len_max);
        hx_buf_init(&quoted, &arena, 2 * key.len + 2);
        hx_buf_puts(&quoted, "\"");
        for (size_t i = 0; i < key.len; i++) {
            HX_CHECK(key.ptr[i] >= 0x20 && key.ptr[i] < 0x7f);
            if (key.ptr[i] == '"' || key.ptr[i] == '\\') hx_buf_puts(&quoted, "\\");
            hx_buf_put(&quoted, (hx_slice){key.ptr + i, 1});
        }
        hx_buf_puts(&quoted, "\"");
        hx_key_error error = hx_key_parse(hx_buf_slice(&quoted), &rules, &arena, &again);
        HX_CHECK(error == HX_KEY_OK && hx_slice_eq(key, again));
    }
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}
