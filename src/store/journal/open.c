/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the journal: locks the directory, reads everything, and only then changes anything.
 *
 * Bytes that can be read from a file need not be on the disk. After a kill, the last writes may still be dirty pages.
 * After a failed sync the kernel takes the pages for clean, returns them to every reader until it needs the memory, and
 * lets the next sync succeed without writing them. So a start trusts no cached page:
 *
 *     1  It drops the cached pages of the last segment that was written and of all behind it (drop_unsure), so that it
 *        reads from the disk. Pages that are still dirty stay; the sync in step 3 writes them, or fails.
 *     2  It reads, and notes where frames begin that were never acknowledged (unsure_from): `synced` in a frame says
 *        what was durable when it was written, so everything from the first frame of the last commit on may not be.
 *     3  It writes those frames again, byte for byte, syncs, and only then counts them as durable (settle_tail).
 *
 * Earlier segments were synced before the first byte of their successor was written. All other files are renamed to
 * their names after a sync. */
#include "store/journal/open.h"

#include "base/check.h"
#include "base/rand.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EPOCH_ZERO_MS ((hx_ms)1577836800000) /* 2020 */
#define EPOCHS_A_MS 64
#define SEGMENT_SIZE_MAX (UINT64_C(1) << 32) /* the largest in which an index entry can name every place */

static bool open_segments(hx_opening *o)
{
    hx_journal *j = o->journal;
    if (o->dir.count == 0) return hx_open_damaged(o, 1, 0, "all segments are missing");
    uint32_t first = j->row.first < o->dir.first ? j->row.first : o->dir.first;
    uint32_t last = j->row.last > o->dir.last ? j->row.last : o->dir.last;
    if (o->dir.count > HX_SEGMENTS_MAX) return hx_open_fail(o, "the store in %s has too many segments", j->path);
    for (uint32_t n = first; n <= last; n++) {
        char name[HX_SEGMENT_NAME_BYTES];
        struct stat st;
        hx_segment_name(name, n, ".seg");
        int fd = openat(j->dir_fd, name, O_RDWR | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT)
            return hx_open_damaged(o, n, 0, "the segment is missing; put it back where it can be found");
        if (fd < 0 || fstat(fd, &st) != 0)
            return hx_open_fail(o, "can't open %s/%s: %s", j->path, name, strerror(errno));
        hx_segment *s = calloc(1, sizeof *s);
        if (!s) hx_fatal(HX_EXIT_BUG, "out of memory");
        *s = (hx_segment){.number = n, .fd = fd, .size = (uint64_t)st.st_size};
        atomic_store(&j->segments[n % HX_SEGMENTS_MAX], s);
        if (hx_lock_is_others(fd)) return hx_dir_in_use(o);
        if (s->size < sizeof(hx_segment_head)) return hx_open_damaged(o, n, 0, "the file is cut short");
    }
    atomic_store(&j->first_segment, o->dir.first);
    return true;
}

/* Step 1: goes from the last segment back to the last one that was used, as the disk has it without cached pages. A
 * file system in memory keeps its pages; step 3 doesn't depend on this. */
static void drop_unsure(hx_opening *o)
{
    hx_segment_head head;
    for (uint32_t n = o->dir.last; n >= o->dir.first; n--) {
        const hx_segment *s = hx_journal_segment(o->journal, n);
        (void)posix_fadvise(s->fd, 0, 0, POSIX_FADV_DONTNEED);
        if (hx_dir_read_head(o->journal, s, &head)) break;
    }
}

static bool unreadable(hx_opening *o, const hx_scan *scan)
{
    return hx_open_fail(o, "can't read segment %08" PRIu32 " of the store in %s: %s", scan->segment, o->journal->path,
                        strerror(scan->error));
}

bool hx_open_unknown_kind(hx_opening *o, const hx_scan *scan)
{
    return hx_open_fail(o,
                        "%08" PRIu32 ".seg of the store in %s has a frame of kind %u at byte %" PRIu64
                        ", which this version of hapax doesn't know; use the version that wrote it",
                        scan->segment, o->journal->path, scan->unknown_kind, scan->unknown_at);
}

/* Decides what follows the end of the log, at `from`: a torn tail, which is zeroed, or damage. */
static bool check_rest(hx_opening *o, hx_segment *s, hx_scan *scan, uint64_t from)
{
    uint64_t first = from > sizeof(hx_segment_head) ? from : sizeof(hx_segment_head);
    if (hx_scan_find_later(scan, first, o->tail.sequence) != UINT64_MAX)
        return hx_open_damaged(o, s->number, from, "a record that was durable can't be read");
    if (scan->error) return unreadable(o, scan);
    if (scan->unknown_kind) return hx_open_unknown_kind(o, scan);
    uint64_t to = hx_scan_content_end(scan, from);
    if (to <= from) return true;
    if (o->cut_count == HX_CUTS_MAX)
        return hx_open_damaged(o, s->number, from, "too many segments hold half-written records");
    o->cuts[o->cut_count].segment = s;
    o->cuts[o->cut_count].from = from;
    o->cuts[o->cut_count++].to = to;
    return true;
}

static void replay_frame(hx_journal *j, const hx_frame *frame)
{
    if (!frame->traits->is_indexed) return;
    if (frame->traits->payload == HX_PAYLOAD_ITEMS) {
        hx_items_replay(j, frame);
        return;
    }
    hx_index_entry entry;
    hx_entry_of(&entry, &frame->record, frame->head.segment, frame->offset, frame->head.length);
    entry.rule = hx_journal_rule(j, &frame->record);
    hx_journal_apply(j, &entry);
}

static bool replay_segment(hx_opening *o, hx_segment *s, const hx_segment_head *head, const hx_segment_head *next)
{
    hx_journal *j = o->journal;
    hx_tail *tail = &o->tail;
    if (s->number == o->dir.first) {
        tail->sequence = head->sequence;
    } else if (head->sequence != tail->sequence || memcmp(&head->previous, &tail->hash, sizeof tail->hash) != 0) {
        return hx_open_damaged(o, s->number - 1, tail->offset, "the log breaks off, but goes on in the next segment");
    }
    if (s->size < head->size) return hx_open_damaged(o, s->number, s->size, "the file is cut short");
    if (head->epoch > HX_EPOCH_READ_MAX || head->stamp > HX_STAMP_MAX || s->size > SEGMENT_SIZE_MAX)
        return hx_open_damaged(o, s->number, 0, "the head of the segment says what no store writes");
    tail->segment = s->number;
    tail->offset = sizeof *head;
    tail->hash = head->previous;
    if (head->epoch > tail->epoch) tail->epoch = head->epoch;
    if (head->stamp > tail->stamp) tail->stamp = head->stamp;
    bool hinted = hx_hint_load(j, s->number, next, tail);
    s->end = o->unsure_from = tail->offset; /* hints are only written of durable frames */
    if (hinted && next) return true;
    s->unhinted = next != NULL;
    hx_scan scan;
    hx_frame frame;
    hx_scan_step step = HX_SCAN_ERROR;
    if (hx_scan_begin(&scan, s->fd, s->number, j->log.generation))
        while ((step = hx_scan_next(&scan, tail, &frame)) == HX_SCAN_FRAME) {
            if (frame.head.synced >= frame.head.sequence) o->unsure_from = frame.offset;
            replay_frame(j, &frame);
        }
    s->end = tail->offset;
    bool ok = true;
    if (step == HX_SCAN_ERROR)
        ok = unreadable(o, &scan);
    else if (scan.unknown_kind)
        ok = hx_open_unknown_kind(o, &scan);
    else if (step == HX_SCAN_BAD && scan.absurd)
        ok = hx_open_damaged(o, s->number, tail->offset, "the record there is whole, but says what no store writes");
    else if (next)
        ok = step == HX_SCAN_END || hx_open_damaged(o, s->number, tail->offset, "the record there can't be read");
    else
        ok = check_rest(o, s, &scan, tail->offset);
    hx_scan_end(&scan);
    return ok;
}

/* A segment without a valid head was never used, or its first commit was torn. */
static bool check_unused(hx_opening *o, hx_segment *s)
{
    hx_scan scan;
    hx_segment_head head;
    if (pread(s->fd, &head, sizeof head, 0) == (ssize_t)sizeof head &&
        hx_segment_valid(&head, head.generation, head.segment))
        return hx_open_damaged(o, s->number, 0, "this is a segment of another store, or another one of this");
    bool ok = hx_scan_begin(&scan, s->fd, s->number, o->journal->log.generation) ? check_rest(o, s, &scan, 0)
                                                                                 : unreadable(o, &scan);
    hx_scan_end(&scan);
    return ok;
}

static bool replay(hx_opening *o)
{
    hx_journal *j = o->journal;
    uint64_t expected = 0;
    for (uint32_t n = o->dir.first; n <= o->dir.last; n++) expected += hx_hint_count(j, n);
    j->index = hx_index_new(j->readers, (size_t)expected);
    o->tail = (hx_tail){.segment = o->dir.first, .sequence = 1};
    hx_segment_head head, next;
    bool used = hx_dir_read_head(j, hx_journal_segment(j, o->dir.first), &head);
    if (!used && o->dir.first > 1) return hx_open_damaged(o, o->dir.first, 0, "the head of the segment can't be read");
    for (uint32_t n = o->dir.first; n <= o->dir.last; n++, head = next) {
        hx_segment *s = hx_journal_segment(j, n);
        bool next_used = n < o->dir.last && hx_dir_read_head(j, hx_journal_segment(j, n + 1), &next);
        if (!used && next_used) return hx_open_damaged(o, n, 0, "the head of the segment can't be read");
        bool is_zeros = o->is_new && n == 1; /* written just now, and synced */
        if (!(used ? replay_segment(o, s, &head, next_used ? &next : NULL) : is_zeros || check_unused(o, s)))
            return false;
        used = next_used;
    }
    return true;
}

bool hx_open_read(hx_opening *o)
{
    if (!hx_dir_read_row(o) || !open_segments(o)) return false;
    drop_unsure(o);
    return replay(o);
}

static bool zero_again(hx_opening *o)
{
    static const char zeros[64 << 10];
    for (unsigned i = 0; i < o->cut_count; i++) {
        int fd = o->cuts[i].segment->fd;
        for (uint64_t at = o->cuts[i].from; at < o->cuts[i].to;) {
            uint64_t left = o->cuts[i].to - at;
            ssize_t n = pwrite(fd, zeros, left < sizeof zeros ? (size_t)left : sizeof zeros, (off_t)at);
            if (n <= 0)
                return hx_open_fail(o, "can't clear the torn end of the store in %s: %s", o->journal->path,
                                    strerror(errno));
            at += (uint64_t)n;
        }
        if (fdatasync(fd) != 0)
            return hx_open_fail(o, "can't sync the store in %s: %s", o->journal->path, strerror(errno));
    }
    return true;
}

/* Removes unfinished files and keeps unused segments as spares, so that the reserve survives a crash. */
static void tidy(hx_journal *j, const hx_directory *d)
{
    DIR *dir = hx_dir_list(j);
    if (!dir) return;
    for (struct dirent *item; (item = readdir(dir));)
        if (hx_slice_ends(hx_slice_of(item->d_name), HX_LIT(".new"))) (void)unlinkat(j->dir_fd, item->d_name, 0);
    closedir(dir);
    for (uint32_t n = d->last; n > j->log.active->number; n--) {
        hx_segment *s = hx_journal_segment(j, n);
        atomic_store(&j->segments[n % HX_SEGMENTS_MAX], NULL);
        s->next = j->background.spares;
        j->background.spares = s;
        j->background.spare_count++;
    }
}

/* Runs after everything was read: only then is it known whether the clock is right, and until then nothing expires. */
static void drop_expired(hx_journal *j)
{
    hx_index_entry entry;
    hx_ms now = j->store.facts.now();
    for (uint32_t cursor = 0, steps = UINT32_MAX; hx_index_next(j->index, &cursor, &steps, &entry);) {
        if (!hx_entry_is_over(&entry, now) || entry.entombed) continue;
        entry.state = HX_ABSENT;
        hx_journal_apply(j, &entry);
    }
}

/* G9: operations that an earlier process left in processing may have been executed, or not. */
static bool orphans_become_unknown(hx_journal *j)
{
    size_t count = atomic_load(&j->counts.processing), got = 0;
    if (count == 0) return true;
    hx_op *orphans = malloc(count * sizeof *orphans);
    if (!orphans) hx_fatal(HX_EXIT_BUG, "out of memory");
    hx_index_entry entry;
    uint32_t cursor = 0, steps = UINT32_MAX;
    while (got < count && hx_index_next(j->index, &cursor, &steps, &entry))
        if (entry.state == HX_PROCESSING) orphans[got++] = entry.op;
    j->store.facts.orphans = got;
    bool fits = true;
    for (size_t i = 0; i < got && fits; i++) fits = hx_journal_lapse(j, &orphans[i], HX_UNKNOWN, HX_LIT("restart"));
    free(orphans);
    if (fits) hx_journal_flush(j);
    return fits;
}

/* Writes from the start of the page in which the tail begins: a failed write may have lost the rest of that page. */
static int write_again(const hx_opening *o, int fd)
{
    char bytes[64 << 10];
    for (uint64_t at = o->unsure_from & ~(uint64_t)4095; at < o->tail.offset;) {
        uint64_t left = o->tail.offset - at;
        ssize_t got = pread(fd, bytes, left < sizeof bytes ? (size_t)left : sizeof bytes, (off_t)at);
        if (got > 0) got = pwrite(fd, bytes, (size_t)got, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got < 0 ? errno : EIO;
        at += (uint64_t)got;
    }
    return 0;
}

/* Step 3: an earlier process may have ended before it synced what was read here, or the name of a file that it created.
 * From here on both count as durable, so they must be. */
static bool settle_tail(hx_opening *o)
{
    hx_journal *j = o->journal;
    int fd = hx_journal_segment(j, j->log.tail.segment)->fd, error = write_again(o, fd);
    if (!error) error = hx_sync(j, fd);
    int parent = openat(j->dir_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!error) error = hx_sync(j, j->dir_fd);
    /* If we can't open the parent directory we didn't create it, so it needs no sync. */
    if (!error && parent >= 0) error = hx_sync(j, parent);
    if (parent >= 0) close(parent);
    return !error || hx_open_fail(o, "can't sync the store in %s: %s", j->path, strerror(error));
}

/* The first function that changes the disk. After an error the next start can still read the store. */
static bool begin(hx_opening *o)
{
    hx_journal *j = o->journal;
    j->log.tail = o->tail;
    if (!j->options.now && !hx_store_follow_wall(&j->options, j->log.tail.stamp, o->error)) return false;
    if (!settle_tail(o) || !zero_again(o) || !hx_dir_settle_row(o)) return false;
    j->log.durable = o->tail.sequence;
    j->log.active = hx_journal_segment(j, o->tail.segment);
    drop_expired(j);
    j->archive.first = o->dir.archive_first > 0 ? o->dir.archive_first : o->dir.first;
    tidy(j, &o->dir);
    j->background.spare_number = j->log.active->number + j->background.spare_count + 1;
    hx_background_check_limits(j);
    hx_background_count_bytes(j);
    int error = hx_background_start(j);
    if (error) return hx_open_fail(o, "can't start a thread: %s", strerror(error));
    for (uint32_t n = o->dir.first; n < j->log.active->number; n++)
        if (hx_journal_segment(j, n)->unhinted) hx_background_want(j, HX_JOB_HINT, n);
    j->now = j->store.facts.now();
    /* Epochs grow with the clock, so that a copy of the directory draws other ones than the original did since. */
    hx_ms since = j->now - EPOCH_ZERO_MS;
    if (since > 0 && (uint64_t)since * EPOCHS_A_MS > j->log.tail.epoch)
        j->log.tail.epoch = (uint64_t)since * EPOCHS_A_MS;
    char pid[32];
    int len = snprintf(pid, sizeof pid, "process %ld\n", (long)getpid());
    (void)!ftruncate(j->lock_fd, 0);
    (void)!pwrite(j->lock_fd, pid, (size_t)len, 0);
    if (!hx_journal_append_start(j, 0)) return hx_open_fail(o, "no space left for the store in %s", j->path);
    hx_journal_flush(j);
    if (!orphans_become_unknown(j)) return hx_open_fail(o, "no space left for the store in %s", j->path);
    /* Other processes can open the store only after the note that it is unfinished is durable. */
    if (o->dir.begun) error = hx_journal_put(j, j->options.unfinished) ? hx_dir_end_format(j) : ENOSPC;
    if (error) return hx_open_fail(o, "can't create a store in %s: %s", j->path, strerror(error));
    error = pthread_create(&j->writer, NULL, hx_journal_writer, j);
    return !error || hx_open_fail(o, "can't start a thread: %s", strerror(error));
}

hx_journal *hx_journal_new(hx_slice directory_path, const hx_store_options *options)
{
    hx_journal *j = calloc(1, sizeof *j);
    char *path = malloc(directory_path.len + 1);
    char *stage = malloc(HX_STAGE_BYTES);
    if (!j || !path || !stage) hx_fatal(HX_EXIT_BUG, "out of memory");
    memcpy(path, directory_path.ptr, directory_path.len);
    path[directory_path.len] = '\0';
    j->path = path;
    j->log.path = path;
    j->log.batch.stage = stage;
    j->dir_fd = j->lock_fd = -1;
    j->options = *options;
    hx_store_options *set = &j->options;
    atomic_store(&j->bytes_max, options->bytes_max);
    atomic_store(&j->audit_retention, options->audit_retention);
    j->store = (hx_store){.ops = &hx_journal_ops,
                          .facts = {.name = "journal",
                                    .durable = true,
                                    .keeps_items = true,
                                    .owner = hx_rand_u64(),
                                    .now = set->now ? set->now : hx_clock_now}};
    pthread_mutex_init(&j->attaching, NULL);
    j->readers = hx_reclaim_new();
    j->opened = hx_map_new();
    hx_waiters_init(&j->waiters, options);
    hx_list_init(&j->sweep.waiting);
    hx_list_init(&j->sweep.served);
    j->rules = hx_route_ids_new();
    hx_items_init(&j->items);
    return j;
}

hx_store *hx_journal_open(hx_slice path, const hx_store_options *options, hx_error_text error)
{
    hx_opening o = {.error = error};
    if (path.len == 0) {
        (void)hx_open_fail(&o, "journal: needs a directory, as in journal:/var/lib/hapax");
        return NULL;
    }
    o.journal = hx_journal_new(path, options);
    bool ok = hx_dir_open(&o, true) && hx_dir_inspect(&o) && (!o.dir.has_format || hx_dir_read_format(&o)) &&
              hx_dir_begin(&o) && hx_dir_lock(&o) && hx_dir_inspect(&o) && (o.dir.has_format || hx_dir_create(&o)) &&
              hx_dir_read_format(&o) && hx_dir_read_secret(&o) && hx_open_read(&o) && begin(&o);
    o.journal->options.secret = NULL; /* belongs to the caller, and was only needed for opening */
    o.journal->options.unfinished = NULL;
    if (ok) return &o.journal->store;
    hx_background_stop(o.journal);
    hx_journal_free(o.journal);
    return NULL;
}
