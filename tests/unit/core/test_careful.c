/* SPDX-License-Identifier: Apache-2.0 */
/* What a careful client makes of the results of its attempts, for every sequence of them: it never calls a request done
 * or refused that may be neither, and never repeats what it must not. */
#include "core/retry/careful.h"

#include "base/rand.h"
#include "core/retry/request_timeout.h"
#include "core/retry/retry_after.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#define RUNS 200000

static hx_careful_result with_status(unsigned status)
{
    return (hx_careful_result){.status = status,
                               .idempotency_status = HX_EMPTY,
                               .error_code = HX_EMPTY,
                               .retry_after = HX_RETRY_AFTER_NONE};
}

static hx_careful_state first_attempt(const char *method, bool has_key)
{
    return (hx_careful_state){.method = hx_slice_of(method),
                              .has_key = has_key,
                              .attempts = 1,
                              .key_ends_at = HX_DAY,
                              .client_left = HX_TIMEOUT_NONE};
}

static hx_careful_answer ask(const hx_careful_state *state, const hx_careful_result *result, hx_ms now)
{
    hx_retry_policy policy = hx_retry_policy_of_class(HX_CLASS_USER);
    return hx_careful_next(&policy, state, result, now, 7);
}

static void statuses_mean_what_they_say(void **unused)
{
    const struct {
        unsigned status;
        hx_careful_verdict verdict;
        bool in_doubt;
    } rows[] = {{200, HX_CAREFUL_DONE, false},    {201, HX_CAREFUL_DONE, false},    {204, HX_CAREFUL_DONE, false},
                {303, HX_CAREFUL_DONE, false},    {301, HX_CAREFUL_REFUSED, false}, {308, HX_CAREFUL_REFUSED, false},
                {400, HX_CAREFUL_REFUSED, false}, {404, HX_CAREFUL_REFUSED, false}, {409, HX_CAREFUL_REFUSED, false},
                {422, HX_CAREFUL_REFUSED, false}, {408, HX_CAREFUL_AGAIN, false},   {429, HX_CAREFUL_AGAIN, false},
                {500, HX_CAREFUL_AGAIN, true},    {502, HX_CAREFUL_AGAIN, true},    {503, HX_CAREFUL_AGAIN, true},
                {504, HX_CAREFUL_AGAIN, true},    {0, HX_CAREFUL_AGAIN, true}};
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        hx_careful_state state = first_attempt("POST", true);
        hx_careful_result result = with_status(rows[i].status);
        hx_careful_answer answer = ask(&state, &result, 10);
        assert_int_equal(answer.verdict, rows[i].verdict);
        assert_int_equal(answer.in_doubt, rows[i].in_doubt);
        assert_true(answer.verdict == HX_CAREFUL_AGAIN || answer.delay == 0);
    }
}

static void a_503_that_names_a_time_was_not_executed(void **unused)
{
    (void)unused;
    hx_careful_state state = first_attempt("POST", true);
    hx_careful_result result = with_status(503);
    result.retry_after = HX_SECOND;
    hx_careful_answer answer = ask(&state, &result, 10);
    assert_int_equal(answer.verdict, HX_CAREFUL_AGAIN);
    assert_false(answer.in_doubt);
    assert_true(answer.delay >= HX_SECOND);
}

static void nothing_is_sent_when_the_key_may_be_forgotten(void **unused)
{
    (void)unused;
    hx_careful_state state = first_attempt("POST", true);
    hx_careful_result result = with_status(500);
    state.key_ends_at = 20;
    assert_int_equal(ask(&state, &result, 10).verdict, HX_CAREFUL_UNKNOWN);
}

/* Random results of random attempts. `happened` is what an observer at the server would know: an attempt that was sent
 * may have been executed unless its result proves that it wasn't. */
static void no_sequence_of_results_makes_it_lie(void **unused)
{
    static const unsigned statuses[] = {0, 200, 201, 303, 400, 401, 404, 408, 409, 422, 429, 500, 502, 503, 504};
    static const char *const marks[] = {"", "", "", "stored", "replayed", "released", "unknown"};
    (void)unused;
    hx_rand_seed(1);
    for (int run = 0; run < RUNS; run++) {
        bool has_key = hx_rand_below(4) > 0;
        hx_careful_state state = first_attempt(hx_rand_below(2) ? "POST" : "PUT", has_key);
        for (;; state.attempts++) {
            hx_careful_result result = with_status(statuses[hx_rand_below(sizeof statuses / sizeof statuses[0])]);
            result.nothing_sent = result.status == 0 && hx_rand_below(2);
            if (result.status > 0)
                result.idempotency_status = hx_slice_of(marks[hx_rand_below(sizeof marks / sizeof marks[0])]);
            bool was_in_doubt = state.in_doubt;
            bool is_final = hx_slice_eq(result.idempotency_status, HX_LIT("stored")) ||
                            hx_slice_eq(result.idempotency_status, HX_LIT("replayed"));
            hx_careful_answer answer = ask(&state, &result, 10);
            if (answer.verdict == HX_CAREFUL_REFUSED) assert_true(is_final || !was_in_doubt);
            if (answer.verdict == HX_CAREFUL_EXHAUSTED) assert_false(was_in_doubt);
            if (answer.verdict == HX_CAREFUL_DONE) assert_true(result.status >= 200 && result.status < 304);
            if (answer.verdict == HX_CAREFUL_AGAIN && !has_key && answer.in_doubt)
                assert_true(hx_careful_is_repeatable(state.method));
            if (answer.verdict != HX_CAREFUL_AGAIN) break;
            assert_true(state.attempts < 4);
            assert_true(answer.in_doubt || !was_in_doubt); /* a doubt stays until an outcome */
            state.in_doubt = answer.in_doubt;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_mean_what_they_say),
        cmocka_unit_test(a_503_that_names_a_time_was_not_executed),
        cmocka_unit_test(nothing_is_sent_when_the_key_may_be_forgotten),
        cmocka_unit_test(no_sequence_of_results_makes_it_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
