/* SPDX-License-Identifier: Apache-2.0 */
#include "net/client/multi.h"

#include "base/check.h"
#include "base/memory/list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS_MAX 64
#define STUCK_MAX 64u
#define DRAINED_PIECES_MAX 16

/* What is known of a descriptor: the EPOLLIN and EPOLLOUT that it is registered for, and whether it is idle: its
 * connection is kept for another transfer. Idle ones stay registered, because a request would mostly register them
 * again soon, and because nothing may arrive on them. */
#define IDLE 0x80u
_Static_assert(EPOLLIN < IDLE && EPOLLOUT < IDLE, "they fit into one byte");

struct hx_multi {
    hx_loop *loop;
    const hx_libcurl *curl;
    CURLM *handle;
    int epoll;
    hx_poll *poll;
    hx_timer timer;
    uint8_t *sockets; /* by descriptor */
    size_t socket_count;
    /* Handles whose socket didn't connect. libcurl 7.88 dials the next address only when it is called again for that
     * handle, and asks for nothing that would call it. Those that don't fit in here wait for a timer of libcurl's. */
    CURL *stuck[STUCK_MAX];
    unsigned stuck_count;
    void (*ended)(void *context, CURL *easy, CURLcode code);
    void *context;
};

static void note_stuck(hx_multi *multi, CURL *easy)
{
    if (multi->stuck_count < STUCK_MAX) multi->stuck[multi->stuck_count++] = easy;
}

curl_socket_t hx_multi_open_socket(hx_multi *multi, CURL *easy, const struct curl_sockaddr *address)
{
    int fd = address ? socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol) : -1;
    if (fd < 0) {
        note_stuck(multi, easy);
        return CURL_SOCKET_BAD;
    }
    if ((size_t)fd >= multi->socket_count) {
        size_t count = (size_t)fd + 64;
        uint8_t *longer = realloc(multi->sockets, count);
        if (!longer) hx_fatal(HX_EXIT_BUG, "out of memory");
        memset(longer + multi->socket_count, 0, count - multi->socket_count);
        multi->sockets = longer;
        multi->socket_count = count;
    }
    multi->sockets[fd] = 0;
    return fd;
}

int hx_multi_close_socket(void *context, curl_socket_t socket)
{
    hx_multi *multi = context;
    multi->sockets[socket] = 0;
    return close(socket);
}

static void register_for(hx_multi *multi, int fd, unsigned events)
{
    struct epoll_event event = {.events = events, .data.fd = fd};
    unsigned before = multi->sockets[fd] & ~IDLE;
    multi->sockets[fd] = (uint8_t)events;
    if (events == before) return;
    int how = events == 0 ? EPOLL_CTL_DEL : before == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    /* It fails if it is closed already, or the kernel has no memory: then the request ends by its time limit. */
    if (epoll_ctl(multi->epoll, how, fd, &event) != 0) multi->sockets[fd] = 0;
}

static int socket_wanted(CURL *easy, curl_socket_t fd, int what, void *context, void *unused)
{
    (void)unused;
    hx_multi *multi = context;
    if (what != CURL_POLL_REMOVE) {
        register_for(multi, fd, (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u));
    } else if (multi->sockets[fd] == EPOLLIN) {
        multi->sockets[fd] |= IDLE;
    } else {
        register_for(multi, fd, 0);
        note_stuck(multi, easy);
    }
    return 0;
}

static void collect(hx_multi *multi)
{
    int left;
    for (CURLMsg *message; (message = multi->curl->multi_info_read(multi->handle, &left)) != NULL;)
        if (message->msg == CURLMSG_DONE) multi->ended(multi->context, message->easy_handle, message->data.result);
    /* What changes the state of a pause makes libcurl look at the handle again. */
    for (; multi->stuck_count > 0; multi->stuck_count--) {
        CURL *easy = multi->stuck[multi->stuck_count - 1];
        (void)multi->curl->easy_pause(easy, CURLPAUSE_SEND);
        (void)multi->curl->easy_pause(easy, CURLPAUSE_CONT);
    }
}

static void act(hx_multi *multi, curl_socket_t fd, int events)
{
    int running;
    CURLMcode code = multi->curl->multi_socket_action(multi->handle, fd, events, &running);
    HX_CHECK(code == CURLM_OK);
}

/* An idle connection ended, or brought bytes that would be taken for the next response. libcurl can't be told to close
 * it, but doesn't use one again that is at its end. */
static void spoil(hx_multi *multi, int fd)
{
    char bytes[4096];
    register_for(multi, fd, 0);
    (void)shutdown(fd, SHUT_RDWR);
    for (int i = 0; i < DRAINED_PIECES_MAX && recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) != 0; i++) {}
}

static void sockets_ready(void *context, unsigned unused)
{
    (void)unused;
    hx_multi *multi = context;
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(multi->epoll, events, EVENTS_MAX, 0);
    /* Before libcurl is called: afterwards a descriptor may be closed, and its number another thread's. */
    for (int i = 0; i < count; i++)
        if (multi->sockets[events[i].data.fd] & IDLE) spoil(multi, events[i].data.fd);
    for (int i = 0; i < count; i++) {
        int fd = events[i].data.fd, what = 0;
        if (multi->sockets[fd] == 0 || (multi->sockets[fd] & IDLE)) continue;
        /* A failed one is ready for everything: libcurl reads the error where it next touches the socket. */
        if (events[i].events & ~(unsigned)EPOLLOUT) what |= CURL_CSELECT_IN;
        if (events[i].events & ~(unsigned)EPOLLIN) what |= CURL_CSELECT_OUT;
        act(multi, fd, what);
    }
    collect(multi);
}

void hx_multi_run(hx_multi *multi)
{
    act(multi, CURL_SOCKET_TIMEOUT, 0);
    collect(multi);
}

static void time_over(hx_timer *timer)
{
    hx_multi_run(HX_OWNER(timer, hx_multi, timer));
}

static int timer_wanted(CURLM *handle, long delay_ms, void *context)
{
    (void)handle;
    hx_multi *multi = context;
    if (delay_ms < 0)
        hx_timer_stop(multi->loop, &multi->timer);
    else
        hx_timer_start(multi->loop, &multi->timer, delay_ms, time_over);
    return 0;
}

bool hx_multi_add(hx_multi *multi, CURL *easy)
{
    return multi->curl->multi_add_handle(multi->handle, easy) == CURLM_OK;
}

void hx_multi_remove(hx_multi *multi, CURL *easy)
{
    unsigned before = multi->stuck_count;
    CURLMcode code = multi->curl->multi_remove_handle(multi->handle, easy);
    HX_CHECK(code == CURLM_OK);
    multi->stuck_count = before; /* its sockets are gone, and so may the handle be soon */
}

hx_multi *hx_multi_new(hx_loop *loop, const hx_libcurl *curl, uint32_t connections_max,
                       void (*ended)(void *context, CURL *easy, CURLcode code), void *context, hx_error_text error)
{
    hx_multi *multi = calloc(1, sizeof *multi);
    if (!multi) hx_fatal(HX_EXIT_BUG, "out of memory");
    multi->loop = loop;
    multi->curl = curl;
    multi->ended = ended;
    multi->context = context;
    multi->epoll = epoll_create1(EPOLL_CLOEXEC);
    multi->handle = curl->multi_init();
    if (multi->epoll >= 0) {
        multi->poll = hx_poll_new(loop, multi->epoll, sockets_ready, multi);
        hx_poll_for(multi->poll, HX_POLL_READ);
    }
    bool works = multi->epoll >= 0 && multi->handle &&
                 curl->multi_setopt(multi->handle, CURLMOPT_SOCKETFUNCTION, socket_wanted) == CURLM_OK &&
                 curl->multi_setopt(multi->handle, CURLMOPT_SOCKETDATA, multi) == CURLM_OK &&
                 curl->multi_setopt(multi->handle, CURLMOPT_TIMERFUNCTION, timer_wanted) == CURLM_OK &&
                 curl->multi_setopt(multi->handle, CURLMOPT_TIMERDATA, multi) == CURLM_OK &&
                 curl->multi_setopt(multi->handle, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)connections_max) == CURLM_OK &&
                 curl->multi_setopt(multi->handle, CURLMOPT_MAXCONNECTS, (long)connections_max) == CURLM_OK;
    if (works) return multi;
    (void)hx_fail(error, "no client for HTTP can be made: %s",
                  multi->epoll < 0 ? strerror(errno) : "libcurl refuses the options, it is too old");
    hx_multi_free(&multi);
    return NULL;
}

void hx_multi_free(hx_multi **owned)
{
    hx_multi *multi = *owned;
    if (!multi) return;
    if (multi->handle) (void)multi->curl->multi_cleanup(multi->handle);
    hx_timer_stop(multi->loop, &multi->timer);
    hx_poll_free(&multi->poll);
    if (multi->epoll >= 0) (void)close(multi->epoll);
    free(multi->sockets);
    free(multi);
    *owned = NULL;
}
