/* SPDX-License-Identifier: Apache-2.0 */
/* Contract §2, §3 and §5 as tables. */
#include "core/lifecycle.h"
#include "core/outcome.h"

#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static hx_digest digest(uint8_t fill)
{
    hx_digest d = {{fill}};
    return d;
}

typedef struct {
    hx_state state;
    bool same_request, same_proof, retained;
    hx_on_duplicate on_duplicate;
    hx_decision expected;
} fate;

static void a_request_meets_the_fate_that_the_contract_gives_it(void **state)
{
    (void)state;
    const fate fates[] = {
        {HX_ABSENT, true, true, true, HX_DUPLICATE_REPLAY, HX_DECIDE_CLAIM},
        {HX_COMPLETED, true, true, true, HX_DUPLICATE_REPLAY, HX_DECIDE_REPLAY},
        {HX_COMPLETED, true, true, true, HX_DUPLICATE_REJECT, HX_DECIDE_REJECT},
        {HX_COMPLETED, true, true, true, HX_DUPLICATE_NOOP, HX_DECIDE_NOOP},
        {HX_COMPLETED, true, true, false, HX_DUPLICATE_REPLAY, HX_DECIDE_NOT_RETAINED},
        {HX_COMPLETED, false, true, true, HX_DUPLICATE_REPLAY, HX_DECIDE_MISMATCH},
        {HX_COMPLETED, true, false, true, HX_DUPLICATE_REPLAY, HX_DECIDE_NOT_AUTHORIZED},
        {HX_COMPLETED, false, false, true, HX_DUPLICATE_REPLAY, HX_DECIDE_NOT_AUTHORIZED},
        {HX_FAILED, true, true, true, HX_DUPLICATE_REPLAY, HX_DECIDE_REPLAY},
        {HX_FAILED, true, true, true, HX_DUPLICATE_REJECT, HX_DECIDE_REPLAY}, /* only completed ones are rejected */
        {HX_FAILED, true, true, true, HX_DUPLICATE_NOOP, HX_DECIDE_REPLAY},
        {HX_PROCESSING, true, true, true, HX_DUPLICATE_REPLAY, HX_DECIDE_WAIT},
        {HX_PROCESSING, false, true, true, HX_DUPLICATE_REPLAY, HX_DECIDE_MISMATCH},
        {HX_PROCESSING, true, false, true, HX_DUPLICATE_REPLAY, HX_DECIDE_NOT_AUTHORIZED},
        {HX_UNKNOWN, true, true, true, HX_DUPLICATE_REJECT, HX_DECIDE_UNKNOWN},
        {HX_UNKNOWN, false, true, true, HX_DUPLICATE_REPLAY, HX_DECIDE_MISMATCH},
        {HX_EXPIRED, false, false, false, HX_DUPLICATE_REPLAY, HX_DECIDE_EXPIRED},
    };
    for (size_t i = 0; i < sizeof fates / sizeof fates[0]; i++) {
        const fate *f = &fates[i];
        hx_record found = {.state = f->state, .created_at = 1, .fingerprint = digest(1), .proof = digest(2)};
        found.answer.retained = f->retained;
        hx_claimant claimant = {.fingerprint = digest(f->same_request ? 1 : 9), .proof = digest(f->same_proof ? 2 : 9)};
        assert_int_equal(hx_lifecycle_decide(&found, &claimant, f->on_duplicate), f->expected);
    }
    hx_record unreadable = {.state = HX_UNKNOWN};
    hx_claimant someone = {.fingerprint = digest(1), .proof = digest(2)};
    assert_int_equal(hx_lifecycle_decide(&unreadable, &someone, HX_DUPLICATE_REPLAY), HX_DECIDE_UNKNOWN);
    hx_claimant anyone = {.fingerprint = digest(1), .proof = digest(2)};
    assert_int_equal(hx_lifecycle_decide(NULL, &anyone, HX_DUPLICATE_REPLAY), HX_DECIDE_CLAIM);
}

static void only_processing_and_unknown_can_be_settled(void **state)
{
    (void)state;
    const hx_state ends[] = {HX_COMPLETED, HX_FAILED, HX_ABSENT};
    for (int i = 0; i < 3; i++) {
        assert_true(hx_lifecycle_may_settle(HX_PROCESSING, ends[i]));
        assert_true(hx_lifecycle_may_settle(HX_UNKNOWN, ends[i]));
        assert_false(hx_lifecycle_may_settle(HX_COMPLETED, ends[i]));
        assert_false(hx_lifecycle_may_settle(HX_FAILED, ends[i]));
        assert_false(hx_lifecycle_may_settle(HX_ABSENT, ends[i]));
    }
    assert_true(hx_lifecycle_may_settle(HX_PROCESSING, HX_UNKNOWN));
    assert_false(hx_lifecycle_may_settle(HX_UNKNOWN, HX_UNKNOWN));
    assert_false(hx_lifecycle_may_settle(HX_UNKNOWN, HX_PROCESSING));
}

static hx_outcome of(unsigned status, bool retry_after)
{
    hx_outcome_input answer = {.status = status, .has_retry_after = retry_after};
    return hx_outcome_of_answer(&answer).outcome;
}

static void every_status_means_what_the_table_says(void **state)
{
    (void)state;
    for (unsigned status = 200; status < 300; status++) assert_int_equal(of(status, false), HX_OUTCOME_COMPLETED);
    for (unsigned status = 301; status <= 303; status++) assert_int_equal(of(status, false), HX_OUTCOME_COMPLETED);
    const unsigned released[] = {401, 403, 300, 304, 305, 307, 308};
    for (size_t i = 0; i < 7; i++) assert_int_equal(of(released[i], false), HX_OUTCOME_RELEASED);
    const unsigned not_executed[] = {408, 421, 425, 429};
    for (size_t i = 0; i < 4; i++) assert_int_equal(of(not_executed[i], false), HX_OUTCOME_NOT_EXECUTED);
    assert_int_equal(of(503, true), HX_OUTCOME_NOT_EXECUTED);
    const unsigned unknown[] = {502, 503, 504, 101, 100, 600, 0};
    for (size_t i = 0; i < 7; i++) assert_int_equal(of(unknown[i], false), HX_OUTCOME_UNKNOWN);
    const unsigned failed[] = {400, 402, 404, 405, 409, 412, 422, 423, 451, 500, 501, 505, 599};
    for (size_t i = 0; i < 13; i++) assert_int_equal(of(failed[i], false), HX_OUTCOME_FAILED);
}

static hx_outcome told(unsigned status, const char *text)
{
    hx_outcome_input answer = {.status = status};
    assert_true(hx_outcome_word_parse(hx_slice_of(text), &answer.word));
    return hx_outcome_of_answer(&answer).outcome;
}

static void the_application_may_overrule_but_not_undo_a_success(void **state)
{
    (void)state;
    assert_int_equal(told(422, "release"), HX_OUTCOME_RELEASED);
    assert_int_equal(told(500, "unknown"), HX_OUTCOME_UNKNOWN);
    assert_int_equal(told(200, "unknown"), HX_OUTCOME_UNKNOWN);
    assert_int_equal(told(429, "store"), HX_OUTCOME_FAILED);
    assert_int_equal(told(307, "store"), HX_OUTCOME_COMPLETED);
    assert_int_equal(told(201, "release"), HX_OUTCOME_COMPLETED);
    assert_int_equal(told(101, "store"), HX_OUTCOME_UNKNOWN);
    hx_outcome_word word;
    assert_false(hx_outcome_word_parse(HX_LIT("Release"), &word));
    assert_false(hx_outcome_word_parse(HX_EMPTY, &word));
}

static void silence_is_unknown_once_a_byte_was_sent(void **state)
{
    (void)state;
    assert_int_equal(hx_outcome_of_silence(true, false, HX_GUARANTEE_NONE).outcome, HX_OUTCOME_UNKNOWN);
    assert_int_equal(hx_outcome_of_silence(false, false, HX_GUARANTEE_NONE).outcome, HX_OUTCOME_NOT_EXECUTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_meets_the_fate_that_the_contract_gives_it),
        cmocka_unit_test(only_processing_and_unknown_can_be_settled),
        cmocka_unit_test(every_status_means_what_the_table_says),
        cmocka_unit_test(the_application_may_overrule_but_not_undo_a_success),
        cmocka_unit_test(silence_is_unknown_once_a_byte_was_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
