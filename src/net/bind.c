/* SPDX-License-Identifier: Apache-2.0 */
/* Makes listening sockets.
 *
 * Every worker has its own socket on the same port, by SO_REUSEPORT. With that option, however, the kernel would also
 * let another process of the same user bind the port beside us, and share our clients with it, without an error. So the
 * first socket of an address is bound without the option, which fails if any process listens there, and gets it
 * afterwards: only later sockets that ask for it can join. A second process also tries without it first, and fails as
 * it should. A table of our own sockets says which socket of an address is the first. */
#include "net/listener.h"

#include "base/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096
#define OURS_MAX 256u
#define SOCKET_MODE 0660
#define PRIVATE_MODE 0600
/* A connection to a machine that has vanished is closed after two minutes, in a tunnel too. */
#define KEEPALIVE_AFTER_SECONDS 60
#define KEEPALIVE_EVERY_SECONDS 15
#define KEEPALIVE_PROBES 4

typedef union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un path;
} socket_address;

typedef struct {
    int descriptor; /* -1: a free row */
    char bound[HX_ADDRESS_BYTES];
    struct stat file; /* of a unix socket */
} our_socket;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static our_socket ours[OURS_MAX];
static unsigned our_count;

static our_socket *find_ours(const char *bound)
{
    for (unsigned i = 0; i < our_count; i++)
        if (ours[i].descriptor >= 0 && strcmp(ours[i].bound, bound) == 0) return &ours[i];
    return NULL;
}

static bool is_every_address(const char *bound)
{
    return strncmp(bound, "0.0.0.0:", 8) == 0 || strncmp(bound, "[::]:", 5) == 0;
}

/* Finds our socket that keeps an address from being bound: the same address, or all addresses of its family with the
 * same port. */
static const our_socket *find_in_the_way(const char *bound)
{
    const char *port = strrchr(bound, ':');
    for (unsigned i = 0; i < our_count && port; i++) {
        const char *other = ours[i].bound, *other_port = strrchr(other, ':');
        if (ours[i].descriptor < 0 || !other_port || strcmp(port, other_port) != 0) continue;
        bool meets = (bound[0] == '[') == (other[0] == '[') && (is_every_address(bound) || is_every_address(other));
        if (meets || strcmp(bound, other) == 0) return &ours[i];
    }
    return NULL;
}

static bool note_ours(int descriptor, const char *bound, const struct stat *file)
{
    unsigned row = 0;
    while (row < our_count && ours[row].descriptor >= 0) row++;
    if (row == OURS_MAX) return false;
    if (row == our_count) our_count++;
    ours[row].descriptor = descriptor;
    ours[row].file = *file;
    (void)snprintf(ours[row].bound, sizeof ours[row].bound, "%s", bound);
    return true;
}

void hx_unlisten(int descriptor)
{
    (void)pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < our_count; i++) {
        our_socket row = ours[i];
        if (row.descriptor != descriptor) continue;
        ours[i].descriptor = -1;
        struct stat now;
        const char *path = row.bound + sizeof("unix:") - 1;
        bool is_last = row.file.st_ino != 0 && !find_ours(row.bound);
        /* Another process may have replaced the file by its own socket. */
        if (is_last && lstat(path, &now) == 0 && now.st_ino == row.file.st_ino && now.st_dev == row.file.st_dev)
            (void)unlink(path);
        break;
    }
    (void)close(descriptor);
    (void)pthread_mutex_unlock(&lock);
}

static bool split_port(hx_slice text, hx_slice *host, uint16_t *port)
{
    size_t colon = text.len;
    while (colon > 0 && text.ptr[colon - 1] != ':') colon--;
    uint64_t number;
    if (colon == 0 || !hx_slice_to_u64(hx_slice_from(text, colon), &number) || number > 65535) return false;
    *host = hx_slice_first(text, colon - 1);
    *port = (uint16_t)number;
    return true;
}

static bool parse_address(hx_slice text, socket_address *out, socklen_t *len)
{
    memset(out, 0, sizeof *out);
    if (hx_slice_starts(text, HX_LIT("unix:"))) {
        hx_slice path = hx_slice_from(text, sizeof("unix:") - 1);
        if (path.len == 0 || path.len >= sizeof out->path.sun_path || memchr(path.ptr, '\0', path.len)) return false;
        out->path.sun_family = AF_UNIX;
        memcpy(out->path.sun_path, path.ptr, path.len);
        *len = sizeof out->path;
        return true;
    }
    hx_slice host;
    uint16_t port;
    char terminated[INET6_ADDRSTRLEN];
    if (!split_port(text, &host, &port)) return false;
    bool is_v6 = host.len > 2 && host.ptr[0] == '[' && host.ptr[host.len - 1] == ']';
    if (is_v6) host = (hx_slice){host.ptr + 1, host.len - 2};
    if (host.len >= sizeof terminated) return false;
    memcpy(terminated, host.ptr, host.len);
    terminated[host.len] = '\0';
    if (is_v6) {
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons(port);
        *len = sizeof out->v6;
        return inet_pton(AF_INET6, terminated, &out->v6.sin6_addr) == 1;
    }
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons(port);
    *len = sizeof out->v4;
    return inet_pton(AF_INET, terminated, &out->v4.sin_addr) == 1;
}

static void print_address(const socket_address *a, char bound[HX_ADDRESS_BYTES])
{
    char text[INET6_ADDRSTRLEN] = "";
    if (a->any.sa_family == AF_UNIX) {
        (void)snprintf(bound, HX_ADDRESS_BYTES, "unix:%s", a->path.sun_path);
    } else if (a->any.sa_family == AF_INET6) {
        (void)inet_ntop(AF_INET6, &a->v6.sin6_addr, text, sizeof text);
        (void)snprintf(bound, HX_ADDRESS_BYTES, "[%s]:%u", text, ntohs(a->v6.sin6_port));
    } else {
        (void)inet_ntop(AF_INET, &a->v4.sin_addr, text, sizeof text);
        (void)snprintf(bound, HX_ADDRESS_BYTES, "%s:%u", text, ntohs(a->v4.sin_port));
    }
}

static bool set_value(int descriptor, int level, int name, int value)
{
    return setsockopt(descriptor, level, name, &value, sizeof value) == 0;
}

static bool set_option(int descriptor, int level, int name)
{
    return set_value(descriptor, level, name, 1);
}

static bool watch_for_vanished(int descriptor)
{
    return set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE) &&
           set_value(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_AFTER_SECONDS) &&
           set_value(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_SECONDS) &&
           set_value(descriptor, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
}

/* Binds a TCP socket; see the top of this file. Connections inherit its options. */
static bool bind_tcp(int descriptor, const socket_address *a, socklen_t len, bool is_first)
{
    if (!set_option(descriptor, SOL_SOCKET, SO_REUSEADDR)) return false;
    if (!set_option(descriptor, IPPROTO_TCP, TCP_NODELAY) || !watch_for_vanished(descriptor)) return false;
    if (a->any.sa_family == AF_INET6 && !set_option(descriptor, IPPROTO_IPV6, IPV6_V6ONLY)) return false;
    if (!is_first && !set_option(descriptor, SOL_SOCKET, SO_REUSEPORT)) return false;
    if (bind(descriptor, &a->any, len) != 0) return false;
    return !is_first || set_option(descriptor, SOL_SOCKET, SO_REUSEPORT);
}

/* Removes a socket file on which no process listens: it is left over from one that was killed. Other files stay. */
static bool remove_stale(const socket_address *a, socklen_t len)
{
    struct stat file;
    if (lstat(a->path.sun_path, &file) != 0) return errno == ENOENT;
    if (!S_ISSOCK(file.st_mode)) {
        errno = EEXIST;
        return false;
    }
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0) return false;
    bool is_stale = connect(probe, &a->any, len) != 0 && errno == ECONNREFUSED;
    (void)close(probe);
    if (!is_stale) {
        errno = EADDRINUSE;
        return false;
    }
    return unlink(a->path.sun_path) == 0;
}

/* The file gets the mode of its socket less the umask, so that it never exists with a wider one. chmod() adds what the
 * umask took away before listen(), and no client can connect before that. */
static bool bind_path(int descriptor, const socket_address *a, socklen_t len, mode_t mode, struct stat *file)
{
    return remove_stale(a, len) && fchmod(descriptor, mode) == 0 && bind(descriptor, &a->any, len) == 0 &&
           chmod(a->path.sun_path, mode) == 0 && lstat(a->path.sun_path, file) == 0;
}

static int make_socket(const socket_address *a, socklen_t len, mode_t mode, char bound[HX_ADDRESS_BYTES])
{
    bool is_path = a->any.sa_family == AF_UNIX;
    our_socket *earlier = find_ours(bound);
    struct stat file = {0};
    int descriptor = -1;
    /* A private socket is never shared, whichever of the two came first. */
    if (earlier && is_path && (mode == PRIVATE_MODE || (earlier->file.st_mode & 07777) == PRIVATE_MODE)) {
        errno = EADDRINUSE;
        return -1;
    }
    if (earlier && is_path) {
        descriptor = fcntl(earlier->descriptor, F_DUPFD_CLOEXEC, 0);
        if (descriptor < 0) return -1;
        file = earlier->file;
    } else {
        descriptor = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (descriptor < 0) return -1;
        bool ok = is_path ? bind_path(descriptor, a, len, mode, &file) : bind_tcp(descriptor, a, len, !earlier);
        if (!ok || listen(descriptor, BACKLOG) != 0) goto fail;
        socket_address real = {.any.sa_family = AF_UNSPEC};
        socklen_t real_len = sizeof real;
        if (!is_path) {
            if (getsockname(descriptor, &real.any, &real_len) != 0) goto fail;
            print_address(&real, bound);
        }
    }
    errno = EMFILE;
    if (note_ours(descriptor, bound, &file)) return descriptor;
fail:;
    int why = errno;
    (void)close(descriptor);
    errno = why;
    return -1;
}

static int listen_with(hx_slice address, mode_t mode, char bound[HX_ADDRESS_BYTES], hx_error_text error)
{
    socket_address a;
    socklen_t len;
    if (!parse_address(address, &a, &len)) {
        (void)hx_fail(error, "\"%.*s\" is not an address like 127.0.0.1:8080, [::1]:8080 or unix:/path",
                      (int)(address.len < 150 ? address.len : 150), address.ptr);
        errno = EINVAL;
        return -1;
    }
    print_address(&a, bound);
    (void)pthread_mutex_lock(&lock);
    int descriptor = make_socket(&a, len, mode, bound);
    int why = errno;
    const our_socket *in_the_way = descriptor < 0 && why == EADDRINUSE ? find_in_the_way(bound) : NULL;
    if (in_the_way)
        (void)hx_fail(error, "can't listen on %s: this process listens on %s already", bound, in_the_way->bound);
    (void)pthread_mutex_unlock(&lock);
    if (descriptor >= 0) return descriptor;
    if (!in_the_way)
        (void)hx_fail(error, "can't listen on %s: %s", bound,
                      why == EADDRINUSE ? "another process listens there" : strerror(why));
    errno = why;
    return -1;
}

int hx_listen(hx_slice address, char bound[HX_ADDRESS_BYTES], hx_error_text error)
{
    return listen_with(address, SOCKET_MODE, bound, error);
}

int hx_listen_private(hx_slice address, char bound[HX_ADDRESS_BYTES], hx_error_text error)
{
    if (hx_slice_starts(address, HX_LIT("unix:"))) return listen_with(address, PRIVATE_MODE, bound, error);
    (void)hx_fail(error, "\"%.*s\" is not a unix socket like unix:/path", (int)(address.len < 150 ? address.len : 150),
                  address.ptr);
    errno = EINVAL;
    return -1;
}
