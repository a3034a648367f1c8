/* SPDX-License-Identifier: Apache-2.0 */
/* Room on the disk. New operations are refused before the last of it is gone (options.free_bytes_floor, and by counting
 * what is in flight), so that those in flight can end; and where others fill the disk to the last byte, there is a file
 * beside the store that is given up then, FILE-reserve.
 *
 * What is committed takes room twice: in the log, and when it is brought into the file. The log is written over once
 * all of it is in the file, and not before. So the log is kept half as long as the reserve, which can always take it
 * in; and where there is little room it is brought into the file after every commit, without large answers in it.
 *
 * Several processes share the reserve: whoever needs it removes it, whoever sees room again puts it back. */
#include "store/sqlite/sqlite.h"

#include "base/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define FLOOR_BYTES (UINT64_C(256) << 20)
#define RESERVE_BYTES (UINT64_C(4) << 20)
#define LOG_PAGES_MIN 32u
#define SMALL_DISK_PART 16u
#define LOOK_EVERY_NS INT64_C(1000000000)
/* The most that a claim and its end take without the answer: two rows of each, in the file and in the log. */
#define CLAIM_BYTES UINT64_C(8192)
#define PLENTY_BYTES (UINT64_C(64) << 20) /* from here on nobody counts */

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
    s->is_broken = true;
    return gone;
}

void hx_sqlite_shorten_log(hx_sqlite *s)
{
    (void)sqlite3_wal_checkpoint_v2(s->rows.db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
}

static void say(const hx_sqlite *s, hx_log_event event, const char *hint)
{
    hx_log_begin(event);
    hx_log_text("store", s->path);
    if (hint) hx_log_text("hint", hint);
    hx_log_end();
}

static void look_at_limit(hx_sqlite *s)
{
    uint64_t most = s->bytes_max;
    hx_sqlite_tables_size size;
    if (most == 0 || hx_sqlite_tables_pages(&s->rows, &size) != SQLITE_OK) {
        s->is_over_limit = false;
        return;
    }
    /* what is in flight gets the last sixteenth */
    bool over = (size.pages - size.free_pages) * size.page_bytes > most - most / SMALL_DISK_PART;
    if (over && !s->is_over_limit)
        say(s, HX_EVENT_sqlite_limit_reached,
            "raise store_max, shorten lifetimes, or remove old rows from hapax_history");
    s->is_over_limit = over;
}

/* So many new operations may begin, that those in flight can still end. */
static uint64_t room_for(hx_sqlite *s, uint64_t free_bytes)
{
    if (free_bytes >= PLENTY_BYTES) return UINT64_MAX;
    hx_sqlite_tables_totals totals;
    if (hx_sqlite_tables_count(&s->rows, &totals) != SQLITE_OK) return 0;
    uint64_t room = free_bytes / CLAIM_BYTES;
    return room > totals.processing ? room - totals.processing : 0;
}

void hx_sqlite_set_log(hx_sqlite *s)
{
    disk d;
    hx_sqlite_tables_size size;
    if (!look_at_disk(s, &d) || hx_sqlite_tables_pages(&s->rows, &size) != SQLITE_OK) return;
    uint64_t pages = least(RESERVE_BYTES, d.all / SMALL_DISK_PART) / size.page_bytes / 2;
    (void)sqlite3_wal_autocheckpoint(s->rows.db, (int)(pages > LOG_PAGES_MIN ? pages : LOG_PAGES_MIN));
}

bool hx_sqlite_has_room_for(hx_sqlite *s, uint64_t answer_bytes)
{
    disk d;
    return !look_at_disk(s, &d) || d.free >= PLENTY_BYTES || d.free / 2 >= answer_bytes + CLAIM_BYTES;
}

void hx_sqlite_look_for_room(hx_sqlite *s, bool now)
{
    disk d;
    if (!look_at_disk(s, &d)) return;
    uint64_t part = d.all / SMALL_DISK_PART;
    uint64_t floor = s->options.free_bytes_floor ? s->options.free_bytes_floor : least(FLOOR_BYTES, part);
    bool below = d.free < floor;
    if (below && !s->is_below_floor) say(s, HX_EVENT_sqlite_disk_full, "free space on the disk that the store is on");
    s->is_below_floor = below;
    s->new_max = below ? 0 : room_for(s, d.free);
    int64_t at = hx_clock_mono_ns();
    if (!now && at - s->looked_at_ns < LOOK_EVERY_NS) return;
    s->looked_at_ns = at;
    look_at_limit(s);
    uint64_t reserve = least(RESERVE_BYTES, part);
    bool has_reserve = !below && keep_reserve(s, reserve);
    if (s->is_tight && has_reserve && look_at_disk(s, &d) && d.free >= reserve && d.free >= floor) {
        s->is_tight = s->is_broken = false;
        say(s, HX_EVENT_sqlite_not_full, NULL);
    }
}
