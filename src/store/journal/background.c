/* SPDX-License-Identifier: Apache-2.0 */
/* The background thread, for slow work that no call waits for. It prepares the next segment, full of zeros and
 * synced, while the active one is filled, so that a commit never changes a file's size or place; writes hints of full
 * segments; and moves the audit rows of dropped segments into the archive, and removes old ones (archive.c).
 *
 * A disk has one queue: 64 MiB of zeros at once would delay every commit that is made meanwhile. So they are written in
 * small pieces from the moment the active segment is begun, at the rate at which it fills, or slowly if it doesn't.
 *
 * When the next segment can't be prepared (disk full, limits), new claims are refused, and operations in flight are
 * settled in the reserve (reserve.c). Preparing is retried every second. */
#include "store/journal/open.h"

#include "base/check.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define RETRY_S 1
#define PIECE_BYTES (256u << 10)
#define PIECE_PAUSE_MS 12u
#define NAP_MS 4u
#define FILL_LEAD 3u /* a spare is ready when a third of the active segment is full; claims need one from half on */

int hx_sync(const hx_journal *j, int fd)
{
    if (fsync(fd) == 0) return 0;
    if (errno == ENOSPC || errno == EDQUOT) return errno;
    hx_fatal(HX_EXIT_STORE, "can't sync the store in %s: %s; stopping, because what the disk holds is not known",
             j->path, strerror(errno));
}

int hx_write_all(int fd, const void *bytes, size_t len)
{
    for (const char *at = bytes; len > 0;) {
        ssize_t n = write(fd, at, len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Waits between two pieces of a spare, until the next is due by the fill level of the active segment or by time, or a
 * thread waits for the spare. False: the store is being closed. */
static bool pause_filling(hx_journal *j, uint64_t filled)
{
    hx_background *k = &j->background;
    for (unsigned slept_ms = 0;; slept_ms += NAP_MS) {
        pthread_mutex_lock(&k->mutex);
        bool stops = k->stop, is_due = k->waiting_count > 0 || filled < FILL_LEAD * atomic_load(&k->taken);
        pthread_mutex_unlock(&k->mutex);
        if (stops || is_due || slept_ms == PIECE_PAUSE_MS) return !stops;
        (void)nanosleep(&(struct timespec){.tv_nsec = NAP_MS * 1000000L}, NULL);
    }
}

/* Writes zeros past the page cache, where the file system can: dirty pages would be synced all at once, and every
 * commit would wait for that. Returns 0, or an errno; ECANCELED: the store is being closed. */
static int write_zeros(hx_journal *j, int fd, uint64_t bytes)
{
    static _Alignas(HX_PAGE_BYTES) char zeros[PIECE_BYTES];
    if (fallocate(fd, 0, 0, (off_t)bytes) != 0 && (errno == ENOSPC || errno == EDQUOT)) return errno;
    bool direct = fcntl(fd, F_SETFL, O_DIRECT) == 0;
    for (uint64_t at = 0; at < bytes;) {
        size_t len = bytes - at < sizeof zeros ? (size_t)(bytes - at) : sizeof zeros;
        ssize_t n = pwrite(fd, zeros, len, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EINVAL && direct) { /* direct I/O is refused, or the rest is no whole block */
            direct = false;
            if (fcntl(fd, F_SETFL, 0) == 0) continue;
        }
        if (n <= 0) return n < 0 ? errno : EIO;
        at += (uint64_t)n;
        if (at < bytes && j->background.running && !pause_filling(j, at)) return ECANCELED;
    }
    if (direct && fcntl(fd, F_SETFL, 0) != 0) return errno;
    return hx_sync(j, fd);
}

void hx_background_count_bytes(hx_journal *j)
{
    uint64_t bytes = 0;
    struct stat st;
    DIR *dir = hx_dir_list(j);
    if (!dir) return;
    for (struct dirent *item; (item = readdir(dir));)
        if (fstatat(j->dir_fd, item->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_size;
    closedir(dir);
    atomic_store(&j->bytes, bytes);
}

/* Sums up the sizes of the files: the archive counts too, and an operator may have moved a part of it away. */
static int check_limits(hx_journal *j, uint32_t number)
{
    struct statvfs fs;
    hx_background_count_bytes(j);
    if (number - atomic_load(&j->first_segment) >= HX_SEGMENTS_MAX) return EDQUOT;
    uint64_t bytes_max = atomic_load(&j->bytes_max);
    if (bytes_max > 0 && atomic_load(&j->bytes) + j->options.segment_bytes > bytes_max) return EDQUOT;
    if (fstatvfs(j->dir_fd, &fs) != 0) return errno;
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    return free_bytes < j->options.free_bytes_floor ? ENOSPC : 0;
}

hx_segment *hx_background_prepare(hx_journal *j, uint32_t number, int *error)
{
    char making[HX_SEGMENT_NAME_BYTES], name[HX_SEGMENT_NAME_BYTES];
    hx_segment_name(making, number, ".new");
    hx_segment_name(name, number, ".seg");
    hx_segment *s = calloc(1, sizeof *s);
    if (!s) hx_fatal(HX_EXIT_BUG, "out of memory");
    s->number = number;
    s->size = j->options.segment_bytes;
    s->fd = openat(j->dir_fd, making, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    *error = s->fd < 0 ? errno : write_zeros(j, s->fd, s->size);
    if (*error == 0 && renameat(j->dir_fd, making, j->dir_fd, name) != 0) *error = errno;
    if (*error == 0) *error = hx_sync(j, j->dir_fd);
    if (*error == 0) return s;
    if (s->fd >= 0) {
        close(s->fd);
        (void)unlinkat(j->dir_fd, making, 0);
    }
    free(s);
    return NULL;
}

static void report(const hx_journal *j, hx_log_event event, uint32_t segment, int error)
{
    hx_log_begin(event);
    hx_log_text("store", j->path);
    hx_log_int("segment", segment);
    hx_log_text("error", strerror(error));
    if (error == EDQUOT)
        hx_log_text("hint", "store_max or a quota is reached; a shorter audit_retention removes old .audit files");
    hx_log_end();
}

/* Called with the mutex held; releases it while it works. */
static void prepare_spare(hx_journal *j)
{
    hx_background *k = &j->background;
    uint32_t number = k->spare_number;
    pthread_mutex_unlock(&k->mutex);
    int error = check_limits(j, number);
    hx_segment *ready = error ? NULL : hx_background_prepare(j, number, &error);
    if (ready && (error = hx_dir_write_range(j, (hx_segment_range){j->row.first, number})) != 0) {
        close(ready->fd);
        free(ready);
        ready = NULL;
    }
    pthread_mutex_lock(&k->mutex);
    if (error == ECANCELED) return;
    if (!ready && !k->failing) report(j, HX_EVENT_journal_full, number, error);
    if (ready && k->failing) hx_log(HX_EVENT_journal_not_full);
    k->failing = !ready;
    if (ready) {
        hx_segment **last = &k->spares;
        while (*last) last = &(*last)->next;
        *last = ready;
        k->spare_count++;
        k->spare_number++;
    }
    pthread_cond_broadcast(&k->changed);
}

static bool wants_spare(const hx_background *k)
{
    return k->spare_count < k->spare_goal && !k->failing;
}

static void wait_a_while(hx_background *k)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += RETRY_S;
    while (!k->stop && !wants_spare(k) && pthread_cond_timedwait(&k->changed, &k->mutex, &until) != ETIMEDOUT) {}
}

static int do_one(hx_journal *j, const hx_job *job)
{
    switch (job->kind) {
    case HX_JOB_HINT: return hx_background_write_hint(j, job->segment);
    case HX_JOB_ARCHIVE: return hx_archive_write(j, job->segment);
    case HX_JOB_PRUNE: return hx_archive_prune(j, job->segment);
    }
    return 0;
}

/* Does the first job in the queue. A hint that can't be written is skipped: the next start reads the segment instead.
 * So are old archives that can't be removed: a later start removes them. An archive must be written before its segment
 * is removed, and in order: the queue waits for it. */
static void do_job(hx_journal *j)
{
    hx_background *k = &j->background;
    hx_job *job = k->first;
    pthread_mutex_unlock(&k->mutex);
    static const hx_log_event failures[] = {[HX_JOB_HINT] = HX_EVENT_journal_hint_failed,
                                            [HX_JOB_ARCHIVE] = HX_EVENT_journal_archive_failed,
                                            [HX_JOB_PRUNE] = HX_EVENT_journal_prune_failed};
    int error = do_one(j, job);
    if (error && !job->reported) report(j, failures[job->kind], job->segment, error);
    job->reported = true;
    if (job->kind != HX_JOB_HINT) hx_background_count_bytes(j);
    bool must_be_done = error && job->kind == HX_JOB_ARCHIVE;
    pthread_mutex_lock(&k->mutex);
    if (must_be_done && !k->stop) {
        wait_a_while(k);
        if (k->failing && !k->stop) prepare_spare(j);
        return;
    }
    do { /* if it must be done, the store closes: leave this job and the later ones to the next start */
        job = k->first;
        k->first = job->next;
        free(job);
    } while (must_be_done && k->first);
    if (!k->first) k->last = &k->first;
}

static void *keep(void *journal)
{
    hx_journal *j = journal;
    hx_background *k = &j->background;
    pthread_mutex_lock(&k->mutex);
    for (;;) {
        if (wants_spare(k) && !k->stop) {
            prepare_spare(j);
        } else if (k->first) {
            do_job(j);
        } else if (k->stop) {
            break;
        } else if (k->failing) {
            wait_a_while(k);
            if (!k->stop) prepare_spare(j);
        } else {
            pthread_cond_wait(&k->changed, &k->mutex);
        }
    }
    pthread_mutex_unlock(&k->mutex);
    return NULL;
}

int hx_background_start(hx_journal *j)
{
    hx_background *k = &j->background;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&k->mutex, NULL);
    pthread_cond_init(&k->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    k->last = &k->first;
    k->spare_goal = 1;
    k->running = true; /* set first: the thread reads it */
    int error = pthread_create(&k->thread, NULL, keep, j);
    if (error) k->running = false;
    return error;
}

void hx_background_stop(hx_journal *j)
{
    hx_background *k = &j->background;
    if (!k->running) return;
    pthread_mutex_lock(&k->mutex);
    k->stop = true;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->mutex);
    pthread_join(k->thread, NULL);
    pthread_mutex_destroy(&k->mutex);
    pthread_cond_destroy(&k->changed);
    for (hx_segment *s; (s = k->spares);) {
        k->spares = s->next;
        close(s->fd);
        free(s);
    }
    k->running = false;
}

/* Waits until there are `count` spares, or none can be prepared. Called with the mutex held. */
static void await(hx_background *k, unsigned count)
{
    k->waiting_count++;
    pthread_cond_broadcast(&k->changed);
    while (k->spare_count < count && !k->failing) pthread_cond_wait(&k->changed, &k->mutex);
    k->waiting_count--;
}

/* Called with the mutex held. The end of each spare doesn't count: a record may not fit there. */
static uint64_t spare_bytes(const hx_background *k)
{
    uint64_t bytes = 0;
    for (const hx_segment *s = k->spares; s; s = s->next)
        if (s->size > HX_BARE_BYTES + sizeof(hx_segment_head))
            bytes += s->size - HX_BARE_BYTES - sizeof(hx_segment_head);
    return bytes;
}

hx_segment *hx_background_take_spare(hx_journal *j)
{
    hx_background *k = &j->background;
    pthread_mutex_lock(&k->mutex);
    if (!k->spares) await(k, 1);
    hx_segment *next = k->spares;
    if (next) {
        k->spares = next->next;
        next->next = NULL;
        k->spare_count--;
        atomic_store(&k->taken, 0);
        if (k->spare_goal > 1) k->spare_goal--;
        pthread_cond_broadcast(&k->changed);
    }
    j->spare_bytes = spare_bytes(k);
    pthread_mutex_unlock(&k->mutex);
    return next;
}

bool hx_background_await_spare(hx_journal *j)
{
    hx_background *k = &j->background;
    pthread_mutex_lock(&k->mutex);
    unsigned wanted = k->spare_count + 1;
    if (k->spare_goal < wanted) k->spare_goal = wanted;
    await(k, wanted);
    bool came = k->spare_count >= wanted;
    j->spare_bytes = spare_bytes(k);
    pthread_mutex_unlock(&k->mutex);
    return came;
}

void hx_background_check_limits(hx_journal *j)
{
    struct statvfs fs;
    if (fstatvfs(j->dir_fd, &fs) != 0) return;
    j->below_floor = (uint64_t)fs.f_bavail * fs.f_frsize < j->options.free_bytes_floor;
}

bool hx_background_has_room(hx_journal *j)
{
    hx_background *k = &j->background;
    pthread_mutex_lock(&k->mutex);
    bool may_grow = !k->failing;
    j->spare_bytes = spare_bytes(k);
    pthread_mutex_unlock(&k->mutex);
    return may_grow && !j->below_floor;
}

void hx_background_want(hx_journal *j, hx_job_kind kind, uint32_t segment)
{
    hx_job *job = malloc(sizeof *job);
    if (!job) hx_fatal(HX_EXIT_BUG, "out of memory");
    *job = (hx_job){.kind = kind, .segment = segment};
    hx_background *k = &j->background;
    pthread_mutex_lock(&k->mutex);
    *k->last = job;
    k->last = &job->next;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->mutex);
}
