/* SPDX-License-Identifier: Apache-2.0 */
/* Contract §6, and every row of the retry tables in the five source documents: a test's message names the row. */
#include "core/retry/backoff.h"

#include "base/rand.h"
#include "core/retry/request_timeout.h"
#include "core/retry/retry_after.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#define DRAWS 2000
#define RUNS 20000

static hx_retry_policy policy_with(hx_retry_class class, hx_retry_overrides overrides)
{
    hx_retry_policy policy;
    const char *error = NULL;
    if (!hx_retry_policy_make(class, &overrides, &policy, &error)) fail_msg("%s", error);
    return policy;
}

static hx_retry_answer ask(const hx_retry_policy *policy, unsigned attempts, hx_ms elapsed, uint64_t random)
{
    hx_retry_question question = {.attempts = attempts,
                                  .elapsed = elapsed,
                                  .retry_after = HX_RETRY_AFTER_NONE,
                                  .client_left = HX_TIMEOUT_NONE};
    return hx_retry_next(policy, &question, random);
}

/* After `attempts` failed the delay is anything from `low` to `high`: both ends come up for some number, and nothing
 * outside for any. */
static void check_delays(const char *row, const hx_retry_policy *policy, unsigned attempts, hx_ms low, hx_ms high)
{
    hx_ms lowest = INT64_MAX, highest = INT64_MIN;
    for (uint64_t i = 0; i < DRAWS; i++) {
        uint64_t random = i % 2 ? hx_rand_u64() : i / 2 * (uint64_t)(high - low) / (DRAWS / 2 - 1);
        hx_retry_answer answer = ask(policy, attempts, 0, random);
        if (answer.verdict != HX_RETRY_AGAIN) fail_msg("%s: %s", row, hx_retry_verdict_text(answer.verdict));
        if (answer.delay < low || answer.delay > high) fail_msg("%s: %lld ms", row, (long long)answer.delay);
        if (answer.delay < lowest) lowest = answer.delay;
        if (answer.delay > highest) highest = answer.delay;
    }
    if (lowest != low || highest != high)
        fail_msg("%s: only from %lld to %lld ms", row, (long long)lowest, (long long)highest);
}

static void check_end(const char *row, const hx_retry_policy *policy, unsigned attempts, hx_retry_verdict verdict)
{
    hx_retry_answer answer = ask(policy, attempts, 0, 0);
    if (answer.verdict != verdict) fail_msg("%s: %s", row, hx_retry_verdict_text(answer.verdict));
    assert_int_equal(answer.delay, 0);
}

static void the_playbook_schedule(void **state)
{
    (void)state;
    hx_retry_policy policy = policy_with(HX_CLASS_USER, (hx_retry_overrides){.profile = HX_PROFILE_QUICK});
    assert_null(policy.schedule); /* attempt 1, delay 0: the first is not ours to delay */
    check_delays("playbook schedule: attempt 2 after 100-200 ms", &policy, 1, 100, 200);
    check_delays("playbook schedule: attempt 3 after 200-400 ms", &policy, 2, 200, 400);
    check_delays("playbook schedule: attempt 4 after 400-800 ms", &policy, 3, 400, 800);
    check_delays("playbook schedule: attempt 5 after 800-1600 ms", &policy, 4, 800, 1600);
    check_end("playbook schedule: stop after attempt 5", &policy, 5, HX_RETRY_NO_ATTEMPTS);
    assert_int_equal(policy.total, 10 * HX_SECOND);
    assert_int_equal(ask(&policy, 2, 9600, 200).verdict, HX_RETRY_AGAIN);
    assert_int_equal(ask(&policy, 2, 9601, 200).verdict, HX_RETRY_NO_TIME); /* stop: total <= 10 s */
    policy = policy_with(HX_CLASS_USER, (hx_retry_overrides){.profile = HX_PROFILE_QUICK, .attempts = 8});
    check_delays("playbook schedule: cap at max_backoff=2s", &policy, 5, 1600, 2000);
    check_delays("playbook schedule: cap at max_backoff=2s, ever after", &policy, 7, 2000, 2000);
}

static void the_playbook_client_log(void **state)
{
    (void)state;
    /* attempt,delay_ms: 1,0 (timeout) 2,137 (502) 3,281 (201): some random numbers give just that */
    hx_retry_policy policy = hx_retry_policy_of_class(HX_CLASS_USER);
    assert_int_equal(ask(&policy, 1, 0, 37).delay, 137);
    assert_int_equal(ask(&policy, 2, 137, 81).delay, 281);
}

static void the_agent_guide_backoff(void **state)
{
    (void)state;
    hx_retry_policy policy = policy_with(HX_CLASS_BACKGROUND, (hx_retry_overrides){.profile = HX_PROFILE_PATIENT});
    check_delays("agent guide: attempt 1, 1s, 0.5-1.5s", &policy, 1, 500, 1500);
    check_delays("agent guide: attempt 2, 2s, 1-3s", &policy, 2, 1000, 3000);
    check_delays("agent guide: attempt 3, 4s, 2-6s", &policy, 3, 2000, 6000);
    check_delays("agent guide: attempt 4, 8s, 4-12s", &policy, 4, 4000, 12000);
    check_end("agent guide: cap at 3-5 attempts, then escalate", &policy, 5, HX_RETRY_NO_ATTEMPTS);
    /* what the guide waits after its fifth attempt only shows when there is a sixth */
    policy = policy_with(HX_CLASS_BACKGROUND, (hx_retry_overrides){.profile = HX_PROFILE_PATIENT, .attempts = 9});
    check_delays("agent guide: attempt 5, 16s, 8-24s", &policy, 5, 8000, 24000);
    check_delays("agent guide: max_delay 30 s, and clients at the cap stay spread", &policy, 6, 15000, 45000);
    check_delays("agent guide: max_delay 30 s, ever after", &policy, 7, 15000, 45000);
}

static void the_request_patterns_client(void **state)
{
    (void)state;
    hx_retry_policy policy = policy_with(HX_CLASS_USER, (hx_retry_overrides){.attempts = 5,
                                                                             .base = HX_SECOND,
                                                                             .cap = 5 * HX_SECOND,
                                                                             .jitter = HX_JITTER_NONE});
    check_delays("request patterns: min(1000 * 2^0, 5000)", &policy, 1, 1000, 1000);
    check_delays("request patterns: min(1000 * 2^1, 5000)", &policy, 2, 2000, 2000);
    check_delays("request patterns: min(1000 * 2^3, 5000)", &policy, 4, 5000, 5000);
    policy = policy_with(HX_CLASS_USER, (hx_retry_overrides){.attempts = 3});
    check_end("request patterns: maxRetries = 3, the first included", &policy, 3, HX_RETRY_NO_ATTEMPTS);
}

static void the_invariants_exponential_backoff(void **state)
{
    (void)state;
    hx_retry_policy policy = policy_with(HX_CLASS_BACKGROUND, (hx_retry_overrides){.base = HX_SECOND,
                                                                                   .cap = HX_MINUTE,
                                                                                   .jitter = HX_JITTER_NONE});
    for (unsigned n = 0; n < 4; n++)
        check_delays("INV-4: 1s, 2s, 4s, 8s", &policy, n + 1, HX_SECOND << n, HX_SECOND << n);
    for (unsigned class = 0; class < HX_CLASS_COUNT; class ++) {
        policy = hx_retry_policy_of_class((hx_retry_class) class);
        check_end("INV-4: a maximum retry count", &policy, policy.attempts, HX_RETRY_NO_ATTEMPTS);
        check_end("INV-4: and past it", &policy, UINT32_MAX, HX_RETRY_NO_ATTEMPTS);
    }
}

static void the_contract_documents_code(void **state)
{
    (void)state;
    hx_retry_policy policy = policy_with(HX_CLASS_BACKGROUND, (hx_retry_overrides){.profile = HX_PROFILE_MOBILE});
    check_delays("contract code: min(1000 * 2^0 + U(0, 1000), 30000)", &policy, 1, 1000, 2000);
    check_delays("contract code: min(1000 * 2^1 + U(0, 1000), 30000)", &policy, 2, 2000, 3000);
    check_delays("contract code: min(1000 * 2^2 + U(0, 1000), 30000)", &policy, 3, 4000, 5000);
    check_end("contract code: maxRetries = 3", &policy, 4, HX_RETRY_NO_ATTEMPTS);
    policy = policy_with(HX_CLASS_BACKGROUND, (hx_retry_overrides){.profile = HX_PROFILE_MOBILE, .attempts = 10});
    check_delays("contract code: min(1000 * 2^4 + U(0, 1000), 30000)", &policy, 5, 16000, 17000);
    check_delays("contract code: min(1000 * 2^5 + U(0, 1000), 30000)", &policy, 6, 30000, 30000);
}

static void the_maximum_retry_limits(void **state)
{
    (void)state;
    static const struct {
        const char *row;
        hx_retry_class class;
        unsigned attempts;
        hx_ms total;
    } rows[] = {
        {"Maximum Retry Limits: User-facing API, 3, 10 seconds", HX_CLASS_USER, 1 + 3, 10 * HX_SECOND},
        {"Maximum Retry Limits: Background job, 5, 5 minutes", HX_CLASS_BACKGROUND, 1 + 5, 5 * HX_MINUTE},
        /* ten deliveries in all, as its list of delivery attempts has them; the jitter comes on top */
        {"Maximum Retry Limits: Webhook delivery, 10, 24 hours", HX_CLASS_WEBHOOK, 10, 24 * HX_HOUR + 144 * HX_MINUTE},
        {"Maximum Retry Limits: Scheduled task, 3, 1 hour", HX_CLASS_SCHEDULED, 1 + 3, HX_HOUR},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hx_retry_policy policy = hx_retry_policy_of_class(rows[i].class);
        if (policy.total != rows[i].total) fail_msg("%s: %lld", rows[i].row, (long long)policy.total);
        hx_ms elapsed = 0, worst = 0;
        unsigned attempts = 1;
        for (hx_retry_answer answer;
             (answer = ask(&policy, attempts, elapsed, hx_rand_u64())).verdict == HX_RETRY_AGAIN; attempts++)
            elapsed += answer.delay;
        if (attempts != rows[i].attempts) fail_msg("%s: %u attempts", rows[i].row, attempts);
        if (elapsed > rows[i].total) fail_msg("%s: %lld ms", rows[i].row, (long long)elapsed);
        for (unsigned n = 1; n < policy.attempts; n++) {
            hx_retry_answer last = ask(&policy, n, policy.total + 1, 0);
            if (last.verdict != HX_RETRY_NO_TIME) fail_msg("%s: goes on past its time", rows[i].row);
            if (!policy.schedule) worst += policy.base << n < policy.cap ? policy.base << n : policy.cap;
        }
        if (worst > policy.total) fail_msg("%s: its delays alone may pass its time", rows[i].row);
    }
}

static void the_delays_of_background_and_scheduled_work(void **state)
{
    (void)state;
    hx_retry_policy background = hx_retry_policy_of_class(HX_CLASS_BACKGROUND);
    for (unsigned n = 0; n < 4; n++) check_delays("background: 4 s doubling", &background, n + 1, 4000 << n, 8000 << n);
    check_delays("background: to 64 s", &background, 5, 64000, 64000);
    hx_retry_policy timers = hx_retry_policy_of_class(HX_CLASS_SCHEDULED);
    for (unsigned n = 0; n < 3; n++)
        check_delays("scheduled: 1 min doubling", &timers, n + 1, HX_MINUTE << n, HX_MINUTE << (n + 1));
    timers = policy_with(HX_CLASS_SCHEDULED, (hx_retry_overrides){.attempts = 6});
    check_delays("scheduled: to 15 min", &timers, 4, 8 * HX_MINUTE, 15 * HX_MINUTE);
    check_delays("scheduled: 15 min ever after", &timers, 5, 15 * HX_MINUTE, 15 * HX_MINUTE);
}

static const struct {
    const char *row;
    hx_ms offset;
} deliveries[] = {
    {"Delivery Attempts: 1. Immediate", 0},
    {"Delivery Attempts: 2. 5 seconds", 5 * HX_SECOND},
    {"Delivery Attempts: 3. 30 seconds", 30 * HX_SECOND},
    {"Delivery Attempts: 4. 2 minutes", 2 * HX_MINUTE},
    {"Delivery Attempts: 5. 10 minutes", 10 * HX_MINUTE},
    {"Delivery Attempts: 6. 30 minutes", 30 * HX_MINUTE},
    {"Delivery Attempts: 7. 1 hour", HX_HOUR},
    {"Delivery Attempts: 8. 6 hours", 6 * HX_HOUR},
    {"Delivery Attempts: 9. 12 hours", 12 * HX_HOUR},
    {"Delivery Attempts: 10. 24 hours", 24 * HX_HOUR},
};

static void the_webhook_delivery_attempts(void **state)
{
    (void)state;
    hx_retry_policy policy = hx_retry_policy_of_class(HX_CLASS_WEBHOOK);
    for (unsigned n = 1; n < HX_RETRY_STEPS; n++) {
        hx_ms offset = deliveries[n].offset;
        check_delays(deliveries[n].row, &policy, n, offset, offset + offset / 10);
        /* offsets count from the first attempt, whenever the last one ended */
        hx_ms elapsed = deliveries[n - 1].offset + 17;
        assert_int_equal(ask(&policy, n, elapsed, 0).delay, offset - elapsed);
        assert_int_equal(ask(&policy, n, elapsed, (uint64_t)offset / 10).delay, offset + offset / 10 - elapsed);
    }
    check_end("Delivery Attempts: no eleventh", &policy, 10, HX_RETRY_NO_ATTEMPTS);
    assert_int_equal(policy.total, 24 * HX_HOUR + 24 * HX_HOUR / 10); /* Total window: 24 hours, and the jitter */
}

static void any_delivery_keeps_the_schedule_and_is_never_early(void **state)
{
    (void)state;
    hx_rand_seed(10);
    for (int run = 0; run < RUNS; run++) {
        hx_jitter jitter = run % 3 ? HX_JITTER_UNSET : HX_JITTER_NONE;
        hx_retry_policy policy = policy_with(HX_CLASS_WEBHOOK, (hx_retry_overrides){.jitter = jitter});
        hx_ms began = 0, now = 0;
        for (unsigned made = 1; made < HX_RETRY_STEPS; made++) {
            now = began + (hx_ms)hx_rand_below(run % 2 ? 1000 : 30000); /* how long the attempt took */
            hx_retry_answer answer = ask(&policy, made, now, hx_rand_u64());
            assert_int_equal(answer.verdict, HX_RETRY_AGAIN);
            hx_ms offset = deliveries[made].offset, latest = jitter == HX_JITTER_NONE ? offset : offset + offset / 10;
            began = now + answer.delay;
            if (began < offset) fail_msg("%s: %lld", deliveries[made].row, (long long)began);
            if (now < offset && began > latest) fail_msg("%s: %lld", deliveries[made].row, (long long)began);
            if (now >= offset) assert_in_range(answer.delay, 5000, 5500);
        }
    }
}

static void a_schedule_that_is_behind_does_not_burn_its_attempts(void **state)
{
    (void)state;
    /* down from the fourth attempt on, for three hours: steps 5 to 7 have passed */
    hx_retry_policy policy = hx_retry_policy_of_class(HX_CLASS_WEBHOOK);
    assert_in_range(ask(&policy, 4, 3 * HX_HOUR, hx_rand_u64()).delay, 5000, 5500);
    assert_in_range(ask(&policy, 6, 3 * HX_HOUR + HX_MINUTE, hx_rand_u64()).delay, 5000, 5500);
    assert_int_equal(ask(&policy, 7, 3 * HX_HOUR + HX_MINUTE, 0).delay, 3 * HX_HOUR - HX_MINUTE);
}

static void jitter_never_costs_a_schedule_its_last_attempt(void **state)
{
    (void)state;
    hx_retry_policy policy = policy_with(HX_CLASS_WEBHOOK, (hx_retry_overrides){.total = HX_DAY});
    check_delays("24 hours to the dot", &policy, 9, HX_DAY, HX_DAY);
    policy = policy_with(HX_CLASS_WEBHOOK, (hx_retry_overrides){.total = HX_DAY + 100});
    check_delays("24 hours and 100 ms", &policy, 9, HX_DAY, HX_DAY + 100);
    policy = policy_with(HX_CLASS_WEBHOOK, (hx_retry_overrides){.total = HX_DAY - 1});
    check_end("not even 24 hours", &policy, 9, HX_RETRY_NO_TIME);
}

static void each_jitter_reaches_both_its_ends(void **state)
{
    (void)state;
    static const hx_ms ends[HX_JITTER_COUNT][2] = {
        [HX_JITTER_SPREAD] = {101, 202},    [HX_JITTER_FULL] = {0, 101},   [HX_JITTER_HALF] = {51, 151},
        [HX_JITTER_ADDITIVE] = {101, 1101}, [HX_JITTER_NONE] = {101, 101},
    };
    for (unsigned jitter = 1; jitter < HX_JITTER_COUNT; jitter++) {
        hx_retry_policy policy = policy_with(HX_CLASS_USER,
                                             (hx_retry_overrides){.base = 101, .jitter = (hx_jitter)jitter});
        check_delays(hx_jitter_name((hx_jitter)jitter), &policy, 1, ends[jitter][0], ends[jitter][1]);
    }
}

static void each_jitter_stays_in_its_bounds(void **state)
{
    (void)state;
    hx_rand_seed(2);
    for (int i = 0; i < RUNS; i++) {
        hx_ms base = 1 + (hx_ms)hx_rand_below(5000), cap = base + (hx_ms)hx_rand_below(1000000);
        unsigned n = (unsigned)hx_rand_below(99);
        hx_jitter jitter = (hx_jitter)(1 + hx_rand_below(HX_JITTER_COUNT - 1));
        hx_retry_policy policy = policy_with(
            HX_CLASS_WEBHOOK, (hx_retry_overrides){.attempts = 100, .base = base, .cap = cap, .jitter = jitter});
        double d = (double)base, low = 0, high = 0;
        for (unsigned k = 0; k < n; k++) d *= 2;
        switch (jitter) {
        case HX_JITTER_SPREAD: low = d, high = 2 * d; break;
        case HX_JITTER_FULL: low = 0, high = d; break;
        case HX_JITTER_HALF: low = d * 0.5, high = d * 1.5; break;
        case HX_JITTER_ADDITIVE: low = d, high = d + 1000; break;
        default: low = d, high = d; break;
        }
        double at_cap = (double)cap;
        if (jitter == HX_JITTER_HALF && d > at_cap) low = at_cap * 0.5, high = at_cap * 1.5;
        if (jitter != HX_JITTER_HALF && low > at_cap) low = at_cap;
        if (jitter != HX_JITTER_HALF && high > at_cap) high = at_cap;
        hx_retry_answer answer = ask(&policy, n + 1, 0, hx_rand_u64());
        assert_int_equal(answer.verdict, HX_RETRY_AGAIN);
        if ((double)answer.delay < low || (double)answer.delay > high)
            fail_msg("%s: base %lld, n %u: %lld", hx_jitter_name(jitter), (long long)base, n, (long long)answer.delay);
    }
}

static void each_jitter_is_spread_evenly(void **state)
{
    (void)state;
    static const hx_ms means[] = {0, 15000, 5000, 10000, 10500, 10000};
    hx_rand_seed(7);
    for (unsigned jitter = 1; jitter < HX_JITTER_COUNT; jitter++) {
        hx_retry_policy policy = policy_with(HX_CLASS_SCHEDULED,
                                             (hx_retry_overrides){.base = 10000, .jitter = (hx_jitter)jitter});
        hx_ms sum = 0;
        for (int i = 0; i < 40000; i++) sum += ask(&policy, 1, 0, hx_rand_u64()).delay;
        hx_ms mean = sum / 40000;
        /* a uniform span of 10 s has a standard error of 14 ms here */
        if (mean < means[jitter] - 100 || mean > means[jitter] + 100)
            fail_msg("%s: a mean of %lld ms", hx_jitter_name((hx_jitter)jitter), (long long)mean);
    }
}

static void a_408_is_repeated_at_once_but_is_an_attempt(void **state)
{
    (void)state;
    hx_retry_policy policy = hx_retry_policy_of_class(HX_CLASS_USER);
    hx_retry_question question = {.attempts = 1,
                                  .at_once = true,
                                  .retry_after = HX_RETRY_AFTER_NONE,
                                  .client_left = HX_TIMEOUT_NONE};
    hx_retry_answer answer = hx_retry_next(&policy, &question, 99);
    assert_int_equal(answer.verdict, HX_RETRY_AGAIN);
    assert_int_equal(answer.delay, 0);
    question.attempts = 4;
    assert_int_equal(hx_retry_next(&policy, &question, 99).verdict, HX_RETRY_NO_ATTEMPTS);
    question.attempts = 3;
    question.elapsed = 10001;
    assert_int_equal(hx_retry_next(&policy, &question, 99).verdict, HX_RETRY_NO_TIME);
    question.elapsed = 0;
    question.retry_after = 2000; /* unless it says otherwise */
    assert_true(hx_retry_next(&policy, &question, 99).delay > 2000);
}

static void a_retry_after_past_the_budget_is_handed_to_the_client(void **state)
{
    (void)state;
    hx_retry_policy policy = hx_retry_policy_of_class(HX_CLASS_USER);
    hx_retry_question question = {.attempts = 1, .elapsed = 4000, .retry_after = 6000, .client_left = HX_TIMEOUT_NONE};
    hx_retry_answer answer = hx_retry_next(&policy, &question, 5);
    assert_int_equal(answer.verdict, HX_RETRY_TOLD_LATER);
    assert_int_equal(answer.delay, 6000);
    question.retry_after = 5000;
    answer = hx_retry_next(&policy, &question, 5);
    assert_int_equal(answer.verdict, HX_RETRY_AGAIN);
    assert_in_range(answer.delay, 5001, 5500);
    question.client_left = 5100; /* jitter alone is never what ends the retries */
    for (uint64_t random = 0; random < 1000; random++)
        assert_in_range(hx_retry_next(&policy, &question, random).delay, 5001, 5099);
    question.client_left = 5001;
    assert_int_equal(hx_retry_next(&policy, &question, 5).verdict, HX_RETRY_TOLD_LATER);
    question.retry_after = HX_RETRY_AFTER_MAX;
    assert_int_equal(hx_retry_next(&policy, &question, 5).verdict, HX_RETRY_TOLD_LATER);
    question.retry_after = 0; /* a moment that has passed does not take the backoff away */
    assert_in_range(hx_retry_next(&policy, &question, 5).delay, 100, 200);
}

static void the_clients_budget_ends_new_attempts(void **state)
{
    (void)state;
    hx_retry_policy policy = hx_retry_policy_of_class(HX_CLASS_USER);
    hx_retry_question question = {.attempts = 1, .retry_after = HX_RETRY_AFTER_NONE, .client_left = 150};
    assert_int_equal(hx_retry_next(&policy, &question, 49).verdict, HX_RETRY_AGAIN); /* 149 ms */
    assert_int_equal(hx_retry_next(&policy, &question, 50).verdict, HX_RETRY_NO_PATIENCE);
    question.client_left = 0;
    question.at_once = true;
    assert_int_equal(hx_retry_next(&policy, &question, 0).verdict, HX_RETRY_NO_PATIENCE);
}

static hx_retry_policy any_policy(void)
{
    for (;;) {
        hx_retry_overrides overrides = {
            .attempts = (unsigned)hx_rand_below(12),
            .total = hx_rand_below(2) ? 0 : (hx_ms)hx_rand_below(100000),
            .base = hx_rand_below(2) ? 0 : (hx_ms)hx_rand_below(3000),
            .cap = hx_rand_below(2) ? 0 : (hx_ms)hx_rand_below(30000),
            .jitter = (hx_jitter)hx_rand_below(HX_JITTER_COUNT),
            .profile = (hx_retry_profile)hx_rand_below(HX_PROFILE_COUNT),
        };
        hx_retry_policy policy;
        const char *error;
        if (hx_retry_policy_make((hx_retry_class)hx_rand_below(HX_CLASS_COUNT), &overrides, &policy, &error))
            return policy;
    }
}

/* The three promises of backoff.h, for any policy and any sequence of answers. */
static void any_sequence_of_answers_stays_within_the_budget(void **state)
{
    (void)state;
    uint64_t ends[HX_RETRY_VERDICT_COUNT] = {0};
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        hx_rand_seed(seed);
        hx_retry_policy policy = any_policy();
        hx_ms budget = hx_rand_below(3) ? HX_TIMEOUT_NONE : 1 + (hx_ms)hx_rand_below(60000);
        hx_ms now = 0;
        for (unsigned made = 1;; made++) {
            assert_true(made <= policy.attempts);
            now += (hx_ms)hx_rand_below(hx_rand_below(4) ? 300 : 20000);
            hx_retry_question question = {
                .attempts = made,
                .elapsed = now,
                .at_once = hx_rand_below(5) == 0,
                .retry_after = hx_rand_below(4) ? HX_RETRY_AFTER_NONE : (hx_ms)hx_rand_below(15) * 1000,
                .client_left = budget == HX_TIMEOUT_NONE ? budget
                               : budget > now            ? budget - now
                                                         : 0,
            };
            hx_retry_answer answer = hx_retry_next(&policy, &question, hx_rand_u64());
            ends[answer.verdict]++;
            if (answer.verdict != HX_RETRY_AGAIN) break;
            bool told = question.retry_after != HX_RETRY_AFTER_NONE;
            hx_ms own_max = policy.schedule ? policy.schedule[made] * 11 / 10 + 5500 : policy.cap;
            if (!policy.schedule && policy.jitter == HX_JITTER_HALF) own_max = policy.cap * 3 / 2;
            hx_ms told_max = told ? (question.retry_after + 1) * 11 / 10 : 0;
            if (answer.delay < 0 || (told && answer.delay <= question.retry_after) ||
                answer.delay > (own_max > told_max ? own_max : told_max))
                fail_msg("seed %llu: %lld ms", (unsigned long long)seed, (long long)answer.delay);
            now += answer.delay;
            if (now > policy.total || (budget != HX_TIMEOUT_NONE && now >= budget))
                fail_msg("seed %llu: an attempt begins after %lld ms", (unsigned long long)seed, (long long)now);
        }
    }
    for (unsigned i = 0; i < HX_RETRY_VERDICT_COUNT; i++) /* every end was met but the one that the budget says */
        assert_true(i == HX_RETRY_NO_ROOM ? ends[i] == 0 : ends[i] > 500);
}

static void extreme_values_do_not_overflow(void **state)
{
    (void)state;
    hx_retry_policy policy = policy_with(HX_CLASS_USER, (hx_retry_overrides){.attempts = 100,
                                                                             .total = HX_RETRY_SPAN_MAX,
                                                                             .base = HX_RETRY_SPAN_MAX,
                                                                             .cap = HX_RETRY_SPAN_MAX});
    for (unsigned n = 1; n < 100; n++) {
        assert_int_equal(ask(&policy, n, 0, UINT64_MAX).delay, HX_RETRY_SPAN_MAX);
        assert_int_equal(ask(&policy, n, INT64_MAX, UINT64_MAX).verdict, HX_RETRY_NO_TIME);
        assert_int_equal(ask(&policy, n, INT64_MIN, UINT64_MAX).delay, HX_RETRY_SPAN_MAX);
    }
    policy = hx_retry_policy_of_class(HX_CLASS_WEBHOOK);
    assert_int_equal(ask(&policy, 9, INT64_MAX, UINT64_MAX).verdict, HX_RETRY_NO_TIME);
}

static void overrides_lie_over_the_profile_which_lies_over_the_class(void **state)
{
    (void)state;
    hx_retry_policy policy = policy_with(HX_CLASS_BACKGROUND, (hx_retry_overrides){.profile = HX_PROFILE_QUICK});
    assert_int_equal(policy.attempts, 5);
    assert_int_equal(policy.base, 100);
    assert_int_equal(policy.cap, 2000);
    assert_int_equal(policy.total, 5 * HX_MINUTE); /* a profile says nothing of the total */
    policy = policy_with(HX_CLASS_USER, (hx_retry_overrides){.profile = HX_PROFILE_PATIENT,
                                                             .attempts = 2,
                                                             .total = 7,
                                                             .base = 8,
                                                             .cap = 9,
                                                             .jitter = HX_JITTER_FULL});
    assert_int_equal(policy.attempts, 2);
    assert_int_equal(policy.total, 7);
    assert_int_equal(policy.base, 8);
    assert_int_equal(policy.cap, 9);
    assert_int_equal(policy.jitter, HX_JITTER_FULL);
    policy = policy_with(HX_CLASS_WEBHOOK, (hx_retry_overrides){.base = HX_SECOND});
    assert_null(policy.schedule);
    assert_int_equal(policy.jitter, HX_JITTER_SPREAD);
    policy = policy_with(HX_CLASS_WEBHOOK, (hx_retry_overrides){.attempts = 3});
    assert_non_null(policy.schedule);
    check_end("three deliveries", &policy, 3, HX_RETRY_NO_ATTEMPTS);
}

static void values_that_do_not_fit_each_other_are_refused(void **state)
{
    (void)state;
    static const struct {
        hx_retry_class class;
        hx_retry_overrides overrides;
        const char *says;
    } bad[] = {
        {HX_CLASS_USER, {.attempts = 101}, "attempts"},
        {HX_CLASS_USER, {.total = -1}, "total"},
        {HX_CLASS_USER, {.total = HX_RETRY_SPAN_MAX + 1}, "total"},
        {HX_CLASS_USER, {.base = -1}, "base"},
        {HX_CLASS_USER, {.base = 5 * HX_SECOND}, "base is above cap"},
        {HX_CLASS_USER, {.cap = 99}, "base is above cap"},
        {HX_CLASS_USER, {.cap = INT64_MAX}, "cap"},
        {HX_CLASS_WEBHOOK, {.attempts = 11}, "the webhook schedule has 10"},
        {HX_CLASS_WEBHOOK, {.cap = HX_HOUR}, "the webhook schedule has no cap"},
        {HX_CLASS_WEBHOOK, {.jitter = HX_JITTER_SPREAD}, "on the webhook schedule jitter only adds"},
        {HX_CLASS_WEBHOOK, {.jitter = HX_JITTER_FULL}, "on the webhook schedule jitter only adds"},
        {HX_CLASS_WEBHOOK, {.jitter = HX_JITTER_HALF}, "on the webhook schedule jitter only adds"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hx_retry_policy policy = {.attempts = 77};
        const char *error = "nothing";
        if (hx_retry_policy_make(bad[i].class, &bad[i].overrides, &policy, &error)) fail_msg("%s: taken", bad[i].says);
        if (!hx_slice_starts(hx_slice_of(error), hx_slice_of(bad[i].says))) fail_msg("%s: %s", bad[i].says, error);
        assert_int_equal(policy.attempts, 77);
    }
}

static void names_are_read_back(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "User", "use", "user ", "users", "unset", "playbooks", "nonee"};
    hx_retry_class class;
    hx_retry_profile profile;
    hx_jitter jitter;
    for (unsigned i = 0; i < HX_CLASS_COUNT; i++) {
        assert_true(hx_retry_class_parse(hx_slice_of(hx_retry_class_name((hx_retry_class)i)), &class));
        assert_int_equal(class, i);
    }
    for (unsigned i = 1; i < HX_PROFILE_COUNT; i++) {
        assert_true(hx_retry_profile_parse(hx_slice_of(hx_retry_profile_name((hx_retry_profile)i)), &profile));
        assert_int_equal(profile, i);
    }
    for (unsigned i = 1; i < HX_JITTER_COUNT; i++) {
        assert_true(hx_jitter_parse(hx_slice_of(hx_jitter_name((hx_jitter)i)), &jitter));
        assert_int_equal(jitter, i);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(hx_retry_class_parse(hx_slice_of(bad[i]), &class));
        assert_false(hx_retry_profile_parse(hx_slice_of(bad[i]), &profile));
        assert_false(hx_jitter_parse(hx_slice_of(bad[i]), &jitter));
    }
    assert_true(hx_retry_class_parse(HX_LIT("webhook"), &class) && class == HX_CLASS_WEBHOOK);
    assert_true(hx_retry_profile_parse(HX_LIT("patient"), &profile) && profile == HX_PROFILE_PATIENT);
    assert_true(hx_jitter_parse(HX_LIT("half"), &jitter) && jitter == HX_JITTER_HALF);
}

static void what_clients_repeat(void **state)
{
    (void)state;
    static const struct {
        const char *row;
        hx_client_answer answer;
        hx_repeat expected;
    } rows[] = {
        {"playbook: network timeouts, connection resets", {.status = 0}, HX_REPEAT_LATER},
        {"playbook: HTTP 429", {.status = 429}, HX_REPEAT_LATER},
        {"playbook: HTTP 5xx", {.status = 599}, HX_REPEAT_LATER},
        {"playbook: 4xx other than 429", {.status = 422}, HX_REPEAT_NEVER},
        {"agent guide: 2xx Success, No", {.status = 201}, HX_REPEAT_NEVER},
        {"agent guide: 4xx Client Error, No", {.status = 418}, HX_REPEAT_NEVER},
        {"agent guide: 400 Bad Request, No", {.status = 400}, HX_REPEAT_NEVER},
        {"agent guide: 401/403 Auth Error, No", {.status = 401}, HX_REPEAT_NEVER},
        {"agent guide: 404 Not Found, No", {.status = 404}, HX_REPEAT_NEVER},
        {"agent guide: 409 Conflict, Maybe: its problem says so", {409, false, true}, HX_REPEAT_LATER},
        {"agent guide: 409 Conflict, Maybe: it doesn't", {.status = 409}, HX_REPEAT_NEVER},
        {"agent guide: 429 Rate Limited, Yes", {.status = 429}, HX_REPEAT_LATER},
        {"agent guide: 5xx Server Error, Yes", {.status = 500}, HX_REPEAT_LATER},
        {"agent guide: Timeout, Yes", {.status = 0}, HX_REPEAT_LATER},
        {"agent guide: Connection Error, Yes", {.status = 0}, HX_REPEAT_LATER},
        {"request patterns: 409, don't retry", {.status = 409}, HX_REPEAT_NEVER},
        {"INV-5: 5xx, network errors", {.status = 503}, HX_REPEAT_LATER},
        {"INV-5: 4xx, validation errors not retried", {.status = 400}, HX_REPEAT_NEVER},
        {"Retryable Errors: 408, Yes, Immediate retry", {.status = 408}, HX_REPEAT_AT_ONCE},
        {"Retryable Errors: 429, Yes", {.status = 429}, HX_REPEAT_LATER},
        {"Retryable Errors: 500, Yes", {.status = 500}, HX_REPEAT_LATER},
        {"Retryable Errors: 502, Yes", {.status = 502}, HX_REPEAT_LATER},
        {"Retryable Errors: 503, Yes", {.status = 503}, HX_REPEAT_LATER},
        {"Retryable Errors: 504, Yes", {.status = 504}, HX_REPEAT_LATER},
        {"Retryable Errors: 400, No", {.status = 400}, HX_REPEAT_NEVER},
        {"Retryable Errors: 401, No", {.status = 401}, HX_REPEAT_NEVER},
        {"Retryable Errors: 403, No", {.status = 403}, HX_REPEAT_NEVER},
        {"Retryable Errors: 404, No", {.status = 404}, HX_REPEAT_NEVER},
        {"Retryable Errors: 409, No", {.status = 409}, HX_REPEAT_NEVER},
        {"an answer marked stored or replayed is final: 500", {500, true, true}, HX_REPEAT_NEVER},
        {"an answer marked stored or replayed is final: 408", {408, true, false}, HX_REPEAT_NEVER},
        {"no other 4xx, whatever its problem says", {422, false, true}, HX_REPEAT_NEVER},
        {"a redirect is not repeated", {.status = 307}, HX_REPEAT_NEVER},
        {"no status at all", {.status = 600}, HX_REPEAT_NEVER},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (hx_retry_client(&rows[i].answer) != rows[i].expected) fail_msg("%s", rows[i].row);
}

static void what_deliveries_repeat(void **state)
{
    (void)state;
    for (unsigned status = 0; status <= 700; status++) {
        bool done = status / 100 == 2 || status == 410;
        assert_int_equal(hx_retry_delivery(status, false), done ? HX_REPEAT_NEVER : HX_REPEAT_LATER);
        bool meant = status / 100 == 4 && status != 408 && status != 425 && status != 429;
        assert_int_equal(hx_retry_delivery(status, true), done || meant ? HX_REPEAT_NEVER : HX_REPEAT_LATER);
    }
}

static void every_verdict_has_its_name_and_sentence(void **state)
{
    (void)state;
    for (unsigned i = 0; i < HX_RETRY_VERDICT_COUNT; i++) {
        assert_true(hx_slice_is_token(hx_slice_of(hx_retry_verdict_name((hx_retry_verdict)i))));
        assert_true(hx_slice_ends(hx_slice_of(hx_retry_verdict_text((hx_retry_verdict)i)), HX_LIT(".")));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_playbook_schedule),
        cmocka_unit_test(the_playbook_client_log),
        cmocka_unit_test(the_agent_guide_backoff),
        cmocka_unit_test(the_request_patterns_client),
        cmocka_unit_test(the_invariants_exponential_backoff),
        cmocka_unit_test(the_contract_documents_code),
        cmocka_unit_test(the_maximum_retry_limits),
        cmocka_unit_test(the_delays_of_background_and_scheduled_work),
        cmocka_unit_test(the_webhook_delivery_attempts),
        cmocka_unit_test(any_delivery_keeps_the_schedule_and_is_never_early),
        cmocka_unit_test(a_schedule_that_is_behind_does_not_burn_its_attempts),
        cmocka_unit_test(jitter_never_costs_a_schedule_its_last_attempt),
        cmocka_unit_test(each_jitter_reaches_both_its_ends),
        cmocka_unit_test(each_jitter_stays_in_its_bounds),
        cmocka_unit_test(each_jitter_is_spread_evenly),
        cmocka_unit_test(a_408_is_repeated_at_once_but_is_an_attempt),
        cmocka_unit_test(a_retry_after_past_the_budget_is_handed_to_the_client),
        cmocka_unit_test(the_clients_budget_ends_new_attempts),
        cmocka_unit_test(any_sequence_of_answers_stays_within_the_budget),
        cmocka_unit_test(extreme_values_do_not_overflow),
        cmocka_unit_test(overrides_lie_over_the_profile_which_lies_over_the_class),
        cmocka_unit_test(values_that_do_not_fit_each_other_are_refused),
        cmocka_unit_test(names_are_read_back),
        cmocka_unit_test(what_clients_repeat),
        cmocka_unit_test(what_deliveries_repeat),
        cmocka_unit_test(every_verdict_has_its_name_and_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
