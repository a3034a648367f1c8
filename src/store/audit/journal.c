/* SPDX-License-Identifier: Apache-2.0 */
/* The audit of a journal is its log: archives and segments, in the order of their numbers. Each frame has the hash of
 * its predecessor, over everything but responses and contents; a change of state is a frame of the kind
 * HX_FRAME_RECORD. The directory is read while a gateway may write to it:
 *
 *     a segment that becomes an archive meanwhile is found under its other name
 *     what follows the last whole frame of the last segment was never acknowledged, if no later frame says otherwise
 *
 * Frames that retention has removed are those before the last checkpoint. It is known only at the end, so frames that
 * are missing are gathered until then. */
#include "store/audit/audit.h"
#include "store/journal/open.h"

#include "base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES (HX_SEGMENT_NAME_BYTES + 32u)

/* Frames that are missing. */
typedef struct gap {
    struct gap *next;
    uint64_t from, to;  /* sequences; `to` is there again */
    hx_digest previous; /* the predecessor's hash, as `to` has it */
    char name[HX_SEGMENT_NAME_BYTES];
} gap;

typedef struct {
    hx_opening o;
    hx_audit *audit;
    hx_arena arena;
    uint32_t first, last; /* numbers of files; `last` is the last that was written to */
    uint32_t last_segment;
    /* the file that is being read */
    char name[HX_SEGMENT_NAME_BYTES];
    int fd;
    hx_scan scan;
    uint64_t at;
    /* the chain */
    uint64_t next;  /* sequence of the next frame */
    hx_digest hash; /* of the frame before that */
    bool knows_hash;
    char damaged[FILE_BYTES]; /* place of what can't be read since the last frame; empty: none */
    gap *gaps, **gaps_end, *last_gap;
    hx_checkpoint checkpoint; /* the last; segment 0: there is none */
} auditing;

static void report_damage(auditing *a, uint64_t until)
{
    if (until > a->next + 1)
        hx_audit_problem(a->audit, "%s: records %" PRIu64 " to %" PRIu64 " can't be read", a->damaged, a->next,
                         until - 1);
    else if (until == a->next + 1)
        hx_audit_problem(a->audit, "%s: record %" PRIu64 " can't be read: its bytes were changed", a->damaged, a->next);
    else
        hx_audit_problem(a->audit, "%s: the bytes there are no record", a->damaged);
    a->damaged[0] = '\0';
}

static void miss(auditing *a, const hx_frame_head *head)
{
    gap *g = hx_arena_zalloc(&a->arena, sizeof *g);
    *g = (gap){.from = a->next, .to = head->sequence, .previous = head->previous};
    memcpy(g->name, a->name, sizeof g->name);
    *a->gaps_end = a->last_gap = g;
    a->gaps_end = &g->next;
}

static void out_of_order(auditing *a, uint64_t sequence)
{
    gap *g = a->last_gap;
    if (g && g->from == sequence && g->to == sequence + 1) {
        hx_audit_problem(a->audit, "%s, byte %" PRIu64 ": records %" PRIu64 " and %" PRIu64 " are swapped", a->name,
                         a->at, sequence, sequence + 1);
        g->from = g->to; /* it isn't missing */
    } else {
        hx_audit_problem(a->audit, "%s, byte %" PRIu64 ": record %" PRIu64 " comes after record %" PRIu64, a->name,
                         a->at, sequence, a->next - 1);
    }
}

static void compare_anchor(auditing *a)
{
    const hx_audit_anchor *anchor = a->audit->anchor;
    if (!anchor || a->next - 1 != anchor->sequence || memcmp(&a->hash, &anchor->hash, sizeof a->hash) == 0) return;
    hx_audit_problem(a->audit,
                     "record %" PRIu64 " isn't the one of the anchor: it, or something before it, was written anew",
                     anchor->sequence);
}

/* Checks how the frame is linked with those before it. */
static void link_frame(auditing *a, const hx_frame *frame)
{
    const hx_frame_head *head = &frame->head;
    a->audit->links++;
    if (a->damaged[0]) {
        report_damage(a, head->sequence);
        a->knows_hash = false;
        if (head->sequence > a->next) a->next = head->sequence;
    }
    if (head->sequence < a->next) {
        out_of_order(a, head->sequence);
        return;
    }
    if (head->sequence > a->next)
        miss(a, head);
    else if (a->knows_hash && memcmp(&head->previous, &a->hash, sizeof a->hash) != 0)
        hx_audit_problem(a->audit,
                         "%s, byte %" PRIu64 ": record %" PRIu64 " isn't the successor of the one before it: one of "
                         "the two was changed",
                         a->name, a->at, head->sequence);
    /* the first of a commit: all before it were durable */
    if (head->synced >= head->sequence) a->audit->head = (hx_audit_anchor){head->sequence - 1, head->previous};
    a->next = head->sequence + 1;
    a->hash = hx_frame_hash(head, frame->record_head);
    a->knows_hash = true;
    compare_anchor(a);
}

/* The responses and contents of a segment have checksums of their own. */
static void check_contents(auditing *a)
{
    hx_frame whole;
    if (a->scan.bare || hx_scan_at(&a->scan, a->at, &whole)) return;
    hx_audit_problem(a->audit, "%s, byte %" PRIu64 ": the response or contents of record %" PRIu64 " were changed",
                     a->name, a->at, whole.head.sequence);
}

static void take_frame(auditing *a, const hx_frame *frame)
{
    bool is_record = frame->traits->payload == HX_PAYLOAD_RECORD && !frame->traits->is_copy;
    hx_record record = frame->record;
    link_frame(a, frame);
    if (frame->head.kind == HX_FRAME_CHECKPOINT && frame->record_head.len == sizeof a->checkpoint)
        memcpy(&a->checkpoint, frame->record_head.ptr, sizeof a->checkpoint);
    if (is_record) {
        record.changed_at = frame->head.stamp;
        hx_audit_row(a->audit, &record, frame->head.sequence);
    }
    check_contents(a);
}

/* Where reading goes on behind what can't be read at a->at; UINT64_MAX: nowhere. */
static uint64_t find_next(auditing *a)
{
    bool is_last = a->scan.segment == a->last;
    if (hx_scan_find_later(&a->scan, a->at, is_last ? a->next : 0) == UINT64_MAX) return UINT64_MAX;
    return hx_scan_find_later(&a->scan, a->at, 0);
}

/* Reads the frames of the file from a->at on. */
static void read_frames(auditing *a)
{
    hx_frame frame;
    bool again = false, is_last = a->scan.segment == a->last;
    while (a->at + sizeof frame.head <= a->scan.size) {
        if (hx_scan_heads(&a->scan, a->at, &frame)) {
            uint64_t length = a->scan.bare ? sizeof frame.head + frame.record_head.len : frame.head.length;
            again = false;
            take_frame(a, &frame);
            a->at += hx_frame_padded(length);
            continue;
        }
        uint64_t next = find_next(a);
        bool is_end = next == UINT64_MAX;
        if (is_end && (is_last || hx_scan_content_end(&a->scan, a->at) <= a->at)) break;
        if (!again && !a->scan.bare) { /* it may just be written: read it once more */
            again = true;
            a->scan.window_len = 0;
            continue;
        }
        if (!a->damaged[0]) (void)snprintf(a->damaged, sizeof a->damaged, "%s, byte %" PRIu64, a->name, a->at);
        if (is_end) break;
        a->at = next;
    }
}

static bool open_file(auditing *a, uint32_t number)
{
    hx_journal *j = a->o.journal;
    const char *const suffixes[] = {".seg", ".audit"};
    for (size_t i = 0; i < 2; i++) {
        hx_segment_name(a->name, number, suffixes[i]);
        a->fd = openat(j->dir_fd, a->name, O_RDONLY | O_CLOEXEC);
        if (a->fd < 0 && errno == ENOENT) continue;
        if (a->fd >= 0 && hx_scan_begin(&a->scan, a->fd, number, j->log.generation)) {
            a->scan.trusted = true;
            a->scan.bare = i == 1;
            return true;
        }
        return hx_open_fail(&a->o, "can't read %s/%s: %s", j->path, a->name, strerror(errno));
    }
    return true;
}

static bool read_file(auditing *a, uint32_t number)
{
    hx_segment_head head;
    a->fd = -1;
    if (!open_file(a, number)) return false;
    if (a->fd < 0) return true; /* the next frame shows what is missing */
    a->at = sizeof head;
    const char *bytes = hx_scan_bytes(&a->scan, 0, sizeof head);
    if (bytes) memcpy(&head, bytes, sizeof head);
    if ((!bytes || !hx_segment_valid(&head, a->o.journal->log.generation, number)) && find_next(a) != UINT64_MAX)
        hx_audit_problem(a->audit, "%s: the first %zu bytes can't be read", a->name, sizeof head);
    read_frames(a);
    bool ok = !a->scan.unknown_kind || hx_open_unknown_kind(&a->o, &a->scan);
    if (a->scan.error)
        ok = hx_open_fail(&a->o, "can't read %s/%s: %s", a->o.journal->path, a->name, strerror(a->scan.error));
    hx_scan_end(&a->scan);
    close(a->fd);
    return ok;
}

/* Finds the numbers of the first file, and of the last that isn't all zeros. */
static bool find_files(auditing *a)
{
    hx_journal *j = a->o.journal;
    DIR *dir = hx_dir_list(j);
    if (!dir) return hx_open_fail(&a->o, "can't read %s: %s", j->path, strerror(errno));
    for (struct dirent *item; (item = readdir(dir));) {
        uint32_t number;
        bool is_segment = hx_segment_number(item->d_name, ".seg", &number);
        if (!is_segment && !hx_segment_number(item->d_name, ".audit", &number)) continue;
        if (is_segment && number > a->last_segment) a->last_segment = number;
        if (a->first == 0 || number < a->first) a->first = number;
        if (number > a->last && hx_dir_is_written(j, item->d_name)) a->last = number;
    }
    closedir(dir);
    return true;
}

static void report_missing(auditing *a)
{
    const hx_checkpoint *kept = &a->checkpoint;
    a->audit->kept_from = kept->segment > 0 ? kept->sequence : 1;
    for (const gap *g = a->gaps; g; g = g->next) {
        bool is_checked = kept->segment > 0 && g->to == kept->sequence;
        if (is_checked && memcmp(&g->previous, &kept->previous, sizeof g->previous) != 0)
            hx_audit_problem(a->audit, "%s: the first record isn't the one that the checkpoint names", g->name);
        if (g->from == g->to || (kept->segment > 0 && g->to <= kept->sequence)) continue;
        hx_audit_problem(a->audit, "%s: records %" PRIu64 " to %" PRIu64 " before it are missing", g->name, g->from,
                         g->to - 1);
    }
}

static void check_end(auditing *a)
{
    uint32_t last = a->o.journal->row.last;
    const hx_audit_anchor *anchor = a->audit->anchor;
    if (a->damaged[0]) report_damage(a, a->next + 1);
    report_missing(a);
    if (a->last_segment < last)
        hx_audit_problem(a->audit, "%08" PRIu32 ".seg is missing: the end of the log may be cut off", last);
    if (!anchor) return;
    if (anchor->sequence >= a->next)
        hx_audit_problem(a->audit,
                         "the log ends at record %" PRIu64 ", before record %" PRIu64
                         " of the anchor: its end was cut off",
                         a->next - 1, anchor->sequence);
    else if (anchor->sequence < a->audit->kept_from)
        hx_audit_problem(a->audit,
                         "record %" PRIu64 " of the anchor is no longer kept, so nothing can be compared with it; "
                         "take a later anchor",
                         anchor->sequence);
}

static bool read_all(auditing *a)
{
    hx_opening *o = &a->o;
    hx_journal *j = o->journal;
    if (!hx_dir_open(o, false) || !hx_dir_inspect(o)) return false;
    if (!o->dir.has_format || o->dir.begun) return hx_open_fail(o, "%s holds no journal", j->path);
    /* before the files are listed: segments are created before they are named there */
    if (!hx_dir_read_format(o) || !hx_dir_read_row(o) || !find_files(a)) return false;
    for (uint32_t n = a->first; n <= a->last; n++)
        if (!read_file(a, n)) return false;
    check_end(a);
    return true;
}

bool hx_audit_journal(hx_slice path, hx_audit *audit, hx_error_text error)
{
    const hx_store_options options = {0};
    if (path.len == 0) return hx_fail(error, "journal: needs a directory, as in journal:/var/lib/hapax");
    auditing a = {.o = {.journal = hx_journal_new(path, &options), .error = error}, .audit = audit, .next = 1};
    a.gaps_end = &a.gaps;
    a.o.journal->salvaged = true;
    bool ok = read_all(&a);
    hx_journal_free(a.o.journal);
    hx_arena_free(&a.arena);
    return ok;
}
