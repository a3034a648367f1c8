/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/run/output.h"

#include "base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define FRAME_BYTES 5u
#define READ_BYTES 32768u

/* A stream that nobody reads any more is an error to write to, not the end of this thread's process. */
static void block_sigpipe(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static bool write_all(int fd, hx_slice bytes)
{
    while (bytes.len > 0) {
        ssize_t written = write(fd, bytes.ptr, bytes.len);
        if (written >= 0)
            bytes = hx_slice_from(bytes, (size_t)written);
        else if (errno == EAGAIN) /* whoever gave us the stream doesn't want to wait on it */
            (void)poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        else if (errno != EINTR)
            return false;
    }
    return true;
}

static bool move_to_file(hx_output *o)
{
    const char *directory = getenv("TMPDIR");
    char path[] = "/tmp/hapax-run-XXXXXX";
    o->file = open(directory && directory[0] ? directory : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (o->file < 0) { /* not every file system has files without a name */
        o->file = mkostemp(path, O_CLOEXEC);
        if (o->file >= 0) (void)unlink(path);
    }
    bool moved = o->file >= 0 && write_all(o->file, hx_buf_slice(&o->memory));
    hx_buf_free(&o->memory);
    return moved;
}

static bool put(hx_output *o, hx_slice bytes)
{
    if (o->file < 0 && hx_buf_append(&o->memory, bytes)) return true;
    return (o->file >= 0 || move_to_file(o)) && write_all(o->file, bytes);
}

static void record(hx_output *o, int stream, hx_slice bytes)
{
    const char head[FRAME_BYTES] = {(char)stream, (char)(bytes.len >> 24), (char)(bytes.len >> 16),
                                    (char)(bytes.len >> 8), (char)bytes.len};
    if (!o->is_kept || o->is_lost) return;
    o->bytes += FRAME_BYTES + bytes.len;
    o->is_lost = o->bytes > o->max || !put(o, (hx_slice){head, FRAME_BYTES}) || !put(o, bytes);
}

/* Returns whether there may be more. */
static bool read_some(hx_output *o, int i, char buffer[READ_BYTES])
{
    ssize_t got = read(o->from[i], buffer, READ_BYTES);
    if (got < 0 && errno == EINTR) return true;
    if (got <= 0) return false;
    hx_slice bytes = {buffer, (size_t)got};
    record(o, i + 1, bytes);
    if (!o->is_stuck[i]) o->is_stuck[i] = !write_all(i == 0 ? STDOUT_FILENO : STDERR_FILENO, bytes);
    return true;
}

static void *pass_on(void *context)
{
    static char buffer[READ_BYTES]; /* there is one such thread at a time */
    hx_output *o = context;
    struct pollfd ready[3] = {{.fd = o->from[0], .events = POLLIN},
                              {.fd = o->from[1], .events = POLLIN},
                              {.fd = o->rest[0], .events = POLLIN}};
    bool finishes = false;
    block_sigpipe();
    while (ready[0].fd >= 0 || ready[1].fd >= 0) {
        int count = poll(ready, 3, finishes ? 0 : -1);
        if (count == 0) break;
        for (int i = 0; i < 2 && count > 0; i++)
            if (ready[i].fd >= 0 && ready[i].revents && !read_some(o, i, buffer)) ready[i].fd = -1;
        if (count > 0 && ready[2].fd >= 0 && ready[2].revents) {
            finishes = true;
            ready[2].fd = -1;
        }
    }
    hx_loop_post(o->loop, &o->ended);
    return NULL;
}

void hx_output_init(hx_output *o, size_t max)
{
    *o = (hx_output){.max = max, .is_kept = max > 0, .file = -1};
    hx_buf_init(&o->memory, NULL, HX_OUTPUT_IN_MEMORY);
}

int hx_output_start(hx_output *o, hx_loop *loop, const int from[2], void (*ended)(hx_task *task))
{
    o->loop = loop;
    o->from[0] = from[0];
    o->from[1] = from[1];
    o->ended = (hx_task){.run = ended};
    if (pipe2(o->rest, O_CLOEXEC) != 0) return errno;
    return pthread_create(&o->thread, NULL, pass_on, o);
}

void hx_output_finish(hx_output *o)
{
    (void)close(o->rest[1]);
}

void hx_output_join(hx_output *o)
{
    (void)pthread_join(o->thread, NULL);
    (void)close(o->rest[0]);
    (void)close(o->from[0]);
    (void)close(o->from[1]);
}

bool hx_output_record(hx_output *o, hx_slice *record)
{
    *record = hx_buf_slice(&o->memory);
    if (!o->is_kept || o->is_lost) return false;
    if (o->file < 0) return true;
    o->mapped = mmap(NULL, o->bytes, PROT_READ, MAP_PRIVATE, o->file, 0);
    if (o->mapped == MAP_FAILED) o->mapped = NULL;
    *record = (hx_slice){o->mapped, o->bytes};
    return o->mapped;
}

void hx_output_free(hx_output *o)
{
    if (o->mapped) (void)munmap(o->mapped, o->bytes);
    if (o->file >= 0) (void)close(o->file);
    hx_buf_free(&o->memory);
}

bool hx_output_replay(hx_slice record)
{
    block_sigpipe();
    while (record.len > 0) {
        const unsigned char *head = (const unsigned char *)record.ptr;
        if (record.len < FRAME_BYTES || head[0] < 1 || head[0] > 2) return false;
        size_t len = (size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 | head[4];
        if (len > record.len - FRAME_BYTES) return false;
        (void)write_all(head[0], (hx_slice){record.ptr + FRAME_BYTES, len});
        record = hx_slice_from(record, FRAME_BYTES + len);
    }
    return true;
}
