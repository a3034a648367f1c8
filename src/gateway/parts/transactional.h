/* SPDX-License-Identifier: Apache-2.0 */
/* Marks: where a route is `transactional`, the application completes the operation itself, in the transaction of its
 * effect, by the epoch that it was given in Hapax-Operation. Effect and mark are there together or not at all, so
 *
 *     a mark that stands    is the answer, whatever the application said afterwards, or didn't say
 *     none, and success     is unknown: an application that forgets its marks, or leaves them late
 *     none, and silence     may still come. Under a new epoch it can't: its transaction fails and takes its effect
 *                           back, and the request may be sent again */
#ifndef HX_GATEWAY_PARTS_TRANSACTIONAL_H
#define HX_GATEWAY_PARTS_TRANSACTIONAL_H

#include "gateway/request.h"

/* Whether its answer speaks of success, so that its mark must stand in the store. */
bool hx_mark_is_due(const hx_request *r);
/* Whether nothing is known of the attempt, so that its mark may come at any moment, unless the epoch is raised. */
bool hx_mark_may_come(const hx_request *r);
/* Whether this is the mark of our own claim. */
bool hx_mark_is_ours(const hx_request *r, const hx_record *found);
/* Whether nothing stands there, and the application answered that nothing came of it. */
bool hx_mark_is_withdrawn(const hx_request *r, const hx_record *found);
/* Why an operation is unknown that was answered with success and had no mark; whether this is one. It is not sent
 * again: an application that forgets its marks would do it twice. */
hx_slice hx_mark_missing_reason(const hx_request *r);
bool hx_mark_is_missing(const hx_request *r, const hx_record *found);
/* Whether the operation is unknown because the provider answered that it knows it already. */
bool hx_mark_is_of_duplicate(const hx_request *r, const hx_record *found);
/* The answer that stands in the store. What an application wrote there goes out as if it had been an answer. */
hx_answer hx_mark_answer(hx_request *r, const hx_record *found);
/* The same for the client whose attempt it was. */
hx_answer hx_mark_first_answer(hx_request *r, const hx_record *found);

#endif
