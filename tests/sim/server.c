/* SPDX-License-Identifier: Apache-2.0 */
/* net/server.h: requests come in, answers go out, and clients leave in between. What the gateway hands over for a
 * client counts as seen by the client at that moment: the kernel would have it. */
#include "world.h"

#include "base/check.h"
#include "gateway/request.h"

#include <limits.h>

struct hx_server {
    hx_loop *loop;
    sim_node *node;
    const hx_server_handler *handler;
    void *app;
    uint32_t open;
    void (*drained)(void *app);
};

typedef struct {
    hx_stream stream;   /* the first member */
    hx_server *server;  /* NULL once released */
    sim_client *client; /* NULL once gone, or answered */
    unsigned client_index;
    hx_link link;
    hx_slice body;
    size_t body_sent;
    hx_ms waits_since; /* in the step of that name */
    bool waits;
    bool reading, whole, paused, piece_on_the_way;
} sim_stream;

static unsigned by_client(const sim_stream *s)
{
    return SIM_BY_CLIENT + s->client_index;
}

hx_server *hx_server_new(hx_loop *loop, const hx_server_limits *limits, const hx_server_handler *handler, void *app)
{
    (void)limits;
    /* Of the run: events may still come for it after its node is gone. */
    hx_server *server = hx_arena_zalloc(&world.arena, sizeof *server);
    *server = (hx_server){.loop = loop, .handler = handler, .app = app};
    return server;
}

void hx_server_free(hx_server **owned)
{
    (*owned)->drained = NULL;
    *owned = NULL;
}

static void check_drained(hx_server *server)
{
    if (!server->drained || server->open > 0) return;
    void (*drained)(void *app) = server->drained;
    server->drained = NULL;
    drained(server->app);
}

static void drain_later(void *subject)
{
    hx_server *server = subject;
    check_drained(server);
}

void hx_server_drain(hx_server *server, void (*done)(void *app))
{
    server->drained = done;
    sim_after(0, drain_later, server);
}

uint32_t hx_server_connections(const hx_server *server)
{
    return server->open;
}

static void add_field(hx_stream *stream, const char *name, hx_slice value)
{
    bool fits = hx_fields_add(&stream->request.fields, &stream->arena, 100, hx_slice_of(name), value);
    HX_CHECK(fits);
}

static void fill_request(hx_stream *stream, const sim_ask *ask)
{
    hx_arena *arena = &stream->arena;
    hx_request_head *head = &stream->request;
    *head = (hx_request_head){.method = ask->unkeyed ? HX_LIT("GET") : HX_LIT("POST"),
                              .target = sim_route_path(ask->op->route),
                              .path = sim_route_path(ask->op->route),
                              .keep_alive = true,
                              .has_body = !ask->unkeyed,
                              .content_length = -1};
    /* user:password in base64; the password is the proof. */
    static const char *const credentials[SIM_PRINCIPALS][SIM_PROOFS] = {
        {"Basic YW5uOm9sZA==", "Basic YW5uOm5ldw=="},
        {"Basic Ym9iOm9sZA==", "Basic Ym9iOm5ldw=="},
        {"Bearer token-of-cid-old", "Bearer token-of-cid-old"},
    };
    add_field(stream, "Host", HX_LIT("shop.example"));
    add_field(stream, "Authorization", hx_slice_of(credentials[ask->op->principal][ask->proof]));
    if (ask->unkeyed) return;
    if (sim_is_hourly(ask->op))
        add_field(stream, "X-Thing", HX_LIT("thing"));
    else
        add_field(stream, "Idempotency-Key", hx_arena_printf(arena, "key-%u-of-the-simulation", ask->op->key));
    add_field(stream, "Content-Type", HX_LIT("application/json"));
    if (ask->patience > 0)
        add_field(stream, "X-Request-Timeout", hx_arena_printf(arena, "%lldms", (long long)ask->patience));
}

void sim_server_ask(hx_server *server, sim_client *client, const sim_ask *ask)
{
    sim_stream *s = hx_arena_zalloc(&world.arena, sizeof *s);
    s->server = server;
    s->waits_since = world.boot;
    s->client = client;
    s->client_index = sim_client_index(client);
    s->stream.loop = server->loop;
    s->stream.scheme = HX_LIT("http");
    s->stream.peer = (hx_peer){.kind = HX_PEER_ADDRESS,
                               .text = "192.0.2.1",
                               .text_len = sizeof "192.0.2.1" - 1,
                               .address = {[10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2, [15] = 1}};
    s->stream.listener = HX_LIT("127.0.0.1:8080");
    fill_request(&s->stream, ask);
    if (!ask->unkeyed) {
        s->body = hx_arena_printf(&s->stream.arena, "{\"payload\": %u}", ask->payload);
        s->stream.request.content_length = (int64_t)s->body.len;
    }
    hx_list_append(&world.streams, &s->link);
    server->open++;
    sim_client_waits(client, s);
    if (ask->malformed)
        server->handler->malformed(server->app, &s->stream, 400, "The request line is not one.");
    else
        server->handler->request(server->app, &s->stream);
}

/* The client hears no more of it. */
static sim_client *detach(sim_stream *s)
{
    sim_client *client = s->client;
    if (client) sim_client_waits(client, NULL);
    s->client = NULL;
    return client;
}

static void body_piece(void *subject)
{
    sim_stream *s = subject;
    s->piece_on_the_way = false;
    if (!s->server || !s->client || !s->reading || s->whole || s->paused) return;
    size_t left = s->body.len - s->body_sent;
    size_t take = sim_chance(by_client(s), 200) && left > 1 ? left / 2 : left;
    hx_slice piece = {s->body.ptr + s->body_sent, take};
    s->body_sent += take;
    s->whole = s->body_sent == s->body.len;
    bool last = s->whole;
    if (!last) {
        s->piece_on_the_way = true;
        sim_after(sim_span(by_client(s), 0, 2000), body_piece, s);
    }
    if (s->stream.events.body) s->stream.events.body(&s->stream, piece, last);
}

void hx_stream_read(hx_stream *stream)
{
    sim_stream *s = (sim_stream *)stream;
    s->reading = true;
    if (s->piece_on_the_way) return;
    s->piece_on_the_way = true;
    sim_after(sim_span(by_client(s), 0, 20), body_piece, s);
}

void hx_stream_pause(hx_stream *stream)
{
    ((sim_stream *)stream)->paused = true;
}

void hx_stream_resume(hx_stream *stream)
{
    sim_stream *s = (sim_stream *)stream;
    s->paused = false;
    if (s->reading && !s->whole) hx_stream_read(stream);
}

void sim_server_leave(void *subject)
{
    sim_stream *s = subject;
    sim_client *client = detach(s);
    if (!client) return;
    SIM_TRACE("a client leaves");
    sim_cover_stream(&s->stream, SIM_FAULT_CLIENT_LEFT);
    sim_client_cut(client);
    if (!s->server) return;
    bool in_body = s->reading && !s->whole;
    if (in_body && s->stream.events.broken)
        s->stream.events.broken(&s->stream, 0, "the client left");
    else if (!in_body && s->stream.events.closed)
        s->stream.events.closed(&s->stream);
}

void hx_stream_answer(hx_stream *stream, unsigned status, hx_slice reason, hx_slice header_lines, hx_slice body,
                      bool date)
{
    (void)reason;
    (void)date;
    sim_stream *s = (sim_stream *)stream;
    HX_CHECK(!stream->answered);
    stream->answered = true;
    sim_client *client = detach(s);
    if (client) sim_client_answer(client, status, header_lines, body);
}

void hx_stream_answer_file(hx_stream *stream, unsigned status, hx_slice reason, hx_slice header_lines, hx_extent body,
                           bool date)
{
    char *bytes = hx_arena_alloc(&stream->arena, (size_t)body.len);
    bool is_read = hx_extent_read(&body, bytes, (size_t)body.len);
    HX_CHECK(is_read);
    hx_stream_answer(stream, status, reason, header_lines, (hx_slice){bytes, (size_t)body.len}, date);
}

void hx_stream_begin(hx_stream *stream, unsigned status, hx_slice reason, hx_slice header_lines, int64_t content_length)
{
    (void)reason;
    (void)content_length;
    sim_stream *s = (sim_stream *)stream;
    HX_CHECK(!stream->answered);
    stream->answered = true;
    if (s->client) sim_client_begin(s->client, status, header_lines);
}

static void drained(void *subject)
{
    sim_stream *s = subject;
    if (s->server && s->client && s->stream.events.drained) s->stream.events.drained(&s->stream);
}

bool hx_stream_write(hx_stream *stream, hx_slice bytes)
{
    sim_stream *s = (sim_stream *)stream;
    HX_CHECK(stream->answered);
    if (!s->client) return true;
    sim_client_piece(s->client, bytes);
    if (!sim_chance(by_client(s), 200)) return true;
    sim_after(sim_span(by_client(s), 0, 3000), drained, s);
    return false;
}

void hx_stream_end(hx_stream *stream)
{
    sim_client *client = detach((sim_stream *)stream);
    if (client) sim_client_end(client);
}

void hx_stream_abort(hx_stream *stream)
{
    sim_client *client = detach((sim_stream *)stream);
    if (client) sim_client_cut(client);
}

void hx_stream_tunnel(hx_stream *stream)
{
    (void)stream; /* no client here asks for an upgrade */
}

static void let_go(sim_stream *s)
{
    hx_list_remove(&s->link);
    s->server = NULL;
    hx_arena_free(&s->stream.arena);
    memset(&s->stream, 0xdd, sizeof s->stream); /* whoever still uses it shall notice */
}

void hx_stream_release(hx_stream *stream)
{
    sim_stream *s = (sim_stream *)stream;
    hx_server *server = s->server;
    HX_CHECK(server != NULL);
    sim_client *client = detach(s);
    if (client) sim_fail("every client that stays gets an answer", "a request was let go without one");
    let_go(s);
    server->open--;
    if (server->drained) sim_after(0, drain_later, server);
}

static bool belongs_to(const sim_stream *s, const sim_node *node)
{
    for (unsigned i = 0; i < world.worker_count; i++)
        if (s->server == node->workers[i].server) return true;
    return false;
}

void sim_cover_requests(const sim_node *node, sim_fault fault)
{
    HX_EACH(link, &world.streams)
    {
        const sim_stream *s = HX_OWNER(link, sim_stream, link);
        if (!node || belongs_to(s, node)) sim_cover_stream(&s->stream, fault);
    }
}

static const sim_stream *stream_around(const void *memory)
{
    HX_EACH(link, &world.streams)
    {
        const sim_stream *s = HX_OWNER(link, sim_stream, link);
        const hx_request *r = s->stream.user;
        if (r && (const char *)memory >= (const char *)r && (const char *)memory < (const char *)(r + 1)) return s;
    }
    return NULL;
}

const hx_request *sim_request_around(const void *memory)
{
    const sim_stream *s = stream_around(memory);
    return s ? s->stream.user : NULL;
}

unsigned sim_client_around(const void *memory)
{
    const sim_stream *s = stream_around(memory);
    return s ? s->client_index : UINT_MAX;
}

bool sim_server_holds(const sim_op *op)
{
    HX_EACH(link, &world.streams)
    {
        const sim_stream *s = HX_OWNER(link, sim_stream, link);
        const hx_request *r = s->stream.user;
        if (r && r->operation == HX_OPERATION_CLAIMED && r->record.epoch == op->epoch) return true;
    }
    return false;
}

/* A duplicate waits for as long as its route says, and no longer than the store may stall in telling it. */
void sim_server_check_waiting(void)
{
    HX_EACH(link, &world.streams)
    {
        sim_stream *s = HX_OWNER(link, sim_stream, link);
        const hx_request *r = s->stream.user;
        if (!r) continue;
        if (r->step != HX_STEP_wait || !s->waits) s->waits_since = world.boot;
        s->waits = r->step == HX_STEP_wait;
        hx_ms slack = world.store.has_failed ? SIM_STALL_MAX + 10 * HX_SECOND : HX_SECOND;
        if (world.boot - s->waits_since > r->policy->wait + slack)
            sim_fail("no waiter is forgotten", "client %u waits for the first request for %lld s", s->client_index,
                     (long long)((world.boot - s->waits_since) / HX_SECOND));
    }
}

void sim_server_crash(sim_node *node)
{
    HX_EACH(link, &world.streams)
    {
        sim_stream *s = HX_OWNER(link, sim_stream, link);
        if (!belongs_to(s, node)) continue;
        sim_client *client = detach(s);
        let_go(s);
        if (client) sim_client_cut(client);
    }
}
