/* SPDX-License-Identifier: Apache-2.0 */
/* The structs of hapax.h, as they come from and go to programs of any age. */
#ifndef HX_LIB_STRUCTS_H
#define HX_LIB_STRUCTS_H

#include "core/operation/record.h"
#include "lib/guard.h"

/* Copies a struct of the host, which begins with its size, into one of ours. False with a message: it is NULL, its size
 * is wrong, or it has members that this library doesn't know. */
bool hx_struct_take(void *to, size_t bytes, const void *from, const char *type) HX_MUST_USE;
#define HX_STRUCT_TAKE(to, from, type) hx_struct_take(to, sizeof(type), from, #type)
/* Whether what the host wants filled in is of a size that can be. */
bool hx_struct_is_fit(const void *to, size_t bytes, const char *type) HX_MUST_USE;
#define HX_STRUCT_IS_FIT(to, type) hx_struct_is_fit(to, sizeof(type), #type)

/* Checks names, key and flags of a request. */
bool hx_struct_take_request(hapax_request *to, const hapax_request *from) HX_MUST_USE;
hx_slice hx_struct_text(const char *text_or_null);
/* The payload in the form in which it is compared: canonical where it is JSON. */
hx_slice hx_struct_payload(const hapax_request *request, hx_arena *arena);

bool hx_struct_op(const hapax_claim *claim, hx_op *op) HX_MUST_USE;
/* Fills in a claim; its size stays. */
void hx_struct_put_claim(hapax_claim *claim, const hx_op *op, uint64_t epoch, uint64_t owner, int64_t lifetime);
/* Fills in a record that was cleared. False: no memory. */
bool hx_struct_put_record(hapax_record *to, const hx_record *from, bool is_retry) HX_MUST_USE;
/* Copies the three to memory of the record. */
bool hx_struct_put_texts(hapax_record *to, hx_slice body, hx_slice content_type, hx_slice reason) HX_MUST_USE;

#endif
