/* SPDX-License-Identifier: Apache-2.0 */
/* Whether to try again, and when (contract §6). A policy comes from a class of work and what a route or a command says
 * otherwise; the question is asked after each attempt that failed and may be repeated. Whether it may be repeated is
 * not decided here: that is the outcome's and the guarantee's, or hx_retry_client()'s.
 *
 * What must hold, whatever the answers were:
 * 1. an attempt never begins when `attempts` were made, later than `total` after the first began, or when the client's
 *    budget is over;
 * 2. an attempt never begins before the moment that Retry-After named, nor before its place in a schedule;
 * 3. a delay of ours is never longer than `cap`, or with `half` jitter than half as much again.
 * Nothing here reads a clock or draws a random number: both are passed in, so that a simulator can repeat a run. */
#ifndef HX_CORE_RETRY_BACKOFF_H
#define HX_CORE_RETRY_BACKOFF_H

#include "base/clock.h"

/* identifier, name, attempts (the first included), total, base, cap, jitter, whether it follows the schedule */
#define HX_RETRY_CLASSES(X)                                                                                            \
    X(USER, "user", 4, 10 * HX_SECOND, 100, 2 * HX_SECOND, SPREAD, false)                                              \
    X(BACKGROUND, "background", 6, 5 * HX_MINUTE, 4 * HX_SECOND, 64 * HX_SECOND, SPREAD, false)                        \
    X(WEBHOOK, "webhook", 10, HX_DAY + HX_DAY / 10, 5 * HX_SECOND, HX_DAY, ADDITIVE, true)                             \
    X(SCHEDULED, "scheduled", 4, HX_HOUR, HX_MINUTE, 15 * HX_MINUTE, SPREAD, false)

/* identifier, name, attempts, base, cap, jitter */
#define HX_RETRY_PROFILES(X)                                                                                           \
    X(QUICK, "quick", 5, 100, 2 * HX_SECOND, SPREAD)                                                                   \
    X(PATIENT, "patient", 5, HX_SECOND, 30 * HX_SECOND, HALF)                                                          \
    X(MOBILE, "mobile", 4, HX_SECOND, 30 * HX_SECOND, ADDITIVE)

/* identifier, name, what becomes of d */
#define HX_JITTERS(X)                                                                                                  \
    X(SPREAD, "spread", "U(d, 2d)")                                                                                    \
    X(FULL, "full", "U(0, d)")                                                                                         \
    X(HALF, "half", "U(0.5d, 1.5d)")                                                                                   \
    X(ADDITIVE, "additive", "d + U(0, 1 s)")                                                                           \
    X(NONE, "none", "d")

/* Whether there is another attempt, or why not: identifier, name for logs and metrics, sentence. NO_ROOM comes from
 * the retry budget (core/retry/retry_budget.h), never from hx_retry_next. */
#define HX_RETRY_VERDICTS(X)                                                                                           \
    X(AGAIN, "again", "There is time for another attempt, and the retry budget allows it.")                            \
    X(NO_ATTEMPTS, "attempts", "All allowed attempts failed.")                                                         \
    X(NO_TIME, "total", "The next attempt would start after the time for retries.")                                    \
    X(NO_PATIENCE, "client_budget", "The next attempt would start after the request timeout.")                         \
    X(NO_ROOM, "retry_budget", "The upstream's retry budget is used up.")                                              \
    X(TOLD_LATER, "retry_after", "The upstream asks for a longer wait than there is time for.")

#define X(id, ...) HX_CLASS_##id,
typedef enum { HX_RETRY_CLASSES(X) HX_CLASS_COUNT } hx_retry_class;
#undef X
#define X(id, ...) HX_PROFILE_##id,
typedef enum { HX_PROFILE_UNSET, HX_RETRY_PROFILES(X) HX_PROFILE_COUNT } hx_retry_profile;
#undef X
#define X(id, ...) HX_JITTER_##id,
typedef enum { HX_JITTER_UNSET, HX_JITTERS(X) HX_JITTER_COUNT } hx_jitter;
#undef X
#define X(id, ...) HX_RETRY_##id,
typedef enum { HX_RETRY_VERDICTS(X) HX_RETRY_VERDICT_COUNT } hx_retry_verdict;
#undef X

/* For the configuration: exact names only. */
bool hx_retry_class_parse(hx_slice name, hx_retry_class *out) HX_MUST_USE;
bool hx_retry_profile_parse(hx_slice name, hx_retry_profile *out) HX_MUST_USE;
bool hx_jitter_parse(hx_slice name, hx_jitter *out) HX_MUST_USE;
const char *hx_retry_class_name(hx_retry_class class);
const char *hx_retry_profile_name(hx_retry_profile profile);
const char *hx_jitter_name(hx_jitter jitter);
const char *hx_retry_verdict_name(hx_retry_verdict verdict);
const char *hx_retry_verdict_text(hx_retry_verdict verdict);

#define HX_RETRY_ATTEMPTS_MAX 100u
#define HX_RETRY_SPAN_MAX (30 * HX_DAY) /* of total, base and cap */
#define HX_RETRY_STEPS 10u              /* of the schedule */

typedef struct {
    unsigned attempts; /* the first included */
    hx_jitter jitter;
    hx_ms total; /* since the first attempt began; ends new attempts, cuts none short */
    hx_ms base;  /* d = base * 2^n, jittered, then capped; `half`: capped, then jittered */
    hx_ms cap;
    const hx_ms *schedule; /* HX_RETRY_STEPS offsets from the first attempt, instead of base and cap; or NULL */
} hx_retry_policy;

/* `retry: {attempts, total, base, cap, jitter, profile}`; what is zero was not said. */
typedef struct {
    unsigned attempts;
    hx_ms total;
    hx_ms base;
    hx_ms cap;
    hx_jitter jitter;
    hx_retry_profile profile;
} hx_retry_overrides;

hx_retry_policy hx_retry_policy_of_class(hx_retry_class class);
/* The class's values, over them the profile's, over them what was said in so many words. A base or a profile takes a
 * class off its schedule. False with a sentence in *error when the values don't fit each other. */
bool hx_retry_policy_make(hx_retry_class class, const hx_retry_overrides *overrides, hx_retry_policy *policy,
                          const char **error) HX_MUST_USE;

typedef struct {
    unsigned attempts; /* made so far, at least 1 */
    hx_ms elapsed;     /* since the first one began */
    bool at_once;      /* the answer was 408: no delay, but an attempt all the same */
    hx_ms retry_after; /* HX_RETRY_AFTER_NONE, or as hx_retry_after() read it */
    hx_ms client_left; /* HX_TIMEOUT_NONE, or what is left of the client's budget */
} hx_retry_question;

typedef struct {
    hx_retry_verdict verdict;
    hx_ms delay; /* from now; with TOLD_LATER the Retry-After for the client; 0 otherwise */
} hx_retry_answer;

/* Decides whether and when to try again. `random` is any number from hx_rand_u64(). */
hx_retry_answer hx_retry_next(const hx_retry_policy *policy, const hx_retry_question *question, uint64_t random);

/* An attempt on the webhook schedule that failed. */
typedef struct {
    unsigned step;     /* from 0 */
    hx_ms first_at;    /* start of the first attempt */
    hx_ms last_at;     /* start of this attempt */
    hx_ms now;         /* its end */
    hx_ms retry_after; /* HX_RETRY_AFTER_NONE, or how long its response asked to wait, from now */
} hx_retry_steps;

typedef struct {
    unsigned step;
    hx_ms due;
} hx_retry_step;

/* When the next attempt is due, and which step it is; whether there is one is the caller's rule. It comes at its place
 * in the schedule, or up to a tenth later. After an attempt that came late (its sender was down, or the clock was set
 * forward) it is no sooner than the two steps are apart. Steps that pass while Retry-After is obeyed merge into it. */
hx_retry_step hx_retry_scheduled(const hx_retry_steps *failed, uint64_t random);

/* How our own clients (`hapax send`, deliveries) act on a response. The gateway follows §5 instead. */
typedef enum { HX_REPEAT_NEVER, HX_REPEAT_LATER, HX_REPEAT_AT_ONCE } hx_repeat;

typedef struct {
    unsigned status; /* 0: no response (connect error, reset, timeout) */
    bool is_final;   /* marked Idempotency-Status: stored or replayed */
    bool says_retry; /* its problem says `retryable` */
} hx_client_answer;

hx_repeat hx_retry_client(const hx_client_answer *answer);
/* `dead_on_client_error`: the endpoint's 4xx are meant (but 408, 425 and 429 speak of the moment, not of the event). */
hx_repeat hx_retry_delivery(unsigned status, bool dead_on_client_error);

#endif
