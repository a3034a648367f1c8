/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/filter.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define NOW ((hx_ms)1771502400000) /* 2026-02-19T12:00:00Z */

static const uint8_t secret[HX_SECRET_BYTES] = {1, 2, 3};
static hx_arena arena;
static hx_filter_reader reader;

static int set_up(void **state)
{
    (void)state;
    reader = (hx_filter_reader){.arena = &arena, .mac = hx_mac_new(secret), .now = NOW};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    hx_mac_free(&reader.mac);
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}

static hx_store_page query(const char *text)
{
    hx_store_page page = {.route = HX_EMPTY, .reason = HX_EMPTY, .records_max = HX_FILTER_LIMIT};
    const char *wrong = hx_filter_query(&reader, hx_slice_of(text), &page);
    if (wrong) fail_msg("%s: %s", text, wrong);
    return page;
}

static void expect_refused(const char *text, const char *part)
{
    hx_store_page page = {.route = HX_EMPTY, .reason = HX_EMPTY};
    const char *wrong = hx_filter_query(&reader, hx_slice_of(text), &page);
    if (!wrong)
        fail_msg("%s was taken", text);
    else if (!strstr(wrong, part))
        fail_msg("%s: \"%s\" has no \"%s\"", text, wrong, part);
}

static void a_query_is_a_page(void **state)
{
    (void)state;
    hx_store_page page =
        query("state=unknown,failed&route=POST%20%2Frefunds&reason=DEP&from=2h&before=2026-02-19T11:00:00Z"
              "&limit=7&cursor=18446744073709551615");
    assert_int_equal(page.states, 1u << HX_UNKNOWN | 1u << HX_FAILED);
    assert_true(hx_slice_eq(page.route, HX_LIT("POST /refunds")));
    assert_true(hx_slice_eq(page.reason, HX_LIT("DEP")));
    assert_int_equal(page.changed_from, NOW - 2 * HX_HOUR);
    assert_int_equal(page.changed_before, NOW - HX_HOUR);
    assert_int_equal(page.records_max, 7);
    assert_true(page.cursor == UINT64_MAX);
    assert_false(page.has_key);
    assert_true(hx_filter_narrows(&page));
}

static void states_have_the_words_of_other_documents_too(void **state)
{
    (void)state;
    hx_store_page page = query("state=pending,complete");
    assert_int_equal(page.states, 1u << HX_PROCESSING | 1u << HX_COMPLETED);
}

static void nothing_asked_leaves_nothing_out(void **state)
{
    (void)state;
    const char *const texts[] = {"", "&&", "limit=5", "cursor=3"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        hx_store_page page = query(texts[i]);
        assert_false(hx_filter_narrows(&page));
    }
    const char *const narrow[] = {"state=expired", "route=r", "reason=r", "from=1s", "before=1s", "key=k"};
    for (size_t i = 0; i < sizeof narrow / sizeof narrow[0]; i++) {
        hx_store_page page = query(narrow[i]);
        assert_true(hx_filter_narrows(&page));
    }
}

static void a_key_is_found_by_its_mac(void **state)
{
    (void)state;
    hx_mac_begin(reader.mac, 'k');
    hx_mac_part(reader.mac, HX_LIT("order-1"));
    hx_digest expected = hx_mac_end(reader.mac);
    hx_store_page bare = query("key=order-1"), quoted = query("key=%22order-1%22"), other = query("key=order-2");
    assert_true(bare.has_key && quoted.has_key);
    assert_true(hx_digest_eq(&bare.key, &expected));
    assert_true(hx_digest_eq(&quoted.key, &expected));
    assert_false(hx_digest_eq(&other.key, &expected));
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    expect_refused("state=lost", "\"lost\"");
    expect_refused("state=", "state must");
    expect_refused("state=unknown,,failed", "state must");
    expect_refused("state=absent", "\"absent\"");
    expect_refused("from=yesterday", "from must");
    expect_refused("before=", "before must");
    expect_refused("limit=0", "limit");
    expect_refused("limit=1001", "limit");
    expect_refused("limit=-1", "limit");
    expect_refused("cursor=x", "cursor");
    expect_refused("stat=unknown", "no filter \"stat\"");
    expect_refused("route=", "route");
    expect_refused("route=%4", "escape");
    expect_refused("route=%zz", "escape");
    expect_refused("key=a%20b", "key");
    expect_refused("key", "key");
    expect_refused("state=unknown&state=failed", "\"state\" is given twice");
    expect_refused("route=a&limit=3&route=a", "\"route\" is given twice");
    expect_refused("reason=a&reason=b", "twice");
    expect_refused("from=1h&from=2h", "twice");
    expect_refused("before=1970-01-01T00:00:00Z&before=2h", "twice");
    expect_refused("key=a&key=b", "twice");
    char lengthy[400] = "route=";
    memset(lengthy + 6, 'x', HX_RECORD_TEXT_MAX + 1);
    expect_refused(lengthy, "255");
}

/* 0 in a page means that nothing is left out, which is the opposite. */
static void before_the_first_moment_there_is_nothing(void **state)
{
    (void)state;
    hx_store_page first = query("state=unknown&before=1970-01-01T00:00:00Z");
    assert_int_equal(first.changed_before, 1);
    hx_store_page earlier = query("before=1970-01-01T00:00:00%2B01:00&from=1970-01-01T00:00:00%2B01:00");
    assert_int_equal(earlier.changed_before, 1);
    assert_int_equal(earlier.changed_from, 1);
}

static void a_filter_object_has_the_same_words(void **state)
{
    (void)state;
    hx_store_page page = {.route = HX_EMPTY, .reason = HX_EMPTY};
    const char *wrong = hx_filter_json(&reader,
                                       HX_LIT("{\"state\":\"unknown\", \"route\":\"a\\u0062\",\"from\":\"30m\"}"),
                                       &page);
    assert_null(wrong);
    assert_int_equal(page.states, 1u << HX_UNKNOWN);
    assert_true(hx_slice_eq(page.route, HX_LIT("ab")));
    assert_int_equal(page.changed_from, NOW - 30 * HX_MINUTE);
    page = (hx_store_page){.route = HX_EMPTY, .reason = HX_EMPTY};
    assert_non_null(hx_filter_json(&reader, HX_LIT("{\"route\":\"a\",\"route\":\"b\"}"), &page));
    page = (hx_store_page){.route = HX_EMPTY, .reason = HX_EMPTY};
    assert_non_null(hx_filter_json(&reader, HX_LIT("{\"state\":4}"), &page));
    assert_non_null(hx_filter_json(&reader, HX_LIT("{\"limit\":\"4\"}"), &page));
    assert_non_null(hx_filter_json(&reader, HX_LIT("[\"state\"]"), &page));
}

static void times_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        hx_ms at;
    } good[] = {
        {"2026-02-19T12:00:00Z", NOW},
        {"2026-02-19t12:00:00.25z", NOW + 250},
        {"2026-02-19 12:00:00.123999Z", NOW + 123},
        {"2026-02-19T14:00:00+02:00", NOW},
        {"2026-02-19T06:30:00-05:30", NOW},
        {"1970-01-01T00:00:01Z", 1000},
        {"2024-02-29T00:00:00Z", 1709164800000},
        {"2000-12-31T23:59:59Z", 978307199000},
        {"90s", NOW - 90 * HX_SECOND},
        {"30m", NOW - 30 * HX_MINUTE},
        {"7d", NOW - 7 * HX_DAY},
        {"36500d", 1},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        hx_ms at = 0;
        if (!hx_filter_time(hx_slice_of(good[i].text), NOW, &at)) fail_msg("%s was refused", good[i].text);
        if (at != good[i].at) fail_msg("%s is %lld", good[i].text, (long long)at);
    }
    static const char *const bad[] = {"",
                                      "h",
                                      "2",
                                      "2w",
                                      "-2h",
                                      "99999999999999999999s",
                                      "99999999d",
                                      "2026-02-19",
                                      "2026-02-19T12:00:00",
                                      "2026-02-30T12:00:00Z",
                                      "2025-02-29T12:00:00Z",
                                      "2026-04-31T12:00:00Z",
                                      "2026-13-01T12:00:00Z",
                                      "2026-00-01T12:00:00Z",
                                      "2026-02-19T24:00:00Z",
                                      "2026-02-19T12:00:00.Z",
                                      "2026-02-19T12:00:00Zx",
                                      "2026-02-19T12:00:00+2:00",
                                      "1969-12-31T23:59:59Z"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        hx_ms at;
        if (hx_filter_time(hx_slice_of(bad[i]), NOW, &at)) fail_msg("%s was taken", bad[i]);
    }
}

/* Our own way of writing times and this way of reading them agree, on every day of four centuries. */
static void written_times_are_read_back(void **state)
{
    (void)state;
    for (hx_ms day = 0; day < 400 * 366; day += 1) {
        char text[HX_RFC3339_BYTES];
        hx_ms at = day * HX_DAY + (day * 7919) % HX_DAY, read = -1;
        hx_slice written = hx_rfc3339(at, text);
        if (!hx_filter_time(written, NOW, &read) || read != at) fail_msg("%.*s", HX_FMT(written));
    }
}

static void an_id_has_32_digits(void **state)
{
    (void)state;
    hx_op op;
    assert_true(hx_op_read(HX_LIT("00112233445566778899aabbccddeeFF"), &op));
    assert_int_equal(op.bytes[0], 0);
    assert_int_equal(op.bytes[10], 0xaa);
    assert_int_equal(op.bytes[15], 0xff);
    assert_false(hx_op_read(HX_LIT("00112233445566778899aabbccddeef"), &op));
    assert_false(hx_op_read(HX_LIT("00112233445566778899aabbccddeefg"), &op));
    assert_false(hx_op_read(HX_LIT("00112233445566778899aabbccddeeff0"), &op));
    assert_false(hx_op_read(HX_EMPTY, &op));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_query_is_a_page),
        cmocka_unit_test(states_have_the_words_of_other_documents_too),
        cmocka_unit_test(nothing_asked_leaves_nothing_out),
        cmocka_unit_test(a_key_is_found_by_its_mac),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(before_the_first_moment_there_is_nothing),
        cmocka_unit_test(a_filter_object_has_the_same_words),
        cmocka_unit_test(times_are_read),
        cmocka_unit_test(written_times_are_read_back),
        cmocka_unit_test(an_id_has_32_digits),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
