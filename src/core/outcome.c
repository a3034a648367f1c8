/* SPDX-License-Identifier: Apache-2.0 */
#include "core/outcome.h"

static hx_outcome of_redirect(unsigned status)
{
    /* 301 to 303 send the client on after the work was done; the others ask it to repeat the request elsewhere. */
    return status >= 301 && status <= 303 ? HX_OUTCOME_COMPLETED : HX_OUTCOME_RELEASED;
}

static hx_outcome of_client_error(unsigned status)
{
    switch (status) {
    case 401:
    case 403: return HX_OUTCOME_RELEASED;
    case 408:
    case 421:
    case 425:
    case 429: return HX_OUTCOME_NOT_EXECUTED;
    default: return HX_OUTCOME_FAILED;
    }
}

static hx_outcome of_server_error(const hx_outcome_input *answer)
{
    switch (answer->status) {
    case 503:
        if (answer->has_retry_after) return HX_OUTCOME_NOT_EXECUTED;
        return HX_OUTCOME_UNKNOWN; /* balancers answer 503 after they have sent the request on */
    case 502:
    case 504: return HX_OUTCOME_UNKNOWN;
    default: return answer->releases_5xx ? HX_OUTCOME_RELEASED : HX_OUTCOME_FAILED;
    }
}

bool hx_outcome_word_parse(hx_slice value, hx_outcome_word *word)
{
    static const char *const words[] = {"", "store", "release", "unknown"};
    for (int i = HX_WORD_STORE; i <= HX_WORD_UNKNOWN; i++) {
        if (!hx_slice_eq(value, hx_slice_of(words[i]))) continue;
        *word = (hx_outcome_word)i;
        return true;
    }
    return false;
}

hx_outcome hx_outcome_of_answer(const hx_outcome_input *answer)
{
    unsigned status = answer->status;
    bool is_final = status >= 200 && status < 600;
    if (is_final && answer->word == HX_WORD_UNKNOWN) return HX_OUTCOME_UNKNOWN;
    if (is_final && answer->word == HX_WORD_STORE) return status < 400 ? HX_OUTCOME_COMPLETED : HX_OUTCOME_FAILED;
    if (is_final && answer->word == HX_WORD_RELEASE && status >= 300) return HX_OUTCOME_RELEASED;
    if (status >= 200 && status < 300) return HX_OUTCOME_COMPLETED;
    if (status >= 300 && status < 400) return of_redirect(status);
    if (status >= 400 && status < 500) return of_client_error(status);
    if (status >= 500 && status < 600) return of_server_error(answer);
    return HX_OUTCOME_UNKNOWN; /* 101, and numbers that mean nothing */
}

hx_outcome hx_outcome_of_silence(bool any_byte_sent)
{
    return any_byte_sent ? HX_OUTCOME_UNKNOWN : HX_OUTCOME_NOT_EXECUTED;
}

const char *hx_outcome_name(hx_outcome outcome)
{
    static const char *const names[] = {"completed", "failed", "released", "not_executed", "unknown"};
    return names[outcome];
}
