/* SPDX-License-Identifier: Apache-2.0 */
/* Retries: when, and what a response means. */
#include "lib/retry.h"

#include "base/rand.h"
#include "client/attempts.h"
#include "core/retry/request_timeout.h"
#include "core/retry/retry_after.h"

#define SPAN_MAX (36500 * HX_DAY)

bool hx_lib_policy(const hapax_retry *given, hx_retry_policy *out)
{
    char *error = hx_guest_message();
    hapax_retry retry = {.size = sizeof retry};
    hx_retry_class class = HX_CLASS_USER;
    hx_retry_overrides overrides = {0};
    const char *wrong;
    if (given && !HX_STRUCT_TAKE(&retry, given, hapax_retry)) return false;
    if (retry.work_class && !hx_retry_class_parse(hx_slice_of(retry.work_class), &class))
        return hx_fail(error, "work_class must be user, background, scheduled or webhook");
    if (retry.profile && !hx_retry_profile_parse(hx_slice_of(retry.profile), &overrides.profile))
        return hx_fail(error, "profile must be quick, patient or mobile");
    if (retry.jitter && !hx_jitter_parse(hx_slice_of(retry.jitter), &overrides.jitter))
        return hx_fail(error, "jitter must be spread, full, half, additive or none");
    overrides.attempts = retry.attempts;
    overrides.total = retry.total;
    overrides.base = retry.base;
    overrides.cap = retry.cap;
    if (retry.attempts > HX_RETRY_ATTEMPTS_MAX || retry.total < 0 || retry.base < 0 || retry.cap < 0 ||
        retry.total > HX_RETRY_SPAN_MAX || retry.base > HX_RETRY_SPAN_MAX || retry.cap > HX_RETRY_SPAN_MAX)
        return hx_fail(error, "up to %u attempts, and times of up to 30 days", HX_RETRY_ATTEMPTS_MAX);
    return hx_retry_policy_make(class, &overrides, out, &wrong) || hx_fail(error, "%s", wrong);
}

typedef struct {
    const hapax_retry *retry;
    unsigned attempts;
    int64_t elapsed;
    const char *retry_after;
    int64_t *delay;
} question;

static int next_body(hx_guest *call, void *arguments)
{
    question *q = arguments;
    hx_retry_policy policy;
    (void)call;
    if (!hx_lib_policy(q->retry, &policy)) return HAPAX_INVALID;
    hx_slice wait = hx_struct_text(q->retry_after);
    hx_retry_question asked = {.attempts = q->attempts,
                               .elapsed = q->elapsed,
                               .retry_after = wait.len > 0 ? hx_retry_after(wait, hx_clock_wall(), HX_RETRY_AFTER_MAX)
                                                           : HX_RETRY_AFTER_NONE,
                               .client_left = HX_TIMEOUT_NONE};
    hx_retry_answer answer = hx_retry_next(&policy, &asked, hx_rand_u64());
    if (answer.verdict != HX_RETRY_AGAIN) return hx_guest_fail(HAPAX_DONE, "%s", hx_retry_verdict_text(answer.verdict));
    *q->delay = answer.delay;
    return HAPAX_OK;
}

int hapax_retry_next(const hapax_retry *retry, unsigned int attempts, int64_t elapsed, const char *retry_after,
                     int64_t *delay)
{
    if (!delay || attempts == 0 || elapsed < 0 || elapsed > SPAN_MAX)
        return hx_guest_fail(HAPAX_INVALID, "at least one attempt was made, a time ago, and delay isn't NULL");
    return hx_guest_run(NULL, next_body, &(question){retry, attempts, elapsed, retry_after, delay});
}

bool hx_lib_response(const hapax_response *given, hx_attempt_reply *out)
{
    hapax_response response;
    if (!HX_STRUCT_TAKE(&response, given, hapax_response)) return false;
    if (response.status < 0 || response.status > 999 || (!response.body && response.body_bytes > 0))
        return hx_fail(hx_guest_message(), "a response has a status of up to 999, and a body or none");
    *out = (hx_attempt_reply){.status = (unsigned)response.status,
                              .nothing_sent = response.nothing_sent != 0,
                              .reason = response.nothing_sent ? "nothing was sent" : "no response came",
                              .head = hx_struct_text(response.head),
                              .body = {response.body ? response.body : "", response.body_bytes}};
    return true;
}

typedef struct {
    const char *method;
    const hapax_response *response;
    int verdict, may_have_happened;
} classified;

static int classify_body(hx_guest *call, void *arguments)
{
    classified *c = arguments;
    hx_attempt_reply got;
    if (!hx_lib_response(c->response, &got)) return HAPAX_INVALID;
    hx_ms now = hx_clock_wall();
    hx_retry_policy policy = hx_retry_policy_of_class(HX_CLASS_BACKGROUND);
    hx_careful_result result = hx_attempts_read(&got, now, &call->arena);
    hx_careful_state state = {.method = hx_slice_of(c->method),
                              .has_key = true,
                              .attempts = 1,
                              .first_at = now,
                              .key_ends_at = INT64_MAX,
                              .client_left = HX_TIMEOUT_NONE};
    result.retry_after = HX_RETRY_AFTER_NONE; /* how long to wait is another question */
    hx_careful_answer answer = hx_careful_next(&policy, &state, &result, now, 0);
    c->verdict = (int)answer.verdict;
    c->may_have_happened = answer.in_doubt;
    return HAPAX_OK;
}

int hapax_classify(const char *method, const hapax_response *response, int *may_have_happened)
{
    classified c = {.method = method, .response = response};
    if (!method) return hx_guest_fail(-1, "method is NULL");
    if (hx_guest_run(NULL, classify_body, &c) != HAPAX_OK) return -1;
    if (may_have_happened) *may_have_happened = c.may_have_happened;
    return c.verdict;
}
