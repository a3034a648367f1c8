/* SPDX-License-Identifier: Apache-2.0 */
/* Handing on an answer that is too large or endless to keep. Its outcome is durable, as "not retained", before the
 * client sees its first byte; from then on bytes flow as fast as the client takes them. */
#include "gateway/request.h"

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

static void client_drained(hx_stream *stream)
{
    hx_request *r = stream->user;
    if (r->exchange_state == HX_EXCHANGE_ANSWERING) hx_exchange_resume(&r->exchange);
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
    r->replied = true;
    r->stream->events.drained = client_drained;
    r->exchange.events = &stream_events;
    hx_stream_begin(r->stream, r->answer_status, hx_status_reason(r->answer_status), hx_buf_slice(&lines),
                    r->answer_length);
    bool ready = hx_stream_write(r->stream, hx_buf_slice(&r->answer_body));
    if (ready && r->exchange_state == HX_EXCHANGE_ANSWERING) hx_exchange_resume(&r->exchange);
}

hx_progress hx_step_stream(hx_request *r)
{
    if (!r->replied) begin(r);
    switch (r->exchange_state) {
    case HX_EXCHANGE_WHOLE: hx_stream_end(r->stream); return hx_request_go(r, HX_STEP_finish);
    case HX_EXCHANGE_FAILED: hx_stream_abort(r->stream); return hx_request_go(r, HX_STEP_finish);
    default: break;
    }
    if (r->client_gone) hx_request_call_off(r, HX_UPSTREAM_CANCELLED); /* it is recorded; nobody is left to have it */
    return HX_PARKED;
}
