/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crc32c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define BYTES 4096u

static unsigned char bytes[BYTES + 8];

static uint32_t bit_by_bit(uint32_t crc, const unsigned char *at, size_t len)
{
    crc = ~crc;
    for (size_t i = 0; i < len; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static int fill(void **state)
{
    (void)state;
    uint32_t x = 1;
    for (size_t i = 0; i < sizeof bytes; i++) {
        x = x * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(x >> 24);
    }
    return 0;
}

static void is_the_published_checksum(void **state)
{
    (void)state;
    assert_int_equal(hx_crc32c(0, HX_LIT("123456789")), 0xe3069283u);
    assert_int_equal(hx_crc32c(0, HX_EMPTY), 0);
}

static void every_length_gives_what_the_definition_says(void **state)
{
    (void)state;
    for (size_t len = 0; len <= BYTES; len++) {
        size_t from = len % 8;
        uint32_t start = (uint32_t)len * 2654435761u;
        assert_int_equal(hx_crc32c(start, (hx_slice){(const char *)bytes + from, len}),
                         bit_by_bit(start, bytes + from, len));
    }
}

static void pieces_give_what_the_whole_gives(void **state)
{
    (void)state;
    uint32_t whole = hx_crc32c(0, (hx_slice){(const char *)bytes, BYTES});
    for (size_t cut = 0; cut <= BYTES; cut += 61) {
        uint32_t crc = hx_crc32c(0, (hx_slice){(const char *)bytes, cut});
        assert_int_equal(hx_crc32c(crc, (hx_slice){(const char *)bytes + cut, BYTES - cut}), whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_the_published_checksum),
        cmocka_unit_test(every_length_gives_what_the_definition_says),
        cmocka_unit_test(pieces_give_what_the_whole_gives),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
