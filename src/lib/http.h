/* SPDX-License-Identifier: Apache-2.0 */
/* One request to a daemon, on the caller's thread: connects, sends, reads the whole response, closes. It speaks as much
 * HTTP as the daemon's API does: a response has a Content-Length, and nothing else is taken. */
#ifndef HX_LIB_HTTP_H
#define HX_LIB_HTTP_H

#include "base/clock.h"
#include "base/fail.h"
#include "base/memory/buf.h"

typedef struct {
    bool is_unix;
    hx_slice path;       /* of the socket */
    hx_slice host, port; /* otherwise */
    hx_ms timeout;       /* for the whole exchange */
} hx_lib_http_address;

typedef struct {
    unsigned status;
    hx_slice body;
} hx_lib_http_response;

/* Reads "unix:PATH" or "http://HOST:PORT". False with a sentence. */
bool hx_lib_http_address_read(hx_slice url, hx_lib_http_address *out, hx_error_text error) HX_MUST_USE;
/* `head` is the request's, without its request line and without the lines that this adds (Host, Content-Length,
 * Connection). False with a sentence: no whole response came; the request may have been acted upon. */
bool hx_lib_http_post(const hx_lib_http_address *address, hx_slice target, hx_slice head, hx_slice body,
                      hx_arena *arena, hx_lib_http_response *out, hx_error_text error) HX_MUST_USE;

#endif
