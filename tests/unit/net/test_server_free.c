/* SPDX-License-Identifier: Apache-2.0 */
/* A server that is freed in the middle of things: no callback runs, nothing leaks, and streams that are still held can
 * be used and released afterwards. The sanitizers see what goes wrong. */
#include "net/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define CLIENTS 4

static hx_stream *held[CLIENTS];
static unsigned held_count, told;

static void gone(hx_stream *stream)
{
    (void)stream;
    told++;
}

static void hold(void *app, hx_stream *stream)
{
    (void)app;
    stream->events.closed = gone;
    held[held_count++] = stream;
}

static void refuse(void *app, hx_stream *stream, unsigned status, const char *detail)
{
    (void)detail;
    hx_stream_answer(stream, status, HX_EMPTY, HX_EMPTY, HX_EMPTY, false);
    hold(app, stream);
}

static int connect_to(const char *bound)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint64_t port;
    assert_true(hx_slice_to_u64(hx_slice_of(strrchr(bound, ':') + 1), &port));
    to.sin_port = htons((uint16_t)port);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(client, (struct sockaddr *)&to, sizeof to), 0);
    return client;
}

static void streams_outlive_a_server_that_is_freed(void **state)
{
    (void)state;
    const hx_server_limits limits = {.connections_max = 10,
                                     .head_bytes_max = 8192,
                                     .fields_max = 10,
                                     .chunk_extension_bytes_max = 16,
                                     .head_timeout = HX_MINUTE,
                                     .idle_timeout = HX_MINUTE,
                                     .send_timeout = HX_MINUTE};
    const hx_server_handler handler = {.request = hold, .malformed = refuse};
    hx_loop *loop = hx_loop_new();
    hx_server *server = hx_server_new(loop, &limits, &handler, NULL);
    char bound[HX_ADDRESS_BYTES];
    hx_error_text error;
    int listening = hx_listen(HX_LIT("127.0.0.1:0"), bound, error);
    assert_true(listening >= 0);
    hx_server_accept(server, listening, hx_slice_of(bound));
    const char *requests[CLIENTS] = {"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                                     "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab", "BAD\r\n\r\n",
                                     "GET / HTTP/1.1\r\nHost: a\r\n\r\n"};
    int clients[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = connect_to(bound);
        assert_int_equal(write(clients[i], requests[i], strlen(requests[i])), strlen(requests[i]));
    }
    while (held_count < CLIENTS) hx_loop_turn(loop, HX_SECOND);
    assert_int_equal(hx_server_connections(server), CLIENTS);
    hx_stream_begin(held[3], 200, HX_EMPTY, HX_EMPTY, -1);
    hx_server_free(&server);
    assert_null(server);
    hx_loop_turn(loop, 0);
    hx_loop_turn(loop, 0);
    assert_int_equal(told, 0);
    for (unsigned i = 0; i < held_count; i++) {
        if (!held[i]->answered) hx_stream_answer(held[i], 200, HX_EMPTY, HX_EMPTY, HX_LIT("late"), true);
        hx_stream_release(held[i]);
    }
    char byte;
    for (int i = 0; i < CLIENTS; i++) {
        while (read(clients[i], &byte, 1) > 0) {}
        (void)close(clients[i]);
    }
    hx_loop_free(&loop);
    hx_arena_pool_drain();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(streams_outlive_a_server_that_is_freed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
