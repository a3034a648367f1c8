/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of `hapax prove`, what was seen in one, and what that shows. Nothing here sends anything.
 *
 * What must hold: HOLDS and BROKEN are said only of what was seen. Responses alone never show that there was one
 * effect: that takes a count, an id that is known to differ between operations, or the gateway, behind which every
 * request that reaches the API is seen. */
#ifndef HX_CMD_PROVE_VERDICT_H
#define HX_CMD_PROVE_VERDICT_H

#include "base/clock.h"
#include "base/memory/arena.h"

#define HX_PROVE_TOGETHER 10u
#define HX_PROVE_RESPONSES_MAX 12u

/* id, name, what is done, what must follow */
#define HX_PROVE_CASES(X)                                                                                              \
    X(NEW_KEY, "new key", "the same request with two keys", "two operations")                                          \
    X(DUPLICATE, "duplicate", "the same request twice with one key", "one effect, the same response")                  \
    X(AT_ONCE, "ten at once", "ten requests at the same time with one key", "one effect, no two responses")            \
    X(MISMATCH, "mismatch", "a key again, with another body", "refused with 409 or 422, no effect")                    \
    X(TIMEOUT, "timeout", "the connection is dropped when the request is sent; retried", "one effect, its response")   \
    X(CRASH, "crash", "kill -9 before the response is passed on; restarted, retried", "one effect, its response")      \
    X(RESTART, "restart", "kill -9 after the response; restarted, sent again", "one effect, the same response")

typedef enum {
#define X(id, name, done, expected) HX_PROVE_##id,
    HX_PROVE_CASES(X)
#undef X
        HX_PROVE_CASE_COUNT
} hx_prove_case;

const char *hx_prove_case_name(hx_prove_case which);
const char *hx_prove_case_done(hx_prove_case which);
const char *hx_prove_case_expected(hx_prove_case which);

typedef struct {
    unsigned status;  /* 0: no response */
    hx_slice failure; /* why there is none */
    hx_slice body, code, idempotency_status;
    hx_slice id; /* what is at the pointer that identifies an effect; empty: nothing */
    hx_ms duration;
} hx_prove_response;

typedef struct {
    hx_prove_response responses[HX_PROVE_RESPONSES_MAX]; /* in the order in which the requests were started */
    size_t count;
    int64_t effects;     /* -1: not counted */
    int64_t reached;     /* requests that reached the API; -1: not seen */
    const char *not_run; /* why the case was left out; NULL: it was run */
} hx_prove_seen;

typedef enum {
    HX_PROVE_HOLDS,
    HX_PROVE_SAFE, /* no second effect, and a client that was not told the result */
    HX_PROVE_UNCLEAR,
    HX_PROVE_BROKEN,
    HX_PROVE_NOT_RUN
} hx_prove_word;

const char *hx_prove_word_text(hx_prove_word word);

typedef struct {
    hx_prove_word word;
    hx_slice why;
} hx_prove_verdict;

/* `ids_differ`: two operations were seen to have two ids. */
hx_prove_verdict hx_prove_judge(hx_prove_case which, const hx_prove_seen *seen, bool ids_differ, hx_arena *arena);
/* Whether two operations have two ids, from what was seen in NEW_KEY. */
bool hx_prove_ids_differ(const hx_prove_seen *seen);

#endif
