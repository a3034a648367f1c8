/* SPDX-License-Identifier: Apache-2.0 */
/* What an upstream's answer, or its absence, means for the operation (contract §5, guarantee `none`). */
#ifndef HX_CORE_OUTCOME_H
#define HX_CORE_OUTCOME_H

#include "base/slice.h"

typedef enum {
    HX_OUTCOME_COMPLETED,
    HX_OUTCOME_FAILED,       /* executed, and refused or broken: stored and replayed as it was */
    HX_OUTCOME_RELEASED,     /* nothing is stored, the key may be used again */
    HX_OUTCOME_NOT_EXECUTED, /* provably nothing happened: may be tried again, then released */
    HX_OUTCOME_UNKNOWN       /* may have happened */
} hx_outcome;

/* `Hapax-Outcome`, by which an application overrules the table. */
typedef enum { HX_WORD_NONE, HX_WORD_STORE, HX_WORD_RELEASE, HX_WORD_UNKNOWN } hx_outcome_word;

/* False for anything but store, release and unknown. */
bool hx_outcome_word_parse(hx_slice value, hx_outcome_word *word) HX_MUST_USE;

typedef struct {
    unsigned status;
    hx_outcome_word word; /* `release` of a success is ignored: it happened */
    bool has_retry_after;
    bool releases_5xx; /* for a laptop (--dev): a server error frees the key */
} hx_outcome_input;

hx_outcome hx_outcome_of_answer(const hx_outcome_input *answer);
/* The exchange ended without a whole answer. */
hx_outcome hx_outcome_of_silence(bool any_byte_sent);

const char *hx_outcome_name(hx_outcome outcome);

#endif
