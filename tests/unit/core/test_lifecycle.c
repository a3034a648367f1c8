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
    hx_record unreadable = {.state = HX_UNKNOWN, .unreadable = true};
    hx_claimant someone = {.fingerprint = digest(1), .proof = digest(2)};
    assert_int_equal(hx_lifecycle_decide(&unreadable, &someone, NULL), HX_DECIDE_UNKNOWN);
    hx_claimant anyone = {.fingerprint = digest(1), .proof = digest(2)};
    assert_int_equal(hx_lifecycle_decide(NULL, &anyone, NULL), HX_DECIDE_CLAIM);
}

enum { W = HX_TRANSITION_WRITE, E = HX_TRANSITION_EXISTS, S = HX_TRANSITION_STALE };
#define EPOCH 7u
#define STATES (HX_EXPIRED + 1)

/* A row per call, a column per state of what the store has, in epoch 7. */
static void an_answer_is_shown_to_its_principal_or_to_its_credential(void **state)
{
    (void)state;
    const hx_record found = {.state = HX_COMPLETED, .created_at = 1, .principal = digest(3), .proof = digest(2)};
    for (int bits = 0; bits < 8; bits++) {
        bool is_verified = bits & 1, same_principal = bits & 2, same_proof = bits & 4;
        hx_claimant claimant = {.verified = is_verified,
                                .principal = digest(same_principal ? 3 : 9),
                                .proof = digest(same_proof ? 2 : 9)};
        assert_int_equal(hx_lifecycle_is_proven(&found, &claimant), same_proof || (is_verified && same_principal));
    }
}

static void every_call_is_decided_by_state_and_epoch(void **state)
{
    (void)state;
    static const struct {
        enum { CLAIM, SETTLE, RENEW, FORGET, IMPORT } call;
        uint64_t epoch;  /* of the call; of a claim: to take over */
        unsigned states; /* forget: as bits; settle: the end */
        int expected[STATES];
    } rows[] = {
        /*                                absent processing completed failed unknown expired */
        {CLAIM, 0, 0, {W, E, E, E, E, E}},
        {CLAIM, EPOCH, 0, {S, E, E, E, W, E}},
        {CLAIM, EPOCH + 1, 0, {S, E, E, E, E, E}},
        {SETTLE, EPOCH, HX_COMPLETED, {S, W, S, S, W, S}},
        {SETTLE, EPOCH, HX_FAILED, {S, W, S, S, W, S}},
        {SETTLE, EPOCH, HX_ABSENT, {S, W, S, S, W, S}},
        {SETTLE, EPOCH, HX_UNKNOWN, {S, W, S, S, S, S}},
        {SETTLE, EPOCH, HX_PROCESSING, {S, S, S, S, S, S}},
        {SETTLE, EPOCH, HX_EXPIRED, {S, S, S, S, S, S}},
        {SETTLE, EPOCH - 1, HX_COMPLETED, {S, S, S, S, S, S}},
        {SETTLE, EPOCH + 1, HX_COMPLETED, {S, S, S, S, S, S}},
        {SETTLE, 0, HX_ABSENT, {S, S, S, S, S, S}},
        {RENEW, EPOCH, 0, {S, W, S, S, S, S}},
        {RENEW, EPOCH - 1, 0, {S, S, S, S, S, S}},
        {RENEW, 0, 0, {S, S, S, S, S, S}},
        {FORGET, 0, 0, {S, S, W, W, W, W}},
        {FORGET, EPOCH, 0, {S, S, W, W, W, W}},
        {FORGET, EPOCH + 1, 0, {S, S, S, S, S, S}},
        {FORGET, EPOCH, 1u << HX_UNKNOWN, {S, S, S, S, W, S}},
        {FORGET, 0, 1u << HX_COMPLETED | 1u << HX_FAILED, {S, S, W, W, S, S}},
        {FORGET, 0, 1u << HX_PROCESSING | 1u << HX_ABSENT, {S, S, S, S, S, S}},
        {IMPORT, 0, 0, {W, E, E, E, E, E}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (hx_state s = HX_ABSENT; s < STATES; s++) {
            hx_stored stored = {s, s == HX_ABSENT ? 0 : EPOCH};
            hx_transition found = HX_TRANSITION_WRITE;
            switch (rows[i].call) {
            case CLAIM: found = hx_lifecycle_claim(stored, rows[i].epoch); break;
            case SETTLE: found = hx_lifecycle_settle(stored, rows[i].epoch, (hx_state)rows[i].states); break;
            case RENEW: found = hx_lifecycle_renew(stored, rows[i].epoch); break;
            case FORGET: found = hx_lifecycle_forget(stored, rows[i].epoch, rows[i].states); break;
            case IMPORT: found = hx_lifecycle_import(stored); break;
            }
            if ((int)found != rows[i].expected[s]) print_message("row %zu, %s\n", i, hx_state_name(s));
            assert_int_equal(found, rows[i].expected[s]);
        }
    }
}

/* Leases and lifetimes end at 10 s, tombstones at 20 s. */
static void time_changes_what_it_may(void **state)
{
    (void)state;
    static const struct {
        hx_ms now, held;
        hx_state by_sweep[STATES];
    } rows[] = {
        {9999, 0, {HX_ABSENT, HX_PROCESSING, HX_COMPLETED, HX_FAILED, HX_UNKNOWN, HX_EXPIRED}},
        {10000, 0, {HX_ABSENT, HX_UNKNOWN, HX_EXPIRED, HX_EXPIRED, HX_UNKNOWN, HX_EXPIRED}},
        {10000, 1, {HX_ABSENT, HX_UNKNOWN, HX_COMPLETED, HX_FAILED, HX_UNKNOWN, HX_EXPIRED}},
        {19999, 0, {HX_ABSENT, HX_UNKNOWN, HX_EXPIRED, HX_EXPIRED, HX_UNKNOWN, HX_EXPIRED}},
        {20000, 0, {HX_ABSENT, HX_UNKNOWN, HX_ABSENT, HX_ABSENT, HX_UNKNOWN, HX_ABSENT}},
        {20000, 1, {HX_ABSENT, HX_UNKNOWN, HX_EXPIRED, HX_EXPIRED, HX_UNKNOWN, HX_EXPIRED}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (hx_state s = HX_ABSENT; s < STATES; s++) {
            hx_record record = {.state = s, .lease_until = 10000, .expires_at = 9001, .tombstone_until = 19001};
            hx_ms now = rows[i].now, held = rows[i].held;
            assert_int_equal(hx_lifecycle_lapse(&record, now, held), rows[i].by_sweep[s]);
            if (s != HX_PROCESSING) assert_int_equal(hx_lifecycle_state_at(&record, now - held), rows[i].by_sweep[s]);
        }
    }
    hx_record no_lease = {.state = HX_PROCESSING};
    assert_int_equal(hx_lifecycle_lapse(&no_lease, 10000, 0), HX_PROCESSING);
    assert_int_equal(hx_lifecycle_state_at(&no_lease, 10000), HX_PROCESSING);
    hx_record last_moment = {.state = HX_COMPLETED, .expires_at = INT64_MAX}, first_moment = {.state = HX_FAILED};
    assert_int_equal(hx_lifecycle_state_at(&last_moment, 10000), HX_COMPLETED);
    first_moment.expires_at = INT64_MIN;
    assert_int_equal(hx_lifecycle_state_at(&first_moment, 10000), HX_ABSENT);
}

static void a_tombstone_begins_where_the_lifetime_ends(void **state)
{
    (void)state;
    for (hx_state to = HX_ABSENT; to <= HX_EXPIRED; to++) {
        bool ends = to == HX_COMPLETED || to == HX_FAILED;
        hx_record record = {.state = to, .changed_at = 1000, .lease_until = 7};
        hx_lifecycle_end_after(&record, 500, 30);
        assert_int_equal(record.lease_until, 0);
        assert_int_equal(record.expires_at, ends ? 1500 : 0);
        assert_int_equal(record.tombstone_until, ends ? 1530 : 0);
        hx_lifecycle_end_after(&record, 500, 0);
        assert_int_equal(record.tombstone_until, 0);
    }
}

static void a_change_without_a_caller_keeps_what_identifies_the_operation(void **state)
{
    (void)state;
    for (hx_state from = HX_ABSENT; from < STATES; from++) {
        for (hx_state to = HX_ABSENT; to < STATES; to++) {
            hx_record record = {.state = from,
                                .epoch = EPOCH,
                                .created_at = 1,
                                .changed_at = 2,
                                .lease_until = 3,
                                .expires_at = 4,
                                .tombstone_until = 5,
                                .answer = {.status = 200, .retained = true}};
            hx_lifecycle_change(&record, to, HX_LIT("lease"), 9);
            assert_int_equal(record.from_state, from);
            assert_int_equal(record.state, to);
            assert_int_equal(record.epoch, EPOCH);
            assert_int_equal(record.created_at, 1);
            assert_int_equal(record.changed_at, 9);
            assert_int_equal(record.lease_until, 0);
            assert_int_equal(record.expires_at, to == HX_EXPIRED ? 4 : 0);
            assert_int_equal(record.tombstone_until, to == HX_EXPIRED ? 5 : 0);
            assert_int_equal(record.answer.status, to == HX_EXPIRED ? 0 : 200);
            assert_true(hx_slice_eq(record.reason, HX_LIT("lease")));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_meets_the_fate_that_the_contract_gives_it),
        cmocka_unit_test(an_answer_is_shown_to_its_principal_or_to_its_credential),
        cmocka_unit_test(every_call_is_decided_by_state_and_epoch),
        cmocka_unit_test(time_changes_what_it_may),
        cmocka_unit_test(a_tombstone_begins_where_the_lifetime_ends),
        cmocka_unit_test(a_change_without_a_caller_keeps_what_identifies_the_operation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
