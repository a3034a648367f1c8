/* SPDX-License-Identifier: Apache-2.0 */
/* Room on the disk. New operations are refused before the last of it is gone (options.free_bytes_floor), so that those
 * in flight can end; and where others fill the disk to the last byte, there is a file beside the store that is given up
 * then, FILE-reserve. What ends then is written into the room that this leaves, and over the log, which is brought into
 * the file after every commit as long as there is no room.
 *
 * Several processes share the reserve: whoever needs it removes it, whoever sees room again puts it back. */
#include "store/sqlite.h"

#include "base/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define FLOOR_BYTES (UINT64_C(256) << 20)
#define RESERVE_BYTES (UINT64_C(1) << 20)
#define SMALL_DISK_PART 16u
#define LOOK_EVERY_NS INT64_C(1000000000)

typedef struct {
    uint64_t all, free;
} disk;

static bool look_at_disk(const hx_sqlite *s, disk *out)
{
    struct statvfs fs;
    if (statvfs(s->path, &fs) != 0) return false;
    *out = (disk){(uint64_t)fs.f_blocks * fs.f_frsize, (uint64_t)fs.f_bavail * fs.f_frsize};
    return true;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static char *reserve_path(const hx_sqlite *s)
{
    char *path = NULL;
    return asprintf(&path, "%s-reserve", s->path) > 0 ? path : NULL;
}

/* True: it is there. */
static bool keep_reserve(const hx_sqlite *s, uint64_t bytes)
{
    char *path = reserve_path(s);
    struct stat st;
    bool there = path && stat(path, &st) == 0 && (uint64_t)st.st_size >= bytes;
    if (path && !there) {
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        there = fd >= 0 && posix_fallocate(fd, 0, (off_t)bytes) == 0;
        if (fd >= 0) close(fd);
        if (fd >= 0 && !there) (void)unlink(path);
    }
    free(path);
    return there;
}

bool hx_sqlite_break_reserve(hx_sqlite *s)
{
    char *path = reserve_path(s);
    bool gone = path && unlink(path) == 0;
    free(path);
    return gone;
}

void hx_sqlite_shorten_log(hx_sqlite *s)
{
    (void)sqlite3_wal_checkpoint_v2(s->rows.db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
}

static void say(const hx_sqlite *s, const char *what, const char *hint)
{
    hx_log_begin(HX_LOG_WARN, what);
    hx_log_text("store", s->path);
    hx_log_text("hint", hint);
    hx_log_end();
}

static void look_at_limit(hx_sqlite *s)
{
    uint64_t most = s->bytes_max;
    hx_rows_size size;
    if (most == 0 || hx_rows_pages(&s->rows, &size) != SQLITE_OK) {
        s->is_over_limit = false;
        return;
    }
    /* what is in flight gets the last sixteenth */
    bool over = (size.pages - size.free_pages) * size.page_bytes > most - most / SMALL_DISK_PART;
    if (over && !s->is_over_limit)
        say(s, "the store has reached its limit: new operations are refused",
            "raise store_max, shorten lifetimes, or remove old rows from hapax_history");
    s->is_over_limit = over;
}

void hx_sqlite_look_for_room(hx_sqlite *s, bool now)
{
    int64_t at = hx_clock_mono_ns();
    if (!now && at - s->looked_at_ns < LOOK_EVERY_NS) return;
    s->looked_at_ns = at;
    look_at_limit(s);
    disk d;
    if (!look_at_disk(s, &d)) return;
    uint64_t part = d.all / SMALL_DISK_PART;
    uint64_t floor = s->options.free_bytes_floor ? s->options.free_bytes_floor : least(FLOOR_BYTES, part);
    uint64_t reserve = least(RESERVE_BYTES, part);
    bool below = d.free < floor;
    if (below && !s->is_below_floor)
        say(s, "the disk is nearly full: new operations are refused", "make room on the disk that the store is on");
    s->is_below_floor = below;
    bool has_reserve = !below && keep_reserve(s, reserve);
    if (s->is_tight && has_reserve && look_at_disk(s, &d) && d.free >= reserve && d.free >= floor) {
        s->is_tight = false;
        say(s, "there is room again: new operations are taken", "nothing to do");
    }
}
