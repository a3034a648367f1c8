/* SPDX-License-Identifier: Apache-2.0 */
/* The transport over a socket pair, whose other end the test reads and writes itself. */
#include "net/transport.h"

#include <errno.h>
#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <unistd.h>

#define BULK_BYTES (1024u * 1024u)
#define TURNS_MAX 20000

typedef struct {
    hx_transport transport; /* first: events get its address */
    hx_loop *loop;
    int peer;
    char *bulk;
    hx_buf got; /* by the transport */
    size_t read_by_peer;
    int ends, end_error, sents, send_error, closes;
    bool inside; /* a call of ours: no event may come */
} world;

static world *of(hx_transport *transport)
{
    world *w = (world *)(void *)transport;
    assert_false(w->inside);
    return w;
}

static void received(hx_transport *transport, hx_slice bytes)
{
    assert_true(bytes.len <= transport->read_max);
    assert_true(hx_buf_append(&of(transport)->got, bytes));
}

static void ended(hx_transport *transport, int error)
{
    world *w = of(transport);
    w->ends++;
    w->end_error = error;
}

static void sent(hx_transport *transport, int error)
{
    world *w = of(transport);
    w->sents++;
    if (error) w->send_error = error;
}

static void closed(hx_transport *transport)
{
    of(transport)->closes++;
}

static const hx_transport_events events = {.received = received, .ended = ended, .sent = sent, .closed = closed};

static void set_up(world *w)
{
    int ends[2];
    *w = (world){.loop = hx_loop_new(), .bulk = malloc(BULK_BYTES)};
    for (size_t i = 0; i < BULK_BYTES; i++) w->bulk[i] = (char)(i * 31 >> 3);
    hx_buf_init(&w->got, NULL, BULK_BYTES);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    w->peer = ends[1];
    assert_int_equal(hx_transport_open(&w->transport, w->loop, &events, ends[0]), 0);
}

static void tear_down(world *w)
{
    w->inside = true;
    hx_transport_close(&w->transport, false);
    w->inside = false;
    assert_int_equal(w->closes, 0);
    hx_loop_free(&w->loop);
    assert_int_equal(w->closes, 1);
    if (w->peer >= 0) close(w->peer);
    hx_buf_free(&w->got);
    free(w->bulk);
}

static int send_pieces(world *w, hx_slice one, hx_slice two, unsigned how)
{
    hx_slice pieces[] = {one, two};
    w->inside = true;
    int error = hx_transport_send(&w->transport, pieces, 2, how);
    w->inside = false;
    return error;
}

/* Reads all there is, which must be the bulk's bytes from `read_by_peer` on. */
static void read_as_peer(world *w)
{
    static char bytes[BULK_BYTES];
    ssize_t n;
    while ((n = recv(w->peer, bytes, sizeof bytes, 0)) > 0) {
        assert_memory_equal(bytes, w->bulk + w->read_by_peer, (size_t)n);
        w->read_by_peer += (size_t)n;
    }
}

static void what_the_kernel_took_is_what_the_peer_can_read(void **state)
{
    (void)state;
    for (unsigned how = 0; how <= HX_SEND_STAYS; how++) {
        world w;
        set_up(&w);
        hx_slice all = {w.bulk, BULK_BYTES - 2000};
        assert_int_equal(send_pieces(&w, hx_slice_first(all, 1000), hx_slice_from(all, 1000), how), 0);
        assert_true(w.transport.sent > 0 && w.transport.unsent > 0);
        /* behind the queue, from memory that does not stay */
        char later[2000];
        memcpy(later, w.bulk + all.len, sizeof later);
        assert_int_equal(send_pieces(&w, (hx_slice){later, 1}, (hx_slice){later + 1, sizeof later - 1}, 0), 0);
        memset(later, 0, sizeof later);
        for (int turns = 0; w.read_by_peer < BULK_BYTES && turns < TURNS_MAX; turns++) {
            assert_int_equal(w.transport.sent + w.transport.unsent, BULK_BYTES);
            read_as_peer(&w);
            assert_int_equal(w.read_by_peer, w.transport.sent);
            hx_loop_turn(w.loop, 1);
        }
        assert_int_equal(w.read_by_peer, BULK_BYTES);
        assert_int_equal(w.transport.unsent, 0);
        assert_true(w.sents > 0 && w.send_error == 0);
        tear_down(&w);
    }
}

static void what_must_be_sent_now_is_never_queued(void **state)
{
    (void)state;
    world w;
    set_up(&w);
    hx_slice all = {w.bulk, BULK_BYTES};
    while (send(w.transport.descriptor, w.bulk, BULK_BYTES, MSG_NOSIGNAL) > 0) {}
    assert_int_equal(send_pieces(&w, all, HX_EMPTY, HX_SEND_NOW), UV_EAGAIN);
    assert_int_equal(w.transport.sent, 0);
    assert_int_equal(w.transport.unsent, 0);
    char bytes[4096];
    while (recv(w.peer, bytes, sizeof bytes, 0) > 0) {}
    hx_loop_turn(w.loop, 1);
    assert_int_equal(w.sents, 0);
    assert_int_equal(recv(w.peer, bytes, sizeof bytes, 0), -1);
    assert_int_equal(send_pieces(&w, hx_slice_first(all, 10), HX_EMPTY, HX_SEND_NOW), 0);
    assert_int_equal(w.transport.sent, 10);
    tear_down(&w);
}

static void a_peer_that_leaves_changes_nothing_about_what_was_sent(void **state)
{
    (void)state;
    world w;
    set_up(&w);
    hx_slice all = {w.bulk, BULK_BYTES};
    assert_int_equal(send_pieces(&w, all, HX_EMPTY, HX_SEND_STAYS), 0);
    uint64_t taken = w.transport.sent;
    close(w.peer);
    w.peer = -1;
    for (int turns = 0; w.send_error == 0 && turns < TURNS_MAX; turns++) hx_loop_turn(w.loop, 1);
    assert_int_equal(w.send_error, UV_EPIPE);
    assert_int_equal(w.sents, 1);
    assert_int_equal(w.transport.sent, taken);
    assert_int_equal(w.transport.unsent, 0);
    assert_int_equal(send_pieces(&w, all, HX_EMPTY, 0), UV_EPIPE);
    assert_int_equal(w.ends, 0); /* it isn't being read */
    hx_transport_read(&w.transport, 1);
    for (int turns = 0; w.ends == 0 && turns < TURNS_MAX; turns++) hx_loop_turn(w.loop, 1);
    assert_int_equal(w.ends, 1);
    tear_down(&w);
}

static void nothing_is_received_beyond_what_is_wanted(void **state)
{
    (void)state;
    world w;
    set_up(&w);
    assert_int_equal(send(w.peer, w.bulk, 100, 0), 100);
    hx_loop_turn(w.loop, 1);
    assert_int_equal(w.got.len, 0);
    assert_int_equal(hx_transport_peek(&w.transport), 1);
    hx_transport_read(&w.transport, 30);
    for (int turns = 0; w.got.len < 30 && turns < TURNS_MAX; turns++) hx_loop_turn(w.loop, 1);
    assert_int_equal(w.got.len, 30);
    hx_transport_read(&w.transport, 0);
    hx_loop_turn(w.loop, 1);
    assert_int_equal(w.got.len, 30);
    hx_transport_read(&w.transport, 1000);
    for (int turns = 0; w.got.len < 100 && turns < TURNS_MAX; turns++) hx_loop_turn(w.loop, 1);
    assert_memory_equal(w.got.data, w.bulk, 100);
    assert_int_equal(hx_transport_peek(&w.transport), 0);
    close(w.peer);
    w.peer = -1;
    assert_int_equal(hx_transport_peek(&w.transport), -1);
    for (int turns = 0; w.ends == 0 && turns < TURNS_MAX; turns++) hx_loop_turn(w.loop, 1);
    assert_int_equal(w.end_error, UV_EOF);
    tear_down(&w);
}

static void our_side_is_closed_behind_the_queue(void **state)
{
    (void)state;
    world w;
    set_up(&w);
    assert_int_equal(send_pieces(&w, (hx_slice){w.bulk, BULK_BYTES}, HX_EMPTY, HX_SEND_STAYS), 0);
    hx_transport_shut(&w.transport);
    assert_false(w.transport.is_shut);
    for (int turns = 0; w.read_by_peer < BULK_BYTES && turns < TURNS_MAX; turns++) {
        read_as_peer(&w);
        hx_loop_turn(w.loop, 1);
    }
    assert_int_equal(w.read_by_peer, BULK_BYTES);
    char byte;
    assert_int_equal(recv(w.peer, &byte, 1, 0), 0);
    assert_int_equal(send(w.peer, "x", 1, 0), 1);
    hx_transport_read(&w.transport, 1);
    for (int turns = 0; w.got.len == 0 && turns < TURNS_MAX; turns++) hx_loop_turn(w.loop, 1);
    assert_int_equal(w.got.len, 1);
    tear_down(&w);
}

static void a_queue_has_a_limit(void **state)
{
    (void)state;
    world w;
    set_up(&w);
    hx_slice all = {w.bulk, BULK_BYTES};
    int error = 0;
    for (unsigned i = 0; i < HX_TRANSPORT_QUEUE_BYTES_MAX / BULK_BYTES; i++) {
        assert_int_equal(error, 0);
        error = send_pieces(&w, all, HX_EMPTY, 0);
    }
    uint64_t taken = w.transport.sent;
    if (error == 0) error = send_pieces(&w, all, HX_EMPTY, 0);
    assert_int_equal(error, UV_ENOBUFS);
    assert_int_equal(w.transport.sent, taken);
    assert_int_equal(w.transport.unsent, 0);
    tear_down(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_kernel_took_is_what_the_peer_can_read),
        cmocka_unit_test(what_must_be_sent_now_is_never_queued),
        cmocka_unit_test(a_peer_that_leaves_changes_nothing_about_what_was_sent),
        cmocka_unit_test(nothing_is_received_beyond_what_is_wanted),
        cmocka_unit_test(our_side_is_closed_behind_the_queue),
        cmocka_unit_test(a_queue_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
