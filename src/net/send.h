/* SPDX-License-Identifier: Apache-2.0 */
/* Sending on a connection of libuv's at once: what uv_try_write does, by the system calls for sockets. */
#ifndef HX_NET_SEND_H
#define HX_NET_SEND_H

#include <uv.h>

/* How many bytes the connection took, or UV_EAGAIN, also while something else of it waits to be sent, or another error
 * of libuv's. */
int hx_try_send(const uv_stream_t *stream, const uv_buf_t *pieces, unsigned count);

#endif
