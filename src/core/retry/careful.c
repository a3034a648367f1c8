/* SPDX-License-Identifier: Apache-2.0 */
#include "core/retry/careful.h"

#include "core/retry/retry_after.h"

typedef struct {
    hx_careful_verdict verdict;
    bool is_certain; /* it holds although an earlier attempt may have been executed */
    bool may_have_happened;
    bool at_once;
    const char *why;
} meaning;

static const struct {
    const char *code;
    hx_careful_verdict verdict;
    bool is_certain;
    const char *why;
} actions[] = {
#define X(code, action, is_certain, why) {code, HX_CAREFUL_##action, is_certain, why},
#include "core/retry/careful_actions.def"
#undef X
};

const char *hx_careful_verdict_name(hx_careful_verdict verdict)
{
    static const char *const names[] = {[HX_CAREFUL_AGAIN] = "again",
                                        [HX_CAREFUL_DONE] = "done",
                                        [HX_CAREFUL_REFUSED] = "refused",
                                        [HX_CAREFUL_UNKNOWN] = "unknown",
                                        [HX_CAREFUL_EXHAUSTED] = "exhausted"};
    return names[verdict];
}

bool hx_careful_is_repeatable(hx_slice method)
{
    static const char *const methods[] = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE"};
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (hx_slice_eq(method, hx_slice_of(methods[i]))) return true;
    return false;
}

/* An error of Hapax says by itself whether the upstream may have got the request. */
static bool read_code(const hx_careful_state *state, const hx_careful_result *result, meaning *out)
{
    bool is_unknown = hx_slice_eq(result->idempotency_status, HX_LIT("unknown"));
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (!hx_slice_eq(result->error_code, hx_slice_of(actions[i].code))) continue;
        bool speaks_of_key = result->status == 409; /* another attempt with this key is, or was, under way */
        *out = (meaning){.verdict = actions[i].verdict,
                         .is_certain = actions[i].is_certain,
                         .may_have_happened = is_unknown || !state->has_key || speaks_of_key,
                         .at_once = result->status == 408,
                         .why = actions[i].why};
        return true;
    }
    return false;
}

static bool is_not_executed(const hx_careful_result *result)
{
    bool asks_to_wait = result->retry_after != HX_RETRY_AFTER_NONE;
    switch (result->status) {
    case 408:
    case 421:
    case 425:
    case 429: return true;
    case 503: return asks_to_wait;
    default: return hx_slice_eq(result->idempotency_status, HX_LIT("released"));
    }
}

static meaning of_status(const hx_careful_state *state, const hx_careful_result *result)
{
    hx_client_answer answer = {.status = result->status,
                               .is_final = hx_slice_eq(result->idempotency_status, HX_LIT("stored")) ||
                                           hx_slice_eq(result->idempotency_status, HX_LIT("replayed")),
                               .says_retry = result->says_retry};
    hx_repeat repeat = hx_retry_client(&answer);
    if (repeat != HX_REPEAT_NEVER)
        return (meaning){.verdict = HX_CAREFUL_AGAIN,
                         .may_have_happened = !is_not_executed(result),
                         .at_once = repeat == HX_REPEAT_AT_ONCE,
                         .why = "the server could not say how it ended"};
    if ((result->status >= 200 && result->status < 300) || result->status == 303)
        return (meaning){.verdict = HX_CAREFUL_DONE, .is_certain = true, .why = "the server did it"};
    bool is_gone = result->status == 404 || result->status == 410;
    if (is_gone && state->in_doubt && hx_slice_eq(state->method, HX_LIT("DELETE")))
        return (meaning){.verdict = HX_CAREFUL_DONE, .is_certain = true, .why = "an earlier attempt has deleted it"};
    return (meaning){.verdict = HX_CAREFUL_REFUSED,
                     .is_certain = answer.is_final,
                     .why = result->status < 400 ? "the server redirects, which is not followed"
                                                 : "the server refuses it"};
}

static meaning read_result(const hx_careful_state *state, const hx_careful_result *result)
{
    meaning read;
    if (result->status == 0)
        return (meaning){.verdict = HX_CAREFUL_AGAIN,
                         .may_have_happened = !result->nothing_sent,
                         .why = result->nothing_sent ? "nothing was sent" : "it was sent, and no response came"};
    return read_code(state, result, &read) ? read : of_status(state, result);
}

hx_careful_answer hx_careful_next(const hx_retry_policy *policy, const hx_careful_state *state,
                                  const hx_careful_result *result, hx_ms now, uint64_t random)
{
    meaning read = read_result(state, result);
    bool in_doubt = state->in_doubt || read.may_have_happened;
    hx_careful_answer answer = {.verdict = read.verdict, .in_doubt = in_doubt, .why = read.why};
    if (read.verdict == HX_CAREFUL_REFUSED && state->in_doubt && !read.is_certain) {
        answer.verdict = HX_CAREFUL_UNKNOWN;
        answer.why = "the server refuses this attempt, but an earlier one may have been executed";
    }
    if (answer.verdict != HX_CAREFUL_AGAIN) {
        answer.in_doubt = answer.verdict == HX_CAREFUL_UNKNOWN;
        return answer;
    }
    hx_careful_verdict end = in_doubt ? HX_CAREFUL_UNKNOWN : HX_CAREFUL_EXHAUSTED;
    if (!state->has_key && in_doubt && !hx_careful_is_repeatable(state->method)) {
        answer.verdict = end;
        answer.why = "it may have been executed, and without a key it can't be sent again safely";
        return answer;
    }
    hx_retry_question question = {.attempts = state->attempts,
                                  .elapsed = now - state->first_at,
                                  .at_once = read.at_once,
                                  .retry_after = result->retry_after,
                                  .client_left = state->client_left};
    hx_retry_answer next = hx_retry_next(policy, &question, random);
    if (next.verdict != HX_RETRY_AGAIN) {
        answer.verdict = end;
        answer.why = hx_retry_verdict_text(next.verdict);
    } else if (state->has_key && now + next.delay >= state->key_ends_at) {
        answer.verdict = HX_CAREFUL_UNKNOWN;
        answer.why = "the server may have forgotten the key by the time of the next attempt";
    } else {
        answer.delay = next.delay;
    }
    return answer;
}
