/* SPDX-License-Identifier: Apache-2.0 */
/* Items (store/items.h) over a network that can't be trusted, as ../store.c does it for operations. Commits of one node
 * take effect in their order (E8). */
#include "events.h"

#include "base/check.h"

typedef struct {
    hx_store_call inner; /* what the reference sees */
    hx_store_call *outer;
    ev_node *node;
    hx_link link;
    hx_ms effect_at, decided_at;
    enum { FATE_OK, FATE_LOST, FATE_DONE, FATE_STALL, FATE_FULL } fate;
    bool is_sent;
} ev_call;

static unsigned by_store(const ev_call *c)
{
    return SIM_BY_STORE + c->node->index;
}

static void deliver(void *subject)
{
    ev_call *c = subject;
    hx_store_call *call = c->outer;
    if (!call) return;
    if (c->node->stalled_until > world.boot && !ev.ghost_now) {
        sim_after(c->node->stalled_until - world.boot, deliver, c);
        return;
    }
    call->result = c->inner.result;
    call->version = c->inner.version;
    call->stale = c->inner.stale;
    if (c->fate == FATE_FULL) call->result = HX_STORE_FULL;
    if (c->fate == FATE_LOST || c->fate == FATE_DONE) {
        call->result = HX_STORE_UNAVAILABLE;
        if (call->verb != HX_STORE_SCAN) ev_oracle_unavailable(c->node, call->items, call->item_count);
    }
    hx_list_remove(&c->link);
    c->outer = NULL;
    call->done(call);
}

static hx_ms travel(const ev_call *c)
{
    if (world.calm) return 0;
    hx_ms way = sim_span(by_store(c), 0, world.boot < ev.store.slow_until ? 3 * HX_SECOND : 4);
    return c->node->stalled_until > world.boot ? c->node->stalled_until - world.boot + way : way;
}

static void inner_done(hx_store_call *inner)
{
    const ev_call *c = HX_OWNER(inner, ev_call, inner);
    if (inner->verb == HX_STORE_COMMIT && inner->result == HX_STORE_OK)
        ev_oracle_commit(c->node, c->decided_at, inner->items, inner->item_count);
}

static void take_effect(ev_call *c)
{
    c->is_sent = true;
    c->inner.loop = world.store_loop;
    c->inner.done = inner_done;
    world.state->ops->submit(world.state, &c->inner);
    sim_run_tasks(world.store_loop);
}

static void arrive(void *subject)
{
    ev_call *c = subject;
    if (!c->outer || c->is_sent) return;
    bool is_read = c->inner.verb != HX_STORE_COMMIT;
    if (c->fate != FATE_LOST && c->fate != FATE_FULL && !(is_read && c->fate == FATE_DONE)) take_effect(c);
    sim_after(c->fate == FATE_STALL ? sim_span(by_store(c), HX_SECOND, SIM_STALL_MAX) : travel(c), deliver, c);
}

static void choose_fate(ev_call *c)
{
    bool is_failing = world.boot < ev.store.failing_until;
    if (world.calm) return;
    if (c->inner.verb == HX_STORE_COMMIT && !c->inner.urgent &&
        (world.boot < ev.store.full_until || sim_chance(by_store(c), ev.store.full)))
        c->fate = FATE_FULL;
    else if (sim_chance(by_store(c), is_failing ? 400 : ev.store.lost))
        c->fate = FATE_LOST;
    else if (sim_chance(by_store(c), is_failing ? 400 : ev.store.done))
        c->fate = FATE_DONE;
    else if (sim_chance(by_store(c), ev.store.stall))
        c->fate = FATE_STALL;
    if (c->fate == FATE_LOST) ev_count(EV_COUNT_LOST);
    if (c->fate == FATE_DONE) ev_count(EV_COUNT_DONE);
    if (c->fate == FATE_FULL) ev_count(EV_COUNT_FULL);
}

static void ev_submit(hx_store *store, hx_store_call *call)
{
    ev_call *c = hx_arena_zalloc(&world.arena, sizeof *c);
    c->inner = *call;
    c->outer = call;
    c->node = HX_OWNER(store, ev_node, store);
    c->decided_at = ev_now(c->node);
    hx_list_append(&ev.calls, &c->link);
    if (ev.ghost_now) return; /* ev_store_end_ghosts ends it */
    choose_fate(c);
    c->effect_at = world.boot + travel(c);
    HX_EACH(link, &ev.calls)
    {
        const ev_call *other = HX_OWNER(link, ev_call, link);
        if (other->node == c->node && !other->is_sent && other->effect_at > c->effect_at &&
            other->inner.verb == HX_STORE_COMMIT && call->verb == HX_STORE_COMMIT)
            c->effect_at = other->effect_at;
    }
    sim_after(c->effect_at - world.boot, arrive, c);
}

static void ev_attach(hx_store *store, hx_loop *loop)
{
    (void)store;
    (void)loop;
}

/* There are items only. */
static void ev_no_operations(hx_store *store, hx_store_counts *out)
{
    (void)store;
    *out = (hx_store_counts){0};
}

static hx_ms now_of_first(void)
{
    return ev_now(&ev.nodes[0]);
}

static hx_ms now_of_second(void)
{
    return ev_now(&ev.nodes[1]);
}

void ev_store_open(ev_node *node)
{
    static hx_store_ops ops;
    ops = *world.state->ops;
    ops.attach = ev_attach;
    ops.submit = ev_submit;
    ops.count = ev_no_operations;
    node->store = (hx_store){.ops = &ops, .facts = world.state->facts};
    node->store.facts.shared = world.shared;
    node->store.facts.now = node->index == 0 ? now_of_first : now_of_second;
}

void ev_store_crash(const ev_node *node)
{
    bool is_lost = false;
    HX_EACH(link, &ev.calls)
    {
        ev_call *c = HX_OWNER(link, ev_call, link);
        if (c->node != node || c->is_sent || c->fate == FATE_LOST || c->fate == FATE_FULL) continue;
        if (c->inner.verb != HX_STORE_COMMIT) continue;
        is_lost = is_lost || sim_chance(by_store(c), 500);
        if (!is_lost) take_effect(c);
    }
}

void ev_store_end_ghosts(void)
{
    for (hx_link *link = ev.calls.next, *next; link != &ev.calls; link = next) {
        ev_call *c = HX_OWNER(link, ev_call, link);
        next = link->next;
        if (c->node->up) continue;
        hx_store_call *call = c->outer;
        call->result = HX_STORE_UNAVAILABLE;
        if (call->verb == HX_STORE_GET) { /* "somebody has removed it": whoever asks gives up */
            call->result = HX_STORE_OK;
            for (size_t i = 0; i < call->item_count; i++)
                call->items[i] =
                    (hx_item){.key = call->items[i].key, .queue = HX_EMPTY, .meta = HX_EMPTY, .body = HX_EMPTY};
        }
        hx_list_remove(&c->link);
        c->outer = NULL;
        call->done(call);
        next = ev.calls.next;
    }
}

bool ev_store_is_busy(const ev_node *node, hx_slice key)
{
    HX_EACH(link, &ev.calls)
    {
        const ev_call *c = HX_OWNER(link, ev_call, link);
        if (c->node != node || c->inner.verb == HX_STORE_SCAN) continue;
        for (size_t i = 0; i < c->outer->item_count; i++)
            if (hx_slice_eq(c->outer->items[i].key, key)) return true;
    }
    return false;
}
