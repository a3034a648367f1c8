/* SPDX-License-Identifier: Apache-2.0 */
/* The socket is polled by libuv and read and written here: libuv's own streams would write what is queued without
 * saying how much of a failed write went out, and they use read() and write(), which go through the file layer, where
 * recv() and send() go to the socket straight. */
#include "net/transport.h"

#include "base/check.h"
#include "base/loop/loop_uv.h"
#include "base/memory/list.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/un.h>
#include <unistd.h>

/* What was received is used before anything else is received on the same thread. */
static _Thread_local char read_buffer[HX_TRANSPORT_READ_BYTES];

_Static_assert(sizeof(hx_slice) == sizeof(struct iovec) && offsetof(hx_slice, len) == offsetof(struct iovec, iov_len),
               "slices are handed to the kernel as they are");

static ssize_t socket_receive(hx_transport *transport, char *into, size_t bytes)
{
    ssize_t count;
    do {
        count = recv(transport->descriptor, into, bytes, MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    if (count > 0) return count;
    if (count == 0) return UV_EOF;
    return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : uv_translate_sys_error(errno);
}

static ssize_t socket_send(hx_transport *transport, const hx_slice *pieces, unsigned count)
{
    ssize_t sent;
    do {
        if (count == 1) {
            sent = send(transport->descriptor, pieces->ptr, pieces->len, MSG_NOSIGNAL | MSG_DONTWAIT);
        } else {
            /* NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel only reads there */
            struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)pieces, .msg_iovlen = count};
            sent = sendmsg(transport->descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0) return sent;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? UV_EAGAIN : uv_translate_sys_error(errno);
}

static void socket_shut(hx_transport *transport)
{
    (void)shutdown(transport->descriptor, SHUT_WR); /* a failure shows when reading */
}

static const hx_transport_io socket_io = {.receive = socket_receive, .send = socket_send, .shut = socket_shut};

static void polled(uv_poll_t *poll, int status, int events);

/* Every change costs two system calls, so it is made only when something else has to be waited for. */
static void watch(hx_transport *transport)
{
    bool reads = transport->read_max > 0 && !transport->has_ended;
    bool writes = transport->unsent > 0 || transport->is_connecting;
    uint8_t wanted = (uint8_t)((reads ? UV_READABLE : 0) | (writes ? UV_WRITABLE : 0));
    if (wanted == transport->watched) return;
    transport->watched = wanted;
    int failed = wanted ? uv_poll_start(&transport->poll, wanted, polled) : uv_poll_stop(&transport->poll);
    HX_CHECK(failed == 0);
}

static void drop_queue(hx_transport *transport)
{
    transport->unsent = transport->queue_at = 0;
    transport->piece_count = 0;
    hx_buf_free(&transport->queue);
}

static int fail_sending(hx_transport *transport, int error)
{
    transport->send_error = error;
    drop_queue(transport);
    watch(transport);
    return error;
}

static void shut_if_wanted(hx_transport *transport)
{
    if (!transport->wants_shut || transport->is_shut || transport->unsent > 0 || transport->send_error != 0) return;
    transport->is_shut = true;
    transport->io->shut(transport);
}

/* Takes `taken` bytes off the front of the queue. */
static void advance(hx_transport *transport, size_t taken)
{
    transport->sent += taken;
    transport->unsent -= taken;
    unsigned gone = 0;
    while (gone < transport->piece_count && taken >= transport->pieces[gone].len)
        taken -= transport->pieces[gone++].len;
    transport->piece_count = (uint8_t)(transport->piece_count - gone);
    memmove(transport->pieces, transport->pieces + gone, transport->piece_count * sizeof transport->pieces[0]);
    if (transport->piece_count > 0)
        transport->pieces[0] = hx_slice_from(transport->pieces[0], taken);
    else
        transport->queue_at += taken;
    if (transport->unsent == 0) drop_queue(transport);
}

static void send_queue(hx_transport *transport)
{
    hx_slice pieces[HX_TRANSPORT_PIECES_MAX + 1];
    unsigned count = transport->piece_count;
    memcpy(pieces, transport->pieces, count * sizeof pieces[0]);
    if (transport->queue.len > 0) pieces[count++] = hx_slice_from(hx_buf_slice(&transport->queue), transport->queue_at);
    ssize_t taken = transport->io->send(transport, pieces, count);
    if (taken == UV_EAGAIN) return;
    int error = taken < 0 ? fail_sending(transport, (int)taken) : 0;
    if (taken > 0) advance(transport, (size_t)taken);
    shut_if_wanted(transport);
    transport->events->sent(transport, error);
}

static void receive(hx_transport *transport)
{
    size_t bytes = transport->read_max < HX_TRANSPORT_READ_BYTES ? transport->read_max : HX_TRANSPORT_READ_BYTES;
    ssize_t count = transport->io->receive(transport, read_buffer, bytes);
    if (count > 0) {
        transport->events->received(transport, (hx_slice){read_buffer, (size_t)count});
    } else if (count < 0) {
        transport->has_ended = true;
        transport->events->ended(transport, (int)count);
    }
}

static void finish_connecting(hx_transport *transport)
{
    int error = 0;
    socklen_t len = sizeof error;
    transport->is_connecting = false;
    if (getsockopt(transport->descriptor, SOL_SOCKET, SO_ERROR, &error, &len) != 0) error = errno;
    transport->events->connected(transport, uv_translate_sys_error(error));
}

static void polled(uv_poll_t *poll, int status, int events)
{
    hx_transport *transport = HX_OWNER(poll, hx_transport, poll);
    if (status < 0) { /* the socket has an error, and libuv has stopped polling it: recv and send say which it is */
        transport->watched = 0;
        events = UV_READABLE | UV_WRITABLE;
    }
    if (transport->is_connecting) {
        finish_connecting(transport);
    } else {
        if ((events & UV_READABLE) && transport->read_max > 0 && !transport->has_ended) receive(transport);
        if ((events & UV_WRITABLE) && transport->unsent > 0) send_queue(transport);
    }
    if (transport->is_open) watch(transport);
}

int hx_transport_open(hx_transport *transport, hx_loop *loop, const hx_transport_events *events, int descriptor)
{
    int failed = uv_poll_init(hx_loop_uv(loop), &transport->poll, descriptor);
    if (failed) return failed;
    transport->events = events;
    transport->io = &socket_io;
    transport->descriptor = descriptor;
    transport->is_open = true;
    hx_buf_init(&transport->queue, NULL, HX_TRANSPORT_QUEUE_BYTES_MAX);
    return 0;
}

static socklen_t address_len(const struct sockaddr *address)
{
    switch (address->sa_family) {
    case AF_INET: return sizeof(struct sockaddr_in);
    case AF_INET6: return sizeof(struct sockaddr_in6);
    default: return sizeof(struct sockaddr_un);
    }
}

int hx_transport_connect(hx_transport *transport, hx_loop *loop, const hx_transport_events *events,
                         const struct sockaddr *address)
{
    int descriptor = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), yes = 1;
    if (descriptor < 0) return uv_translate_sys_error(errno);
    if (address->sa_family != AF_UNIX) (void)setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    int failed = 0;
    if (connect(descriptor, address, address_len(address)) != 0 && errno != EINPROGRESS && errno != EINTR)
        failed = uv_translate_sys_error(errno);
    if (!failed) failed = hx_transport_open(transport, loop, events, descriptor);
    if (failed) {
        (void)close(descriptor);
        return failed;
    }
    transport->is_connecting = true; /* also where it is connected already: the loop says so then, not this call */
    watch(transport);
    return 0;
}

void hx_transport_read(hx_transport *transport, size_t bytes_max)
{
    transport->read_max = bytes_max;
    watch(transport);
}

int hx_transport_peek(const hx_transport *transport)
{
    char byte;
    ssize_t got = recv(transport->descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0) return 1;
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : -1;
}

/* Appends to the queue, whose sent part is dropped before it is the larger one. */
static int copy(hx_transport *transport, const hx_slice *pieces, unsigned count)
{
    if (transport->queue_at > transport->queue.len / 2) {
        hx_buf_consume(&transport->queue, transport->queue_at);
        transport->queue_at = 0;
    }
    for (unsigned i = 0; i < count; i++) {
        if (!hx_buf_append(&transport->queue, pieces[i])) return fail_sending(transport, UV_ENOBUFS);
        transport->unsent += pieces[i].len;
    }
    watch(transport);
    return 0;
}

int hx_transport_send(hx_transport *transport, hx_slice *pieces, unsigned count, unsigned how)
{
    HX_CHECK(count <= HX_TRANSPORT_PIECES_MAX);
    if (transport->send_error != 0) return transport->send_error;
    if (transport->unsent > 0) return copy(transport, pieces, count); /* behind what waits */
    ssize_t taken = transport->io->send(transport, pieces, count);
    if (taken == UV_EAGAIN && (how & HX_SEND_NOW)) return UV_EAGAIN;
    if (taken < 0 && taken != UV_EAGAIN) return fail_sending(transport, (int)taken);
    size_t gone = taken > 0 ? (size_t)taken : 0;
    transport->sent += gone;
    while (count > 0 && gone >= pieces->len) {
        gone -= pieces->len;
        pieces++;
        count--;
    }
    if (count == 0) return 0;
    *pieces = hx_slice_from(*pieces, gone);
    if (!(how & HX_SEND_STAYS)) return copy(transport, pieces, count);
    memcpy(transport->pieces, pieces, count * sizeof *pieces);
    transport->piece_count = (uint8_t)count;
    for (unsigned i = 0; i < count; i++) transport->unsent += pieces[i].len;
    watch(transport);
    return 0;
}

void hx_transport_shut(hx_transport *transport)
{
    transport->wants_shut = true;
    shut_if_wanted(transport);
}

uint64_t hx_transport_confirmed(const hx_transport *transport)
{
    int unconfirmed = 0;
    if (ioctl(transport->descriptor, SIOCOUTQ, &unconfirmed) != 0 || unconfirmed <= 0) return transport->sent;
    return (uint64_t)unconfirmed < transport->sent ? transport->sent - (uint64_t)unconfirmed : transport->sent;
}

static void handle_closed(uv_handle_t *handle)
{
    hx_transport *transport = HX_OWNER((uv_poll_t *)handle, hx_transport, poll);
    transport->events->closed(transport);
}

void hx_transport_close(hx_transport *transport, bool reset)
{
    HX_CHECK(transport->is_open);
    struct linger hard = {.l_onoff = 1};
    transport->is_open = transport->is_connecting = false;
    transport->read_max = 0;
    drop_queue(transport);
    uv_close((uv_handle_t *)&transport->poll, handle_closed);
    if (reset) (void)setsockopt(transport->descriptor, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    (void)close(transport->descriptor);
}
