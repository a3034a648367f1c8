/* SPDX-License-Identifier: Apache-2.0 */
/* What an application wrote into the store as its answer goes out as an answer of its own would: nothing in it can
 * break the framing, speak in our name or be meant for one client only. And what counts as a mark. */
#include "gateway/parts/transactional.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

typedef struct {
    hx_arena arena;
    hx_policy policy;
    hx_request request;
} fixture;

static fixture f;

static int set_up(void **state)
{
    (void)state;
    memset(&f, 0, sizeof f);
    f.policy = hx_policy_default();
    f.policy.guarantee = HX_GUARANTEE_TRANSACTIONAL;
    f.request.policy = &f.policy;
    f.request.arena = &f.arena;
    f.request.operation = HX_OPERATION_CLAIMED;
    f.request.record = (hx_record){.epoch = 7, .state = HX_PROCESSING};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    hx_arena_free(&f.arena);
    return 0;
}

static void assert_lines(const char *written, const char *expected)
{
    hx_record found = {
        .state = HX_COMPLETED,
        .epoch = 7,
        .changed_at = INT64_C(784111777000),
        .answer = {.status = 201, .retained = true, .headers = hx_slice_of(written), .body = HX_LIT("x")}};
    hx_answer answer = hx_mark_answer(&f.request, &found);
    if (!hx_slice_eq(answer.headers, hx_slice_of(expected)))
        fail_msg("\"%s\" becomes \"%.*s\"", written, HX_FMT(answer.headers));
    assert_int_equal(answer.status, 201);
    assert_true(hx_slice_eq(answer.body, HX_LIT("x")));
}

#define DATE "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"

static void what_is_an_answers_stays(void **state)
{
    (void)state;
    assert_lines("", DATE);
    assert_lines("Content-Type: text/plain\r\nX-A: 1\r\nX-A: 2\r\n",
                 "Content-Type: text/plain\r\nX-A: 1\r\nX-A: 2\r\n" DATE);
    assert_lines("Date: Mon, 07 Nov 1994 08:49:37 GMT\r\nX-A:1\r\n",
                 "Date: Mon, 07 Nov 1994 08:49:37 GMT\r\nX-A: 1\r\n");
    assert_lines("X-A: 1\nX-B: 2", "X-A: 1\r\nX-B: 2\r\n" DATE);
}

static void what_is_the_connections_or_ours_goes(void **state)
{
    (void)state;
    assert_lines("Content-Length: 7\r\nX-A: 1\r\n", "X-A: 1\r\n" DATE);
    assert_lines("Transfer-Encoding: chunked\r\nConnection: close\r\nKeep-Alive: 5\r\n", DATE);
    assert_lines("Idempotency-Status: replayed\r\nIdempotent-Replayed: true\r\nError-Code: X\r\n", DATE);
    assert_lines("Hapax-Mode: dev\r\nHapax-Outcome: store\r\nX-A: 1\r\n", "X-A: 1\r\n" DATE);
    assert_lines("Set-Cookie: a=b\r\nX-A: 1\r\n", "X-A: 1\r\n" DATE);
}

static void what_is_no_line_goes(void **state)
{
    (void)state;
    assert_lines("no colon\r\nX-A: 1\r\n: empty\r\nX A: space\r\n", "X-A: 1\r\n" DATE);
    assert_lines("X-A: a\rSet-Cookie: b\r\nX-B: \x01\r\nX-C: \x7f\r\n\r\nX-D: d\r\n", "X-D: d\r\n" DATE);
}

static void other_routes_answers_are_as_they_were_kept(void **state)
{
    (void)state;
    f.policy.guarantee = HX_GUARANTEE_IDEMPOTENT;
    assert_lines("Content-Length: 7\r\nno colon\r\n", "Content-Length: 7\r\nno colon\r\n");
}

static void a_mark_is_settled_under_our_own_epoch(void **state)
{
    (void)state;
    static const hx_state states[] = {HX_ABSENT, HX_PROCESSING, HX_COMPLETED, HX_FAILED, HX_UNKNOWN, HX_EXPIRED};
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        hx_record found = {.state = states[i], .epoch = 7};
        bool is_settled = states[i] == HX_COMPLETED || states[i] == HX_FAILED;
        assert_int_equal(hx_mark_is_ours(&f.request, &found), is_settled);
        found.epoch = 8;
        assert_false(hx_mark_is_ours(&f.request, &found));
    }
    f.policy.guarantee = HX_GUARANTEE_NONE;
    assert_false(hx_mark_is_ours(&f.request, &(hx_record){.state = HX_COMPLETED, .epoch = 7}));
}

static void success_without_a_mark_is_known_by_its_status(void **state)
{
    (void)state;
    f.request.answer_status = 201;
    hx_record found = {.state = HX_UNKNOWN, .answer = {.status = 201}};
    assert_true(hx_slice_eq(hx_mark_missing_reason(&f.request), HX_LIT("answered 201 without its mark")));
    assert_true(hx_mark_is_missing(&f.request, &found));
    found.answer.status = 0;
    assert_false(hx_mark_is_missing(&f.request, &found));
    found.reason = HX_LIT("answered 201 without its mark"); /* a record of before */
    hx_record_hold_by_reason(&found);
    assert_true(hx_mark_is_missing(&f.request, &found));
}

static void a_providers_duplicate_is_not_a_missing_mark(void **state)
{
    (void)state;
    f.policy.provider_duplicate.status = 409;
    hx_record found = {.state = HX_UNKNOWN, .answer = {.status = 409}};
    assert_true(hx_mark_is_of_duplicate(&f.request, &found));
    assert_false(hx_mark_is_missing(&f.request, &found));
    found.answer.status = 201;
    assert_false(hx_mark_is_of_duplicate(&f.request, &found));
    f.policy.guarantee = HX_GUARANTEE_NONE;
    assert_true(hx_mark_is_of_duplicate(&f.request, &found));
    found.answer.status = 0;
    assert_false(hx_mark_is_of_duplicate(&f.request, &found));
}

static void an_error_after_the_application_gave_it_back_is_released(void **state)
{
    (void)state;
    hx_record gone = {.state = HX_ABSENT}, there = {.state = HX_UNKNOWN, .epoch = 7};
    f.request.basis = HX_BASIS_RESPONSE;
    f.request.answer_status = 409;
    f.request.verdict.outcome = HX_OUTCOME_FAILED;
    assert_true(hx_mark_is_withdrawn(&f.request, &gone));
    assert_false(hx_mark_is_withdrawn(&f.request, &there));
    f.request.answer_status = 201;
    f.request.verdict.outcome = HX_OUTCOME_COMPLETED;
    assert_false(hx_mark_is_withdrawn(&f.request, &gone));
    f.request.answer_status = 502;
    f.request.verdict.outcome = HX_OUTCOME_UNKNOWN;
    assert_false(hx_mark_is_withdrawn(&f.request, &gone));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_an_answers_stays),
        TEST(what_is_the_connections_or_ours_goes),
        TEST(what_is_no_line_goes),
        TEST(other_routes_answers_are_as_they_were_kept),
        TEST(a_mark_is_settled_under_our_own_epoch),
        TEST(success_without_a_mark_is_known_by_its_status),
        TEST(a_providers_duplicate_is_not_a_missing_mark),
        TEST(an_error_after_the_application_gave_it_back_is_released),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
