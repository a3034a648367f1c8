/* SPDX-License-Identifier: Apache-2.0 */
/* `cors`: scripts of other origins may read the answers that are ours, and our headers on the application's.
 *
 * Whether a script may read an application's answer is the application's word alone: where it says so, our headers are
 * added to what it exposes, and nothing else is touched. What was stored says it of the origin that asked first: to
 * another origin that is listed here it is replayed with that one's name instead; to one that isn't, as it was, and its
 * browser keeps it from the page. Preflights of protected routes from a listed origin are answered here; every other
 * OPTIONS is streamed to the application. */
#ifndef HX_GATEWAY_MESSAGES_CORS_H
#define HX_GATEWAY_MESSAGES_CORS_H

#include "config/config.h"
#include "core/operation/policy.h"
#include "net/http/message.h"

/* For an answer of ours to a request with these fields. Nothing where `cors` isn't configured. */
void hx_cors_allow(const hx_config *config, const hx_fields *request, hx_buf *lines);
/* For an application's answer, whose lines are in `lines` already. */
void hx_cors_expose(const hx_config *config, const hx_fields *request, hx_buf *lines);

/* Whether this is a browser's question whether a page of a listed origin may send a request that would be protected;
 * `lines` are those of the answer then. `path` is normalised. */
bool hx_cors_preflight(const hx_config *config, const hx_policy_set *policies, const hx_request_head *head,
                       hx_slice path, hx_arena *arena, hx_buf *lines) HX_MUST_USE;

/* Whether an answer that was made for someone else names another origin than the one that asks now, which is listed;
 * the lines that say so are then left out, and those of hx_cors_allow take their place. */
bool hx_cors_replaces(const hx_config *config, const hx_fields *request, hx_slice kept_lines);
bool hx_cors_is_replaced(hx_slice name);

/* The most that hx_cors_allow adds. */
#define HX_CORS_LINES_MAX 1024u

#endif
