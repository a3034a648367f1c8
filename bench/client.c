/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU time of one outgoing request: keep-alive POSTs of 1 KiB, 64 in flight, by net/client (libcurl) and by
 * net/upstream.h (our own HTTP/1.1), to a server that answers 200 at once. The server is a process of its own, so that
 * the figures are the clients'.
 *
 *     bench/client [requests]      prints both, and the ratio */
#include "net/client/client.h"
#include "net/upstream.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define IN_FLIGHT 64
#define BODY_BYTES 1024
#define DESCRIPTORS_MAX 1024

static const char lines[] =
    "Content-Type: application/json\r\nwebhook-id: msg_2KWPBgLlAfxdpx2AI54pPJ85f4W\r\n"
    "webhook-timestamp: 1674087231\r\nwebhook-signature: v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/"
    "H/pI4=\r\n";
static char body[BODY_BYTES];
static int left, over;
static hx_loop *loop;

/* Serves until its parent ends. Requests end with BODY_BYTES after their heads. */
static void serve(int listener)
{
    static struct {
        char bytes[8192];
        size_t len;
    } of[DESCRIPTORS_MAX];
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[IN_FLIGHT];
    int epoll = epoll_create1(0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(epoll, events, IN_FLIGHT, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                event.data.fd = accept(listener, NULL, NULL);
                if (event.data.fd >= DESCRIPTORS_MAX) abort();
                of[event.data.fd].len = 0;
                (void)epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event);
                continue;
            }
            ssize_t n = read(fd, of[fd].bytes + of[fd].len, sizeof of[fd].bytes - of[fd].len);
            if (n <= 0) {
                close(fd);
                continue;
            }
            of[fd].len += (size_t)n;
            const char *end = memmem(of[fd].bytes, of[fd].len, "\r\n\r\n", 4);
            if (!end || of[fd].len < (size_t)(end - of[fd].bytes) + 4 + BODY_BYTES) continue;
            of[fd].len = 0;
            if (write(fd, answer, sizeof answer - 1) < 0) close(fd);
        }
    }
}

static double cpu_us(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void ended(void)
{
    if (++over == left) hx_loop_stop(loop);
}

static hx_client *client;

static void request_done(hx_client_request *request, const hx_client_result *result)
{
    if (result->status != 200) {
        (void)fprintf(stderr, "%s: %s\n", hx_client_error_text(result->error), result->reason);
        exit(1);
    }
    ended();
    if (over + IN_FLIGHT <= left) hx_client_start(client, request);
}

static double run_client(const char *origin, int count)
{
    static hx_client_request requests[IN_FLIGHT];
    hx_error_text error;
    hx_network loopback;
    char url[128];
    hx_client_limits limits = {.connections_max = IN_FLIGHT,
                               .requests_per_host_max = IN_FLIGHT,
                               .waiting_max = IN_FLIGHT,
                               .lookup_timeout = HX_SECOND,
                               .idle_timeout = HX_MINUTE};
    if (!hx_network_parse(HX_LIT("127.0.0.0/8"), &loopback, error)) abort();
    hx_guard guard = {.allowed = &loopback, .allowed_count = 1};
    (void)snprintf(url, sizeof url, "%s/hooks/1", origin);
    client = hx_client_new(loop, &limits, &guard, error);
    if (!client) abort();
    left = count;
    over = 0;
    double before = cpu_us();
    for (int i = 0; i < IN_FLIGHT; i++) {
        requests[i] = (hx_client_request){.method = HX_LIT("POST"),
                                          .url = hx_slice_of(url),
                                          .header_lines = HX_LIT(lines),
                                          .body = {body, sizeof body},
                                          .timeout = 20 * HX_SECOND,
                                          .connect_timeout = 5 * HX_SECOND,
                                          .body_kept_max = 4096,
                                          .done = request_done};
        hx_client_start(client, &requests[i]);
    }
    hx_loop_run(loop);
    double spent = cpu_us() - before;
    hx_client_free(&client);
    return spent / count;
}

static hx_upstream *upstream;
static hx_exchange exchanges[IN_FLIGHT];
static hx_arena arenas[IN_FLIGHT];

static void head_came(hx_exchange *exchange, const hx_answer_head *head)
{
    (void)exchange;
    if (head->status != 200) exit(1);
}

static void body_came(hx_exchange *exchange, hx_slice piece)
{
    (void)exchange;
    (void)piece;
}

static const hx_exchange_events events;

static void start_exchange(int i)
{
    hx_arena_free(&arenas[i]);
    exchanges[i] = (hx_exchange){.arena = &arenas[i],
                                 .events = &events,
                                 .method = HX_LIT("POST"),
                                 .target = HX_LIT("/hooks/1"),
                                 .header_lines = HX_LIT("Host: 127.0.0.1\r\n"),
                                 .framing = HX_FRAMING_LENGTH,
                                 .content_length = sizeof body,
                                 .body = {body, sizeof body},
                                 .body_kind = HX_REQUEST_BODY_USUAL,
                                 .pooled_idle_max = HX_MINUTE};
    hx_exchange_start(upstream, &exchanges[i]);
}

static void exchange_ended(hx_exchange *exchange)
{
    ended();
    if (over + IN_FLIGHT <= left) start_exchange((int)(exchange - exchanges));
}

static void exchange_failed(hx_exchange *exchange, hx_upstream_error error)
{
    (void)exchange;
    (void)fprintf(stderr, "%s\n", hx_upstream_error_text(error));
    exit(1);
}

static const hx_exchange_events events = {.head = head_came,
                                          .body = body_came,
                                          .end = exchange_ended,
                                          .failed = exchange_failed};

static double run_upstream(const char *origin, int count)
{
    hx_error_text error;
    hx_upstream_limits limits = {.connect_timeout = 5 * HX_SECOND,
                                 .idle_timeout = HX_MINUTE,
                                 .idle_max = IN_FLIGHT,
                                 .connections_max = IN_FLIGHT,
                                 .waiting_max = IN_FLIGHT,
                                 .head_bytes_max = 65536,
                                 .fields_max = 200};
    upstream = hx_upstream_new(loop, hx_slice_of(origin), &limits, error);
    if (!upstream) abort();
    left = count;
    over = 0;
    double before = cpu_us();
    for (int i = 0; i < IN_FLIGHT; i++) start_exchange(i);
    hx_loop_run(loop);
    double spent = cpu_us() - before;
    hx_upstream_free(&upstream);
    return spent / count;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 100000;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    char origin[64];
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, len) != 0 || listen(listener, 128) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &len) != 0)
        return 1;
    (void)snprintf(origin, sizeof origin, "http://127.0.0.1:%u", ntohs(at.sin_port));
    if (fork() == 0) serve(listener);
    signal(SIGPIPE, SIG_IGN);
    memset(body, 'x', sizeof body);
    loop = hx_loop_new();
    (void)run_client(origin, count / 10); /* warms up what is loaded, and the server */
    double ours = run_upstream(origin, count), curls = run_client(origin, count);
    (void)printf("CPU per request: net/client (libcurl) %.1f us, net/upstream %.1f us, ratio %.2f\n", curls, ours,
                 curls / ours);
    hx_loop_free(&loop);
    hx_arena_pool_drain();
    return 0;
}
