/* SPDX-License-Identifier: Apache-2.0 */
/* What the result of an attempt means to a careful client (contract §6, `hapax send`): whether the request took effect,
 * was refused, may have taken effect, or is to be sent again, and when.
 *
 * What must hold:
 * 1. DONE and REFUSED are said only when a response says so about this operation. A refusal of this attempt says
 *    nothing of an earlier one that may have been executed: that is UNKNOWN.
 * 2. A request without a key is sent again only if nothing of it was sent, or if its method makes that harmless.
 * 3. Nothing is sent when the server may have forgotten the key (key_ends_at).
 * Nothing here reads a clock or draws a random number. */
#ifndef HX_CORE_RETRY_CAREFUL_H
#define HX_CORE_RETRY_CAREFUL_H

#include "core/retry/backoff.h"

typedef enum {
    HX_CAREFUL_AGAIN,
    HX_CAREFUL_DONE,
    HX_CAREFUL_REFUSED,
    HX_CAREFUL_UNKNOWN,  /* it may have been executed */
    HX_CAREFUL_EXHAUSTED /* it was not executed, and there are no attempts left */
} hx_careful_verdict;

const char *hx_careful_verdict_name(hx_careful_verdict verdict);

typedef struct {
    unsigned status;             /* 0: no response */
    bool nothing_sent;           /* no byte of the request left this machine */
    hx_slice idempotency_status; /* these fields of the response; empty: it has none */
    hx_slice error_code;
    hx_ms retry_after; /* HX_RETRY_AFTER_NONE, or from now */
    bool says_retry;   /* its problem says `retryable` */
} hx_careful_result;

typedef struct {
    hx_slice method;
    bool has_key;
    unsigned attempts; /* made, this one included */
    bool in_doubt;     /* an earlier attempt may have been executed */
    hx_ms first_at;    /* start of the first attempt */
    hx_ms key_ends_at;
    hx_ms client_left; /* HX_TIMEOUT_NONE, or what is left of the caller's time */
} hx_careful_state;

typedef struct {
    hx_careful_verdict verdict;
    bool in_doubt; /* this attempt or an earlier one may have been executed */
    hx_ms delay;   /* AGAIN: from now */
    const char *why;
} hx_careful_answer;

hx_careful_answer hx_careful_next(const hx_retry_policy *policy, const hx_careful_state *state,
                                  const hx_careful_result *result, hx_ms now, uint64_t random);
/* Whether repeating a request of this method without a key does no harm. */
bool hx_careful_is_repeatable(hx_slice method);

#endif
