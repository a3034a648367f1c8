/* SPDX-License-Identifier: Apache-2.0 */
/* A gateway node: the daemon's own workers and cleaning job, put together as daemon/daemon.c does it. A crash takes
 * everything of it away at once, as if the power had gone; a restart begins under a new owner id. */
#include "world.h"

#include "base/check.h"

void sim_node_start(sim_node *node)
{
    HX_CHECK(!node->up);
    if (!world.shared) {
        /* The clock of an earlier start is forgotten; the store's last stamp is not (contract §2). */
        hx_ms last_stamp = sim_now();
        world.clock_offset = world.wall_offset;
        hx_clock_raise(last_stamp);
    }
    node->up = true;
    node->is_renamed = world.is_renamed;
    node->starts++;
    SIM_TRACE("node %u starts, for the %u. time", node->index, node->starts);
    sim_store_open(node);
    if (!world.shared) sim_store_orphans();
    static hx_config_upstream upstream = {.name = {"", 0}, .url = {"http://app", 10}};
    node->config = (hx_config){.limits = {.memory = 64u << 20},
                               .error_docs = HX_LIT("urn:hapax:error:"),
                               .access_log = HX_ACCESS_LOG_OFF,
                               .upstreams = &upstream,
                               .upstream_count = 1};
    node->rules = (hx_rules){.config = &node->config,
                             .policies = world.is_renamed ? &world.policies : &world.policies_before,
                             .generation = 1,
                             .users = world.worker_count};
    node->gateway = (hx_gateway){.store = &node->store.store,
                                 .worker_count = world.worker_count,
                                 .spool_bytes = 256u * 1024u,
                                 .spool_directory = "/tmp"};
    for (unsigned i = 0; i < world.worker_count; i++) {
        static const hx_server_limits server_limits;
        static const hx_upstream_limits upstream_limits;
        hx_error_text error;
        hx_worker *worker = &node->workers[i];
        node->loops[i] = hx_loop_new();
        node->drained[i] = false;
        hx_worker_init(worker, &node->gateway, node->loops[i], &node->rules);
        hx_store_attach(&node->store.store, node->loops[i]);
        worker->server = hx_server_new(node->loops[i], &server_limits, &hx_gateway_handler, worker);
        worker->upstreams[0] = hx_upstream_new(node->loops[i], HX_LIT("http://app"), &upstream_limits, error);
    }
    hx_sweep_start(&node->sweep, node->loops[0], &node->store.store,
                   sim_span(SIM_BY_WORLD, 2 * HX_SECOND, 20 * HX_SECOND));
}

static void stop_machine(sim_node *node)
{
    for (unsigned i = 0; i < world.worker_count; i++) {
        hx_worker_clear(&node->workers[i]);
        sim_loop_drop(&node->loops[i]);
    }
}

void sim_node_crash(sim_node *node)
{
    HX_CHECK(node->up);
    SIM_TRACE("node %u crashes, with %u requests", node->index, sim_node_requests(node));
    world.crashes++;
    sim_cover_requests(node, SIM_FAULT_NODE_CRASH);
    sim_store_crash(node);
    node->up = node->draining = false;
    sim_upstream_crash(node);
    sim_server_crash(node);
    stop_machine(node);
}

static void drained(hx_worker *worker)
{
    for (unsigned n = 0; n < world.node_count; n++)
        for (unsigned i = 0; i < world.worker_count; i++)
            if (&world.nodes[n].workers[i] == worker) {
                if (world.nodes[n].drained[i] || worker->request_count > 0)
                    sim_fail("a node drains once, when nothing is left", "worker %u of node %u did otherwise", i, n);
                world.nodes[n].drained[i] = true;
            }
}

static void sweep_stopped(void *context)
{
    sim_node *node = context;
    node->sweep_stopped = true;
}

void sim_node_drain(sim_node *node)
{
    node->draining = true;
    node->sweep_stopped = false;
    for (unsigned i = 0; i < world.worker_count; i++) hx_worker_drain(&node->workers[i], drained);
    hx_sweep_stop(&node->sweep, sweep_stopped, node);
}

bool sim_node_drained(const sim_node *node)
{
    bool all = node->sweep_stopped;
    for (unsigned i = 0; i < world.worker_count; i++) all = all && node->drained[i];
    return all;
}

void sim_node_stop(sim_node *node)
{
    node->up = node->draining = false;
    stop_machine(node);
}

unsigned sim_node_requests(const sim_node *node)
{
    unsigned count = 0;
    for (unsigned i = 0; i < world.worker_count; i++) count += node->workers[i].request_count;
    return count;
}
