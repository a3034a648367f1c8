/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one HTTP/1 answer from the bytes of a connection. Pull style: whoever owns the connection hands it what was
 * read and gets one event at a time, so nobody is called back from inside a parser.
 *
 * What must hold: an answer that two readers could understand differently is HX_ANSWER_BROKEN. The status line and the
 * lines of the head are checked here on the raw bytes (folds, bare CR and LF, versions, limits), names, values and
 * chunks by llhttp in its strict mode, framing here again. */
#ifndef HX_NET_H1_ANSWER_PARSER_H
#define HX_NET_H1_ANSWER_PARSER_H

#include "base/clock.h"
#include "net/http/message.h"

#include <llhttp.h>

typedef enum {
    HX_ANSWER_MORE, /* everything given was used */
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
    bool keep_alive;      /* the connection may carry another exchange after this answer */
    bool any_byte;        /* of this answer has come, interim ones not counted */
    hx_ms keep_alive_for; /* what "Keep-Alive: timeout=" allows; -1: nothing said */

    uint32_t head_bytes_max;
    uint16_t fields_max;
    uint16_t interim_count;
    size_t head_bytes; /* of interim heads before this one: the limit is for all together */
    hx_buf partial;    /* a head that came in pieces, in the arena */
    size_t line_at;    /* where the line that is being scanned starts, in the head */
    size_t scanned;    /* bytes of the head looked at */

    uint64_t left;     /* of a body with a length */
    uint64_t overhead; /* bytes of a chunked body that weren't content */
    uint64_t chunk_count;
    char last_byte; /* of the chunked bytes given before */
    bool too_many_fields;
    hx_slice name, value, piece;
    llhttp_t parser;
} hx_h1_answer;

void hx_h1_answer_begin(hx_h1_answer *answer, hx_arena *arena, uint32_t head_bytes_max, uint16_t fields_max,
                        bool request_was_head);
/* Takes bytes off the front of *in. With HX_ANSWER_BODY, *piece points into what was given. After HX_ANSWER_END what is
 * left in *in is not part of the answer. Not to be called again after END, BROKEN or TOO_LARGE. */
hx_answer_event hx_h1_answer_read(hx_h1_answer *answer, hx_slice *in, hx_slice *piece);
/* The connection has ended in good order; true: and with it the answer. */
bool hx_h1_answer_ends_with_connection(const hx_h1_answer *answer);

#endif
