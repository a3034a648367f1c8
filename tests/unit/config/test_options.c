/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "config/options.h"

#include <string.h>

static void durations_and_sizes_are_read_with_their_units(void **state)
{
    (void)state;
    static const struct {
        hx_option_type type;
        const char *text;
        uint64_t value;
    } cases[] = {
        {HX_OPTION_DURATION, "0", 0},          {HX_OPTION_DURATION, "0s", 0},
        {HX_OPTION_DURATION, "500ms", 500},    {HX_OPTION_DURATION, "10s", 10000},
        {HX_OPTION_DURATION, "5m", 300000},    {HX_OPTION_DURATION, "24h", 86400000},
        {HX_OPTION_DURATION, "7d", 604800000}, {HX_OPTION_BYTES, "0", 0},
        {HX_OPTION_BYTES, "512", 512},         {HX_OPTION_BYTES, "512B", 512},
        {HX_OPTION_BYTES, "64KiB", 65536},     {HX_OPTION_BYTES, "8MiB", 8388608},
        {HX_OPTION_BYTES, "2GiB", 2147483648}, {HX_OPTION_INTEGER, "007", 7},
    };
    hx_arena arena = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const hx_option option = {.name = "x", .type = cases[i].type, .high = UINT64_MAX};
        uint64_t value = 99;
        const char *wrong = hx_option_read(&option, hx_slice_of(cases[i].text), &arena, &value);
        if (wrong || value != cases[i].value) fail_msg("%s: %s", cases[i].text, wrong ? wrong : "another value");
    }
    hx_arena_free(&arena);
}

static void what_is_no_duration_size_or_number_is_refused(void **state)
{
    (void)state;
    static const struct {
        hx_option_type type;
        const char *text, *says;
    } cases[] = {
        {HX_OPTION_DURATION, "10", "needs a unit, such as 10s"},
        {HX_OPTION_DURATION, "", "not \"\""},
        {HX_OPTION_DURATION, "s", "not \"s\""},
        {HX_OPTION_DURATION, "-1s", "not \"-1s\""},
        {HX_OPTION_DURATION, "+1s", "not \"+1s\""},
        {HX_OPTION_DURATION, "1.5s", "not \"1.5s\""},
        {HX_OPTION_DURATION, "1 s", "not \"1 s\""},
        {HX_OPTION_DURATION, "1h30m", "not \"1h30m\""},
        {HX_OPTION_DURATION, "1S", "not \"1S\""},
        {HX_OPTION_DURATION, "1y", "not \"1y\""},
        {HX_OPTION_DURATION, "99999999999999999999s", "must be 0 to 24h"},
        {HX_OPTION_DURATION, "213503982335d", "must be 0 to 24h"},
        {HX_OPTION_DURATION, "25h", "must be 0 to 24h, not \"25h\""},
        {HX_OPTION_BYTES, "64KB", "did you mean \"64KiB\"?"},
        {HX_OPTION_BYTES, "64kb", "did you mean \"64KiB\"?"},
        {HX_OPTION_BYTES, "1M", "did you mean \"1MiB\"?"},
        {HX_OPTION_BYTES, "1gib", "did you mean \"1GiB\"?"},
        {HX_OPTION_BYTES, "1TiB", "not \"1TiB\""},
        {HX_OPTION_BYTES, "99999999999GiB", "must be 0 to 84375KiB"},
        {HX_OPTION_BYTES, "0x10", "not \"0x10\""},
        {HX_OPTION_INTEGER, "1e3", "must be a whole number, 0 to 86400000, not \"1e3\""},
        {HX_OPTION_INTEGER, "-1", "not \"-1\""},
        {HX_OPTION_INTEGER, "18446744073709551616", "not \"18446744073709551616\""},
        {HX_OPTION_BOOL, "yes", "must be true or false, not \"yes\""},
        {HX_OPTION_BOOL, "True", "must be true or false, not \"True\""},
    };
    hx_arena arena = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const hx_option option = {.name = "x", .type = cases[i].type, .high = 86400000};
        uint64_t value;
        const char *wrong = hx_option_read(&option, hx_slice_of(cases[i].text), &arena, &value);
        if (!wrong || !strstr(wrong, cases[i].says)) fail_msg("%s: %s", cases[i].text, wrong ? wrong : "is taken");
    }
    hx_arena_free(&arena);
}

/* Two places know the defaults of a route: the table, for the reference, and core/operation/policy.c. */
static void the_table_and_the_policy_have_the_same_defaults(void **state)
{
    (void)state;
    hx_policy policy = hx_policy_default(), before;
    hx_key_rules key = HX_KEY_RULES_DEFAULT, key_before = key;
    memcpy(&before, &policy, sizeof policy);
    hx_option_defaults(HX_PLACE_ROUTE, &policy);
    hx_option_defaults(HX_PLACE_KEY, &key);
    assert_memory_equal(&before, &policy, sizeof policy);
    assert_memory_equal(&key_before, &key, sizeof key);
}

static void every_row_is_sound(void **state)
{
    (void)state;
    hx_arena arena = {0};
    size_t count;
    const hx_option *all = hx_options(&count);
    for (size_t i = 0; i < count; i++) {
        assert_ptr_equal(hx_option_find(all[i].place, hx_slice_of(all[i].name)), &all[i]); /* no name twice */
        assert_true(all[i].low <= all[i].high);
        assert_true(strlen(hx_option_expects(&all[i], &arena)) > 0);
        assert_null(strchr(all[i].text, '|')); /* it stands in a table of Markdown */
        if (all[i].type > HX_OPTION_INTEGER) continue;
        uint64_t value;
        uint64_t most = all[i].bytes == 8 ? UINT64_MAX : ((uint64_t)1 << (8 * all[i].bytes)) - 1;
        assert_true(all[i].high <= most); /* it fits into its field */
        if (all[i].fallback) assert_null(hx_option_read(&all[i], hx_slice_of(all[i].fallback), &arena, &value));
    }
    hx_arena_free(&arena);
}

static void an_option_in_the_wrong_place_is_sent_home(void **state)
{
    (void)state;
    hx_arena arena = {0};
    assert_string_equal(hx_option_hint(HX_PLACE_TOP, HX_LIT("lifetime"), &arena),
                        " here; it belongs in a route or under \"defaults\"");
    assert_string_equal(hx_option_hint(HX_PLACE_ROUTE, HX_LIT("workers"), &arena),
                        " here; it belongs at the top of the file");
    assert_string_equal(hx_option_hint(HX_PLACE_TOP, HX_LIT("waiters"), &arena), " here; it belongs under \"limits\"");
    assert_string_equal(hx_option_hint(HX_PLACE_ROUTE, HX_LIT("min"), &arena), " here; it belongs under \"key\"");
    assert_string_equal(hx_option_hint(HX_PLACE_TOP, HX_LIT("lisen"), &arena), ", did you mean \"listen\"?");
    assert_string_equal(hx_option_hint(HX_PLACE_TOP, HX_LIT("banana"), &arena), "");
    hx_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_and_sizes_are_read_with_their_units),
        cmocka_unit_test(what_is_no_duration_size_or_number_is_refused),
        cmocka_unit_test(the_table_and_the_policy_have_the_same_defaults),
        cmocka_unit_test(every_row_is_sound),
        cmocka_unit_test(an_option_in_the_wrong_place_is_sent_home),
    };
    return cmocka_run_group_tests(tests, NULL, fixture_drain);
}
