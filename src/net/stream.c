/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of server.h that a handler calls on its stream: what holds in every version of HTTP is checked here,
 * the rest is up to the version. */
#include "net/connection.h"

#include "base/check.h"

static void respond(hx_stream *stream, hx_response response)
{
    HX_CHECK(!stream->answered);
    stream->answered = true;
    if (response.reason.len == 0) response.reason = hx_status_reason(response.status);
    stream->protocol->respond(stream, &response);
}

void hx_stream_answer(hx_stream *stream, unsigned status, hx_slice reason, hx_slice header_lines, hx_slice body,
                      bool date)
{
    HX_CHECK(status >= 200 && status <= 999);
    respond(stream, (hx_response){.kind = HX_RESPONSE_WHOLE,
                                  .status = status,
                                  .reason = reason,
                                  .header_lines = header_lines,
                                  .body = body,
                                  .date = date});
}

void hx_stream_answer_file(hx_stream *stream, unsigned status, hx_slice reason, hx_slice header_lines, hx_extent body,
                           bool date)
{
    HX_CHECK(status >= 200 && status <= 999);
    respond(stream, (hx_response){.kind = HX_RESPONSE_FILE,
                                  .status = status,
                                  .reason = reason,
                                  .header_lines = header_lines,
                                  .file = body,
                                  .date = date});
}

void hx_stream_begin(hx_stream *stream, unsigned status, hx_slice reason, hx_slice header_lines, int64_t content_length)
{
    HX_CHECK(status == 101 || (status >= 200 && status <= 999));
    respond(stream, (hx_response){.kind = HX_RESPONSE_PIECES,
                                  .status = status,
                                  .reason = reason,
                                  .header_lines = header_lines,
                                  .content_length = content_length});
}

bool hx_stream_write(hx_stream *stream, hx_slice bytes)
{
    HX_CHECK(stream->answered);
    return stream->protocol->write(stream, bytes);
}

void hx_stream_end(hx_stream *stream)
{
    HX_CHECK(stream->answered);
    stream->protocol->end(stream);
}

void hx_stream_abort(hx_stream *stream)
{
    stream->protocol->abort(stream);
}

void hx_stream_tunnel(hx_stream *stream)
{
    HX_CHECK(stream->answered);
    stream->protocol->tunnel(stream);
}

void hx_stream_read(hx_stream *stream)
{
    stream->protocol->read(stream);
}

void hx_stream_pause(hx_stream *stream)
{
    stream->protocol->pause(stream, true);
}

void hx_stream_resume(hx_stream *stream)
{
    stream->protocol->pause(stream, false);
}

void hx_stream_release(hx_stream *stream)
{
    stream->protocol->release(stream);
}
