/* SPDX-License-Identifier: Apache-2.0 */
/* Marks: on a `transactional` route the application completes the operation itself, in the transaction of its effect,
 * under the epoch that it was given in Hapax-Operation. Effect and mark are committed together or not at all, so
 *
 *     with a mark               the mark is the outcome, whatever the application answered, or didn't
 *     no mark, success          unknown: the application forgets its marks, or commits them late
 *     no mark, no response      the mark may still come. Under a new epoch it can't: its transaction fails,
 *                               takes its effect back, and the request may be sent again */
#ifndef HX_GATEWAY_PARTS_TRANSACTIONAL_H
#define HX_GATEWAY_PARTS_TRANSACTIONAL_H

#include "gateway/request.h"

/* Whether the response says success, so that the mark must be in the store. */
bool hx_mark_is_due(const hx_request *r);
/* Whether the attempt is unknown, so that its mark may come at any moment unless the epoch is raised. */
bool hx_mark_may_come(const hx_request *r);
/* Whether this is the mark of our own claim. */
bool hx_mark_is_ours(const hx_request *r, const hx_record *found);
/* Whether the store has no record any more, and the application answered that the operation failed. */
bool hx_mark_is_withdrawn(const hx_request *r, const hx_record *found);
/* Why an operation is unknown that was answered with success and had no mark; whether this is one. It is not sent
 * again: an application that forgets its marks would do it twice. */
hx_slice hx_mark_missing_reason(const hx_request *r);
bool hx_mark_is_missing(const hx_request *r, const hx_record *found);
/* Whether the operation is unknown because the provider answered that it knows it already. */
bool hx_mark_is_of_duplicate(const hx_request *r, const hx_record *found);
/* The stored response. One that an application wrote into the store goes out as if it had sent it. */
hx_answer hx_mark_answer(hx_request *r, const hx_record *found);
/* The same for the client whose attempt it was. */
hx_answer hx_mark_first_answer(hx_request *r, const hx_record *found);

#endif
