/* SPDX-License-Identifier: Apache-2.0 */
#include "store/journal/log.h"

#include "base/check.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Segments are prepared past the page cache. A page that is written as a whole needn't be read first: so the zeros up
 * to its end are written once more. */
static void write_batch(hx_frame_log *log)
{
    static char zeros[HX_PAGE_BYTES];
    struct iovec *piece = log->batch.pieces;
    uint64_t free_bytes = log->active->size - log->tail.offset, rest = -log->tail.offset % HX_PAGE_BYTES;
    if (rest > 0) piece[log->batch.piece_count++] = (struct iovec){zeros, rest < free_bytes ? rest : free_bytes};
    int left = log->batch.piece_count;
    uint64_t at = log->batch.offset;
    while (left > 0) {
        ssize_t n = pwritev(log->active->fd, piece, left, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) hx_fatal(HX_EXIT_STORE, "can't write to the store in %s: %s; stopping", log->path, strerror(errno));
        at += (uint64_t)n;
        for (; left > 0 && (size_t)n >= piece->iov_len; piece++, left--) n -= (ssize_t)piece->iov_len;
        if (left > 0) *piece = (struct iovec){(char *)piece->iov_base + n, piece->iov_len - (size_t)n};
    }
    log->batch.piece_count = 0;
    log->batch.staged = 0;
    log->batch.frames = 0;
}

static void sync_active(hx_frame_log *log)
{
    if (fdatasync(log->active->fd) != 0)
        hx_fatal(HX_EXIT_STORE, "can't sync the store in %s: %s; stopping, because what the disk holds is not known",
                 log->path, strerror(errno));
    log->durable = log->tail.sequence;
    atomic_store_explicit(&log->commits, atomic_load_explicit(&log->commits, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

void hx_frame_log_commit(hx_frame_log *log)
{
    if (log->batch.frames == 0) return;
    write_batch(log);
    sync_active(log);
    log->unconfirmed = true;
}

void hx_frame_log_sync(hx_frame_log *log)
{
    if (log->durable != log->tail.sequence) sync_active(log);
}

static void stage(hx_frame_log *log, const void *bytes, size_t len)
{
    char *to = log->batch.stage + log->batch.staged;
    if (len > 0) memcpy(to, bytes, len);
    log->batch.staged += len;
    struct iovec *last = log->batch.piece_count > 0 ? &log->batch.pieces[log->batch.piece_count - 1] : NULL;
    if (last && (char *)last->iov_base + last->iov_len == to)
        last->iov_len += len;
    else if (len > 0)
        log->batch.pieces[log->batch.piece_count++] = (struct iovec){to, len};
}

static void refer(hx_frame_log *log, hx_slice bytes)
{
    if (bytes.len == 0) return;
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): writev never writes there */
    log->batch.pieces[log->batch.piece_count++] = (struct iovec){(void *)(uintptr_t)bytes.ptr, bytes.len};
}

/* Only the first frame of a segment can make it longer than it was prepared. */
static void stage_segment_head(hx_frame_log *log, uint64_t first_frame)
{
    uint64_t least = sizeof(hx_segment_head) + hx_frame_padded(first_frame);
    hx_segment_head head = {.segment = log->active->number,
                            .generation = log->generation,
                            .sequence = log->tail.sequence,
                            .epoch = log->tail.epoch,
                            .stamp = log->tail.stamp,
                            .previous = log->tail.hash,
                            .size = log->active->size > least ? log->active->size : least};
    hx_segment_seal(&head);
    stage(log, &head, sizeof head);
    log->tail.offset += sizeof head;
}

bool hx_frame_log_batch_is_full(const hx_frame_log *log)
{
    return log->batch.frames >= HX_BATCH_FRAMES_MAX || log->batch.piece_count + 6 > (int)HX_BATCH_PIECES_MAX ||
           log->batch.staged + 2 * HX_INLINE_BYTES + HX_RECORD_HEAD_MAX > HX_STAGE_BYTES;
}

bool hx_frame_log_segment_is_full(const hx_frame_log *log, uint64_t length)
{
    uint64_t at = log->tail.offset ? log->tail.offset : sizeof(hx_segment_head);
    return at + hx_frame_padded(length) > log->active->size && at > sizeof(hx_segment_head);
}

void hx_frame_log_continue_in(hx_frame_log *log, hx_segment *next)
{
    HX_CHECK(log->batch.frames == 0);
    hx_frame_log_sync(log); /* HX_FRAME_SYNCED */
    log->active->end = log->tail.offset;
    log->active = next;
    log->tail.segment = next->number;
    log->tail.offset = 0;
}

void hx_frame_log_begin_frame(hx_frame_log *log, uint64_t length)
{
    if (log->batch.piece_count == 0) log->batch.offset = log->tail.offset;
    if (log->tail.offset == 0) stage_segment_head(log, length);
}

uint64_t hx_frame_draft_length(const hx_frame_draft *draft)
{
    return sizeof(hx_frame_head) + draft->head.len + draft->rest[0].len + draft->rest[1].len;
}

void hx_frame_log_append(hx_frame_log *log, const hx_frame_draft *draft)
{
    static const char zeros[HX_FRAME_ALIGN];
    uint64_t length = hx_frame_draft_length(draft), padded = hx_frame_padded(length);
    hx_frame_head frame = {.length = (uint32_t)length,
                           .sequence = log->tail.sequence,
                           .synced = log->durable,
                           .epoch = draft->epoch,
                           .stamp = draft->stamp,
                           .segment = log->active->number,
                           .kind = (uint8_t)draft->kind,
                           .previous = log->tail.hash};
    hx_frame_seal(&frame, log->generation, draft->checked.len > 0 ? draft->checked : draft->head);
    stage(log, &frame, sizeof frame);
    if (draft->head.len <= HX_INLINE_BYTES)
        stage(log, draft->head.ptr, draft->head.len);
    else
        refer(log, draft->head);
    bool is_small = draft->rest[0].len + draft->rest[1].len <= HX_INLINE_BYTES;
    for (size_t i = 0; i < 2; i++) {
        if (is_small)
            stage(log, draft->rest[i].ptr, draft->rest[i].len);
        else
            refer(log, draft->rest[i]);
    }
    stage(log, zeros, padded - length);
    log->tail.hash = hx_frame_hash(&frame, draft->head);
    log->tail.sequence++;
    log->tail.offset += padded;
    if (draft->stamp > log->tail.stamp) log->tail.stamp = draft->stamp;
    if (log->tail.offset > log->active->size) log->active->size = log->tail.offset;
    log->batch.frames++;
}

/* Written when there is nothing else to do, and not synced for its own sake: by it a later start knows that what lies
 * before it was acknowledged, and so that a bad byte there is damage and not a torn tail. */
void hx_frame_log_confirm(hx_frame_log *log, hx_ms now)
{
    hx_frame_draft synced = {.kind = HX_FRAME_SYNCED, .stamp = now};
    log->unconfirmed = false;
    if (log->tail.offset + sizeof(hx_frame_head) > log->active->size) return;
    hx_frame_log_begin_frame(log, sizeof(hx_frame_head));
    hx_frame_log_append(log, &synced);
    write_batch(log);
}
