/* SPDX-License-Identifier: Apache-2.0 */
/* What is sent, what is reported of it, and which connections are used. */
#include "client_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void a_request_is_sent_whole_and_its_response_reported(void **state)
{
    world *w = *state;
    call c;
    char expected[512];
    prepare_call(w, &c, "127.0.0.1");
    (void)snprintf(c.url, sizeof c.url, "http://127.0.0.1:%u/a/../b%%2f?q=%%7e&r", w->port);
    c.request.header_lines = HX_LIT("Content-Type: application/json\r\nwebhook-id: 1\r\nX-Empty:\r\n");
    start_call(w, &c);
    int peer = accept_one(&w->f);
    (void)snprintf(expected, sizeof expected,
                   "POST /a/../b%%2f?q=%%7e&r HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nUser-Agent: Hapax/%s\r\nAccept: */*\r\n"
                   "Content-Type: application/json\r\nwebhook-id: 1\r\nX-Empty:\r\nContent-Length: 3\r\n\r\nabc",
                   w->port, HAPAX_VERSION);
    expect_bytes(&w->f, peer, expected);
    send_text(&w->f, peer,
              "HTTP/1.1 103 Early Hints\r\nRetry-After: 7\r\nContent-Type: text/early\r\n\r\n"
              "HTTP/1.1 503 Busy\r\nretry-after:  120 \r\nContent-Type: text/plain\r\nContent-Length: 20\r\n\r\n"
              "0123456789abcdefghij");
    wait_call(w, &c);
    assert_call(&c, NONE, 503);
    assert_string_equal(c.retry_after, "120");
    assert_string_equal(c.content_type, "text/plain");
    assert_string_equal(c.body, "0123456789abcdef");
    assert_true(c.result.body_is_cut);
    assert_int_equal(c.result.bytes_sent, strlen(expected));
    (void)snprintf(expected, sizeof expected, "127.0.0.1:%u", w->port);
    assert_string_equal(c.remote, expected);
    (void)ask_call(w, &c, peer);
    send_text(&w->f, peer, "HTTP/1.1 103 Early Hints\r\nRetry-After: 7\r\nContent-Type: text/early\r\n\r\n" OK);
    wait_call(w, &c);
    assert_call(&c, NONE, 200);
    assert_string_equal(c.retry_after, "");
    assert_string_equal(c.content_type, "");
    close(peer);
}

static void each_method_has_its_form(void **state)
{
    world *w = *state;
    static const struct {
        const char *method, *body, *begins, *ends;
    } rows[] = {
        {"GET", "", "GET /hook HTTP/1.1\r\n", "Accept: */*\r\n\r\n"},
        {"HEAD", "", "HEAD /hook HTTP/1.1\r\n", "Accept: */*\r\n\r\n"},
        {"POST", "", "POST /hook HTTP/1.1\r\n", "Content-Length: 0\r\n\r\n"},
        {"PUT", "x", "PUT /hook HTTP/1.1\r\n", "Content-Length: 1\r\n\r\nx"},
        {"DELETE", "", "DELETE /hook HTTP/1.1\r\n", "Content-Length: 0\r\n\r\n"},
        {"GET", "y", "GET /hook HTTP/1.1\r\n", "Content-Length: 1\r\n\r\ny"},
        {"OPTIONS", "", "OPTIONS /hook HTTP/1.1\r\n", "Content-Length: 0\r\n\r\n"},
        {"GET", "", "GET /hook HTTP/1.1\r\n", "Accept: */*\r\n\r\n"},
    };
    int peer = -1;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        call c;
        char bytes[1024] = "";
        size_t len = 0;
        prepare_call(w, &c, "127.0.0.1");
        c.request.method = hx_slice_of(rows[i].method);
        c.request.body = hx_slice_of(rows[i].body);
        start_call(w, &c);
        if (peer < 0) peer = accept_one(&w->f); /* all of them use this connection */
        while (!hx_slice_ends((hx_slice){bytes, len}, hx_slice_of(rows[i].ends))) {
            ssize_t n = recv(peer, bytes + len, sizeof bytes - 1 - len, 0);
            if (n > 0) len += (size_t)n;
            turn(&w->f);
            if (c.dones > 0) fail_msg("%s: \"%s\"", c.reason, bytes);
        }
        assert_memory_equal(bytes, rows[i].begins, strlen(rows[i].begins));
        assert_null(strstr(bytes, "Expect"));
        assert_null(strstr(bytes, "Content-Type"));
        assert_null(strstr(bytes, "Accept-Encoding"));
        bool is_head = strcmp(rows[i].method, "HEAD") == 0;
        send_text(&w->f, peer, is_head ? "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" : OK);
        wait_call(w, &c);
        assert_call(&c, NONE, 200);
        assert_string_equal(c.body, is_head ? "" : "ok");
    }
    close(peer);
}

static void a_large_body_arrives_whole(void **state)
{
    world *w = *state;
    call c;
    size_t size = 3u * 1024u * 1024u, got = 0;
    char *body = malloc(size), *read = malloc(size + 4096);
    assert_true(body && read);
    for (size_t i = 0; i < size; i++) body[i] = (char)(i * 31 / 7);
    prepare_call(w, &c, "127.0.0.1");
    c.request.body = (hx_slice){body, size};
    start_call(w, &c);
    int peer = accept_one(&w->f);
    size_t head = 0;
    while (head == 0 || got < head + size) {
        ssize_t n = recv(peer, read + got, size + 4096 - got, 0);
        if (n > 0) got += (size_t)n;
        turn(&w->f);
        const char *end = memmem(read, got, "\r\n\r\n", 4);
        if (end) head = (size_t)(end - read) + 4;
        if (c.dones > 0) fail_msg("%s", c.reason);
    }
    assert_int_equal(got, head + size);
    assert_memory_equal(read + head, body, size);
    assert_null(memmem(read, head, "Expect", 6));
    send_text(&w->f, peer, OK);
    wait_call(w, &c);
    assert_call(&c, NONE, 200);
    free(body);
    free(read);
    close(peer);
}

static void a_connection_is_kept_and_used_again(void **state)
{
    world *w = *state;
    call c;
    int peer = -1;
    for (int i = 0; i < 5; i++) {
        peer = ask_call(w, &c, peer);
        send_text(&w->f, peer, OK);
        wait_call(w, &c);
        assert_call(&c, NONE, 200);
    }
    assert_true(nobody_connects(&w->f));
    close(peer);
}

/* The server closed it, or sent what nobody asked for, which must not become the answer to the next request. */
static void an_idle_connection_that_is_spoilt_is_replaced(void **state)
{
    world *w = *state;
    for (int i = 0; i < 4; i++) {
        call c;
        int peer = ask_call(w, &c, -1);
        send_text(&w->f, peer, OK);
        wait_call(w, &c);
        if (i == 0) close(peer);
        if (i == 1) reset_peer(peer);
        if (i == 2) send_text(&w->f, peer, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison");
        if (i == 3) send_text(&w->f, peer, "x");
        rest(&w->f);
        int next = ask_call(w, &c, -1);
        send_text(&w->f, next, OK);
        wait_call(w, &c);
        assert_call(&c, NONE, 200);
        assert_string_equal(c.body, "ok");
        if (i >= 2) expect_closed(&w->f, peer);
        reset_peer(next);
        rest(&w->f);
    }
}

/* Surplus bytes that came with the response itself. */
static void bytes_behind_a_response_close_its_connection(void **state)
{
    world *w = *state;
    call c;
    int peer = ask_call(w, &c, -1);
    send_text(&w->f, peer, OK OK);
    wait_call(w, &c);
    assert_call(&c, NONE, 200);
    int next = ask_call(w, &c, -1);
    send_text(&w->f, next, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
    wait_call(w, &c);
    assert_call(&c, NONE, 201);
    close(peer);
    close(next);
}

static void nothing_is_sent_where_nobody_listens(void **state)
{
    world *w = *state;
    call c;
    close(w->f.listener);
    w->f.listener = -1;
    run_call(w, &c, "127.0.0.1");
    assert_call(&c, UNREACHABLE, 0);
    assert_int_equal(c.result.bytes_sent, 0);
    assert_non_null(strstr(c.reason, "127.0.0.1"));
    assert_true(c.remote[0] != '\0');
}

/* The first refuses: libcurl closes its socket without a word, and the next one gets the same number. */
static void the_next_address_is_tried_when_one_refuses(void **state)
{
    world *w = *state;
    call c;
    resolve_to("both.example", "127.0.0.9,127.0.0.8,127.0.0.1");
    for (int i = 0; i < 3; i++) {
        prepare_call(w, &c, "both.example");
        c.request.header_lines = HX_LIT("Connection-Is: closed\r\n");
        start_call(w, &c);
        int peer = accept_one(&w->f);
        read_call(w, peer);
        send_text(&w->f, peer, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        wait_call(w, &c);
        assert_call(&c, NONE, 200);
        assert_non_null(strstr(c.remote, "127.0.0.1:"));
        close(peer);
    }
    assert_int_equal(lookups_of("both.example"), 1);
}

/* One handle has them all, and each leaves libcurl with the addresses of its own host only. */
static void a_host_follows_another(void **state)
{
    (void)state;
    world w;
    call c;
    static const char *const hosts[] = {"one.example", "two.example", "127.0.0.1", "two.example", "one.example"};
    hx_client_limits limits = usual_client_limits;
    limits.connections_max = 1;
    set_up_world(&w, "127.0.0.1", &limits);
    resolve_to("one.example", "127.0.0.1");
    resolve_to("two.example", "127.0.0.1");
    for (size_t i = 0; i < 3 * sizeof hosts / sizeof hosts[0]; i++) {
        const char *host = hosts[i % (sizeof hosts / sizeof hosts[0])];
        prepare_call(&w, &c, host);
        start_call(&w, &c);
        int peer = accept_one(&w.f);
        read_call(&w, peer);
        send_text(&w.f, peer, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        wait_call(&w, &c);
        assert_call(&c, NONE, 200);
        close(peer);
    }
    assert_int_equal(lookups_of("one.example"), 1);
    tear_down_world(&w);
}

/* libcurl counts how often it had to take a new connection, and gives up at the sixth time. */
static void kept_connections_may_be_cut_any_number_of_times(void **state)
{
    world *w = *state;
    call c;
    int peer = -1;
    for (int i = 0; i < 20; i++) {
        peer = ask_call(w, &c, -1);
        send_text(&w->f, peer, OK);
        wait_call(w, &c);
        assert_call(&c, NONE, 200);
        reset_peer(peer); /* the loop has no turn in which it could see this */
    }
}

static void ipv6_is_dialled_too(void **state)
{
    (void)state;
    world w;
    call c;
    set_up_world(&w, "::1", &usual_client_limits);
    for (int i = 0; i < 2; i++) {
        if (i == 1) resolve_to("six.example", "::1");
        prepare_call(&w, &c, i == 0 ? "[::1]" : "six.example");
        start_call(&w, &c);
        int peer = accept_one(&w.f);
        read_call(&w, peer);
        send_text(&w.f, peer, OK);
        wait_call(&w, &c);
        assert_call(&c, NONE, 200);
        assert_memory_equal(c.remote, "[::1]:", 6);
        close(peer);
    }
    tear_down_world(&w);
}

static void requests_are_cancelled_wherever_they_are(void **state)
{
    (void)state;
    world w;
    call active, waiting, looked_up;
    hx_client_limits limits = usual_client_limits;
    limits.requests_per_host_max = 1;
    set_up_world(&w, "127.0.0.1", &limits);
    int peer = ask_call(&w, &active, -1);
    prepare_call(&w, &waiting, "127.0.0.1");
    start_call(&w, &waiting);
    resolve_to("slow.example", "127.0.0.1");
    block_names();
    prepare_call(&w, &looked_up, "slow.example");
    start_call(&w, &looked_up);
    rest(&w.f);
    call *const calls[] = {&active, &waiting, &looked_up};
    for (int i = 0; i < 3; i++) {
        hx_client_cancel(&calls[i]->request);
        hx_client_cancel(&calls[i]->request);
        assert_int_equal(calls[i]->dones, 0);
    }
    for (int i = 0; i < 3; i++) wait_call(&w, calls[i]);
    unblock_names();
    rest(&w.f);
    for (int i = 0; i < 3; i++) {
        assert_call(calls[i], CANCELLED, 0);
        assert_true((calls[i]->result.bytes_sent > 0) == (i == 0));
    }
    expect_closed(&w.f, peer);
    assert_true(nobody_connects(&w.f));
    peer = ask_call(&w, &active, -1);
    send_text(&w.f, peer, OK);
    wait_call(&w, &active);
    assert_call(&active, NONE, 200);
    close(peer);
    tear_down_world(&w);
}

static void what_is_in_flight_is_cancelled_when_the_client_is_freed(void **state)
{
    (void)state;
    world w;
    call c[3];
    hx_client_limits limits = usual_client_limits;
    limits.requests_per_host_max = 1;
    set_up_world(&w, "127.0.0.1", &limits);
    resolve_to("slow.example", "127.0.0.1");
    block_names();
    int peer = ask_call(&w, &c[0], -1);
    for (int i = 1; i < 3; i++) {
        prepare_call(&w, &c[i], i == 1 ? "127.0.0.1" : "slow.example");
        start_call(&w, &c[i]);
    }
    rest(&w.f);
    hx_client_free(&w.client);
    unblock_names();
    for (int i = 0; i < 3; i++) assert_call(&c[i], CANCELLED, 0);
    expect_closed(&w.f, peer);
    tear_down_world(&w);
}

static hx_client *restarts_on;
static int restarts;

static void restart(hx_client_request *request, const hx_client_result *result)
{
    assert_int_equal(result->error, HX_CLIENT_NONE);
    if (++restarts < 100) hx_client_start(restarts_on, request);
}

static void a_request_may_be_started_again_when_it_is_done(void **state)
{
    world *w = *state;
    call c;
    prepare_call(w, &c, "127.0.0.1");
    c.request.done = restart;
    restarts_on = w->client;
    restarts = 0;
    start_call(w, &c);
    int peer = accept_one(&w->f);
    for (int i = 0; i < 100; i++) {
        read_call(w, peer);
        send_text(&w->f, peer, OK);
    }
    while (restarts < 100) turn(&w->f);
    assert_true(nobody_connects(&w->f));
    close(peer);
}

/* The host that never answers gets as many requests as one may have; all connections but those are for others. */
static void a_host_that_never_answers_leaves_connections_to_others(void **state)
{
    world *w = *state;
    static call stuck[40], healthy[20];
    int peers[8];
    resolve_to("healthy.example", "127.0.0.1");
    for (int i = 0; i < 40; i++) {
        prepare_call(w, &stuck[i], "127.0.0.1");
        start_call(w, &stuck[i]);
    }
    for (int i = 0; i < 8; i++) {
        peers[i] = accept_one(&w->f);
        read_call(w, peers[i]);
    }
    assert_true(nobody_connects(&w->f));
    for (int i = 0; i < 20; i++) {
        prepare_call(w, &healthy[i], "healthy.example");
        start_call(w, &healthy[i]);
    }
    int served = 0, others[8], count = 0;
    while (served < 20) {
        struct pollfd waiting = {.fd = w->f.listener, .events = POLLIN};
        if (poll(&waiting, 1, 0) > 0) {
            assert_true(count < 8);
            others[count++] = accept_one(&w->f);
        }
        for (int i = 0; i < count; i++) {
            char bytes[4096];
            if (recv(others[i], bytes, sizeof bytes, 0) <= 0) continue;
            send_text(&w->f, others[i], OK);
            served++;
        }
        turn(&w->f);
    }
    for (int i = 0; i < 20; i++) {
        wait_call(w, &healthy[i]);
        assert_call(&healthy[i], NONE, 200);
    }
    for (int i = 0; i < 40; i++) assert_int_equal(stuck[i].dones, 0);
    for (int i = 0; i < 8; i++) {
        send_text(&w->f, peers[i], OK);
        close(peers[i]);
    }
    for (int i = 0; i < count; i++) close(others[i]);
}

/* Three hosts want one connection. */
static void hosts_take_turns(void **state)
{
    (void)state;
    world w;
    static call c[9];
    static const char *const hosts[] = {"127.0.0.1", "127.0.0.2", "127.0.0.3"};
    hx_client_limits limits = usual_client_limits;
    limits.connections_max = 1;
    set_up_world(&w, "0.0.0.0", &limits);
    for (int i = 0; i < 9; i++) {
        prepare_call(&w, &c[i], hosts[i / 3]);
        start_call(&w, &c[i]);
    }
    for (int i = 0; i < 9; i++) {
        int peer = accept_one(&w.f);
        read_call(&w, peer);
        send_text(&w.f, peer, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        wait_call(&w, &c[i % 3 * 3 + i / 3]);
        close(peer);
    }
    tear_down_world(&w);
}

/* A third connection is made although the two that are allowed exist: they are idle. */
static void idle_connections_make_way(void **state)
{
    (void)state;
    world w;
    call c;
    int peers[3];
    static const char *const hosts[] = {"127.0.0.1", "127.0.0.2", "127.0.0.3"};
    hx_client_limits limits = usual_client_limits;
    limits.connections_max = 2;
    set_up_world(&w, "0.0.0.0", &limits);
    for (int i = 0; i < 3; i++) {
        prepare_call(&w, &c, hosts[i]);
        start_call(&w, &c);
        peers[i] = accept_one(&w.f);
        read_call(&w, peers[i]);
        send_text(&w.f, peers[i], OK);
        wait_call(&w, &c);
        assert_call(&c, NONE, 200);
    }
    expect_closed(&w.f, peers[0]);
    close(peers[1]);
    close(peers[2]);
    tear_down_world(&w);
}

static void too_many_waiting_requests_are_refused(void **state)
{
    (void)state;
    world w;
    call c[4];
    hx_client_limits limits = usual_client_limits;
    limits.requests_per_host_max = 1;
    limits.waiting_max = 2;
    set_up_world(&w, "127.0.0.1", &limits);
    int peer = ask_call(&w, &c[0], -1);
    for (int i = 1; i < 4; i++) {
        prepare_call(&w, &c[i], "127.0.0.1");
        start_call(&w, &c[i]);
    }
    wait_call(&w, &c[3]);
    assert_call(&c[3], BUSY, 0);
    assert_int_equal(c[3].result.bytes_sent, 0);
    for (int i = 0; i < 3; i++) {
        if (i > 0) read_call(&w, peer);
        send_text(&w.f, peer, OK);
        wait_call(&w, &c[i]);
        assert_call(&c[i], NONE, 200);
    }
    close(peer);
    tear_down_world(&w);
}

static void proxies_of_the_environment_are_ignored(void **state)
{
    world *w = *state;
    static const char *const variables[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    fixture proxy;
    call c;
    set_up_listener(&proxy, "127.0.0.1");
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) setenv(variables[i], proxy.url, 1);
    setenv("no_proxy", "", 1);
    int peer = ask_call(w, &c, -1);
    send_text(&w->f, peer, OK);
    wait_call(w, &c);
    assert_call(&c, NONE, 200);
    struct pollfd waiting = {.fd = proxy.listener, .events = POLLIN};
    assert_int_equal(poll(&waiting, 1, 0), 0);
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) unsetenv(variables[i]);
    unsetenv("no_proxy");
    close(proxy.listener);
    close(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_world(a_request_is_sent_whole_and_its_response_reported),
        with_world(each_method_has_its_form),
        with_world(a_large_body_arrives_whole),
        with_world(a_connection_is_kept_and_used_again),
        with_world(an_idle_connection_that_is_spoilt_is_replaced),
        with_world(bytes_behind_a_response_close_its_connection),
        with_world(nothing_is_sent_where_nobody_listens),
        with_world(the_next_address_is_tried_when_one_refuses),
        cmocka_unit_test(a_host_follows_another),
        with_world(kept_connections_may_be_cut_any_number_of_times),
        cmocka_unit_test(ipv6_is_dialled_too),
        cmocka_unit_test(requests_are_cancelled_wherever_they_are),
        cmocka_unit_test(what_is_in_flight_is_cancelled_when_the_client_is_freed),
        with_world(a_request_may_be_started_again_when_it_is_done),
        with_world(a_host_that_never_answers_leaves_connections_to_others),
        cmocka_unit_test(hosts_take_turns),
        cmocka_unit_test(idle_connections_make_way),
        cmocka_unit_test(too_many_waiting_requests_are_refused),
        with_world(proxies_of_the_environment_are_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
