/* SPDX-License-Identifier: Apache-2.0 */
/* `mode: shadow`: what protecting a route would do to its traffic, before anybody relies on it.
 *
 *     admit --(whatever it finds)--> shadow --> pass --> [reply] --> shadow --> finish
 *
 * The request goes to the application exactly once, as it came, and its answer to the client as it came, whatever the
 * records say: nothing is refused, nothing waits, nothing is replayed, nothing is sent twice. The records are kept
 * apart from those of routes that protect (under another MAC: neither ever finds the other's) and hold no answers.
 * Claims and outcomes are written beside the request, never before it; a store that can't take them is only reported.
 * A request without a key that a protected route would let through is no business of this: it passes. */
#ifndef HX_GATEWAY_STEPS_SHADOW_H
#define HX_GATEWAY_STEPS_SHADOW_H

#include "gateway/request.h"

/* From admit, in place of an error of ours. False: the body can't be had, so that there is nothing to pass on, and the
 * error is a real one. */
bool hx_shadow_takes(const hx_request *r, hx_error error);
hx_step_result hx_shadow_refuse(hx_request *r, hx_error error);
/* From admit: the body can't be kept. The part that was kept goes first, then this piece, then the rest. */
void hx_shadow_overflow(hx_request *r, hx_slice piece, bool last);

/* From pass. Looks whether the claim has come back meanwhile. */
void hx_shadow_look(hx_request *r);
void hx_shadow_answered(hx_request *r, const hx_answer_head *head);

/* The header that reports, and the same for the log. */
void hx_shadow_line(hx_request *r, hx_buf *out);
void hx_shadow_summarize(const hx_request *r, hx_summary *out);

#endif
