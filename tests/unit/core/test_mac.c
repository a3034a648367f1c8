/* SPDX-License-Identifier: Apache-2.0 */
#include "core/crypto/mac.h"

#include <openssl/hmac.h>
#include <openssl/provider.h>

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

static const uint8_t secret[HX_SECRET_BYTES] = "a secret of thirty-two bytes....";

static int setup(void **state)
{
    *state = hx_mac_new(secret);
    return 0;
}

static int teardown(void **state)
{
    hx_mac *mac = *state;
    hx_mac_free(&mac);
    return mac != NULL;
}

static hx_digest digest_of(hx_mac *mac, char tag, const char *first, const char *second)
{
    hx_mac_begin(mac, tag);
    hx_mac_part(mac, hx_slice_of(first));
    if (second) hx_mac_part(mac, hx_slice_of(second));
    return hx_mac_end(mac);
}

static bool same(hx_digest a, hx_digest b)
{
    return hx_digest_eq(&a, &b);
}

static void it_is_hmac_sha_256_over_the_tag_and_the_framed_parts(void **state)
{
    static const unsigned char framed[] = "T\x02\0\0\0\0\0\0\0ab\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0c";
    hx_digest expected;
    unsigned written = 0;
    assert_non_null(HMAC(EVP_sha256(), secret, HX_SECRET_BYTES, framed, sizeof framed - 1, expected.bytes, &written));
    hx_mac_begin(*state, 'T');
    hx_mac_part(*state, HX_LIT("ab"));
    hx_mac_part(*state, HX_EMPTY);
    hx_mac_part(*state, HX_LIT("c"));
    assert_true(same(hx_mac_end(*state), expected));
}

/* Parts smaller than, as large as and larger than the gathering buffer, in every order. */
static void large_parts_are_digested_like_small_ones(void **state)
{
    static const size_t sizes[] = {0, 1, 7, 1007, 1014, 1015, 1016, 1017, 1024, 1025, 5000};
    static char text[5000];
    static unsigned char framed[1 + 3 * (8 + sizeof text)];
    memset(text, 'x', sizeof text);
    size_t count = sizeof sizes / sizeof *sizes;
    for (size_t n = 0; n < count * count * count; n++) {
        const size_t lens[] = {sizes[n % count], sizes[n / count % count], sizes[n / count / count]};
        size_t at = 0;
        framed[at++] = 'L';
        hx_mac_begin(*state, 'L');
        for (size_t i = 0; i < 3; i++) {
            for (size_t b = 0; b < 8; b++) framed[at++] = (unsigned char)(lens[i] >> (8 * b));
            memcpy(framed + at, text, lens[i]);
            at += lens[i];
            hx_mac_part(*state, (hx_slice){text, lens[i]});
        }
        hx_digest expected;
        assert_non_null(HMAC(EVP_sha256(), secret, HX_SECRET_BYTES, framed, at, expected.bytes, NULL));
        assert_true(same(hx_mac_end(*state), expected));
    }
}

static void parts_never_run_into_each_other(void **state)
{
    assert_false(same(digest_of(*state, 'T', "ab", "c"), digest_of(*state, 'T', "a", "bc")));
    assert_false(same(digest_of(*state, 'T', "ab", NULL), digest_of(*state, 'T', "ab", "")));
}

static void tags_and_secrets_tell_digests_apart(void **state)
{
    uint8_t other_secret[HX_SECRET_BYTES] = {0};
    hx_mac *other = hx_mac_new(other_secret);
    hx_digest one = digest_of(*state, 'T', "a", NULL);
    assert_false(same(one, digest_of(*state, 'U', "a", NULL)));
    assert_false(same(one, digest_of(other, 'T', "a", NULL)));
    assert_true(hx_mac_short(*state, 'T', HX_LIT("a")) != hx_mac_short(other, 'T', HX_LIT("a")));
    assert_true(hx_mac_short(*state, 'T', HX_LIT("a")) != hx_mac_short(*state, 'U', HX_LIT("a")));
    hx_mac_free(&other);
}

static void an_abandoned_digest_leaves_no_trace(void **state)
{
    hx_digest expected = digest_of(*state, 'T', "a", "b");
    hx_mac_begin(*state, 'T');
    hx_mac_part(*state, HX_LIT("never ended"));
    assert_true(same(digest_of(*state, 'T', "a", "b"), expected));
}

static void a_short_mac_is_the_same_each_time_and_in_the_midst_of_a_long_one(void **state)
{
    uint64_t expected = hx_mac_short(*state, 'b', HX_LIT("body"));
    hx_digest long_one = digest_of(*state, 'T', "a", "b");
    hx_mac_begin(*state, 'T');
    hx_mac_part(*state, HX_LIT("a"));
    assert_true(hx_mac_short(*state, 'b', HX_LIT("another")) != expected);
    assert_true(hx_mac_short(*state, 'b', HX_EMPTY) != expected);
    assert_true(hx_mac_short(*state, 'b', HX_LIT("body")) == expected);
    hx_mac_part(*state, HX_LIT("b"));
    assert_true(same(hx_mac_end(*state), long_one));
}

static void digests_are_equal_only_in_every_byte(void **state)
{
    hx_digest one = digest_of(*state, 'T', "a", NULL);
    for (size_t i = 0; i < sizeof one.bytes; i++) {
        hx_digest other = one;
        other.bytes[i] ^= 1;
        assert_false(hx_digest_eq(&one, &other));
    }
    assert_true(hx_digest_eq(&one, &one));
}

/* A program may run OpenSSL without its default provider. The null provider keeps it from
 * being loaded. */
static void long_macs_need_no_provider(void **state)
{
    hx_digest expected = digest_of(*state, 'T', "a", "b");
    OSSL_LIB_CTX *bare = OSSL_LIB_CTX_new();
    assert_non_null(bare);
    OSSL_PROVIDER *null = OSSL_PROVIDER_load(bare, "null");
    assert_non_null(null);
    OSSL_LIB_CTX *usual = OSSL_LIB_CTX_set0_default(bare);
    hx_mac *mac = hx_mac_new(secret);
    assert_true(same(digest_of(mac, 'T', "a", "b"), expected));
    hx_mac_free(&mac);
    (void)OSSL_LIB_CTX_set0_default(usual);
    (void)OSSL_PROVIDER_unload(null);
    OSSL_LIB_CTX_free(bare);
}

/* RFC 4231, cases 2 and 6: a short key, and one longer than a block. */
static void plain_macs_are_those_of_rfc_4231(void **state)
{
    (void)state;
    static const uint8_t short_key[] = {0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24,
                                        0x26, 0x08, 0x95, 0x75, 0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27,
                                        0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
    static const uint8_t long_key[] = {0x60, 0xe4, 0x31, 0x59, 0x1e, 0xe0, 0xb6, 0x7f, 0x0d, 0x8a, 0x26,
                                       0xaa, 0xcb, 0xf5, 0xb7, 0x7f, 0x8e, 0x0b, 0xc6, 0x21, 0x37, 0x28,
                                       0xc5, 0x14, 0x05, 0x46, 0x04, 0x0f, 0x0e, 0xe3, 0x7f, 0x54};
    const hx_slice cut[] = {HX_LIT("what do ya "), HX_EMPTY, HX_LIT("want for nothing?")};
    const hx_slice whole[] = {HX_LIT("Test Using Larger Than Block-Size Key - Hash Key First")};
    char large[131];
    memset(large, 0xaa, sizeof large);
    hx_digest mac = hx_mac_plain(HX_LIT("Jefe"), cut, 3);
    assert_memory_equal(mac.bytes, short_key, sizeof short_key);
    mac = hx_mac_plain((hx_slice){large, sizeof large}, whole, 1);
    assert_memory_equal(mac.bytes, long_key, sizeof long_key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_macs_are_those_of_rfc_4231),
        cmocka_unit_test(it_is_hmac_sha_256_over_the_tag_and_the_framed_parts),
        cmocka_unit_test(large_parts_are_digested_like_small_ones),
        cmocka_unit_test(parts_never_run_into_each_other),
        cmocka_unit_test(tags_and_secrets_tell_digests_apart),
        cmocka_unit_test(an_abandoned_digest_leaves_no_trace),
        cmocka_unit_test(a_short_mac_is_the_same_each_time_and_in_the_midst_of_a_long_one),
        cmocka_unit_test(digests_are_equal_only_in_every_byte),
        cmocka_unit_test(long_macs_need_no_provider),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
