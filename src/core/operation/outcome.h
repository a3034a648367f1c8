/* SPDX-License-Identifier: Apache-2.0 */
/* What an upstream's response, or its absence, means for the operation (contract §5): its outcome when nothing more
 * is tried, and whether it may be sent again before that. */
#ifndef HX_CORE_OPERATION_OUTCOME_H
#define HX_CORE_OPERATION_OUTCOME_H

#include "base/slice.h"

typedef enum {
    HX_OUTCOME_COMPLETED,
    HX_OUTCOME_FAILED,       /* executed, and refused or failed: stored and replayed unchanged */
    HX_OUTCOME_RELEASED,     /* nothing is stored, the key may be used again */
    HX_OUTCOME_NOT_EXECUTED, /* provably nothing happened: released */
    HX_OUTCOME_UNKNOWN       /* may have happened */
} hx_outcome;

/* What the upstream guarantees, which decides what may be repeated. */
typedef enum {
    HX_GUARANTEE_NONE,
    HX_GUARANTEE_ATOMIC,       /* an error response of the application itself means that nothing happened */
    HX_GUARANTEE_IDEMPOTENT,   /* it deduplicates by the forwarded key */
    HX_GUARANTEE_TRANSACTIONAL /* it completes the operation in the transaction of its effect, in the same store */
} hx_guarantee;

/* Whether a request that may have been executed may be sent again, because the upstream executes it only once. Where
 * the store ensures that, only under a new epoch. */
static inline bool hx_guarantee_repeats(hx_guarantee guarantee)
{
    return guarantee == HX_GUARANTEE_IDEMPOTENT || guarantee == HX_GUARANTEE_TRANSACTIONAL;
}

/* `Hapax-Outcome`, by which an application overrules the table, and a route's `outcome` and `not_executed`. */
typedef enum {
    HX_WORD_NONE,
    HX_WORD_STORE,
    HX_WORD_RELEASE,
    HX_WORD_UNKNOWN,
    HX_WORD_NOT_EXECUTED /* in a route only */
} hx_outcome_word;

/* False for anything but store, release and unknown. */
bool hx_outcome_word_parse(hx_slice value, hx_outcome_word *word) HX_MUST_USE;

/* A rule of a route for one status. */
typedef struct {
    uint16_t status;
    hx_outcome_word word;
} hx_outcome_rule;

#define HX_OUTCOME_RULES_MAX 32u

typedef struct {
    unsigned status;
    hx_outcome_word word; /* from the response; `release` of a success is ignored, since it happened */
    bool has_retry_after;
    bool releases_5xx; /* with --dev: a server error frees the key */
    bool releases_4xx; /* natural keys: a client error frees the key, too */
    bool is_delete;
    bool after_silence; /* an earlier attempt of this operation was sent and ended without a response */
    hx_guarantee guarantee;
    const hx_outcome_rule *rules;
    size_t rule_count;
} hx_outcome_input;

typedef struct {
    hx_outcome outcome; /* when nothing more is tried */
    bool repeat;        /* it may be sent again before, as far as the class and the budgets allow */
    bool at_once;       /* without a delay (408) */
    bool probe_tells;   /* a probe can tell what happened (404 on DELETE and 412, after silence) */
} hx_verdict;

hx_verdict hx_outcome_of_answer(const hx_outcome_input *answer);
/* Judges an exchange that ended without a whole response, or timed out. */
hx_verdict hx_outcome_of_silence(bool any_byte_sent, bool after_silence, hx_guarantee guarantee);

const char *hx_outcome_name(hx_outcome outcome);

#endif
