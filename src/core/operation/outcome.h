/* SPDX-License-Identifier: Apache-2.0 */
/* What an upstream's answer, or its absence, means for the operation (contract §5): what it is when nothing more is
 * tried, and whether it may be sent again before that. */
#ifndef HX_CORE_OPERATION_OUTCOME_H
#define HX_CORE_OPERATION_OUTCOME_H

#include "base/slice.h"

typedef enum {
    HX_OUTCOME_COMPLETED,
    HX_OUTCOME_FAILED,       /* executed, and refused or broken: stored and replayed as it was */
    HX_OUTCOME_RELEASED,     /* nothing is stored, the key may be used again */
    HX_OUTCOME_NOT_EXECUTED, /* provably nothing happened: released */
    HX_OUTCOME_UNKNOWN       /* may have happened */
} hx_outcome;

/* What the upstream declares, and so what may be repeated. */
typedef enum {
    HX_GUARANTEE_NONE,
    HX_GUARANTEE_ATOMIC,       /* an error answer of its own means that nothing happened */
    HX_GUARANTEE_IDEMPOTENT,   /* it deduplicates by the forwarded key */
    HX_GUARANTEE_TRANSACTIONAL /* it completes the operation in the transaction of its effect, in this very store */
} hx_guarantee;

/* Whether what may have happened may be sent again: it is done once all the same. Where that is the store's doing, only
 * under a new epoch. */
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

/* What a route says of one status. */
typedef struct {
    uint16_t status;
    hx_outcome_word word;
} hx_outcome_rule;

#define HX_OUTCOME_RULES_MAX 32u

typedef struct {
    unsigned status;
    hx_outcome_word word; /* the answer's own; `release` of a success is ignored: it happened */
    bool has_retry_after;
    bool releases_5xx; /* for a laptop (--dev): a server error frees the key */
    bool releases_4xx; /* natural keys: the same for what the client can mend */
    bool is_delete;
    bool after_silence; /* an earlier attempt of this operation was sent and ended without an answer */
    hx_guarantee guarantee;
    const hx_outcome_rule *rules;
    size_t rule_count;
} hx_outcome_input;

typedef struct {
    hx_outcome outcome; /* when nothing more is tried */
    bool repeat;        /* it may be sent again first, as far as the class and the budgets allow */
    bool at_once;       /* without a delay (408) */
    bool probe_tells;   /* a probe can tell what happened (404 on DELETE and 412, after silence) */
} hx_verdict;

hx_verdict hx_outcome_of_answer(const hx_outcome_input *answer);
/* The exchange ended without a whole answer, or its time is up. */
hx_verdict hx_outcome_of_silence(bool any_byte_sent, bool after_silence, hx_guarantee guarantee);

const char *hx_outcome_name(hx_outcome outcome);

#endif
