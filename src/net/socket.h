/* SPDX-License-Identifier: Apache-2.0 */
/* Sending and receiving on a connection of libuv's, by the system calls for sockets. */
#ifndef HX_NET_SOCKET_H
#define HX_NET_SOCKET_H

#include <uv.h>

/* How many bytes the connection took, or UV_EAGAIN, also while something else of it waits to be sent, or another error
 * of libuv's. */
int hx_try_send(const uv_stream_t *stream, const uv_buf_t *pieces, unsigned count);

/* For uv_read_start: libuv then says that there is something to read (UV_ENOBUFS) and reads nothing. */
void hx_no_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room);
/* Inside that callback: how many bytes came, 0 for none after all, UV_EOF or another error of libuv's. After those two
 * nothing more is read. */
ssize_t hx_receive(uv_stream_t *stream, char *room, size_t bytes);

#endif
