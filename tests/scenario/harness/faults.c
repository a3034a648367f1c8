/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into the gateway by faults.py, to have at will what a test can't wait for:
 *   FAULT_HOLD_SYNC=FILE   while FILE exists a sync waits; FILE.held says that one does
 *   FAULT_FAIL_SYNC=FILE   while FILE exists a sync fails
 *   FAULT_KILL_AT_SYNC=N   the Nth sync is not made: the process is killed
 *   FAULT_KILL_AT_CHANGE=N the Nth call that makes, names, removes, syncs or writes to the end of a file is not made:
 *                          the process is killed
 *   FAULT_KILL_AT_STEP=N   the same, with the calls that connect to, send to and receive from an address counted along;
 *   FAULT_STEP=FILE        gets the name of the call
 *   FAULT_KILL_AFTER_SYNC=N the process is killed when its Nth sync has been made
 *   FAULT_KILL_AT_SEND=N   the Nth call that sends to a socket is not made: the process is killed
 *   FAULT_KILL_AFTER_SEND=N the process is killed when the Nth of these calls has been made
 *   FAULT_SYNCHRONISED=FILE the kernel says that the clock is synchronised while FILE exists, and only then
 *   FAULT_NO_TMPFILE=1     no file system knows O_TMPFILE, as with overlays of older kernels */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <unistd.h>

static void count_or_die(atomic_long *calls, const char *variable)
{
    const char *last = getenv(variable);
    if (last && atomic_fetch_add(calls, 1) + 1 == strtol(last, NULL, 10)) (void)raise(SIGKILL);
}

static void step_or_die(const char *name)
{
    static atomic_long steps;
    const char *last = getenv("FAULT_KILL_AT_STEP"), *file = getenv("FAULT_STEP");
    if (!last || atomic_fetch_add(&steps, 1) + 1 != strtol(last, NULL, 10)) return;
    FILE *out = file ? fopen(file, "w") : NULL;
    if (out) {
        (void)fputs(name, out);
        (void)fclose(out);
    }
    (void)raise(SIGKILL);
}

static void change_or_die(const char *name)
{
    static atomic_long changes;
    count_or_die(&changes, "FAULT_KILL_AT_CHANGE");
    step_or_die(name);
}

static void sync_or_die(void)
{
    static atomic_long syncs;
    count_or_die(&syncs, "FAULT_KILL_AT_SYNC");
    change_or_die("sync");
}

#define CHANGE(type, name, parameters, ...)                                                                            \
    type name parameters                                                                                               \
    {                                                                                                                  \
        change_or_die(#name);                                                                                          \
        type(*real) parameters = (type(*) parameters)dlsym(RTLD_NEXT, #name);                                          \
        return real(__VA_ARGS__);                                                                                      \
    }

CHANGE(int, mkdir, (const char *path, mode_t mode), path, mode)
CHANGE(int, renameat, (int from, const char *old, int to, const char *new), from, old, to, new)
CHANGE(int, link, (const char *old, const char *new), old, new)
CHANGE(int, unlink, (const char *path), path)
CHANGE(int, unlinkat, (int dir, const char *path, int flags), dir, path, flags)

static ssize_t socket_write(int descriptor, const void *bytes, size_t count);

ssize_t write(int descriptor, const void *bytes, size_t count)
{
    ssize_t (*real)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    struct stat st;
    bool is_known = fstat(descriptor, &st) == 0;
    if (is_known && S_ISREG(st.st_mode)) change_or_die("write");
    if (is_known && S_ISSOCK(st.st_mode)) return socket_write(descriptor, bytes, count);
    return real(descriptor, bytes, count);
}

#define STEP(type, name, parameters, ...)                                                                              \
    type name parameters                                                                                               \
    {                                                                                                                  \
        step_or_die(#name);                                                                                            \
        type(*real) parameters = (type(*) parameters)dlsym(RTLD_NEXT, #name);                                          \
        return real(__VA_ARGS__);                                                                                      \
    }

STEP(int, rename, (const char *old, const char *new), old, new)
STEP(int, connect, (int fd, const struct sockaddr *address, socklen_t len), fd, address, len)
STEP(ssize_t, recv, (int fd, void *bytes, size_t count, int flags), fd, bytes, count, flags)

int fsync(int descriptor)
{
    sync_or_die();
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return real(descriptor);
}

int fdatasync(int descriptor)
{
    const char *file = getenv("FAULT_HOLD_SYNC");
    char held[512];
    if (file && access(file, F_OK) == 0) {
        (void)snprintf(held, sizeof held, "%s.held", file);
        (void)close(creat(held, 0600));
        while (access(file, F_OK) == 0) (void)usleep(1000);
    }
    file = getenv("FAULT_FAIL_SYNC");
    if (file && access(file, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    sync_or_die();
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    int result = real(descriptor);
    static atomic_long syncs;
    count_or_die(&syncs, "FAULT_KILL_AFTER_SYNC");
    return result;
}

/* libuv writes with write, writev and sendmsg, libcurl with send. */
static ssize_t count_sent(ssize_t (*real)(void *call), void *call)
{
    static atomic_long begun, made;
    step_or_die("send");
    count_or_die(&begun, "FAULT_KILL_AT_SEND");
    ssize_t sent = real(call);
    count_or_die(&made, "FAULT_KILL_AFTER_SEND");
    return sent;
}

struct send_call {
    int socket, flags;
    const void *bytes;
    size_t count;
};

static ssize_t real_send(void *call)
{
    const struct send_call *c = call;
    ssize_t (*real)(int, const void *, size_t, int) = (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT,
                                                                                                        "send");
    return real(c->socket, c->bytes, c->count, c->flags);
}

ssize_t send(int socket, const void *bytes, size_t count, int flags)
{
    return count_sent(real_send, &(struct send_call){socket, flags, bytes, count});
}

static ssize_t real_sendmsg(void *call)
{
    const struct send_call *c = call;
    ssize_t (*real)(int, const struct msghdr *, int) = (ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT,
                                                                                                          "sendmsg");
    return real(c->socket, c->bytes, c->flags);
}

ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
    return count_sent(real_sendmsg, &(struct send_call){socket, flags, message, 0});
}

static ssize_t real_socket_write(void *call)
{
    const struct send_call *c = call;
    ssize_t (*real)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    return real(c->socket, c->bytes, c->count);
}

static ssize_t socket_write(int descriptor, const void *bytes, size_t count)
{
    return count_sent(real_socket_write, &(struct send_call){descriptor, 0, bytes, count});
}

static ssize_t real_writev(void *call)
{
    const struct send_call *c = call;
    ssize_t (*real)(int, const struct iovec *, int) = (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT,
                                                                                                        "writev");
    return real(c->socket, c->bytes, (int)c->count);
}

static bool is_socket(int descriptor)
{
    struct stat st;
    return fstat(descriptor, &st) == 0 && S_ISSOCK(st.st_mode);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count)
{
    struct send_call call = {descriptor, 0, parts, (size_t)count};
    return is_socket(descriptor) ? count_sent(real_writev, &call) : real_writev(&call);
}

int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int mode = va_arg(rest, int);
    va_end(rest);
    if ((flags & O_TMPFILE) == O_TMPFILE && getenv("FAULT_NO_TMPFILE")) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (flags & O_CREAT) change_or_die("create");
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    return real(path, flags, mode);
}

int openat64(int directory, const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int mode = va_arg(rest, int);
    va_end(rest);
    if (flags & O_CREAT) change_or_die("create");
    int (*real)(int, const char *, int, ...) = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat64");
    return real(directory, path, flags, mode);
}

int adjtimex(struct timex *asked)
{
    const char *file = getenv("FAULT_SYNCHRONISED");
    if (!file) return ((int (*)(struct timex *))dlsym(RTLD_NEXT, "adjtimex"))(asked);
    bool is_right = access(file, F_OK) == 0;
    asked->status = is_right ? STA_PLL : STA_UNSYNC;
    return is_right ? TIME_OK : TIME_ERROR;
}
