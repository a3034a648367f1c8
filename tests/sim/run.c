/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include "coverage.h"

#include <string.h>

#define CALM_BOUND (30 * HX_MINUTE)

sim_world world;

const char *const sim_command = "./dev sim";

static void choose_rates(void)
{
    world.rates = (sim_rates){
        .store_lost = sim_rate(60),
        .store_done = sim_rate(60),
        .store_full = sim_rate(50),
        .store_stall = sim_rate(40),
        .refused = sim_rate(200),
        .reset = sim_rate(200),
        .doubled = sim_rate(150),
        .cut = sim_rate(150),
        .silent = sim_rate(200),
        .slow_app = sim_rate(300),
        .error_answers = sim_rate(600),
        .words = sim_rate(200),
        .streams = sim_rate(200),
        .client_leaves = sim_rate(300),
        .mismatches = sim_rate(100),
        .other_proofs = sim_rate(150),
        .impatient = sim_rate(300),
    };
}

static void restart_node(void *subject)
{
    sim_node *node = subject;
    if (!node->up) sim_node_start(node);
}

static void jump(void)
{
    static const hx_ms jumps[] = {HX_DAY, -HX_DAY, HX_HOUR, -HX_HOUR};
    hx_ms by = jumps[sim_choose(SIM_BY_TROUBLES, 4)];
    SIM_TRACE("the wall clock jumps by %lld h", (long long)(by / HX_HOUR));
    world.wall_offset += by;
    sim_cover_requests(NULL, SIM_FAULT_CLOCK_JUMP);
}

/* A machine that starts again often has another time than before. */
static void crash_node(bool may_jump)
{
    sim_node *node = &world.nodes[sim_choose(SIM_BY_TROUBLES, world.node_count)];
    if (!node->up) return;
    sim_node_crash(node);
    if (may_jump && sim_choose(SIM_BY_TROUBLES, 4) > 0) jump();
    sim_after(sim_span(SIM_BY_TROUBLES, 0, 20 * HX_SECOND), restart_node, node);
}

static void start_anew(void *subject)
{
    sim_node *node = subject;
    if (world.calm || node->is_renamed) return;
    if (node->up) sim_node_crash(node);
    sim_node_start(node);
}

/* The route's operations are known by another name from here on: that needs a restart of all nodes, one by one. The
 * first of them tells the store, where no other may begin one by the old name any more. */
static void rename_route(void *subject)
{
    unsigned first = sim_choose(SIM_BY_WORLD, world.node_count);
    (void)subject;
    if (world.calm) return;
    SIM_TRACE("nodes are started again, one by one: a route is known by another name");
    if (world.nodes[first].up) sim_node_crash(&world.nodes[first]);
    world.is_renamed = true;
    sim_node_start(&world.nodes[first]);
    for (unsigned i = 0; i < world.node_count; i++)
        sim_after(sim_span(SIM_BY_WORLD, 0, 30 * HX_SECOND), start_anew, &world.nodes[i]);
}

/* A node that has drained is started again, as an upgrade does it. */
static void look_whether_drained(void *subject)
{
    sim_node *node = subject;
    if (!node->draining) return; /* it crashed meanwhile */
    if (!sim_node_drained(node)) {
        sim_after(100, look_whether_drained, node);
        return;
    }
    sim_node_stop(node);
    sim_node_start(node);
}

static void drain_node(void)
{
    sim_node *node = &world.nodes[sim_choose(SIM_BY_TROUBLES, world.node_count)];
    if (!node->up || node->draining) return;
    SIM_TRACE("node %u drains, with %u requests", node->index, sim_node_requests(node));
    sim_node_drain(node);
    sim_after(100, look_whether_drained, node);
}

/* What befalls the world as a whole, now and then. */
struct troubles {
    unsigned kinds, left;
};

static void trouble_store(unsigned kind)
{
    world.store.has_failed = true;
    if (kind == 4) world.store.slow_until = world.boot + sim_span(SIM_BY_TROUBLES, HX_SECOND, 30 * HX_SECOND);
    if (kind == 8) world.store.failing_until = world.boot + sim_span(SIM_BY_TROUBLES, 100, 90 * HX_SECOND);
    if (kind == 16) world.store.full_until = world.boot + sim_span(SIM_BY_TROUBLES, 100, 10 * HX_SECOND);
}

static void trouble(void *subject)
{
    struct troubles *troubles = subject;
    unsigned kinds = troubles->kinds;
    if (world.calm || troubles->left == 0) return;
    troubles->left--;
    switch (sim_choose(SIM_BY_TROUBLES, 9)) {
    case 0: break;
    case 1:
        if (kinds & 1) crash_node(kinds & 32);
        break;
    case 2:
        if ((kinds & 2) && world.app.up) {
            sim_app_crash();
        }
        break;
    case 3:
        if (kinds & 4) trouble_store(4);
        break;
    case 4:
        if (kinds & 8) trouble_store(8);
        break;
    case 5:
        if (kinds & 16) trouble_store(16);
        break;
    case 6:
        if (kinds & 32) jump();
        break;
    case 7:
        if (kinds & 64) sim_operator_acts();
        break;
    default:
        if (kinds & 128) drain_node();
        break;
    }
    sim_after(sim_span(SIM_BY_TROUBLES, 20, 40 * HX_SECOND), trouble, subject);
}

static void set_up(void)
{
    static struct troubles troubles;
    hx_list_init(&world.store.calls);
    hx_list_init(&world.app.wires);
    hx_list_init(&world.streams);
    world.app.up = true;
    world.wall_offset = world.clock_offset = SIM_HOUR;
    world.shared = sim_choose(SIM_BY_WORLD, 2) == 1;
    if (world.shared) world.clock_offset = SIM_HOUR - sim_span(SIM_BY_WORLD, 2 * HX_SECOND, 60 * HX_SECOND);
    world.node_count = world.shared ? 2 : 1;
    world.worker_count = world.shared ? 1 : 1 + sim_choose(SIM_BY_WORLD, 2);
    world.client_count = 8 + sim_choose(SIM_BY_WORLD, SIM_CLIENTS_MAX - 8 + 1);
    world.key_count = 3;
    world.busy_route = sim_choose(SIM_BY_WORLD, SIM_ROUTES);
    world.principal_count = 1 + sim_choose(SIM_BY_WORLD, SIM_PRINCIPALS);
    choose_rates();
    world.store_loop = hx_loop_new();
    world.state = hx_store_memory_open(&(hx_store_options){.now = sim_now});
    memcpy(world.secret, hx_store_about(world.state)->secret, sizeof world.secret);
    world.mac = hx_mac_new(world.secret);
    sim_routes_make();
    for (unsigned i = 0; i < world.node_count; i++) {
        world.nodes[i].index = i;
        sim_node_start(&world.nodes[i]);
    }
    sim_clients_begin();
    if (!world.is_renamed) sim_after(sim_span(SIM_BY_WORLD, 100, 40 * HX_SECOND), rename_route, NULL);
    troubles = (struct troubles){.kinds = sim_choose(SIM_BY_WORLD, 256), .left = sim_choose(SIM_BY_TROUBLES, 40)};
    sim_after(sim_span(SIM_BY_TROUBLES, 20, 20 * HX_SECOND), trouble, &troubles);
}

static void step_or_fail(void)
{
    if (!sim_step()) sim_fail("every client that stays gets an answer", "nothing happens any more");
    sim_server_check_waiting();
    if (world.events > SIM_EVENTS_MAX) sim_fail("every run ends", "%u events have happened", world.events);
    sim_clients_check_waiting();
}

static bool is_quiet(void)
{
    if (!sim_clients_idle() || !sim_store_idle() || !sim_app_idle() || !hx_list_empty(&world.app.wires)) return false;
    for (unsigned i = 0; i < world.node_count; i++)
        if (sim_node_requests(&world.nodes[i]) > 0) return false;
    for (size_t i = 0; i < SIM_OPS_MAX; i++)
        if (world.ops[i].used && world.ops[i].state == HX_PROCESSING) return false;
    return true;
}

/* Nothing goes wrong any more, and everything must come to its end. */
static void calm_down(void)
{
    SIM_TRACE("from here on nothing goes wrong");
    sim_choices_calm();
    world.calm = true;
    world.rates = (sim_rates){0};
    world.store.slow_until = world.store.failing_until = world.store.full_until = 0;
    world.app.up = true;
    for (unsigned i = 0; i < world.node_count; i++) {
        if (world.nodes[i].up && world.nodes[i].is_renamed != world.is_renamed) sim_node_crash(&world.nodes[i]);
        if (!world.nodes[i].up) sim_node_start(&world.nodes[i]);
    }
    hx_ms bound = world.boot + CALM_BOUND;
    while (!is_quiet()) {
        step_or_fail();
        if (world.boot > bound) sim_fail("nothing is left over", "something is still under way after half an hour");
    }
    sim_model_check_all();
}

static void stop_everything(void)
{
    for (unsigned i = 0; i < world.node_count; i++) {
        while (world.nodes[i].draining) step_or_fail();
        sim_node_drain(&world.nodes[i]);
    }
    hx_ms bound = world.boot + CALM_BOUND;
    for (unsigned i = 0; i < world.node_count; i++) {
        while (!sim_node_drained(&world.nodes[i])) {
            step_or_fail();
            if (world.boot > bound) sim_fail("nothing is left over", "node %u does not drain", i);
        }
    }
    for (unsigned i = 0; i < world.node_count; i++) sim_node_stop(&world.nodes[i]);
}

static void tear_down(void)
{
    sim_store_reset();
    sim_loop_reset();
    hx_store_close(&world.state);
    hx_mac_free(&world.mac);
    hx_arena_free(&world.arena);
}

void sim_live(void)
{
    set_up();
    while (!sim_clients_idle()) step_or_fail();
    calm_down();
    sim_clients_verify();
    stop_everything();
    tear_down();
}
