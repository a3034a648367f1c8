/* SPDX-License-Identifier: Apache-2.0 */
#include "events/client_sender.h"

#include "core/retry/retry_after.h"

#define CONNECT_TIMEOUT (5 * HX_SECOND)

typedef struct {
    hx_client_request request;
    hx_sending *sending;
} outgoing;

/* A response that came before the transfer broke off is one all the same: the endpoint has decided. */
static void request_done(hx_client_request *request, const hx_client_result *result)
{
    outgoing *o = HX_OWNER(request, outgoing, request);
    hx_sending *sending = o->sending;
    bool has_answered = result->status > 0 && result->error == HX_CLIENT_NONE;
    sending->result = (hx_attempt_result){.status = has_answered ? result->status : 0,
                                          .nothing_sent = result->bytes_sent == 0,
                                          .ms = result->duration,
                                          .retry_after = HX_RETRY_AFTER_NONE,
                                          .response = hx_arena_copy(sending->arena, result->body),
                                          .content_type = hx_arena_copy(sending->arena, result->content_type)};
    if (!has_answered)
        sending->result.error = hx_arena_terminated(sending->arena,
                                                    hx_slice_of(result->reason ? result->reason
                                                                               : hx_client_error_text(result->error)));
    if (has_answered && result->retry_after.len > 0)
        sending->result.retry_after = hx_retry_after(result->retry_after, hx_clock_wall(), HX_RETRY_AFTER_MAX);
    sending->done(sending);
}

static void send_request(void *context, hx_sending *sending)
{
    outgoing *o = hx_arena_zalloc(sending->arena, sizeof *o);
    o->sending = sending;
    o->request.method = HX_LIT("POST");
    o->request.url = sending->url;
    o->request.header_lines = sending->header_lines;
    o->request.body = sending->body;
    o->request.timeout = sending->timeout;
    o->request.connect_timeout = CONNECT_TIMEOUT < sending->timeout ? CONNECT_TIMEOUT : sending->timeout;
    o->request.body_kept_max = sending->response_max;
    o->request.done = request_done;
    hx_client_start(context, &o->request);
}

hx_sender hx_sender_by_client(hx_client *client)
{
    return (hx_sender){.send = send_request, .context = client};
}
