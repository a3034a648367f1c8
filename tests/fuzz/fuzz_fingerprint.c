/* SPDX-License-Identifier: Apache-2.0 */
/* The first line is the Content-Type, the second the Content-Encoding, the rest the body. A fingerprint is the same
 * when it is taken again, when the parts are asked for first, and when canonical JSON is sent in the first place; by
 * a route's rules too. */
#include "base/check.h"
#include "core/operation/fingerprint.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const hx_slice ignored[] = {HX_LIT("/a"), HX_LIT("/b/0"), HX_LIT("/b/1/a"), HX_LIT("/a/b"), HX_LIT("/0")};
static const hx_slice chosen[] = {HX_LIT("/b"), HX_LIT("/b/1"), HX_EMPTY, HX_LIT("/c~1/a"), HX_LIT("/1")};
static const hx_fingerprint_rules rules[] = {
    {.ignored_pointers = ignored, .ignored_pointer_count = 5},
    {.body = HX_FINGERPRINT_POINTERS, .pointers = chosen, .pointer_count = 5},
    {.body = HX_FINGERPRINT_POINTERS,
     .pointers = chosen,
     .pointer_count = 5,
     .ignored_pointers = ignored,
     .ignored_pointer_count = 5},
    {.body = HX_FINGERPRINT_RAW},
};

/* `first` has been asked for by default rules. */
static void by_rules(hx_mac *mac, const hx_fingerprint_input *first, hx_arena *arena)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        hx_fingerprint_input in = *first, canonical;
        memset(&in.normal, 0, sizeof in.normal);
        in.rules = &rules[i];
        canonical = in;
        hx_digest digest = hx_fingerprint(mac, &in, arena);
        bool selected = in.normal.body_kind == 'J' || in.normal.body_kind == 'V';
        HX_CHECK(selected == (first->normal.body_kind == 'J' && rules[i].body != HX_FINGERPRINT_RAW));
        if (!selected) continue;
        canonical.body = first->normal.body;
        hx_digest digest_canonical = hx_fingerprint(mac, &canonical, arena);
        HX_CHECK(hx_digest_eq(&digest, &digest_canonical));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t secret[HX_SECRET_BYTES] = {1};
    static hx_mac *mac;
    if (!mac) mac = hx_mac_new(secret);
    hx_arena arena = {0};
    hx_slice rest = {(const char *)data, size}, type = HX_EMPTY, coding = HX_EMPTY;
    if (hx_slice_next(&rest, '\n', &type)) (void)hx_slice_next(&rest, '\n', &coding);
    hx_fingerprint_input first = {
        .method = HX_LIT("POST"), .path = HX_LIT("/"), .content_type = type, .content_encoding = coding, .body = rest};
    hx_fingerprint_input second = first;
    uint64_t parts[HX_PART_COUNT], parts_again[HX_PART_COUNT];
    hx_digest digest = hx_fingerprint(mac, &first, &arena);
    hx_fingerprint_parts(mac, &first, &arena, parts);
    hx_fingerprint_parts(mac, &second, &arena, parts_again);
    hx_digest digest_again = hx_fingerprint(mac, &second, &arena);
    HX_CHECK(hx_digest_eq(&digest, &digest_again) && memcmp(parts, parts_again, sizeof parts) == 0);

    hx_fingerprint_input canonical = first;
    memset(&canonical.normal, 0, sizeof canonical.normal);
    if (first.normal.body_kind == 'J') {
        canonical.body = first.normal.body;
        hx_digest digest_canonical = hx_fingerprint(mac, &canonical, &arena);
        HX_CHECK(hx_digest_eq(&digest, &digest_canonical));
    }
    by_rules(mac, &first, &arena);
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}
