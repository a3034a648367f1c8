/* SPDX-License-Identifier: Apache-2.0 */
/* What one step offers to others, in the order of a request's life; claim.h, shadow.h and publish.h have their own. */
#ifndef HX_GATEWAY_STEPS_STEPS_H
#define HX_GATEWAY_STEPS_STEPS_H

#include "gateway/request.h"

/* forward.c: sends r->exchange, whose first part is filled in, or repeats it; counts the attempt. */
void hx_forward_send(hx_request *r, bool repeat);
bool hx_forward_sent_whole(const hx_request *r);
/* Starts the timer that rings when the upstream's time is up, or the client's request timeout, whichever is first. */
void hx_forward_expect_answer(hx_request *r);
/* Whether the timer rang for the client, and the upstream still has time. */
bool hx_forward_client_timed_out(hx_request *r);
/* Answers such a client early. The exchange goes on, and the next request with the key waits for it. */
void hx_forward_answer_early(hx_request *r);

/* judge.c: what the response means, or its absence, as r->basis says. */
hx_verdict hx_judge_attempt(hx_request *r);

/* retry.c: decides whether there is time and budget for another attempt. True: it is reserved, its delay runs, and the
 * retry step follows. */
bool hx_request_schedule_retry(hx_request *r) HX_MUST_USE;

/* settle.c: the outcome is decided. `next`: SETTLING, RECLAIMING or RESETTLING. */
void hx_settle_begin(hx_request *r, hx_operation_state next);

/* reply.c: answers a client that waits no longer with an error. The step and the operation go on without it. */
void hx_reply_early(hx_request *r, hx_error error, hx_slice detail);
/* Our header lines, after the upstream's. */
void hx_reply_lines(hx_request *r, hx_buf *out);
/* Answers bytes that are not a request, so that there is no hx_request. */
void hx_reply_malformed(const hx_worker *worker, hx_stream *stream, unsigned status, hx_slice detail,
                        hx_slice correlation);

/* pass.c */
bool hx_pass_is_tunnel(const hx_request *r);
void hx_pass_log_tunnel_end(const hx_request *r);

#endif
