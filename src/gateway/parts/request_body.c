/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/parts/request_body.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void hx_body_init(hx_body *body, hx_arena *arena, uint64_t len_max, uint64_t spool_from, const char *spool_directory)
{
    *body = (hx_body){.len_max = len_max, .spool_directory = spool_directory, .file = -1};
    hx_buf_init(&body->memory, arena, (size_t)(len_max < spool_from ? len_max : spool_from));
}

static bool write_all(int file, hx_slice bytes)
{
    while (bytes.len > 0) {
        ssize_t written = write(file, bytes.ptr, bytes.len);
        if (written <= 0) return false;
        bytes = hx_slice_from(bytes, (size_t)written);
    }
    return true;
}

/* Not every file system has files without a name; there it is taken away at once. */
static int open_unlinked(const char *directory)
{
    int file = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
    char path[PATH_MAX];
    int len = snprintf(path, sizeof path, "%s/hapax-XXXXXX", directory);
    if (len < 0 || (size_t)len >= sizeof path) return -1;
    file = mkostemp(path, O_CLOEXEC);
    if (file >= 0) (void)unlink(path);
    return file;
}

static bool move_to_file(hx_body *body)
{
    body->file = open_unlinked(body->spool_directory);
    if (body->file < 0) return false;
    if (write_all(body->file, hx_buf_slice(&body->memory))) return true;
    int why = errno;
    close(body->file); /* what there is of it is whole in memory */
    body->file = -1;
    errno = why;
    return false;
}

bool hx_body_can_spool(const char *directory)
{
    int file = open_unlinked(directory);
    if (file >= 0) close(file);
    return file >= 0;
}

void hx_body_say_no_room(const char *directory)
{
    static _Atomic hx_ms said_at;
    int why = errno;
    hx_ms now = hx_clock_now(), before = atomic_load(&said_at);
    bool is_due = before == 0 || now - before >= HX_MINUTE;
    if (!is_due || !atomic_compare_exchange_strong(&said_at, &before, now)) return;
    hx_log_begin(HX_EVENT_body_file_failed);
    hx_log_text("directory", directory);
    hx_log_text("error", strerror(why));
    hx_log_text("hint",
                "large requests get 503 and large responses are not stored; set TMPDIR to a directory with free space");
    hx_log_end();
}

static hx_body_result no_room(const hx_body *body)
{
    hx_body_say_no_room(body->spool_directory);
    return HX_BODY_NO_ROOM;
}

hx_body_result hx_body_append(hx_body *body, hx_slice piece)
{
    if (piece.len > body->len_max - body->len) return HX_BODY_TOO_LARGE;
    if (body->file < 0 && !hx_buf_append(&body->memory, piece)) {
        if (!move_to_file(body)) return no_room(body);
    }
    if (body->file >= 0 && !write_all(body->file, piece)) return no_room(body);
    body->len += piece.len;
    return HX_BODY_OK;
}

bool hx_body_whole(hx_body *body, hx_slice *whole)
{
    if (body->file < 0) {
        *whole = hx_buf_slice(&body->memory);
        return true;
    }
    if (body->mapped) {
        *whole = (hx_slice){body->mapped, (size_t)body->len};
        return true;
    }
    void *mapped = mmap(NULL, (size_t)body->len, PROT_READ, MAP_PRIVATE, body->file, 0);
    if (mapped == MAP_FAILED) return false;
    body->mapped = mapped;
    *whole = (hx_slice){mapped, (size_t)body->len};
    return true;
}

void hx_body_unload(const hx_body *body)
{
    if (body->mapped) (void)madvise(body->mapped, (size_t)body->len, MADV_DONTNEED);
}

void hx_body_unmap(hx_body *body)
{
    if (body->mapped) munmap(body->mapped, (size_t)body->len);
    body->mapped = NULL;
}

void hx_body_free(hx_body *body)
{
    hx_body_unmap(body);
    if (body->file >= 0) close(body->file);
    body->file = -1;
}

void hx_body_reset(hx_body *body)
{
    hx_body_free(body);
    body->len = body->memory.len = 0;
}
