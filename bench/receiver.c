/* SPDX-License-Identifier: Apache-2.0 */
/* The receiver of `./dev bench events`, one thread, on all addresses of 127.0.0.0/8, so that each endpoint can have a
 * host of its own. It has two ports, and says them at its start: `ready ANSWERS SILENT`. The first answers every
 * request with 200, and keeps connections; the second accepts and reads, and never answers.
 *
 *     receiver
 *
 * It answers these lines on standard input:
 *     count    `requests N`: how many it has answered, and how many connections are open on each port
 *     last     the last request as it came, in hex
 *     times    a line `ID NANOSECONDS` for each request since the last time, of CLOCK_MONOTONIC, and then `end` */
#include "base/clock.h"
#include "base/program/process.h"
#include "base/text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define DESCRIPTORS_MAX 32768
#define REQUEST_BYTES_MAX 16384
#define TIMES_MAX 65536u
#define EVENTS_MAX 256

typedef struct {
    bool is_silent;
    size_t len;
    char bytes[REQUEST_BYTES_MAX];
} connection;

static connection *connections[DESCRIPTORS_MAX];
static unsigned open_count[2]; /* by is_silent */
static struct {
    char id[64];
    int64_t ns;
} times[TIMES_MAX];
static unsigned long long answered, recorded;
static char last[REQUEST_BYTES_MAX];
static size_t last_len;
static int epoll;

static void stop(const char *what)
{
    (void)fprintf(stderr, "receiver: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void poll_for(int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) stop("epoll_ctl");
}

static int listen_anywhere(unsigned *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) != 0 || listen(fd, 4096) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0)
        stop("listening");
    *port = ntohs(at.sin_port);
    poll_for(fd);
    return fd;
}

static void accept_all(int listener, bool is_silent)
{
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        if (fd >= DESCRIPTORS_MAX) stop("too many connections");
        connection *c = malloc(sizeof *c);
        if (!c) stop("memory");
        c->is_silent = is_silent;
        c->len = 0;
        connections[fd] = c;
        open_count[is_silent]++;
        poll_for(fd);
    }
}

static void record(hx_slice head)
{
    hx_text_header header;
    while (hx_text_next_header(&head, &header)) {
        if (!hx_slice_eq_nocase(header.name, HX_LIT("webhook-id"))) continue;
        (void)snprintf(times[recorded % TIMES_MAX].id, sizeof times[0].id, "%.*s", HX_FMT(header.value));
        times[recorded++ % TIMES_MAX].ns = hx_clock_mono_ns();
        return;
    }
}

/* The length of the first request, with its body; 0: it isn't whole. */
static size_t whole_request(const connection *c, hx_slice *head)
{
    hx_text_header header;
    uint64_t body = 0;
    const char *end = memmem(c->bytes, c->len, "\r\n\r\n", 4);
    if (!end) return 0;
    const char *line_end = memmem(c->bytes, c->len, "\r\n", 2);
    *head = (hx_slice){line_end + 2, (size_t)(end - line_end)};
    for (hx_slice rest = *head; hx_text_next_header(&rest, &header);)
        if (hx_slice_eq_nocase(header.name, HX_LIT("content-length")) && !hx_slice_to_u64(header.value, &body))
            stop("a Content-Length");
    size_t len = (size_t)(end - c->bytes) + 4 + (size_t)body;
    return c->len >= len ? len : 0;
}

static void read_more(int fd)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    connection *c = connections[fd];
    hx_slice head;
    if (c->is_silent || c->len == sizeof c->bytes) c->len = 0;
    ssize_t n = read(fd, c->bytes + c->len, sizeof c->bytes - c->len);
    if (n < 0 && errno == EAGAIN) return;
    bool is_over = n <= 0;
    if (!is_over) c->len += (size_t)n;
    size_t len = is_over || c->is_silent ? 0 : whole_request(c, &head);
    if (len > 0) {
        record(head);
        memcpy(last, c->bytes, len);
        last_len = len;
        c->len = 0; /* one request at a time */
        answered++;
        is_over = write(fd, answer, sizeof answer - 1) < 0;
    }
    if (!is_over) return;
    open_count[c->is_silent]--;
    free(c);
    connections[fd] = NULL;
    (void)close(fd);
}

static void obey(void)
{
    char line[64];
    if (!fgets(line, sizeof line, stdin)) exit(0);
    if (strcmp(line, "count\n") == 0) {
        (void)printf("requests %llu connections %u silent %u\n", answered, open_count[0], open_count[1]);
    } else if (strcmp(line, "last\n") == 0) {
        for (size_t i = 0; i < last_len; i++) (void)printf("%02x", (unsigned char)last[i]);
        (void)puts("");
    } else {
        unsigned long long first = recorded > TIMES_MAX ? recorded - TIMES_MAX : 0;
        for (; first < recorded; first++)
            (void)printf("%s %lld\n", times[first % TIMES_MAX].id, (long long)times[first % TIMES_MAX].ns);
        recorded = 0;
        (void)puts("end");
    }
    (void)fflush(stdout);
}

int main(void)
{
    struct epoll_event events[EVENTS_MAX];
    struct rlimit files = {DESCRIPTORS_MAX, DESCRIPTORS_MAX};
    unsigned answers, silent;
    hx_process_init();
    (void)setrlimit(RLIMIT_NOFILE, &files);
    setbuf(stdin, NULL);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    int first = listen_anywhere(&answers), second = listen_anywhere(&silent);
    poll_for(STDIN_FILENO);
    (void)printf("ready %u %u\n", answers, silent);
    (void)fflush(stdout);
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == STDIN_FILENO)
                obey();
            else if (fd == first || fd == second)
                accept_all(fd, fd == second);
            else
                read_more(fd);
        }
    }
}
