/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of outgoing requests in one thread, on the fixture of upstreams: the test plays the server with plain
 * sockets. Names are resolved by a getaddrinfo of the fixture's own, so that a test decides what they lead to. */
#ifndef HX_TESTS_CLIENT_FIXTURE_H
#define HX_TESTS_CLIENT_FIXTURE_H

#include "upstream_fixture.h"

#include "net/client/client.h"

typedef struct {
    fixture f; /* the listener and the loop */
    hx_client *client;
    hx_address_guard guard; /* allows the loopback addresses */
    uint16_t port;          /* of the listener */
} world;

extern const hx_client_limits usual_client_limits;

/* A listener on `address`, and a client. */
void set_up_world(world *w, const char *address, const hx_client_limits *limits);
void tear_down_world(world *w);
int set_up_usual_world(void **state);
int tear_down_usual_world(void **state);
#define with_world(test) cmocka_unit_test_setup_teardown(test, set_up_usual_world, tear_down_usual_world)

/* One request and what became of it. */
typedef struct {
    hx_client_request request;
    hx_client_result result; /* without its texts, which are copied: */
    char url[256], reason[512], retry_after[128], content_type[256], body[8192], remote[128];
    int dones;
} call;

/* POST "abc" to http://HOST:PORT/hook; `host` may be a whole URL. */
void prepare_call(const world *w, call *c, const char *host);
void start_call(world *w, call *c);
void wait_call(world *w, call *c);
/* Both, for a request that ends by itself. */
void run_call(world *w, call *c, const char *host);
/* Starts it, and reads it as the server; a negative `peer` is a new connection. Returns the server's socket. */
int ask_call(world *w, call *c, int peer);
/* Reads a request as the server, up to "abc". */
void read_call(world *w, int peer);

#define assert_call(c, name, code)                                                                                     \
    do {                                                                                                               \
        if ((c)->dones != 1 || (c)->result.error != HX_CLIENT_##name)                                                  \
            fail_msg("%d times %s: %s", (c)->dones, hx_client_error_text((c)->result.error), (c)->reason);             \
        assert_int_equal((c)->result.status, code);                                                                    \
    } while (0)

/* What names resolve to: "first.example" to the addresses given, with a comma between them; NULL: not at all. A name
 * that blocks is not answered before unblock_names. */
void resolve_to(const char *name, const char *addresses);
void block_names(void);
void unblock_names(void);
int lookups_of(const char *name); /* so far */
int lookups_under_way(void);
int lookups_at_most(void); /* that were under way at a time */

#endif
