/* SPDX-License-Identifier: Apache-2.0 */
#include "client/attempts.h"

#include "base/rand.h"
#include "base/text.h"
#include "core/json/json.h"
#include "core/retry/request_timeout.h"
#include "core/retry/retry_after.h"
#include "core/time/rfc3339.h"

#define ERROR_CODE_MAX 255u /* what a server sends may be as long as it likes; ours are shorter */

typedef struct {
    hx_intent *intent;
    const hx_attempts *how;
    hx_arena *arena;
    hx_ms first_at;    /* of this call */
    unsigned attempts; /* of this call */
    hx_careful_answer answer;
    hx_attempts_end *end;
} work;

static hx_slice field(hx_slice head, const char *name)
{
    hx_text_header header;
    while (hx_text_next_header(&head, &header))
        if (hx_slice_eq_nocase(header.name, hx_slice_of(name))) return header.value;
    return HX_EMPTY;
}

/* A problem (RFC 9457) has these in its body, too, where a proxy has dropped the header. */
static void read_problem(hx_careful_result *result, hx_slice body)
{
    hx_slice value;
    if (hx_json_pointer(body, HX_LIT("/retryable"), &value)) result->says_retry = hx_slice_eq(value, HX_LIT("true"));
    if (result->error_code.len == 0 && hx_json_pointer(body, HX_LIT("/error_code"), &value) && value.len > 2 &&
        value.ptr[0] == '"')
        result->error_code = (hx_slice){value.ptr + 1, value.len - 2};
}

hx_careful_result hx_attempts_read(const hx_attempt_reply *got, hx_ms now, hx_arena *arena)
{
    hx_careful_result result = {.status = got->status,
                                .nothing_sent = got->status == 0 && got->nothing_sent,
                                .idempotency_status = HX_EMPTY,
                                .error_code = HX_EMPTY,
                                .retry_after = HX_RETRY_AFTER_NONE};
    if (got->status == 0) return result;
    hx_slice retry_after = field(got->head, "retry-after");
    result.idempotency_status = hx_arena_copy(arena, field(got->head, "idempotency-status"));
    result.error_code = field(got->head, "error-code");
    if (retry_after.len > 0) result.retry_after = hx_retry_after(retry_after, now, HX_RETRY_AFTER_MAX);
    if (hx_slice_starts(field(got->head, "content-type"), HX_LIT("application/problem+json")))
        read_problem(&result, got->body);
    result.error_code = hx_arena_copy(arena, hx_slice_first(result.error_code, ERROR_CODE_MAX));
    return result;
}

static void keep_response(work *w, const hx_attempt_reply *got)
{
    hx_ms ends_at;
    if (hx_rfc3339_read(field(got->head, "idempotency-expires"), &ends_at)) w->intent->key_ends_at = ends_at;
    w->end->status = got->status;
    w->end->body = hx_arena_copy(w->arena, got->body);
    w->end->body_is_cut = got->body_is_cut;
    w->end->content_type = hx_arena_copy(w->arena, field(got->head, "content-type"));
    w->end->original_time = hx_arena_copy(w->arena, field(got->head, "original-request-time"));
    w->end->replayed = hx_slice_eq_nocase(field(got->head, "idempotent-replayed"), HX_LIT("true"));
}

/* Decides what the attempt means, and notes it. */
static void judge(work *w, const hx_attempt_reply *got)
{
    hx_ms now = hx_clock_wall();
    hx_intent_attempt *attempt = &w->intent->attempts[w->intent->attempt_count - 1];
    hx_careful_result result = hx_attempts_read(got, now, w->arena);
    *w->end = (hx_attempts_end){.body = HX_EMPTY, .content_type = HX_EMPTY, .original_time = HX_EMPTY};
    if (got->status != 0) keep_response(w, got);
    hx_ms left = w->how->budget > 0 ? w->first_at + w->how->budget - now : HX_TIMEOUT_NONE;
    hx_careful_state state = {.method = w->intent->request.method,
                              .has_key = w->intent->request.key.len > 0,
                              .attempts = w->attempts,
                              .in_doubt = attempt->in_doubt,
                              .first_at = w->first_at,
                              .key_ends_at = hx_intent_key_end(w->intent),
                              .client_left = left == HX_TIMEOUT_NONE || left > 0 ? left : 0};
    w->answer = hx_careful_next(&w->how->policy, &state, &result, now, hx_rand_u64());
    attempt->nothing_sent = result.nothing_sent;
    /* What was done is told by the outcome, which is not written yet: until then it may have been done. */
    attempt->in_doubt = w->answer.in_doubt || w->answer.verdict == HX_CAREFUL_DONE;
    attempt->status = result.status;
    attempt->ms = (uint64_t)got->duration;
    attempt->code = result.error_code;
    attempt->note = got->status != 0 ? hx_slice_of(w->answer.why)
                                     : hx_arena_copy(&w->intent->arena, hx_slice_of(got->reason ? got->reason : ""));
    w->end->why = hx_slice_of(w->answer.why);
    if (got->is_invalid) { /* it never will be valid */
        w->answer = (hx_careful_answer){.verdict = HX_CAREFUL_REFUSED, .why = "it can't be sent as it is"};
        w->end->why = hx_arena_copy(w->arena, attempt->note);
    }
    if (got->is_denied) { /* it may be allowed later, but not by waiting */
        w->answer.verdict = w->answer.in_doubt ? HX_CAREFUL_UNKNOWN : HX_CAREFUL_EXHAUSTED;
        w->end->why = hx_arena_copy(w->arena, attempt->note);
    }
}

static bool attempt_once(work *w, hx_ms delay, hx_error_text error)
{
    hx_intent *intent = w->intent;
    hx_attempt_reply got = {.head = HX_EMPTY, .body = HX_EMPTY};
    bool in_doubt = hx_intent_in_doubt(intent);
    hx_ms now = hx_clock_wall();
    if (w->attempts++ == 0) w->first_at = now;
    if (!w->how->prepare(w->how->user, now - w->first_at, error) || !hx_intent_begin(intent, now, delay, error))
        return false;
    intent->attempts[intent->attempt_count - 1].in_doubt = in_doubt;
    w->how->send(w->how->user, &got);
    judge(w, &got);
    return hx_intent_end(intent, error);
}

static bool repeat(work *w, hx_error_text error)
{
    hx_ms delay = 0;
    for (;;) {
        if (w->intent->request.key.len > 0 && hx_clock_wall() >= hx_intent_key_end(w->intent)) {
            w->answer = (hx_careful_answer){.verdict = HX_CAREFUL_UNKNOWN};
            w->end->why = HX_LIT("the server may have forgotten the key: find out at the server whether it was done");
            return true;
        }
        if (!attempt_once(w, delay, error)) return false;
        if (w->answer.verdict != HX_CAREFUL_AGAIN) return true;
        delay = w->answer.delay;
        if (!w->how->wait(w->how->user, delay, w->answer.why, w->attempts)) {
            w->answer.verdict = w->answer.in_doubt ? HX_CAREFUL_UNKNOWN : HX_CAREFUL_EXHAUSTED;
            w->end->why = HX_LIT("the call was cancelled before the next attempt");
            return true;
        }
    }
}

static bool finish(work *w, hx_error_text error)
{
    hx_attempts_end *end = w->end;
    end->verdict = w->answer.verdict;
    if (end->verdict != HX_CAREFUL_DONE && end->verdict != HX_CAREFUL_REFUSED) return true; /* it can be resumed */
    hx_intent_outcome outcome = {.verdict = hx_slice_of(hx_careful_verdict_name(end->verdict)),
                                 .at = hx_clock_wall(),
                                 .status = end->status,
                                 .replayed = end->replayed,
                                 .original_time = end->original_time,
                                 .content_type = end->content_type,
                                 .note = end->why,
                                 .body = end->body};
    return hx_intent_finish(w->intent, &outcome, error);
}

bool hx_attempts_perform(hx_intent *intent, const hx_attempts *how, hx_arena *arena, hx_attempts_end *end,
                         hx_error_text error)
{
    work w = {.intent = intent, .how = how, .arena = arena, .end = end};
    *end = (hx_attempts_end){.why = HX_EMPTY, .body = HX_EMPTY, .content_type = HX_EMPTY, .original_time = HX_EMPTY};
    return repeat(&w, error) && finish(&w, error);
}
