/* SPDX-License-Identifier: Apache-2.0 */
/* The journal's files, version 1. Little-endian, no padding but where it is named.
 *
 * A segment, NNNNNNNN.seg, is written full of zeros before it is used: zeros mean "nothing here".
 *
 *     segment head, 128 bytes           frame, at a multiple of 16 from byte 128 on
 *     0   8  "hapaxseg"                  0   4  length of head and payload, without the zeros up to the next frame
 *     8   4  version, 1                  4   4  CRC-32C of generation (8), length (8), bytes 8 to 80, the record's head
 *    12   4  segment number              8   8  sequence: one more than the frame before, over all segments
 *    16   8  generation of the store    16   8  synced: the first sequence not yet durable when this was written
 *    24   8  sequence of first frame    24   8  epoch
 *    32   8  highest epoch before it    32   8  stamp, milliseconds
 *    40   8  latest stamp before it     40   4  segment number
 *    48  32  hash of the frame before   44   1  kind
 *    80   8  size of the file, at least 45   3  zeros
 *    88  36  zeros                      48  32  hash of the frame before
 *   124   4  CRC-32C of bytes 0 to 124
 *                                       80   …  record's head (see record.c), answer; START: owner (8);
 *                                               ITEMS, ITEMS_MOVED: table, contents (see item_frame.c);
 *                                               CHECKPOINT: segment (4), zeros (4), sequence (8) of the first frame
 *                                               that is kept, hash of the frame before it (32)
 *
 * A frame's hash is the SHA-256 of its head and the record's head, or the table of items. Answer and contents are in it
 * by their CRCs only, so the chain can still be checked when they are dropped: NNNNNNNN.audit is a segment whose frames
 * lost them.
 *
 * Kinds are rows of the table below. A later version may add some, of whose payload the first 2,048 bytes are under the
 * frame's CRC: so a version that doesn't know a kind can tell such a frame from a torn one, and refuses to open the
 * store. Of items, too: the table and the contents have CRCs of their own besides, by which an archive is read.
 *
 * Reading: a frame counts when its CRC, its sequence and the hash of its predecessor fit, and its payload's own CRCs.
 * The first that doesn't is the end of the log if no frame after it says, by `synced`, that it was durable already;
 * a commit is written only after the one before it was synced, so only unacknowledged bytes can be torn. Otherwise the
 * log is damaged, which is never guessed away. */
#include "store/journal/segment.h"
#include "store/journal/item_frame.h"

#include "base/check.h"
#include "base/crc32c.h"
#include "core/crypto/sha256.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERSION 1u
#define WINDOW_BYTES (1u << 20)
static const char magic[8] = {'h', 'a', 'p', 'a', 'x', 's', 'e', 'g'};

static const hx_frame_traits kinds[] = {
    [HX_FRAME_RECORD] = {"record", HX_PAYLOAD_RECORD, .is_indexed = true, .moved_as = HX_FRAME_MOVED},
    [HX_FRAME_MOVED] = {"moved", HX_PAYLOAD_RECORD, .is_indexed = true, .is_copy = true, .moved_as = HX_FRAME_MOVED},
    [HX_FRAME_START] = {"start", HX_PAYLOAD_BYTES},
    [HX_FRAME_SYNCED] = {"synced", HX_PAYLOAD_NONE},
    [HX_FRAME_ITEMS] = {"items", HX_PAYLOAD_ITEMS, .is_indexed = true, .moved_as = HX_FRAME_ITEMS_MOVED},
    [HX_FRAME_ITEMS_MOVED] = {"items moved", HX_PAYLOAD_ITEMS, .is_indexed = true, .is_copy = true,
                              .moved_as = HX_FRAME_ITEMS_MOVED},
    [HX_FRAME_CHECKPOINT] = {"checkpoint", HX_PAYLOAD_BYTES},
};

const hx_frame_traits *hx_frame_traits_of(uint8_t kind)
{
    return kind < sizeof kinds / sizeof kinds[0] && kinds[kind].name ? &kinds[kind] : NULL;
}

hx_digest hx_frame_hash(const hx_frame_head *frame, hx_slice record_head)
{
    HX_UNINITIALIZED uint8_t here[sizeof *frame + HX_RECORD_HEAD_MAX + HX_SHA256_ROOM];
    bool is_large = record_head.len > HX_RECORD_HEAD_MAX;
    uint8_t *bytes = is_large ? malloc(sizeof *frame + record_head.len + HX_SHA256_ROOM) : here;
    if (!bytes) hx_fatal(HX_EXIT_BUG, "out of memory (%zu bytes)", record_head.len);
    memcpy(bytes, frame, sizeof *frame);
    if (record_head.len > 0) memcpy(bytes + sizeof *frame, record_head.ptr, record_head.len);
    hx_digest hash = hx_sha256_end(NULL, 0, bytes, sizeof *frame + record_head.len);
    if (is_large) free(bytes);
    return hash;
}

uint64_t hx_frame_padded(uint64_t length)
{
    return (length + HX_FRAME_ALIGN - 1) & ~(uint64_t)(HX_FRAME_ALIGN - 1);
}

/* What a frame of another store or another segment says can't pass for one of this. */
static uint32_t frame_crc(const hx_frame_head *f, uint64_t generation, hx_slice checked)
{
    uint64_t context[2] = {generation, f->length};
    uint32_t crc = hx_crc32c(0, (hx_slice){(const char *)context, sizeof context});
    crc = hx_crc32c(crc, (hx_slice){(const char *)f + 8, sizeof *f - 8});
    return hx_crc32c(crc, checked);
}

void hx_frame_seal(hx_frame_head *f, uint64_t generation, hx_slice checked)
{
    f->crc = frame_crc(f, generation, checked);
}

static uint32_t head_crc(const hx_segment_head *head)
{
    return hx_crc32c(0, (hx_slice){(const char *)head, offsetof(hx_segment_head, crc)});
}

void hx_segment_seal(hx_segment_head *head)
{
    memcpy(head->magic, magic, sizeof magic);
    head->version = VERSION;
    head->crc = head_crc(head);
}

bool hx_segment_valid(const hx_segment_head *head, uint64_t generation, uint32_t segment)
{
    return memcmp(head->magic, magic, sizeof magic) == 0 && head->version == VERSION && head->crc == head_crc(head) &&
           head->generation == generation && head->segment == segment;
}

void hx_segment_name(char out[HX_SEGMENT_NAME_BYTES], uint32_t segment, const char *suffix)
{
    (void)snprintf(out, HX_SEGMENT_NAME_BYTES, "%08" PRIu32 "%s", segment, suffix);
}

bool hx_segment_number(const char *name, const char *suffix, uint32_t *out)
{
    hx_slice n = hx_slice_of(name), s = hx_slice_of(suffix);
    if (n.len < 8 + s.len || !hx_slice_ends(n, s)) return false;
    uint64_t number;
    if (!hx_slice_to_u64(hx_slice_first(n, n.len - s.len), &number) || number == 0 || number >= 1u << 28) return false;
    *out = (uint32_t)number;
    return true;
}

bool hx_scan_begin(hx_scan *scan, int fd, uint32_t segment, uint64_t generation)
{
    struct stat st;
    *scan = (hx_scan){.fd = fd, .segment = segment, .generation = generation};
    if (fstat(fd, &st) != 0) {
        scan->error = errno;
        return false;
    }
    scan->size = (uint64_t)st.st_size;
    return true;
}

void hx_scan_end(hx_scan *scan)
{
    free(scan->window);
    *scan = (hx_scan){0};
}

const char *hx_scan_bytes(hx_scan *scan, uint64_t at, size_t len)
{
    if (at > scan->size || len > scan->size - at) return NULL;
    if (at >= scan->window_at && at + len <= scan->window_at + scan->window_len)
        return scan->window + (at - scan->window_at);
    size_t wanted = len > WINDOW_BYTES ? len : WINDOW_BYTES;
    if (wanted > scan->size - at) wanted = (size_t)(scan->size - at);
    if (wanted > scan->window_cap) {
        char *window = realloc(scan->window, wanted);
        if (!window) hx_fatal(HX_EXIT_BUG, "out of memory (%zu bytes)", wanted);
        scan->window = window;
        scan->window_cap = wanted;
    }
    scan->window_at = at;
    scan->window_len = 0;
    while (scan->window_len < wanted) {
        ssize_t n = pread(scan->fd, scan->window + scan->window_len, wanted - scan->window_len,
                          (off_t)(at + scan->window_len));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            scan->error = n < 0 ? errno : EIO;
            return NULL;
        }
        scan->window_len += (size_t)n;
    }
    return scan->window;
}

/* Reads the table, behind a frame head whose checksum is right or is not known. */
static bool read_table(hx_scan *scan, hx_frame *out)
{
    const hx_frame_head *h = &out->head;
    const char *bytes = hx_scan_bytes(scan, out->offset, sizeof *h + HX_ITEM_TABLE_BYTES);
    size_t len = bytes ? hx_item_frame_table_len(bytes + sizeof *h, h->length - sizeof *h) : 0;
    bytes = len > 0 ? hx_scan_bytes(scan, out->offset, sizeof *h + len) : NULL;
    if (!bytes) return false;
    out->record_head = (hx_slice){bytes + sizeof *h, len};
    if (!hx_item_table_is_whole(out->record_head)) return false;
    bool is_possible = hx_item_table_is_possible(out->record_head, h, out->traits->is_copy);
    scan->absurd |= !is_possible;
    return is_possible;
}

/* Reads what of the payload is checked with the frame's head, and the record's head. */
static bool read_payload(hx_scan *scan, hx_frame_payload payload, hx_frame *out)
{
    const hx_frame_head *h = &out->head;
    size_t rest = h->length - sizeof *h;
    uint64_t here = scan->size - out->offset - sizeof *h;
    size_t want = rest < HX_RECORD_HEAD_MAX ? rest : HX_RECORD_HEAD_MAX;
    if (want > here) want = (size_t)here;
    const char *bytes = hx_scan_bytes(scan, out->offset, sizeof *h + want);
    if (!bytes) return false;
    out->record_head = (hx_slice){bytes + sizeof *h, want};
    size_t head_len = want, answer_len = 0;
    if (payload == HX_PAYLOAD_RECORD &&
        (hx_record_decode_head(out->record_head, &out->record, &head_len, &answer_len) != HX_RECORD_OK ||
         head_len + answer_len != rest))
        return false;
    out->record_head.len = head_len;
    return true;
}

bool hx_scan_heads(hx_scan *scan, uint64_t offset, hx_frame *out)
{
    const char *bytes = hx_scan_bytes(scan, offset, sizeof out->head);
    if (!bytes) return false;
    memcpy(&out->head, bytes, sizeof out->head);
    const hx_frame_head *h = &out->head;
    out->offset = offset;
    out->record_head = HX_EMPTY;
    if (h->length < sizeof *h || h->segment != scan->segment) return false;
    if (!scan->bare && h->length > scan->size - offset) return false;
    if (h->kind == 0) return false;
    out->traits = hx_frame_traits_of(h->kind);
    hx_frame_payload payload = out->traits ? out->traits->payload : HX_PAYLOAD_BYTES;
    bool is_items = payload == HX_PAYLOAD_ITEMS;
    if (payload != HX_PAYLOAD_NONE && !read_payload(scan, payload, out)) return false;
    bool is_known_part = !(is_items && scan->bare); /* the archive lacks some of the bytes under the checksum */
    if (is_known_part && frame_crc(h, scan->generation, out->record_head) != h->crc) return false;
    if (!out->traits) {
        scan->unknown_kind = h->kind;
        scan->unknown_at = offset;
        return false;
    }
    bool fits = h->epoch <= HX_EPOCH_READ_MAX && h->length <= hx_class_bytes(15) && h->stamp <= HX_STAMP_MAX &&
                (payload != HX_PAYLOAD_RECORD || out->record.epoch <= HX_EPOCH_READ_MAX);
    scan->absurd |= !fits;
    return fits && (!is_items || read_table(scan, out));
}

bool hx_scan_at(hx_scan *scan, uint64_t offset, hx_frame *out)
{
    if (!hx_scan_heads(scan, offset, out)) return false;
    out->bytes = HX_EMPTY;
    hx_frame_payload payload = out->traits->payload;
    if (payload != HX_PAYLOAD_RECORD && payload != HX_PAYLOAD_ITEMS) return true;
    const char *bytes = hx_scan_bytes(scan, offset, out->head.length);
    if (!bytes) return false;
    bytes += sizeof out->head;
    out->bytes = (hx_slice){bytes, out->head.length - sizeof out->head};
    out->record_head.ptr = bytes; /* the window may have moved */
    if (payload == HX_PAYLOAD_ITEMS) return hx_item_contents_are_whole(out->bytes, out->record_head.len);
    return hx_record_decode(out->bytes, &out->record) == HX_RECORD_OK;
}

hx_scan_step hx_scan_next(hx_scan *scan, hx_tail *tail, hx_frame *out)
{
    static const hx_frame_head nothing;
    if (tail->offset + sizeof out->head > scan->size) return HX_SCAN_END;
    const char *bytes = hx_scan_bytes(scan, tail->offset, sizeof out->head);
    if (!bytes) return HX_SCAN_ERROR;
    if (memcmp(bytes, &nothing, sizeof nothing) == 0) return HX_SCAN_END;
    bool readable = scan->trusted ? hx_scan_heads(scan, tail->offset, out) : hx_scan_at(scan, tail->offset, out);
    if (!readable) return scan->error ? HX_SCAN_ERROR : HX_SCAN_BAD;
    const hx_frame_head *h = &out->head;
    if (h->sequence != tail->sequence) return HX_SCAN_BAD;
    if (!scan->trusted) {
        if (memcmp(&h->previous, &tail->hash, sizeof tail->hash) != 0) return HX_SCAN_BAD;
        tail->hash = hx_frame_hash(h, out->record_head);
    }
    tail->sequence++;
    tail->offset += hx_frame_padded(scan->bare ? sizeof *h + out->record_head.len : h->length);
    if (h->stamp > tail->stamp) tail->stamp = h->stamp;
    if (h->epoch > tail->epoch) tail->epoch = h->epoch;
    return HX_SCAN_FRAME;
}

hx_digest hx_scan_last_hash(hx_scan *scan, uint64_t offset)
{
    hx_frame frame;
    bool readable = hx_scan_heads(scan, offset, &frame);
    HX_CHECK(readable); /* it was, a moment ago */
    return hx_frame_hash(&frame.head, frame.record_head);
}

static bool is_zero(const char *bytes, size_t len)
{
    return len == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0);
}

uint64_t hx_scan_find_later(hx_scan *scan, uint64_t from, uint64_t sequence)
{
    hx_frame frame;
    uint64_t at = hx_frame_padded(from - sizeof(hx_segment_head)) + sizeof(hx_segment_head);
    while (at + sizeof frame.head <= scan->size) {
        uint64_t left = scan->size - at;
        size_t look = left < 4096 ? (size_t)left : 4096;
        const char *bytes = hx_scan_bytes(scan, at, look);
        if (!bytes) return UINT64_MAX;
        if (is_zero(bytes, look)) {
            at += look & ~(size_t)(HX_FRAME_ALIGN - 1);
            if (look < 4096) break;
            continue;
        }
        uint64_t end = at + look;
        for (; at < end && at + sizeof frame.head <= scan->size; at += HX_FRAME_ALIGN)
            if (hx_scan_heads(scan, at, &frame) && (sequence == 0 || frame.head.synced > sequence)) return at;
    }
    return UINT64_MAX;
}

uint64_t hx_scan_content_end(hx_scan *scan, uint64_t from)
{
    uint64_t end = from;
    for (uint64_t at = from; at < scan->size;) {
        size_t look = scan->size - at < 4096 ? (size_t)(scan->size - at) : 4096;
        const char *bytes = hx_scan_bytes(scan, at, look);
        if (!bytes) return end;
        at += look;
        if (!is_zero(bytes, look)) end = at;
    }
    return end;
}

static uint32_t seconds_of(hx_ms time)
{
    hx_ms seconds = time > 0 ? (time - 1) / HX_SECOND + 1 : 0;
    return seconds < HX_UNTIL_NEVER - 1 ? (uint32_t)seconds : HX_UNTIL_NEVER - 1;
}

void hx_entry_of(hx_index_entry *out, const hx_record *r, uint32_t segment, uint64_t offset, uint64_t length)
{
    *out = (hx_index_entry){.op = r->op,
                            .state = r->state,
                            .segment = segment,
                            .unit = (uint32_t)(offset / HX_PLACE_UNIT),
                            .size_class = hx_size_class(length),
                            .epoch = r->epoch,
                            .until_s = HX_UNTIL_NEVER,
                            .changed_min = (uint32_t)(r->changed_at / HX_MINUTE),
                            .principal = r->principal.bytes[0],
                            .lease_until = r->state == HX_PROCESSING ? r->lease_until : 0};
    bool ended = r->state == HX_COMPLETED || r->state == HX_FAILED;
    if (!ended && r->state != HX_EXPIRED) return;
    out->until_s = seconds_of(ended ? r->expires_at : r->tombstone_until);
    out->entombed = ended && seconds_of(r->tombstone_until) > out->until_s;
}
