/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of the journal's files, and reading them back. The format is described on top of segment.c. */
#ifndef HX_STORE_JOURNAL_SEGMENT_H
#define HX_STORE_JOURNAL_SEGMENT_H

#include "core/operation/record.h"
#include "store/journal/index.h"

#define HX_FRAME_ALIGN HX_PLACE_UNIT
#define HX_SEGMENT_NAME_BYTES 24u
/* What no store writes, whatever its checksum says: after it there must be epochs left, and a calendar. */
#define HX_EPOCH_READ_MAX (HX_EPOCH_MAX - (UINT64_C(1) << 35))
#define HX_STAMP_MAX ((hx_ms)253402300799999) /* the year 9999 */

typedef enum {
    HX_FRAME_RECORD = 1,  /* a change of state */
    HX_FRAME_MOVED,       /* a record copied forward out of an old segment: no change, no audit row */
    HX_FRAME_START,       /* a process has opened the store; or, with an epoch, it was raised to that */
    HX_FRAME_SYNCED,      /* all before it was durable when it was written; has no payload */
    HX_FRAME_ITEMS,       /* a commit of items: their version is the frame's sequence */
    HX_FRAME_ITEMS_MOVED, /* items copied forward out of an old segment, under their versions */
    HX_FRAME_CHECKPOINT   /* the archive before a segment is removed: the chain begins there */
} hx_frame_kind;

/* How a frame is read. Its head and, up to HX_RECORD_HEAD_MAX bytes, what follows is under its checksum and hash. */
typedef enum {
    HX_PAYLOAD_NONE,
    HX_PAYLOAD_BYTES,  /* all of it under the checksum; also assumed of a kind that this version doesn't know */
    HX_PAYLOAD_RECORD, /* a record: its head under the checksum, its answer under one of its own */
    HX_PAYLOAD_ITEMS   /* items (item_frame.h): as BYTES, but only the table is under the hash */
} hx_frame_payload;

/* What the parts of the journal do with frames of a kind. They ask this table and name no kinds, so that a new kind is
 * a new row. */
typedef struct {
    const char *name; /* NULL: the kind doesn't exist */
    hx_frame_payload payload;
    bool is_indexed;        /* a start replays it into the index, and a hint has an entry of it */
    bool is_copy;           /* no change of its own: a history leaves it out where it has the original */
    hx_frame_kind moved_as; /* a sweep copies it forward as this kind while the index names its place; 0: never */
} hx_frame_traits;

/* NULL: this version doesn't know the kind. */
const hx_frame_traits *hx_frame_traits_of(uint8_t kind);

typedef struct {
    uint32_t length;
    uint32_t crc;
    uint64_t sequence;
    uint64_t synced;
    uint64_t epoch;
    hx_ms stamp;
    uint32_t segment;
    uint8_t kind;
    uint8_t zero[3];
    hx_digest previous;
} hx_frame_head;

typedef struct {
    char magic[8];
    uint32_t version;
    uint32_t segment;
    uint64_t generation;
    uint64_t sequence;
    uint64_t epoch;
    hx_ms stamp;
    hx_digest previous;
    uint64_t size;
    uint8_t zero[36];
    uint32_t crc;
} hx_segment_head;

/* The payload of HX_FRAME_CHECKPOINT: the first frame that is kept. */
typedef struct {
    uint32_t segment;
    uint32_t zero;
    uint64_t sequence;
    hx_digest previous; /* hash of the frame before it */
} hx_checkpoint;

_Static_assert(sizeof(hx_frame_head) == 80 && sizeof(hx_segment_head) == 128 && sizeof(hx_checkpoint) == 48,
               "written as they stand in memory");

/* The end of a log: where the next frame goes, and what it builds on. */
typedef struct {
    uint32_t segment;
    uint64_t offset;
    uint64_t sequence; /* sequence of the next frame */
    uint64_t epoch;    /* highest epoch that was drawn */
    hx_ms stamp;       /* latest stamp */
    hx_digest hash;    /* hash of the last frame */
} hx_tail;

/* SHA-256 of a frame without its answer or contents: its head, and the record's head or the table of items. */
hx_digest hx_frame_hash(const hx_frame_head *frame, hx_slice record_head);

uint64_t hx_frame_padded(uint64_t length);
/* Closes a frame with its checksum, over that part of the payload. */
void hx_frame_seal(hx_frame_head *frame, uint64_t generation, hx_slice checked);
void hx_segment_seal(hx_segment_head *head);
bool hx_segment_valid(const hx_segment_head *head, uint64_t generation, uint32_t segment);

/* "00000001.seg" */
void hx_segment_name(char out[HX_SEGMENT_NAME_BYTES], uint32_t segment, const char *suffix);
bool hx_segment_number(const char *name, const char *suffix, uint32_t *out);

/* Reads one segment from front to back through a window of memory. */
typedef struct {
    int fd;
    uint32_t segment;
    uint64_t generation;
    uint64_t size;
    char *window;
    size_t window_cap;
    uint64_t window_at;
    size_t window_len;
    int error;            /* errno of a read that failed */
    bool absurd;          /* a whole frame has an impossible value: damage, not a torn tail */
    uint8_t unknown_kind; /* kind of a whole frame that this version doesn't know; 0: there was none */
    uint64_t unknown_at;
    bool trusted; /* this process wrote it: answers and chain are not checked, see hx_scan_last_hash */
    bool bare;    /* an .audit file, which has no responses and contents; only with `trusted` */
} hx_scan;

typedef struct {
    hx_frame_head head;
    uint64_t offset;
    hx_slice bytes;       /* the whole payload of a record or of items, in the window: valid until the next step */
    hx_slice record_head; /* the head of the record, or the table of the items */
    hx_record record;     /* only for HX_PAYLOAD_RECORD */
    const hx_frame_traits *traits;
} hx_frame;

typedef enum { HX_SCAN_FRAME, HX_SCAN_END, HX_SCAN_BAD, HX_SCAN_ERROR } hx_scan_step;

/* fd stays the caller's. False with scan->error when its size can't be read. */
bool hx_scan_begin(hx_scan *scan, int fd, uint32_t segment, uint64_t generation) HX_MUST_USE;
void hx_scan_end(hx_scan *scan);
/* Reads `len` bytes at `at`; NULL past the end of the file or on an error. */
const char *hx_scan_bytes(hx_scan *scan, uint64_t at, size_t len);
/* The frame at tail->offset, which must be the one that tail expects; moves tail past it. END: zeros stand there. */
hx_scan_step hx_scan_next(hx_scan *scan, hx_tail *tail, hx_frame *out);
/* After a trusted scan: the hash of the frame at `offset`, which it left out. */
hx_digest hx_scan_last_hash(hx_scan *scan, uint64_t offset);
/* The frame at `offset`, whatever its number: for salvage and for moving. Its chain is not checked. */
bool hx_scan_at(hx_scan *scan, uint64_t offset, hx_frame *out);
/* The same without looking at the answer or the contents, which may be damaged. */
bool hx_scan_heads(hx_scan *scan, uint64_t offset, hx_frame *out);
/* The first offset from `from` on with a whole frame that was written when frame `sequence` was already
 * durable; with sequence 0 any frame. UINT64_MAX: none. Distinguishes damage from a tail that was torn: torn is only
 * what was written after the last sync. */
uint64_t hx_scan_find_later(hx_scan *scan, uint64_t from, uint64_t sequence);
/* Where the last byte that is not zero ends, at or after `from`. */
uint64_t hx_scan_content_end(hx_scan *scan, uint64_t from);

/* The index entry that a frame leaves. */
void hx_entry_of(hx_index_entry *out, const hx_record *record, uint32_t segment, uint64_t offset, uint64_t length);

#endif
