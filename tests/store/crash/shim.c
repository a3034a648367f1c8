/* SPDX-License-Identifier: Apache-2.0 */
/* Comes between a program and its disk (LD_PRELOAD). It counts, with one counter for all threads, every call that
 * changes something below the watched folder, and at one of them does what plan.h says. Syncs are not carried out but
 * accounted for: the model in disk.c is the disk, and a run costs no real one.
 *
 * What it can't see it refuses loudly instead of letting a test pass for the wrong reason: writable shared mappings,
 * fopen, copy_file_range and the like below the watched folder. Real calls are made by number. */
#include "disk.h"
#include "plan.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static crash_plan plan;
static crash_report *report; /* NULL: not armed */
static bool modelled;
static bool full;
static uint64_t counted_points;
static bool at_point; /* of the call that holds the lock */

EXPORT crash_shim_arm_fn crash_shim_arm;
EXPORT crash_shim_space_fn crash_shim_space;

void crash_shim_arm(const crash_plan *wanted, crash_report *shared)
{
    plan = *wanted;
    modelled = plan.mode == CRASH_DROP || plan.mode == CRASH_TORN || plan.mode == CRASH_ERROR ||
               plan.mode == CRASH_STALE || plan.goes_on;
    if (modelled) disk_init(plan.lost);
    atomic_store(&shared->points, 0);
    atomic_store(&shared->fired, 0);
    atomic_store(&shared->failed_syncs, 0);
    report = shared;
}

int crash_shim_space(void)
{
    pthread_mutex_lock(&lock);
    bool was = full;
    full = false;
    if (plan.mode == CRASH_FULL) plan.mode = CRASH_COUNT; /* a point that comes later stays away */
    pthread_mutex_unlock(&lock);
    return was;
}

/* What other threads were told before this point, they shall have acted upon: an answer that was given too early is
 * then seen, where otherwise it would have to win a race. */
static void dawdle(void)
{
    const struct timespec moment = {.tv_nsec = 2000000};
    if (plan.mode == CRASH_KILL || plan.mode == CRASH_DROP || plan.mode == CRASH_TORN) nanosleep(&moment, NULL);
}

static _Noreturn void die(void)
{
    for (;;) syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
}

/* Letters and digits that number a file are all the same to a label. */
static void label(char *out, const char *verb, const char *path)
{
    size_t skip = strlen(plan.watch);
    if (strncmp(path, plan.watch, skip) == 0) path += skip;
    size_t at = (size_t)snprintf(out, CRASH_LABEL_BYTES, "%s:", verb);
    while (*path && at + 1 < CRASH_LABEL_BYTES) {
        size_t digits = strspn(path, "0123456789abcdef");
        if (digits >= 4 || (digits > 0 && strspn(path, "0123456789") == digits)) {
            out[at++] = '#';
            path += digits;
        } else {
            out[at++] = *path++;
        }
    }
    out[at] = 0;
}

static bool below(const char *path)
{
    size_t len = strlen(plan.watch);
    return strncmp(path, plan.watch, len) == 0 && (path[len] == '/' || path[len] == 0);
}

/* The absolute path of a name, its last part not resolved. False when it is none of ours. */
static bool path_of(int folder, const char *name, char out[static PATH_MAX])
{
    if (!report) return false;
    if (name[0] == '/') {
        if (snprintf(out, PATH_MAX, "%s", name) >= PATH_MAX) return false;
    } else {
        char base[PATH_MAX], link[64];
        snprintf(link, sizeof link, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", folder);
        ssize_t len = readlink(link, base, sizeof base - 1);
        if (len <= 0) return false;
        base[len] = 0;
        if (snprintf(out, PATH_MAX, "%s/%s", base, name) >= PATH_MAX) return false;
    }
    size_t len = strlen(out);
    while (len > 1 && out[len - 1] == '/') out[--len] = 0;
    return below(out);
}

/* The path of a descriptor, when it is a file or a folder of ours. */
static bool path_of_fd(int fd, char out[static PATH_MAX])
{
    struct stat st;
    if (!report || fstat(fd, &st) != 0 || !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))) return false;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, out, PATH_MAX - 1);
    if (len <= 0) return false;
    out[len] = 0;
    return below(out);
}

/* Counts a point and takes the lock. False: the call fails with errno, and the lock is free again. */
static bool begin(const char *verb, const char *path)
{
    pthread_mutex_lock(&lock);
    uint64_t n = atomic_fetch_add(&report->points, 1) + 1;
    char text[CRASH_LABEL_BYTES];
    label(text, verb, path);
    if (n <= CRASH_POINTS_MAX) memcpy(report->label[n - 1], text, sizeof text);
    bool counted = plan.label[0] == 0 || strcmp(plan.label, text) == 0;
    at_point = counted && ++counted_points == plan.point && plan.mode != CRASH_COUNT;
    if (!at_point) return true;
    bool sync = strstr(verb, "sync") != NULL;
    atomic_store(&report->fired, n);
    dawdle();
    switch (plan.mode) {
    case CRASH_KILL:
        if (modelled) disk_hand_down();
        die();
    case CRASH_DROP: disk_drop(); die();
    case CRASH_TORN:
        if (!sync) return true;
        disk_tear(plan.seed);
        die();
    case CRASH_ERROR:
        if (sync) atomic_store(&report->failed_syncs, 1);
        pthread_mutex_unlock(&lock);
        errno = EIO;
        return false;
    case CRASH_FULL: full = true; return true;
    default: return true;
    }
}

static long finish(long result)
{
    int error = errno;
    if (at_point && plan.mode == CRASH_AFTER) {
        if (modelled) disk_hand_down();
        die();
    }
    if (at_point && plan.mode == CRASH_TORN) {
        disk_tear(plan.seed);
        die();
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

static long refuse_for_room(void)
{
    errno = ENOSPC;
    return finish(-1);
}

static void unseen(const char *call, const char *path)
{
    snprintf(report->trouble, sizeof report->trouble, "%s on %.180s can't be followed", call, path);
    dprintf(STDERR_FILENO, "crash shim: %s\n", report->trouble);
    _exit(71);
}

/* Every way to write ends here. at < 0: where the file's position is. */
static ssize_t write_any(int fd, const struct iovec *parts, int count, off_t at, int flags)
{
    char path[PATH_MAX];
    bool ours = path_of_fd(fd, path);
    long high = (long)((uint64_t)at >> 32);
    if (!ours) {
        if (at < 0) return syscall(SYS_writev, fd, parts, count);
        return syscall(SYS_pwritev2, fd, parts, count, (long)at, high, flags);
    }
    if (!begin("write", path)) return -1;
    size_t len = 0;
    for (int i = 0; i < count; i++) len += parts[i].iov_len;
    struct stat st;
    fstat(fd, &st);
    int open_flags = fcntl(fd, F_GETFL);
    off_t to = at >= 0 ? at : (open_flags & O_APPEND) ? st.st_size : lseek(fd, 0, SEEK_CUR);
    size_t room = full && to + (off_t)len > st.st_size ? (to < st.st_size ? (size_t)(st.st_size - to) : 0) : len;
    if (room == 0 && len > 0) return refuse_for_room();
    if (at_point && plan.mode == CRASH_SHORT && len > 1) room = len / 2;
    bool written_through = (open_flags & (O_DSYNC | O_SYNC)) || (flags & (RWF_DSYNC | RWF_SYNC));
    if (modelled && !written_through) disk_will_write(fd, to, room);
    if (room == len) {
        if (at < 0) return finish(syscall(SYS_writev, fd, parts, count));
        return finish(syscall(SYS_pwritev2, fd, parts, count, (long)at, high, flags));
    }
    unsigned char *part = malloc(room); /* a short write: what fits */
    if (!part) unseen("a write without memory", path);
    size_t have = 0;
    for (int i = 0; i < count && have < room; i++) {
        size_t take = parts[i].iov_len < room - have ? parts[i].iov_len : room - have;
        memcpy(part + have, parts[i].iov_base, take);
        have += take;
    }
    long put = at < 0 ? syscall(SYS_write, fd, part, room) : syscall(SYS_pwrite64, fd, part, room, at);
    free(part);
    return finish(put);
}

static void *unconst(const void *bytes)
{
    void *same;
    memcpy(&same, &bytes, sizeof same);
    return same;
}

EXPORT ssize_t write(int fd, const void *bytes, size_t len)
{
    struct iovec part = {unconst(bytes), len};
    return write_any(fd, &part, 1, -1, 0);
}

EXPORT ssize_t writev(int fd, const struct iovec *parts, int count)
{
    return write_any(fd, parts, count, -1, 0);
}

EXPORT ssize_t pwrite(int fd, const void *bytes, size_t len, off_t at)
{
    struct iovec part = {unconst(bytes), len};
    return write_any(fd, &part, 1, at, 0);
}

EXPORT ssize_t pwrite64(int fd, const void *bytes, size_t len, off_t at)
{
    return pwrite(fd, bytes, len, at);
}

EXPORT ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    return write_any(fd, parts, count, at, 0);
}

EXPORT ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t at)
{
    return write_any(fd, parts, count, at, 0);
}

EXPORT ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags)
{
    return write_any(fd, parts, count, at, flags);
}

EXPORT ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off_t at, int flags)
{
    return write_any(fd, parts, count, at, flags);
}

static int sync_any(int fd, long number)
{
    char path[PATH_MAX];
    if (!path_of_fd(fd, path)) return (int)syscall(number, fd);
    struct stat st;
    fstat(fd, &st);
    bool folder = S_ISDIR(st.st_mode);
    if (!begin(folder ? "sync-folder" : "sync", path)) {
        /* After a failed sync the pages are clean and may be gone: half of the seeds make it so. */
        if (!folder && plan.seed % 2 == 1) disk_drop_file(fd);
        errno = EIO;
        return -1;
    }
    if (at_point && plan.mode == CRASH_STALE && !folder) {
        disk_did_fail(fd);
        disk_hand_down();
        die();
    }
    if (modelled && folder)
        disk_did_sync_folder(path);
    else if (modelled)
        disk_did_sync_file(fd);
    return (int)finish(0);
}

EXPORT int fdatasync(int fd)
{
    return sync_any(fd, SYS_fdatasync);
}

EXPORT int fsync(int fd)
{
    return sync_any(fd, SYS_fsync);
}

/* The program may see from here on what the disk has; or not: it is only advice, and half of the seeds ignore it. */
EXPORT int posix_fadvise(int fd, off_t at, off_t len, int advice)
{
    char path[PATH_MAX];
    if (path_of_fd(fd, path) && modelled && advice == POSIX_FADV_DONTNEED && plan.seed % 2 == 0) {
        pthread_mutex_lock(&lock);
        disk_drop_stale(fd);
        pthread_mutex_unlock(&lock);
    }
    return syscall(SYS_fadvise64, fd, at, len, advice) == 0 ? 0 : errno;
}

EXPORT int posix_fadvise64(int fd, off_t at, off_t len, int advice)
{
    return posix_fadvise(fd, at, len, advice);
}

EXPORT int syncfs(int fd)
{
    char path[PATH_MAX];
    if (!path_of_fd(fd, path)) return (int)syscall(SYS_syncfs, fd);
    if (!begin("sync-all", path)) return -1;
    if (modelled) disk_did_sync_all();
    return (int)finish(0);
}

static int open_any(int folder, const char *name, int flags, mode_t mode)
{
    char path[PATH_MAX];
    struct stat st;
    bool changes = (flags & (O_CREAT | O_TRUNC)) != 0;
    if (!changes || !path_of(folder, name, path)) return (int)syscall(SYS_openat, folder, name, flags, mode);
    bool exists = lstat(path, &st) == 0;
    if (exists && !((flags & O_TRUNC) && st.st_size > 0)) /* changes nothing, and may well be refused */
        return (int)syscall(SYS_openat, folder, name, flags, mode);
    if (!begin(exists ? "truncate" : "create", path)) return -1;
    if (full && !exists) return (int)refuse_for_room();
    if (exists && modelled) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
        if (fd >= 0) disk_will_resize(fd, 0);
        if (fd >= 0) close(fd);
    }
    int fd = (int)syscall(SYS_openat, folder, name, flags, mode);
    if (fd >= 0 && !exists && modelled) disk_did_create(path);
    return (int)finish(fd);
}

/* NOLINTBEGIN(bugprone-macro-parentheses): `mode` is the name of a variable that is declared here */
#define MODE_ARGUMENT(flags, mode)                                                                                     \
    mode_t mode = 0;                                                                                                   \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                                             \
        va_list arguments;                                                                                             \
        va_start(arguments, flags);                                                                                    \
        mode = (mode_t)va_arg(arguments, int);                                                                         \
        va_end(arguments);                                                                                             \
    }
/* NOLINTEND(bugprone-macro-parentheses) */

EXPORT int open(const char *name, int flags, ...)
{
    MODE_ARGUMENT(flags, mode)
    return open_any(AT_FDCWD, name, flags, mode);
}

EXPORT int open64(const char *name, int flags, ...)
{
    MODE_ARGUMENT(flags, mode)
    return open_any(AT_FDCWD, name, flags, mode);
}

EXPORT int openat(int folder, const char *name, int flags, ...)
{
    MODE_ARGUMENT(flags, mode)
    return open_any(folder, name, flags, mode);
}

EXPORT int openat64(int folder, const char *name, int flags, ...)
{
    MODE_ARGUMENT(flags, mode)
    return open_any(folder, name, flags, mode);
}

EXPORT int creat(const char *name, mode_t mode)
{
    return open_any(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

EXPORT int creat64(const char *name, mode_t mode)
{
    return creat(name, mode);
}

static int resize_any(int fd, off_t size)
{
    char path[PATH_MAX];
    struct stat st;
    if (!path_of_fd(fd, path)) return (int)syscall(SYS_ftruncate, fd, size);
    if (!begin("truncate", path)) return -1;
    fstat(fd, &st);
    if (full && size > st.st_size) return (int)refuse_for_room();
    if (modelled) disk_will_resize(fd, size);
    return (int)finish(syscall(SYS_ftruncate, fd, size));
}

EXPORT int ftruncate(int fd, off_t size)
{
    return resize_any(fd, size);
}

EXPORT int ftruncate64(int fd, off_t size)
{
    return resize_any(fd, size);
}

EXPORT int truncate(const char *name, off_t size)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CLOEXEC, 0);
    if (fd < 0) return -1;
    int result = resize_any(fd, size);
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

EXPORT int truncate64(const char *name, off_t size)
{
    return truncate(name, size);
}

static int allocate_any(int fd, int mode, off_t at, off_t len)
{
    char path[PATH_MAX];
    if (!path_of_fd(fd, path)) return (int)syscall(SYS_fallocate, fd, mode, at, len);
    if (mode != 0 && mode != FALLOC_FL_KEEP_SIZE) unseen("fallocate with holes", path);
    if (!begin("allocate", path)) return -1;
    struct stat st;
    fstat(fd, &st);
    if (full && at + len > st.st_size) return (int)refuse_for_room();
    if (modelled && mode == 0 && at + len > st.st_size) disk_will_resize(fd, at + len);
    return (int)finish(syscall(SYS_fallocate, fd, mode, at, len));
}

EXPORT int fallocate(int fd, int mode, off_t at, off_t len)
{
    return allocate_any(fd, mode, at, len);
}

EXPORT int fallocate64(int fd, int mode, off_t at, off_t len)
{
    return allocate_any(fd, mode, at, len);
}

EXPORT int posix_fallocate(int fd, off_t at, off_t len)
{
    int error = errno;
    int result = allocate_any(fd, 0, at, len) == 0 ? 0 : errno;
    errno = error;
    return result;
}

EXPORT int posix_fallocate64(int fd, off_t at, off_t len)
{
    return posix_fallocate(fd, at, len);
}

static int rename_any(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    char from_path[PATH_MAX], to_path[PATH_MAX];
    bool ours = path_of(from_folder, from, from_path);
    if (!path_of(to_folder, to, to_path) || !ours)
        return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
    if (flags & RENAME_EXCHANGE) unseen("renameat2 with exchange", to_path);
    if (!begin("rename", to_path)) return -1;
    if (modelled) disk_will_rename(from_path, to_path);
    return (int)finish(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

EXPORT int rename(const char *from, const char *to)
{
    return rename_any(AT_FDCWD, from, AT_FDCWD, to, 0);
}

EXPORT int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return rename_any(from_folder, from, to_folder, to, 0);
}

EXPORT int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    return rename_any(from_folder, from, to_folder, to, flags);
}

static int unlink_any(int folder, const char *name, int flags)
{
    char path[PATH_MAX];
    struct stat st;
    if (!path_of(folder, name, path) || lstat(path, &st) != 0) return (int)syscall(SYS_unlinkat, folder, name, flags);
    if (flags & AT_REMOVEDIR) unseen("rmdir", path);
    if (!begin("unlink", path)) return -1;
    if (modelled) disk_will_unlink(path);
    return (int)finish(syscall(SYS_unlinkat, folder, name, flags));
}

EXPORT int unlink(const char *name)
{
    return unlink_any(AT_FDCWD, name, 0);
}

EXPORT int unlinkat(int folder, const char *name, int flags)
{
    return unlink_any(folder, name, flags);
}

EXPORT int remove(const char *name)
{
    return unlink_any(AT_FDCWD, name, 0);
}

EXPORT int rmdir(const char *name)
{
    return unlink_any(AT_FDCWD, name, AT_REMOVEDIR);
}

static int mkdir_any(int folder, const char *name, mode_t mode)
{
    char path[PATH_MAX];
    struct stat st;
    if (!path_of(folder, name, path) || lstat(path, &st) == 0) return (int)syscall(SYS_mkdirat, folder, name, mode);
    if (!begin("mkdir", path)) return -1;
    if (full) return (int)refuse_for_room();
    long result = syscall(SYS_mkdirat, folder, name, mode);
    if (result == 0 && modelled) disk_did_mkdir(path);
    return (int)finish(result);
}

EXPORT int mkdir(const char *name, mode_t mode)
{
    return mkdir_any(AT_FDCWD, name, mode);
}

EXPORT int mkdirat(int folder, const char *name, mode_t mode)
{
    return mkdir_any(folder, name, mode);
}

static int link_any(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    char path[PATH_MAX];
    if (!path_of(to_folder, to, path)) return (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
    if (!begin("link", path)) return -1;
    long result = syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
    if (result == 0 && modelled) disk_did_create(path);
    return (int)finish(result);
}

EXPORT int link(const char *from, const char *to)
{
    return link_any(AT_FDCWD, from, AT_FDCWD, to, 0);
}

EXPORT int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    return link_any(from_folder, from, to_folder, to, flags);
}

/* How much space there is. */
EXPORT int fstatvfs(int fd, struct statvfs *out)
{
    struct statfs raw;
    if (syscall(SYS_fstatfs, fd, &raw) != 0) return -1;
    *out = (struct statvfs){.f_bsize = (unsigned long)raw.f_bsize,
                            .f_frsize = (unsigned long)(raw.f_frsize ? raw.f_frsize : raw.f_bsize),
                            .f_blocks = raw.f_blocks,
                            .f_bfree = full ? 0 : raw.f_bfree,
                            .f_bavail = full ? 0 : raw.f_bavail,
                            .f_files = raw.f_files,
                            .f_ffree = raw.f_ffree,
                            .f_favail = raw.f_ffree,
                            .f_namemax = (unsigned long)raw.f_namelen};
    return 0;
}

EXPORT int statvfs(const char *restrict name, struct statvfs *restrict out)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, name, O_PATH | O_CLOEXEC, 0);
    if (fd < 0) return -1;
    int result = fstatvfs(fd, out);
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

/* On 64-bit machines the two kinds of names mean the same; which one a program has follows from how it was compiled. */
_Static_assert(sizeof(off_t) == sizeof(off64_t) && sizeof(struct statvfs) == sizeof(struct statvfs64) &&
                   sizeof(struct statfs) == sizeof(struct statfs64),
               "the shim is for 64-bit machines");

EXPORT int fstatvfs64(int fd, struct statvfs64 *out)
{
    return fstatvfs(fd, (struct statvfs *)(void *)out);
}

EXPORT int statvfs64(const char *restrict name, struct statvfs64 *restrict out)
{
    return statvfs(name, (struct statvfs *)(void *)out);
}

EXPORT int fstatfs(int fd, struct statfs *out)
{
    if (syscall(SYS_fstatfs, fd, out) != 0) return -1;
    if (full) out->f_bfree = out->f_bavail = 0;
    return 0;
}

EXPORT int statfs(const char *name, struct statfs *out)
{
    if (syscall(SYS_statfs, name, out) != 0) return -1;
    if (full) out->f_bfree = out->f_bavail = 0;
    return 0;
}

EXPORT int fstatfs64(int fd, struct statfs64 *out)
{
    return fstatfs(fd, (struct statfs *)(void *)out);
}

EXPORT int statfs64(const char *name, struct statfs64 *out)
{
    return statfs(name, (struct statfs *)(void *)out);
}

/* SQLite's: whoever is the first to open the database makes it anew, so it isn't part of what a disk must keep. */
static bool is_shared_index(const char *path)
{
    size_t len = strlen(path);
    return len > 4 && strcmp(path + len - 4, "-shm") == 0;
}

/* What would go past the counter. */
EXPORT void *mmap(void *at, size_t len, int protection, int flags, int fd, off_t offset)
{
    char path[PATH_MAX];
    if (fd >= 0 && (protection & PROT_WRITE) && (flags & MAP_SHARED) && path_of_fd(fd, path))
        if (!is_shared_index(path)) unseen("a writable shared mapping", path);
    long result = syscall(SYS_mmap, at, len, protection, flags, fd, offset);
    return (void *)result; /* NOLINT(performance-no-int-to-ptr) */
}

EXPORT void *mmap64(void *at, size_t len, int protection, int flags, int fd, off64_t offset)
{
    return mmap(at, len, protection, flags, fd, offset);
}

EXPORT ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t len, unsigned flags)
{
    char path[PATH_MAX];
    if (path_of_fd(to, path)) unseen("copy_file_range", path);
    return syscall(SYS_copy_file_range, from, from_at, to, to_at, len, flags);
}

/* stdio writes past the names above; below the watched folder its files are made of our own write. */
static ssize_t cookie_write(void *cookie, const char *bytes, size_t len)
{
    size_t done = 0;
    while (done < len) { /* as stdio's own does */
        ssize_t put = write((int)(intptr_t)cookie, bytes + done, len - done);
        if (put < 0) break;
        done += (size_t)put;
    }
    return (ssize_t)done;
}

static int cookie_close(void *cookie)
{
    return close((int)(intptr_t)cookie);
}

EXPORT FILE *fdopen(int fd, const char *mode)
{
    static FILE *(*real)(int, const char *);
    char path[PATH_MAX];
    if (strpbrk(mode, "wa+") && path_of_fd(fd, path)) {
        if (strpbrk(mode, "r+")) unseen("stdio that reads and writes", path);
        return fopencookie((void *)(intptr_t)fd, mode, /* NOLINT(performance-no-int-to-ptr) */
                           (cookie_io_functions_t){.write = cookie_write, .close = cookie_close});
    }
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "fdopen");
    return real(fd, mode);
}

EXPORT FILE *fopen(const char *restrict name, const char *restrict mode)
{
    static FILE *(*real)(const char *, const char *);
    char path[PATH_MAX];
    if (strpbrk(mode, "wa+") && path_of(AT_FDCWD, name, path)) unseen("fopen", path);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    return real(name, mode);
}

EXPORT FILE *fopen64(const char *restrict name, const char *restrict mode)
{
    return fopen(name, mode);
}
