/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of an upstream connection in one thread: the test plays the application with plain sockets, line by line,
 * and every function that waits for something turns the loop of the client's side meanwhile. */
#ifndef HX_TESTS_UPSTREAM_FIXTURE_H
#define HX_TESTS_UPSTREAM_FIXTURE_H

#include "net/upstream.h"

#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

typedef struct {
    hx_loop *loop;
    hx_upstream *upstream;
    hx_upstream_limits limits;
    int listener;
    char url[160];
    char path[108];
} fixture;

typedef struct client {
    hx_exchange exchange;
    hx_arena arena;
    hx_buf body;
    const hx_answer_head *head;
    uint64_t sent_at_head;
    void (*at_head)(struct client *client);
    void (*at_body)(struct client *client);
    void (*at_end)(struct client *client);
    void *user;
    uint64_t body_bytes;
    int heads, ends, fails, drains, pieces;
    hx_upstream_error error;
    bool body_not_kept;
} client;

extern const hx_upstream_limits usual_limits;

/* A listening socket ("127.0.0.1", "::1" or "unix") and an upstream for it. */
void set_up(fixture *f, const char *address, const hx_upstream_limits *limits);
/* The socket alone, with neither a loop nor an upstream. */
void set_up_listener(fixture *f, const char *address);
void set_up_url(fixture *f, const char *url, const hx_upstream_limits *limits);
void tear_down(fixture *f);
/* The same around a test that gets its fixture in *state: 127.0.0.1 and the usual limits. */
int set_up_usual(void **state);
int tear_down_usual(void **state);
#define with_upstream(test) cmocka_unit_test_setup_teardown(test, set_up_usual, tear_down_usual)

/* A client that sends `request`, its head or all of it, and `body`. */
void prepare(client *c, const char *request, const char *body);
void start(fixture *f, client *c);
void wait_over(fixture *f, client *c); /* until end or failed */
void forget(client *c);
bool over(const client *c);
hx_slice body_of(const client *c);

void turn(fixture *f);
void rest(fixture *f); /* until connections whose answers have ended can be used again without a look at them */
int accept_one(fixture *f);
bool nobody_connects(fixture *f); /* after a few turns */
/* Reads exactly these bytes. */
void expect_bytes(fixture *f, int peer, const char *bytes);
void expect_closed(fixture *f, int peer); /* an end of file or a reset */
void send_bytes(fixture *f, int peer, const void *bytes, size_t len);
void send_text(fixture *f, int peer, const char *text);
/* Closes with a reset. */
void reset_peer(int peer);

/* Starts GET on a new connection and reads it as the server, whose socket is returned. */
int ask(fixture *f, client *c);
/* Answers 200 with the body "ok", and waits for the exchange to end. */
void answer_ok(fixture *f, client *c, int peer);
/* Runs one whole exchange: GET, "200" with body "ok", lets the connection rest, and returns the server's socket. */
int serve_one(fixture *f, client *c, int peer);
#define GET "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
#define OK "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

#define assert_good(c, code, text)                                                                                     \
    do {                                                                                                               \
        assert_int_equal((c)->fails, 0);                                                                               \
        assert_int_equal((c)->ends, 1);                                                                                \
        assert_int_equal((c)->heads, 1);                                                                               \
        assert_int_equal((c)->head->status, code);                                                                     \
        assert_int_equal((c)->body_bytes, sizeof(text) - 1);                                                           \
        assert_memory_equal(body_of(c).ptr, text, sizeof(text) - 1);                                                   \
    } while (0)
#define assert_failed(c, name)                                                                                         \
    do {                                                                                                               \
        assert_int_equal((c)->ends, 0);                                                                                \
        assert_int_equal((c)->fails, 1);                                                                               \
        assert_int_equal((c)->error, HX_UPSTREAM_##name);                                                              \
    } while (0)

#endif
