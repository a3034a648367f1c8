/* SPDX-License-Identifier: Apache-2.0 */
/* The undo log behind the model. Files are known by their inode and pinned by a descriptor of our own, so that they
 * outlive the program's close, rename and unlink. Folders are stricter than any file system we run on: a name that was
 * made, moved or removed may be lost until its folder is synced, whatever was done to the file.
 *
 * Real calls are made by number: this file is linked into the library that takes the libc's names. */
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SECTOR 512
#define PAGE 4096

typedef struct file {
    struct file *next;
    dev_t device;
    ino_t inode;
    int fd;
    bool size_undone; /* while tearing */
    off_t torn_size;
    bool torn_size_known;
} file;

typedef struct change {
    struct change *older;
    file *file;
    off_t at;
    size_t len;
    off_t size_before;
    bool shrinks;
    bool stale; /* within one page, in memory only: a sync passes it by */
    size_t old_len;
    unsigned char *old; /* behind it */
} change;

typedef enum { MADE, MADE_FOLDER, REMOVED, MOVED } name_kind;

typedef struct name_change {
    struct name_change *older;
    name_kind kind;
    bool saved; /* what the name stood for is kept as lost/NUMBER */
    unsigned number;
    unsigned group;
    char path[PATH_MAX];
    char from[PATH_MAX];
} name_change;

static file *files;
static change *newest;
static name_change *newest_name;
static unsigned saved_count;
static char lost_folder[PATH_MAX];

#define HANDED_DOWN "unsynced" /* in the lost folder */

static _Noreturn void give_up(const char *what)
{
    dprintf(STDERR_FILENO, "crash shim: %s: %s\n", what, strerror(errno));
    _exit(71);
}

static void *grab(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory) give_up("out of memory");
    return memory;
}

static file *file_of(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0) give_up("fstat");
    for (file *f = files; f; f = f->next)
        if (f->inode == st.st_ino && f->device == st.st_dev) return f;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    file *f = grab(sizeof *f);
    f->device = st.st_dev;
    f->inode = st.st_ino;
    f->fd = (int)syscall(SYS_openat, AT_FDCWD, link, O_RDWR | O_CLOEXEC, 0);
    if (f->fd < 0) give_up("can't open a file a second time");
    f->next = files;
    files = f;
    return f;
}

static void note(int fd, off_t at, size_t len, bool shrinks)
{
    file *f = file_of(fd);
    struct stat st;
    if (fstat(f->fd, &st) != 0) give_up("fstat");
    off_t old_end = at + (off_t)len < st.st_size ? at + (off_t)len : st.st_size;
    size_t old_len = old_end > at ? (size_t)(old_end - at) : 0;
    change *c = grab(sizeof *c + old_len);
    *c = (change){.older = newest,
                  .file = f,
                  .at = at,
                  .len = len,
                  .size_before = st.st_size,
                  .shrinks = shrinks,
                  .old_len = old_len,
                  .old = (unsigned char *)(c + 1)};
    for (size_t done = 0; done < old_len;) {
        ssize_t got = syscall(SYS_pread64, f->fd, c->old + done, old_len - done, at + (off_t)done);
        if (got <= 0) give_up("pread");
        done += (size_t)got;
    }
    newest = c;
}

void disk_will_write(int fd, off_t at, size_t len)
{
    note(fd, at, len, false);
    for (change *c = newest->older; c; c = c->older) /* the whole page is written now */
        if (c->file == newest->file && c->at / PAGE >= at / PAGE && c->at / PAGE <= (at + (off_t)len - 1) / PAGE)
            c->stale = false;
}

void disk_will_resize(int fd, off_t size)
{
    struct stat st;
    if (fstat(fd, &st) != 0) give_up("fstat");
    bool shrinks = size < st.st_size;
    note(fd, shrinks ? size : st.st_size, shrinks ? (size_t)(st.st_size - size) : 0, shrinks);
}

static name_change *name_note(name_kind kind, const char *path, const char *from)
{
    name_change *n = grab(sizeof *n);
    n->kind = kind;
    n->older = newest_name;
    snprintf(n->path, sizeof n->path, "%s", path);
    snprintf(n->from, sizeof n->from, "%s", from);
    newest_name = n;
    return n;
}

static void saved_path(const name_change *n, char out[static PATH_MAX])
{
    if (snprintf(out, PATH_MAX, "%s/%u", lost_folder, n->number) >= PATH_MAX) give_up("path too long");
}

static void save(name_change *n, const char *path)
{
    char to[PATH_MAX];
    n->number = ++saved_count;
    saved_path(n, to);
    syscall(SYS_unlinkat, AT_FDCWD, to, 0); /* left by an earlier start, which had synced it */
    n->saved = syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, to, 0) == 0;
}

void disk_did_create(const char *path)
{
    name_note(MADE, path, "");
}

void disk_did_mkdir(const char *path)
{
    name_note(MADE_FOLDER, path, "")->number = ++saved_count;
}

void disk_will_unlink(const char *path)
{
    save(name_note(REMOVED, path, ""), path);
}

void disk_will_rename(const char *from, const char *to)
{
    save(name_note(MOVED, to, from), to);
}

static void forget_changes(const file *only)
{
    for (change **link = &newest; *link;) {
        change *c = *link;
        if ((only && c->file != only) || c->stale) {
            link = &c->older;
            continue;
        }
        *link = c->older;
        free(c);
    }
}

/* One page of a change, as a change of its own. That the file has got longer is taken for written: the file system
 * keeps account of that by itself. */
static change *page_of(const change *c, off_t at, off_t end, off_t size)
{
    size_t from = (size_t)(at - c->at), len = (size_t)(end - at);
    change *piece = grab(sizeof *piece + len);
    *piece = (change){.file = c->file, .at = at, .len = len, .size_before = size, .stale = true, .old_len = len};
    piece->old = (unsigned char *)(piece + 1);
    if (from < c->old_len) memcpy(piece->old, c->old + from, c->old_len - from < len ? c->old_len - from : len);
    return piece;
}

void disk_did_fail(int fd)
{
    const file *f = file_of(fd);
    struct stat st;
    if (fstat(f->fd, &st) != 0) give_up("fstat");
    for (change **link = &newest; *link;) {
        change *c = *link, *rest = c->older;
        if (c->file != f || c->shrinks || c->stale || c->len == 0) {
            link = &c->older;
            continue;
        }
        for (off_t at = c->at, end; at < c->at + (off_t)c->len; at = end) {
            end = (at / PAGE + 1) * PAGE < c->at + (off_t)c->len ? (at / PAGE + 1) * PAGE : c->at + (off_t)c->len;
            *link = page_of(c, at, end, st.st_size);
            link = &(*link)->older;
        }
        *link = rest;
        free(c);
    }
}

void disk_did_sync_file(int fd)
{
    forget_changes(file_of(fd));
}

static bool stands_in(const char *path, const char *folder)
{
    size_t len = strlen(folder);
    return strncmp(path, folder, len) == 0 && path[len] == '/' && !strchr(path + len + 1, '/');
}

static void forget_names(const char *folder)
{
    for (name_change **link = &newest_name; *link;) {
        name_change *n = *link;
        if (folder && !stands_in(n->path, folder)) {
            link = &n->older;
            continue;
        }
        *link = n->older;
        free(n);
    }
}

void disk_did_sync_folder(const char *path)
{
    forget_names(path);
}

void disk_did_sync_all(void)
{
    forget_changes(NULL);
    forget_names(NULL);
}

static void put_back(int fd, const unsigned char *bytes, size_t len, off_t at)
{
    while (len > 0) {
        ssize_t put = syscall(SYS_pwrite64, fd, bytes, len, at);
        if (put <= 0) give_up("pwrite");
        bytes += put;
        len -= (size_t)put;
        at += put;
    }
}

static void resize(int fd, off_t size)
{
    if (syscall(SYS_ftruncate, fd, size) != 0) give_up("ftruncate");
}

static void undo_changes(const file *only)
{
    for (change *c = newest; c; c = c->older) {
        if (only && c->file != only) continue;
        resize(c->file->fd, c->size_before);
        put_back(c->file->fd, c->old, c->old_len, c->at);
    }
}

static void undo_name(const name_change *n)
{
    char kept[PATH_MAX];
    saved_path(n, kept);
    switch (n->kind) {
    case MADE: syscall(SYS_unlinkat, AT_FDCWD, n->path, 0); break;
    case MADE_FOLDER: syscall(SYS_renameat2, AT_FDCWD, n->path, AT_FDCWD, kept, 0); break;
    case MOVED: syscall(SYS_renameat2, AT_FDCWD, n->path, AT_FDCWD, n->from, 0); break;
    case REMOVED: break;
    }
    if (n->saved) syscall(SYS_renameat2, AT_FDCWD, kept, AT_FDCWD, n->path, 0);
}

void disk_drop(void)
{
    undo_changes(NULL);
    for (name_change *n = newest_name; n; n = n->older) undo_name(n);
}

void disk_drop_file(int fd)
{
    const file *f = file_of(fd);
    undo_changes(f);
    forget_changes(f);
}

void disk_drop_stale(int fd)
{
    const file *f = file_of(fd);
    for (change **link = &newest; *link;) {
        change *c = *link;
        if (c->file != f || !c->stale) {
            link = &c->older;
            continue;
        }
        put_back(f->fd, c->old, c->old_len, c->at);
        *link = c->older;
        free(c);
    }
}

/* One row a change, oldest first, the old bytes behind it. */
typedef struct {
    bool is_name;
    change change;
    name_change name;
    char path[PATH_MAX]; /* of the file */
} row;

static int handed_down(int flags)
{
    char path[PATH_MAX + sizeof HANDED_DOWN + 1];
    snprintf(path, sizeof path, "%s/" HANDED_DOWN, lost_folder);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600);
}

static void put_row(int fd, const row *r, const void *old)
{
    if (syscall(SYS_write, fd, r, sizeof *r) != (long)sizeof *r) give_up("write");
    if (r->change.old_len > 0 && syscall(SYS_write, fd, old, r->change.old_len) != (long)r->change.old_len)
        give_up("write");
}

static void put_change(int fd, const change *c, row *r)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", c->file->fd);
    *r = (row){.change = *c};
    ssize_t len = readlink(link, r->path, sizeof r->path - 1);
    if (len > 0 && !strstr(r->path, " (deleted)")) put_row(fd, r, c->old);
}

/* The lists are newest first and are turned round here: this process has come to its end. */
void disk_hand_down(void)
{
    static row r;
    int fd = handed_down(O_CREAT | O_WRONLY | O_TRUNC);
    if (fd < 0) give_up("can't hand down what is not synced");
    change *oldest = NULL;
    for (change *c = newest, *older; c; c = older) {
        older = c->older;
        c->older = oldest;
        oldest = c;
    }
    for (const change *c = oldest; c; c = c->older) put_change(fd, c, &r);
    name_change *oldest_name = NULL;
    for (name_change *n = newest_name, *older; n; n = older) {
        older = n->older;
        n->older = oldest_name;
        oldest_name = n;
    }
    for (const name_change *n = oldest_name; n; n = n->older) {
        r = (row){.is_name = true, .name = *n};
        put_row(fd, &r, NULL);
    }
}

static void take_row(int fd, const row *r)
{
    if (r->is_name) {
        name_change *n = grab(sizeof *n);
        *n = r->name;
        n->older = newest_name;
        newest_name = n;
        if (n->number > saved_count) saved_count = n->number;
        return;
    }
    change *c = grab(sizeof *c + r->change.old_len);
    *c = r->change;
    c->old = (unsigned char *)(c + 1);
    if (syscall(SYS_read, fd, c->old, c->old_len) != (long)c->old_len) give_up("read");
    int file_fd = (int)syscall(SYS_openat, AT_FDCWD, r->path, O_RDWR | O_CLOEXEC, 0);
    if (file_fd < 0) { /* removed since */
        free(c);
        return;
    }
    c->file = file_of(file_fd);
    syscall(SYS_close, file_fd);
    c->older = newest;
    newest = c;
}

void disk_init(const char *lost)
{
    static row r;
    snprintf(lost_folder, sizeof lost_folder, "%s", lost);
    int fd = handed_down(O_RDONLY);
    if (fd < 0) return;
    while (syscall(SYS_read, fd, &r, sizeof r) == (long)sizeof r) take_row(fd, &r);
    syscall(SYS_close, fd);
    close(handed_down(O_WRONLY | O_TRUNC)); /* a power cut, and the rest of them is as good as synced */
}

static uint64_t draw(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

typedef struct {
    const file *file;
    off_t sector;
} kept_sector;

static struct {
    kept_sector *at;
    size_t count, room;
} kept;

static bool sector_kept(const file *f, off_t sector)
{
    for (size_t i = 0; i < kept.count; i++)
        if (kept.at[i].file == f && kept.at[i].sector == sector) return true;
    return false;
}

static void keep_sector(const file *f, off_t sector)
{
    if (kept.count == kept.room) {
        kept.room = kept.room ? 2 * kept.room : 1024;
        kept.at = realloc(kept.at, kept.room * sizeof *kept.at);
        if (!kept.at) give_up("out of memory");
    }
    kept.at[kept.count++] = (kept_sector){f, sector};
}

/* A size is the newest, or that of the last sync. */
static void tear_sizes(uint64_t *rng)
{
    for (change *c = newest; c; c = c->older) {
        file *f = c->file;
        if (!f->torn_size_known) {
            struct stat st;
            if (fstat(f->fd, &st) != 0) give_up("fstat");
            f->torn_size_known = true;
            f->torn_size = st.st_size;
            f->size_undone = draw(rng) % 2 == 0;
        }
        if (f->size_undone) f->torn_size = c->size_before; /* the oldest one is the last to be set */
    }
    for (file *f = files; f; f = f->next)
        if (f->torn_size_known) resize(f->fd, f->torn_size);
}

static void tear_change(const change *c, uint64_t *rng, uint64_t undone_of_8)
{
    static const unsigned char zeros[SECTOR];
    file *f = c->file;
    off_t end = c->at + (off_t)c->len < f->torn_size ? c->at + (off_t)c->len : f->torn_size;
    for (off_t at = c->at; at < end;) {
        off_t sector = at / SECTOR;
        off_t next = (sector + 1) * SECTOR < end ? (sector + 1) * SECTOR : end;
        bool undo = c->shrinks ? f->size_undone : draw(rng) % 8 < undone_of_8;
        if (!sector_kept(f, sector)) {
            if (undo) {
                size_t from = (size_t)(at - c->at);
                size_t len = (size_t)(next - at);
                size_t old = from < c->old_len ? (c->old_len - from < len ? c->old_len - from : len) : 0;
                put_back(f->fd, c->old + from, old, at);
                put_back(f->fd, zeros, len - old, at + (off_t)old);
            } else if (!c->shrinks) {
                keep_sector(f, sector);
            }
        }
        at = next;
    }
}

/* Names that have to do with each other are lost newest first. Half of the seeds take all names for one group, as a
 * file system with a metadata journal does. */
static void tear_names(uint64_t *rng)
{
    bool together = draw(rng) % 2 == 0;
    unsigned groups = 0;
    for (name_change *n = newest_name; n; n = n->older) {
        n->group = together ? 1 : 0;
        for (name_change *m = newest_name; m != n && n->group == 0; m = m->older)
            if (!strcmp(m->path, n->path) || !strcmp(m->from, n->path) || (n->from[0] && !strcmp(m->path, n->from)) ||
                (n->from[0] && !strcmp(m->from, n->from)))
                n->group = m->group;
        if (n->group == 0) n->group = ++groups;
    }
    bool *settled = grab((groups + 2) * sizeof *settled);
    for (name_change *n = newest_name; n; n = n->older) {
        if (settled[n->group]) continue;
        if (draw(rng) % 2 == 0)
            undo_name(n);
        else
            settled[n->group] = true;
    }
    free(settled);
}

void disk_tear(uint64_t seed)
{
    static const uint64_t undone_of_8[] = {4, 1, 7};
    uint64_t rng = seed;
    uint64_t odds = undone_of_8[draw(&rng) % 3];
    tear_sizes(&rng);
    for (const change *c = newest; c; c = c->older) tear_change(c, &rng, odds);
    tear_names(&rng);
}
