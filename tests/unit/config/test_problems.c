/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "config/problems.h"

#include <string.h>

static void problems_are_told_in_the_order_of_the_file(void **state)
{
    (void)state;
    hx_arena arena = {0};
    hx_problems problems = {.arena = &arena, .file = "f"};
    hx_config_problem_of_flag(&problems, "--flag is wrong");
    hx_config_problem_at(&problems, 10, 2, "c");
    hx_config_problem_at(&problems, 9, 20, "b");
    hx_config_problem_at(&problems, 9, 3, "a");
    hx_config_problem_at(&problems, 0, 0, "whole");
    hx_config_problem_at(&problems, 9, 3, "a again");
    hx_buf out;
    hx_buf_init(&out, &arena, 1000);
    hx_problems_write(&problems, &out);
    assert_true(hx_slice_eq(hx_buf_slice(&out),
                            HX_LIT("f: whole\nf:9:3: a\nf:9:3: a again\nf:9:20: b\nf:10:2: c\n--flag is wrong\n")));
    hx_arena_free(&arena);
}

static void what_has_no_room_is_counted(void **state)
{
    (void)state;
    hx_arena arena = {0};
    hx_problems problems = {.arena = &arena, .file = "f"};
    for (uint32_t i = 1; i <= 250; i++) hx_config_problem_at(&problems, i, 1, "x");
    hx_buf out;
    hx_buf_init(&out, &arena, 100000);
    hx_problems_write(&problems, &out);
    assert_true(hx_slice_ends(hx_buf_slice(&out), HX_LIT("f:100:1: x\n… and 150 more\n")));
    hx_buf small;
    hx_buf_init(&small, &arena, 64);
    hx_problems_write(&problems, &small);
    assert_true(hx_slice_eq(hx_buf_slice(&small), HX_LIT("f:1:1: x\nf:2:1: x\n… and 248 more\n")));
    hx_arena_free(&arena);
}

static void quoting_hides_what_could_move_a_cursor(void **state)
{
    (void)state;
    hx_arena arena = {0};
    assert_string_equal(hx_quoted(&arena, HX_LIT("plain")), "\"plain\"");
    assert_string_equal(hx_quoted(&arena, HX_LIT("a\x1b[31m\0b\x7f")), "\"a\\x1b[31m\\x00b\\x7f\"");
    assert_string_equal(hx_quoted(&arena, HX_LIT("\xc2\x9b"
                                                 "x\xc3\xa4")),
                        "\"\\x9bx\xc3\xa4\"");
    assert_string_equal(hx_quoted(&arena, HX_EMPTY), "\"\"");
    char lengthy[200];
    memset(lengthy, 'a', sizeof lengthy);
    assert_int_equal(strlen(hx_quoted(&arena, (hx_slice){lengthy, sizeof lengthy})), 60 + 2 + strlen("…"));
    memset(lengthy, 1, sizeof lengthy);
    assert_int_equal(strlen(hx_quoted(&arena, (hx_slice){lengthy, sizeof lengthy})), 60 * 4 + 2 + strlen("…"));
    assert_string_equal(hx_quoted(&arena, HX_LIT("cut \xe2\x82")), "\"cut …\"");
    hx_arena_free(&arena);
}

static const char *name_at(size_t i, const void *names)
{
    return ((const char *const *)names)[i];
}

static void the_nearest_name_is_a_typing_error_away(void **state)
{
    (void)state;
    static const char *const names[] = {"lifetime",         "lease", NULL, "wait", "on_duplicate", "upstream",
                                        "upstream_timeout", "min"};
    static const struct {
        const char *word, *nearest;
    } cases[] = {
        {"lifetme", "lifetime"},
        {"lifteime", "lifetime"},
        {"LifeTime", "lifetime"},
        {"on-duplicate", "on_duplicate"},
        {"lese", "lease"},
        {"wiat", "wait"},
        {"upstreams", "upstream"},
        {"upstreamtimeout", "upstream_timeout"},
        {"mni", "min"},
        {"mxn", "min"},
        {"nmi", NULL},
        {"colour", NULL},
        {"x", NULL},
        {"", NULL},
        {"qqqqqqqq", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *found = hx_nearest(hx_slice_of(cases[i].word), sizeof names / sizeof names[0], name_at,
                                       (const void *)names);
        if (!cases[i].nearest)
            assert_null(found);
        else
            assert_string_equal(found ? found : "nothing", cases[i].nearest);
    }
    char lengthy[1000];
    memset(lengthy, 'a', sizeof lengthy);
    assert_null(hx_nearest((hx_slice){lengthy, sizeof lengthy}, 2, name_at, (const void *)names));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(problems_are_told_in_the_order_of_the_file),
        cmocka_unit_test(what_has_no_room_is_counted),
        cmocka_unit_test(quoting_hides_what_could_move_a_cursor),
        cmocka_unit_test(the_nearest_name_is_a_typing_error_away),
    };
    return cmocka_run_group_tests(tests, NULL, fixture_drain);
}
