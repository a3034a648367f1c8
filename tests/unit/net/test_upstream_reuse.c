/* SPDX-License-Identifier: Apache-2.0 */
/* Which connections are used again: never one on which bytes may be left that belong to another exchange, in either
 * direction. */
#include "upstream_fixture.h"

#include "net/pool.h"

#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* Answers after which the connection must not be used again, and which are good themselves. */
static void a_connection_is_closed_after(const char *answer, bool good)
{
    fixture f;
    client c;
    set_up(&f, "127.0.0.1", &usual_limits);
    int peer = ask(&f, &c);
    send_text(&f, peer, answer);
    wait_over(&f, &c);
    assert_int_equal(c.ends, good ? 1 : 0);
    forget(&c);
    expect_closed(&f, peer);
    peer = serve_one(&f, &c, -1);
    assert_false(c.exchange.reused);
    forget(&c);
    close(peer);
    tear_down(&f);
}

static void some_answers_end_the_connection(void **state)
{
    (void)state;
    a_connection_is_closed_after("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", true);
    a_connection_is_closed_after("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", true);
    a_connection_is_closed_after("HTTP/1.1 200 OK\r\nKeep-Alive: timeout=0\r\nContent-Length: 2\r\n\r\nok", true);
    a_connection_is_closed_after(OK "H", true);
    a_connection_is_closed_after(OK OK, true);
    a_connection_is_closed_after("HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\n", true);
    a_connection_is_closed_after("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", false);
}

static void start_next(client *c)
{
    client *next = c->user;
    if (next) hx_exchange_start(next->user, &next->exchange);
}

/* Whether the connection is there for the next exchange. */
static bool is_kept_after(hx_request_body body_kind, const char *request, const char *answer)
{
    fixture f;
    client c;
    set_up(&f, "127.0.0.1", &usual_limits);
    prepare(&c, request, "");
    c.exchange.body_kind = body_kind;
    start(&f, &c);
    int peer = accept_one(&f);
    expect_bytes(&f, peer, request);
    send_text(&f, peer, answer);
    wait_over(&f, &c);
    assert_int_equal(c.ends, 1);
    forget(&c);
    rest(&f);
    prepare(&c, GET, "");
    start(&f, &c);
    bool kept = nobody_connects(&f);
    if (!kept) expect_closed(&f, peer);
    if (kept) close(peer);
    hx_exchange_cancel(&c.exchange);
    wait_over(&f, &c);
    forget(&c);
    tear_down(&f);
    return kept;
}

static void a_body_that_may_be_left_unread_ends_the_connection(void **state)
{
    (void)state;
    static const char body[] = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    static const char deletion[] = "DELETE / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    static const char *const refusals[] = {"400", "401", "404", "422", "500", "503", "599"};
    assert_true(is_kept_after(HX_REQUEST_BODY_USUAL, body, OK));
    assert_true(is_kept_after(HX_REQUEST_BODY_USUAL, body, "HTTP/1.1 399 x\r\nContent-Length: 0\r\n\r\n"));
    assert_true(is_kept_after(HX_REQUEST_BODY_NONE, GET, "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"));
    assert_false(is_kept_after(HX_REQUEST_BODY_UNUSUAL, deletion, OK));
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        char answer[64];
        (void)snprintf(answer, sizeof answer, "HTTP/1.1 %s No\r\nContent-Length: 0\r\n\r\n", refusals[i]);
        assert_false(is_kept_after(HX_REQUEST_BODY_USUAL, body, answer));
    }
}

static void an_answer_that_began_before_the_body_was_sent_ends_the_connection(void **state)
{
    (void)state;
    /* The body has gone out whole when the answer ends, but it had not when the answer began. */
    for (int late = 0; late < 2; late++) {
        fixture f;
        client c;
        set_up(&f, "127.0.0.1", &usual_limits);
        prepare(&c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", "");
        c.exchange.body_streamed = true;
        c.exchange.body_kind = HX_REQUEST_BODY_USUAL;
        start(&f, &c);
        int peer = accept_one(&f);
        expect_bytes(&f, peer, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
        if (late == 0) send_text(&f, peer, "HTTP/1.1 20");
        rest(&f);
        assert_true(hx_exchange_write(&c.exchange, HX_LIT("hello")));
        hx_exchange_finish(&c.exchange);
        expect_bytes(&f, peer, "hello");
        if (late == 1) send_text(&f, peer, "HTTP/1.1 20");
        send_text(&f, peer, "0 OK\r\nContent-Length: 2\r\n\r\nok");
        wait_over(&f, &c);
        assert_good(&c, 200, "ok");
        forget(&c);
        if (late == 0) {
            expect_closed(&f, peer);
        } else {
            rest(&f);
            (void)serve_one(&f, &c, peer);
            assert_true(c.exchange.reused);
            forget(&c);
            close(peer);
        }
        tear_down(&f);
    }
}

static void a_connection_is_not_used_again_in_the_turn_in_which_its_answer_ended(void **state)
{
    (void)state;
    /* The next request starts inside end(). It waits for the connection instead of making another one, and gets it
     * only when nothing has come behind the answer. */
    for (int surplus = 0; surplus < 2; surplus++) {
        fixture f;
        client c, next;
        set_up(&f, "127.0.0.1", &usual_limits);
        prepare(&next, GET, "");
        next.exchange.arena = &next.arena;
        next.exchange.user = &next;
        next.user = f.upstream;
        prepare(&c, GET, "");
        c.at_end = start_next;
        c.user = &next;
        start(&f, &c);
        int peer = accept_one(&f);
        expect_bytes(&f, peer, GET);
        send_text(&f, peer, OK);
        wait_over(&f, &c);
        assert_int_equal(next.exchange.bytes_sent, 0);
        if (surplus) {
            send_text(&f, peer, OK); /* the answer to what the upstream took for a request */
            expect_closed(&f, peer);
            peer = accept_one(&f);
        }
        expect_bytes(&f, peer, GET);
        send_text(&f, peer, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine");
        wait_over(&f, &next);
        assert_good(&next, 200, "mine");
        assert_int_equal(next.exchange.reused, !surplus);
        assert_true(nobody_connects(&f));
        forget(&c);
        forget(&next);
        close(peer);
        tear_down(&f);
    }
}

static uint32_t connecting;

static void start_next_and_look(client *c)
{
    const client *next = c->user;
    start_next(c);
    connecting = ((const hx_upstream *)next->user)->connecting_count;
}

/* Under load answers end in every turn, so that there always is one that rests. */
static void who_wants_a_new_connection_does_not_wait_for_those_that_rest(void **state)
{
    fixture *f = *state;
    client c, next;
    prepare(&next, GET, "");
    next.exchange.arena = &next.arena;
    next.exchange.user = &next;
    next.exchange.pooled_idle_max = 0;
    next.user = f->upstream;
    prepare(&c, GET, "");
    c.at_end = start_next_and_look;
    c.user = &next;
    start(f, &c);
    int first = accept_one(f);
    expect_bytes(f, first, GET);
    send_text(f, first, OK);
    wait_over(f, &c);
    assert_int_equal(connecting, 1);
    int second = accept_one(f);
    expect_bytes(f, second, GET);
    answer_ok(f, &next, second);
    assert_false(next.exchange.reused);
    forget(&c);
    forget(&next);
    close(first);
    close(second);
}

/* In one turn the loop hears of the answer on connection `first`, at whose end the next request starts, and then of
 * surplus bytes on the other, which this request would take: only looking at the socket can tell. */
static void surplus_bytes_come_before_the_next_turn(fixture *f, int first, bool is_announced)
{
    client c[2], next;
    int peers[2], other = 1 - first;
    prepare(&next, GET, "");
    next.exchange.arena = &next.arena;
    next.exchange.user = &next;
    next.exchange.repeatable = true; /* or a connection that was used once is looked at anyway */
    next.user = f->upstream;
    for (int i = 0; i < 2; i++) peers[i] = ask(f, &c[i]);
    c[first].at_end = start_next;
    c[first].user = &next;
    if (is_announced) send_text(f, peers[first], "HTTP/1.1 200");
    send_text(f, peers[other], OK);
    wait_over(f, &c[other]);
    send_text(f, peers[first], is_announced ? " OK\r\nContent-Length: 2\r\n\r\nok" : OK);
    send_text(f, peers[other], OK);
    wait_over(f, &c[first]);
    expect_closed(f, peers[other]);
    int peer = next.exchange.bytes_sent > 0 ? -1 : peers[first]; /* the one that is left, or a new one */
    if (peer < 0 || !nobody_connects(f)) peer = accept_one(f);
    expect_bytes(f, peer, GET);
    send_text(f, peer, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine");
    wait_over(f, &next);
    assert_good(&next, 200, "mine");
    for (int i = 0; i < 2; i++) forget(&c[i]);
    forget(&next);
    if (peer != peers[first]) close(peer);
    close(peers[first]);
}

/* Of which connection the kernel tells first is its own affair: every way is tried. */
static void surplus_bytes_are_seen_by_whoever_comes_in_the_next_turn(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        fixture f;
        set_up(&f, "127.0.0.1", &usual_limits);
        surplus_bytes_come_before_the_next_turn(&f, i % 2, i % 4 < 2);
        tear_down(&f);
    }
}

static int at_rest, its_peer; /* both ends of a connection */

/* Its end or its bytes have arrived, and only a look at the socket can tell. */
static void wait_arrived(void)
{
    struct pollfd arriving = {.fd = at_rest, .events = POLLIN};
    assert_int_equal(poll(&arriving, 1, 20000), 1);
}

static void close_it(client *c)
{
    (void)c;
    close(its_peer);
    wait_arrived();
}

static void reset_it(client *c)
{
    (void)c;
    reset_peer(its_peer);
    wait_arrived();
}

static void send_what_nobody_asked_for(client *c)
{
    (void)c;
    assert_int_equal(send(its_peer, OK, sizeof OK - 1, MSG_NOSIGNAL), sizeof OK - 1);
    wait_arrived();
}

/* A request waits in line, and all connections are busy. One comes to rest; in the next turn the loop polls it, hears
 * of an answer on the other, and only then the one at rest is spoilt. The request is offered that one at once. */
static void spoil_before_it_is_offered(void (*spoil)(client *c), bool used_before, bool repeatable)
{
    fixture f;
    client c[2], next;
    int peers[2];
    hx_upstream_limits limits = usual_limits;
    limits.connections_max = 2;
    set_up(&f, "127.0.0.1", &limits);
    if (used_before) {
        peers[0] = serve_one(&f, &c[0], -1);
        forget(&c[0]);
        prepare(&c[0], GET, "");
        start(&f, &c[0]);
        expect_bytes(&f, peers[0], GET);
    } else {
        peers[0] = ask(&f, &c[0]);
    }
    peers[1] = ask(&f, &c[1]);
    prepare(&next, GET, "");
    next.exchange.repeatable = repeatable;
    start(&f, &next);
    send_text(&f, peers[0], OK);
    wait_over(&f, &c[0]);
    its_peer = peers[0];
    at_rest = HX_OWNER(f.upstream->resting.next, hx_wire, link)->transport.descriptor;
    c[1].at_end = spoil;
    send_text(&f, peers[1], OK);
    wait_over(&f, &c[1]);
    assert_int_equal(next.exchange.bytes_sent, 0);
    if (spoil == send_what_nobody_asked_for) expect_closed(&f, peers[0]);
    expect_bytes(&f, peers[1], GET); /* it waits for the other */
    send_text(&f, peers[1], "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine");
    wait_over(&f, &next);
    assert_good(&next, 200, "mine");
    for (int i = 0; i < 2; i++) forget(&c[i]);
    forget(&next);
    close(peers[1]);
    tear_down(&f);
}

static void who_waits_in_line_is_not_sent_on_a_connection_that_was_just_spoilt(void **state)
{
    (void)state;
    static void (*const ways[])(client * c) = {close_it, reset_it, send_what_nobody_asked_for};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        for (int n = 0; n < 4; n++) spoil_before_it_is_offered(ways[i], n % 2, n / 2);
}

static void nothing_is_kept_where_nothing_may_be(void **state)
{
    (void)state;
    fixture f;
    client c;
    hx_upstream_limits limits = usual_limits;
    limits.idle_max = 0;
    set_up(&f, "127.0.0.1", &limits);
    for (int i = 0; i < 3; i++) {
        int peer = serve_one(&f, &c, -1);
        assert_false(c.exchange.reused);
        forget(&c);
        expect_closed(&f, peer);
    }
    tear_down(&f);
}

static void bytes_that_nobody_asked_for_close_an_idle_connection(void **state)
{
    fixture *f = *state;
    client c;
    int peer = serve_one(f, &c, -1);
    forget(&c);
    send_text(f, peer, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n");
    expect_closed(f, peer);
    peer = serve_one(f, &c, -1);
    forget(&c);
    close(peer);
}

static void an_end_of_file_closes_an_idle_connection(void **state)
{
    fixture *f = *state;
    client c;
    int peer = serve_one(f, &c, -1);
    forget(&c);
    shutdown(peer, SHUT_WR);
    expect_closed(f, peer);
    peer = serve_one(f, &c, -1);
    assert_false(c.exchange.reused);
    forget(&c);
    close(peer);
}

static void a_reused_connection_that_took_nothing_is_replaced_silently(void **state)
{
    /* The upstream answers and resets at once; the next request starts inside end() and waits for the connection, whose
     * reset is seen first. */
    fixture *f = *state;
    client c, next;
    prepare(&next, GET, "");
    next.exchange.arena = &next.arena;
    next.exchange.user = &next;
    next.user = f->upstream;
    next.at_end = NULL;
    prepare(&c, GET, "");
    c.at_end = start_next;
    c.user = &next;
    start(f, &c);
    int peer = accept_one(f);
    expect_bytes(f, peer, GET);
    send_text(f, peer, OK);
    reset_peer(peer);
    wait_over(f, &c);
    if (c.fails == 0 && !over(&next) && next.exchange.bytes_sent == 0) {
        peer = accept_one(f);
        expect_bytes(f, peer, GET);
        answer_ok(f, &next, peer);
        assert_false(next.exchange.reused);
        close(peer);
    } else {
        fail_msg("it was sent on the connection that was reset");
    }
    forget(&c);
    forget(&next);
}

/* A pooled connection that ends before a byte of the response came was stale; after one, the upstream has responded. */
static void a_request_is_sent_again_only_if_nothing_came(void **state)
{
    fixture *f = *state;
    static const char *const came[] = {"", "H", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no"};
    for (size_t i = 0; i < sizeof came / sizeof came[0]; i++) {
        for (int repeatable = 0; repeatable <= 1; repeatable++) {
            client c;
            int peer = serve_one(f, &c, -1);
            forget(&c);
            prepare(&c, GET, "");
            c.exchange.repeatable = repeatable;
            start(f, &c);
            expect_bytes(f, peer, GET);
            send_text(f, peer, came[i]);
            close(peer);
            if (repeatable && i == 0) {
                peer = accept_one(f);
                expect_bytes(f, peer, GET);
                send_text(f, peer, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
                wait_over(f, &c);
                assert_good(&c, 200, "ok");
                close(peer);
            } else {
                wait_over(f, &c);
                assert_true(c.exchange.reused);
                assert_int_equal(c.heads, i == 2);
                assert_int_equal(c.error, i == 0 ? HX_UPSTREAM_RESET : HX_UPSTREAM_CUT_SHORT);
                assert_true(nobody_connects(f));
            }
            forget(&c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(some_answers_end_the_connection),
        cmocka_unit_test(a_body_that_may_be_left_unread_ends_the_connection),
        cmocka_unit_test(an_answer_that_began_before_the_body_was_sent_ends_the_connection),
        cmocka_unit_test(a_connection_is_not_used_again_in_the_turn_in_which_its_answer_ended),
        with_upstream(who_wants_a_new_connection_does_not_wait_for_those_that_rest),
        cmocka_unit_test(surplus_bytes_are_seen_by_whoever_comes_in_the_next_turn),
        cmocka_unit_test(who_waits_in_line_is_not_sent_on_a_connection_that_was_just_spoilt),
        cmocka_unit_test(nothing_is_kept_where_nothing_may_be),
        with_upstream(bytes_that_nobody_asked_for_close_an_idle_connection),
        with_upstream(an_end_of_file_closes_an_idle_connection),
        with_upstream(a_reused_connection_that_took_nothing_is_replaced_silently),
        with_upstream(a_request_is_sent_again_only_if_nothing_came),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
