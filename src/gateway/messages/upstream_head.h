/* SPDX-License-Identifier: Apache-2.0 */
/* The requests to the upstream, except for their bodies: a client's request as it is forwarded, and our own questions.
 * They carry the client's end-to-end fields, without those that are ours to set or that would make a response fit one
 * client only. */
#ifndef HX_GATEWAY_MESSAGES_UPSTREAM_HEAD_H
#define HX_GATEWAY_MESSAGES_UPSTREAM_HEAD_H

#include "gateway/request.h"

/* Fills in the request of an exchange, except for its body. */
void hx_head_forward(hx_request *r, bool keyed, hx_exchange *exchange);
/* Flags the request's fields that are not forwarded as they came (HX_FIELD_WITHHELD): nothing is decided by them. */
void hx_head_mark_withheld(hx_request *r);
hx_request_body hx_head_body_kind(const hx_request *r);
/* The key that the upstream gets: the client's as it came, or one of ours. */
hx_slice hx_head_key(const hx_request *r);

/* A question to the upstream, with the credentials of this request. One about the caller also carries the
 * fields that may have been signed. */
typedef enum { HX_ASKS_ABOUT_THE_OPERATION, HX_ASKS_ABOUT_THE_CALLER } hx_question;
void hx_head_question(hx_request *r, hx_slice method, hx_slice target, hx_question about, hx_exchange *exchange);

#endif
