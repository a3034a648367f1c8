/* SPDX-License-Identifier: Apache-2.0 */
/* The head of an HTTP/1 request: first its end is found in what has come, then it is parsed whole.
 *
 * Two readers look at every head. Ours goes over the raw bytes as they come and refuses what llhttp 8.1 would let
 * through or repair: bare CR or LF, control bytes, folded lines. llhttp then takes it apart, and both must have seen
 * the same number of fields. What follows from the fields (framing, Host, Connection, Expect) is decided here alone,
 * from the fields themselves. Pure: no I/O. */
#ifndef HX_NET_H1_REQUEST_PARSER_H
#define HX_NET_H1_REQUEST_PARSER_H

#include "net/http/message.h"

/* Why a request is refused: the status to answer with, and a sentence. */
typedef struct {
    unsigned status;
    const char *detail;
} hx_h1_fault;

/* How far the search for the end of a head has come. All zero at first. */
typedef struct {
    uint32_t at;    /* bytes looked at */
    uint32_t line;  /* where the line in hand begins */
    uint32_t lines; /* whole ones, the empty one too */
} hx_h1_scan;

typedef enum { HX_H1_MORE, HX_H1_WHOLE, HX_H1_BAD } hx_h1_result;

/* `bytes` is all that has come of the head, the same start in each call. HX_H1_WHOLE: its length is scan->at. The
 * verdict depends on the bytes alone, never on how they were cut into pieces. */
hx_h1_result hx_h1_scan_head(hx_h1_scan *scan, hx_slice bytes, uint32_t bytes_max, hx_h1_fault *fault) HX_MUST_USE;

/* Parses a whole head of `lines` lines, which lives in `arena`; the slices of *request point into it. On false what
 * was understood so far is in *request. */
bool hx_h1_parse_request(hx_request_head *request, hx_arena *arena, hx_slice head, uint32_t lines, uint16_t fields_max,
                         hx_h1_fault *fault) HX_MUST_USE;

#endif
