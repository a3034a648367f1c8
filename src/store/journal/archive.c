/* SPDX-License-Identifier: Apache-2.0 */
/* The archive: what is kept of segments that were dropped, for histories and the audit.
 *
 *     writer      sweep: the oldest segment is dropped                    --> background  hx_archive_write
 *     writer      sweep: the oldest archives are older than the retention
 *                 HX_FRAME_CHECKPOINT, durable                            --> background  hx_archive_prune
 *
 * NNNNNNNN.audit has every frame of its segment without responses and contents, so its chain of hashes can be checked.
 * A checkpoint is the frame that says where the chain begins from now on, and is itself in the chain: by it an archive
 * that was removed here differs from one that is missing. It is durable before the first file is removed. After a
 * crash in between, the next sweep finds the same files, writes another checkpoint, and removes them.
 *
 * The archive that has the last checkpoint is never removed without another one: it is younger than those that it was
 * written for, and removing it is what the next checkpoint is written for. */
#include "store/journal/open.h"

#include "base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILES_A_STEP 64u

/* Writes a frame without its response, padded as in a segment. */
static bool put_row(FILE *out, const hx_frame *frame)
{
    static const char zeros[HX_FRAME_ALIGN];
    size_t len = sizeof frame->head + frame->record_head.len;
    size_t pad = (size_t)(hx_frame_padded(len) - len);
    return fwrite(&frame->head, sizeof frame->head, 1, out) == 1 &&
           fwrite(frame->record_head.ptr, 1, frame->record_head.len, out) == frame->record_head.len &&
           fwrite(zeros, 1, pad, out) == pad;
}

static int write_rows(hx_scan *scan, FILE *out)
{
    hx_segment_head head;
    const char *bytes = hx_scan_bytes(scan, 0, sizeof head);
    if (!bytes) return scan->error ? scan->error : EIO;
    memcpy(&head, bytes, sizeof head);
    hx_tail tail = {.offset = sizeof head, .sequence = head.sequence, .hash = head.previous};
    if (fwrite(&head, sizeof head, 1, out) != 1) return errno;
    hx_frame frame;
    hx_scan_step step;
    while ((step = hx_scan_next(scan, &tail, &frame)) == HX_SCAN_FRAME)
        if (!put_row(out, &frame)) return errno;
    return step == HX_SCAN_END ? 0 : EIO;
}

int hx_archive_write(hx_journal *j, uint32_t segment)
{
    char seg[HX_SEGMENT_NAME_BYTES], hint[HX_SEGMENT_NAME_BYTES], making[HX_SEGMENT_NAME_BYTES],
        name[HX_SEGMENT_NAME_BYTES];
    hx_segment_name(seg, segment, ".seg");
    hx_segment_name(hint, segment, ".hint");
    hx_segment_name(making, segment, ".audit.new");
    hx_segment_name(name, segment, ".audit");
    int fd = openat(j->dir_fd, seg, O_RDONLY | O_CLOEXEC);
    int out_fd = fd < 0 ? -1 : openat(j->dir_fd, making, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FILE *out = out_fd < 0 ? NULL : fdopen(out_fd, "w");
    int error = out ? 0 : errno;
    if (!error) {
        hx_scan scan;
        error = hx_scan_begin(&scan, fd, segment, j->log.generation) ? write_rows(&scan, out) : scan.error;
        hx_scan_end(&scan);
    }
    if (!error && fflush(out) != 0) error = errno;
    if (!error) error = hx_sync(j, out_fd);
    if (out)
        (void)fclose(out);
    else if (out_fd >= 0)
        close(out_fd);
    if (fd >= 0) close(fd);
    if (!error && renameat(j->dir_fd, making, j->dir_fd, name) != 0) error = errno;
    if (error) (void)unlinkat(j->dir_fd, making, 0); /* a part of it would only take space */
    if (!error) error = hx_sync(j, j->dir_fd);
    if (!error) error = hx_dir_write_range(j, (hx_segment_range){segment + 1, j->row.last});
    if (!error && unlinkat(j->dir_fd, seg, 0) != 0) error = errno;
    if (error) return error;
    (void)unlinkat(j->dir_fd, hint, 0);
    return hx_sync(j, j->dir_fd); /* segments are removed in order: none before its predecessor */
}

int hx_archive_prune(hx_journal *j, uint32_t keep_from)
{
    DIR *dir = hx_dir_list(j);
    int error = dir ? 0 : errno;
    uint32_t number;
    for (struct dirent *item; dir && (item = readdir(dir));) {
        if (!hx_segment_number(item->d_name, ".audit", &number) || number >= keep_from) continue;
        if (unlinkat(j->dir_fd, item->d_name, 0) != 0 && errno != ENOENT) error = errno;
    }
    if (dir) closedir(dir);
    return error ? error : hx_sync(j, j->dir_fd);
}

/* False: there is no such file, as segment or as archive, or it has no valid head. */
static bool read_head(hx_journal *j, uint32_t number, hx_segment_head *head)
{
    char name[HX_SEGMENT_NAME_BYTES];
    hx_segment_name(name, number, ".seg");
    int fd = openat(j->dir_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) { /* in this order: the archive is complete before the segment is removed */
        hx_segment_name(name, number, ".audit");
        fd = openat(j->dir_fd, name, O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0) return false;
    bool ok = pread(fd, head, sizeof *head, 0) == (ssize_t)sizeof *head &&
              hx_segment_valid(head, j->log.generation, number);
    close(fd);
    return ok;
}

static bool append_checkpoint(hx_journal *j, const hx_segment_head *first)
{
    hx_checkpoint checkpoint = {.segment = first->segment, .sequence = first->sequence, .previous = first->previous};
    hx_frame_draft draft = {.kind = HX_FRAME_CHECKPOINT,
                            .stamp = j->now,
                            .head = {(const char *)&checkpoint, sizeof checkpoint}};
    uint64_t length = hx_frame_draft_length(&draft);
    /* it makes space, so it may use the reserve */
    if (!hx_journal_may_append(j, length, HX_RESERVE_URGENT) || !hx_journal_make_room(j, length)) return false;
    hx_frame_log_append(&j->log, &draft);
    hx_journal_flush(j);
    return true;
}

/* The head of a file has the latest stamp before it, which is the end of the time that the file before it covers. */
bool hx_archive_retire(hx_journal *j)
{
    hx_archive *a = &j->archive;
    hx_segment_head head, first = {0};
    hx_ms until = hx_store_audit_until(atomic_load(&j->audit_retention), j->now);
    uint32_t live = atomic_load(&j->first_segment);
    if (a->first >= live || a->latest > until) return false;
    for (uint32_t n = a->first + 1, left = FILES_A_STEP; n <= live && left > 0; n++, left--) {
        if (!read_head(j, n, &head)) {
            if (first.segment == 0 && n < live) a->first = n; /* an operator has moved it away */
            continue;
        }
        a->latest = head.stamp;
        if (head.stamp > until) break;
        first = head;
    }
    if (first.segment == 0 || !append_checkpoint(j, &first)) return false;
    a->first = first.segment;
    a->latest = 0;
    hx_background_want(j, HX_JOB_PRUNE, first.segment);
    return true;
}
