/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the journal: look, own the lock, look again, read everything, and only then change anything.
 *
 *     DIR/FORMAT         "hapax journal 1\ngeneration 0123456789abcdef\n"; written last, so it makes the store
 *     DIR/lock           held by flock while the store is open; says who holds it
 *     DIR/secret         32 random bytes, for MACs
 *     DIR/NNNNNNNN.seg   the log, in an unbroken row; the last may be the next one to use, still all zeros
 *     DIR/NNNNNNNN.hint  what a segment leaves in the index
 *     DIR/NNNNNNNN.audit what is kept of a segment that was dropped
 *     DIR/damaged/       what a repair took out
 *     DIR/….new          a file in the making; a start removes it */
#include "store/journal.h"

#include "base/check.h"
#include "base/rand.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT_VERSION 1u
#define EPOCH_ZERO_MS ((hx_ms)1577836800000) /* 2020 */
#define EPOCHS_A_MS 64
#define EPOCHS_LOST_MAX (1u << 20)
#define CUTS_MAX 4u

typedef struct {
    bool has_format;
    bool foreign;  /* something that isn't ours */
    bool written;  /* a segment that holds something */
    uint32_t first, last, count; /* segments */
} directory;

typedef struct {
    hx_journal *journal;
    char *error;
    hx_tail tail;
    directory dir;
    struct {
        hx_segment *segment;
        uint64_t from, to;
    } cuts[CUTS_MAX]; /* torn: to be zeroed again */
    unsigned cut_count;
} opening;

static bool fail(opening *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(opening *o, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(o->error, HX_STORE_ERROR_BYTES, format, args);
    va_end(args);
    return false;
}

static bool damaged(opening *o, uint32_t segment, uint64_t offset, const char *what)
{
    const char *path = o->journal->path;
    return fail(o, "the store in %s is damaged: %08" PRIu32 ".seg, byte %" PRIu64 ": %s. "
                "Nothing was changed; `hapax store repair %s` says what can be saved", path, segment, offset, what, path);
}

static bool is_ours(const char *name)
{
    static const char *const names[] = {"FORMAT", "lock", "secret", "damaged", "lost+found", ".", ".."};
    static const char *const suffixes[] = {".seg", ".hint", ".audit"};
    uint32_t number;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++)
        if (hx_segment_number(name, suffixes[i], &number)) return true;
    return hx_slice_ends(hx_slice_of(name), HX_LIT(".new"));
}

static bool is_written(hx_journal *j, const char *name)
{
    char first[4] = {0};
    int fd = openat(j->dir_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return true;
    bool written = pread(fd, first, sizeof first, 0) > 0 && (first[0] | first[1] | first[2] | first[3]) != 0;
    close(fd);
    return written;
}

static DIR *list(hx_journal *j)
{
    int fd = openat(j->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? NULL : fdopendir(fd);
}

static bool inspect(opening *o)
{
    o->dir = (directory){0};
    DIR *dir = list(o->journal);
    if (!dir) return fail(o, "can't read %s: %s", o->journal->path, strerror(errno));
    for (struct dirent *item; (item = readdir(dir));) {
        uint32_t number;
        if (strcmp(item->d_name, "FORMAT") == 0) o->dir.has_format = true;
        if (!is_ours(item->d_name)) o->dir.foreign = true;
        if (!hx_segment_number(item->d_name, ".seg", &number)) continue;
        if (o->dir.count == 0 || number < o->dir.first) o->dir.first = number;
        if (o->dir.count == 0 || number > o->dir.last) o->dir.last = number;
        o->dir.count++;
        o->dir.written |= is_written(o->journal, item->d_name);
    }
    closedir(dir);
    if (o->dir.has_format) return true;
    if (o->dir.foreign)
        return fail(o, "%s is not empty and holds no store; give an empty or a new directory", o->journal->path);
    if (o->dir.written)
        return fail(o, "the store in %s is damaged: its FORMAT file is missing; put it back from a copy, or see "
                    "`hapax store repair %s`", o->journal->path, o->journal->path);
    return true;
}

static bool open_directory(opening *o)
{
    hx_journal *j = o->journal;
    j->dir_fd = open(j->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (j->dir_fd < 0 && errno == ENOENT) {
        if (mkdir(j->path, 0700) != 0) return fail(o, "can't create the directory %s: %s", j->path, strerror(errno));
        j->dir_fd = open(j->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int parent = j->dir_fd < 0 ? -1 : openat(j->dir_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (parent >= 0) (void)fsync(parent);
        if (parent >= 0) close(parent);
    }
    if (j->dir_fd >= 0) return true;
    if (errno == ENOTDIR) return fail(o, "%s is not a directory; the journal keeps its files in one", j->path);
    return fail(o, "can't open the directory %s: %s", j->path, strerror(errno));
}

static bool read_format(opening *o)
{
    char text[128] = {0};
    unsigned version;
    hx_journal *j = o->journal;
    int fd = openat(j->dir_fd, "FORMAT", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (len < 0) return fail(o, "can't read %s/FORMAT: %s", j->path, strerror(errno));
    /* NOLINTNEXTLINE(cert-err34-c): what doesn't fit the format is refused as a whole */
    int read_count = sscanf(text, "hapax journal %u\ngeneration %16" SCNx64 "\n", &version, &j->generation);
    if (read_count >= 1 && version > FORMAT_VERSION)
        return fail(o, "the store in %s has format %u, from a newer hapax; this one knows formats up to %u. "
                    "Nothing was changed; use the newer program", j->path, version, FORMAT_VERSION);
    char expected[128];
    (void)snprintf(expected, sizeof expected, "hapax journal %u\ngeneration %016" PRIx64 "\n", FORMAT_VERSION,
                   j->generation);
    if (read_count != 2 || strcmp(text, expected) != 0)
        return fail(o, "the store in %s is damaged: its FORMAT file can't be understood; put it back from a copy, or "
                    "see `hapax store repair %s`", j->path, j->path);
    return true;
}

static bool take_lock(opening *o)
{
    hx_journal *j = o->journal;
    char text[32] = {0};
    j->lock_fd = openat(j->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (j->lock_fd < 0 || faccessat(j->dir_fd, ".", W_OK, AT_EACCESS) != 0)
        return fail(o, "the store in %s can't be written to (%s); it needs a directory that this user may write, on a "
                    "file system that isn't read-only", j->path, strerror(errno));
    if (flock(j->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        (void)!pread(j->lock_fd, text, sizeof text - 1, 0);
        text[strcspn(text, "\n")] = '\0';
        return fail(o, "the store in %s is in use by another process%s%s; stop it first, or give this one a directory "
                    "of its own", j->path, text[0] ? ", " : "", text);
    }
    return true;
}

static bool write_file(hx_journal *j, const char *name, const char *making, const void *bytes, size_t len)
{
    int fd = openat(j->dir_fd, making, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    bool ok = write(fd, bytes, len) == (ssize_t)len && fsync(fd) == 0;
    close(fd);
    return ok && renameat(j->dir_fd, making, j->dir_fd, name) == 0 && hx_sync_directory(j->dir_fd) == 0;
}

static bool create(opening *o)
{
    hx_journal *j = o->journal;
    uint8_t secret[HX_SECRET_BYTES];
    char text[128];
    int error = 0;
    hx_rand_bytes(secret, sizeof secret);
    uint64_t generation = hx_rand_u64();
    int len = snprintf(text, sizeof text, "hapax journal %u\ngeneration %016" PRIx64 "\n", FORMAT_VERSION, generation);
    bool ok = write_file(j, "secret", "secret.new", secret, sizeof secret);
    hx_segment *first = ok ? hx_keeper_prepare(j, 1, &error) : NULL;
    if (error) errno = error;
    if (!first || !write_file(j, "FORMAT", "FORMAT.new", text, (size_t)len))
        ok = fail(o, "can't create a store in %s: %s", j->path, strerror(errno));
    if (first) close(first->fd);
    free(first);
    return ok && inspect(o);
}

static bool read_secret(opening *o)
{
    hx_journal *j = o->journal;
    uint8_t *secret = j->store.facts.secret;
    int fd = openat(j->dir_fd, "secret", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail(o, "%s/secret is missing (%s); without it no key of this store can be recognised. Put it back from "
                    "a copy", j->path, strerror(errno));
    uint8_t more;
    bool whole = read(fd, secret, HX_SECRET_BYTES) == HX_SECRET_BYTES && read(fd, &more, 1) == 0;
    close(fd);
    if (!whole) return fail(o, "%s/secret is damaged: it must have %u bytes; put it back from a copy", j->path,
                            HX_SECRET_BYTES);
    return true;
}

static bool open_segments(opening *o)
{
    hx_journal *j = o->journal;
    if (o->dir.count == 0) return damaged(o, 1, 0, "all segments are missing");
    if (o->dir.count > HX_SEGMENTS_MAX) return fail(o, "the store in %s has too many segments", j->path);
    for (uint32_t n = o->dir.first; n <= o->dir.last; n++) {
        char name[HX_SEGMENT_NAME_BYTES];
        struct stat st;
        hx_segment_name(name, n, ".seg");
        int fd = openat(j->dir_fd, name, O_RDWR | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT) return damaged(o, n, 0, "the segment is missing");
        if (fd < 0 || fstat(fd, &st) != 0)
            return fail(o, "can't open %s/%s: %s", j->path, name, strerror(errno));
        hx_segment *s = calloc(1, sizeof *s);
        if (!s) hx_fatal(HX_EXIT_BUG, "out of memory");
        *s = (hx_segment){.number = n, .fd = fd, .size = (uint64_t)st.st_size};
        atomic_store(&j->segments[n % HX_SEGMENTS_MAX], s);
        atomic_fetch_add(&j->bytes, s->size);
        if (s->size < sizeof(hx_segment_head)) return damaged(o, n, 0, "the file is cut short");
    }
    atomic_store(&j->first_segment, o->dir.first);
    return true;
}

static bool read_head(hx_journal *j, const hx_segment *s, hx_segment_head *head)
{
    return s && pread(s->fd, head, sizeof *head, 0) == (ssize_t)sizeof *head &&
           hx_segment_valid(head, j->generation, s->number);
}

static bool unreadable(opening *o, const hx_scan *scan)
{
    return fail(o, "can't read segment %08" PRIu32 " of the store in %s: %s", scan->segment, o->journal->path,
                strerror(scan->error));
}

/* The end of the log stands at `from`: what follows is a torn tail, to be zeroed, or damage. */
static bool check_rest(opening *o, hx_segment *s, hx_scan *scan, uint64_t from)
{
    uint64_t first = from > sizeof(hx_segment_head) ? from : sizeof(hx_segment_head);
    if (hx_scan_find_later(scan, first, o->tail.sequence) != UINT64_MAX)
        return damaged(o, s->number, from, "a record that was durable can't be read");
    if (scan->error) return unreadable(o, scan);
    uint64_t to = hx_scan_content_end(scan, from);
    if (to <= from) return true;
    if (o->cut_count == CUTS_MAX) return damaged(o, s->number, from, "too many segments hold half-written records");
    o->cuts[o->cut_count].segment = s;
    o->cuts[o->cut_count].from = from;
    o->cuts[o->cut_count++].to = to;
    return true;
}

static void replay_frame(hx_journal *j, const hx_frame *frame, hx_ms now)
{
    if (frame->head.kind != HX_FRAME_RECORD && frame->head.kind != HX_FRAME_MOVED) return;
    hx_index_entry entry;
    hx_entry_of(&entry, &frame->record, frame->head.segment, frame->offset, frame->head.length);
    entry.route = hx_index_route(j->index, frame->record.route);
    if (entry.until_s != HX_UNTIL_NEVER && now >= (hx_ms)entry.until_s * HX_SECOND) entry.state = HX_ABSENT;
    hx_journal_apply(j, &entry);
}

static bool replay_segment(opening *o, hx_segment *s, const hx_segment_head *head, const hx_segment_head *next)
{
    hx_journal *j = o->journal;
    hx_tail *tail = &o->tail;
    if (s->number == o->dir.first) {
        tail->sequence = head->sequence;
        tail->hash = head->previous;
    } else if (head->sequence != tail->sequence || memcmp(&head->previous, &tail->hash, sizeof tail->hash) != 0) {
        return damaged(o, s->number - 1, tail->offset, "the log breaks off, but goes on in the next segment");
    }
    tail->segment = s->number;
    tail->offset = sizeof *head;
    if (head->epoch > tail->epoch) tail->epoch = head->epoch;
    if (head->stamp > tail->stamp) tail->stamp = head->stamp;
    bool hinted = hx_hint_load(j, s->number, next, tail);
    s->end = tail->offset;
    if (hinted && next) return true;
    hx_scan scan;
    hx_frame frame;
    hx_scan_step step = HX_SCAN_ERROR;
    hx_ms now = j->store.facts.now();
    if (hx_scan_begin(&scan, s->fd, s->number, j->generation))
        while ((step = hx_scan_next(&scan, tail, &frame)) == HX_SCAN_FRAME) replay_frame(j, &frame, now);
    s->end = tail->offset;
    bool ok = true;
    if (step == HX_SCAN_ERROR)
        ok = unreadable(o, &scan);
    else if (next)
        ok = step == HX_SCAN_END || damaged(o, s->number, tail->offset, "the record there can't be read");
    else
        ok = check_rest(o, s, &scan, tail->offset);
    hx_scan_end(&scan);
    return ok;
}

/* A segment without a head that counts was never used, or its first commit was torn. */
static bool check_unused(opening *o, hx_segment *s)
{
    hx_scan scan;
    bool ok = hx_scan_begin(&scan, s->fd, s->number, o->journal->generation) ? check_rest(o, s, &scan, 0)
                                                                             : unreadable(o, &scan);
    hx_scan_end(&scan);
    return ok;
}

static bool replay(opening *o)
{
    hx_journal *j = o->journal;
    uint64_t expected = 0;
    for (uint32_t n = o->dir.first; n <= o->dir.last; n++) expected += hx_hint_count(j, n);
    j->index = hx_index_new(j->readers, (size_t)expected);
    o->tail = (hx_tail){.segment = o->dir.first, .sequence = 1};
    hx_segment_head head, next;
    bool used = read_head(j, hx_journal_segment(j, o->dir.first), &head);
    if (!used && o->dir.first > 1) return damaged(o, o->dir.first, 0, "the head of the segment can't be read");
    for (uint32_t n = o->dir.first; n <= o->dir.last; n++, head = next) {
        hx_segment *s = hx_journal_segment(j, n);
        bool next_used = n < o->dir.last && read_head(j, hx_journal_segment(j, n + 1), &next);
        if (!used && next_used) return damaged(o, n, 0, "the head of the segment can't be read");
        if (!(used ? replay_segment(o, s, &head, next_used ? &next : NULL) : check_unused(o, s))) return false;
        used = next_used;
    }
    return true;
}

static bool zero_again(opening *o)
{
    static const char zeros[64 << 10];
    for (unsigned i = 0; i < o->cut_count; i++) {
        int fd = o->cuts[i].segment->fd;
        for (uint64_t at = o->cuts[i].from; at < o->cuts[i].to;) {
            uint64_t left = o->cuts[i].to - at;
            ssize_t n = pwrite(fd, zeros, left < sizeof zeros ? (size_t)left : sizeof zeros, (off_t)at);
            if (n <= 0) return fail(o, "can't clear the torn end of the store in %s: %s", o->journal->path,
                                    strerror(errno));
            at += (uint64_t)n;
        }
        if (fdatasync(fd) != 0)
            return fail(o, "can't sync the store in %s: %s", o->journal->path, strerror(errno));
    }
    return true;
}

/* Files in the making are removed, and unused segments but the next one. */
static void tidy(hx_journal *j, const directory *d)
{
    DIR *dir = list(j);
    if (!dir) return;
    for (struct dirent *item; (item = readdir(dir));)
        if (hx_slice_ends(hx_slice_of(item->d_name), HX_LIT(".new"))) (void)unlinkat(j->dir_fd, item->d_name, 0);
    closedir(dir);
    for (uint32_t n = d->last; n > j->active->number; n--) {
        hx_segment *s = hx_journal_segment(j, n);
        atomic_store(&j->segments[n % HX_SEGMENTS_MAX], NULL);
        if (n == j->active->number + 1) {
            j->keeper.ready = s;
            break;
        }
        char name[HX_SEGMENT_NAME_BYTES];
        hx_segment_name(name, n, ".seg");
        (void)unlinkat(j->dir_fd, name, 0);
        (void)hx_sync_directory(j->dir_fd);
        atomic_fetch_sub(&j->bytes, s->size);
        close(s->fd);
        free(s);
    }
}

/* G9. What an earlier start left in processing may have been done, or not. */
static void orphans_become_unknown(hx_journal *j)
{
    size_t count = atomic_load(&j->counts.processing), got = 0;
    if (count == 0) return;
    hx_op *orphans = malloc(count * sizeof *orphans);
    if (!orphans) hx_fatal(HX_EXIT_BUG, "out of memory");
    hx_index_entry entry;
    uint32_t cursor = 0, steps = UINT32_MAX;
    while (got < count && hx_index_next(j->index, &cursor, &steps, &entry))
        if (entry.state == HX_PROCESSING) orphans[got++] = entry.op;
    for (size_t i = 0; i < got; i++)
        if (!hx_journal_lapse(j, &orphans[i], HX_LIT("restart")))
            hx_fatal(HX_EXIT_STORE, "no room left for the store in %s", j->path);
    free(orphans);
    hx_journal_flush(j);
}

/* From here on the disk is changed, and what goes wrong ends the process. */
static bool begin(opening *o)
{
    hx_journal *j = o->journal;
    if (!zero_again(o)) return false;
    j->tail = o->tail;
    j->durable = o->tail.sequence;
    j->active = hx_journal_segment(j, o->tail.segment);
    tidy(j, &o->dir);
    j->keeper.spare_number = j->active->number + 1;
    hx_keeper_check_limits(j);
    hx_keeper_start(j);
    if (!j->options.now) hx_clock_raise(j->tail.stamp);
    j->batch.now = j->store.facts.now();
    if (j->tail.lost > 0) j->tail.epoch += EPOCHS_LOST_MAX;
    /* A copy that is started again draws other epochs than the original did after it was copied. */
    hx_ms since = j->batch.now - EPOCH_ZERO_MS;
    if (since > 0 && (uint64_t)since * EPOCHS_A_MS > j->tail.epoch) j->tail.epoch = (uint64_t)since * EPOCHS_A_MS;
    char pid[32];
    int len = snprintf(pid, sizeof pid, "process %ld\n", (long)getpid());
    (void)!ftruncate(j->lock_fd, 0);
    (void)!pwrite(j->lock_fd, pid, (size_t)len, 0);
    hx_journal_append_mark(j, HX_FRAME_START, (hx_slice){(const char *)&j->store.facts.owner, 8});
    hx_journal_flush(j);
    orphans_become_unknown(j);
    if (pthread_create(&j->writer, NULL, hx_journal_writer, j) != 0) hx_fatal(HX_EXIT_STORE, "can't start a thread");
    return true;
}

static hx_journal *new_journal(hx_slice directory_path, const hx_store_options *options)
{
    hx_journal *j = calloc(1, sizeof *j);
    char *path = malloc(directory_path.len + 1);
    char *stage = malloc(HX_STAGE_BYTES);
    if (!j || !path || !stage) hx_fatal(HX_EXIT_BUG, "out of memory");
    memcpy(path, directory_path.ptr, directory_path.len);
    path[directory_path.len] = '\0';
    j->path = path;
    j->batch.stage = stage;
    j->dir_fd = j->lock_fd = -1;
    j->options = *options;
    hx_store_options *set = &j->options;
    if (set->segment_bytes == 0) set->segment_bytes = HX_SEGMENT_BYTES;
    if (set->free_bytes_floor == 0) set->free_bytes_floor = HX_FREE_BYTES_FLOOR;
    if (set->waiters_per_op_max == 0) set->waiters_per_op_max = HX_STORE_WAITERS_PER_OP_MAX;
    if (set->waiters_max == 0) set->waiters_max = HX_STORE_WAITERS_MAX;
    j->store = (hx_store){.ops = &hx_journal_ops,
                          .facts = {.name = "journal", .durable = true, .owner = hx_rand_u64(),
                                    .now = set->now ? set->now : hx_clock_now}};
    pthread_mutex_init(&j->attaching, NULL);
    hx_hasher_init(&j->hasher);
    j->readers = hx_readers_new();
    j->opened = hx_map_new();
    return j;
}

hx_store *hx_journal_open(hx_slice path, const hx_store_options *options, char error[HX_STORE_ERROR_BYTES])
{
    opening o = {.error = error};
    if (path.len == 0) {
        (void)fail(&o, "journal: needs a directory, as in journal:/var/lib/hapax");
        return NULL;
    }
    o.journal = new_journal(path, options);
    bool ok = open_directory(&o) && inspect(&o) && (!o.dir.has_format || read_format(&o)) && take_lock(&o) &&
              inspect(&o) && (o.dir.has_format || create(&o)) && read_format(&o) && read_secret(&o) &&
              open_segments(&o) && replay(&o) && begin(&o);
    if (ok) return &o.journal->store;
    hx_journal_free(o.journal);
    return NULL;
}
