/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/operator_act.h"
#include "admin/routes.h"

#include <stdarg.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#define NOW ((hx_ms)1771502400000) /* 2026-02-19T12:00:00Z */
#define DATE "Date: Thu, 19 Feb 2026 12:00:00 GMT\r\n"

static hx_arena arena;

static int tear_down(void **state)
{
    (void)state;
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}

static hx_operator_act read_act(hx_operator_act act, const char *text)
{
    const char *wrong = hx_operator_act_read(&act, hx_slice_of(text), &arena, NOW);
    if (wrong) fail_msg("%s: %s", text, wrong);
    return act;
}

static void expect_refused(hx_operator_act act, const char *text, const char *part)
{
    const char *wrong = hx_operator_act_read(&act, hx_slice_of(text), &arena, NOW);
    if (!wrong)
        fail_msg("%s was taken", text);
    else if (!strstr(wrong, part))
        fail_msg("%s: \"%s\" has no \"%s\"", text, wrong, part);
}

static const hx_operator_act resolve = {.kind = HX_OPERATOR_ACT_RESOLVE}, forget = {.kind = HX_OPERATOR_ACT_FORGET};
static const hx_operator_act resolve_many = {.kind = HX_OPERATOR_ACT_RESOLVE, .is_bulk = true};
static const hx_operator_act forget_many = {.kind = HX_OPERATOR_ACT_FORGET, .is_bulk = true};

static void a_completed_one_has_its_answer(void **state)
{
    (void)state;
    hx_operator_act act =
        read_act(resolve, "{\"outcome\":\"completed\",\"status\":201,\"epoch\":18446744073709551615,"
                          "\"headers\":[\"Location: /refunds/1\",\"X-Two:  b \"],\"body\":\"{\\\"a\\\":\\u00e4}\","
                          "\"why\":\" seen in the ledger \"}");
    assert_int_equal(act.to, HX_COMPLETED);
    assert_int_equal(act.answer.status, 201);
    assert_true(act.answer.retained);
    assert_true(act.epoch == UINT64_MAX);
    assert_true(hx_slice_eq(act.answer.body, HX_LIT("{\"a\":\xc3\xa4}")));
    assert_true(hx_slice_eq(act.answer.headers, HX_LIT("Location: /refunds/1\r\nX-Two: b\r\n"
                                                       "Content-Type: application/json\r\n" DATE)));
    assert_true(hx_slice_eq(act.why, HX_LIT("seen in the ledger")));
}

static void what_is_said_is_not_said_again(void **state)
{
    (void)state;
    hx_operator_act act =
        read_act(resolve, "{\"outcome\":\"failed\",\"status\":422,\"body\":\"no\",\"why\":\"w\","
                          "\"headers\":[\"content-type: text/plain\",\"Date: Thu, 01 Jan 1970 00:00:00 GMT\"]}");
    assert_int_equal(act.to, HX_FAILED);
    assert_true(hx_slice_eq(act.answer.headers,
                            HX_LIT("content-type: text/plain\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n")));
    act = read_act(resolve, "{\"outcome\":\"completed\",\"why\":\"w\"}");
    assert_int_equal(act.answer.status, 200);
    assert_true(hx_slice_eq(act.answer.headers, HX_LIT(DATE))); /* no body, no type */
}

static void a_released_one_has_none(void **state)
{
    (void)state;
    hx_operator_act act = read_act(resolve, "{\"outcome\":\"released\",\"why\":\"not in the ledger\"}");
    assert_int_equal(act.to, HX_ABSENT);
    assert_int_equal(act.answer.status, 0);
    assert_int_equal(act.epoch, 0);
    expect_refused(resolve, "{\"outcome\":\"released\",\"why\":\"w\",\"status\":200}", "no response");
    expect_refused(resolve, "{\"outcome\":\"released\",\"why\":\"w\",\"body\":\"\"}", "no response");
}

static void why_is_compulsory(void **state)
{
    (void)state;
    expect_refused(resolve, "{\"outcome\":\"released\"}", "why is missing");
    expect_refused(forget, "{}", "why is missing");
    expect_refused(forget, "{\"why\":\"  \"}", "empty");
    expect_refused(forget, "{\"why\":5}", "text");
    expect_refused(forget, "{\"why\":\"a\\nb\"}", "control");
    char why[162] = {0};
    memset(why, 'w', sizeof why - 1);
    expect_refused(forget, hx_arena_printf(&arena, "{\"why\":\"%s\"}", why).ptr, "160 bytes");
    expect_refused(forget_many, "{\"filter\":{},\"preview\":false}", "why is missing");
    hx_operator_act act = read_act(forget_many, "{\"filter\":{\"state\":\"failed\"},\"preview\":true}");
    assert_true(act.preview);
    assert_true(hx_slice_eq(act.filter, HX_LIT("{\"state\":\"failed\"}")));
}

static void bad_answers_are_refused(void **state)
{
    (void)state;
    expect_refused(resolve, "{\"outcome\":\"done\",\"why\":\"w\"}", "outcome");
    expect_refused(resolve, "{\"why\":\"w\"}", "outcome");
    expect_refused(resolve, "{\"outcome\":\"completed\",\"why\":\"w\",\"status\":404}", "200 to 299");
    expect_refused(resolve, "{\"outcome\":\"completed\",\"why\":\"w\",\"status\":304}", "200 to 299");
    expect_refused(resolve, "{\"outcome\":\"completed\",\"why\":\"w\",\"status\":\"201\"}", "number");
    expect_refused(resolve, "{\"outcome\":\"completed\",\"why\":\"w\",\"status\":100}", "200 to 299");
    expect_refused(resolve, "{\"outcome\":\"completed\",\"why\":\"w\",\"status\":65736}", "200 to 299");
    expect_refused(resolve, "{\"outcome\":\"failed\",\"why\":\"w\",\"status\":200}", "400 to 599");
    expect_refused(resolve, "{\"outcome\":\"failed\",\"why\":\"w\"}", "status is missing");
    expect_refused(resolve, "{\"outcome\":\"completed\",\"why\":\"w\",\"status\":204,\"body\":\"x\"}", "no body");
    expect_refused(resolve, "{\"outcome\":\"completed\",\"why\":\"w\",\"body\":{}}", "body must be text");
    expect_refused(resolve, "{\"outcome\":\"completed\",\"why\":\"w\",\"epoch\":0}", "epoch");
    expect_refused(resolve, "{\"outcome\":\"completed\",\"why\":\"w\",\"epoch\":-1}", "epoch");
    expect_refused(resolve, "{\"outcome\":\"completed\",\"why\":\"w\",\"epoch\":\"1\"}", "epoch");
}

static void headers_that_are_not_kept_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"Content-Length: 5",
                                      "Transfer-Encoding: chunked",
                                      "connection: close",
                                      "Set-Cookie: a=b",
                                      "Idempotency-Status: stored",
                                      "Hapax-Outcome: store",
                                      "Hapax-Mode: dev",
                                      "Error-Code: X",
                                      "NoColon",
                                      ": no name",
                                      "Two words: x",
                                      "A: b\\r\\nSet-Cookie: c",
                                      "A: b\\r\\n",
                                      "A: \\u0000",
                                      "Age: 5"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        hx_slice text = hx_arena_printf(&arena, "{\"outcome\":\"completed\",\"why\":\"w\",\"headers\":[\"%s\"]}",
                                        bad[i]);
        expect_refused(resolve, text.ptr, "header");
    }
    expect_refused(resolve, "{\"outcome\":\"completed\",\"why\":\"w\",\"headers\":{\"A\":\"b\"}}", "list");
    expect_refused(resolve, "{\"outcome\":\"completed\",\"why\":\"w\",\"headers\":[1]}", "list");
    hx_buf many;
    hx_buf_init(&many, &arena, 4096);
    hx_buf_puts(&many, "{\"outcome\":\"completed\",\"why\":\"w\",\"headers\":[\"A: b\"");
    for (int i = 0; i < 100; i++) hx_buf_puts(&many, ",\"A: b\"");
    hx_buf_puts(&many, "]}");
    expect_refused(resolve, hx_arena_terminated(&arena, hx_buf_slice(&many)), "100 or fewer");
}

static void members_that_mean_nothing_are_refused(void **state)
{
    (void)state;
    expect_refused(resolve, "", "object");
    expect_refused(resolve, "[]", "object");
    expect_refused(resolve, "{\"outcome\":", "object");
    expect_refused(resolve, "{\"outcome\":\"released\",\"why\":\"w\",\"epok\":4}", "\"epok\"");
    expect_refused(resolve, "{\"outcome\":\"released\",\"why\":\"w\",\"why\":\"x\"}", "twice");
    expect_refused(resolve, "{\"outcome\":\"released\",\"why\":\"w\",\"preview\":true}", "\"preview\"");
    expect_refused(resolve, "{\"outcome\":\"released\",\"why\":\"w\",\"filter\":{}}", "\"filter\"");
    expect_refused(forget, "{\"outcome\":\"released\",\"why\":\"w\"}", "\"outcome\"");
    expect_refused(resolve_many, "{\"outcome\":\"released\",\"why\":\"w\",\"epoch\":4}", "\"epoch\"");
    expect_refused(resolve_many, "{\"outcome\":\"released\",\"preview\":1}", "preview");
}

static void the_reason_says_who_and_why(void **state)
{
    (void)state;
    hx_admin_caller who = {.kind = HX_ADMIN_CALLER_USER, .name = HX_LIT("alice"), .uid = 1000};
    hx_slice reason = hx_operator_act_reason(hx_admin_caller_text(&who, &arena), HX_LIT("in the ledger"), &arena);
    assert_true(hx_slice_eq(reason, HX_LIT("operator alice (uid 1000): in the ledger")));
    who = (hx_admin_caller){.kind = HX_ADMIN_CALLER_TOKEN, .name = HX_LIT("shop")};
    reason = hx_operator_act_reason(hx_admin_caller_text(&who, &arena), HX_LIT("w"), &arena);
    assert_true(hx_slice_eq(reason, HX_LIT("operator token shop: w")));
    who = (hx_admin_caller){.kind = HX_ADMIN_CALLER_USER, .name = HX_EMPTY, .uid = 4294967295u};
    assert_true(hx_slice_eq(hx_admin_caller_text(&who, &arena), HX_LIT("(uid 4294967295)")));
    char name[100], why[160]; /* the longest that are taken, and more of a name */
    memset(name, 'n', sizeof name);
    memset(why, 'w', sizeof why);
    who = (hx_admin_caller){.kind = HX_ADMIN_CALLER_USER, .name = {name, sizeof name}, .uid = 4294967295u};
    assert_true(hx_admin_caller_text(&who, &arena).len <= HX_ADMIN_CALLER_TEXT_MAX);
    reason = hx_operator_act_reason(hx_admin_caller_text(&who, &arena), (hx_slice){why, sizeof why}, &arena);
    assert_true(reason.len <= HX_RECORD_TEXT_MAX);
    assert_memory_equal(reason.ptr + reason.len - sizeof why, why, sizeof why);
}

static void a_resolved_record_lives_as_long_as_its_route_says(void **state)
{
    (void)state;
    hx_policy routes[] = {hx_policy_default(), hx_policy_default()};
    routes[0].name = HX_LIT("refunds");
    routes[0].lifetime = HX_HOUR;
    routes[0].tombstone = HX_DAY;
    routes[1].name = HX_LIT("orders");
    hx_policy_set set = {.routes = routes, .count = 2, .defaults = hx_policy_default()};
    set.defaults.lifetime = HX_MINUTE;
    assert_ptr_equal(hx_operator_act_policy(&set, HX_LIT("refunds")), &routes[0]);
    assert_ptr_equal(hx_operator_act_policy(&set, HX_LIT("orders")), &routes[1]);
    assert_ptr_equal(hx_operator_act_policy(&set, HX_LIT("POST /other")), &set.defaults);

    routes[0].result = HX_LIT("/id");
    hx_operator_act act = read_act(resolve,
                                   "{\"outcome\":\"completed\",\"status\":201,\"body\":\"{\\\"id\\\":\\\"rf_9\\\"}\","
                                   "\"why\":\"w\"}");
    const hx_record unknown = {.state = HX_UNKNOWN,
                               .from_state = HX_PROCESSING,
                               .epoch = 7,
                               .lease_until = 5,
                               .created_at = 3,
                               .changed_at = 4,
                               .route = HX_LIT("refunds")};
    hx_record record = unknown;
    hx_operator_act_resolve(&act, &routes[0], HX_LIT("r"), NOW, &arena, &record);
    assert_int_equal(record.state, HX_COMPLETED);
    assert_int_equal(record.from_state, HX_UNKNOWN);
    assert_int_equal(record.changed_at, NOW);
    assert_int_equal(record.created_at, 3);
    assert_int_equal(record.expires_at, NOW + HX_HOUR);
    assert_int_equal(record.tombstone_until, NOW + HX_HOUR + HX_DAY);
    assert_int_equal(record.lease_until, 0);
    assert_int_equal(record.epoch, 7);
    assert_int_equal(record.answer.status, 201);
    assert_true(hx_slice_eq(record.result, HX_LIT("rf_9")));
    record = unknown;
    act = read_act(resolve, "{\"outcome\":\"released\",\"why\":\"w\"}");
    hx_operator_act_resolve(&act, &routes[0], HX_LIT("r"), NOW, &arena, &record);
    assert_int_equal(record.state, HX_ABSENT);
    assert_int_equal(record.expires_at, 0);
    assert_int_equal(record.tombstone_until, 0);
    assert_int_equal(record.answer.status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_completed_one_has_its_answer),
        cmocka_unit_test(what_is_said_is_not_said_again),
        cmocka_unit_test(a_released_one_has_none),
        cmocka_unit_test(why_is_compulsory),
        cmocka_unit_test(bad_answers_are_refused),
        cmocka_unit_test(headers_that_are_not_kept_are_refused),
        cmocka_unit_test(members_that_mean_nothing_are_refused),
        cmocka_unit_test(the_reason_says_who_and_why),
        cmocka_unit_test(a_resolved_record_lives_as_long_as_its_route_says),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
