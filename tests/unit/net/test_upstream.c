/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges: what was sent, what came back, and how they end. */
#include "upstream_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define POST "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"

static void a_request_goes_out_whole_and_its_answer_comes_back(void **state)
{
    (void)state;
    static const char *const addresses[] = {"127.0.0.1", "::1", "unix"};
    for (size_t i = 0; i < 3; i++) {
        fixture f;
        client c;
        set_up(&f, addresses[i], &usual_limits);
        prepare(&c, POST, "hello");
        start(&f, &c);
        int peer = accept_one(&f);
        expect_bytes(&f, peer, POST "hello");
        send_text(&f, peer, "HTTP/1.1 201 Created\r\nContent-Length: 4\r\nX: y\r\n\r\nmade");
        wait_over(&f, &c);
        assert_good(&c, 201, "made");
        assert_int_equal(c.exchange.bytes_sent, sizeof(POST "hello") - 1);
        assert_int_equal(c.sent_at_head, sizeof(POST "hello") - 1);
        assert_false(c.exchange.reused);
        assert_true(hx_slice_eq(hx_fields_find(&c.head->fields, HX_LIT("x"))->value, HX_LIT("y")));
        forget(&c);
        close(peer);
        tear_down(&f);
    }
}

static void an_answer_may_come_byte_by_byte(void **state)
{
    fixture *f = *state;
    client c;
    int peer = ask(f, &c);
    const char *answer = "HTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                         "2\r\nok\r\n3\r\nays\r\n0\r\nT: u\r\n\r\n";
    for (const char *at = answer; *at; at++) {
        assert_false(over(&c));
        send_bytes(f, peer, at, 1);
        turn(f);
    }
    wait_over(f, &c);
    assert_good(&c, 200, "okays");
    forget(&c);
    close(peer);
}

typedef struct {
    const char *answer; /* then the connection ends */
    bool reset;
    hx_upstream_error error;
} bad_end;

static void a_connection_that_ends_early_fails_with_what_was_sent(void **state)
{
    (void)state;
    static const bad_end ends[] = {
        {"", false, HX_UPSTREAM_RESET},
        {"", true, HX_UPSTREAM_RESET},
        {"HTTP/1.1 100 Continue\r\n\r\n", false, HX_UPSTREAM_RESET},
        {"H", false, HX_UPSTREAM_CUT_SHORT},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", false, HX_UPSTREAM_CUT_SHORT},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", false, HX_UPSTREAM_CUT_SHORT},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", false, HX_UPSTREAM_CUT_SHORT},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", false, HX_UPSTREAM_CUT_SHORT},
        {"HTTP/1.1 200 OK\r\n\r\nuntil close", true, HX_UPSTREAM_RESET},
        {"HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n", false, HX_UPSTREAM_BROKEN},
        {"SSH-2.0-OpenSSH\r\n", false, HX_UPSTREAM_BROKEN},
    };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        fixture f;
        client c;
        set_up(&f, "127.0.0.1", &usual_limits);
        prepare(&c, POST, "hello");
        start(&f, &c);
        int peer = accept_one(&f);
        expect_bytes(&f, peer, POST "hello");
        send_text(&f, peer, ends[i].answer);
        if (ends[i].reset) {
            for (int turns = 0; turns < 3 && ends[i].answer[0] && c.heads == 0; turns++) turn(&f);
            reset_peer(peer);
        } else {
            close(peer);
        }
        wait_over(&f, &c);
        assert_int_equal(c.fails, 1);
        if (c.error != ends[i].error) print_error("case %zu\n", i);
        assert_int_equal(c.error, ends[i].error);
        assert_int_equal(c.exchange.bytes_sent, sizeof(POST "hello") - 1);
        forget(&c);
        tear_down(&f);
    }
}

static void nothing_was_sent_on_a_connection_that_is_reset_before_the_request(void **state)
{
    /* The reset is there before the loop hears that the connection was made. */
    fixture *f = *state;
    client c;
    prepare(&c, POST, "hello");
    start(f, &c);
    int peer;
    while ((peer = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC)) < 0) {}
    reset_peer(peer);
    wait_over(f, &c);
    assert_int_equal(c.fails, 1);
    assert_true(c.error == HX_UPSTREAM_RESET || c.error == HX_UPSTREAM_UNREACHABLE);
    assert_int_equal(c.exchange.bytes_sent, 0);
    forget(&c);
}

static void part_of_a_large_body_counts_as_part(void **state)
{
    fixture *f = *state;
    client c;
    size_t len = 32u * 1024u * 1024u;
    char *body = malloc(len);
    memset(body, 'x', len);
    prepare(&c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 33554432\r\n\r\n", "");
    c.exchange.body = (hx_slice){body, len};
    start(f, &c);
    int peer = accept_one(f);
    expect_bytes(f, peer, "POST / HTTP/1.1\r\n"); /* and no more */
    for (int i = 0; i < 20; i++) turn(f);
    reset_peer(peer);
    wait_over(f, &c);
    assert_failed(&c, RESET);
    assert_true(c.exchange.bytes_sent > 16 && c.exchange.bytes_sent <= len + 60);
    forget(&c);
    free(body);
}

static void an_answer_before_the_body_is_sent_is_delivered_and_the_connection_closed(void **state)
{
    fixture *f = *state;
    client c, d;
    size_t len = 32u * 1024u * 1024u;
    char *body = malloc(len);
    memset(body, 'x', len);
    prepare(&c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 33554432\r\n\r\n", "");
    c.exchange.body = (hx_slice){body, len};
    start(f, &c);
    int peer = accept_one(f);
    expect_bytes(f, peer, "POST / HTTP/1.1\r\n");
    send_text(f, peer, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig");
    wait_over(f, &c);
    assert_good(&c, 413, "big");
    assert_true(c.exchange.bytes_sent > 0 && c.exchange.bytes_sent < len);
    forget(&c);
    free(body);
    int second = serve_one(f, &d, -1); /* on a new connection */
    assert_false(d.exchange.reused);
    forget(&d);
    close(peer);
    close(second);
}

static void an_answer_is_delivered_though_the_upstream_stopped_reading(void **state)
{
    (void)state;
    /* The socket is closed with unread bytes: writing fails, but the answer came before the reset. */
    fixture f;
    client c;
    set_up(&f, "unix", &usual_limits);
    size_t len = 4u * 1024u * 1024u;
    char *body = malloc(len);
    memset(body, 'x', len);
    prepare(&c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4194304\r\n\r\n", "");
    c.exchange.body = (hx_slice){body, len};
    start(&f, &c);
    int peer = accept_one(&f);
    expect_bytes(&f, peer, "POST / HTTP/1.1\r\n");
    shutdown(peer, SHUT_RD); /* our writes get EPIPE, once there is room to try one */
    char dropped[4096];
    while (recv(peer, dropped, sizeof dropped, 0) > 0) {}
    for (int i = 0; i < 20; i++) turn(&f);
    assert_false(over(&c));
    answer_ok(&f, &c, peer);
    close(peer);
    forget(&c);
    free(body);
    tear_down(&f);
}

static void an_answer_until_close_ends_with_the_connection(void **state)
{
    fixture *f = *state;
    client c;
    int peer = ask(f, &c);
    send_text(f, peer, "HTTP/1.0 200 OK\r\n\r\nhel");
    while (c.pieces == 0) turn(f);
    assert_false(over(&c));
    send_text(f, peer, "lo");
    close(peer);
    wait_over(f, &c);
    assert_good(&c, 200, "hello");
    assert_true(c.head->until_close);
    forget(&c);
}

static void head_and_204_have_no_body_and_keep_the_connection(void **state)
{
    fixture *f = *state;
    client c;
    prepare(&c, "HEAD / HTTP/1.1\r\n\r\n", "");
    c.exchange.answer_has_no_body = true;
    start(f, &c);
    int peer = accept_one(f);
    send_text(f, peer, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
    wait_over(f, &c);
    assert_good(&c, 200, "");
    assert_int_equal(c.head->content_length, 1000);
    forget(&c);
    expect_bytes(f, peer, "HEAD / HTTP/1.1\r\n\r\n");
    prepare(&c, GET, "");
    start(f, &c);
    expect_bytes(f, peer, GET);
    send_text(f, peer, "HTTP/1.1 204 No Content\r\n\r\n");
    wait_over(f, &c);
    assert_good(&c, 204, "");
    assert_true(c.exchange.reused);
    forget(&c);
    (void)serve_one(f, &c, peer);
    assert_true(c.exchange.reused);
    forget(&c);
    close(peer);
}

static void a_streamed_body_goes_out_in_chunks(void **state)
{
    fixture *f = *state;
    client c;
    const char *head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    prepare(&c, head, "");
    c.exchange.body_streamed = true;
    start(f, &c);
    assert_true(hx_exchange_write(&c.exchange, HX_LIT("held"))); /* before there is a connection */
    assert_int_equal(c.exchange.bytes_sent, 0);
    int peer = accept_one(f);
    expect_bytes(f, peer, head);
    expect_bytes(f, peer, "4\r\nheld\r\n");
    assert_true(hx_exchange_write(&c.exchange, HX_EMPTY));
    assert_true(hx_exchange_write(&c.exchange, HX_LIT("0123456789abcdef")));
    expect_bytes(f, peer, "10\r\n0123456789abcdef\r\n");
    hx_exchange_finish(&c.exchange);
    expect_bytes(f, peer, "0\r\n\r\n");
    answer_ok(f, &c, peer);
    assert_int_equal(c.exchange.bytes_sent, strlen(head) + 9 + 22 + 5);
    forget(&c);
    (void)serve_one(f, &c, peer);
    assert_true(c.exchange.reused);
    forget(&c);
    close(peer);
}

static void an_answer_before_the_stream_is_finished_ends_the_connection(void **state)
{
    fixture *f = *state;
    client c;
    prepare(&c, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "");
    c.exchange.body_streamed = true;
    start(f, &c);
    int peer = accept_one(f);
    expect_bytes(f, peer, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
    answer_ok(f, &c, peer);
    forget(&c);
    expect_closed(f, peer);
    peer = serve_one(f, &c, -1);
    assert_false(c.exchange.reused);
    forget(&c);
    close(peer);
}

static void writing_is_held_back_and_drained(void **state)
{
    fixture *f = *state;
    client c;
    static char piece[64 * 1024];
    for (size_t i = 0; i < sizeof piece; i++) piece[i] = (char)('a' + i % 23);
    prepare(&c, "POST / HTTP/1.1\r\nContent-Length: 67108864\r\n\r\n", "");
    c.exchange.body_streamed = true;
    start(f, &c);
    int peer = accept_one(f);
    expect_bytes(f, peer, "POST / HTTP/1.1\r\nContent-Length: 67108864\r\n\r\n");
    size_t written = 0, got = 0, held_back = 0;
    int drains = 0;
    bool may_write = true;
    static char buffer[100000];
    while (got < 67108864) {
        while (may_write && written < 67108864) {
            may_write = hx_exchange_write(&c.exchange, (hx_slice){piece, sizeof piece});
            written += sizeof piece;
            if (!may_write) held_back++;
        }
        /* never more than the mark, one piece and what the kernel's buffers hold stands between */
        assert_in_range(written + 45 - c.exchange.bytes_sent, 0, (256 + 64) * 1024);
        if (!may_write) {
            drains = c.drains;
            turn(f);
        }
        ssize_t n = recv(peer, buffer, sizeof buffer, MSG_DONTWAIT);
        for (size_t i = 0, len; n > 0 && i < (size_t)n; i += len) {
            size_t at = (got + i) % sizeof piece;
            len = (size_t)n - i < sizeof piece - at ? (size_t)n - i : sizeof piece - at;
            assert_memory_equal(buffer + i, piece + at, len);
        }
        if (n > 0) got += (size_t)n;
        if (n <= 0) turn(f);
        if (c.drains > drains) may_write = true;
    }
    assert_true(held_back > 0 && c.drains > 0);
    hx_exchange_finish(&c.exchange);
    answer_ok(f, &c, peer);
    assert_int_equal(c.exchange.bytes_sent, 67108864 + 45);
    forget(&c);
    close(peer);
}

static void what_is_written_before_there_is_a_connection_is_held_back_too(void **state)
{
    fixture *f = *state;
    client c;
    static char piece[64 * 1024];
    prepare(&c, "POST / HTTP/1.1\r\nContent-Length: 262144\r\n\r\n", "");
    c.exchange.body_streamed = true;
    start(f, &c);
    for (int i = 0; i < 3; i++) assert_true(hx_exchange_write(&c.exchange, (hx_slice){piece, sizeof piece}));
    assert_false(hx_exchange_write(&c.exchange, (hx_slice){piece, sizeof piece}));
    hx_exchange_finish(&c.exchange);
    assert_int_equal(c.exchange.bytes_sent, 0);
    int peer = accept_one(f);
    expect_bytes(f, peer, "POST / HTTP/1.1\r\nContent-Length: 262144\r\n\r\n");
    static char buffer[262144];
    for (size_t got = 0; got < sizeof buffer;) {
        ssize_t n = recv(peer, buffer, sizeof buffer - got, MSG_DONTWAIT);
        if (n > 0) got += (size_t)n;
        turn(f);
    }
    while (c.drains == 0) turn(f);
    answer_ok(f, &c, peer);
    assert_int_equal(c.drains, 1);
    assert_int_equal(c.exchange.bytes_sent, 262144 + 43);
    forget(&c);
    (void)serve_one(f, &c, peer);
    assert_true(c.exchange.reused);
    forget(&c);
    close(peer);
}

static void pause_on_body(client *c)
{
    hx_exchange_pause(&c->exchange);
}

static void a_paused_answer_fills_the_kernel_and_not_our_memory(void **state)
{
    fixture *f = *state;
    client c;
    prepare(&c, GET, "");
    c.at_body = pause_on_body;
    c.body_not_kept = true;
    start(f, &c);
    int peer = accept_one(f);
    send_text(f, peer, "HTTP/1.1 200 OK\r\nContent-Length: 33554432\r\n\r\n");
    static char block[64 * 1024];
    size_t sent = 0;
    int stuck = 0;
    while (stuck < 20) { /* until the kernel takes no more */
        ssize_t n = send(peer, block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) sent += (size_t)n;
        stuck = n > 0 ? 0 : stuck + 1;
        turn(f);
    }
    assert_true(sent < 33554432);
    assert_in_range(c.body_bytes, 1, 64 * 1024);
    uint64_t before = c.body_bytes;
    for (int i = 0; i < 5; i++) turn(f);
    assert_int_equal(c.body_bytes, before);
    while (!over(&c)) {
        hx_exchange_resume(&c.exchange);
        size_t want = 33554432 - sent < sizeof block ? 33554432 - sent : sizeof block;
        ssize_t n = want > 0 ? send(peer, block, want, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        if (n > 0) sent += (size_t)n;
        turn(f);
    }
    assert_int_equal(c.ends, 1);
    assert_int_equal(c.body_bytes, 33554432);
    forget(&c);
    close(peer);
}

static void enter_tunnel(client *c)
{
    assert_int_equal(c->head->status, 101);
    hx_exchange_tunnel(&c->exchange);
}

#define UPGRADE "GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
#define SWITCH "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"

static void a_tunnel_carries_bytes_both_ways_until_the_end_of_file(void **state)
{
    fixture *f = *state;
    client c;
    prepare(&c, UPGRADE, "");
    c.at_head = enter_tunnel;
    start(f, &c);
    int peer = accept_one(f);
    expect_bytes(f, peer, UPGRADE);
    send_text(f, peer, SWITCH "first");
    while (c.body_bytes < 5) turn(f);
    assert_true(hx_exchange_write(&c.exchange, HX_LIT("ping")));
    expect_bytes(f, peer, "ping");
    send_text(f, peer, "HTTP/1.1 garbage\r\n\r\n");
    while (c.body_bytes < 25) turn(f);
    hx_exchange_finish(&c.exchange);
    char byte;
    while (recv(peer, &byte, 1, 0) != 0) turn(f); /* our half is closed */
    assert_false(over(&c));
    send_text(f, peer, "last");
    close(peer);
    wait_over(f, &c);
    assert_good(&c, 101, "firstHTTP/1.1 garbage\r\n\r\nlast");
    forget(&c);
}

static void a_101_that_nobody_tunnels_ends_and_closes(void **state)
{
    fixture *f = *state;
    client c;
    prepare(&c, UPGRADE, "");
    start(f, &c);
    int peer = accept_one(f);
    expect_bytes(f, peer, UPGRADE);
    send_text(f, peer, SWITCH);
    wait_over(f, &c);
    assert_good(&c, 101, "");
    expect_closed(f, peer);
    forget(&c);
}

static void call_off(client *c)
{
    hx_exchange_cancel(&c->exchange);
    assert_int_equal(c->fails, 0); /* not inside the call */
}

static void it_can_be_called_off_at_every_moment(void **state)
{
    (void)state;
    for (int moment = 0; moment < 8; moment++) {
        fixture f;
        client c;
        set_up(&f, "127.0.0.1", &usual_limits);
        prepare(&c, POST, "hello");
        if (moment == 4) c.at_head = call_off;
        if (moment == 5) c.at_body = call_off;
        start(&f, &c);
        int peer = -1;
        if (moment == 0) call_off(&c); /* before the loop turned */
        if (moment > 0) peer = accept_one(&f);
        if (moment == 1) call_off(&c); /* connected, perhaps unsent */
        if (moment > 1) expect_bytes(&f, peer, POST "hello");
        if (moment == 2) call_off(&c); /* sent */
        if (moment > 2) send_text(&f, peer, "HTTP/1.1 200 OK\r\nConte");
        for (int i = 0; i < 3; i++) turn(&f);
        if (moment == 3) call_off(&c); /* half a head */
        if (moment > 3) send_text(&f, peer, "nt-Length: 10\r\n\r\nhello");
        while (moment > 3 && c.heads == 0) turn(&f);
        if (moment == 6) call_off(&c); /* half a body */
        if (moment == 7) {             /* and twice, paused */
            hx_exchange_pause(&c.exchange);
            call_off(&c);
            call_off(&c);
        }
        wait_over(&f, &c);
        assert_failed(&c, CANCELLED);
        for (int i = 0; i < 3; i++) turn(&f);
        assert_int_equal(c.heads, moment > 3 ? 1 : 0);
        if (moment == 0) assert_int_equal(c.exchange.bytes_sent, 0);
        if (moment > 1) assert_int_equal(c.exchange.bytes_sent, sizeof(POST "hello") - 1);
        if (moment > 1) expect_closed(&f, peer);
        if (moment == 1) close(peer);
        forget(&c);
        tear_down(&f);
    }
}

static void freeing_the_upstream_calls_off_what_is_in_flight(void **state)
{
    (void)state;
    fixture f;
    client c[4];
    hx_upstream_limits limits = usual_limits;
    limits.connections_max = 1;
    limits.waiting_max = 1;
    set_up(&f, "127.0.0.1", &limits);
    for (int i = 0; i < 4; i++) prepare(&c[i], GET, "");
    start(&f, &c[0]);
    int peer = accept_one(&f);
    expect_bytes(&f, peer, GET);
    start(&f, &c[1]); /* in line */
    start(&f, &c[2]); /* no room in line: its failure is due */
    start(&f, &c[3]);
    hx_exchange_cancel(&c[3].exchange);
    hx_upstream_free(&f.upstream);
    assert_failed(&c[0], CANCELLED);
    assert_failed(&c[1], CANCELLED);
    assert_failed(&c[2], UNREACHABLE);
    assert_failed(&c[3], CANCELLED);
    for (int i = 0; i < 4; i++) forget(&c[i]);
    expect_closed(&f, peer);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_goes_out_whole_and_its_answer_comes_back),
        with_upstream(an_answer_may_come_byte_by_byte),
        cmocka_unit_test(a_connection_that_ends_early_fails_with_what_was_sent),
        with_upstream(nothing_was_sent_on_a_connection_that_is_reset_before_the_request),
        with_upstream(part_of_a_large_body_counts_as_part),
        with_upstream(an_answer_before_the_body_is_sent_is_delivered_and_the_connection_closed),
        cmocka_unit_test(an_answer_is_delivered_though_the_upstream_stopped_reading),
        with_upstream(an_answer_until_close_ends_with_the_connection),
        with_upstream(head_and_204_have_no_body_and_keep_the_connection),
        with_upstream(a_streamed_body_goes_out_in_chunks),
        with_upstream(an_answer_before_the_stream_is_finished_ends_the_connection),
        with_upstream(writing_is_held_back_and_drained),
        with_upstream(what_is_written_before_there_is_a_connection_is_held_back_too),
        with_upstream(a_paused_answer_fills_the_kernel_and_not_our_memory),
        with_upstream(a_tunnel_carries_bytes_both_ways_until_the_end_of_file),
        with_upstream(a_101_that_nobody_tunnels_ends_and_closes),
        cmocka_unit_test(it_can_be_called_off_at_every_moment),
        cmocka_unit_test(freeing_the_upstream_calls_off_what_is_in_flight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
