/* SPDX-License-Identifier: Apache-2.0 */
#include "core/operation/outcome.h"

#include "base/check.h"

static const char *const words[] = {"", "store", "release", "unknown", "not_executed"};

bool hx_outcome_word_parse(hx_slice value, hx_outcome_word *word)
{
    for (int i = HX_WORD_STORE; i <= HX_WORD_UNKNOWN; i++) {
        if (!hx_slice_eq(value, hx_slice_of(words[i]))) continue;
        *word = (hx_outcome_word)i;
        return true;
    }
    return false;
}

static const hx_verdict completed = {.outcome = HX_OUTCOME_COMPLETED}, failed = {.outcome = HX_OUTCOME_FAILED},
                        released = {.outcome = HX_OUTCOME_RELEASED};

static hx_verdict not_executed(unsigned status)
{
    return (hx_verdict){.outcome = HX_OUTCOME_NOT_EXECUTED, .repeat = true, .at_once = status == 408};
}

static hx_verdict unknown(hx_guarantee guarantee)
{
    return (hx_verdict){.outcome = HX_OUTCOME_UNKNOWN, .repeat = hx_guarantee_repeats(guarantee)};
}

static hx_verdict of_redirect(unsigned status)
{
    /* 301 to 303 redirect the client after the work was done; the others ask it to repeat the request at another
     * URL. */
    return status >= 301 && status <= 303 ? completed : released;
}

static hx_verdict of_client_error(const hx_outcome_input *answer)
{
    switch (answer->status) {
    case 401:
    case 403: return released;
    case 408:
    case 421:
    case 425:
    case 429: return not_executed(answer->status);
    default: return answer->releases_4xx ? released : failed;
    }
}

static hx_verdict of_server_error(const hx_outcome_input *answer)
{
    bool is_atomic = answer->guarantee == HX_GUARANTEE_ATOMIC;
    switch (answer->status) {
    case 503:
        if (answer->has_retry_after || is_atomic) return not_executed(answer->status);
        if (!answer->releases_5xx) return unknown(answer->guarantee); /* a load balancer may have forwarded it */
        break;
    case 502:
    case 504:
        if (!answer->releases_5xx) return unknown(answer->guarantee);
        break;
    case 500:
        if (is_atomic) return not_executed(answer->status);
        break;
    default: break;
    }
    hx_verdict verdict = answer->releases_5xx ? released : failed;
    bool is_transient = answer->status != 501 && answer->status != 505; /* statuses about the request itself */
    verdict.repeat = is_transient && answer->guarantee == HX_GUARANTEE_IDEMPOTENT;
    return verdict;
}

/* An earlier attempt may have done the work, and this response may be about its result: what it made, removed or
 * changed. */
static bool of_earlier_attempt(const hx_outcome_input *answer, hx_verdict *verdict)
{
    switch (answer->status) {
    case 409:
    case 423: *verdict = (hx_verdict){.outcome = HX_OUTCOME_UNKNOWN, .repeat = true}; return true;
    case 404:
        if (!answer->is_delete) return false;
        break;
    case 412: break;
    default: return false;
    }
    *verdict = (hx_verdict){.outcome = HX_OUTCOME_UNKNOWN, .probe_tells = true};
    return true;
}

static hx_verdict of_status(const hx_outcome_input *answer)
{
    unsigned status = answer->status;
    hx_verdict verdict;
    if (answer->after_silence && of_earlier_attempt(answer, &verdict)) return verdict;
    if (status >= 200 && status < 300) return completed;
    if (status >= 300 && status < 400) return of_redirect(status);
    if (status >= 400 && status < 500) return of_client_error(answer);
    if (status >= 500 && status < 600) return of_server_error(answer);
    return unknown(answer->guarantee); /* not a final status of HTTP */
}

static bool of_word(hx_outcome_word word, const hx_outcome_input *answer, hx_verdict *verdict)
{
    unsigned status = answer->status;
    switch (word) {
    case HX_WORD_STORE: *verdict = status < 400 ? completed : failed; return true;
    case HX_WORD_UNKNOWN: *verdict = unknown(answer->guarantee); return true;
    case HX_WORD_RELEASE:
        if (status < 300) return false; /* it happened */
        *verdict = released;
        return true;
    case HX_WORD_NOT_EXECUTED:
        if (status < 300) return false;
        *verdict = not_executed(status);
        return true;
    default: return false;
    }
}

static bool of_rules(const hx_outcome_input *answer, hx_verdict *verdict)
{
    for (size_t i = 0; i < answer->rule_count; i++)
        if (answer->rules[i].status == answer->status) return of_word(answer->rules[i].word, answer, verdict);
    return false;
}

/* An earlier attempt may have been executed, whatever became of the last one. */
static hx_verdict remember_silence(hx_verdict verdict, bool after_silence)
{
    bool frees = verdict.outcome == HX_OUTCOME_RELEASED || verdict.outcome == HX_OUTCOME_NOT_EXECUTED;
    if (after_silence && frees) verdict.outcome = HX_OUTCOME_UNKNOWN;
    return verdict;
}

hx_verdict hx_outcome_of_answer(const hx_outcome_input *answer)
{
    hx_verdict verdict;
    bool is_final = answer->status >= 200 && answer->status < 600;
    if (is_final && of_word(answer->word, answer, &verdict)) return verdict; /* the application knows best */
    if (!is_final || !of_rules(answer, &verdict)) verdict = of_status(answer);
    return remember_silence(verdict, answer->after_silence);
}

hx_verdict hx_outcome_of_silence(bool any_byte_sent, bool after_silence, hx_guarantee guarantee)
{
    if (!any_byte_sent) return remember_silence(not_executed(0), after_silence);
    return unknown(guarantee);
}

const char *hx_outcome_name(hx_outcome outcome)
{
    static const char *const names[] = {"completed", "failed", "released", "not_executed", "unknown"};
    HX_CHECK((size_t)outcome < sizeof names / sizeof names[0]);
    return names[outcome];
}
