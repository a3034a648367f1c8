/* SPDX-License-Identifier: Apache-2.0 */
/* store.h over a network that can't be trusted, or on a disk of one's own. Each node has a handle of its own; behind
 * all of them is one store of the reference (src/store/memory.c), which never forgets in a run. A call travels
 * there, takes effect, and its result travels back; either way may be slow or lost. Calls overtake each other, but for
 * those of one loop on one operation (G8).
 *
 * A call of a node that has crashed may still take effect: later on a shared store, at the moment of the crash on one
 * of its own; its result goes nowhere. */
#include "world.h"

#include "base/check.h"
#include "base/rand.h"

#include <string.h>

typedef struct {
    hx_store_call inner; /* what the reference sees */
    hx_store_call *outer;
    sim_node *node;
    unsigned start;
    uint64_t sequence;
    hx_link link;
    hx_arena arena; /* of what `inner` writes and finds */
    hx_record record;
    hx_ms effect_at;
    sim_fate fate;
    bool is_full;
    bool sent; /* it has taken effect, or never will */
    bool watching;
    bool cancelled;
} sim_call;

static unsigned by_store(const sim_call *c)
{
    return c->inner.verb == HX_STORE_SWEEP ? SIM_BY_JOBS : SIM_BY_STORE + sim_op_index(sim_op_of(&c->inner.op));
}

static bool is_orphan(const sim_call *c)
{
    return !c->node->up || c->node->starts != c->start;
}

static void let_go(sim_call *c)
{
    hx_list_remove(&c->link);
    hx_arena_free(&c->arena);
    c->outer = NULL;
}

static void copy_slice(hx_arena *arena, hx_slice *slice)
{
    *slice = slice->len > 0 ? hx_arena_copy(arena, *slice) : HX_EMPTY;
}

/* The bytes of a record in an arena of their own: whoever wrote it may be gone before it is read. */
static hx_record copy_record(const hx_record *record, hx_arena *arena)
{
    hx_record copy = *record;
    copy_slice(arena, &copy.route);
    copy_slice(arena, &copy.correlation);
    copy_slice(arena, &copy.reason);
    copy_slice(arena, &copy.result);
    copy_slice(arena, &copy.answer.headers);
    copy_slice(arena, &copy.answer.body);
    return copy;
}

static void deliver(void *subject)
{
    sim_call *c = subject;
    if (!c->outer) return;
    hx_store_call *call = c->outer;
    if (is_orphan(c)) {
        let_go(c);
        return;
    }
    call->result = c->inner.result;
    if (c->is_full) call->result = HX_STORE_FULL;
    if (c->fate == SIM_FATE_LOST || c->fate == SIM_FATE_DONE) call->result = HX_STORE_UNAVAILABLE;
    if (c->cancelled && !c->sent) call->result = HX_STORE_CANCELLED;
    call->count = c->inner.count;
    if (call->verb == HX_STORE_CLAIM && call->result == HX_STORE_OK) call->record->epoch = c->record.epoch;
    if (call->result != HX_STORE_UNAVAILABLE && c->sent && call->arena)
        call->found = copy_record(&c->inner.found, call->arena);
    let_go(c);
    call->done(call);
}

static hx_ms travel(const sim_call *c)
{
    if (world.calm) return 0;
    hx_ms most = world.boot < world.store.slow_until ? 3 * HX_SECOND : 4;
    return sim_span(by_store(c), 0, most);
}

static void inner_done(hx_store_call *inner)
{
    sim_call *c = HX_OWNER(inner, sim_call, inner);
    c->watching = false;
    if (inner->verb != HX_STORE_WATCH) sim_model_effect(inner, c->fate);
    /* A stall may outlast the lease: whoever made the call must not rely on what it once knew. */
    hx_ms back = c->fate == SIM_FATE_STALL ? sim_span(by_store(c), HX_SECOND, SIM_STALL_MAX) : travel(c);
    sim_after(back, deliver, c);
}

static const char *verb_name(hx_store_verb verb)
{
    static const char *const names[] = {
        [HX_STORE_CLAIM] = "claim", [HX_STORE_SETTLE] = "settle", [HX_STORE_RENEW] = "renew",
        [HX_STORE_WATCH] = "watch", [HX_STORE_FORGET] = "forget", [HX_STORE_SWEEP] = "sweep",
        [HX_STORE_READ] = "read"};
    return (size_t)verb < sizeof names / sizeof names[0] && names[verb] ? names[verb] : "call";
}

/* A claim under rules that another node has replaced since. */
static bool is_retired(const sim_call *c)
{
    hx_slice in_force = world.is_renamed ? HX_LIT("older") : HX_LIT("renamed");
    return c->inner.verb == HX_STORE_CLAIM && sim_op_of(&c->inner.op)->route == SIM_ROUTE_RENAMED &&
           !hx_slice_eq(c->record.route, in_force);
}

static void take_effect(sim_call *c)
{
    if (is_retired(c)) {
        SIM_TRACE("store: those rules are retired");
        c->sent = true;
        c->inner.result = HX_STORE_RETIRED;
        c->inner.found = (hx_record){0};
        sim_after(travel(c), deliver, c);
        return;
    }
    c->sent = true;
    c->inner.loop = world.store_loop;
    c->inner.arena = &c->arena;
    c->inner.done = inner_done;
    c->watching = c->inner.verb == HX_STORE_WATCH;
    c->inner.found = (hx_record){0};
    c->inner.count = 0;
    if (c->inner.verb == HX_STORE_SWEEP) sim_model_check_all();
    world.state->ops->submit(world.state, &c->inner);
    sim_run_tasks(world.store_loop); /* whatever was decided is told, and the oracle compares it: inner_done */
}

static void arrive(void *subject)
{
    sim_call *c = subject;
    if (!c->outer || c->sent) return;
    if (c->is_full || c->fate == SIM_FATE_LOST || c->fate == SIM_FATE_ORPHAN_LOST || c->cancelled) {
        if (c->fate != SIM_FATE_OK) sim_model_lost(&c->inner, c->fate);
        sim_after(travel(c), deliver, c);
        return;
    }
    if (c->inner.verb != HX_STORE_SWEEP)
        SIM_TRACE("store: node %u's %s of %s takes effect%s", c->node->index, verb_name(c->inner.verb),
                  sim_op_name(sim_op_of(&c->inner.op)), is_orphan(c) ? ", though the node is gone" : "");
    take_effect(c);
}

static void choose_fate(sim_call *c)
{
    c->fate = SIM_FATE_OK;
    if (world.calm || c->inner.verb == HX_STORE_WATCH) {
        /* A watch is answered whenever it is: only a store out of reach ends it without a result. */
        if (!world.calm && world.boot < world.store.failing_until && sim_chance(by_store(c), 300))
            c->fate = SIM_FATE_LOST;
        return;
    }
    bool failing = world.boot < world.store.failing_until;
    if (c->inner.verb == HX_STORE_CLAIM &&
        (world.boot < world.store.full_until || sim_chance(by_store(c), world.rates.store_full)))
        c->is_full = true;
    else if (sim_chance(by_store(c), failing ? 400 : world.rates.store_lost))
        c->fate = SIM_FATE_LOST;
    else if (sim_chance(by_store(c), failing ? 400 : world.rates.store_done))
        c->fate = SIM_FATE_DONE;
    else if (sim_chance(by_store(c), world.rates.store_stall))
        c->fate = SIM_FATE_STALL;
    static const sim_fault faults[SIM_FATE_COUNT] = {[SIM_FATE_LOST] = SIM_FAULT_STORE_LOST,
                                                     [SIM_FATE_DONE] = SIM_FAULT_STORE_DONE,
                                                     [SIM_FATE_STALL] = SIM_FAULT_STORE_STALL};
    if (c->fate == SIM_FATE_OK && !c->is_full) return;
    world.store.has_failed = true;
    sim_fault fault = c->is_full ? SIM_FAULT_STORE_FULL : faults[c->fate];
    SIM_TRACE("store: node %u's %s will meet: %s", c->node->index, verb_name(c->inner.verb), sim_fault_name(fault));
    sim_cover_call(c->outer, fault);
}

static void sim_submit(hx_store *store, hx_store_call *call)
{
    sim_store *own = (sim_store *)store;
    sim_call *c = hx_arena_zalloc(&world.arena, sizeof *c);
    c->inner = *call;
    c->outer = call;
    c->node = own->node;
    c->start = own->node->starts;
    c->sequence = world.store.sequence++;
    if (call->record) {
        c->record = copy_record(call->record, &c->arena);
        c->inner.record = &c->record;
    }
    if (call->verb == HX_STORE_SETTLE) sim_oracle_settle(sim_op_of(&call->op), call->record, sim_request_around(call));
    choose_fate(c);
    c->effect_at = world.boot + travel(c);
    if (c->fate == SIM_FATE_STALL && sim_chance(by_store(c), 500)) { /* on its way there, rather than on its way back */
        c->effect_at += sim_span(by_store(c), HX_SECOND, SIM_STALL_MAX);
        c->fate = SIM_FATE_OK;
    }
    HX_EACH(link, &world.store.calls)
    {
        const sim_call *other = HX_OWNER(link, sim_call, link);
        bool same = call->verb != HX_STORE_SWEEP && other->outer && other->outer->loop == call->loop &&
                    memcmp(&other->inner.op, &call->op, sizeof call->op) == 0 && !is_orphan(other);
        if (same && !other->sent && other->effect_at > c->effect_at) c->effect_at = other->effect_at;
    }
    hx_list_append(&world.store.calls, &c->link);
    sim_after(c->effect_at - world.boot, arrive, c);
}

static void sim_cancel(hx_store *store, hx_store_call *call)
{
    (void)store;
    HX_EACH(link, &world.store.calls)
    {
        sim_call *c = HX_OWNER(link, sim_call, link);
        if (c->outer != call || is_orphan(c)) continue;
        c->cancelled = true;
        if (!c->watching) return; /* its result is on the way, or it never left */
        world.state->ops->cancel(world.state, &c->inner);
        sim_run_tasks(world.store_loop);
        return;
    }
}

static hx_peek sim_peek(hx_store *store, const hx_op *op, hx_arena *arena, size_t whole_max, hx_record *found)
{
    (void)whole_max;
    (void)store;
    if (world.shared && sim_chance(SIM_BY_STORE + sim_op_index(sim_op_of(op)), 700)) return HX_PEEK_ASK;
    return world.state->ops->peek(world.state, op, arena, 0, found);
}

static void sim_attach(hx_store *store, hx_loop *loop)
{
    (void)store;
    (void)loop;
}

static void sim_count(hx_store *store, hx_store_counts *out)
{
    (void)store;
    world.state->ops->count(world.state, out);
}

static void sim_close(hx_store *store)
{
    (void)store; /* part of its node */
}

void sim_store_open(sim_node *node)
{
    static hx_store_ops ops;
    ops = *world.state->ops; /* what this file doesn't play is the reference's own */
    ops.attach = sim_attach;
    ops.submit = sim_submit;
    ops.cancel = sim_cancel;
    ops.peek = sim_peek;
    ops.count = sim_count;
    ops.close = sim_close;
    node->store = (sim_store){.store = {.ops = &ops, .facts = world.state->facts}, .node = node};
    node->store.store.facts.owner = hx_rand_u64();
    node->store.store.facts.shared = world.shared;
}

/* What was on its way from a node that is no more. On a disk of its own, what was written first is kept first. */
void sim_store_crash(sim_node *node)
{
    bool lost = false;
    HX_EACH(link, &world.store.calls)
    {
        sim_call *c = HX_OWNER(link, sim_call, link);
        if (c->node != node || c->start != node->starts) continue;
        if (c->watching) {
            world.state->ops->cancel(world.state, &c->inner);
            sim_run_tasks(world.store_loop);
        }
        if (c->sent || c->inner.verb == HX_STORE_WATCH || c->is_full || c->fate == SIM_FATE_LOST) continue;
        lost = (lost && !world.shared) || sim_chance(by_store(c), 500);
        c->fate = lost ? SIM_FATE_ORPHAN_LOST : SIM_FATE_ORPHAN_DONE;
        SIM_TRACE("store: a %s of the dead node %u %s", verb_name(c->inner.verb), node->index,
                  lost ? "is lost" : "is still on its way");
        if (!lost && !world.shared) take_effect(c);
    }
}

typedef struct {
    hx_store_call call;
    hx_record record;
    hx_arena arena;
} orphan;

static void orphan_done(hx_store_call *call)
{
    sim_model_effect(call, SIM_FATE_OK);
}

void sim_store_orphans(void)
{
    for (size_t i = 0; i < SIM_OPS_MAX; i++) {
        if (!world.ops[i].used) continue;
        orphan o = {.arena = {0}};
        hx_peek peek = world.state->ops->peek(world.state, &world.ops[i].id, &o.arena, 0, &o.record);
        if (peek == HX_PEEK_FOUND && o.record.state == HX_PROCESSING) {
            o.record.state = HX_UNKNOWN;
            o.record.from_state = HX_PROCESSING;
            o.record.changed_at = sim_now();
            o.record.lease_until = 0;
            o.record.reason = HX_LIT("restart");
            o.call = (hx_store_call){.loop = world.store_loop, .arena = &o.arena, .done = orphan_done};
            hx_store_settle(world.state, &o.call, &o.record);
            sim_run_tasks(world.store_loop);
        }
        hx_arena_free(&o.arena);
    }
}

void sim_store_check_watches(const sim_op *op)
{
    HX_EACH(link, &world.store.calls)
    {
        const sim_call *c = HX_OWNER(link, sim_call, link);
        if (!c->watching) continue;
        const sim_op *watched = sim_op_of(&c->inner.op);
        if (op && watched != op) continue;
        if (watched->state != HX_PROCESSING || watched->epoch != c->inner.epoch)
            sim_fail("no waiter is forgotten", "%s is %s by now, and a watch of its epoch %llu has not ended",
                     sim_op_name(watched), hx_state_name(watched->state), (unsigned long long)c->inner.epoch);
    }
}

bool sim_store_idle(void)
{
    HX_EACH(link, &world.store.calls)
    {
        const sim_call *c = HX_OWNER(link, sim_call, link);
        if (c->inner.verb != HX_STORE_SWEEP && !is_orphan(c)) return false;
    }
    return true;
}

void sim_store_reset(void)
{
    HX_EACH(link, &world.store.calls) let_go(HX_OWNER(link, sim_call, link));
}
