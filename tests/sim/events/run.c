/* SPDX-License-Identifier: Apache-2.0 */
#include "../run.h"

#include "../coverage.h"
#include "events.h"

#include <stdio.h>
#include <string.h>

#define STEPS_MAX 200000u /* a run that has more is going round in circles */
#define CALM_BOUND (10 * HX_DAY)
#define GHOST_NOW (INT64_MAX / 4)

sim_world world;
ev_world ev;
sim_coverage *sim_coverage_here;
const char *const sim_command = "./dev sim events";

static const char *const count_names[EV_COUNTS] = {
    [EV_COUNT_CRASH] = "crashes",
    [EV_COUNT_OUTAGE] = "outages of a day",
    [EV_COUNT_SUSPENDED] = "machine suspended",
    [EV_COUNT_STALLED] = "node stalled",
    [EV_COUNT_CLOCK] = "clock jumps",
    [EV_COUNT_LOST] = "store calls lost",
    [EV_COUNT_DONE] = "done, told unavailable",
    [EV_COUNT_FULL] = "store full",
    [EV_COUNT_ATTEMPT] = "attempts",
    [EV_COUNT_SUCCESS] = "successes",
    [EV_COUNT_LATE_SUCCESS] = "successes, lease lost",
    [EV_COUNT_LOST_LEASE] = "responses, lease lost",
    [EV_COUNT_INTERRUPTED] = "leases lapsed",
    [EV_COUNT_DEAD] = "dead",
    [EV_COUNT_REARMED] = "re-armed",
    [EV_COUNT_CANCELLED] = "cancelled",
    [EV_COUNT_HELD] = "held",
    [EV_COUNT_UNKNOWN] = "unknown",
    [EV_COUNT_FORGOTTEN] = "failed while it was waited for",
    [EV_COUNT_POSITION] = "positions",
    [EV_COUNT_ACK] = "acknowledgements",
    [EV_COUNT_SEEK] = "seeks",
};

/* The table of the gateway's simulator has space for these. */
static uint64_t *counts_in(const sim_coverage *coverage)
{
    return (uint64_t *)&coverage->requests[0][0];
}

void ev_count(unsigned what)
{
    counts_in(sim_coverage_here)[what]++;
}

void sim_coverage_add(sim_coverage *sum, const sim_coverage *more)
{
    for (unsigned i = 0; i < EV_COUNTS; i++) counts_in(sum)[i] += counts_in(more)[i];
}

void sim_coverage_print(const sim_coverage *coverage)
{
    for (unsigned i = 0; i < EV_COUNTS; i++)
        printf("  %-32s %10llu\n", count_names[i], (unsigned long long)counts_in(coverage)[i]);
}

void sim_coverage_json(const sim_coverage *coverage)
{
    for (unsigned i = 0; i < EV_COUNTS; i++)
        printf("%s\"%s\": %llu%s", i == 0 ? "  \"counts\": {" : " ", count_names[i],
               (unsigned long long)counts_in(coverage)[i], i + 1 < EV_COUNTS ? "," : "}\n");
}

hx_ms ev_now(const ev_node *node)
{
    return ev.ghost_now ? ev.ghost_now : sim_now() + node->skew;
}

ev_delivery *ev_delivery_at(hx_slice key)
{
    for (unsigned i = 0; i < ev.delivery_count; i++)
        if (hx_slice_eq(ev.deliveries[i].key, key)) return &ev.deliveries[i];
    if (ev.delivery_count == EV_DELIVERIES_MAX) sim_fail("a delivery is kept", "there are more than were made");
    ev_delivery *d = &ev.deliveries[ev.delivery_count++];
    d->key = hx_arena_copy(&world.arena, key);
    for (unsigned i = 0; i < EV_RECIPIENTS; i++) {
        hx_slice prefix = hx_arena_printf(&world.arena, "d//%.*s/", HX_FMT(ev.recipients[i].id));
        if (!hx_slice_starts(d->key, prefix)) continue;
        d->recipient = &ev.recipients[i];
        d->event_key = hx_slice_from(d->key, prefix.len);
    }
    if (!d->recipient) sim_fail("a delivery has a recipient", "%s", ev_name(d));
    return d;
}

ev_node *ev_some_node(unsigned by)
{
    ev_node *node = &ev.nodes[ev.node_count > 1 ? sim_choose(by, ev.node_count) : 0];
    if (!node->up) node = &ev.nodes[(node->index + 1) % ev.node_count];
    return node->up ? node : NULL;
}

static void start_node(void *subject)
{
    ev_node *node = subject;
    if (node->up) return;
    node->up = true;
    node->life++;
    node->stalled_until = 0;
    node->loop = hx_loop_new();
    ev_store_open(node);
    hx_engine_needs needs = {.loop = node->loop,
                             .store = &node->store,
                             .endpoints = ev_sender(node),
                             .applications = ev_sender(node),
                             .settings = {.attempts_max = 64,
                                          .retention = 7 * HX_DAY,
                                          .dead_retention = 30 * HX_DAY,
                                          .disable_after = 3 * HX_DAY,
                                          .pause_max = EV_PAUSE_MAX,
                                          .payload_bytes_max = 256u << 10,
                                          .response_bytes_max = 64}};
    SIM_TRACE("node %u starts", node->index);
    node->engine = hx_engine_new(&needs);
    for (unsigned i = EV_ENDPOINTS; i < EV_RECIPIENTS; i++)
        hx_engine_add_source(node->engine, &ev.recipients[i].source);
    hx_engine_start(node->engine);
}

static void stopped(void *context)
{
    *(bool *)context = true;
}

/* What the process had in memory is taken apart by the engine itself, for which time has run out and nothing can be
 * read or written any more. */
static void crash_node(ev_node *node)
{
    bool is_over = false;
    SIM_TRACE("node %u crashes", node->index);
    ev_store_crash(node);
    node->up = false;
    ev.ghost_now = GHOST_NOW;
    hx_engine_stop(node->engine, stopped, &is_over);
    unsigned rounds = 0;
    while (!is_over) {
        if (++rounds > 1000) sim_fail("an engine stops", "node %u does not", node->index);
        sim_run_tasks(node->loop);
        ev_receiver_end_ghosts(node);
        ev_store_end_ghosts();
        sim_loop_fire_all(node->loop);
    }
    ev_store_end_ghosts(); /* calls that are not the engine's */
    ev.ghost_now = 0;
    hx_engine_free(&node->engine);
    sim_loop_drop(&node->loop);
}

/* A node's clock follows the wall clock when it starts, never behind the last change in its store. */
static void jump(void)
{
    static const hx_ms jumps[] = {HX_DAY, -HX_DAY, HX_HOUR, -HX_HOUR};
    hx_ms by = jumps[sim_choose(SIM_BY_TROUBLES, 4)];
    world.clock_offset += by;
    if (sim_now() < ev.stamp) world.clock_offset += ev.stamp - sim_now();
    ev_count(EV_COUNT_CLOCK);
    SIM_TRACE("the clock jumps by %lld h", (long long)(by / HX_HOUR));
}

static void trouble_node(bool may_be_long)
{
    ev_node *node = ev_some_node(SIM_BY_TROUBLES);
    bool is_outage = may_be_long && sim_chance(SIM_BY_TROUBLES, 300);
    if (!node) return;
    crash_node(node);
    ev_count(is_outage ? EV_COUNT_OUTAGE : EV_COUNT_CRASH);
    if (ev.node_count == 1 && may_be_long && sim_chance(SIM_BY_TROUBLES, 500)) jump();
    hx_ms down = sim_span(SIM_BY_TROUBLES, 0, 20 * HX_SECOND) + (is_outage ? HX_DAY : 0);
    sim_after(down, start_node, node);
}

struct troubles {
    unsigned kinds, left;
};

static void trouble(void *subject)
{
    struct troubles *troubles = subject;
    if (world.calm || troubles->left == 0) return;
    troubles->left--;
    unsigned kind = 1u << sim_choose(SIM_BY_TROUBLES, 7);
    switch (kind & troubles->kinds) {
    case 1: trouble_node(troubles->kinds & 64); break;
    case 2: ev.store.slow_until = world.boot + sim_span(SIM_BY_TROUBLES, HX_SECOND, HX_MINUTE); break;
    case 4: ev.store.failing_until = world.boot + sim_span(SIM_BY_TROUBLES, 100, 3 * HX_MINUTE); break;
    case 8: ev.store.full_until = world.boot + sim_span(SIM_BY_TROUBLES, 100, HX_MINUTE); break;
    case 16: ev_operator_acts(); break;
    case 32: {
        ev_node *node = ev_some_node(SIM_BY_TROUBLES);
        if (node) node->stalled_until = world.boot + sim_span(SIM_BY_TROUBLES, HX_SECOND, 2 * HX_MINUTE);
        ev_count(EV_COUNT_STALLED);
        break;
    }
    case 64:
        world.boot += sim_span(SIM_BY_TROUBLES, HX_SECOND, HX_DAY);
        ev_count(EV_COUNT_SUSPENDED);
        SIM_TRACE("the machine was suspended");
        break;
    default: break;
    }
    sim_after(sim_span(SIM_BY_TROUBLES, 20, 2 * HX_HOUR), trouble, subject);
}

static void step(void)
{
    if (!sim_step()) sim_fail("every accepted event is attempted", "nothing happens any more");
    if (world.events > STEPS_MAX) sim_fail("every run ends", "%u events have happened", world.events);
    ev_oracle_step();
}

/* Timers that only look after things would otherwise be most of a run: time passes at once until a second before
 * something can happen. */
static void skip_ahead(hx_ms until)
{
    if (ev.asking > 0 || !hx_list_empty(&ev.calls) || !hx_list_empty(&ev.sendings)) return;
    hx_ms next = sim_next_event() < until ? sim_next_event() : until, due = INT64_MAX;
    for (unsigned i = 0; i < ev.node_count; i++)
        if (ev.nodes[i].up) due = ev_oracle_next();
    if (due < next) next = due;
    if (next - HX_SECOND > world.boot) world.boot = next - HX_SECOND;
}

static void endpoint_made(hx_endpoint_change *change)
{
    if (change->result != HX_CHANGE_DONE) sim_fail("the world begins", "an endpoint was not made");
    ev.asking--;
}

/* The first node makes the endpoints before anything goes wrong. */
static void make_recipients(void)
{
    static const char *const names[EV_SOURCES] = {"signed", "guarded", "once", "waits"};
    for (unsigned i = 0; i < EV_RECIPIENTS; i++) {
        ev_recipient *recipient = &ev.recipients[i];
        recipient->url = hx_arena_printf(&world.arena, "http://receiver-%u/", i);
        recipient->mood = sim_choose(SIM_BY_WORLD, 3);
        if (i < EV_ENDPOINTS) continue;
        hx_slice name = hx_slice_of(names[i - EV_ENDPOINTS]);
        recipient->id = hx_arena_printf(&world.arena, "in_%.*s", HX_FMT(name));
        recipient->source = (hx_source){.name = name,
                                        .tenant = HX_EMPTY,
                                        .deliver = recipient->url,
                                        .timeout = EV_TIMEOUT,
                                        .concurrency = 4,
                                        .window = 7 * HX_DAY,
                                        .waits = i == EV_RECIPIENTS - 1,
                                        .replay_guard = i == EV_ENDPOINTS + 1 ? HX_HOUR : 0};
        recipient->source.is_once = i == EV_RECIPIENTS - 2 || (i == EV_RECIPIENTS - 1 && sim_choose(SIM_BY_WORLD, 2));
    }
}

static void make_endpoints(void)
{
    for (unsigned i = 0; i < EV_ENDPOINTS; i++) {
        ev_recipient *recipient = &ev.recipients[i];
        hx_endpoint_change change = {.arena = &world.arena, .act = HX_ENDPOINT_CREATE, .done = endpoint_made};
        change.endpoint = hx_endpoint_new;
        change.endpoint.url = recipient->url;
        change.endpoint.timeout = EV_TIMEOUT;
        recipient->is_dead_on_4xx = sim_choose(SIM_BY_WORLD, 2) == 1;
        if (recipient->is_dead_on_4xx) change.endpoint.on_client_error = HX_LIT("dead");
        ev.asking++;
        hx_engine_change_endpoint(ev.nodes[0].engine, &change);
        while (ev.asking > 0) step();
        recipient->id = hx_arena_copy(&world.arena, change.endpoint.id);
    }
}

static void set_up(void)
{
    static struct troubles troubles;
    hx_list_init(&ev.calls);
    hx_list_init(&ev.sendings);
    hx_list_init(&ev.promised);
    world.clock_offset = SIM_HOUR;
    world.shared = sim_choose(SIM_BY_WORLD, 2) == 1;
    ev.node_count = world.shared ? 2 : 1;
    world.store_loop = hx_loop_new();
    world.state = hx_store_memory_open(&(hx_store_options){.now = sim_now});
    make_recipients();
    start_node(&ev.nodes[0]);
    make_endpoints();
    for (unsigned i = 1; i < ev.node_count; i++) {
        ev.nodes[i].index = i;
        ev.nodes[i].skew = sim_span(SIM_BY_WORLD, 0, 2 * HX_SECOND);
        start_node(&ev.nodes[i]);
    }
    ev.store.lost = sim_rate(60);
    ev.store.done = sim_rate(60);
    ev.store.stall = sim_rate(40);
    ev.store.full = sim_rate(50);
    ev.store.node_stall = sim_rate(50);
    ev_actors_begin();
    ev_consumers_begin();
    troubles = (struct troubles){.kinds = sim_choose(SIM_BY_WORLD, 128), .left = sim_choose(SIM_BY_TROUBLES, 60)};
    sim_after(sim_span(SIM_BY_TROUBLES, 20, HX_HOUR), trouble, &troubles);
}

/* Nothing goes wrong any more, and every receiver answers with success. */
static void calm_down(void)
{
    SIM_TRACE("from here on nothing goes wrong");
    sim_choices_calm();
    world.calm = true;
    ev.calm_since = world.boot;
    for (unsigned i = 0; i < ev.node_count; i++) {
        ev.nodes[i].stalled_until = 0;
        start_node(&ev.nodes[i]);
    }
    hx_ms bound = world.boot + CALM_BOUND;
    while (!ev_actors_done() || !ev_oracle_is_done() || !ev_consumers_done()) {
        if (ev.asking == 0) ev_enable_all();
        step();
        skip_ahead(bound);
        if (world.boot > bound) sim_fail("every accepted event is attempted", "some are under way after ten days");
    }
}

static void tear_down(void)
{
    for (unsigned i = 0; i < ev.node_count; i++) crash_node(&ev.nodes[i]);
    sim_loop_reset();
    hx_store_close(&world.state);
    hx_arena_free(&world.arena);
}

void sim_live(void)
{
    memset(&ev, 0, sizeof ev);
    set_up();
    hx_ms trouble_until = world.boot + sim_span(SIM_BY_WORLD, HX_HOUR, 4 * HX_DAY);
    while (world.boot < trouble_until) {
        step();
        skip_ahead(trouble_until);
    }
    calm_down();
    tear_down();
}
