/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/prove/tap.h"

#include "base/text.h"

#include <stdio.h>

#define BODY_BYTES_MAX (8u << 20)
#define HEAD_BYTES_MAX (64u << 10)

/* In the arena of its stream, which stays until the API has answered, whether the gateway lives or not. */
typedef struct {
    hx_prove_tap *tap;
    hx_buf body;
    hx_client_request request;
} passage;

static void refuse(hx_stream *stream, unsigned status, const char *why)
{
    hx_slice text = hx_arena_printf(&stream->arena, "%s\n", why);
    hx_stream_answer(stream, status, HX_EMPTY, HX_LIT("Content-Type: text/plain\r\n"), text, true);
    hx_stream_release(stream);
}

static void malformed(void *app, hx_stream *stream, unsigned status, const char *detail)
{
    (void)app;
    refuse(stream, status, detail);
}

static void lost_closed(hx_stream *stream)
{
    passage *p = stream->user;
    p->tap->lost = NULL;
    hx_stream_release(stream);
}

static hx_slice answer_lines(hx_stream *stream, hx_slice head)
{
    hx_fields fields = {0};
    hx_text_header line;
    hx_buf out;
    hx_buf_init(&out, &stream->arena, HEAD_BYTES_MAX * 2);
    while (hx_text_next_header(&head, &line))
        if (!hx_fields_add(&fields, &stream->arena, UINT16_MAX, line.name, line.value)) break;
    for (size_t i = 0; i < fields.count; i++)
        if (hx_field_goes_on(&fields.items[i]) && !(fields.items[i].flags & HX_FIELD_FRAMING))
            hx_field_write(&out, fields.items[i].name, fields.items[i].value);
    return hx_buf_slice(&out);
}

static void api_answered(hx_client_request *request, const hx_client_result *result)
{
    hx_stream *stream = request->user;
    passage *p = stream->user;
    p->tap->in_flight--;
    hx_loop_stop(p->tap->loop); /* for those who wait for it */
    if (p->tap->loses_next) {
        p->tap->loses_next = false;
        p->tap->lost = stream;
        stream->events = (hx_stream_events){.closed = lost_closed};
    } else if (result->error != HX_CLIENT_NONE || result->body_is_cut) {
        hx_stream_release(stream); /* cut, as the connection to the API was */
    } else {
        hx_stream_answer(stream, result->status, HX_EMPTY, answer_lines(stream, result->head),
                         hx_arena_copy(&stream->arena, result->body), false);
        hx_stream_release(stream);
    }
}

static void send_on(hx_stream *stream)
{
    passage *p = stream->user;
    hx_prove_tap *tap = p->tap;
    hx_buf lines;
    hx_buf_init(&lines, &stream->arena, HEAD_BYTES_MAX * 2);
    for (size_t i = 0; i < stream->request.fields.count; i++) {
        const hx_field *field = &stream->request.fields.items[i];
        if (hx_field_goes_on(field) && !(field->flags & HX_FIELD_FRAMING) && field->id != HX_FIELD_HOST)
            hx_field_write(&lines, field->name, field->value);
    }
    hx_slice url = hx_arena_printf(&stream->arena, "%.*s%.*s", HX_FMT(tap->origin), HX_FMT(stream->request.target));
    p->request = (hx_client_request){.method = stream->request.method,
                                     .url = url,
                                     .header_lines = hx_buf_slice(&lines),
                                     .body = hx_buf_slice(&p->body),
                                     .timeout = tap->timeout,
                                     .connect_timeout = tap->timeout,
                                     .body_kept_max = BODY_BYTES_MAX,
                                     .keeps_head = true,
                                     .user = stream,
                                     .done = api_answered};
    tap->received++;
    tap->in_flight++;
    hx_loop_stop(tap->loop);
    hx_client_start(tap->client, &p->request);
}

static void body_came(hx_stream *stream, hx_slice piece, bool last)
{
    passage *p = stream->user;
    if (!hx_buf_append(&p->body, piece)) {
        stream->events = (hx_stream_events){0};
        refuse(stream, 413, "The body is longer than the limit.");
    } else if (last) {
        stream->events = (hx_stream_events){0};
        send_on(stream);
    }
}

static void body_broken(hx_stream *stream, unsigned status, const char *detail)
{
    if (status > 0)
        refuse(stream, status, detail);
    else
        hx_stream_release(stream);
}

static void request_came(void *app, hx_stream *stream)
{
    passage *p = hx_arena_zalloc(&stream->arena, sizeof *p);
    p->tap = app;
    hx_buf_init(&p->body, &stream->arena, BODY_BYTES_MAX);
    stream->user = p;
    stream->events = (hx_stream_events){.body = body_came, .broken = body_broken};
    if (stream->request.has_body)
        hx_stream_read(stream);
    else
        send_on(stream);
}

bool hx_prove_tap_open(hx_prove_tap *tap, hx_error_text error)
{
    static const hx_server_handler handler = {.request = request_came, .malformed = malformed};
    static const hx_server_limits limits = {.connections_max = 256,
                                            .head_bytes_max = HEAD_BYTES_MAX,
                                            .fields_max = 200,
                                            .chunk_extension_bytes_max = 400,
                                            .head_timeout = HX_MINUTE,
                                            .idle_timeout = HX_HOUR,
                                            .send_timeout = HX_MINUTE};
    char bound[HX_ADDRESS_BYTES];
    int descriptor = hx_listen(HX_LIT("127.0.0.1:0"), bound, error);
    if (descriptor < 0) return false;
    (void)snprintf(tap->url, sizeof tap->url, "http://%s", bound);
    tap->server = hx_server_new(tap->loop, &limits, &handler, tap);
    hx_server_accept(tap->server, descriptor, hx_slice_of(tap->url + sizeof "http://" - 1));
    return true;
}

void hx_prove_tap_close(hx_prove_tap *tap)
{
    if (!tap->server) return;
    hx_server_free(&tap->server);
    if (tap->lost) hx_stream_release(tap->lost); /* of a gateway that was killed: to us it only closed its side */
}
