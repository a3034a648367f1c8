/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the head of an HTTP/1 request: first its end is searched for in the bytes that have come, then the whole head
 * is parsed.
 *
 * Every head is read twice. The scan of the raw bytes refuses what llhttp 8.1 would let through or repair: bare CR or
 * LF, control bytes, folded lines. llhttp then splits it, and both must have seen the same number of fields. Framing,
 * Host, Connection and Expect are decided here alone, from the fields. Pure: no I/O. */
#ifndef HX_NET_H1_REQUEST_PARSER_H
#define HX_NET_H1_REQUEST_PARSER_H

#include "net/http/message.h"

/* Why a request is refused: the status of the response, and a sentence. */
typedef struct {
    unsigned status;
    const char *detail;
} hx_h1_fault;

/* The state of the search for the end of a head. All zero at first. */
typedef struct {
    uint32_t at;    /* bytes that were scanned */
    uint32_t line;  /* where the current line begins */
    uint32_t lines; /* complete lines, the empty one too */
} hx_h1_scan;

typedef enum { HX_H1_MORE, HX_H1_WHOLE, HX_H1_BAD } hx_h1_result;

/* `bytes` is all that has come of the head, from its start in each call. HX_H1_WHOLE: its length is scan->at. The
 * result depends on the bytes alone, never on how they were cut into pieces. */
hx_h1_result hx_h1_scan_head(hx_h1_scan *scan, hx_slice bytes, uint32_t bytes_max, hx_h1_fault *fault) HX_MUST_USE;

/* Parses a complete head of `lines` lines, which lives in `arena`; the slices of *request point into it. On false
 * *request has what was parsed so far. */
bool hx_h1_parse_request(hx_request_head *request, hx_arena *arena, hx_slice head, uint32_t lines, uint16_t fields_max,
                         hx_h1_fault *fault) HX_MUST_USE;

#endif
