/* SPDX-License-Identifier: Apache-2.0 */
/* All that is reported of one request, filled once, when it has ended. The access log is printed from it; metrics and
 * traces will be. Texts and pointers are the request's own and end with it; 0, NULL or empty means that the request has
 * no such thing. */
#ifndef HX_OBSERVE_SUMMARY_H
#define HX_OBSERVE_SUMMARY_H

#include "base/clock.h"
#include "core/crypto/mac.h"
#include "core/operation/record.h"

/* How an exchange with an upstream failed. */
typedef struct {
    hx_slice upstream; /* its URL */
    const char *error;
    const char *reason; /* the system's, where it gave one */
} hx_upstream_failure;

typedef struct {
    hx_slice method, path; /* as the client sent them */
    hx_slice peer;         /* the client's address, where nothing else identifies what it sent */
    hx_slice correlation;
    unsigned status;
    bool is_timed;           /* `duration` and `step_ms` hold */
    hx_ms duration;          /* from its head to its end */
    hx_slice route;          /* the type of the operation: the route's name, or method and path */
    const hx_op *op;         /* the operation of a keyed request; the four fields below belong to it */
    hx_digest key;           /* MACs, of which a part is shown */
    hx_digest principal;     /* of the caller */
    const char *result;      /* Idempotency-Status, or "refused" */
    const hx_record *record; /* the operation's, if this request claimed or replayed it */
    hx_slice result_id;
    const char *shadow;            /* what protecting it would have done */
    const char *shadow_error_code; /* with which error it would have been refused */
    const char *error_code;        /* of an error of ours */
    const char *error_detail;      /* what was malformed */
    hx_upstream_failure failure;
    const char *remedy;            /* what an operator can change so that such requests succeed */
    const uint32_t *step_ms;       /* how long each step took, in all */
    const char *const *step_names; /* "admit_ms" */
    unsigned step_count;
} hx_summary;

#endif
