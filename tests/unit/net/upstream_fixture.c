/* SPDX-License-Identifier: Apache-2.0 */
#include "upstream_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* For one thing to happen. Nothing that is tested takes as long, however busy the machine is. */
#define WAIT_MAX (20 * HX_SECOND)

const hx_upstream_limits usual_limits = {
    .connect_timeout = 5 * HX_SECOND,
    .idle_timeout = HX_HOUR, /* no test may take an idle connection's end for what it waits for */
    .idle_max = 256,
    .connections_max = 64,
    .waiting_max = 64,
    .head_bytes_max = 64 * 1024,
    .fields_max = 200,
};

static int listen_on(fixture *f, const char *address)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_un un;
    } at = {0};
    bool is_v6 = strchr(address, ':') != NULL;
    socklen_t len = sizeof at;
    if (strcmp(address, "unix") == 0) {
        len = sizeof at.un;
        at.un.sun_family = AF_UNIX;
        (void)snprintf(f->path, sizeof f->path, "/tmp/hapax-test-%d.sock", (int)getpid());
        memcpy(at.un.sun_path, f->path, sizeof f->path);
        (void)unlink(f->path);
    } else if (is_v6) {
        at.in6.sin6_family = AF_INET6;
        inet_pton(AF_INET6, address, &at.in6.sin6_addr);
    } else {
        at.in.sin_family = AF_INET;
        inet_pton(AF_INET, address, &at.in.sin_addr);
    }
    int listener = socket(at.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, &at.any, len), 0);
    assert_int_equal(listen(listener, 128), 0);
    assert_int_equal(getsockname(listener, &at.any, &len), 0);
    if (f->path[0])
        (void)snprintf(f->url, sizeof f->url, "unix:%s", f->path);
    else if (is_v6)
        (void)snprintf(f->url, sizeof f->url, "http://[%s]:%u", address, ntohs(at.in6.sin6_port));
    else
        (void)snprintf(f->url, sizeof f->url, "http://%s:%u", address, ntohs(at.in.sin_port));
    return listener;
}

void set_up_url(fixture *f, const char *url, const hx_upstream_limits *limits)
{
    hx_error_text error;
    f->loop = hx_loop_new();
    f->limits = *limits;
    f->upstream = hx_upstream_new(f->loop, hx_slice_of(url), limits, error);
    assert_non_null(f->upstream);
}

void set_up_listener(fixture *f, const char *address)
{
    *f = (fixture){.listener = -1};
    f->listener = listen_on(f, address);
}

void set_up(fixture *f, const char *address, const hx_upstream_limits *limits)
{
    set_up_listener(f, address);
    set_up_url(f, f->url, limits);
}

void tear_down(fixture *f)
{
    hx_upstream_free(&f->upstream);
    hx_loop_free(&f->loop);
    if (f->listener >= 0) close(f->listener);
    if (f->path[0]) (void)unlink(f->path);
    hx_arena_pool_drain();
}

int set_up_usual(void **state)
{
    static fixture f;
    set_up(&f, "127.0.0.1", &usual_limits);
    *state = &f;
    return 0;
}

int tear_down_usual(void **state)
{
    tear_down(*state);
    return 0;
}

static void head_came(hx_exchange *exchange, const hx_answer_head *head)
{
    client *c = exchange->user;
    assert_false(over(c));
    c->heads++;
    c->head = head;
    c->sent_at_head = exchange->bytes_sent;
    if (c->at_head) c->at_head(c);
}

static void body_came(hx_exchange *exchange, hx_slice piece)
{
    client *c = exchange->user;
    assert_false(over(c));
    assert_int_equal(c->heads, 1);
    c->pieces++;
    c->body_bytes += piece.len;
    if (!c->body_not_kept) assert_true(hx_buf_append(&c->body, piece));
    if (c->at_body) c->at_body(c);
}

static void ended(hx_exchange *exchange)
{
    client *c = exchange->user;
    assert_false(over(c));
    c->ends++;
    if (c->at_end) c->at_end(c);
}

static void failed(hx_exchange *exchange, hx_upstream_error error)
{
    client *c = exchange->user;
    assert_false(over(c));
    c->fails++;
    c->error = error;
}

static void drained(hx_exchange *exchange)
{
    client *c = exchange->user;
    assert_false(over(c));
    c->drains++;
}

static const hx_exchange_events events = {
    .head = head_came, .body = body_came, .end = ended, .failed = failed, .drained = drained};

/* Takes a last line of framing off the header lines. */
static void take_framing(hx_exchange *exchange)
{
    hx_slice chunked = HX_LIT("Transfer-Encoding: chunked\r\n"), *lines = &exchange->header_lines;
    const char *length = strstr(lines->ptr, "Content-Length: ");
    if (hx_slice_ends(*lines, chunked)) {
        exchange->framing = HX_FRAMING_CHUNKED;
        lines->len -= chunked.len;
    } else if (length) {
        exchange->framing = HX_FRAMING_LENGTH;
        exchange->content_length = strtoull(length + sizeof "Content-Length: " - 1, NULL, 10);
        lines->len = (size_t)(length - lines->ptr);
    }
}

void prepare(client *c, const char *request, const char *body)
{
    hx_slice rest = hx_slice_of(request), method = HX_EMPTY, target = HX_EMPTY;
    *c = (client){.exchange = {.body = hx_slice_of(body), .pooled_idle_max = HX_MINUTE}};
    assert_true(hx_slice_next(&rest, ' ', &method) && hx_slice_next(&rest, ' ', &target));
    c->exchange.method = method;
    c->exchange.target = target;
    rest = hx_slice_from(rest, sizeof "HTTP/1.1\r\n" - 1);
    const char *end = strstr(request, "\r\n\r\n") + 2;
    c->exchange.header_lines = hx_slice_first(rest, (size_t)(end - rest.ptr));
    if (end[2]) c->exchange.body = hx_slice_of(end + 2);
    take_framing(&c->exchange);
    hx_buf_init(&c->body, NULL, 64u * 1024u * 1024u);
    c->exchange.events = &events;
}

void start(fixture *f, client *c)
{
    c->exchange.arena = &c->arena;
    c->exchange.user = c;
    hx_exchange_start(f->upstream, &c->exchange);
    assert_false(over(c)); /* never inside the call */
}

bool over(const client *c)
{
    return c->ends + c->fails > 0;
}

void turn(fixture *f)
{
    hx_loop_turn(f->loop, 1);
}

/* The next turn of something that is waited for since `from`. */
static void wait_turn(fixture *f, hx_ms from, const char *what)
{
    turn(f);
    if (hx_clock_now() - from > WAIT_MAX) fail_msg("waited in vain for %s", what);
}

void wait_over(fixture *f, client *c)
{
    for (hx_ms from = hx_clock_now(); !over(c);) wait_turn(f, from, "the end of an exchange");
}

hx_slice body_of(const client *c)
{
    return hx_buf_slice(&c->body);
}

void forget(client *c)
{
    hx_arena_free(&c->arena);
    hx_buf_free(&c->body);
}

void rest(fixture *f)
{
    for (int i = 0; i < 2; i++) turn(f);
}

int accept_one(fixture *f)
{
    for (hx_ms from = hx_clock_now();;) {
        int peer = accept4(f->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (peer >= 0) return peer;
        assert_true(errno == EAGAIN || errno == EINTR);
        wait_turn(f, from, "a connection");
    }
}

bool nobody_connects(fixture *f)
{
    for (int i = 0; i < 5; i++) turn(f);
    struct pollfd waiting = {.fd = f->listener, .events = POLLIN};
    return poll(&waiting, 1, 0) == 0;
}

void expect_bytes(fixture *f, int peer, const char *bytes)
{
    size_t len = strlen(bytes), got = 0;
    char *buffer = malloc(len + 1);
    hx_ms from = hx_clock_now();
    while (got < len) {
        ssize_t n = recv(peer, buffer + got, len - got, 0);
        if (n > 0) {
            got += (size_t)n;
            continue;
        }
        assert_true(n < 0 && errno == EAGAIN);
        wait_turn(f, from, "bytes of a request");
    }
    assert_memory_equal(buffer, bytes, len);
    free(buffer);
}

void expect_closed(fixture *f, int peer)
{
    char byte;
    ssize_t n;
    for (hx_ms from = hx_clock_now(); (n = recv(peer, &byte, 1, 0)) < 0 && errno == EAGAIN;)
        wait_turn(f, from, "the end of a connection");
    assert_true(n == 0 || (n < 0 && (errno == ECONNRESET || errno == EPIPE)));
    close(peer);
}

void send_bytes(fixture *f, int peer, const void *bytes, size_t len)
{
    const char *at = bytes;
    hx_ms from = hx_clock_now();
    while (len > 0) {
        ssize_t n = send(peer, at, len, MSG_NOSIGNAL);
        if (n < 0) {
            assert_int_equal(errno, EAGAIN);
            wait_turn(f, from, "somebody to read");
            continue;
        }
        at += n;
        len -= (size_t)n;
    }
}

void send_text(fixture *f, int peer, const char *text)
{
    send_bytes(f, peer, text, strlen(text));
}

void reset_peer(int peer)
{
    struct linger hard = {.l_onoff = 1};
    setsockopt(peer, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(peer);
}

int ask(fixture *f, client *c)
{
    prepare(c, GET, "");
    start(f, c);
    int peer = accept_one(f);
    expect_bytes(f, peer, GET);
    return peer;
}

void answer_ok(fixture *f, client *c, int peer)
{
    send_text(f, peer, OK);
    wait_over(f, c);
    assert_good(c, 200, "ok");
}

int serve_one(fixture *f, client *c, int peer)
{
    if (peer < 0) {
        peer = ask(f, c);
    } else {
        prepare(c, GET, "");
        start(f, c);
        expect_bytes(f, peer, GET);
    }
    answer_ok(f, c, peer);
    rest(f);
    return peer;
}
