/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http/message.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static hx_fields fields;
static hx_arena arena;

static int begin(void **state)
{
    (void)state;
    fields = (hx_fields){0};
    return 0;
}

static int end(void **state)
{
    (void)state;
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}

static void add(const char *name, const char *value)
{
    assert_true(hx_fields_add(&fields, &arena, 100, hx_slice_of(name), hx_slice_of(value)));
}

static void assert_text(hx_slice got, const char *expected)
{
    assert_int_equal(got.len, strlen(expected));
    assert_memory_equal(got.ptr, expected, got.len);
}

static void other_spellings_of_known_names_are_seen_through(void **state)
{
    (void)state;
    static const char *names[] = {
#define X(id, name, flags) name,
#include "net/http/fields.def"
#undef X
    };
    static const char others[] = "_.!#$%&'*+^`|~";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        size_t len = strlen(names[i]), hyphens = 0;
        for (size_t c = 0; c <= len; c++) {
            if (names[i][c] == '-') hyphens++;
            name[c] = names[i][c] == '-' ? others[i % (sizeof others - 1)] : names[i][c];
        }
        if (hyphens == 0) continue; /* it has one spelling */
        fields = (hx_fields){0};
        add(name, "v");
        assert_int_equal(fields.items[0].id, HX_FIELD_OTHER);
        assert_int_equal(fields.items[0].flags, HX_FIELD_ODD);
        assert_int_equal(hx_field_reads_as(&fields.items[0]), i + 1);
        assert_true(hx_fields_named_alike(hx_slice_of(name), hx_slice_of(names[i])));
    }
    fields = (hx_fields){0};
    add("client_id", "v");
    add("client-id", "v");
    add("a_name_that_is_longer_than_any_which_is_known", "v");
    assert_int_equal(fields.items[0].flags, HX_FIELD_ODD);
    assert_int_equal(hx_field_reads_as(&fields.items[0]), HX_FIELD_OTHER);
    assert_int_equal(fields.items[1].flags, 0);
    assert_int_equal(hx_field_reads_as(&fields.items[2]), HX_FIELD_OTHER);
    assert_false(hx_fields_named_alike(HX_LIT("client_id"), HX_LIT("client-ids")));
}

static void every_known_name_is_classified_in_any_case(void **state)
{
    (void)state;
    static const char *names[] = {
#define X(id, name, flags) name,
#include "net/http/fields.def"
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char upper[64];
        size_t len = strlen(names[i]);
        for (size_t c = 0; c <= len; c++) {
            bool is_letter = names[i][c] >= 'a' && names[i][c] <= 'z';
            upper[c] = is_letter ? (char)(names[i][c] - 32) : names[i][c];
        }
        add(upper, "v");
        assert_int_equal(fields.items[i].id, i + 1);
        assert_int_equal(fields.lines[i + 1], 1);
        assert_int_equal(fields.first[i + 1], i);
    }
}

static void names_that_only_resemble_known_ones_are_not_taken_for_them(void **state)
{
    (void)state;
    const char *others[] = {"", "hos", "hosts", "hosu", "content_length", "content-lengtg", "date\x7f", "x"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        add(others[i], "v");
        assert_int_equal(fields.items[i].id, HX_FIELD_OTHER);
    }
}

static void values_are_trimmed_and_the_first_line_counts(void **state)
{
    (void)state;
    add("Age", " \t 1 2\t ");
    add("aGe", "3");
    assert_int_equal(fields.lines[HX_FIELD_AGE], 2);
    assert_text(hx_fields_get(&fields, HX_FIELD_AGE), "1 2");
    assert_text(hx_fields_get(&fields, HX_FIELD_HOST), "");
    add("X-Any", "y");
    assert_text(hx_fields_find(&fields, HX_LIT("x-any"))->value, "y");
    assert_text(hx_fields_find(&fields, HX_LIT("AGE"))->value, "1 2");
    assert_null(hx_fields_find(&fields, HX_LIT("x-other")));
    assert_null(hx_fields_find(&fields, HX_LIT("host")));
}

static void there_are_no_more_fields_than_the_limit(void **state)
{
    (void)state;
    for (int i = 0; i < 37; i++) assert_true(hx_fields_add(&fields, &arena, 37, HX_LIT("a"), HX_LIT("b")));
    assert_false(hx_fields_add(&fields, &arena, 37, HX_LIT("a"), HX_LIT("b")));
    assert_int_equal(fields.count, 37);
}

static void connection_marks_what_it_names(void **state)
{
    (void)state;
    add("X-One", "1");
    add("Connection", "close, x-one,, keep-alive");
    add("X-Two", "2");
    add("Connection", "X-TWO");
    add("X-Three", "3");
    add("x-one", "again");
    assert_true(hx_fields_mark_hops(&fields));
    const unsigned expected[] = {HX_FIELD_HOP, HX_FIELD_HOP, HX_FIELD_HOP, HX_FIELD_HOP, 0, HX_FIELD_HOP};
    for (size_t i = 0; i < fields.count; i++) assert_int_equal(fields.items[i].flags, expected[i]);
}

static void connection_may_not_name_what_carries_meaning(void **state)
{
    (void)state;
    const char *abuses[] = {
        "Host", "content-length",    "Transfer-Encoding", "AUTHORIZATION", "cookie", "content-type", "date",
        "age",  "X-Request-Timeout", "idempotency-key",   "a b",           "\"x\"",  "close;x"};
    for (size_t i = 0; i < sizeof abuses / sizeof *abuses; i++) {
        fields = (hx_fields){0};
        add("Connection", abuses[i]);
        assert_false(hx_fields_mark_hops(&fields));
    }
}

static void a_field_is_written_as_a_line(void **state)
{
    (void)state;
    hx_buf out;
    hx_buf_init(&out, &arena, 64);
    hx_field_write(&out, HX_LIT("A"), HX_LIT("b"));
    assert_text(hx_buf_slice(&out), "A: b\r\n");
    assert_text(hx_status_reason(201), "Created");
    assert_text(hx_status_reason(299), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_known_name_is_classified_in_any_case, begin, end),
        cmocka_unit_test_setup_teardown(other_spellings_of_known_names_are_seen_through, begin, end),
        cmocka_unit_test_setup_teardown(names_that_only_resemble_known_ones_are_not_taken_for_them, begin, end),
        cmocka_unit_test_setup_teardown(values_are_trimmed_and_the_first_line_counts, begin, end),
        cmocka_unit_test_setup_teardown(there_are_no_more_fields_than_the_limit, begin, end),
        cmocka_unit_test_setup_teardown(connection_marks_what_it_names, begin, end),
        cmocka_unit_test_setup_teardown(connection_may_not_name_what_carries_meaning, begin, end),
        cmocka_unit_test_setup_teardown(a_field_is_written_as_a_line, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
