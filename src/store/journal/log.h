/* SPDX-License-Identifier: Apache-2.0 */
/* The log: frames of any kind, appended to segments in batches. It knows frames and segments, not operations; what a
 * kind of frame means is a row of hx_frame_kinds (segment.h).
 *
 *     append, in memory  -->  commit: one gathered write, one fdatasync  -->  log->durable
 *
 * One thread uses it: the writer, or hx_journal_open before there are threads. Before it appends it asks whether the
 * batch or the segment is full, and then commits first, so that it decides what becomes visible with each commit. A
 * failed write or sync ends the process: what the disk then holds is not known, and trying again would only hide
 * that. */
#ifndef HX_STORE_JOURNAL_LOG_H
#define HX_STORE_JOURNAL_LOG_H

#include "store/journal/segment.h"

#include <stdatomic.h>
#include <sys/uio.h>

#define HX_PAGE_BYTES 4096u
#define HX_BATCH_FRAMES_MAX 1024u
#define HX_BATCH_PIECES_MAX 256u
#define HX_STAGE_BYTES (1u << 20)
#define HX_INLINE_BYTES (32u << 10) /* largest part of a frame that is copied; a larger one is written from its place */

typedef struct hx_segment {
    struct hx_segment *next; /* link of the spares */
    uint32_t number;
    int fd;
    uint64_t size;         /* size of the file */
    uint64_t live;         /* number of frames that the index points to */
    uint64_t live_bytes;   /* their size, by size class */
    uint64_t end;          /* end of the last frame; for the active segment see the tail */
    bool unhinted;         /* full, without a valid hint: was read at the start */
    _Atomic unsigned pins; /* number of responses being read from it, which keep the file open */
} hx_segment;

/* A frame that is to be appended. */
typedef struct {
    hx_frame_kind kind;
    uint64_t epoch;
    hx_ms stamp;
    hx_slice head;    /* covered by the frame's hash, and its checksum */
    hx_slice checked; /* covered by the checksum instead, if it isn't empty: the first bytes of the payload */
    hx_slice rest[2]; /* behind the head, under checksums of their own. A head or a rest of more than HX_INLINE_BYTES
                       * lives until the commit */
} hx_frame_draft;

typedef struct {
    const char *path;
    uint64_t generation;
    hx_segment *active;
    hx_tail tail;
    _Atomic uint64_t durable; /* sequence of the first frame that may not be durable */
    _Atomic uint64_t commits;
    bool unconfirmed; /* frames were committed since the last HX_FRAME_SYNCED */
    struct {
        unsigned frames;
        struct iovec pieces[HX_BATCH_PIECES_MAX];
        int piece_count;
        char *stage;
        size_t staged;
        uint64_t offset; /* start of the batch */
    } batch;
} hx_frame_log;

uint64_t hx_frame_draft_length(const hx_frame_draft *draft);

bool hx_frame_log_batch_is_full(const hx_frame_log *log);
/* Whether a frame of `length` needs another segment. One that is too long for any gets one of its own, which grows. */
bool hx_frame_log_segment_is_full(const hx_frame_log *log, uint64_t length);
/* Continues in another segment; the batch was committed. All that the old one holds is durable before a byte of the new
 * one is written. */
void hx_frame_log_continue_in(hx_frame_log *log, hx_segment *next);
/* Makes log->tail the place of the next frame, which has `length` bytes: neither batch nor segment may be full. */
void hx_frame_log_begin_frame(hx_frame_log *log, uint64_t length);
/* After hx_frame_log_begin_frame with the length of the draft. */
void hx_frame_log_append(hx_frame_log *log, const hx_frame_draft *draft);
/* Writes the batch, and syncs it. */
void hx_frame_log_commit(hx_frame_log *log);
/* Writes HX_FRAME_SYNCED behind the last commit if it fits there, without syncing it: where log->unconfirmed. */
void hx_frame_log_confirm(hx_frame_log *log, hx_ms now);
/* Syncs what was written without being synced. */
void hx_frame_log_sync(hx_frame_log *log);

#endif
