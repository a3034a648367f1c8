/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that keyed requests hold in a worker, against `limits.memory`.
 *
 * A request reserves what it needs at least before anything of it is read or claimed, and is refused where that is not
 * to be had. More is taken for a body or an answer that is larger, as long as half of the limit holds it all; the rest
 * goes to files without a name. So nothing is refused for memory once it is claimed. All of it is given back with the
 * request's arena, when its client has taken the last byte. */
#ifndef HX_GATEWAY_PARTS_MEMORY_BUDGET_H
#define HX_GATEWAY_PARTS_MEMORY_BUDGET_H

#include "gateway/request.h"

/* An answer of the store's up to this size is read whole; a larger one stays in its file, where it has one. */
#define HX_WHOLE_ANSWER_BYTES (16u * 1024u)

/* Reserves what the request needs at least. False: there is none left. */
bool hx_memory_admit(hx_request *r) HX_MUST_USE;
/* It is refused for that: counts it, and says so in the log once a minute. */
void hx_memory_complain(hx_request *r);
/* For the request's body, before it is read, of which `length` bytes are announced; -1: none are. */
void hx_memory_begin_body(hx_request *r, int64_t length);
/* The same for an answer, of this attempt or of a probe. */
void hx_memory_begin_answer(hx_request *r, int64_t length);
/* The body or the answer is whole: gives back what it didn't need. */
void hx_memory_end(hx_request *r, hx_body *body);
/* The bytes of a whole answer. False: they can't be read back from where they are spooled. */
bool hx_memory_answer(hx_request *r, hx_slice *whole) HX_MUST_USE;
/* Whether an answer that was spooled may be read back now to be recorded: a few at a time, for all of it is in memory
 * while the store writes it. False: look again soon. */
bool hx_memory_may_record(hx_request *r) HX_MUST_USE;
/* The recorded answer, to be sent: its bytes, or the file that they lie in. */
const hx_extent *hx_memory_send_answer(hx_request *r, hx_slice *body);
/* Where the store's records are read to: apart from the request's own memory, if a large answer can be moved out. */
hx_arena *hx_memory_for_found(hx_request *r);
/* Reads the store's record of `op` into r->found. */
hx_peek hx_memory_peek(hx_request *r, const hx_op *op);
/* Readies `found` to be sent: a large answer goes out from a file, in pieces. False: there is no memory for those. */
bool hx_memory_load_found(hx_request *r, hx_record *found);

#endif
