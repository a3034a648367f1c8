/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: how they are made, kept, reused, waited for and closed. */
#include "upstream_fixture.h"

#include "net/pool.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void a_connection_is_kept_and_used_again(void **state)
{
    (void)state;
    static const char *const addresses[] = {"127.0.0.1", "unix"};
    for (size_t i = 0; i < 2; i++) {
        fixture f;
        client c;
        set_up(&f, addresses[i], &usual_limits);
        int peer = serve_one(&f, &c, -1);
        assert_false(c.exchange.reused);
        forget(&c);
        for (int n = 0; n < 5; n++) {
            (void)serve_one(&f, &c, peer);
            assert_true(c.exchange.reused);
            forget(&c);
        }
        assert_true(nobody_connects(&f));
        close(peer);
        tear_down(&f);
    }
}

static void the_one_used_last_is_used_first(void **state)
{
    fixture *f = *state;
    client c[2], d;
    int peers[2];
    for (int i = 0; i < 2; i++) peers[i] = ask(f, &c[i]);
    for (int i = 0; i < 2; i++) {
        send_text(f, peers[i], OK);
        wait_over(f, &c[i]);
        forget(&c[i]);
    }
    rest(f);
    (void)serve_one(f, &d, peers[1]);
    forget(&d);
    (void)serve_one(f, &d, peers[1]);
    forget(&d);
    close(peers[0]);
    close(peers[1]);
}

/* Lets the loop's clock move on without letting it look at sockets that are ready meanwhile. */
static void pass_time(fixture *f, hx_ms span)
{
    hx_ms until = hx_loop_now(f->loop) + span;
    while (hx_loop_now(f->loop) < until) turn(f);
}

static int ended_by(fixture *f, const char *how)
{
    client c;
    int peer = serve_one(f, &c, -1);
    forget(&c);
    pass_time(f, 15);
    if (strcmp(how, "reset") == 0) reset_peer(peer);
    if (strcmp(how, "close") == 0) close(peer);
    if (strcmp(how, "bytes") == 0) send_text(f, peer, "X");
    return peer;
}

static void a_connection_that_died_while_idle_is_seen_before_it_is_used(void **state)
{
    (void)state;
    /* It dies, and the request starts before the loop has turned: only looking at the socket can tell. */
    static const char *const ways[] = {"reset", "close", "bytes"};
    for (size_t i = 0; i < 3; i++) {
        fixture f;
        client c;
        set_up(&f, "127.0.0.1", &usual_limits);
        int old = ended_by(&f, ways[i]);
        int peer = ask(&f, &c);
        answer_ok(&f, &c, peer);
        assert_false(c.exchange.reused);
        if (i == 2) expect_closed(&f, old);
        forget(&c);
        close(peer);
        tear_down(&f);
    }
}

static void a_reset_after_bytes_on_a_reused_connection_is_told(void **state)
{
    fixture *f = *state;
    client c;
    int peer = serve_one(f, &c, -1);
    forget(&c);
    prepare(&c, GET, "");
    start(f, &c); /* the kernel has it now */
    assert_int_equal(c.exchange.bytes_sent, sizeof GET - 1);
    reset_peer(peer);
    wait_over(f, &c);
    assert_failed(&c, RESET);
    assert_true(c.exchange.reused);
    assert_int_equal(c.exchange.bytes_sent, sizeof GET - 1);
    assert_true(nobody_connects(f)); /* not sent again */
    forget(&c);
}

static void a_caller_can_ask_for_a_fresh_connection(void **state)
{
    fixture *f = *state;
    client c;
    int peer = serve_one(f, &c, -1);
    forget(&c);
    pass_time(f, 30);
    for (int i = 0; i < 2; i++) {
        prepare(&c, GET, "");
        c.exchange.pooled_idle_max = i == 0 ? 20 : 0; /* idle for longer; and never a pooled one */
        start(f, &c);
        int second = accept_one(f);
        expect_bytes(f, second, GET);
        send_text(f, second, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        wait_over(f, &c);
        assert_good(&c, 200, "");
        assert_false(c.exchange.reused);
        forget(&c);
        close(second);
    }
    (void)serve_one(f, &c, peer); /* it is still there */
    assert_true(c.exchange.reused);
    forget(&c);
    close(peer);
}

static void an_old_idle_connection_makes_room_for_a_fresh_one(void **state)
{
    (void)state;
    fixture f;
    client c;
    hx_upstream_limits limits = usual_limits;
    limits.connections_max = 1;
    limits.waiting_max = 0;
    set_up(&f, "127.0.0.1", &limits);
    int peer = serve_one(&f, &c, -1);
    forget(&c);
    prepare(&c, GET, "");
    c.exchange.pooled_idle_max = 0;
    start(&f, &c);
    expect_closed(&f, peer);
    peer = accept_one(&f);
    expect_bytes(&f, peer, GET);
    answer_ok(&f, &c, peer);
    forget(&c);
    close(peer);
    tear_down(&f);
}

/* Three connections that come to rest one after the other. */
static void three_idle(fixture *f, int peers[3])
{
    client c[3];
    for (int i = 0; i < 3; i++) peers[i] = ask(f, &c[i]);
    for (int i = 0; i < 3; i++) {
        send_text(f, peers[i], OK);
        wait_over(f, &c[i]);
        forget(&c[i]);
    }
}

static void idle_connections_are_bounded(void **state)
{
    (void)state;
    fixture f;
    client c;
    int peers[3];
    hx_upstream_limits limits = usual_limits;
    limits.idle_max = 2;
    set_up(&f, "127.0.0.1", &limits);
    three_idle(&f, peers);
    rest(&f);
    expect_closed(&f, peers[0]); /* the oldest goes */
    (void)serve_one(&f, &c, peers[2]);
    forget(&c);
    close(peers[1]);
    close(peers[2]);
    tear_down(&f);
}

static void idle_connections_are_closed_in_time(void **state)
{
    (void)state;
    fixture f;
    int peers[3];
    hx_upstream_limits limits = usual_limits;
    limits.idle_timeout = 30;
    set_up(&f, "127.0.0.1", &limits);
    three_idle(&f, peers);
    hx_ms from = hx_loop_now(f.loop);
    for (int i = 2; i >= 0; i--) expect_closed(&f, peers[i]);
    assert_true(hx_loop_now(f.loop) - from >= 29);
    tear_down(&f);
}

static void what_keep_alive_says_bounds_the_idle_time(void **state)
{
    fixture *f = *state;
    client c;
    int peer = ask(f, &c);
    send_text(f, peer, "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 0\r\n\r\n");
    wait_over(f, &c);
    forget(&c);
    hx_ms from = hx_loop_now(f->loop);
    expect_closed(f, peer); /* before the second is over, not after the sixty that we would wait */
    assert_in_range(hx_loop_now(f->loop) - from, 400, 5000);
}

static void further_exchanges_wait_in_line_and_too_many_are_refused(void **state)
{
    (void)state;
    fixture f;
    client c[5];
    hx_upstream_limits limits = usual_limits;
    limits.connections_max = 1;
    limits.waiting_max = 2;
    set_up(&f, "127.0.0.1", &limits);
    for (int i = 0; i < 5; i++) prepare(&c[i], GET, "");
    start(&f, &c[0]);
    int peer = accept_one(&f);
    expect_bytes(&f, peer, GET);
    for (int i = 1; i < 5; i++) start(&f, &c[i]);
    for (int i = 3; i < 5; i++) {
        wait_over(&f, &c[i]);
        assert_failed(&c[i], UNREACHABLE);
        assert_int_equal(c[i].exchange.bytes_sent, 0);
    }
    assert_true(nobody_connects(&f));
    for (int i = 0; i < 3; i++) { /* in their order, on the one connection */
        if (i > 0) expect_bytes(&f, peer, GET);
        assert_int_equal(c[i].exchange.bytes_sent, sizeof GET - 1);
        answer_ok(&f, &c[i], peer);
        assert_int_equal(c[i].exchange.reused, i > 0);
        if (i < 2) assert_false(over(&c[i + 1]));
    }
    for (int i = 0; i < 5; i++) forget(&c[i]);
    close(peer);
    tear_down(&f);
}

static void the_line_goes_on_when_a_connection_fails_or_must_not_be_reused(void **state)
{
    (void)state;
    static const char *const answers[] = {"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "garbage", ""};
    for (size_t n = 0; n < 5; n++) {
        fixture f;
        client c[3];
        hx_upstream_limits limits = usual_limits;
        limits.connections_max = 1;
        set_up(&f, "127.0.0.1", &limits);
        for (int i = 0; i < 3; i++) prepare(&c[i], GET, "");
        start(&f, &c[0]);
        int peer = accept_one(&f);
        expect_bytes(&f, peer, GET);
        start(&f, &c[1]);
        start(&f, &c[2]);
        if (n == 4) c[1].exchange.pooled_idle_max = 0; /* wants a new one: the old one is closed for it */
        if (n == 3) hx_exchange_cancel(&c[0].exchange);
        if (n < 3) send_text(&f, peer, answers[n]);
        if (n == 4) send_text(&f, peer, OK);
        if (n == 2) close(peer);
        wait_over(&f, &c[0]);
        if (n == 4) { /* but the one behind it takes the connection first */
            expect_bytes(&f, peer, GET);
            answer_ok(&f, &c[2], peer);
        }
        int second = accept_one(&f);
        expect_bytes(&f, second, GET);
        answer_ok(&f, &c[1], second);
        assert_false(c[1].exchange.reused);
        if (n < 4) {
            expect_bytes(&f, second, GET);
            answer_ok(&f, &c[2], second);
        }
        for (int i = 0; i < 3; i++) forget(&c[i]);
        if (n != 2) close(peer);
        close(second);
        tear_down(&f);
    }
}

static void waiting_in_line_can_be_called_off(void **state)
{
    (void)state;
    fixture f;
    client c[3];
    hx_upstream_limits limits = usual_limits;
    limits.connections_max = 1;
    set_up(&f, "127.0.0.1", &limits);
    for (int i = 0; i < 3; i++) prepare(&c[i], GET, "");
    start(&f, &c[0]);
    int peer = accept_one(&f);
    expect_bytes(&f, peer, GET);
    start(&f, &c[1]);
    start(&f, &c[2]);
    hx_exchange_cancel(&c[1].exchange);
    wait_over(&f, &c[1]);
    assert_failed(&c[1], CANCELLED);
    assert_int_equal(c[1].exchange.bytes_sent, 0);
    send_text(&f, peer, OK);
    wait_over(&f, &c[0]);
    expect_bytes(&f, peer, GET);
    answer_ok(&f, &c[2], peer);
    for (int i = 0; i < 3; i++) forget(&c[i]);
    close(peer);
    tear_down(&f);
}

static void a_refused_connection_is_unreachable_with_nothing_sent(void **state)
{
    (void)state;
    static const char *const addresses[] = {"127.0.0.1", "::1", "unix"};
    for (size_t i = 0; i < 3; i++) {
        fixture f;
        client c[3];
        set_up(&f, addresses[i], &usual_limits);
        close(f.listener);
        f.listener = -1;
        for (int n = 0; n < 3; n++) {
            prepare(&c[n], GET, "");
            start(&f, &c[n]);
        }
        for (int n = 0; n < 3; n++) {
            wait_over(&f, &c[n]);
            assert_failed(&c[n], UNREACHABLE);
            assert_int_equal(c[n].exchange.bytes_sent, 0);
            assert_int_equal(c[n].exchange.connect_failures, 1);
            forget(&c[n]);
        }
        tear_down(&f);
    }
}

/* Fills the queue of a listener that nobody accepts from, so that further handshakes get no answer. */
static unsigned fill_queue(fixture *f, int fillers[8])
{
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof address;
    assert_int_equal(listen(f->listener, 0), 0);
    assert_int_equal(getsockname(f->listener, (struct sockaddr *)&address, &len), 0);
    unsigned count = 0;
    for (; count < 8; count++) {
        fillers[count] = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        int result = connect(fillers[count], (struct sockaddr *)&address, len);
        if (result < 0 && errno == EAGAIN) return count + 1; /* a full unix socket says so */
        struct pollfd made = {.fd = fillers[count], .events = POLLOUT};
        if (poll(&made, 1, 100) == 0) return count + 1; /* this one gets no answer any more */
    }
    return count;
}

static void a_connect_that_nobody_answers_times_out_with_nothing_sent(void **state)
{
    (void)state;
    static const char *const addresses[] = {"127.0.0.1", "unix"};
    for (size_t i = 0; i < 2; i++) {
        fixture f;
        client c;
        int fillers[8] = {0};
        hx_upstream_limits limits = usual_limits;
        limits.connect_timeout = 50;
        set_up(&f, addresses[i], &limits);
        unsigned filled = fill_queue(&f, fillers);
        hx_loop_turn(f.loop, 0);
        hx_ms from = hx_loop_now(f.loop);
        prepare(&c, GET, "");
        start(&f, &c);
        wait_over(&f, &c);
        assert_failed(&c, CONNECT_TIMEOUT);
        assert_int_equal(c.exchange.bytes_sent, 0);
        assert_true(hx_loop_now(f.loop) - from >= 50);
        forget(&c);
        while (filled > 0) close(fillers[--filled]);
        tear_down(&f);
    }
}

static void a_full_unix_queue_is_waited_for(void **state)
{
    (void)state;
    fixture f;
    client c;
    int fillers[8] = {0};
    set_up(&f, "unix", &usual_limits);
    unsigned filled = fill_queue(&f, fillers);
    prepare(&c, GET, "");
    start(&f, &c);
    for (int i = 0; i < 10; i++) turn(&f);
    assert_false(over(&c));
    for (unsigned i = 0; i + 1 < filled; i++) close(accept_one(&f)); /* the last one was turned away */
    int peer = accept_one(&f);
    expect_bytes(&f, peer, GET);
    answer_ok(&f, &c, peer);
    forget(&c);
    close(peer);
    while (filled > 0) close(fillers[--filled]);
    tear_down(&f);
}

static void all_addresses_are_tried_and_the_one_that_answered_comes_first(void **state)
{
    fixture *f = *state;
    client c[2];
    hx_resolver *resolver = &f->upstream->resolver;
    int refusing = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* bound and not listening */
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    assert_int_equal(bind(refusing, (struct sockaddr *)&address, len), 0);
    assert_int_equal(getsockname(refusing, (struct sockaddr *)&address, &len), 0);
    resolver->addresses[2] = resolver->addresses[0];
    for (int i = 0; i < 2; i++) memcpy(&resolver->addresses[i], &address, sizeof address);
    resolver->count = 3;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++) { /* two at once: they must not confuse each other's order */
            prepare(&c[i], GET, "");
            c[i].exchange.pooled_idle_max = 0;
            start(f, &c[i]);
        }
        for (int i = 0; i < 2; i++) {
            int peer = accept_one(f);
            expect_bytes(f, peer, GET);
            answer_ok(f, &c[i], peer);
            assert_int_equal(c[i].exchange.connect_failures, round == 0 ? 2 : 0);
            forget(&c[i]);
            close(peer);
        }
    }
    close(refusing);
}

static void a_name_is_looked_up(void **state)
{
    fixture *f = *state;
    client c;
    hx_upstream_free(&f->upstream);
    hx_loop_free(&f->loop);
    char url[64];
    (void)snprintf(url, sizeof url, "http://localhost:%s", strrchr(f->url, ':') + 1);
    set_up_url(f, url, &usual_limits);
    assert_true(hx_slice_eq(hx_upstream_host(f->upstream), hx_slice_of(url + 7)));
    int peer = serve_one(f, &c, -1);
    forget(&c);
    for (int i = 0; i < 3; i++) { /* the address that answered is tried first from now on */
        prepare(&c, GET, "");
        c.exchange.pooled_idle_max = 0;
        start(f, &c);
        int other = accept_one(f);
        answer_ok(f, &c, other);
        assert_int_equal(c.exchange.connect_failures, 0);
        forget(&c);
        close(other);
    }
    close(peer);
}

static void a_name_that_nobody_knows_is_unreachable(void **state)
{
    (void)state;
    fixture f = {.listener = -1};
    client c[2];
    set_up_url(&f, "http://no-such-name.invalid:80", &usual_limits);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++) {
            prepare(&c[i], GET, "");
            start(&f, &c[i]);
        }
        for (int i = 0; i < 2; i++) {
            wait_over(&f, &c[i]);
            assert_failed(&c[i], UNREACHABLE);
            assert_int_equal(c[i].exchange.bytes_sent, 0);
            forget(&c[i]);
        }
    }
    prepare(&c[0], GET, "");
    start(&f, &c[0]); /* and freeing in the middle of a lookup is fine */
    hx_upstream_free(&f.upstream);
    assert_failed(&c[0], CANCELLED);
    forget(&c[0]);
    tear_down(&f);
}

static void a_connection_nobody_needs_any_more_is_kept(void **state)
{
    fixture *f = *state;
    client c;
    prepare(&c, GET, "");
    start(f, &c);
    hx_exchange_cancel(&c.exchange);
    wait_over(f, &c);
    assert_failed(&c, CANCELLED);
    forget(&c);
    int peer = accept_one(f);
    for (int i = 0; i < 3; i++) turn(f);
    (void)serve_one(f, &c, peer);
    forget(&c);
    assert_true(nobody_connects(f));
    close(peer);
}

static void urls_are_read_strictly(void **state)
{
    (void)state;
    static const struct {
        const char *url, *host, *port, *authority;
    } good[] = {
        {"http://127.0.0.1:3000", "127.0.0.1", "3000", "127.0.0.1:3000"},
        {"http://[::1]:3000/", "::1", "3000", "[::1]:3000"},
        {"HTTP://app", "app", "80", "app"},
        {"http://my-app_1.example:65535", "my-app_1.example", "65535", "my-app_1.example:65535"},
    };
    hx_target target;
    hx_error_text error;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(hx_target_parse(&target, hx_slice_of(good[i].url), error));
        assert_string_equal(target.host, good[i].host);
        assert_string_equal(target.port, good[i].port);
        assert_string_equal(target.authority, good[i].authority);
    }
    assert_true(hx_target_parse(&target, HX_LIT("unix:/run/app.sock"), error));
    assert_true(target.is_unix);
    assert_string_equal(target.address.sun_path, "/run/app.sock");
    static const char *const bad[] = {"",
                                      "http://",
                                      "http://:80",
                                      "http://a:",
                                      "http://a:0",
                                      "http://a:65536",
                                      "http://a:8x",
                                      "http://a:-1",
                                      "http://a/path",
                                      "http://a?b",
                                      "http://u:p@a:80",
                                      "http://[::1",
                                      "http://[::1]x",
                                      "http://[]:80",
                                      "https://a",
                                      "ftp://a",
                                      "127.0.0.1:80",
                                      "http://a b",
                                      "http://a\n",
                                      "unix:",
                                      "unix:relative"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        error[0] = '\0';
        if (hx_target_parse(&target, hx_slice_of(bad[i]), error)) fail_msg("%s was taken", bad[i]);
        assert_true(strlen(error) > 10);
    }
    char long_path[160] = "unix:/";
    for (size_t len = 110; len < 120; len++) { /* 107 bytes fit */
        memset(long_path + 6, 'a', len - 6);
        assert_int_equal(hx_target_parse(&target, (hx_slice){long_path, len}, error), len <= 5 + 107);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_is_kept_and_used_again),
        with_upstream(the_one_used_last_is_used_first),
        cmocka_unit_test(a_connection_that_died_while_idle_is_seen_before_it_is_used),
        with_upstream(a_reset_after_bytes_on_a_reused_connection_is_told),
        with_upstream(a_caller_can_ask_for_a_fresh_connection),
        cmocka_unit_test(an_old_idle_connection_makes_room_for_a_fresh_one),
        cmocka_unit_test(idle_connections_are_bounded),
        cmocka_unit_test(idle_connections_are_closed_in_time),
        with_upstream(what_keep_alive_says_bounds_the_idle_time),
        cmocka_unit_test(further_exchanges_wait_in_line_and_too_many_are_refused),
        cmocka_unit_test(the_line_goes_on_when_a_connection_fails_or_must_not_be_reused),
        cmocka_unit_test(waiting_in_line_can_be_called_off),
        cmocka_unit_test(a_refused_connection_is_unreachable_with_nothing_sent),
        cmocka_unit_test(a_connect_that_nobody_answers_times_out_with_nothing_sent),
        cmocka_unit_test(a_full_unix_queue_is_waited_for),
        with_upstream(all_addresses_are_tried_and_the_one_that_answered_comes_first),
        with_upstream(a_name_is_looked_up),
        cmocka_unit_test(a_name_that_nobody_knows_is_unreachable),
        with_upstream(a_connection_nobody_needs_any_more_is_kept),
        cmocka_unit_test(urls_are_read_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
