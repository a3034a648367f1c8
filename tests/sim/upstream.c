/* SPDX-License-Identifier: Apache-2.0 */
/* net/upstream.h: one exchange is one wire to the application. It is refused, cut after some of its bytes, or brings
 * the whole request there (app.c), and then an answer back, whole or not. As in the real one bytes_sent is exact: 0
 * means that the application has not had one byte and never will.
 *
 * When the node at this end is gone, the kernel may still have delivered what it had. */
#include "world.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

struct hx_upstream {
    unsigned exchanges; /* that were begun */
};

struct sim_wire {
    hx_exchange *exchange; /* NULL: over, at this end */
    hx_upstream *upstream;
    hx_link link;
    sim_request request;
    sim_job *job;
    enum { CONNECTING, SENDING, SENT, ANSWERING } state;
    bool cancelled;
    bool paused;
    bool held; /* something would come, but for the pause */
    bool body_given;
    bool is_stream; /* an answer that takes its time */
    const sim_reply *reply;
    hx_slice body;
    hx_ms began_at;
    hx_upstream_error error; /* how the answer ends, if not whole */
    bool cut;
};

static unsigned by_app(const sim_wire *wire)
{
    return wire->request.op ? SIM_BY_APP + sim_op_index(wire->request.op) : SIM_BY_PASSING;
}

hx_upstream *hx_upstream_new(hx_loop *loop, hx_slice url, const hx_upstream_limits *limits, hx_error_text error)
{
    (void)loop;
    (void)url;
    (void)limits;
    error[0] = '\0';
    hx_upstream *upstream = calloc(1, sizeof *upstream);
    if (!upstream) hx_fatal(HX_EXIT_BUG, "out of memory");
    return upstream;
}

void hx_upstream_free(hx_upstream **owned)
{
    if (!*owned) return;
    HX_EACH(link, &world.app.wires)
    {
        const sim_wire *wire = HX_OWNER(link, sim_wire, link);
        HX_CHECK(wire->upstream != *owned); /* a node is stopped when it has drained; a crash takes the wires first */
    }
    free(*owned);
    *owned = NULL;
}

hx_slice hx_upstream_host(const hx_upstream *upstream)
{
    (void)upstream;
    return HX_LIT("app");
}

const char *hx_upstream_error_text(hx_upstream_error error)
{
    static const char *const texts[] = {
#define X(name, text) text,
        HX_UPSTREAM_ERRORS(X)
#undef X
    };
    return texts[error];
}

void sim_cover_wire(const sim_wire *wire, sim_fault fault)
{
    if (wire->exchange) sim_cover_exchange(wire->exchange, fault);
}

/* This end of the wire hears no more. */
static hx_exchange *take_exchange(sim_wire *wire)
{
    hx_exchange *exchange = wire->exchange;
    wire->exchange = NULL;
    hx_list_remove(&wire->link);
    return exchange;
}

void sim_wire_fail(sim_wire *wire, hx_upstream_error error)
{
    if (!wire->exchange || wire->cancelled) return;
    hx_exchange *exchange = take_exchange(wire);
    if (wire->request.life) sim_oracle_attempt(&wire->request, NULL, exchange->bytes_sent > 0);
    SIM_TRACE("upstream: the exchange fails after %llu bytes: %s", (unsigned long long)exchange->bytes_sent,
              hx_upstream_error_text(error));
    exchange->events->failed(exchange, error);
}

static unsigned number_after(hx_slice text, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i + len < text.len; i++)
        if (memcmp(text.ptr + i, name, len) == 0 && text.ptr[i + len] >= '0' && text.ptr[i + len] <= '9')
            return (unsigned)(text.ptr[i + len] - '0');
    return 0;
}

static unsigned route_of(hx_slice target)
{
    for (unsigned i = 0; i < SIM_ROUTES; i++) {
        if (hx_slice_starts(target, sim_route_path(i))) return i;
    }
    sim_fail("what is sent is what was asked", "a request for no known path: %.*s", HX_FMT(target));
}

static void read_epoch(sim_request *request, hx_slice operation)
{
    size_t dot = hx_slice_find(operation, '.');
    uint64_t epoch;
    if (dot == SIZE_MAX || !hx_slice_to_u64(hx_slice_from(operation, dot + 1), &epoch))
        sim_fail("what is sent is what was asked", "Hapax-Operation: %.*s", HX_FMT(operation));
    request->epoch = epoch;
    request->life = sim_life_of(request->op, epoch);
}

static sim_op *op_named(hx_slice operation)
{
    hx_op id = {0};
    if (operation.len < 2 * sizeof id.bytes) sim_fail("what is sent is what was asked", "no Hapax-Operation");
    for (size_t i = 0; i < 2 * sizeof id.bytes; i++) {
        char c = operation.ptr[i];
        id.bytes[i / 2] = (uint8_t)(id.bytes[i / 2] << 4 | (c <= '9' ? c - '0' : c - 'a' + 10));
    }
    return sim_op_of(&id);
}

/* The body is as long as the head says. */
static void check_framing(const hx_exchange *exchange)
{
    uint64_t said = exchange->framing == HX_FRAMING_LENGTH ? exchange->content_length : 0;
    if (exchange->framing == HX_FRAMING_CHUNKED || said != exchange->body.len)
        sim_fail("what is sent is what was asked", "%zu bytes follow a head that says %llu", exchange->body.len,
                 (unsigned long long)said);
}

/* From what goes out, not from what the gateway thinks. */
static sim_request read_request(const hx_exchange *exchange)
{
    hx_slice head = exchange->header_lines, who = sim_line(head, "Authorization");
    sim_request request = {0};
    check_framing(exchange);
    unsigned principal = hx_slice_starts(who, HX_LIT("Basic YW5u"))   ? 0
                         : hx_slice_starts(who, HX_LIT("Basic Ym9i")) ? 1
                                                                      : 2;
    request.proof = hx_slice_ends(who, HX_LIT("bmV3")) || hx_slice_ends(who, HX_LIT("m5ldw==")) ? 1 : 0;
    unsigned route = route_of(exchange->target);
    hx_slice operation = sim_line(head, "Hapax-Operation");
    if (hx_slice_eq(exchange->method, HX_LIT("GET"))) {
        hx_slice target = exchange->target;
        request.is_probe = hx_slice_find(target, '?') != SIZE_MAX;
        if (request.is_probe) request.op = sim_op_at(route, principal, number_after(target, "key-"));
        return request;
    }
    request.op = route == SIM_ROUTE_WINDOW
                     ? op_named(operation)
                     : sim_op_at(route, principal, number_after(sim_line(head, "Idempotency-Key"), "key-"));
    request.payload = number_after(exchange->body, "\"payload\": ");
    uint64_t attempt;
    if (!hx_slice_to_u64(sim_line(head, "Hapax-Attempt"), &attempt))
        sim_fail("what is sent is what was asked", "Hapax-Attempt: %.*s", HX_FMT(sim_line(head, "Hapax-Attempt")));
    request.attempt = (unsigned)attempt;
    read_epoch(&request, operation);
    return request;
}

static void deliver_all(sim_wire *wire)
{
    wire->exchange->bytes_sent = wire->exchange->bytes_all;
    wire->state = SENT;
    wire->job = sim_app_receive(&wire->request, wire);
}

static void cut_in_request(void *subject)
{
    sim_wire_fail(subject, HX_UPSTREAM_RESET);
}

static void rest_is_sent(void *subject)
{
    sim_wire *wire = subject;
    if (!wire->exchange || wire->cancelled) return;
    SIM_TRACE("upstream: the rest of %s is sent", wire->request.op ? sim_op_name(wire->request.op) : "it");
    deliver_all(wire);
}

/* A part of it, and the rest late or never. */
static void send_slowly(sim_wire *wire)
{
    hx_exchange *exchange = wire->exchange;
    uint64_t total = exchange->bytes_all;
    exchange->bytes_sent = 1 + sim_choose(by_app(wire), (uint32_t)total - 1);
    wire->state = SENDING;
    SIM_TRACE("upstream: %llu of %llu bytes are sent", (unsigned long long)exchange->bytes_sent,
              (unsigned long long)total);
    sim_cover_exchange(exchange, SIM_FAULT_RESET);
    if (sim_chance(by_app(wire), 500))
        sim_after(sim_span(by_app(wire), 0, 90 * HX_SECOND), rest_is_sent, wire);
    else
        sim_after(sim_span(by_app(wire), 0, 10 * HX_SECOND), cut_in_request, wire);
}

static void connected(void *subject)
{
    sim_wire *wire = subject;
    hx_exchange *exchange = wire->exchange;
    if (!exchange || wire->cancelled) return;
    if (!world.app.up || sim_chance(by_app(wire), world.rates.refused)) {
        sim_cover_exchange(exchange, SIM_FAULT_REFUSED);
        sim_wire_fail(wire, HX_UPSTREAM_UNREACHABLE);
    } else if (sim_chance(by_app(wire), world.rates.reset / 2)) {
        send_slowly(wire);
    } else {
        deliver_all(wire);
    }
}

static void connect_timed_out(void *subject)
{
    sim_wire_fail(subject, HX_UPSTREAM_CONNECT_TIMEOUT);
}

void hx_exchange_start(hx_upstream *upstream, hx_exchange *exchange)
{
    sim_wire *wire = hx_arena_zalloc(&world.arena, sizeof *wire);
    *wire = (sim_wire){.exchange = exchange,
                       .upstream = upstream,
                       .request = read_request(exchange),
                       .began_at = world.boot};
    exchange->own.connection = wire;
    exchange->bytes_all = exchange->method.len + exchange->target.len + exchange->header_lines.len + exchange->body.len;
    upstream->exchanges++;
    hx_list_append(&world.app.wires, &wire->link);
    const sim_request *request = &wire->request;
    SIM_TRACE("upstream: %s for %s, epoch %llu, attempt %u", request->is_probe ? "a probe" : "a request",
              request->op ? sim_op_name(request->op) : "nothing keyed", (unsigned long long)request->epoch,
              request->attempt);
    if (request->op && !request->is_probe) sim_oracle_dispatch(request, exchange);
    if (sim_chance(by_app(wire), world.rates.refused / 4))
        sim_after(5 * HX_SECOND, connect_timed_out, wire);
    else
        sim_after(sim_span(by_app(wire), 0, 20), connected, wire);
}

/* Of an exchange that no connection ever carried. */
bool hx_exchange_may_repeat(const hx_exchange *exchange)
{
    return exchange->bytes_sent == 0;
}

void hx_exchange_repeat(hx_upstream *upstream, hx_exchange *exchange)
{
    HX_CHECK(hx_exchange_may_repeat(exchange));
    hx_exchange_start(upstream, exchange);
}

/* One that is not is decided by its head alone. */
static bool is_kept(const sim_wire *wire)
{
    return !wire->is_stream && wire->reply->body.len <= sim_policy(wire->request.op)->answer_bytes_max;
}

static void give_end(void *subject)
{
    sim_wire *wire = subject;
    if (!wire->exchange || wire->cancelled) return;
    wire->held = wire->paused;
    if (wire->held) return;
    if (wire->cut) {
        sim_wire_fail(wire, wire->error);
        return;
    }
    hx_exchange *exchange = take_exchange(wire);
    if (wire->request.life && is_kept(wire)) sim_oracle_attempt(&wire->request, wire->reply, true);
    if (wire->request.is_probe) sim_oracle_probed(&wire->request, wire->reply);
    exchange->events->end(exchange);
}

static void give_body(void *subject)
{
    sim_wire *wire = subject;
    if (!wire->exchange || wire->cancelled) return;
    wire->held = wire->paused;
    if (wire->held) return;
    wire->body_given = true;
    sim_after(sim_span(by_app(wire), 0, wire->is_stream ? 20 * HX_SECOND : 50), give_end, wire);
    hx_slice piece = wire->cut ? hx_slice_first(wire->body, wire->body.len / 2) : wire->body;
    if (piece.len > 0) wire->exchange->events->body(wire->exchange, piece);
}

static void give_head(sim_wire *wire, const sim_reply *reply)
{
    hx_exchange *exchange = wire->exchange;
    hx_answer_head *head = hx_arena_zalloc(exchange->arena, sizeof *head);
    *head = (hx_answer_head){.status = (uint16_t)reply->status,
                             .reason = HX_EMPTY,
                             .content_length = reply->is_stream ? -1 : (int64_t)reply->body.len,
                             .chunked = reply->is_stream};
    hx_slice lines = hx_arena_copy(exchange->arena, reply->lines), line;
    while (hx_slice_next(&lines, '\n', &line)) {
        size_t colon = hx_slice_find(line, ':');
        if (colon == SIZE_MAX) continue;
        hx_slice value = hx_slice_from(line, colon + 1);
        value.len -= value.len > 0 && value.ptr[value.len - 1] == '\r';
        bool fits = hx_fields_add(&head->fields, exchange->arena, 200, hx_slice_first(line, colon), value);
        HX_CHECK(fits);
    }
    wire->state = ANSWERING;
    wire->reply = reply;
    wire->body = reply->body;
    wire->is_stream = reply->is_stream;
    sim_after(sim_span(by_app(wire), 0, reply->is_stream ? 20 * HX_SECOND : 50), give_body, wire);
    if (wire->request.life && !is_kept(wire)) sim_oracle_attempt(&wire->request, reply, true);
    exchange->events->head(exchange, head);
}

void sim_wire_answer(sim_wire *wire, const sim_reply *reply)
{
    wire->job = NULL;
    if (!wire->exchange || wire->cancelled) return;
    SIM_TRACE("upstream: %s is answered with %u", wire->request.op ? sim_op_name(wire->request.op) : "it",
              reply->status);
    give_head(wire, reply);
}

void sim_wire_answer_cut(sim_wire *wire, const sim_reply *reply, hx_upstream_error error)
{
    wire->cut = true;
    wire->error = error;
    sim_wire_answer(wire, reply);
}

/* The bodies that simulated clients send unkeyed are empty: nothing is streamed upwards. */
bool hx_exchange_write(hx_exchange *exchange, hx_slice bytes)
{
    exchange->bytes_sent += bytes.len;
    return true;
}

void hx_exchange_finish(hx_exchange *exchange)
{
    HX_CHECK(exchange->own.connection != NULL);
}

void hx_exchange_tunnel(hx_exchange *exchange)
{
    HX_CHECK(exchange->own.connection != NULL);
}

void hx_exchange_pause(hx_exchange *exchange)
{
    sim_wire *wire = exchange->own.connection;
    wire->paused = true;
}

void hx_exchange_resume(hx_exchange *exchange)
{
    sim_wire *wire = exchange->own.connection;
    wire->paused = false;
    if (!wire->held) return;
    wire->held = false;
    sim_after(0, wire->body_given ? give_end : give_body, wire);
}

static void cancelled(void *subject)
{
    sim_wire *wire = subject;
    if (!wire->exchange) return;
    hx_exchange *exchange = take_exchange(wire);
    exchange->events->failed(exchange, HX_UPSTREAM_CANCELLED);
}

static void hang_up(sim_wire *wire)
{
    if (wire->job) sim_app_hang_up(wire->job);
    wire->job = NULL;
}

void hx_exchange_cancel(hx_exchange *exchange)
{
    sim_wire *wire = exchange->own.connection;
    HX_CHECK(wire->exchange == exchange && !wire->cancelled);
    wire->cancelled = true;
    if (wire->request.life && wire->state == SENT) sim_oracle_cancel(&wire->request, wire->began_at);
    if (wire->request.life && wire->state != ANSWERING)
        sim_oracle_attempt(&wire->request, NULL, exchange->bytes_sent > 0);
    hang_up(wire);
    sim_after(0, cancelled, wire);
}

static bool belongs_to(const sim_wire *wire, const sim_node *node)
{
    for (unsigned i = 0; i < world.worker_count; i++)
        if (wire->upstream == node->workers[i].upstreams[0]) return true;
    return false;
}

void sim_upstream_crash(sim_node *node)
{
    HX_EACH(link, &world.app.wires)
    {
        sim_wire *wire = HX_OWNER(link, sim_wire, link);
        if (!belongs_to(wire, node)) continue;
        if (wire->state == CONNECTING && !wire->cancelled && world.app.up && sim_chance(by_app(wire), 300)) {
            SIM_TRACE("upstream: the dead node's request arrives all the same");
            sim_request request = wire->request;
            (void)sim_app_receive(&request, NULL);
        }
        hang_up(wire);
        (void)take_exchange(wire);
    }
}

static void reset_wire(void *subject)
{
    sim_wire_fail(subject, HX_UPSTREAM_RESET);
}

void sim_upstream_reset_all(void)
{
    HX_EACH(link, &world.app.wires)
    {
        sim_wire *wire = HX_OWNER(link, sim_wire, link);
        if (wire->state == CONNECTING || wire->cancelled) continue;
        sim_cover_exchange(wire->exchange, SIM_FAULT_APP_CRASH);
        wire->job = NULL;
        sim_after(sim_span(by_app(wire), 0, 50), reset_wire, wire);
    }
}
