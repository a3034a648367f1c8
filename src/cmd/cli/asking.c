/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/cli/asking.h"

#define HEAD_BYTES_MAX (64u * 1024u)
#define ANSWER_BYTES_MAX (64u * 1024u * 1024u)
#define CONNECTIONS_MAX 2u /* a call, and a renewal beside it */

static void head_came(hx_exchange *exchange, const hx_answer_head *head)
{
    hx_asking *call = exchange->user;
    call->status = head->status;
}

static void body_came(hx_exchange *exchange, hx_slice piece)
{
    hx_asking *call = exchange->user;
    if (!hx_buf_append(&call->body, piece)) call->is_too_large = true;
}

static void ended(hx_exchange *exchange)
{
    hx_asking *call = exchange->user;
    call->is_whole = !call->is_too_large;
    call->done(call);
}

static void failed(hx_exchange *exchange, hx_upstream_error error)
{
    hx_asking *call = exchange->user;
    call->error = error;
    call->done(call);
}

hx_upstream *hx_asking_connect(hx_loop *loop, hx_slice address, hx_error_text error)
{
    static const hx_upstream_limits limits = {.connect_timeout = 5 * HX_SECOND,
                                              .idle_timeout = HX_SECOND,
                                              .idle_max = 1,
                                              .connections_max = CONNECTIONS_MAX,
                                              .waiting_max = 1,
                                              .head_bytes_max = HEAD_BYTES_MAX,
                                              .fields_max = 100};
    return hx_upstream_new(loop, address, &limits, error);
}

void hx_asking_start(hx_upstream *daemon, hx_asking *call, const hx_admin_request *request)
{
    static const hx_exchange_events events = {.head = head_came, .body = body_came, .end = ended, .failed = failed};
    const hx_slice key = hx_slice_of(request->key ? request->key : "");
    hx_buf lines;
    hx_buf_init(&call->body, call->arena, ANSWER_BYTES_MAX);
    hx_buf_init(&lines, call->arena, 1024 + key.len + call->token.len);
    call->exchange = (hx_exchange){.arena = call->arena,
                                   .events = &events,
                                   .user = call,
                                   .method = hx_slice_of(request->method),
                                   .target = request->target,
                                   .body = request->body,
                                   .close = true};
    hx_field_write(&lines, HX_LIT("Host"), hx_upstream_host(daemon));
    if (request->body.len > 0) {
        call->exchange.framing = HX_FRAMING_LENGTH;
        call->exchange.content_length = request->body.len;
        hx_field_write(&lines, HX_LIT("Content-Type"), HX_LIT("application/json"));
    }
    if (key.len > 0) hx_field_write(&lines, HX_LIT("Idempotency-Key"), key);
    if (call->token.len > 0) {
        hx_buf_puts(&lines, "Authorization: Bearer ");
        hx_buf_put(&lines, call->token);
        hx_buf_puts(&lines, "\r\n");
    }
    call->exchange.header_lines = hx_buf_slice(&lines);
    hx_exchange_start(daemon, &call->exchange);
}
