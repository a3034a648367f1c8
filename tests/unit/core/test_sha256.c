/* SPDX-License-Identifier: Apache-2.0 */
#define OPENSSL_SUPPRESS_DEPRECATED /* SHA256_Transform, for a state in mid-message */
#include "core/crypto/sha256.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 1024u

static void fill(uint8_t bytes[BYTES])
{
    for (size_t i = 0; i < BYTES; i++) bytes[i] = (uint8_t)(i * 131 + (i >> 8));
}

static hx_digest by_openssl(const uint8_t *bytes, size_t len)
{
    hx_digest digest;
    assert_int_equal(EVP_Q_digest(NULL, "SHA256", NULL, bytes, len, digest.bytes, NULL), 1);
    return digest;
}

static void every_length_gives_what_openssl_gives(void **state)
{
    (void)state;
    uint8_t all[BYTES], message[BYTES + HX_SHA256_ROOM];
    fill(all);
    for (size_t len = 0; len <= BYTES; len++) {
        memcpy(message, all, len);
        hx_digest expected = by_openssl(all, len), digest = hx_sha256_end(NULL, 0, message, len);
        assert_memory_equal(digest.bytes, expected.bytes, sizeof digest.bytes);
    }
}

static void goes_on_after_whole_blocks(void **state)
{
    (void)state;
    uint8_t all[BYTES], message[BYTES + HX_SHA256_ROOM];
    fill(all);
    SHA256_CTX before;
    SHA256_Init(&before);
    for (size_t blocks = 1; blocks <= 3; blocks++) {
        size_t taken = blocks * SHA256_CBLOCK;
        SHA256_Transform(&before, all + taken - SHA256_CBLOCK);
        for (size_t len = 0; len <= 200; len++) {
            memcpy(message, all + taken, len);
            hx_digest expected = by_openssl(all, taken + len), digest = hx_sha256_end(before.h, blocks, message, len);
            assert_memory_equal(digest.bytes, expected.bytes, sizeof digest.bytes);
        }
    }
}

static void only_the_room_behind_a_message_is_overwritten(void **state)
{
    (void)state;
    uint8_t message[256 + HX_SHA256_ROOM + 1];
    for (size_t len = 0; len <= 256; len++) {
        memset(message, 0xa5, sizeof message);
        (void)hx_sha256_end(NULL, 0, message, len);
        for (size_t i = 0; i < len; i++) assert_int_equal(message[i], 0xa5);
        assert_int_equal(message[len + HX_SHA256_ROOM], 0xa5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_gives_what_openssl_gives),
        cmocka_unit_test(goes_on_after_whole_blocks),
        cmocka_unit_test(only_the_room_behind_a_message_is_overwritten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
