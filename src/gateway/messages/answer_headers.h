/* SPDX-License-Identifier: Apache-2.0 */
/* The header lines of responses: those of the upstream that go on to the client, and what is read from them. */
#ifndef HX_GATEWAY_MESSAGES_ANSWER_HEADERS_H
#define HX_GATEWAY_MESSAGES_ANSWER_HEADERS_H

#include "gateway/request.h"

/* Space for the lines that Hapax adds: an origin that `cors` lists may have 1,000 bytes. */
#define HX_OUR_LINES_MAX 4096u

/* The upstream's end-to-end lines, in a buffer with space for HX_OUR_LINES_MAX bytes more. Unless `whole`, without
 * those that only the first client gets: cookies, and what the route denies to replays. */
hx_buf hx_answer_lines(hx_request *r, const hx_fields *fields, bool whole);
/* The upstream's Retry-After; HX_RETRY_AFTER_NONE if there is none, or one that can't be read, which is counted. */
hx_ms hx_answer_retry_after(hx_request *r, const hx_fields *fields);
/* Our own Retry-After, if r->retry_after says so. */
void hx_answer_put_retry_after(const hx_request *r, hx_buf *out);

#endif
