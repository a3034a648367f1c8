/* SPDX-License-Identifier: Apache-2.0 */
/* Text as HTTP and URLs write it in many places. A result that equals the input points into it; any other is in the
 * arena. */
#ifndef HX_BASE_TEXT_H
#define HX_BASE_TEXT_H

#include "base/memory/buf.h"

/* Lowers ASCII letters only. */
hx_slice hx_text_lower(hx_slice text, hx_arena *arena);
/* A Host field in lower case, without an empty port or the port `port`: the same text for every spelling of a host. */
hx_slice hx_text_host(hx_slice host, hx_slice port, hx_arena *arena);
/* Percent-encoding (RFC 3986). The byte that the escape at `i` encodes; -1 when there is no "%" with two digits. */
int hx_text_percent_at(hx_slice text, size_t i);
/* Decodes every escape; false when a "%" lacks its two digits. */
bool hx_text_percent_decode(hx_slice text, bool plus_is_space, hx_arena *arena, hx_slice *decoded) HX_MUST_USE;
/* Letters, digits, "-", ".", "_" and "~": bytes that an encoder leaves as they are. */
bool hx_text_is_unreserved(char c);
/* Writes "%", and two digits in upper case. */
void hx_text_percent_write(char out[3], unsigned char byte);
/* Encodes every byte that isn't unreserved; `out` must have space. */
void hx_text_percent_put(hx_buf *out, hx_slice text);

/* A line of a header block, "Name: value\r\n", as a pair. */
typedef struct {
    hx_slice line; /* line end included */
    hx_slice name; /* empty where the line has no colon */
    hx_slice value;
} hx_text_header;

/* Splits a line, whose end may be missing. False when it has no colon. */
bool hx_text_split_header(hx_slice line, hx_text_header *header);
/* Takes the first line off the front of *block and splits it. False once nothing is left. */
bool hx_text_next_header(hx_slice *block, hx_text_header *header);
/* A secret from a file, without the line end that editors and `echo` add to text; in random bytes it is part of it. */
hx_slice hx_text_without_line_end(hx_slice secret);
/* Takes the quoted string (RFC 9110, 5.6.4) with which *rest begins off its front. False when it isn't closed. */
bool hx_text_take_quoted(hx_slice *rest, hx_arena *arena, hx_slice *value) HX_MUST_USE;

#endif
