/* SPDX-License-Identifier: Apache-2.0 */
#include "net/listener.h"

#include "base/check.h"
#include "base/log.h"
#include "base/loop/loop_uv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Connections that are accepted before the loop goes on to other events. */
#define ACCEPTS_A_TURN 64u
/* A queue holds at most SOMAXCONN; clients that connect faster than we accept can't keep a drain from ending. */
#define ACCEPTS_TO_DRY 8192u
/* After running out of descriptors: when to accept again, and how often to log it. */
#define RETRY_AFTER ((hx_ms)100)
#define WARN_EVERY HX_MINUTE

hx_slice hx_listener_address(const hx_listener *listener)
{
    return (hx_slice){listener->address, listener->address_len};
}

static hx_peer unix_peer(int descriptor)
{
    hx_peer peer = {.text = "unix:", .text_len = sizeof "unix:" - 1};
    struct ucred user;
    socklen_t len = sizeof user;
    if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &user, &len) != 0) return peer;
    peer.kind = HX_PEER_USER;
    peer.user.uid = user.uid;
    peer.user.pid = user.pid;
    return peer;
}

static hx_peer peer_of(int descriptor, const struct sockaddr_storage *from)
{
    hx_peer peer = {.kind = HX_PEER_ADDRESS};
    struct in6_addr v6 = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    if (from->ss_family == AF_INET)
        memcpy(v6.s6_addr + 12, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    else if (from->ss_family == AF_INET6)
        v6 = ((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
    else
        return unix_peer(descriptor);
    memcpy(peer.address, v6.s6_addr, sizeof peer.address);
    if (IN6_IS_ADDR_V4MAPPED(&v6))
        (void)inet_ntop(AF_INET, v6.s6_addr + 12, peer.text, sizeof peer.text);
    else
        (void)inet_ntop(AF_INET6, &v6, peer.text, sizeof peer.text);
    peer.text_len = (uint8_t)strlen(peer.text);
    return peer;
}

static void retry_accept(hx_timer *timer)
{
    hx_server *server = HX_OWNER(timer, hx_server, retry_accept);
    hx_server_gone(server);
}

static bool may_warn(hx_server *server)
{
    hx_ms now = hx_loop_now(server->loop);
    if (server->warned_at != 0 && now - server->warned_at < WARN_EVERY) return false;
    server->warned_at = now;
    return true;
}

/* Further clients wait in the kernel's queue until a connection closes. */
static void stop_at_limit(hx_server *server)
{
    if (may_warn(server)) {
        hx_log_begin(HX_EVENT_connections_exhausted);
        hx_log_int("connections", server->count);
        hx_log_text("hint",
                    "raise limits.connections or, if that is lower, the open-file limit (ulimit -n, LimitNOFILE=)");
        hx_log_end();
    }
    hx_server_pause_accepting(server);
}

/* Out of descriptors or memory: clients stay in the kernel's queue; accepting again at once would only burn time. */
static void back_off(hx_server *server, int why)
{
    if (may_warn(server)) {
        hx_log_begin(HX_EVENT_accept_failed);
        hx_log_text("error", strerror(why));
        hx_log_int("connections", server->count);
        hx_log_text("hint", "raise the open-file limit (ulimit -n, LimitNOFILE=) or lower limits.connections");
        hx_log_end();
    }
    hx_server_pause_accepting(server);
    hx_timer_start(server->loop, &server->retry_accept, RETRY_AFTER, retry_accept);
}

/* Accepts a connection; false when there is none, or none can be accepted now. */
static bool accept_one(hx_listener *listener)
{
    struct sockaddr_storage from = {0};
    socklen_t len = sizeof from;
    int descriptor = accept4(listener->descriptor, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor >= 0) {
        hx_peer peer = peer_of(descriptor, &from);
        hx_h1_conn_open(listener->server, listener, descriptor, &peer);
        return true;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    /* Errors of a connection that failed in the queue; see accept(2). */
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO || errno == EPERM || errno == ENETDOWN ||
        errno == EHOSTUNREACH || errno == ENETUNREACH || errno == EHOSTDOWN || errno == ENONET || errno == ENOPROTOOPT)
        return true;
    back_off(listener->server, errno);
    return false;
}

static void has_clients(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    hx_listener *listener = poll->data;
    hx_server *server = listener->server;
    for (unsigned i = 0; i < ACCEPTS_A_TURN; i++) {
        if (server->count >= server->limits.connections_max) {
            stop_at_limit(server);
            return;
        }
        if (!accept_one(listener)) return;
    }
}

void hx_listener_open(hx_server *server, int descriptor, hx_slice address)
{
    hx_listener *listener = calloc(1, sizeof *listener);
    if (!listener) hx_fatal(HX_EXIT_BUG, "out of memory (a listener)");
    HX_CHECK(address.len <= sizeof listener->address);
    memcpy(listener->address, address.ptr, address.len);
    listener->address_len = address.len;
    listener->server = server;
    listener->descriptor = descriptor;
    int failed = uv_poll_init(hx_loop_uv(server->loop), &listener->poll, descriptor);
    if (failed) hx_fatal(HX_EXIT_ADDRESS, "can't watch a listening socket: %s", uv_strerror(failed));
    listener->poll.data = listener;
    hx_list_append(&server->listeners, &listener->link);
    server->open_listeners++;
    hx_listener_resume(listener);
}

void hx_listener_pause(hx_listener *listener)
{
    if (!listener->closing) (void)uv_poll_stop(&listener->poll);
}

void hx_listener_resume(hx_listener *listener)
{
    if (!listener->closing) (void)uv_poll_start(&listener->poll, UV_READABLE, has_clients);
}

static void has_closed(uv_handle_t *handle)
{
    hx_listener *listener = handle->data;
    hx_server *server = listener->server;
    server->open_listeners--;
    hx_server_gone(server);
}

void hx_listener_close(hx_listener *listener)
{
    if (listener->closing) return;
    listener->closing = true;
    uv_close((uv_handle_t *)&listener->poll, has_closed);
    hx_unlisten(listener->descriptor);
}

void hx_listener_close_dry(hx_listener *listener)
{
    if (listener->closing) return;
    for (unsigned i = 0; i < ACCEPTS_TO_DRY && accept_one(listener); i++) {}
    hx_listener_close(listener);
}
