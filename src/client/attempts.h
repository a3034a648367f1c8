/* SPDX-License-Identifier: Apache-2.0 */
/* Works on an intent until it has ended, or there is nothing more to do now: attempt, decide, wait, attempt. What sends
 * an attempt, and waits, is the caller's: `hapax send` has libcurl, programs with libhapax bring their own. */
#ifndef HX_CLIENT_ATTEMPTS_H
#define HX_CLIENT_ATTEMPTS_H

#include "client/intent.h"

/* What came of one attempt. */
typedef struct {
    unsigned status;    /* 0: no response */
    bool nothing_sent;  /* no byte of the request left this machine */
    bool is_invalid;    /* it can't be sent as it is, and never will be */
    bool is_denied;     /* it must not be sent there; waiting doesn't change that */
    const char *reason; /* why there is no response */
    hx_slice head;      /* "Name: value\r\n" lines */
    hx_slice body;
    bool body_is_cut;
    hx_ms duration;
} hx_attempt_reply;

typedef struct {
    /* Puts the request of the next attempt together. False with a sentence: it can't be; nothing is sent. */
    bool (*prepare)(void *user, hx_ms elapsed, hx_error_text error);
    /* Makes the attempt; returns when it is over. */
    void (*send)(void *user, hx_attempt_reply *result);
    /* False: no further attempt is wanted. */
    bool (*wait)(void *user, hx_ms delay, const char *why, unsigned attempts);
    void *user;
    hx_retry_policy policy;
    hx_ms budget; /* for everything; 0: none */
} hx_attempts;

typedef struct {
    hx_careful_verdict verdict;
    hx_slice why;
    unsigned status;
    hx_slice body, content_type, original_time;
    bool body_is_cut, replayed;
} hx_attempts_end;

/* The texts of `end` are in the arena. False with a sentence: the intent could not be written, or the request is not
 * one that can be sent; nothing is under way then. */
bool hx_attempts_perform(hx_intent *intent, const hx_attempts *how, hx_arena *arena, hx_attempts_end *end,
                         hx_error_text error) HX_MUST_USE;
/* Reads what a response says about its request; `now` is the wall time. Texts point into *got, or are in the arena. */
hx_careful_result hx_attempts_read(const hx_attempt_reply *got, hx_ms now, hx_arena *arena);

#endif
