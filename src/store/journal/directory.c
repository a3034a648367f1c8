/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, locks and creates the journal's directory. Nothing in it is changed before the lock is held and the directory
 * is known to be a store, or empty.
 *
 *     DIR/FORMAT         three lines: "hapax journal 3", "generation " and 16 hex digits, "secret " and 16 hex digits
 *                        of a hash of generation and secret; written last, so it makes the store
 *     DIR/FORMAT.begun   becomes FORMAT once the note that a copy or a restore is unfinished is durable; until then
 *                        only the command that fills the store opens it. The first file to be created, empty until
 *                        the others exist
 *     DIR/lock           held by flock while the store is open; contains the id of the process that holds it. A file
 *                        can be removed, so the directory and every segment that is read or written are locked too:
 *                        a process that uses another path, or has the same segments in another directory, is refused
 *     DIR/secret         32 random bytes, for MACs
 *     DIR/segments       the segments that must exist: "first ", "last " and a number each, "check " and 8 hex digits
 *                        of a CRC-32C of the generation and those two lines. The last is raised after a new segment
 *                        was created and before it is used, the first before an old one is removed: a missing
 *                        segment is damage, also at either end, and an additional one is not. Version 1 has no such
 *                        file
 *     DIR/NNNNNNNN.seg   the log, numbered without gaps; the last may be the next one to use, still all zeros
 *     DIR/NNNNNNNN.hint  the index entries of a segment
 *     DIR/NNNNNNNN.audit the audit rows of a segment that was dropped; removed when they are old (archive.c)
 *     DIR/admin.sock     the default admin socket of the daemon; not the store's
 *     DIR/….new          a file that is being written; a start removes it */
#include "store/journal/open.h"

#include "base/check.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "base/rand.h"

#include <openssl/evp.h>

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define FORMAT_VERSION 3u
#define FORMAT_BYTES 128u

bool hx_open_fail(hx_opening *o, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(o->error, sizeof(hx_error_text), format, args);
    va_end(args);
    return false;
}

bool hx_open_damaged(hx_opening *o, uint32_t segment, uint64_t offset, const char *what)
{
    const char *path = o->journal->path;
    return hx_open_fail(o,
                        "the store in %s is damaged: %08" PRIu32 ".seg, byte %" PRIu64 ": %s. "
                        "Nothing was changed; `hapax store salvage %s TO` saves what can be read",
                        path, segment, offset, what, path);
}

static bool is_ours(const char *name)
{
    static const char *const names[] = {"FORMAT",  "FORMAT.begun", "lock",       "secret", "segments",
                                        "damaged", "admin.sock",   "lost+found", ".",      ".."};
    static const char *const suffixes[] = {".seg", ".hint", ".audit"};
    uint32_t number;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++)
        if (hx_segment_number(name, suffixes[i], &number)) return true;
    return hx_slice_ends(hx_slice_of(name), HX_LIT(".new"));
}

bool hx_dir_is_written(hx_journal *j, const char *name)
{
    char first[4] = {0};
    int fd = openat(j->dir_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return true;
    bool written = pread(fd, first, sizeof first, 0) > 0 && (first[0] | first[1] | first[2] | first[3]) != 0;
    close(fd);
    return written;
}

DIR *hx_dir_list(hx_journal *j)
{
    int fd = openat(j->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? NULL : fdopendir(fd);
}

bool hx_dir_inspect(hx_opening *o)
{
    o->dir = (hx_directory){0};
    DIR *dir = hx_dir_list(o->journal);
    if (!dir) return hx_open_fail(o, "can't read %s: %s", o->journal->path, strerror(errno));
    for (struct dirent *item; (item = readdir(dir));) {
        uint32_t number;
        if (strcmp(item->d_name, "FORMAT") == 0) o->dir.has_format = true;
        if (strcmp(item->d_name, "FORMAT.begun") == 0) o->dir.begun = true;
        if (!is_ours(item->d_name)) o->dir.foreign = true;
        if (hx_segment_number(item->d_name, ".hint", &number) && number > o->dir.hinted) o->dir.hinted = number;
        if (hx_segment_number(item->d_name, ".audit", &number)) {
            if (number > o->dir.archived) o->dir.archived = number;
            if (o->dir.archive_first == 0 || number < o->dir.archive_first) o->dir.archive_first = number;
        }
        if (!hx_segment_number(item->d_name, ".seg", &number)) continue;
        if (o->dir.count == 0 || number < o->dir.first) o->dir.first = number;
        if (o->dir.count == 0 || number > o->dir.last) o->dir.last = number;
        o->dir.count++;
        o->dir.written |= hx_dir_is_written(o->journal, item->d_name);
    }
    closedir(dir);
    if (o->dir.has_format) o->dir.begun = false;
    if (o->dir.has_format) return true;
    if (o->dir.foreign)
        return hx_open_fail(o, "%s is not empty and holds no store; give an empty or a new directory",
                            o->journal->path);
    if (o->dir.begun && !o->journal->options.unfinished)
        return hx_open_fail(
            o,
            "%s is the beginning of a `hapax store copy`, `restore` or `salvage` that has not ended: run "
            "that again",
            o->journal->path);
    if (o->dir.begun) {
        struct stat st;
        o->dir.has_format = fstatat(o->journal->dir_fd, "FORMAT.begun", &st, 0) == 0 && st.st_size > 0;
        return true;
    }
    if (o->dir.written)
        return hx_open_fail(o,
                            "the store in %s is damaged: its FORMAT file is missing; put it back from a copy, or see "
                            "`hapax store salvage %s TO`",
                            o->journal->path, o->journal->path);
    return true;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Derives limits that are not configured from the size of the disk: a small one has small segments and a low floor. */
static bool set_limits(hx_opening *o)
{
    hx_journal *j = o->journal;
    hx_store_options *set = &j->options;
    struct statvfs fs;
    if (fstatvfs(j->dir_fd, &fs) != 0)
        return hx_open_fail(o, "can't tell how large the disk of %s is: %s", j->path, strerror(errno));
    uint64_t disk = (uint64_t)fs.f_blocks * fs.f_frsize;
    if (set->free_bytes_floor == 0) set->free_bytes_floor = least(HX_FREE_BYTES_FLOOR, disk / 16);
    uint64_t limit = set->bytes_max > 0 ? least(set->bytes_max, disk) : disk;
    uint64_t segment = least(limit / HX_LIMIT_SEGMENTS, HX_SEGMENT_BYTES);
    static_assert(HX_JOURNAL_BYTES_LEAST == 3 * (uint64_t)HX_SEGMENT_BYTES_MIN, "as store.h says");
    if (segment < HX_SEGMENT_BYTES_MIN) segment = HX_SEGMENT_BYTES_MIN;
    if (set->segment_bytes == 0) set->segment_bytes = (uint32_t)segment;
    uint64_t fewest = 3 * (uint64_t)set->segment_bytes;
    if (set->bytes_max > 0 && set->bytes_max < fewest)
        return hx_open_fail(o, "store_max is too small for a journal: it needs at least %" PRIu64 " MiB", fewest >> 20);
    return true;
}

static bool make_parent(hx_opening *o, const char *parent)
{
    hx_journal *j = o->journal;
    if (mkdir(parent, 0700) != 0 && errno != EEXIST)
        return hx_open_fail(o, "can't create the directory %s: %s", parent, strerror(errno));
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int above = fd < 0 ? -1 : openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = above < 0 ? 0 : hx_sync(j, above);
    if (fd >= 0) close(fd);
    if (above >= 0) close(above);
    return !error || hx_open_fail(o, "can't create the directory %s: %s", parent, strerror(error));
}

/* Creates missing parent directories where the path is the default. Where it was configured they are an error that
 * names them: the path may be mistyped, or a disk not be mounted. */
static bool make_parents(hx_opening *o)
{
    struct stat st;
    hx_journal *j = o->journal;
    bool ok = true;
    char *path = strdup(j->path);
    if (!path) hx_fatal(HX_EXIT_BUG, "out of memory");
    for (size_t len = strlen(path); len > 1 && path[len - 1] == '/';) path[--len] = '\0';
    for (char *slash = path; ok && (slash = strchr(slash + 1, '/')); *slash = '/') {
        *slash = '\0';
        if (stat(path, &st) == 0 || errno != ENOENT) continue;
        ok = j->options.make_parents
                 ? make_parent(o, path)
                 : hx_open_fail(o, "can't create the directory %s: %s doesn't exist", j->path, path);
    }
    free(path);
    return ok;
}

bool hx_dir_open(hx_opening *o, bool make)
{
    hx_journal *j = o->journal;
    j->dir_fd = open(j->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (j->dir_fd < 0 && errno == ENOENT && make) {
        if (!make_parents(o)) return false;
        if (mkdir(j->path, 0700) != 0)
            return hx_open_fail(o, "can't create the directory %s: %s", j->path, strerror(errno));
        j->dir_fd = open(j->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (j->dir_fd >= 0) return set_limits(o);
    if (errno == ENOTDIR) return hx_open_fail(o, "%s is not a directory; the journal keeps its files in one", j->path);
    return hx_open_fail(o, "can't open the directory %s: %s", j->path, strerror(errno));
}

static void format_text(char text[FORMAT_BYTES], uint64_t generation, uint64_t secret_check)
{
    (void)snprintf(text, FORMAT_BYTES, "hapax journal %u\ngeneration %016" PRIx64 "\nsecret %016" PRIx64 "\n",
                   FORMAT_VERSION, generation, secret_check);
}

/* Reads up to FORMAT_BYTES of a small file as text. False with errno. */
static bool read_text(const hx_journal *j, const char *name, char text[FORMAT_BYTES])
{
    memset(text, 0, FORMAT_BYTES);
    int fd = openat(j->dir_fd, name, O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && read(fd, text, FORMAT_BYTES - 1) >= 0;
    if (fd >= 0) close(fd);
    return ok;
}

bool hx_dir_read_format(hx_opening *o)
{
    char text[FORMAT_BYTES], expected[FORMAT_BYTES];
    unsigned version;
    hx_journal *j = o->journal;
    if (!read_text(j, o->dir.begun ? "FORMAT.begun" : "FORMAT", text))
        return hx_open_fail(o, "can't read %s/FORMAT: %s", j->path, strerror(errno));
    /* NOLINTNEXTLINE(cert-err34-c): what doesn't fit the format is refused as a whole */
    int count = sscanf(text, "hapax journal %u\ngeneration %16" SCNx64 "\nsecret %16" SCNx64, &version,
                       &j->log.generation, &o->secret_check);
    o->is_other_format = count >= 1 && version != FORMAT_VERSION;
    if (o->is_other_format)
        return hx_open_fail(o,
                            "the store in %s has format %u, from %s hapax; this one reads format %u. Nothing was "
                            "changed; use that program",
                            j->path, version, version > FORMAT_VERSION ? "a newer" : "an older", FORMAT_VERSION);
    format_text(expected, j->log.generation, o->secret_check);
    if (count != 3 || strcmp(text, expected) != 0)
        return hx_open_fail(o,
                            "the store in %s is damaged: its FORMAT file can't be understood; put it back from a copy, "
                            "or see `hapax store salvage %s TO`",
                            j->path, j->path);
    return true;
}

bool hx_dir_in_use(hx_opening *o)
{
    char text[FORMAT_BYTES];
    const char *path = o->journal->path;
    (void)read_text(o->journal, "lock", text);
    text[strcspn(text, "\n")] = '\0';
    return hx_open_fail(o,
                        "the store in %s is in use by another process%s%s; stop it first, or give this one a directory "
                        "of its own",
                        path, text[0] ? ", " : "", text);
}

bool hx_lock_is_others(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

bool hx_dir_lock(hx_opening *o)
{
    hx_journal *j = o->journal;
    if (hx_lock_is_others(j->dir_fd)) return hx_dir_in_use(o);
    j->lock_fd = openat(j->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (j->lock_fd < 0 || faccessat(j->dir_fd, ".", W_OK, AT_EACCESS) != 0)
        return hx_open_fail(
            o,
            "the store in %s can't be written to (%s); it needs a directory that this user may write, on a "
            "file system that isn't read-only",
            j->path, strerror(errno));
    return flock(j->lock_fd, LOCK_EX | LOCK_NB) == 0 || hx_dir_in_use(o);
}

void hx_dir_check_place(hx_journal *j)
{
    struct stat there, ours;
    bool displaced = stat(j->path, &there) != 0 || fstat(j->dir_fd, &ours) != 0 || there.st_ino != ours.st_ino ||
                     there.st_dev != ours.st_dev || fstat(j->log.active->fd, &ours) != 0 || ours.st_nlink == 0;
    if (displaced && !j->has_moved) {
        hx_log_begin(HX_EVENT_journal_displaced);
        hx_log_text("store", j->path);
        hx_log_text("hint", "put it back, or stop this process before another one starts there");
        hx_log_end();
    } else if (!displaced && j->has_moved) {
        hx_log_begin(HX_EVENT_journal_in_place);
        hx_log_text("store", j->path);
        hx_log_end();
    }
    j->has_moved = displaced;
}

/* Returns 0, or an errno. */
static int write_file(hx_journal *j, const char *name, const char *making, const void *bytes, size_t len)
{
    int fd = openat(j->dir_fd, making, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    int error = hx_write_all(fd, bytes, len);
    if (!error) error = hx_sync(j, fd);
    close(fd);
    if (!error && renameat(j->dir_fd, making, j->dir_fd, name) != 0) error = errno;
    return error ? error : hx_sync(j, j->dir_fd);
}

static void row_text(char text[FORMAT_BYTES], uint64_t generation, hx_segment_range row)
{
    int len = snprintf(text, FORMAT_BYTES, "first %08" PRIu32 "\nlast %08" PRIu32 "\n", row.first, row.last);
    uint32_t crc = hx_crc32c(0, (hx_slice){(const char *)&generation, sizeof generation});
    crc = hx_crc32c(crc, (hx_slice){text, (size_t)len});
    (void)snprintf(text + len, FORMAT_BYTES - (size_t)len, "check %08" PRIx32 "\n", crc);
}

int hx_dir_write_range(hx_journal *j, hx_segment_range row)
{
    char text[FORMAT_BYTES];
    row_text(text, j->log.generation, row);
    int error = write_file(j, "segments", "segments.new", text, strlen(text));
    if (!error) j->row = row;
    return error;
}

bool hx_dir_read_row(hx_opening *o)
{
    char text[FORMAT_BYTES], expected[FORMAT_BYTES];
    hx_journal *j = o->journal;
    const hx_directory *d = &o->dir;
    hx_segment_range row;
    /* Used where the file can't be read: from after the last segment that was dropped to the last that was used. */
    j->row = (hx_segment_range){.first = d->archived > 0 ? d->archived + 1 : d->first,
                                .last = d->hinted > d->last ? d->hinted : d->last};
    bool there = read_text(j, "segments", text);
    /* NOLINTNEXTLINE(cert-err34-c): what doesn't fit the format is refused as a whole */
    if (there && sscanf(text, "first %8" SCNu32 "\nlast %8" SCNu32, &row.first, &row.last) == 2) {
        row_text(expected, j->log.generation, row);
        if (strcmp(text, expected) == 0) {
            j->row = row;
            return true;
        }
    }
    if (!there && errno != ENOENT) return hx_open_fail(o, "can't read %s/segments: %s", j->path, strerror(errno));
    return hx_open_fail(o,
                        "the store in %s is damaged: its file `segments` %s. Nothing was changed; put it back from a "
                        "copy of this moment, or see `hapax store salvage %s TO`",
                        j->path, there ? "can't be understood" : "is missing", j->path);
}

bool hx_dir_settle_row(hx_opening *o)
{
    hx_journal *j = o->journal;
    hx_segment_range row = {o->dir.first, o->dir.last};
    int error = 0;
    if (row.first != j->row.first || row.last != j->row.last) error = hx_dir_write_range(j, row);
    if (error) return hx_open_fail(o, "can't write %s/segments: %s", j->path, strerror(error));
    return true;
}

/* A hash that shows whether generation and secret belong together and reveals nothing else about the secret. */
static uint64_t check_of(uint64_t generation, const uint8_t secret[HX_SECRET_BYTES])
{
    static const char purpose[16] = "hapax secret";
    unsigned char bytes[sizeof purpose + sizeof generation + HX_SECRET_BYTES], digest[32];
    memcpy(bytes, purpose, sizeof purpose);
    memcpy(bytes + sizeof purpose, &generation, sizeof generation);
    memcpy(bytes + sizeof purpose + sizeof generation, secret, HX_SECRET_BYTES);
    int ok = EVP_Q_digest(NULL, "SHA256", NULL, bytes, sizeof bytes, digest, NULL);
    HX_CHECK(ok == 1);
    uint64_t check;
    memcpy(&check, digest, sizeof check);
    return check;
}

static int write_format(hx_journal *j, const char *name, uint64_t generation, const uint8_t secret[HX_SECRET_BYTES])
{
    char text[FORMAT_BYTES];
    format_text(text, generation, check_of(generation, secret));
    return write_file(j, name, "FORMAT.new", text, strlen(text));
}

bool hx_dir_write_format(hx_journal *j, uint64_t generation, const uint8_t secret[HX_SECRET_BYTES])
{
    errno = write_format(j, "FORMAT", generation, secret);
    return errno == 0;
}

int hx_dir_end_format(hx_journal *j)
{
    return renameat(j->dir_fd, "FORMAT.begun", j->dir_fd, "FORMAT") == 0 ? hx_sync(j, j->dir_fd) : errno;
}

bool hx_dir_begin(hx_opening *o)
{
    hx_journal *j = o->journal;
    if (!j->options.unfinished || o->dir.has_format || o->dir.begun) return true;
    int fd = openat(j->dir_fd, "FORMAT.begun", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    int error = fd < 0 ? errno : hx_sync(j, fd);
    if (fd >= 0) close(fd);
    if (!error) error = hx_sync(j, j->dir_fd);
    return !error || hx_open_fail(o, "can't create a store in %s: %s", j->path, strerror(error));
}

bool hx_dir_create(hx_opening *o)
{
    hx_journal *j = o->journal;
    uint8_t secret[HX_SECRET_BYTES];
    if (j->options.secret)
        memcpy(secret, j->options.secret, sizeof secret);
    else
        hx_rand_bytes(secret, sizeof secret);
    j->log.generation = hx_rand_u64();
    int error = write_file(j, "secret", "secret.new", secret, sizeof secret);
    hx_segment *first = error ? NULL : hx_background_prepare(j, 1, &error);
    if (first) error = hx_dir_write_range(j, (hx_segment_range){1, 1});
    if (!error) error = write_format(j, j->options.unfinished ? "FORMAT.begun" : "FORMAT", j->log.generation, secret);
    if (error) (void)hx_open_fail(o, "can't create a store in %s: %s", j->path, strerror(error));
    if (first) close(first->fd);
    free(first);
    o->is_new = !error;
    return !error && hx_dir_inspect(o);
}

bool hx_dir_read_secret(hx_opening *o)
{
    hx_journal *j = o->journal;
    uint8_t *secret = j->store.facts.secret;
    int fd = openat(j->dir_fd, "secret", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return hx_open_fail(
            o,
            "%s/secret is missing (%s); without it no key of this store can be recognised. Put it back from "
            "a copy",
            j->path, strerror(errno));
    uint8_t more;
    bool whole = read(fd, secret, HX_SECRET_BYTES) == HX_SECRET_BYTES && read(fd, &more, 1) == 0;
    close(fd);
    if (!whole)
        return hx_open_fail(o, "%s/secret is damaged: it must have %u bytes; put it back from a copy", j->path,
                            HX_SECRET_BYTES);
    if (o->secret_check != 0 && check_of(j->log.generation, secret) != o->secret_check)
        return hx_open_fail(o,
                            "FORMAT and secret in %s don't belong together: one of them is damaged. Put both back from "
                            "a copy; `hapax store salvage %s TO` can't tell which of them is right",
                            j->path, j->path);
    if (j->options.secret && memcmp(secret, j->options.secret, HX_SECRET_BYTES) != 0)
        return hx_open_fail(o,
                            "the store in %s has another secret, so it knows keys and callers by other names; give a "
                            "new or an empty directory. Nothing was changed",
                            j->path);
    return true;
}

bool hx_dir_read_head(hx_journal *j, const hx_segment *s, hx_segment_head *head)
{
    return s && pread(s->fd, head, sizeof *head, 0) == (ssize_t)sizeof *head &&
           hx_segment_valid(head, j->log.generation, s->number);
}
