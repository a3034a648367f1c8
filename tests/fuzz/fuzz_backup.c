/* SPDX-License-Identifier: Apache-2.0 */
/* A backup, as `hapax store restore` reads it. Checksums and its length are made right first. Each record that
 * is handed out can be put into a store, and what can't be read is refused with a sentence. */
#include "base/check.h"
#include "base/crc32c.h"
#include "store/transfer/backup_file.h"
#include "store/journal/index.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES_MAX (64u << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Magic, length and checksums of header, frames and records. */
static void seal(char *bytes, size_t size)
{
    const uint32_t footer = UINT32_MAX, of_item = UINT32_C(1) << 31;
    const uint64_t all = size;
    uint64_t items;
    uint32_t length, head_len, crc;
    if (size < 512) return;
    memcpy(&items, bytes + 488, sizeof items);
    const uint32_t format = items > 0 ? 2 : 1;
    memcpy(bytes, "hapaxbak", 8);
    memcpy(bytes + 8, &format, sizeof format);
    memcpy(bytes + 48, &all, sizeof all);
    crc = hx_crc32c(0, (hx_slice){bytes, 508});
    memcpy(bytes + 508, &crc, sizeof crc);
    for (size_t at = 512; size - at >= 8; at += 8 + length) {
        memcpy(&length, bytes + at, sizeof length);
        if (length == footer) return;
        length &= ~of_item;
        if (length > size - at - 8) return;
        char *record = bytes + at + 8;
        if (length >= 8) memcpy(&head_len, record + 4, sizeof head_len);
        if (length >= 8 && head_len >= 16 && head_len <= length) {
            crc = hx_crc32c(0, (hx_slice){record, head_len - 4});
            memcpy(record + head_len - 4, &crc, sizeof crc);
        }
        crc = hx_crc32c(hx_crc32c(0, (hx_slice){bytes + at, 4}), (hx_slice){record, length});
        memcpy(bytes + at + 4, &crc, sizeof crc);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char bytes[BYTES_MAX];
    static int fd = -1;
    static char path[64], error[HX_BACKUP_ERROR_BYTES];
    if (fd < 0) {
        fd = memfd_create("backup", MFD_CLOEXEC);
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (size > BYTES_MAX) size = BYTES_MAX;
    if (size > 0) memcpy(bytes, data, size);
    seal(bytes, size);
    HX_CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, size, 0) == (ssize_t)size);
    hx_backup_about about;
    hx_arena arena = {0};
    error[0] = '\0';
    hx_backup_reader *reader = hx_backup_open(path, &about, error);
    HX_CHECK(reader != NULL || strlen(error) > 0);
    hx_backup_step step = HX_BACKUP_DAMAGED;
    hx_record record;
    hx_item item;
    while (reader && (step = hx_backup_next(reader, &arena, &record, &item, error)) <= HX_BACKUP_ITEM) {
        if (step == HX_BACKUP_RECORD)
            HX_CHECK(record.epoch > 0 && record.epoch <= HX_EPOCH_MAX && record.state != HX_ABSENT);
        else
            HX_CHECK(item.key.len > 0 && item.meta.len + item.body.len <= size);
        hx_arena_free(&arena);
    }
    HX_CHECK(step == HX_BACKUP_END || strlen(error) > 0);
    hx_backup_close(&reader);
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}
