/* SPDX-License-Identifier: Apache-2.0 */
/* Clients: they ask, wait, leave, and ask again with the same key; some change their mind about the payload, use a new
 * credential, or the key of somebody else. Each asks a few times in a run; the oracle sees every answer. */
#include "world.h"

#include "base/check.h"

struct sim_client {
    void *stream; /* what it waits for */
    unsigned index;
    unsigned left; /* how often it will still ask */
    sim_ask ask;
    bool has_asked;
    hx_ms asked_at;
    unsigned status;
    bool in_pieces;
    hx_slice lines;
    hx_buf body;
};

static void act(void *subject);

static unsigned by_client(const sim_client *client)
{
    return SIM_BY_CLIENT + client->index;
}

unsigned sim_client_index(const sim_client *client)
{
    return client->index;
}

static void think(sim_client *client)
{
    hx_ms pause = sim_chance(by_client(client), 60) ? sim_span(by_client(client), 60 * HX_SECOND, 400 * HX_SECOND)
                                                    : sim_span(by_client(client), 0, 15 * HX_SECOND);
    if (client->left > 0) sim_after(pause, act, client);
}

void sim_client_waits(sim_client *client, void *stream)
{
    client->stream = stream;
}

static void choose_ask(sim_client *client)
{
    sim_ask *ask = &client->ask;
    if (client->has_asked && !sim_chance(by_client(client), 250)) {
        ask->patience = 0; /* the same again */
    } else {
        bool is_busy = sim_chance(by_client(client), 500);
        unsigned route = is_busy ? world.busy_route : sim_choose(by_client(client), SIM_ROUTES);
        unsigned key = sim_choose(by_client(client), world.key_count);
        if (route == SIM_ROUTE_WINDOW && !world.shared) route = SIM_ROUTE_NONE; /* its clock may be set to any hour */
        if (route == SIM_ROUTE_WINDOW) key = 0;
        *ask = (sim_ask){.op = sim_op_at(route, client->index % world.principal_count, key)};
        ask->unkeyed = sim_chance(by_client(client), 20);
        ask->malformed = sim_chance(by_client(client), 5);
    }
    client->has_asked = true;
    ask->payload = sim_chance(by_client(client), world.rates.mismatches) ? 1 : 0;
    ask->proof = ask->op->principal < 2 && sim_chance(by_client(client), world.rates.other_proofs) ? 1 : 0;
    if (sim_chance(by_client(client), world.rates.impatient))
        ask->patience = sim_span(by_client(client), 1, 20 * HX_SECOND);
}

static void ask_now(sim_client *client, sim_node *node)
{
    const sim_ask *ask = &client->ask;
    hx_server *server = node->workers[sim_choose(by_client(client), world.worker_count)].server;
    SIM_TRACE("client %u asks node %u for %s, proof %u, payload %u, patience %lld ms%s", client->index, node->index,
              sim_op_name(ask->op), ask->proof, ask->payload, (long long)ask->patience,
              ask->malformed ? " (malformed)"
              : ask->unkeyed ? " (unkeyed)"
                             : "");
    client->asked_at = world.boot;
    client->in_pieces = false;
    client->body.len = 0;
    sim_server_ask(server, client, ask);
}

static void act(void *subject)
{
    sim_client *client = subject;
    if (client->stream || client->left == 0) return;
    client->left--;
    sim_node *node = &world.nodes[sim_choose(by_client(client), world.node_count)];
    if (!node->up || node->draining) {
        think(client);
        return;
    }
    choose_ask(client);
    ask_now(client, node);
    if (client->stream && sim_chance(by_client(client), world.rates.client_leaves))
        sim_after(sim_span(by_client(client), 0, 20 * HX_SECOND), sim_server_leave, client->stream);
}

void sim_clients_begin(void)
{
    world.clients = hx_arena_zalloc(&world.arena, world.client_count * sizeof *world.clients);
    for (unsigned i = 0; i < world.client_count; i++) {
        sim_client *client = &world.clients[i];
        client->index = i;
        client->left = sim_choose(by_client(client), 9);
        hx_buf_init(&client->body, &world.arena, 64u * 1024u);
        sim_after(sim_span(by_client(client), 0, 3 * HX_SECOND), act, client);
    }
}

bool sim_clients_idle(void)
{
    for (unsigned i = 0; i < world.client_count; i++)
        if (world.clients[i].stream || (world.clients[i].left > 0 && !world.calm)) return false;
    return true;
}

static void settle_down(sim_client *client)
{
    if (!world.calm) think(client);
}

void sim_client_cut(sim_client *client)
{
    SIM_TRACE("client %u is left without an answer", client->index);
    settle_down(client);
}

static void tell_oracle(const sim_client *client, bool has_body, bool is_first_byte)
{
    if (client->ask.malformed && client->status != 400)
        sim_fail("what is no request is refused", "client %u was answered with %u", client->index, client->status);
    if (client->ask.unkeyed || client->ask.malformed) return;
    sim_told told = {.op = client->ask.op,
                     .client = client->index,
                     .patience = is_first_byte ? client->ask.patience : 0,
                     .proof = client->ask.proof,
                     .payload = client->ask.payload,
                     .asked_at = client->asked_at,
                     .status = client->status,
                     .lines = client->lines,
                     .body = hx_buf_slice(&client->body),
                     .has_body = has_body};
    sim_oracle_told(&told);
}

void sim_client_answer(sim_client *client, unsigned status, hx_slice lines, hx_slice body)
{
    client->status = status;
    client->lines = lines;
    hx_buf_put(&client->body, body);
    SIM_TRACE("client %u gets %u %.*s %.*s, %.*s", client->index, status, HX_FMT(sim_line(lines, "Idempotency-Status")),
              HX_FMT(sim_line(lines, "Error-Code")), HX_FMT(sim_line(lines, "Error-Code").len > 0 ? HX_EMPTY : body));
    sim_mix(status);
    sim_mix(sim_hash(lines));
    sim_mix(sim_hash(body));
    tell_oracle(client, true, true);
    settle_down(client);
}

void sim_client_begin(sim_client *client, unsigned status, hx_slice lines)
{
    client->status = status;
    client->lines = hx_arena_copy(&world.arena, lines);
    client->in_pieces = true;
    SIM_TRACE("client %u begins to get %u %.*s", client->index, status, HX_FMT(sim_line(lines, "Idempotency-Status")));
    tell_oracle(client, false, true);
}

void sim_client_piece(sim_client *client, hx_slice piece)
{
    HX_CHECK(client->in_pieces);
    hx_buf_put(&client->body, piece);
}

void sim_client_end(sim_client *client)
{
    HX_CHECK(client->in_pieces);
    SIM_TRACE("client %u has it all", client->index);
    sim_mix(sim_hash(hx_buf_slice(&client->body)));
    tell_oracle(client, true, false);
    settle_down(client);
}

void sim_clients_check_waiting(void)
{
    for (unsigned i = 0; i < world.client_count; i++) {
        const sim_client *client = &world.clients[i];
        if (!client->stream || world.boot - client->asked_at <= SIM_ANSWER_BOUND) continue;
        sim_fail("every client that stays gets an answer", "client %u has waited for %s for %lld s", client->index,
                 sim_op_name(client->ask.op), (long long)((world.boot - client->asked_at) / HX_SECOND));
    }
}

/* Without faults there is a way on from everything but an unknown that is held, and an expired key. */
static void verify(sim_client *client, sim_op *op, sim_node *node)
{
    const sim_life *life = op->life && op->life->dispatched ? op->life : NULL;
    hx_state before = sim_op_state(op);
    bool has_way_out = op->route == SIM_ROUTE_PROBE || (sim_may_repeat(op) && !op->is_held);
    client->ask = (sim_ask){.op = op, .proof = life ? life->proof : 0, .payload = life ? life->payload : 0};
    ask_now(client, node);
    while (client->stream && sim_step()) sim_clients_check_waiting();
    hx_state after = sim_op_state(op);
    bool must_be_done = before == HX_ABSENT || (before == HX_UNKNOWN && life && has_way_out);
    if (must_be_done && after != HX_COMPLETED)
        sim_fail("what is asked for is done, when nothing goes wrong", "%s was %s and is %s", sim_op_name(op),
                 hx_state_name(before), hx_state_name(after));
}

void sim_clients_verify(void)
{
    for (unsigned i = 0; i < world.node_count; i++)
        while (world.nodes[i].draining && sim_step()) {}
    /* By then the application is done with whatever it was sent, and a node that was just started knows it. */
    for (hx_ms until = world.boot + 2 * SIM_SETTLE; world.boot < until && sim_step();) {}
    for (size_t i = 0; i < SIM_OPS_MAX; i++) {
        if (!world.ops[i].used || sim_is_hourly(&world.ops[i])) continue;
        verify(&world.clients[0], &world.ops[i], &world.nodes[i % 2 < world.node_count ? i % 2 : 0]);
    }
}
