/* SPDX-License-Identifier: Apache-2.0 */
/* Any credential has a principal that opens with its kind, and is its own proof. */
#include "base/check.h"
#include "core/operation/identity.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hx_arena arena = {0};
    hx_identity who;
    hx_slice value = {(const char *)data, size}, cookie;
    hx_identity_of_authorization(value, &arena, &who);
    HX_CHECK(hx_slice_eq(who.proof, hx_slice_trim(value)));
    if (who.proof.len == 0) {
        HX_CHECK(who.principal.len == 0 && strcmp(who.kind, "none") == 0);
    } else {
        size_t kind_len = strlen(who.kind);
        HX_CHECK(who.principal.len > kind_len + 1 && memcmp(who.principal.ptr, who.kind, kind_len + 1) == 0);
    }
    if (hx_cookie_value(value, HX_LIT("a"), &cookie)) HX_CHECK(cookie.len <= size);
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}
