/* SPDX-License-Identifier: Apache-2.0 */
/* Streaming a response that is too large or endless to keep, or could not be spooled. Its outcome is durable
 * as "not retained" before the client sees its first byte; from then on bytes flow as fast as the client takes them. */
#include "gateway/request.h"
#include "gateway/messages/answer_headers.h"
#include "gateway/steps/steps.h"

static void stream_body(hx_exchange *exchange, hx_slice piece)
{
    hx_request *r = exchange->user;
    if (!hx_stream_write(r->stream, piece)) hx_exchange_pause(exchange);
}

static void stream_head(hx_exchange *exchange, const hx_answer_head *head)
{
    (void)exchange;
    (void)head;
}

#define PIECE_BYTES (32u * 1024u)

/* The next piece of what was collected before it was clear that it isn't kept; empty: all was given. */
static bool next_piece(const hx_request *r, char buffer[PIECE_BYTES], hx_slice *piece)
{
    uint64_t shown = r->answer_shown;
    if (shown >= r->answer.len) {
        *piece = hx_slice_from(hx_buf_slice(&r->answer_rest), (size_t)(shown - r->answer.len));
        return true;
    }
    if (r->answer.file < 0) {
        *piece = hx_slice_from(hx_buf_slice(&r->answer.memory), (size_t)shown);
        return true;
    }
    hx_extent rest = {r->answer.file, shown, r->answer.len - shown};
    *piece = (hx_slice){buffer, rest.len < PIECE_BYTES ? (size_t)rest.len : PIECE_BYTES};
    return hx_extent_read(&rest, buffer, piece->len);
}

/* Gives the client what was collected, as fast as it takes it. True: all of it, and it takes more. */
static bool give_collected(hx_request *r)
{
    HX_UNINITIALIZED char buffer[PIECE_BYTES];
    hx_slice piece;
    for (bool ready = true; ready; ready = hx_stream_write(r->stream, piece)) {
        if (!next_piece(r, buffer, &piece)) {
            hx_stream_abort(r->stream);
            r->client = HX_CLIENT_ANSWERED_GONE;
            return true;
        }
        if (piece.len == 0) return true;
        r->answer_shown += piece.len;
    }
    return false;
}

static bool is_all_given(const hx_request *r)
{
    return hx_request_client_is_gone(r) || r->answer_shown == r->answer.len + r->answer_rest.len;
}

static void client_drained(hx_stream *stream)
{
    hx_request *r = stream->user;
    if (!give_collected(r)) return;
    if (r->exchange_state == HX_EXCHANGE_ANSWERING) hx_exchange_resume(&r->exchange);
    hx_request_run(r);
}

static const hx_exchange_events stream_events = {.head = stream_head,
                                                 .body = stream_body,
                                                 .end = hx_request_answer_whole,
                                                 .failed = hx_request_answer_failed};

static void begin(hx_request *r)
{
    hx_buf lines;
    hx_buf_init(&lines, r->arena, r->lines_first.len + HX_OUR_LINES_MAX);
    hx_buf_put(&lines, r->lines_first);
    hx_reply_lines(r, &lines);
    hx_request_note_reply(r);
    r->stream->events.drained = client_drained;
    r->exchange.events = &stream_events;
    hx_stream_begin(r->stream, r->answer_status, hx_status_reason(r->answer_status), hx_buf_slice(&lines),
                    r->answer_length);
    r->answer_shown = 0;
    if (give_collected(r) && r->exchange_state == HX_EXCHANGE_ANSWERING) hx_exchange_resume(&r->exchange);
}

hx_step_result hx_step_stream(hx_request *r)
{
    if (!hx_request_is_replied(r)) begin(r);
    if (r->exchange_state == HX_EXCHANGE_WHOLE && !is_all_given(r)) return HX_PARKED;
    switch (r->exchange_state) {
    case HX_EXCHANGE_WHOLE: hx_stream_end(r->stream); return hx_request_go(r, HX_STEP_finish);
    case HX_EXCHANGE_FAILED: hx_stream_abort(r->stream); return hx_request_go(r, HX_STEP_finish);
    default: break;
    }
    if (hx_request_client_is_gone(r))
        hx_request_call_off(r, HX_UPSTREAM_CANCELLED); /* the outcome is recorded, and no client is left */
    return HX_PARKED;
}
