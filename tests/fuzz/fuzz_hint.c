/* SPDX-License-Identifier: Apache-2.0 */
/* A hint of a segment in a journal that is never opened for writing. Its magic, its place and its checksums are made
 * right before it is read, so that only what it says can be wrong: then nothing has changed, or all of it is in the
 * index and the counts are those of the index. */
#include "base/check.h"
#include "base/crc32c.h"
#include "store/journal/open.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEGMENT 3u
#define SEGMENT_SIZE (1u << 16)
#define BYTES_MAX (64u << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int folder = -1, segment_fd = -1;
static char path[] = "/tmp/hapax-fuzz-hint-XXXXXX";

static void clean_up(void)
{
    (void)unlinkat(folder, "00000003.hint", 0);
    (void)rmdir(path);
}

static void prepare(void)
{
    HX_CHECK(mkdtemp(path) != NULL);
    folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    segment_fd = memfd_create("segment", MFD_CLOEXEC);
    HX_CHECK(folder >= 0 && segment_fd >= 0 && ftruncate(segment_fd, SEGMENT_SIZE) == 0);
    HX_CHECK(atexit(clean_up) == 0);
}

static void write_hint(const uint8_t *data, size_t size)
{
    static char bytes[BYTES_MAX];
    const uint32_t segment = SEGMENT;
    const uint64_t generation = 0;
    memcpy(bytes, data, size);
    if (size >= 128) {
        uint64_t items;
        memcpy(&items, bytes + 112, sizeof items);
        const uint32_t version = items > 0 ? 4 : 3;
        memcpy(bytes, "hapaxhnt", 8);
        memcpy(bytes + 8, &version, sizeof version);
        memcpy(bytes + 12, &segment, sizeof segment);
        memcpy(bytes + 16, &generation, sizeof generation);
        uint32_t crc = hx_crc32c(0, (hx_slice){bytes + 128, size - 128});
        memcpy(bytes + 108, &crc, sizeof crc);
        crc = hx_crc32c(0, (hx_slice){bytes, 124});
        memcpy(bytes + 124, &crc, sizeof crc);
    }
    int fd = openat(folder, "00000003.hint", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    HX_CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (folder < 0) prepare();
    write_hint(data, size < BYTES_MAX ? size : BYTES_MAX);
    hx_store_options options = {0};
    hx_journal *j = hx_journal_new(HX_LIT("fuzz"), &options);
    j->dir_fd = dup(folder);
    hx_segment *s = calloc(1, sizeof *s);
    HX_CHECK(s != NULL && j->dir_fd >= 0);
    *s = (hx_segment){.number = SEGMENT, .fd = dup(segment_fd), .size = SEGMENT_SIZE};
    atomic_store(&j->segments[SEGMENT], s);
    j->index = hx_index_new(j->readers, (size_t)hx_hint_count(j, SEGMENT));
    hx_tail tail = {.segment = SEGMENT, .offset = sizeof(hx_segment_head), .sequence = 1};
    const hx_tail before = tail;
    bool loaded = hx_hint_load(j, SEGMENT, NULL, &tail);
    HX_CHECK(s->live == hx_index_count(j->index) + j->items.index.by_key.count);
    if (loaded)
        HX_CHECK(tail.offset <= SEGMENT_SIZE && tail.epoch <= HX_EPOCH_READ_MAX);
    else
        HX_CHECK(s->live == 0 && memcmp(&tail, &before, sizeof tail) == 0);
    hx_journal_free(j);
    return 0;
}
