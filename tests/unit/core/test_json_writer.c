/* SPDX-License-Identifier: Apache-2.0 */
#include "core/json/json_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static void assert_written(hx_buf *out, const char *expected)
{
    hx_slice text = hx_buf_slice(out);
    if (!hx_slice_eq(text, hx_slice_of(expected))) fail_msg("%.*s is not %s", HX_FMT(text), expected);
    hx_buf_free(out);
}

static void commas_stand_between_values_and_nowhere_else(void **state)
{
    (void)state;
    const hx_slice items[] = {HX_LIT("a"), HX_LIT("{")};
    hx_buf out;
    hx_buf_init(&out, NULL, 1000);
    hx_json_open(&out, NULL, '{');
    hx_json_put_text(&out, "text", HX_LIT("say \"[\"\n"));
    hx_json_put_number(&out, "number", UINT64_MAX);
    hx_json_open(&out, "none", '[');
    hx_json_close(&out, ']');
    hx_json_put_list(&out, "list", items, 2);
    hx_json_put_bool(&out, "bool", false);
    hx_json_open(&out, "inner", '{');
    hx_json_put_null(&out, "null");
    hx_json_close(&out, '}');
    hx_json_put_name(&out, "named");
    hx_json_put_hex(&out, NULL, (const uint8_t *)"\x0a\xff", 2);
    hx_json_put_raw(&out, "raw", HX_LIT("1.5"));
    hx_json_close(&out, '}');
    assert_written(&out,
                   "{\"text\":\"say \\\"[\\\"\\n\",\"number\":18446744073709551615,\"none\":[],\"list\":[\"a\",\"{\"],"
                   "\"bool\":false,\"inner\":{\"null\":null},\"named\":\"0aff\",\"raw\":1.5}");
}

static void lines_become_texts_without_empty_ones(void **state)
{
    (void)state;
    hx_buf out;
    hx_buf_init(&out, NULL, 100);
    hx_json_put_lines(&out, NULL, HX_LIT("one\n\ntwo\n"));
    hx_json_put_lines(&out, NULL, HX_EMPTY);
    assert_written(&out, "[\"one\",\"two\"],[]");
}

static void records_may_be_one_a_line(void **state)
{
    (void)state;
    hx_buf out;
    hx_buf_init(&out, NULL, 100);
    hx_json_put_number(&out, NULL, 1);
    hx_buf_puts(&out, ",\n");
    hx_json_put_number(&out, NULL, 2);
    hx_buf_puts(&out, ",");
    hx_json_put_number(&out, NULL, 3);
    assert_written(&out, "1,\n2,3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commas_stand_between_values_and_nowhere_else),
        cmocka_unit_test(lines_become_texts_without_empty_ones),
        cmocka_unit_test(records_may_be_one_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
