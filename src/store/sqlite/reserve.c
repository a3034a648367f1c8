/* SPDX-License-Identifier: Apache-2.0 */
/* Space on the disk. New operations are refused before the last of it is used (options.free_bytes_floor, and by
 * counting operations in flight), so that those in flight can be settled. In case other programs fill the disk to the
 * last byte there is a file beside the store, FILE-reserve, which is removed then.
 *
 * A commit takes space twice: in the log, and in the file when the log is checkpointed. The log is reused only after a
 * checkpoint of all of it. So the log is kept half as long as the reserve, which is always enough for a checkpoint; and
 * while space is short, there is a checkpoint after every commit, and large responses are left out.
 *
 * Several processes share the reserve: one that needs it removes it, and one that finds space again makes it. */
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
/* The most that a claim and its outcome take without the response: two rows each, in the file and in the log. */
#define CLAIM_BYTES UINT64_C(8192)
#define PLENTY_BYTES (UINT64_C(64) << 20) /* with this much, operations in flight are not counted */

typedef struct {
    uint64_t all, free;
} disk;

static bool read_disk(const hx_sqlite *s, disk *out)
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

/* Makes the reserve where it is missing. False: there is no space for it. */
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

bool hx_sqlite_use_reserve(hx_sqlite *s)
{
    char *path = reserve_path(s);
    bool gone = path && unlink(path) == 0;
    free(path);
    s->is_reserve_used = true;
    return gone;
}

void hx_sqlite_shorten_log(hx_sqlite *s)
{
    (void)sqlite3_wal_checkpoint_v2(s->rows.db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
}

static void log_space(const hx_sqlite *s, hx_log_event event, const char *hint)
{
    hx_log_begin(event);
    hx_log_text("store", s->path);
    if (hint) hx_log_text("hint", hint);
    hx_log_end();
}

static void check_limit(hx_sqlite *s)
{
    uint64_t most = s->bytes_max;
    hx_sqlite_tables_size size;
    if (most == 0 || hx_sqlite_tables_pages(&s->rows, &size) != SQLITE_OK) {
        s->is_over_limit = false;
        return;
    }
    /* the last sixteenth is for operations in flight */
    bool over = (size.pages - size.free_pages) * size.page_bytes > most - most / SMALL_DISK_PART;
    if (over && !s->is_over_limit)
        log_space(s, HX_EVENT_sqlite_limit_reached,
                  "raise store_max, shorten lifetimes, or remove old rows from hapax_history");
    s->is_over_limit = over;
}

/* How many operations may begin, so that all in flight can still be settled. */
static uint64_t new_operations_max(hx_sqlite *s, uint64_t free_bytes)
{
    if (free_bytes >= PLENTY_BYTES) return UINT64_MAX;
    hx_sqlite_tables_totals totals;
    if (hx_sqlite_tables_count(&s->rows, &totals) != SQLITE_OK) return 0;
    uint64_t most = free_bytes / CLAIM_BYTES;
    return most > totals.processing ? most - totals.processing : 0;
}

uint64_t hx_sqlite_claims_of(const hx_store_call *commit)
{
    return commit->item_count + 2 * hx_sqlite_item_bytes(commit) / CLAIM_BYTES;
}

void hx_sqlite_set_log(hx_sqlite *s)
{
    disk d;
    hx_sqlite_tables_size size;
    if (!read_disk(s, &d) || hx_sqlite_tables_pages(&s->rows, &size) != SQLITE_OK) return;
    uint64_t pages = least(RESERVE_BYTES, d.all / SMALL_DISK_PART) / size.page_bytes / 2;
    (void)sqlite3_wal_autocheckpoint(s->rows.db, (int)(pages > LOG_PAGES_MIN ? pages : LOG_PAGES_MIN));
}

bool hx_sqlite_has_space_for(hx_sqlite *s, uint64_t answer_bytes)
{
    disk d;
    return !read_disk(s, &d) || d.free >= PLENTY_BYTES || d.free / 2 >= answer_bytes + CLAIM_BYTES;
}

void hx_sqlite_check_space(hx_sqlite *s, bool now)
{
    disk d;
    if (!read_disk(s, &d)) return;
    uint64_t part = d.all / SMALL_DISK_PART;
    uint64_t floor = s->options.free_bytes_floor ? s->options.free_bytes_floor : least(FLOOR_BYTES, part);
    bool below = d.free < floor;
    if (below && !s->is_below_floor)
        log_space(s, HX_EVENT_sqlite_disk_full, "free space on the disk that the store is on");
    s->is_below_floor = below;
    s->new_max = below ? 0 : new_operations_max(s, d.free);
    int64_t at = hx_clock_mono_ns();
    if (!now && at - s->checked_at_ns < LOOK_EVERY_NS) return;
    s->checked_at_ns = at;
    check_limit(s);
    uint64_t reserve = least(RESERVE_BYTES, part);
    bool has_reserve = !below && keep_reserve(s, reserve);
    if (s->is_tight && has_reserve && read_disk(s, &d) && d.free >= reserve && d.free >= floor) {
        s->is_tight = s->is_reserve_used = false;
        log_space(s, HX_EVENT_sqlite_not_full, NULL);
    }
}
