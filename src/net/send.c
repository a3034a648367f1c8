/* SPDX-License-Identifier: Apache-2.0 */
/* libuv sends with write(), which goes through the file layer; send() goes to the socket straight, and sending a
 * small HTTP message is one of the four system calls that a forwarded request costs. */
#include "net/send.h"

#include <errno.h>
#include <sys/socket.h>

int hx_try_send(const uv_stream_t *stream, const uv_buf_t *pieces, unsigned count)
{
    uv_os_fd_t descriptor;
    if (stream->write_queue_size > 0) return UV_EAGAIN; /* what waits goes first */
    int failed = uv_fileno((const uv_handle_t *)stream, &descriptor);
    if (failed) return failed;
    ssize_t sent;
    do {
        if (count == 1) {
            sent = send(descriptor, pieces->base, pieces->len, MSG_NOSIGNAL | MSG_DONTWAIT);
        } else {
            /* NOLINTNEXTLINE(performance-no-int-to-ptr): libuv's pieces have the shape of iovec; nobody writes there */
            struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)pieces, .msg_iovlen = count};
            sent = sendmsg(descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0) return (int)sent;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? UV_EAGAIN : uv_translate_sys_error(errno);
}
