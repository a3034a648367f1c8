/* SPDX-License-Identifier: Apache-2.0 */
#include "client_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 64

const hx_client_limits usual_client_limits = {
    .connections_max = 16,
    .requests_per_host_max = 8,
    .waiting_max = 64,
    .lookup_timeout = 20 * HX_SECOND,
    .idle_timeout = HX_HOUR,
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool is_blocked;
static int under_way, at_most;
static struct {
    char name[64], addresses[128];
    int count;
} names[NAMES_MAX];

/* The row of a name, made for one that is new. The mutex is held. */
static size_t row_of(const char *name)
{
    size_t i = 0;
    while (i < NAMES_MAX && names[i].name[0] != '\0' && strcmp(names[i].name, name) != 0) i++;
    if (i == NAMES_MAX) abort();
    (void)snprintf(names[i].name, sizeof names[i].name, "%s", name);
    return i;
}

void resolve_to(const char *name, const char *addresses)
{
    pthread_mutex_lock(&mutex);
    size_t i = row_of(name);
    (void)snprintf(names[i].addresses, sizeof names[i].addresses, "%s", addresses ? addresses : "");
    names[i].count = 0;
    at_most = 0;
    pthread_mutex_unlock(&mutex);
}

static void set_blocked(bool blocked)
{
    pthread_mutex_lock(&mutex);
    is_blocked = blocked;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

void block_names(void)
{
    set_blocked(true);
}

void unblock_names(void)
{
    set_blocked(false);
}

int lookups_of(const char *name)
{
    pthread_mutex_lock(&mutex);
    int count = names[row_of(name)].count;
    pthread_mutex_unlock(&mutex);
    return count;
}

int lookups_under_way(void)
{
    pthread_mutex_lock(&mutex);
    int count = under_way;
    pthread_mutex_unlock(&mutex);
    return count;
}

int lookups_at_most(void)
{
    pthread_mutex_lock(&mutex);
    int count = at_most;
    pthread_mutex_unlock(&mutex);
    return count;
}

static struct addrinfo *address_new(const char *text)
{
    struct addrinfo *a = calloc(1, sizeof *a + sizeof(struct sockaddr_in6));
    if (!a) abort();
    struct sockaddr_in *v4 = (void *)(a + 1);
    struct sockaddr_in6 *v6 = (void *)(a + 1);
    a->ai_addr = (struct sockaddr *)v4;
    a->ai_socktype = SOCK_STREAM;
    a->ai_family = strchr(text, ':') ? AF_INET6 : AF_INET;
    a->ai_addrlen = a->ai_family == AF_INET ? sizeof *v4 : sizeof *v6;
    a->ai_addr->sa_family = (sa_family_t)a->ai_family;
    void *bytes = a->ai_family == AF_INET ? (void *)&v4->sin_addr : (void *)&v6->sin6_addr;
    if (inet_pton(a->ai_family, text, bytes) != 1) abort();
    return a;
}

/* Instead of the C library's. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    char addresses[128];
    (void)service;
    (void)hints;
    pthread_mutex_lock(&mutex);
    size_t i = row_of(name);
    names[i].count++;
    if (++under_way > at_most) at_most = under_way;
    while (is_blocked) pthread_cond_wait(&changed, &mutex);
    under_way--;
    memcpy(addresses, names[i].addresses, sizeof addresses);
    pthread_mutex_unlock(&mutex);
    hx_slice rest = hx_slice_of(addresses), part;
    *found = NULL;
    for (struct addrinfo **end = found; rest.len > 0 && hx_slice_next(&rest, ',', &part); end = &(*end)->ai_next) {
        char text[64];
        (void)snprintf(text, sizeof text, "%.*s", HX_FMT(part));
        *end = address_new(text);
    }
    return *found ? 0 : EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *found)
{
    while (found) {
        struct addrinfo *next = found->ai_next;
        free(found);
        found = next;
    }
}

void set_up_world(world *w, const char *address, const hx_client_limits *limits)
{
    static hx_network loopback[2];
    hx_error_text error = "";
    *w = (world){.guard = {.allowed = loopback, .allowed_count = 2}};
    assert_true(hx_network_parse(HX_LIT("127.0.0.0/8"), &loopback[0], error));
    assert_true(hx_network_parse(HX_LIT("::1"), &loopback[1], error));
    signal(SIGPIPE, SIG_IGN);
    set_up_listener(&w->f, address);
    w->f.loop = hx_loop_new();
    w->port = (uint16_t)strtoul(strrchr(w->f.url, ':') + 1, NULL, 10);
    w->client = hx_client_new(w->f.loop, limits, &w->guard, error);
    if (!w->client) fail_msg("%s", error);
}

void tear_down_world(world *w)
{
    hx_client_free(&w->client);
    tear_down(&w->f);
}

int set_up_usual_world(void **state)
{
    static world w;
    set_up_world(&w, "127.0.0.1", &usual_client_limits);
    *state = &w;
    return 0;
}

int tear_down_usual_world(void **state)
{
    tear_down_world(*state);
    return 0;
}

static void copy_slice(char *out, size_t size, hx_slice text)
{
    assert_true(text.len < size);
    if (text.len > 0) memcpy(out, text.ptr, text.len);
    out[text.len] = '\0';
}

static void call_done(hx_client_request *request, const hx_client_result *result)
{
    call *c = HX_OWNER(request, call, request);
    c->dones++;
    c->result = *result;
    (void)snprintf(c->reason, sizeof c->reason, "%s", result->reason);
    copy_slice(c->retry_after, sizeof c->retry_after, result->retry_after);
    copy_slice(c->content_type, sizeof c->content_type, result->content_type);
    copy_slice(c->body, sizeof c->body, result->body);
    copy_slice(c->remote, sizeof c->remote, result->remote);
}

void prepare_call(const world *w, call *c, const char *host)
{
    *c = (call){.request = {.method = HX_LIT("POST"),
                            .body = HX_LIT("abc"),
                            .timeout = HX_HOUR, /* wait_call gives up long before */
                            .connect_timeout = HX_HOUR,
                            .body_kept_max = 16,
                            .done = call_done}};
    if (strstr(host, "://"))
        (void)snprintf(c->url, sizeof c->url, "%s", host);
    else
        (void)snprintf(c->url, sizeof c->url, "http://%s:%u/hook", host, w->port);
}

void start_call(world *w, call *c)
{
    c->request.url = hx_slice_of(c->url);
    hx_client_start(w->client, &c->request);
    assert_int_equal(c->dones, 0); /* never inside the call */
}

void wait_call(world *w, call *c)
{
    for (hx_ms from = hx_clock_now(); c->dones == 0;) {
        turn(&w->f);
        if (hx_clock_now() - from > HX_MINUTE) fail_msg("waited in vain for %s", c->url);
    }
}

void run_call(world *w, call *c, const char *host)
{
    prepare_call(w, c, host);
    start_call(w, c);
    wait_call(w, c);
}

void read_call(world *w, int peer)
{
    char bytes[4096] = "";
    size_t len = 0;
    for (hx_ms from = hx_clock_now(); !strstr(bytes, "\r\n\r\nabc");) {
        ssize_t n = recv(peer, bytes + len, sizeof bytes - 1 - len, 0);
        if (n == 0) fail_msg("the connection ended after \"%s\"", bytes);
        if (n > 0) len += (size_t)n;
        if (n < 0) turn(&w->f);
        if (hx_clock_now() - from > HX_MINUTE) fail_msg("waited in vain for a request");
    }
}

int ask_call(world *w, call *c, int peer)
{
    prepare_call(w, c, "127.0.0.1");
    start_call(w, c);
    if (peer < 0) peer = accept_one(&w->f);
    read_call(w, peer);
    return peer;
}
