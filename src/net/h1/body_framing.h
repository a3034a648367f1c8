/* SPDX-License-Identifier: Apache-2.0 */
/* Takes a request's body out of its framing: so many bytes, or chunks.
 *
 * Chunks are read here and not by llhttp because its version 8.1 bounds neither extensions nor trailers and lets
 * control bytes pass in them; tests/unit/net compares the two on the same bytes. Trailers are checked and dropped.
 * Pure: no I/O. */
#ifndef HX_NET_H1_BODY_FRAMING_H
#define HX_NET_H1_BODY_FRAMING_H

#include "net/h1/request_parser.h"

typedef struct {
    uint64_t left;           /* bytes that are missing of the body, or of the current chunk */
    uint32_t extension_left; /* bytes of chunk extensions that the whole body may still have */
    uint32_t trailer_left;
    uint8_t state;
    uint8_t digits;
} hx_h1_body;

typedef enum { HX_H1_BODY_MORE, HX_H1_BODY_PIECE, HX_H1_BODY_END, HX_H1_BODY_BAD } hx_h1_body_result;

void hx_h1_body_init(hx_h1_body *body, const hx_request_head *request, uint32_t extension_max, uint32_t trailer_max);
/* Takes bytes off the front of *input. PIECE: *piece is the next part of the content; MORE: *input is used up; END: the
 * body is complete, what is left of *input belongs to the next request; BAD: the fault is filled in. */
hx_h1_body_result hx_h1_body_next(hx_h1_body *body, hx_slice *input, hx_slice *piece, hx_h1_fault *fault) HX_MUST_USE;
/* Whether the body is complete. */
bool hx_h1_body_whole(const hx_h1_body *body);
/* The number of bytes that are missing, or UINT64_MAX when that is not known. */
uint64_t hx_h1_body_left(const hx_h1_body *body);

#endif
