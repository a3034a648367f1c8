/* SPDX-License-Identifier: Apache-2.0 */
/* What follows the head of a segment. The frames that are found are numbered, chained and sealed before they are read,
 * and so are their records and items: otherwise no change would get past the checksums. Whatever a frame says, what it
 * leaves in the index can be packed, and is found again. */
#include "base/check.h"
#include "base/crc32c.h"
#include "store/journal/item_frame.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES_MAX (64u << 10)
#define GENERATION 7u
#define SEGMENT 3u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t seal_record(char *record, size_t len)
{
    uint32_t head_len;
    if (len < 8) return len;
    memcpy(&head_len, record + 4, sizeof head_len);
    if (head_len < 16 || head_len > len || head_len > HX_RECORD_HEAD_MAX) return len;
    uint32_t crc = hx_crc32c(0, (hx_slice){record, head_len - 4});
    memcpy(record + head_len - 4, &crc, sizeof crc);
    return head_len;
}

/* Makes table and contents right: returns the length of the table. */
static size_t seal_items(char *payload, size_t len)
{
    size_t table_len = hx_item_frame_table_len(payload, len);
    if (table_len < HX_ITEM_TABLE_BYTES) return 0;
    hx_slice rest = hx_item_table_heads((hx_slice){payload, table_len});
    for (hx_item_head head; hx_item_head_take(&rest, &head);) {
        if (head.at < sizeof(hx_frame_head) + table_len ||
            head.at - sizeof(hx_frame_head) + head.item.meta.len + head.item.body.len > len)
            break;
        hx_item_head_fill(&head, (hx_slice){payload, len});
        const uint32_t crcs[2] = {hx_item_crc(head.item.key, head.item.meta),
                                  hx_item_crc(head.item.key, head.item.body)};
        memcpy(payload + (head.item.queue.ptr - payload) - HX_ITEM_HEAD_BYTES + 12, crcs, sizeof crcs);
    }
    uint32_t crc = hx_crc32c(0, (hx_slice){payload, table_len - sizeof crc});
    memcpy(payload + table_len - sizeof crc, &crc, sizeof crc);
    return table_len;
}

static void seal_frames(char *bytes, size_t size)
{
    hx_frame_head f;
    hx_digest previous = {0};
    uint64_t sequence = 1;
    for (size_t at = sizeof(hx_segment_head); at + sizeof f <= size; at += hx_frame_padded(f.length)) {
        memcpy(&f, bytes + at, sizeof f);
        f.kind = (uint8_t)(f.kind % 7);
        if (f.length < sizeof f || f.length > size - at) return;
        size_t rest = f.length - sizeof f;
        size_t head_len = f.kind == HX_FRAME_RECORD || f.kind == HX_FRAME_MOVED
                              ? seal_record(bytes + at + sizeof f, rest)
                          : f.kind == HX_FRAME_START ? rest
                                                     : 0;
        if (head_len > HX_RECORD_HEAD_MAX) head_len = HX_RECORD_HEAD_MAX;
        hx_slice head = {bytes + at + sizeof f, head_len}, checked = head;
        if (f.kind == HX_FRAME_ITEMS || f.kind == HX_FRAME_ITEMS_MOVED) {
            head.len = seal_items(bytes + at + sizeof f, rest);
            checked.len = rest < HX_RECORD_HEAD_MAX ? rest : HX_RECORD_HEAD_MAX;
        }
        f.segment = SEGMENT;
        f.sequence = sequence;
        f.previous = previous;
        hx_frame_seal(&f, GENERATION, checked);
        memcpy(bytes + at, &f, sizeof f);
        previous = hx_frame_hash(&f, head);
        sequence++;
    }
}

/* Whatever the table says, its items lie in the frame, one behind the other. */
static void scan_items(const hx_frame *frame, bool without_contents)
{
    hx_slice rest = hx_item_table_heads(frame->record_head);
    uint64_t at = sizeof frame->head + frame->record_head.len;
    uint32_t count = 0;
    for (hx_item_head head; hx_item_head_take(&rest, &head); count++) {
        HX_CHECK(head.at == at && head.item.key.len > 0);
        at += head.item.meta.len + head.item.body.len;
    }
    HX_CHECK(rest.len == 0 && at == frame->head.length && count == hx_item_table_count(frame->record_head));
    if (!without_contents) HX_CHECK(hx_item_contents_are_whole(frame->bytes, frame->record_head.len));
}

static void scan_all(int fd, bool trusted, bool bare)
{
    hx_scan scan;
    hx_frame frame;
    hx_scan_step step;
    hx_tail tail = {.segment = SEGMENT, .offset = sizeof(hx_segment_head), .sequence = 1};
    bool ok = hx_scan_begin(&scan, fd, SEGMENT, GENERATION);
    HX_CHECK(ok);
    scan.trusted = trusted;
    scan.bare = bare;
    while ((step = hx_scan_next(&scan, &tail, &frame)) == HX_SCAN_FRAME) {
        if (frame.traits->payload == HX_PAYLOAD_ITEMS) scan_items(&frame, bare || trusted);
        if (frame.traits->payload != HX_PAYLOAD_RECORD) continue;
        hx_index_entry entry, again;
        uint64_t words[3];
        hx_entry_of(&entry, &frame.record, SEGMENT, frame.offset, frame.head.length);
        hx_index_pack(&entry, words);
        hx_index_unpack(words, &again);
        HX_CHECK(again.epoch == entry.epoch && again.unit == entry.unit && again.state == entry.state);
    }
    HX_CHECK(step != HX_SCAN_ERROR && tail.epoch <= HX_EPOCH_READ_MAX);
    if (!bare) {
        (void)hx_scan_find_later(&scan, tail.offset, tail.sequence);
        HX_CHECK(hx_scan_content_end(&scan, sizeof(hx_segment_head)) <= scan.size);
    }
    hx_scan_end(&scan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char bytes[sizeof(hx_segment_head) + BYTES_MAX];
    if (fd < 0) fd = memfd_create("segment", MFD_CLOEXEC);
    if (size > BYTES_MAX) size = BYTES_MAX;
    size_t len = sizeof(hx_segment_head) + size;
    memset(bytes, 0, sizeof(hx_segment_head));
    if (size > 0) memcpy(bytes + sizeof(hx_segment_head), data, size);
    seal_frames(bytes, len);
    HX_CHECK(ftruncate(fd, (off_t)len) == 0 && pwrite(fd, bytes, len, 0) == (ssize_t)len);
    scan_all(fd, false, false);
    scan_all(fd, true, false);
    scan_all(fd, true, true);
    return 0;
}
