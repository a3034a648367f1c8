/* SPDX-License-Identifier: Apache-2.0 */
/* Servers, names and URLs that mean no good. Each costs bounded time and memory, and of each request it is known
 * whether a part of it may have been sent. */
#include "client_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void a_server_that_never_answers_costs_the_timeout(void **state)
{
    world *w = *state;
    call c;
    static const char *const said[] = {"", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart"};
    for (int i = 0; i < 2; i++) {
        prepare_call(w, &c, "127.0.0.1");
        c.request.timeout = 200;
        start_call(w, &c);
        int peer = accept_one(&w->f);
        read_call(w, peer);
        send_text(&w->f, peer, said[i]);
        wait_call(w, &c);
        assert_call(&c, TIMEOUT, i == 0 ? 0 : 200);
        assert_true(c.result.bytes_sent > 0);
        assert_true(c.result.duration >= 100);
        assert_string_equal(c.body, i == 0 ? "" : "part");
        expect_closed(&w->f, peer);
    }
}

/* The kernel completes handshakes for the listener, so a full queue of it is what keeps a connection from being made.
 */
static void a_server_that_accepts_nobody_costs_the_connect_timeout(void **state)
{
    world *w = *state;
    call c;
    int fillers[8], full = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    assert_int_equal(bind(full, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(full, 0), 0);
    assert_int_equal(getsockname(full, (struct sockaddr *)&at, &len), 0);
    for (int i = 0; i < 8; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(fillers[i], (struct sockaddr *)&at, len);
    }
    prepare_call(w, &c, "127.0.0.1");
    (void)snprintf(c.url, sizeof c.url, "http://127.0.0.1:%u/", ntohs(at.sin_port));
    c.request.connect_timeout = 200;
    start_call(w, &c);
    wait_call(w, &c);
    assert_call(&c, TIMEOUT, 0);
    assert_int_equal(c.result.bytes_sent, 0);
    for (int i = 0; i < 8; i++) close(fillers[i]);
    close(full);
}

/* It is judged by its status once more came than anyone wants to read. */
static void an_endless_body_is_cut(void **state)
{
    world *w = *state;
    static char chunk[64 * 1024 + 16];
    for (int i = 0; i < 3; i++) {
        call c;
        size_t sent = 0;
        int peer = ask_call(w, &c, -1);
        send_text(&w->f, peer, "HTTP/1.1 200 OK\r\n");
        if (i == 0) send_text(&w->f, peer, "Transfer-Encoding: chunked\r\n");
        if (i == 1) send_text(&w->f, peer, "Content-Length: 99999999999\r\n");
        send_text(&w->f, peer, "\r\n");
        size_t len = i == 0 ? (size_t)snprintf(chunk, 16, "10000\r\n") : 0;
        memset(chunk + len, 'x', sizeof chunk - len);
        len = i == 0 ? len + 0x10000 + 2 : 64 * 1024;
        if (i == 0) chunk[len - 2] = '\r', chunk[len - 1] = '\n';
        while (c.dones == 0 && sent < 64u * 1024u * 1024u) {
            for (size_t at = 0; at < len && c.dones == 0;) {
                ssize_t n = send(peer, chunk + at, len - at, MSG_NOSIGNAL);
                if (n > 0) at += (size_t)n;
                turn(&w->f);
            }
            sent += len;
        }
        assert_call(&c, NONE, 200);
        assert_true(c.result.body_is_cut);
        assert_string_equal(c.body, "xxxxxxxxxxxxxxxx");
        assert_true(sent < 16u * 1024u * 1024u); /* 1 MiB, and what the kernel's buffers hold */
        expect_closed(&w->f, peer);
    }
}

static void a_response_that_is_not_http_is_an_error(void **state)
{
    world *w = *state;
    static const struct {
        const char *text;
        hx_client_error error;
    } rows[] = {
        {"garbage\r\n\r\n", HX_CLIENT_BROKEN},
        {"220 smtp.example ESMTP\r\n", HX_CLIENT_BROKEN},
        {"\x16\x03\x01\x02\x01", HX_CLIENT_BROKEN},
        {"ICY 200 OK\r\n\r\n", HX_CLIENT_BROKEN},
        {"HTTP/1.1 twohundred OK\r\n\r\n", HX_CLIENT_BROKEN},
        {"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", HX_CLIENT_BROKEN},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n", HX_CLIENT_RESET},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", HX_CLIENT_RESET},
        {"HTTP/1.1 200 OK\r\nContent-Le", HX_CLIENT_RESET},
        {"HTTP/1.1 200 OK\r\n", HX_CLIENT_RESET},
        {"HTTP/1.1 200 OK", HX_CLIENT_RESET},
        {"HTTP/1.1 100 Continue\r\n\r\n", HX_CLIENT_RESET},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n", HX_CLIENT_RESET},
        {"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n", HX_CLIENT_RESET},
        {"", HX_CLIENT_RESET},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        call c;
        int peer = ask_call(w, &c, -1);
        send_text(&w->f, peer, rows[i].text);
        close(peer);
        wait_call(w, &c);
        if (c.result.error != rows[i].error) fail_msg("\"%s\": %d, %s", rows[i].text, c.result.error, c.reason);
        assert_true(c.result.bytes_sent > 0);
        assert_int_equal(c.dones, 1);
    }
}

static void an_endless_head_is_cut(void **state)
{
    world *w = *state;
    static const char *const pieces[] = {"X-Filler: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n",
                                         "HTTP/1.1 100 Continue\r\n\r\n", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"};
    for (int i = 0; i < 3; i++) {
        call c;
        size_t sent = 0;
        int peer = ask_call(w, &c, -1);
        if (i != 1) send_text(&w->f, peer, "HTTP/1.1 200 OK\r\nX: ");
        for (; c.dones == 0 && sent < 64u * 1024u * 1024u; sent += strlen(pieces[i])) {
            (void)send(peer, pieces[i], strlen(pieces[i]), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent % 4096 < 64) turn(&w->f);
        }
        assert_int_equal(c.dones, 1);
        assert_true(c.result.error != HX_CLIENT_NONE);
        assert_true(i == 2 || strstr(c.reason, "64 KiB")); /* a single line is libcurl's to cut */
        assert_true(sent < 16u * 1024u * 1024u);
        expect_closed(&w->f, peer);
    }
}

/* libcurl by itself would send it again: the server may have acted on it. */
static void what_may_have_been_executed_is_not_sent_again(void **state)
{
    world *w = *state;
    for (int i = 0; i < 2; i++) {
        call c;
        int peer = ask_call(w, &c, -1);
        send_text(&w->f, peer, OK);
        wait_call(w, &c);
        (void)ask_call(w, &c, peer); /* the same connection */
        if (i == 0)
            close(peer);
        else
            reset_peer(peer);
        wait_call(w, &c);
        assert_call(&c, RESET, 0);
        assert_true(c.result.bytes_sent > 0);
        assert_true(nobody_connects(&w->f));
    }
}

static void a_redirect_is_a_response_like_others(void **state)
{
    world *w = *state;
    call c;
    char answer[256];
    static const int codes[] = {301, 302, 303, 307, 308};
    int peer = -1;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        peer = ask_call(w, &c, peer);
        (void)snprintf(answer, sizeof answer,
                       "HTTP/1.1 %d Elsewhere\r\nLocation: http://127.0.0.1:%u/inward\r\nContent-Length: 0\r\n\r\n",
                       codes[i], w->port);
        send_text(&w->f, peer, answer);
        wait_call(w, &c);
        assert_call(&c, NONE, codes[i]);
        assert_true(nobody_connects(&w->f));
    }
    char byte;
    assert_int_equal(recv(peer, &byte, 1, 0), -1);
    close(peer);
}

static void expect_denied(world *w, const char *host)
{
    call c;
    run_call(w, &c, host);
    if (c.result.error != HX_CLIENT_DENIED) fail_msg("%s: %s", host, c.reason);
    assert_int_equal(c.result.bytes_sent, 0);
    assert_true(nobody_connects(&w->f));
}

/* A listener is there, on every address: it must not even be connected to. */
static void inward_addresses_are_refused_in_every_spelling(void **state)
{
    (void)state;
    world w;
    set_up_world(&w, "0.0.0.0", &usual_client_limits);
    w.guard = (hx_guard){0};
    static const char *const hosts[] = {
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0177.0.0.1",
        "0x7f.1",
        "0x7f000001",
        "0.0.0.0",
        "0",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::1]",
        "[::]",
        "[::127.0.0.1]",
        "169.254.169.254",
        "017700000001",
        "127.0.0.1.example",
        "localhost",
        "LOCALHOST",
    };
    resolve_to("127.0.0.1.example", "127.0.0.1");
    resolve_to("localhost", "127.0.0.1,::1");
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) expect_denied(&w, hosts[i]);
    tear_down_world(&w);
}

static void a_name_that_leads_inward_is_refused(void **state)
{
    world *w = *state;
    w->guard = (hx_guard){0};
    resolve_to("inward.example", "10.0.0.1,127.0.0.1,::1,::ffff:127.0.0.1,fd00::1");
    expect_denied(w, "inward.example");
    resolve_to("rebound.example", "127.0.0.1");
    expect_denied(w, "rebound.example");
}

/* The connection exists; only the guard before each request can refuse it. */
static void a_connection_that_is_no_longer_allowed_is_not_used_again(void **state)
{
    world *w = *state;
    call c;
    int peer = ask_call(w, &c, -1);
    send_text(&w->f, peer, OK);
    wait_call(w, &c);
    assert_call(&c, NONE, 200);
    w->guard.allowed_count = 0;
    run_call(w, &c, "127.0.0.1");
    assert_call(&c, DENIED, 0);
    assert_int_equal(c.result.bytes_sent, 0);
    assert_non_null(strstr(c.reason, "127.0.0.1 is a loopback address"));
    expect_closed(&w->f, peer);
    assert_true(nobody_connects(&w->f));
}

static const char *const urls[] = {
    "",
    "127.0.0.1",
    "//127.0.0.1/",
    "ftp://127.0.0.1/",
    "file:///etc/passwd",
    "gopher://127.0.0.1/",
    "unix:/run/app.sock",
    "http:/127.0.0.1/",
    "http:127.0.0.1/",
    "http:///127.0.0.1/",
    "http://",
    "http:///",
    "http://?x",
    "http://user@127.0.0.1/",
    "http://user:password@127.0.0.1/",
    "http://@127.0.0.1/",
    "http://public.example@127.0.0.1/",
    "http://public.example#@127.0.0.1/",
    "http://127.0.0.1/#fragment",
    "http://127.0.0.1/#",
    "http://127.0.0.1\\@public.example/",
    "http://public.example\\.inward.example/",
    "http://127.0.0.1/a b",
    "http://127.0.0.1/a\tb",
    "http://127.0.0.1/a\r\nX: y",
    "http://127.0.0.1 /",
    " http://127.0.0.1/",
    "http://127.0.0.1/\x80",
    "http://\xc3\xbc.example/",
    "http://%31%32%37.0.0.1/",
    "http://127.0.0.1%00.public.example/",
    "http://[::1%25lo]/",
    "http://[fe80::1%eth0]/",
    "http://[::1/",
    "http://::1/",
    "http://[127.0.0.1]/",
    "http://127.0.0.1:0/",
    "http://127.0.0.1:65536/",
    "http://127.0.0.1:80:80/",
    "http://127.0.0.1:x/",
    "http://127.0.0.1:+80/",
    "http://256.256.256.256/",
    "http://1.2.3.4.5/",
    "http://127.0.0.1./",
    "http://0x7f.0.0.0x1.0/",
    "http://public.example./",
    "http://public..example/",
    "http://.public.example/",
    "http://*/",
    "http://a,b/",
    "http://public.example;x/",
    "http://-/%0a\n",
};

static void urls_that_can_be_read_in_two_ways_are_refused(void **state)
{
    world *w = *state;
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        call c;
        prepare_call(w, &c, "http://x");
        (void)snprintf(c.url, sizeof c.url, "%s", urls[i]);
        start_call(w, &c);
        wait_call(w, &c);
        if (c.result.error != HX_CLIENT_INVALID) fail_msg("%s: %s", urls[i], hx_client_error_text(c.result.error));
        assert_int_equal(c.result.bytes_sent, 0);
    }
    assert_true(nobody_connects(&w->f));
    char *long_url = malloc(10000);
    call c;
    assert_non_null(long_url);
    prepare_call(w, &c, "http://x");
    memset(long_url, 'a', 10000);
    (void)snprintf(long_url, 18, "http://127.0.0.1/");
    long_url[17] = 'a';
    c.request.url = (hx_slice){long_url, 10000};
    hx_client_start(w->client, &c.request);
    wait_call(w, &c);
    assert_call(&c, INVALID, 0);
    free(long_url);
}

static void requests_that_would_be_read_as_others_are_refused(void **state)
{
    world *w = *state;
    static const struct {
        const char *method, *lines;
    } rows[] = {
        {"", ""},
        {"PO ST", ""},
        {"POST / HTTP/1.1\r\nX:", ""},
        {"POST", "no colon\r\n"},
        {"POST", ": no name\r\n"},
        {"POST", "X : y\r\n"},
        {"POST", " X: y\r\n"},
        {"POST", "X: y"},
        {"POST", "X: y\n"},
        {"POST", "X: y\r\n\r\nGET / HTTP/1.1\r\n"},
        {"POST", "X: a\rb\r\n"},
        {"POST", "X: a\x7f\r\n"},
        {"POST", "X: a\x01\r\n"},
        {"POST", "Host: inward\r\n"},
        {"POST", "content-length: 5\r\n"},
        {"POST", "Transfer-Encoding: chunked\r\n"},
        {"POST", "Connection: close\r\n"},
        {"POST", "Expect: 100-continue\r\n"},
        {"POST", "Upgrade: h2c\r\n"},
        {"POST", "TE: trailers\r\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        call c;
        prepare_call(w, &c, "127.0.0.1");
        c.request.method = hx_slice_of(rows[i].method);
        c.request.header_lines = hx_slice_of(rows[i].lines);
        start_call(w, &c);
        wait_call(w, &c);
        if (c.result.error != HX_CLIENT_INVALID) fail_msg("%s %s", rows[i].method, rows[i].lines);
    }
    hx_buf many;
    call c;
    hx_buf_init(&many, NULL, 4096);
    for (int i = 0; i < 65; i++) assert_true(hx_buf_append(&many, HX_LIT("X: y\r\n")));
    prepare_call(w, &c, "127.0.0.1");
    c.request.header_lines = hx_buf_slice(&many);
    start_call(w, &c);
    wait_call(w, &c);
    assert_call(&c, INVALID, 0);
    assert_true(nobody_connects(&w->f));
    many.len -= 6;
    prepare_call(w, &c, "127.0.0.1");
    c.request.header_lines = hx_buf_slice(&many);
    start_call(w, &c);
    int peer = accept_one(&w->f);
    read_call(w, peer);
    send_text(&w->f, peer, OK);
    wait_call(w, &c);
    assert_call(&c, NONE, 200);
    close(peer);
    hx_buf_free(&many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_world(a_server_that_never_answers_costs_the_timeout),
        with_world(a_server_that_accepts_nobody_costs_the_connect_timeout),
        with_world(an_endless_body_is_cut),
        with_world(a_response_that_is_not_http_is_an_error),
        with_world(an_endless_head_is_cut),
        with_world(what_may_have_been_executed_is_not_sent_again),
        with_world(a_redirect_is_a_response_like_others),
        cmocka_unit_test(inward_addresses_are_refused_in_every_spelling),
        with_world(a_name_that_leads_inward_is_refused),
        with_world(a_connection_that_is_no_longer_allowed_is_not_used_again),
        with_world(urls_that_can_be_read_in_two_ways_are_refused),
        with_world(requests_that_would_be_read_as_others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
