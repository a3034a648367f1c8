/* SPDX-License-Identifier: Apache-2.0 */
/* The operation and the fingerprint of a request whose body is whole. */
#ifndef HX_GATEWAY_PARTS_FINGERPRINTING_H
#define HX_GATEWAY_PARTS_FINGERPRINTING_H

#include "gateway/request.h"

/* Collects what the fingerprint is made over, in r->fingerprint_input. */
void hx_fingerprinting_describe(hx_request *r, hx_slice body);
/* Makes this the request's key: r->op and the claimant's fingerprint follow from it. */
void hx_fingerprinting_take_key(hx_request *r, hx_slice key);
/* The short MAC of each part of the fingerprint. */
void hx_fingerprinting_parts(hx_request *r, uint64_t parts[HX_PART_COUNT]);

#endif
