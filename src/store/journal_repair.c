/* SPDX-License-Identifier: Apache-2.0 */
/* Repair: makes a damaged journal openable, and says honestly what that costs. A segment is copied aside before it is
 * touched. A stretch that can't be read becomes a gap frame, so that the chain says where it was broken and what
 * follows can still be checked. Operations whose last readable record is `processing` become unknown at the next start,
 * as orphans always do; records in the gaps are forgotten, and only their number is known. Of a segment that is missing
 * at either end of the log not even that is. At the end everything is read as a start reads it: only what passes is
 * said to be openable. */
#include "store/journal_open.h"

#include "base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPIES_MAX 1000

typedef struct {
    hx_opening o;
    void (*report)(void *context, const char *sentence);
    void *context;
    uint32_t copied; /* the segment that was copied aside last */
    uint64_t lost_records;
    unsigned places;
    unsigned missing; /* segments of which nothing tells how many records they held */
    bool end_lost;    /* and the end of the log may have been in one of them */
    bool row_lost;    /* which segments there must be is not known */
} repair;

static void say(repair *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(repair *r, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->report(r->context, text);
}

static bool write_at(int fd, const void *bytes, size_t len, uint64_t at)
{
    return pwrite(fd, bytes, len, (off_t)at) == (ssize_t)len;
}

static bool copy_bytes(const hx_journal *j, int from, int to)
{
    static char block[1 << 16];
    for (uint64_t at = 0;;) {
        ssize_t n = pread(from, block, sizeof block, (off_t)at);
        if (n == 0) return hx_sync(j, to) == 0;
        if (n < 0 || !write_at(to, block, (size_t)n, at)) return false;
        at += (uint64_t)n;
    }
}

static void remove_hint(repair *r, uint32_t segment)
{
    char name[HX_SEGMENT_NAME_BYTES];
    hx_segment_name(name, segment, ".hint");
    (void)unlinkat(r->o.journal->dir_fd, name, 0); /* what it was made of is no longer there */
}

/* Before a segment is changed: all of it goes to damaged/NNNNNNNN.seg.K, and its hint, which no longer fits, too. */
static bool set_aside(repair *r, const hx_segment *s)
{
    hx_journal *j = r->o.journal;
    char name[64];
    if (r->copied == s->number) return true;
    if (mkdirat(j->dir_fd, "damaged", 0700) != 0 && errno != EEXIST)
        return hx_open_fail(&r->o, "can't make %s/damaged: %s", j->path, strerror(errno));
    int dir = openat(j->dir_fd, "damaged", O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
    for (int k = 1; dir >= 0 && fd < 0 && k < COPIES_MAX; k++) {
        (void)snprintf(name, sizeof name, "%08" PRIu32 ".seg.%d", s->number, k);
        fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST) break;
    }
    bool ok = fd >= 0 && copy_bytes(j, s->fd, fd) && hx_sync(j, dir) == 0 && hx_sync(j, j->dir_fd) == 0;
    if (!ok) (void)hx_open_fail(&r->o, "can't copy segment %u to %s/damaged: %s", s->number, j->path, strerror(errno));
    if (fd >= 0) close(fd);
    if (dir >= 0) close(dir);
    if (ok) remove_hint(r, s->number);
    if (ok) say(r, "damaged/%s is a copy of %08" PRIu32 ".seg as it was", name, s->number);
    r->copied = s->number;
    return ok;
}

static bool write_head(repair *r, const hx_segment *s, uint64_t sequence, const hx_digest *previous)
{
    hx_journal *j = r->o.journal;
    hx_segment_head head = {.segment = s->number,
                            .generation = j->generation,
                            .sequence = sequence,
                            .epoch = r->o.tail.epoch,
                            .stamp = r->o.tail.stamp,
                            .previous = *previous,
                            .size = sizeof(hx_segment_head)};
    hx_segment_seal(&head);
    say(r, "%08" PRIu32 ".seg: its head can't be read; it is written anew", s->number);
    return write_at(s->fd, &head, sizeof head, 0) ||
           hx_open_fail(&r->o, "can't write to segment %u: %s", s->number, strerror(errno));
}

/* Bridges from the tail to the frame `next_sequence`, `length` bytes further on. */
static bool write_gap(repair *r, const hx_segment *s, uint64_t length, uint64_t next_sequence)
{
    hx_tail *tail = &r->o.tail;
    HX_CHECK(length >= sizeof(hx_frame_head) && next_sequence >= tail->sequence);
    hx_frame_head gap = {.length = (uint32_t)length,
                         .sequence = tail->sequence,
                         .synced = tail->sequence,
                         .epoch = next_sequence,
                         .stamp = tail->stamp,
                         .segment = s->number,
                         .kind = HX_FRAME_GAP,
                         .previous = tail->hash};
    hx_frame_seal(&gap, r->o.journal->generation, HX_EMPTY);
    return (write_at(s->fd, &gap, sizeof gap, tail->offset) && hx_sync(r->o.journal, s->fd) == 0) ||
           hx_open_fail(&r->o, "can't write to segment %u: %s", s->number, strerror(errno));
}

static bool skip(repair *r, const hx_segment *s, uint64_t length, uint64_t next_sequence)
{
    const hx_tail *tail = &r->o.tail;
    uint64_t lost = next_sequence - tail->sequence;
    if (!set_aside(r, s) || !write_gap(r, s, length, next_sequence)) return false;
    say(r, "%08" PRIu32 ".seg: bytes %" PRIu64 " to %" PRIu64 " can't be read; %" PRIu64 " records are lost there",
        s->number, tail->offset, tail->offset + length, lost);
    r->lost_records += lost;
    r->places++;
    return true;
}

/* The sequence that the next segment that can be read begins with; 0: there is none. */
static uint64_t next_segment_sequence(repair *r, uint32_t after)
{
    for (uint32_t n = after + 1; n <= r->o.dir.last; n++) {
        hx_segment_head head;
        const hx_segment *s = hx_journal_segment(r->o.journal, n);
        if (!s) continue;
        if (hx_dir_read_head(r->o.journal, s, &head)) return head.sequence;
        hx_scan scan;
        hx_frame frame;
        uint64_t at = hx_scan_begin(&scan, s->fd, n, r->o.journal->generation)
                          ? hx_scan_find_later(&scan, sizeof head, 0)
                          : UINT64_MAX;
        bool found = at != UINT64_MAX && hx_scan_at(&scan, at, &frame);
        hx_scan_end(&scan);
        if (found) return frame.head.sequence;
    }
    return 0;
}

/* Something at the tail can't be read, and `later` (UINT64_MAX: nothing in this segment) can. */
static bool bridge(repair *r, const hx_segment *s, hx_scan *scan, uint64_t later, bool *goes_on)
{
    hx_tail *tail = &r->o.tail;
    hx_frame frame;
    *goes_on = false;
    if (later != UINT64_MAX) {
        if (!hx_scan_at(scan, later, &frame)) frame.head.sequence = tail->sequence;
        *goes_on = true;
        return skip(r, s, later - tail->offset, frame.head.sequence);
    }
    uint64_t next = next_segment_sequence(r, s->number);
    if (next == 0 || next == tail->sequence) return true; /* the end of the log, or a whole segment */
    *goes_on = true;
    return skip(r, s, sizeof(hx_frame_head), next);
}

/* A frame that is next in order, or later: what a bad stretch may be bridged to. */
static uint64_t find_readable(hx_scan *scan, uint64_t from, uint64_t sequence)
{
    hx_frame frame;
    uint64_t at = from;
    while ((at = hx_scan_find_later(scan, at, 0)) != UINT64_MAX) {
        if (at >= from + sizeof frame.head && hx_scan_at(scan, at, &frame) && frame.head.sequence >= sequence)
            return at;
        at += HX_FRAME_ALIGN;
    }
    return UINT64_MAX;
}

static bool repair_frames(repair *r, const hx_segment *s)
{
    hx_tail *tail = &r->o.tail;
    for (bool goes_on = true, ok = true; goes_on;) {
        hx_scan scan; /* a new one after each change: its window may be old */
        hx_frame frame;
        if (hx_scan_begin(&scan, s->fd, s->number, r->o.journal->generation))
            while (hx_scan_next(&scan, tail, &frame) == HX_SCAN_FRAME) {}
        uint64_t later = find_readable(&scan, tail->offset, tail->sequence);
        /* Half-written bytes at the very end are no damage: the next start clears them. */
        bool torn = later != UINT64_MAX && next_segment_sequence(r, s->number) == 0 &&
                    hx_scan_find_later(&scan, tail->offset, tail->sequence) == UINT64_MAX;
        ok = true;
        if (torn)
            goes_on = false;
        else
            ok = bridge(r, s, &scan, later, &goes_on);
        hx_scan_end(&scan);
        if (!ok) return false;
        if (later == UINT64_MAX && goes_on) { /* the gap at the end of the segment is all that was missing */
            tail->sequence = next_segment_sequence(r, s->number);
            tail->after_gap = true;
            goes_on = false;
        }
    }
    return true;
}

static void miss(repair *r, uint32_t first, uint32_t last)
{
    if (first > last) return;
    r->missing += last - first + 1;
    for (uint32_t n = first; n <= last && n - first < HX_SEGMENTS_MAX; n++) remove_hint(r, n);
    if (first == last)
        say(r, "%08" PRIu32 ".seg is missing; how many records it held is not known", first);
    else
        say(r, "%08" PRIu32 ".seg to %08" PRIu32 ".seg are missing; how many records they held is not known", first,
            last);
}

static bool repair_segment(repair *r, hx_segment *s)
{
    hx_journal *j = r->o.journal;
    hx_tail *tail = &r->o.tail;
    hx_segment_head head;
    bool first = s->number == r->o.dir.first, valid = hx_dir_read_head(j, s, &head);
    if (!valid) {
        hx_scan scan;
        hx_frame frame = {0};
        uint64_t at = hx_scan_begin(&scan, s->fd, s->number, j->generation) ? hx_scan_find_later(&scan, sizeof head, 0)
                                                                            : UINT64_MAX;
        bool holds = at != UINT64_MAX && hx_scan_at(&scan, at, &frame);
        hx_scan_end(&scan);
        bool ends = !holds && next_segment_sequence(r, s->number) == 0;
        if (ends && (!first || s->number == 1)) return true;                /* unused, or torn */
        if (ends && r->missing == 0) miss(r, s->number - 1, s->number - 1); /* a log doesn't begin here */
        r->end_lost |= ends;
        bool exact = holds && at == sizeof head;
        head.sequence = first && exact ? frame.head.sequence : tail->sequence;
        head.previous = exact ? frame.head.previous : tail->hash;
        if (!set_aside(r, s) || !write_head(r, s, head.sequence, &head.previous)) return false;
    }
    if (first) tail->sequence = head.sequence;
    if (head.sequence != tail->sequence)
        return hx_open_fail(&r->o, "segment %u doesn't follow on the one before it, and can't be made to", s->number);
    *tail = (hx_tail){.segment = s->number,
                      .offset = sizeof head,
                      .sequence = tail->sequence,
                      .hash = head.previous,
                      .epoch = head.epoch > tail->epoch && valid ? head.epoch : tail->epoch,
                      .stamp = tail->stamp,
                      .after_gap = tail->after_gap};
    return repair_frames(r, s);
}

/* Puts an empty segment where a file is missing, so that the row is unbroken. Where the log goes on behind it, the gap
 * before it says how many records are lost. */
static hx_segment *substitute(repair *r, uint32_t number)
{
    hx_journal *j = r->o.journal;
    int error;
    hx_segment *s = hx_keeper_prepare(j, number, &error);
    if (!s) {
        (void)hx_open_fail(&r->o, "can't make a substitute for segment %u: %s", number, strerror(error));
        return NULL;
    }
    atomic_store(&j->segments[number % HX_SEGMENTS_MAX], s);
    if (next_segment_sequence(r, number) == 0) {
        miss(r, number, number);
        r->end_lost = true;
        return s;
    }
    say(r, "%08" PRIu32 ".seg is missing; an empty one takes its place", number);
    remove_hint(r, number);
    return s;
}

static bool open_what_is_there(repair *r)
{
    hx_journal *j = r->o.journal;
    const hx_directory *d = &r->o.dir;
    if (d->count == 0) return hx_open_fail(&r->o, "%s holds no segment: there is nothing to repair", j->path);
    if (d->last - d->first >= HX_SEGMENTS_MAX) return hx_open_fail(&r->o, "%s has too many segments", j->path);
    for (uint32_t n = r->o.dir.first; n <= r->o.dir.last; n++) {
        char name[HX_SEGMENT_NAME_BYTES];
        hx_segment_name(name, n, ".seg");
        int fd = openat(j->dir_fd, name, O_RDWR | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT) continue;
        if (fd < 0) return hx_open_fail(&r->o, "can't open %s/%s: %s", j->path, name, strerror(errno));
        hx_segment *s = calloc(1, sizeof *s);
        if (!s) hx_fatal(HX_EXIT_BUG, "out of memory");
        *s = (hx_segment){.number = n, .fd = fd};
        atomic_store(&j->segments[n % HX_SEGMENTS_MAX], s);
    }
    return true;
}

/* The generation stands in the head of every segment, too. */
static bool restore_format(repair *r)
{
    hx_journal *j = r->o.journal;
    for (uint32_t n = r->o.dir.first; r->o.dir.count > 0 && n <= r->o.dir.last; n++) {
        char name[HX_SEGMENT_NAME_BYTES];
        hx_segment_head head;
        hx_segment_name(name, n, ".seg");
        int fd = openat(j->dir_fd, name, O_RDONLY | O_CLOEXEC);
        bool valid = fd >= 0 && pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head &&
                     hx_segment_valid(&head, head.generation, n);
        if (fd >= 0) close(fd);
        if (!valid) continue;
        say(r, "FORMAT can't be read; it is written anew from %s", name);
        return hx_dir_write_format(j, head.generation, j->store.facts.secret) ||
               hx_open_fail(&r->o, "can't write FORMAT: %s", strerror(errno));
    }
    return hx_open_fail(&r->o, "FORMAT can't be read, and no segment says what it was");
}

/* Segments that are missing at either end are given up: the log begins and ends with what is there. */
static void find_missing_ends(repair *r)
{
    hx_opening *o = &r->o;
    if (!hx_dir_read_row(o)) {
        say(r,
            "`segments` can't be read; it is written anew. Whether a segment is missing before %08" PRIu32
            ".seg or after %08" PRIu32 ".seg is not known",
            o->dir.first, o->dir.last);
        o->version = 0; /* so that it is written */
        r->row_lost = true;
    }
    hx_row row = o->journal->row;
    miss(r, row.first, o->dir.first - 1);
    miss(r, o->dir.last + 1, row.last);
    r->end_lost |= row.last > o->dir.last;
}

/* Epochs were drawn in what is missing at the end. A start draws its own well above those that it finds when it finds a
 * gap. */
static bool mark_lost_end(repair *r)
{
    hx_tail *tail = &r->o.tail;
    const hx_segment *s = hx_journal_segment(r->o.journal, tail->segment);
    if (!r->end_lost || !s) return true;
    return set_aside(r, s) && write_gap(r, s, sizeof(hx_frame_head), tail->sequence + 1);
}

static bool repair_all(repair *r)
{
    hx_opening *o = &r->o;
    if (!hx_dir_open(o, false)) return false;
    (void)hx_dir_inspect(o);        /* before the lock, which would be a first file in a directory of something else */
    if (o->dir.begun) return false; /* there is no store yet */
    if (!o->dir.has_format && o->dir.count == 0)
        return hx_open_fail(o, "%s holds no store: there is nothing to repair", o->journal->path);
    if (!hx_dir_lock(o)) return false;
    bool known = hx_dir_inspect(o) && o->dir.has_format && hx_dir_read_format(o);
    if (o->is_newer) return false; /* not ours to change */
    if (!known) o->secret_check = 0;
    if (!hx_dir_read_secret(o)) return false;
    if (!known && (!restore_format(r) || !hx_dir_read_format(o))) return false;
    if (!open_what_is_there(r)) return false;
    find_missing_ends(r);
    o->tail.sequence = 1;
    for (uint32_t n = o->dir.first; n <= o->dir.last; n++) {
        hx_segment *s = hx_journal_segment(o->journal, n);
        if (!s) s = substitute(r, n);
        if (!s || !repair_segment(r, s)) return false;
    }
    if (!mark_lost_end(r)) return false;
    int error = hx_sync(o->journal, o->journal->dir_fd);
    if (error) return hx_open_fail(o, "can't sync: %s", strerror(error));
    return hx_dir_settle_row(o);
}

/* Reads everything as a start does, under the lock of the repair. */
static bool can_be_opened(repair *r, hx_slice path)
{
    static const hx_store_options defaults;
    char why[HX_STORE_ERROR_BYTES] = "";
    hx_opening o = {.journal = hx_journal_new(path, &defaults), .error = why};
    bool ok = hx_dir_open(&o, false) && hx_dir_inspect(&o) && hx_dir_read_format(&o) && hx_dir_read_secret(&o) &&
              hx_open_read(&o);
    hx_journal_free(o.journal);
    return ok || hx_open_fail(&r->o, "what could be repaired is, but it can't be opened: %.440s", why);
}

static void say_what_is_lost(repair *r)
{
    if (r->places == 0 && r->missing == 0) {
        say(r, r->row_lost ? "nothing else shows that a record is lost" : "no record is lost");
        return;
    }
    if (r->places > 0) say(r, "%" PRIu64 " records are lost in %u places", r->lost_records, r->places);
    if (r->missing > 0) say(r, "whatever was in the segments that are missing is lost");
    say(r, "operations that were in processing when they were last readable will be unknown. Outcomes that stood in "
           "the lost part are forgotten: those keys may run again");
}

bool hx_journal_repair(hx_slice path, void (*report)(void *context, const char *sentence), void *context,
                       char error[HX_STORE_ERROR_BYTES])
{
    static const hx_store_options defaults;
    repair r = {.o = {.journal = hx_journal_new(path, &defaults), .error = error},
                .report = report,
                .context = context};
    bool ok = repair_all(&r);
    if (ok) say_what_is_lost(&r);
    ok = ok && can_be_opened(&r, path);
    hx_journal_free(r.o.journal);
    return ok;
}
