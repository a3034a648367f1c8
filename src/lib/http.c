/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/http.h"

#include "base/text.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define HEAD_BYTES_MAX (64u << 10)
#define RESPONSE_BYTES_MAX (16u << 20)

typedef struct {
    int fd;
    int64_t ends_ns;
    const char *what; /* that went wrong */
} line;

bool hx_lib_http_address_read(hx_slice url, hx_lib_http_address *out, hx_error_text error)
{
    *out = (hx_lib_http_address){.is_unix = hx_slice_starts(url, HX_LIT("unix:"))};
    if (out->is_unix) {
        out->path = hx_slice_from(url, sizeof("unix:") - 1);
        if (out->path.len > 0 && out->path.len < sizeof((struct sockaddr_un *)0)->sun_path) return true;
        return hx_fail(error, "unix: needs the path of a socket, of up to %zu bytes",
                       sizeof((struct sockaddr_un *)0)->sun_path - 1);
    }
    hx_slice rest = hx_slice_from(url, sizeof("http://") - 1);
    bool is_http = hx_slice_starts(url, HX_LIT("http://"));
    if (hx_slice_ends(rest, HX_LIT("/"))) rest.len--;
    if (hx_slice_starts(rest, HX_LIT("["))) { /* an IPv6 address */
        size_t end = hx_slice_find(rest, ']');
        out->host = end == SIZE_MAX ? HX_EMPTY : (hx_slice){rest.ptr + 1, end - 1};
        rest = hx_slice_from(rest, end == SIZE_MAX ? rest.len : end + 1);
    } else {
        out->host = hx_slice_first(rest, hx_slice_find(rest, ':') < rest.len ? hx_slice_find(rest, ':') : rest.len);
        rest = hx_slice_from(rest, out->host.len);
    }
    uint64_t port = 80;
    bool has_port = hx_slice_starts(rest, HX_LIT(":")) && hx_slice_to_u64(hx_slice_from(rest, 1), &port);
    out->port = has_port ? hx_slice_from(rest, 1) : HX_LIT("80");
    if (is_http && out->host.len > 0 && (has_port || rest.len == 0) && port > 0 && port < 65536 &&
        hx_slice_find(out->host, '/') == SIZE_MAX)
        return true;
    return hx_fail(error, "\"%.*s\" is no address of a daemon: use http://HOST:PORT, without a path",
                   HX_FMT(hx_slice_first(url, url.len < 100 ? url.len : 100)));
}

/* The socket never blocks; this does. */
static bool wait_until(line *l, short events)
{
    struct pollfd wanted = {.fd = l->fd, .events = events};
    for (;;) {
        int64_t left = (l->ends_ns - hx_clock_mono_ns()) / 1000000;
        int ready = left > 0 ? poll(&wanted, 1, left < 60000 ? (int)left : 60000) : 0;
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) return false;
        if (left > 0) continue;
        errno = ETIMEDOUT;
        return false;
    }
}

static bool dial(line *l, const struct sockaddr *address, socklen_t len)
{
    int failed = 0;
    socklen_t failed_len = sizeof failed;
    l->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0) return false;
    if (connect(l->fd, address, len) == 0) return true;
    if (errno != EINPROGRESS || !wait_until(l, POLLOUT)) return false;
    (void)getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &failed, &failed_len);
    errno = failed;
    return failed == 0;
}

static void hang_up(line *l)
{
    int why = errno;
    if (l->fd >= 0) (void)close(l->fd);
    l->fd = -1;
    errno = why;
}

static bool connect_to(line *l, const hx_lib_http_address *address, hx_arena *arena)
{
    l->what = "can't connect";
    if (address->is_unix) {
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        memcpy(to.sun_path, address->path.ptr, address->path.len);
        return dial(l, (const struct sockaddr *)&to, sizeof to);
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int failed = getaddrinfo(hx_arena_terminated(arena, address->host), hx_arena_terminated(arena, address->port),
                             &hints, &found);
    if (failed != 0) l->what = gai_strerror(failed);
    bool is_connected = false;
    for (const struct addrinfo *at = failed == 0 ? found : NULL; at && !is_connected; at = at->ai_next) {
        hang_up(l);
        is_connected = dial(l, at->ai_addr, at->ai_addrlen);
    }
    if (failed == 0) freeaddrinfo(found);
    return is_connected;
}

static bool send_all(line *l, hx_slice bytes)
{
    l->what = "can't send the request";
    while (bytes.len > 0) {
        ssize_t sent = send(l->fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);
        if (sent > 0) bytes = hx_slice_from(bytes, (size_t)sent);
        if (sent >= 0 || errno == EINTR) continue;
        if ((errno != EAGAIN && errno != EWOULDBLOCK) || !wait_until(l, POLLOUT)) return false;
    }
    return true;
}

/* Reads the head's status and length. False: it isn't one that the daemon writes. */
static bool read_head(hx_slice head, unsigned *status, uint64_t *length)
{
    static const char version[] = "HTTP/1.1 ";
    hx_text_header header;
    uint64_t number;
    bool has_length = false;
    hx_slice digits = hx_slice_first(hx_slice_from(head, sizeof version - 1), 3);
    size_t end = hx_slice_find(head, '\n');
    if (!hx_slice_starts(head, hx_slice_of(version)) || !hx_slice_to_u64(digits, &number) || number < 200) return false;
    *status = (unsigned)number;
    head = hx_slice_from(head, end + 1);
    while (hx_text_next_header(&head, &header)) {
        if (hx_slice_eq_nocase(header.name, HX_LIT("transfer-encoding"))) return false;
        if (!hx_slice_eq_nocase(header.name, HX_LIT("content-length"))) continue;
        if (has_length || !hx_slice_to_u64(header.value, length)) return false;
        has_length = true;
    }
    return has_length && *length <= RESPONSE_BYTES_MAX;
}

/* True once `in` has the whole response. */
static bool take(line *l, hx_buf *in, size_t *head_len, hx_lib_http_response *out, bool *is_broken)
{
    uint64_t length;
    if (*head_len == 0) {
        const char *end = in->len >= 4 ? memmem(in->data, in->len, "\r\n\r\n", 4) : NULL;
        if (end) *head_len = (size_t)(end - in->data) + 4;
        *is_broken = !end && in->len > HEAD_BYTES_MAX;
        if (!end) return false;
    }
    *is_broken = !read_head((hx_slice){in->data, *head_len - 2}, &out->status, &length);
    if (*is_broken || in->len - *head_len < length) return false;
    out->body = (hx_slice){in->data + *head_len, (size_t)length};
    l->what = NULL;
    return true;
}

static bool receive(line *l, hx_arena *arena, hx_lib_http_response *out)
{
    hx_buf in;
    size_t head_len = 0;
    bool is_broken = false;
    hx_buf_init(&in, arena, HEAD_BYTES_MAX + RESPONSE_BYTES_MAX + HEAD_BYTES_MAX);
    l->what = "no response";
    while (!take(l, &in, &head_len, out, &is_broken)) {
        errno = EPROTO;
        if (is_broken || !hx_buf_reserve(&in, HEAD_BYTES_MAX)) return false;
        ssize_t got = recv(l->fd, in.data + in.len, HEAD_BYTES_MAX, 0);
        if (got > 0) in.len += (size_t)got;
        if (got == 0) errno = ECONNRESET;
        if (got == 0) return false;
        if (got > 0 || errno == EINTR) continue;
        if ((errno != EAGAIN && errno != EWOULDBLOCK) || !wait_until(l, POLLIN)) return false;
    }
    return true;
}

static hx_slice host_of(const hx_lib_http_address *address, hx_arena *arena)
{
    if (address->is_unix) return HX_LIT("hapax");
    bool is_v6 = hx_slice_find(address->host, ':') != SIZE_MAX;
    return hx_arena_printf(arena, is_v6 ? "[%.*s]:%.*s" : "%.*s:%.*s", HX_FMT(address->host), HX_FMT(address->port));
}

bool hx_lib_http_post(const hx_lib_http_address *address, hx_slice target, hx_slice head, hx_slice body,
                      hx_arena *arena, hx_lib_http_response *out, hx_error_text error)
{
    line l = {.fd = -1, .ends_ns = hx_clock_mono_ns() + address->timeout * 1000000};
    hx_buf request;
    hx_buf_init(&request, arena, HEAD_BYTES_MAX + body.len);
    bool fits = hx_buf_printf(&request,
                              "POST %.*s HTTP/1.1\r\nHost: %.*s\r\nConnection: close\r\n%.*sContent-Type: "
                              "application/json\r\nContent-Length: %zu\r\n\r\n",
                              HX_FMT(target), HX_FMT(host_of(address, arena)), HX_FMT(head), body.len) &&
                hx_buf_append(&request, body);
    if (!fits) return hx_fail(error, "the request is too large");
    errno = 0;
    bool is_whole = connect_to(&l, address, arena) && send_all(&l, hx_buf_slice(&request)) && receive(&l, arena, out);
    if (!is_whole) {
        hx_slice where = address->is_unix ? address->path : address->host;
        (void)hx_fail(error, "the daemon at %.*s doesn't answer: %s%s%s", HX_FMT(where), l.what, errno != 0 ? ": " : "",
                      errno != 0 ? strerror(errno) : "");
    }
    hang_up(&l);
    return is_whole;
}
