/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of ours, with a hint on what to do, in the words of the route's dialect: application/problem+json (RFC 9457),
 * or Stripe's own shape. Which error it is never depends on the dialect; only its status and its looks do. */
#ifndef HX_GATEWAY_MESSAGES_PROBLEM_H
#define HX_GATEWAY_MESSAGES_PROBLEM_H

#include "gateway/request.h"

typedef struct {
    hx_error error;
    unsigned status;     /* 0: the error's own */
    hx_ms original_time; /* of the first request, where the error is about one; 0: none */
    hx_slice detail;     /* empty: the error's title */
    hx_slice correlation;
    hx_slice docs; /* where the errors are documented: the code is put behind it */
    hx_dialect dialect;
} hx_problem;

/* The status of an error where nothing else was said of it: that of its row, but for what the dialects disagree on. */
unsigned hx_problem_status(hx_error error, hx_dialect dialect);

/* The error for a status by which net/ refuses a request: malformed, or too slow. */
static inline hx_error hx_problem_malformed(unsigned status)
{
    return status == 408 ? HX_ERROR_TOO_SLOW : HX_ERROR_MALFORMED;
}

/* The error that r is about to be answered with. */
hx_problem hx_problem_of(const hx_request *r);
/* Writes the header lines and the body; both buffers are on an arena. */
void hx_problem_write(const hx_problem *problem, hx_buf *lines, hx_buf *body);
/* The error that r is about to be answered with, as an answer that those who wait for it can get too. */
void hx_problem_answer(hx_request *r, hx_answer *answer);

#define HX_PROBLEM_LINES_MAX 2048u
#define HX_PROBLEM_BODY_MAX 16384u

#endif
