/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of finished lines, and the thread that writes them. When the reader of standard error stalls, only this thread
 * waits. A line that doesn't fit into the ring is dropped and counted.
 *
 *   record: length of the line (4 bytes, 0 as long as it isn't whole), 4 bytes unused, the line, up to a multiple of 8
 *
 * Producers reserve by moving `head`, copy, and then store the length, without waiting. The writer clears what it has
 * written before it moves `tail`, so that a length is 0 wherever the next record may begin. */
#include "base/program/log_writer.h"

#include "base/check.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 8192u /* the longest line that base/log.c makes */
#define RING_BYTES (1u << 20)
#define KEPT_BYTES (RING_BYTES / 8) /* for warnings and errors, however many other lines come */
#define HEADER_BYTES 8u
#define BATCH_BYTES 4096u /* PIPE_BUF: other processes that write to the same pipe never split a line of ours */
#define PAUSE_NS 2000000  /* between two batches under load, so that a busy gateway need not wake the writer */

static struct {
    _Atomic uint64_t head, tail; /* bytes ever reserved, and ever written */
    _Atomic uint64_t dropped;    /* lines, since the start */
    _Atomic uint64_t unreported; /* dropped lines that no log_lines_dropped has counted yet */
    atomic_bool runs, sleeps, stops;
    sem_t wake;
    pthread_t thread;
    _Atomic uint32_t words[RING_BYTES / 4];
} ring;

static void drop(uint64_t lines)
{
    atomic_fetch_add(&ring.dropped, lines);
    atomic_fetch_add(&ring.unreported, lines);
}

static uint64_t record_bytes(size_t len)
{
    return HEADER_BYTES + (len + 7) / 8 * 8;
}

static _Atomic uint32_t *header(uint64_t at)
{
    return &ring.words[at % RING_BYTES / 4];
}

/* The line's bytes in the ring: one piece, or two where it goes on at the beginning. */
static size_t first_piece(uint64_t at, size_t len)
{
    size_t to_end = RING_BYTES - (size_t)(at % RING_BYTES);
    return len < to_end ? len : to_end;
}

static char *bytes_at(uint64_t at)
{
    return (char *)ring.words + at % RING_BYTES;
}

static bool reserve(uint64_t bytes, uint64_t most, uint64_t *at)
{
    *at = atomic_load_explicit(&ring.head, memory_order_relaxed);
    do {
        uint64_t tail = atomic_load_explicit(&ring.tail, memory_order_acquire);
        /* Signed: `head` may be older than `tail`, and is then read again. */
        if ((int64_t)(*at + bytes - tail) > (int64_t)most) return false;
    } while (!atomic_compare_exchange_weak(&ring.head, at, *at + bytes));
    return true;
}

/* Copies a whole line into the ring, or drops and counts it; warnings and errors may use the part of the ring that is
 * kept for them. False when the thread doesn't run. Never waits. */
static bool take(const char *line, size_t len, bool important)
{
    uint64_t at;
    if (!atomic_load_explicit(&ring.runs, memory_order_acquire)) return false;
    if (!reserve(record_bytes(len), important ? RING_BYTES : RING_BYTES - KEPT_BYTES, &at)) {
        drop(1);
        return true;
    }
    size_t first = first_piece(at + HEADER_BYTES, len);
    memcpy(bytes_at(at + HEADER_BYTES), line, first);
    if (len > first) memcpy(bytes_at(0), line + first, len - first);
    atomic_store(header(at), (uint32_t)len);
    if (atomic_load(&ring.sleeps) && atomic_exchange(&ring.sleeps, false)) (void)sem_post(&ring.wake);
    return true;
}

/* Copies as many whole lines as one write may carry, or one long line. Returns their bytes in the ring. */
static uint64_t gather(uint64_t from, char batch[static LINE_BYTES], size_t *len, uint64_t *lines)
{
    uint64_t at = from;
    *len = 0;
    *lines = 0;
    while (true) {
        size_t bytes = atomic_load(header(at));
        if (bytes == 0 || (*len > 0 && *len + bytes > BATCH_BYTES)) return at - from;
        size_t first = first_piece(at + HEADER_BYTES, bytes);
        memcpy(batch + *len, bytes_at(at + HEADER_BYTES), first);
        memcpy(batch + *len + first, bytes_at(0), bytes - first);
        *len += bytes;
        *lines += 1;
        at += record_bytes(bytes);
    }
}

static void forget(uint64_t from, uint64_t bytes)
{
    size_t first = first_piece(from, bytes);
    memset(bytes_at(from), 0, first);
    memset(bytes_at(0), 0, bytes - first);
    atomic_store_explicit(&ring.tail, from + bytes, memory_order_release);
}

/* Another process that shares the descriptor may have made it non-blocking. */
static bool write_whole(const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t written = write(STDERR_FILENO, bytes, len);
        if (written < 0 && errno == EAGAIN) {
            (void)poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, 1000);
            continue;
        }
        if (written < 0 && errno != EINTR) return false;
        if (written <= 0) continue;
        bytes += written;
        len -= (size_t)written;
    }
    return true;
}

static void report_dropped(void)
{
    uint64_t lines = atomic_exchange(&ring.unreported, 0);
    if (lines == 0) return;
    hx_log_begin(HX_EVENT_log_lines_dropped);
    hx_log_int("lines", (int64_t)lines);
    hx_log_end();
}

static void *write_lines(void *unused)
{
    static char batch[LINE_BYTES];
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    size_t len;
    uint64_t tail = atomic_load(&ring.tail), lines;
    bool goes_well = false, has_written = false;
    while (true) {
        uint64_t bytes = gather(tail, batch, &len, &lines);
        if (bytes > 0) {
            goes_well = write_whole(batch, len);
            if (!goes_well) drop(lines);
            forget(tail, bytes);
            tail += bytes;
            has_written = true;
            continue;
        }
        /* Dropped lines are reported only after a write that succeeded: else the report would be lost, too. */
        if (goes_well) report_dropped();
        goes_well = false;
        if (tail != atomic_load(&ring.head)) continue;
        if (atomic_load(&ring.stops)) return unused;
        if (has_written) {
            (void)nanosleep(&pause, NULL);
            has_written = false;
            continue;
        }
        atomic_store(&ring.sleeps, true);
        bool is_needed = tail != atomic_load(&ring.head) || atomic_load(&ring.stops);
        if (!is_needed || !atomic_exchange(&ring.sleeps, false)) (void)sem_wait(&ring.wake);
    }
}

static void write_line(const char *line, size_t len, hx_log_level level)
{
    if (!take(line, len, level >= HX_LOG_WARN)) (void)!write(STDERR_FILENO, line, len);
}

void hx_log_to_stderr(void)
{
    hx_log_to(write_line);
}

void hx_log_start(void)
{
    HX_CHECK(!atomic_load(&ring.runs));
    atomic_store(&ring.stops, false);
    int failed = sem_init(&ring.wake, 0, 0);
    HX_CHECK(failed == 0);
    failed = pthread_create(&ring.thread, NULL, write_lines, NULL);
    HX_CHECK(failed == 0);
    atomic_store(&ring.runs, true);
}

bool hx_log_flush(hx_ms most)
{
    const struct timespec step = {.tv_nsec = 1000000};
    if (!atomic_load(&ring.runs)) return true;
    uint64_t head = atomic_load(&ring.head);
    for (hx_ms waited = 0; atomic_load(&ring.tail) < head; waited++) {
        if (waited >= most) return false;
        (void)nanosleep(&step, NULL);
    }
    return true;
}

void hx_log_stop(hx_ms most)
{
    if (!atomic_load(&ring.runs) || !hx_log_flush(most)) return;
    atomic_store(&ring.stops, true);
    atomic_store(&ring.runs, false); /* threads that still log write for themselves, as before the start */
    if (atomic_exchange(&ring.sleeps, false)) (void)sem_post(&ring.wake);
    (void)pthread_join(ring.thread, NULL);
    (void)sem_destroy(&ring.wake);
}

uint64_t hx_log_dropped(void)
{
    return atomic_load_explicit(&ring.dropped, memory_order_relaxed);
}
