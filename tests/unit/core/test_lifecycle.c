/* SPDX-License-Identifier: Apache-2.0 */
/* Contract §2 and §3 as tables. */
#include "core/operation/lifecycle.h"

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
        hx_policy policy = {.on_duplicate = f->on_duplicate};
        hx_claimant claimant = {.fingerprint = digest(f->same_request ? 1 : 9), .proof = digest(f->same_proof ? 2 : 9)};
        assert_int_equal(hx_lifecycle_decide(&found, &claimant, &policy), f->expected);
        policy.on_failed_reject = true; /* for failed ones only, whatever duplicates of completed ones get */
        hx_decision expected = f->state == HX_FAILED ? HX_DECIDE_FAILED_BEFORE : f->expected;
        assert_int_equal(hx_lifecycle_decide(&found, &claimant, &policy), expected);
    }
    hx_record unreadable = {.state = HX_UNKNOWN};
    hx_claimant someone = {.fingerprint = digest(1), .proof = digest(2)};
    assert_int_equal(hx_lifecycle_decide(&unreadable, &someone, NULL), HX_DECIDE_UNKNOWN);
    hx_claimant anyone = {.fingerprint = digest(1), .proof = digest(2)};
    assert_int_equal(hx_lifecycle_decide(NULL, &anyone, NULL), HX_DECIDE_CLAIM);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_meets_the_fate_that_the_contract_gives_it),
        cmocka_unit_test(only_processing_and_unknown_can_be_settled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
