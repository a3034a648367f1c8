/* SPDX-License-Identifier: Apache-2.0 */
/* Salvage: opens a damaged journal for reading only. Every whole frame of every segment counts; behind a stretch that
 * can't be read the next frame is found by its length and checksums. Nothing in the directory is changed: the records
 * are written to another store (cmd/store_fill.c).
 *
 * A lost frame may have changed an operation, so the last known state is not taken for certain:
 *
 *     processing              unknown in the new store, as after any crash
 *     released or forgotten   unknown, not free, if a loss follows: it may have been claimed again
 *     any other state         stays as it was last found
 *     claimed in a lost frame not in the new store: its key runs again. So no gateway starts on the new store before an
 *                             operator has accepted the losses
 *
 * An item is as the last commit left it that can be read: one that was removed by a lost one is back. */
#include "store/journal/item_frame.h"
#include "store/journal/open.h"

#include "base/check.h"

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

typedef struct {
    hx_opening o;
    hx_salvage *found;
    uint32_t last_used;  /* the last segment that has frames */
    uint64_t next;       /* sequence of the next frame; 0: not known */
    uint64_t lost_until; /* sequence: a loss follows every frame below this one */
    bool counting;       /* in the first of two passes, which finds the losses */
} salvage;

static void say(salvage *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(salvage *s, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (s->counting) s->found->report(s->found->context, text);
}

/* Notes a loss of an unknown number of records; at the end of the log, everything that followed is lost with them. */
static void lose_unknown(salvage *s, bool at_end)
{
    s->found->places++;
    if (at_end) s->lost_until = UINT64_MAX;
}

static void expect(salvage *s, uint32_t segment, uint64_t at, uint64_t sequence)
{
    if (s->next > 0 && sequence > s->next) {
        s->found->lost += s->counting ? sequence - s->next : 0;
        if (s->lost_until < sequence) s->lost_until = sequence;
        say(s, "%08" PRIu32 ".seg: up to %" PRIu64 " records before byte %" PRIu64 " are lost", segment,
            sequence - s->next, at);
    } else if (s->next == 0 && segment > 1 && at > sizeof(hx_segment_head)) {
        say(s, "%08" PRIu32 ".seg: how many records were before byte %" PRIu64 " is not known", segment, at);
        if (s->counting) lose_unknown(s, false);
        if (s->lost_until < sequence) s->lost_until = sequence;
    }
}

/* A commit is taken as a whole, or lost as a whole: a part of it is a state that the store never had. */
static void take_items(salvage *s, const hx_frame *frame, bool is_whole)
{
    if (!is_whole) {
        s->found->lost += s->counting;
        say(s, "%08" PRIu32 ".seg: the changes of %" PRIu32 " items at byte %" PRIu64 " are lost", frame->head.segment,
            hx_item_table_count(frame->record_head), frame->offset);
    } else if (!s->counting) {
        hx_items_replay(s->o.journal, frame);
    }
}

static void take(salvage *s, const hx_frame *frame, bool is_whole)
{
    hx_journal *j = s->o.journal;
    const hx_frame_head *head = &frame->head;
    expect(s, head->segment, frame->offset, head->sequence);
    s->next = head->sequence + 1;
    if (head->epoch > j->log.tail.epoch && head->epoch <= HX_EPOCH_MAX) j->log.tail.epoch = head->epoch;
    if (head->stamp > s->found->stamp) s->found->stamp = head->stamp;
    if (frame->traits->payload == HX_PAYLOAD_ITEMS) {
        take_items(s, frame, is_whole);
        return;
    }
    if (s->counting || !frame->traits->is_indexed || frame->record.epoch > HX_EPOCH_MAX) return;
    hx_index_entry entry;
    hx_entry_of(&entry, &frame->record, head->segment, frame->offset, head->length);
    entry.rule = hx_journal_rule(j, &frame->record);
    bool is_released = frame->record.state == HX_ABSENT;
    if (is_released && head->sequence < s->lost_until)
        entry.state = HX_UNKNOWN;
    else if (hx_store_state_at(&frame->record, s->found->stamp) == HX_ABSENT)
        entry.state = HX_ABSENT;
    s->found->records++;
    s->found->answers += !is_whole;
    hx_journal_apply(j, &entry);
}

/* Whether the bytes at the end of the log are a torn write, never acknowledged: no later frame says that they were
 * durable. */
static bool is_torn(salvage *s, hx_scan *scan, uint64_t at)
{
    return scan->segment == s->last_used && hx_scan_find_later(scan, at, s->next) == UINT64_MAX;
}

static bool read_segment(salvage *s, const hx_segment *seg)
{
    hx_scan scan;
    hx_frame frame;
    hx_segment_head head;
    bool has_head = hx_dir_read_head(s->o.journal, seg, &head), is_cut = has_head && seg->size < head.size;
    if (has_head) {
        expect(s, seg->number, 0, head.sequence);
        s->next = head.sequence;
        if (head.epoch > s->o.journal->log.tail.epoch && head.epoch <= HX_EPOCH_MAX)
            s->o.journal->log.tail.epoch = head.epoch;
    } else if (seg->number == 1) {
        s->next = 1;
    }
    uint64_t at = sizeof head;
    bool begun = hx_scan_begin(&scan, seg->fd, seg->number, s->o.journal->log.generation);
    while (begun && at != UINT64_MAX) {
        bool is_whole = hx_scan_at(&scan, at, &frame);
        if (is_whole || hx_scan_heads(&scan, at, &frame)) {
            take(s, &frame, is_whole);
            at += hx_frame_padded(frame.head.length);
        } else {
            at = is_torn(s, &scan, at) ? UINT64_MAX : hx_scan_find_later(&scan, at, 0);
        }
    }
    int error = scan.error;
    bool is_known = !scan.unknown_kind || hx_open_unknown_kind(&s->o, &scan);
    hx_scan_end(&scan);
    if (!is_known) return false;
    if (error)
        return hx_open_fail(&s->o,
                            "can't read %08" PRIu32 ".seg in %s: %s; copy what the disk still gives to another one, "
                            "with ddrescue for instance, and salvage that",
                            seg->number, s->o.journal->path, strerror(error));
    bool at_end = seg->number >= s->last_used;
    if (at_end && (is_cut || seg->size < sizeof head + sizeof frame.head)) {
        say(s, "%08" PRIu32 ".seg is cut short, at byte %" PRIu64 ": how many records were behind that is not known",
            seg->number, seg->size);
        if (s->counting) lose_unknown(s, true);
    }
    return true;
}

static void miss(salvage *s, uint32_t number, bool at_end)
{
    bool is_counted = number > s->o.dir.first && number < s->last_used; /* the next frame shows how many are missing */
    say(s, "%08" PRIu32 ".seg is missing%s", number, is_counted ? "" : ": how many records it held is not known");
    if (s->counting && !is_counted) lose_unknown(s, at_end);
}

static bool read_all(salvage *s)
{
    hx_journal *j = s->o.journal;
    uint32_t first = j->row.first < s->o.dir.first ? j->row.first : s->o.dir.first;
    uint32_t last = j->row.last > s->o.dir.last ? j->row.last : s->o.dir.last;
    s->next = 0;
    for (uint32_t n = first; n <= last; n++) {
        const hx_segment *seg = hx_journal_segment(j, n);
        if (!seg)
            miss(s, n, n >= s->last_used);
        else if (!read_segment(s, seg))
            return false;
    }
    return true;
}

static bool open_segments(salvage *s, bool known)
{
    hx_journal *j = s->o.journal;
    const hx_directory *d = &s->o.dir;
    if (d->last - d->first >= HX_SEGMENTS_MAX) return hx_open_fail(&s->o, "%s has too many segments", j->path);
    for (uint32_t n = d->first; n <= d->last; n++) {
        char name[HX_SEGMENT_NAME_BYTES];
        struct stat st;
        hx_segment_head head;
        hx_segment_name(name, n, ".seg");
        int fd = openat(j->dir_fd, name, O_RDONLY | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT) continue;
        if (fd < 0 || fstat(fd, &st) != 0)
            return hx_open_fail(&s->o, "can't open %s/%s: %s", j->path, name, strerror(errno));
        hx_segment *seg = calloc(1, sizeof *seg);
        if (!seg) hx_fatal(HX_EXIT_BUG, "out of memory");
        *seg = (hx_segment){.number = n, .fd = fd, .size = (uint64_t)st.st_size};
        atomic_store(&j->segments[n % HX_SEGMENTS_MAX], seg);
        /* Every segment has the generation in its head. */
        if (!known && pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head &&
            hx_segment_valid(&head, head.generation, n)) {
            say(s, "FORMAT can't be read; %s says what it was", name);
            j->log.generation = head.generation;
            known = true;
        }
    }
    atomic_store(&j->first_segment, d->first);
    return known || hx_open_fail(&s->o, "FORMAT can't be read, and no segment says what it was");
}

static void find_last_used(salvage *s)
{
    hx_journal *j = s->o.journal;
    for (uint32_t n = s->o.dir.first; n <= s->o.dir.last; n++) {
        hx_scan scan = {0};
        hx_segment_head head;
        const hx_segment *seg = hx_journal_segment(j, n);
        if (!seg) continue;
        bool is_used = hx_dir_read_head(j, seg, &head) || (hx_scan_begin(&scan, seg->fd, n, j->log.generation) &&
                                                           hx_scan_find_later(&scan, sizeof head, 0) != UINT64_MAX);
        hx_scan_end(&scan);
        if (is_used) s->last_used = n;
    }
}

static bool open_to_read(salvage *s)
{
    hx_opening *o = &s->o;
    hx_journal *j = o->journal;
    if (!hx_dir_open(o, false)) return false;
    bool known = hx_dir_inspect(o) && o->dir.has_format && hx_dir_read_format(o);
    if (o->dir.begun || o->is_other_format) return false;
    if (o->dir.count == 0) return hx_open_fail(o, "%s holds no segment: there is nothing to salvage", j->path);
    if (flock(j->dir_fd, LOCK_SH | LOCK_NB) != 0)
        return hx_open_fail(o, "the store in %s is in use by another process; stop it first", j->path);
    if (!known) o->secret_check = 0;
    if (!hx_dir_read_secret(o) || !open_segments(s, known)) return false;
    if (!hx_dir_read_row(o)) {
        say(s, "whether a segment is missing before %08" PRIu32 ".seg or after %08" PRIu32 ".seg is not known",
            o->dir.first, o->dir.last);
        lose_unknown(s, true);
    }
    find_last_used(s);
    /* If the first segment was never used, there were others before it. */
    if (s->last_used == 0 && o->dir.first > 1 && j->row.first == o->dir.first) miss(s, o->dir.first - 1, true);
    j->index = hx_index_new(j->readers, 0);
    if (!read_all(s)) return false;
    s->counting = false;
    return read_all(s);
}

bool hx_salvage_read(hx_journal *j, const hx_index_entry *entry, hx_arena *arena, hx_record *out)
{
    char *bytes = hx_arena_alloc(arena, HX_HEADS_BYTES);
    hx_index_entry as_written = *entry;
    if (!hx_journal_read_head(j, entry, bytes, out)) {
        as_written.state = HX_ABSENT; /* was released; unknown because of the loss that follows */
        if (!hx_journal_read_head(j, &as_written, bytes, out)) return false;
        out->state = HX_UNKNOWN;
        out->from_state = HX_ABSENT;
        out->reason = HX_LIT("salvaged");
    }
    out->answer = (hx_answer){.status = out->answer.status};
    return true;
}

hx_store *hx_journal_salvage(hx_slice path, hx_salvage *found, hx_error_text error)
{
    const hx_store_options options = {.moves_clock = found->moves_clock};
    salvage s = {.o = {.journal = hx_journal_new(path, &options), .error = error}, .found = found, .counting = true};
    hx_journal *j = s.o.journal;
    j->salvaged = true;
    if (open_to_read(&s) && hx_store_follow_wall(&j->options, found->stamp, error)) return &j->store;
    hx_journal_free(j);
    return NULL;
}
