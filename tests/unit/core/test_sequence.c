/* SPDX-License-Identifier: Apache-2.0 */
#include "core/event/sequence.h"

#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#define START ((hx_ms)1798761600000)

static hx_arena arena;

static int tear_down(void **state)
{
    (void)state;
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}

static void names_are_letters_digits_and_few_signs(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "orders-17", "Orders_17.eu", "0"};
    static const char *const others[] = {"", "a/b", "a b", "a*", "\xc3\xa4", "a\n", "{}"};
    char lengthy[130];
    memset(lengthy, 'x', sizeof lengthy);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_true(hx_is_stream(hx_slice_of(names[i])));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(hx_is_stream(hx_slice_of(others[i])));
    assert_true(hx_is_stream((hx_slice){lengthy, 128}));
    assert_false(hx_is_stream((hx_slice){lengthy, 129}));
}

static void keys_are_in_the_order_of_positions(void **state)
{
    (void)state;
    static const uint64_t positions[] = {0, 1, 9, 10, 15, 16, 255, 256, 65536, UINT64_C(1) << 53};
    hx_slice before = HX_EMPTY;
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
        hx_slice key = hx_sequence_entry_key(HX_LIT("acme"), HX_LIT("orders-1"), positions[i], &arena);
        assert_true(hx_slice_starts(key, hx_sequence_entry_prefix(HX_LIT("acme"), HX_LIT("orders-1"), &arena)));
        assert_int_equal(hx_sequence_entry_position(key), positions[i]);
        assert_true(hx_slice_compare(before, key) < 0);
        before = key;
    }
    assert_int_equal(hx_sequence_entry_position(HX_LIT("p/a/b/xyz")), 0);
    hx_slice other = hx_sequence_entry_key(HX_LIT("acme"), HX_LIT("orders-11"), 1, &arena);
    assert_false(hx_slice_starts(other, hx_sequence_entry_prefix(HX_LIT("acme"), HX_LIT("orders-1"), &arena)));
}

static void the_first_rule_that_matches_applies(void **state)
{
    (void)state;
    static const hx_stream_rule rules[] = {{.match = {"orders-9", 8}, .retention = HX_HOUR},
                                           {.match = {"orders-*", 8}, .retention = HX_STREAM_FOREVER},
                                           {.match = {"*", 1}, .retention = HX_DAY}};
    assert_int_equal(hx_sequence_retention(rules, 3, HX_LIT("orders-9"), 1), HX_HOUR);
    assert_int_equal(hx_sequence_retention(rules, 3, HX_LIT("orders-99"), 1), HX_STREAM_FOREVER);
    assert_int_equal(hx_sequence_retention(rules, 3, HX_LIT("order"), 1), HX_DAY);
    assert_int_equal(hx_sequence_retention(rules, 2, HX_LIT("order"), 1), 1);
}

static void entries_expire_in_their_order(void **state)
{
    (void)state;
    hx_sequence sequence, back;
    assert_true(hx_sequence_decode(HX_EMPTY, &arena, &sequence));
    hx_ms first = hx_sequence_take(&sequence, START, 7 * HX_DAY);
    assert_int_equal(sequence.last, 1);
    assert_int_equal(first, START + 7 * HX_DAY);
    /* neither a clock that goes back nor a shorter retention lets a later one go first */
    assert_int_equal(hx_sequence_take(&sequence, START - HX_HOUR, 7 * HX_DAY), first);
    assert_int_equal(hx_sequence_take(&sequence, START, HX_DAY), first);
    assert_int_equal(hx_sequence_take(&sequence, START + HX_HOUR, 7 * HX_DAY), first + HX_HOUR);
    assert_int_equal(hx_sequence_expiry(&sequence), first + HX_HOUR + HX_STREAM_OUTLIVES);
    assert_true(hx_sequence_decode(hx_sequence_encode(&sequence, &arena), &arena, &back));
    assert_int_equal(back.last, 4);
    assert_int_equal(back.kept_until, sequence.kept_until);
    /* what is kept forever keeps the stream */
    assert_int_equal(hx_sequence_take(&back, START, HX_STREAM_FOREVER), 0);
    assert_true(hx_sequence_take(&back, START + HX_DAY, HX_DAY) > 0);
    assert_int_equal(hx_sequence_expiry(&back), 0);
    assert_true(hx_sequence_decode(hx_sequence_encode(&back, &arena), &arena, &sequence));
    assert_true(sequence.is_forever);
}

static void an_acknowledgement_moves_forward_within_the_stream(void **state)
{
    (void)state;
    hx_consumer consumer, back;
    assert_true(hx_consumer_decode(HX_EMPTY, &arena, &consumer));
    assert_int_equal(consumer.position, 0);
    assert_int_equal(consumer.generation, 1);
    assert_int_equal(hx_consumer_ack(&consumer, 5, 3, 1, START), HX_ACK_DONE);
    assert_int_equal(hx_consumer_ack(&consumer, 5, 3, 1, START), HX_ACK_DONE);
    assert_int_equal(hx_consumer_ack(&consumer, 5, 2, 1, START), HX_ACK_BACK);
    assert_int_equal(hx_consumer_ack(&consumer, 5, 6, 1, START), HX_ACK_BEYOND);
    assert_int_equal(hx_consumer_ack(&consumer, 5, 4, 2, START), HX_ACK_GENERATION);
    assert_int_equal(consumer.position, 3);
    assert_true(hx_consumer_seek(&consumer, 5, 1, START));
    assert_int_equal(consumer.generation, 2);
    assert_int_equal(hx_consumer_ack(&consumer, 5, 4, 1, START), HX_ACK_GENERATION);
    assert_int_equal(consumer.position, 1);
    assert_false(hx_consumer_seek(&consumer, 5, 6, START));
    assert_int_equal(consumer.generation, 2);
    assert_true(hx_consumer_decode(hx_consumer_encode(&consumer, &arena), &arena, &back));
    assert_memory_equal(&back, &consumer, sizeof back);
}

static void an_event_names_its_stream_and_version(void **state)
{
    (void)state;
    hx_event event;
    hx_error_text error;
    assert_true(hx_event_read(HX_LIT("{\"type\":\"t\",\"data\":1,\"stream\":\"s\",\"expected_version\":0}"), &arena,
                              &event, error));
    assert_int_equal(event.expected_version.len, 1);
    static const char *const wrong[] = {"\"stream\":\"a b\"",
                                        "\"expected_version\":1",
                                        "\"stream\":\"s\",\"expected_version\":-1",
                                        "\"stream\":\"s\",\"expected_version\":\"1\"",
                                        "\"stream\":\"s\",\"expected_version\":1.5",
                                        "\"position\":1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(hx_event_read(hx_arena_printf(&arena, "{\"type\":\"t\",\"data\":1,%s}", wrong[i]), &arena, &event,
                                   error));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(names_are_letters_digits_and_few_signs, tear_down),
        cmocka_unit_test_teardown(keys_are_in_the_order_of_positions, tear_down),
        cmocka_unit_test_teardown(the_first_rule_that_matches_applies, tear_down),
        cmocka_unit_test_teardown(entries_expire_in_their_order, tear_down),
        cmocka_unit_test_teardown(an_acknowledgement_moves_forward_within_the_stream, tear_down),
        cmocka_unit_test_teardown(an_event_names_its_stream_and_version, tear_down),
    };
    return cmocka_run_group_tests_name("sequence", tests, NULL, NULL);
}
