/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into the gateway by faults.py, to have at will what a test can't wait for:
 *   FAULT_HOLD_SYNC=FILE   while FILE exists a sync waits; FILE.held says that one does
 *   FAULT_FAIL_SYNC=FILE   while FILE exists a sync fails
 *   FAULT_KILL_AT_SYNC=N   the Nth sync is not made: the process is killed
 *   FAULT_NO_TMPFILE=1     no file system knows O_TMPFILE, as with overlays of older kernels */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void sync_or_die(void)
{
    static atomic_long syncs;
    const char *last = getenv("FAULT_KILL_AT_SYNC");
    if (last && atomic_fetch_add(&syncs, 1) + 1 == strtol(last, NULL, 10)) (void)raise(SIGKILL);
}

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
    return real(descriptor);
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
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    return real(path, flags, mode);
}
