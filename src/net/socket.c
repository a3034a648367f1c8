/* SPDX-License-Identifier: Apache-2.0 */
/* libuv reads and writes with read() and write(), which go through the file layer; recv() and send() go to the socket
 * straight, and these are the four system calls that a forwarded request costs. */
#include "net/socket.h"

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

void hx_no_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room)
{
    (void)handle;
    (void)suggested;
    *room = (uv_buf_t){0};
}

ssize_t hx_receive(uv_stream_t *stream, char *room, size_t bytes)
{
    uv_os_fd_t descriptor;
    int failed = uv_fileno((const uv_handle_t *)stream, &descriptor);
    if (failed) return failed;
    ssize_t count;
    do {
        count = recv(descriptor, room, bytes, MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    if (count > 0) return count;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
    (void)uv_read_stop(stream);
    return count == 0 ? UV_EOF : uv_translate_sys_error(errno);
}
