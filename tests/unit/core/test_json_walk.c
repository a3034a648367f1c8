/* SPDX-License-Identifier: Apache-2.0 */
#include "core/json/json_walk.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

static void expect_next(hx_json_walk *walk, const char *name, const char *value)
{
    hx_slice got_name, got_value;
    assert_true(hx_json_walk_next(walk, &got_name, &got_value));
    if (!hx_slice_eq(got_name, hx_slice_of(name))) fail_msg("name %.*s, not %s", HX_FMT(got_name), name);
    if (!hx_slice_eq(got_value, hx_slice_of(value))) fail_msg("value %.*s, not %s", HX_FMT(got_value), value);
}

static void expect_end(hx_json_walk *walk)
{
    hx_slice name, value;
    assert_false(hx_json_walk_next(walk, &name, &value));
    assert_false(hx_json_walk_next(walk, &name, &value));
}

static void members_come_as_they_stand(void **state)
{
    (void)state;
    hx_json_walk walk = hx_json_walk_over(
        HX_LIT("{ \"a\" : 1 ,\"b\\\"}\":\"x,]}\\\"\", \"c\":{\"d\":[1,{}]}, \"e\":[] ,\n\"f\" : null }"));
    expect_next(&walk, "\"a\"", "1");
    expect_next(&walk, "\"b\\\"}\"", "\"x,]}\\\"\"");
    expect_next(&walk, "\"c\"", "{\"d\":[1,{}]}");
    expect_next(&walk, "\"e\"", "[]");
    expect_next(&walk, "\"f\"", "null");
    expect_end(&walk);
}

static void elements_have_no_name(void **state)
{
    (void)state;
    hx_json_walk walk = hx_json_walk_over(HX_LIT("[1,\"two\", [3 , [4]],{\"five\":\"[\"},-6.5e3]"));
    expect_next(&walk, "", "1");
    expect_next(&walk, "", "\"two\"");
    expect_next(&walk, "", "[3 , [4]]");
    expect_next(&walk, "", "{\"five\":\"[\"}");
    expect_next(&walk, "", "-6.5e3");
    expect_end(&walk);
}

static void nothing_else_is_walked_over(void **state)
{
    (void)state;
    const char *const texts[] = {"", "{}", "[]", "[ ]", "{\n}", "12", "\"[1]\"", "true"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        hx_json_walk walk = hx_json_walk_over(hx_slice_of(texts[i]));
        expect_end(&walk);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_come_as_they_stand),
        cmocka_unit_test(elements_have_no_name),
        cmocka_unit_test(nothing_else_is_walked_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
