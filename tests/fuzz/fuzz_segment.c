/* SPDX-License-Identifier: Apache-2.0 */
/* What follows the head of a segment. The frames that are found are numbered, chained and sealed before they are read,
 * and so are their records: otherwise no change would get past the checksums. Whatever a frame says, what it leaves in
 * the index can be packed, and is found again. */
#include "base/check.h"
#include "base/crc32c.h"
#include "store/journal/segment.h"

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

static void seal_frames(char *bytes, size_t size)
{
    hx_frame_head f;
    hx_digest previous = {0};
    uint64_t sequence = 1;
    for (size_t at = sizeof(hx_segment_head); at + sizeof f <= size; at += hx_frame_padded(f.length)) {
        memcpy(&f, bytes + at, sizeof f);
        f.kind = (uint8_t)(f.kind % 5);
        if (f.length < sizeof f || f.length > size - at) return;
        size_t rest = f.length - sizeof f;
        size_t head_len = f.kind == HX_FRAME_RECORD || f.kind == HX_FRAME_MOVED
                              ? seal_record(bytes + at + sizeof f, rest)
                          : f.kind == HX_FRAME_START ? rest
                                                     : 0;
        if (head_len > HX_RECORD_HEAD_MAX) head_len = HX_RECORD_HEAD_MAX;
        hx_slice head = {bytes + at + sizeof f, head_len};
        f.segment = SEGMENT;
        f.sequence = sequence;
        f.previous = previous;
        hx_frame_seal(&f, GENERATION, head);
        memcpy(bytes + at, &f, sizeof f);
        previous = hx_frame_hash(&f, head);
        sequence++;
    }
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
        if (frame.head.kind != HX_FRAME_RECORD && frame.head.kind != HX_FRAME_MOVED) continue;
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
