/* SPDX-License-Identifier: Apache-2.0 */
/* Parses one HTTP/1 response from the bytes of a connection. Pull style: the caller passes what was read and gets one
 * event at a time, so that no callback comes from inside the parser.
 *
 * What must hold: a response that two readers could understand differently is HX_ANSWER_BROKEN. The status line and the
 * lines of the head are checked here on the raw bytes (folds, bare CR and LF, versions, limits); names, values and
 * chunks by llhttp in its strict mode; framing here again. */
#ifndef HX_NET_H1_ANSWER_PARSER_H
#define HX_NET_H1_ANSWER_PARSER_H

#include "base/clock.h"
#include "net/http/message.h"

#include <llhttp.h>

typedef enum {
    HX_ANSWER_MORE, /* all bytes were used */
    HX_ANSWER_HEAD,
    HX_ANSWER_BODY,
    HX_ANSWER_END,
    HX_ANSWER_BROKEN,
    HX_ANSWER_TOO_LARGE, /* the head is over a limit */
} hx_answer_event;

typedef enum {
    HX_ANSWER_IN_HEAD,
    HX_ANSWER_IN_NOTHING, /* no body: the end comes right after the head */
    HX_ANSWER_IN_LENGTH,
    HX_ANSWER_IN_CHUNKS,
    HX_ANSWER_UNTIL_CLOSE,
    HX_ANSWER_IS_OVER,
} hx_answer_place;

typedef struct {
    hx_answer_place place;
    hx_arena *arena;
    hx_answer_head *head; /* in the arena; complete from HX_ANSWER_HEAD on */
    bool request_was_head;
    bool keep_alive;      /* the connection may carry another exchange after this response */
    bool any_byte;        /* a byte of this response has come; interim responses don't count */
    hx_ms keep_alive_for; /* the time of "Keep-Alive: timeout="; -1: none */

    uint32_t head_bytes_max;
    uint16_t fields_max;
    uint16_t interim_count;
    size_t head_bytes; /* bytes of interim heads: the limit is for all heads together */
    hx_buf partial;    /* a head that came in pieces, in the arena */
    size_t line_at;    /* where the line that is being scanned starts in the head */
    size_t scanned;    /* bytes of the head that were scanned */

    uint64_t left;     /* bytes that are missing of a body with a length */
    uint64_t overhead; /* bytes of a chunked body that weren't content */
    uint64_t chunk_count;
    char last_byte; /* the last byte of the previous call */
    bool too_many_fields;
    hx_slice name, value, piece;
    llhttp_t parser;
} hx_h1_answer;

void hx_h1_answer_begin(hx_h1_answer *answer, hx_arena *arena, uint32_t head_bytes_max, uint16_t fields_max,
                        bool request_was_head);
/* Takes bytes off the front of *in. With HX_ANSWER_BODY, *piece points into *in. After HX_ANSWER_END the bytes left in
 * *in are not part of the response. Must not be called again after END, BROKEN or TOO_LARGE. */
hx_answer_event hx_h1_answer_read(hx_h1_answer *answer, hx_slice *in, hx_slice *piece);
/* Whether the end of the connection is the end of the response. */
bool hx_h1_answer_ends_with_connection(const hx_h1_answer *answer);

#endif
