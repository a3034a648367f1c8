/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#define LENGTH 24

/* Any byte, at any place of a text of any alignment: what is looked at in words is what bytes would say. */
static void a_byte_that_needs_thought_is_found_wherever_it_is(void **state)
{
    (void)state;
    char text[LENGTH + 8];
    for (size_t start = 0; start < 8; start++) {
        for (size_t at = start; at < start + LENGTH; at++) {
            for (int byte = 0; byte < 256; byte++) {
                bool is_plain = byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\';
                memset(text, ' ', sizeof text);
                text[at] = (char)byte;
                size_t expected = is_plain ? LENGTH : at - start;
                assert_int_equal(hx_utf8_plain_bytes(text + start, text + start + LENGTH), expected);
            }
        }
    }
    assert_int_equal(hx_utf8_plain_bytes(text, text), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_byte_that_needs_thought_is_found_wherever_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
