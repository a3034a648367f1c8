/* SPDX-License-Identifier: Apache-2.0 */
/* Publishers and senders of webhooks, who repeat what was not acknowledged, and an operator. */
#include "events.h"

#define AGAIN HX_SECOND

typedef struct {
    union {
        hx_publish publish;
        hx_receipt receipt;
        hx_endpoint_change endpoint;
        hx_delivery_change delivery;
    };
    hx_event events[2];
    hx_arena arena;
    ev_event *of;
    ev_delivery *target;
    unsigned rearms;
    bool is_other; /* the webhook's id with another payload */
} ask;

static void tell(void *subject);

static unsigned by_actor(const ev_event *e)
{
    return SIM_BY_CLIENT + e->number % SIM_CLIENTS_MAX;
}

/* The handler itself refuses it, perhaps for days. */
static bool is_waited_for(const ev_event *e)
{
    return e->is_received && ev.recipients[EV_ENDPOINTS + e->number % EV_SOURCES].source.waits;
}

static ask *new_ask(void)
{
    ev.asking++;
    return hx_arena_zalloc(&world.arena, sizeof(ask));
}

static void end_ask(ask *a)
{
    ev.asking--;
    hx_arena_free(&a->arena);
}

/* Whoever was not told that it is accepted tells it again; the others now and then. */
static void told(ask *a, bool is_accepted)
{
    ev_event *e = a->of;
    e->is_asking = false;
    SIM_TRACE("%.*s is %s", HX_FMT(e->id), is_accepted ? "accepted" : "not accepted");
    if (is_accepted && !e->is_durable && !a->is_other)
        sim_fail("accepted is durable", "%.*s is not in the store", HX_FMT(e->key));
    if (is_accepted && !a->is_other) e->is_accepted = true;
    if (is_accepted && e->second) e->second->is_accepted = true;
    if (!e->is_accepted)
        sim_after(sim_span(by_actor(e), AGAIN, is_waited_for(e) ? 3 * HX_HOUR : HX_MINUTE), tell, e);
    else if (e->repeats > 0 && !world.calm)
        sim_after(sim_span(by_actor(e), AGAIN, 3 * HX_HOUR), tell, e);
    if (e->repeats > 0) e->repeats--;
}

static void published(hx_publish *publish)
{
    ask *a = HX_OWNER(publish, ask, publish);
    if (publish->result == HX_PUBLISH_CONFLICT || publish->result == HX_PUBLISH_TOO_MANY)
        sim_fail("the same event again is answered as before", "%.*s: %.*s", HX_FMT(a->of->id),
                 HX_FMT(publish->detail));
    bool is_accepted = publish->result == HX_PUBLISHED || publish->result == HX_PUBLISHED_BEFORE;
    for (const ev_event *e = a->of; e && is_accepted; e = e->second)
        if (a->events[e != a->of].position != e->position)
            sim_fail("a position is told as it is stored", "%.*s has %llu, told %llu", HX_FMT(e->id),
                     (unsigned long long)e->position, (unsigned long long)a->events[e != a->of].position);
    told(a, is_accepted);
    end_ask(a);
}

static void received(hx_receipt *receipt)
{
    ask *a = HX_OWNER(receipt, ask, receipt);
    bool is_taken = receipt->result == HX_INBOX_RECEIVED || receipt->result == HX_INBOX_DUPLICATE ||
                    (receipt->result == HX_INBOX_ANSWERED && receipt->response.status == 200);
    told(a, is_taken || receipt->result == HX_INBOX_HELD);
    end_ask(a);
}

static void publish_event(ev_node *node, ev_event *first, ask *a)
{
    size_t count = 0;
    for (ev_event *e = first; e; e = e->second) {
        hx_event *event = &a->events[count++];
        *event = (hx_event){.id = e->id,
                            .tenant = HX_EMPTY,
                            .type = HX_LIT("t"),
                            .source = HX_EMPTY,
                            .correlation_id = HX_EMPTY,
                            .stream = e->is_in_stream ? HX_LIT(EV_STREAM) : HX_EMPTY,
                            .expected_version = HX_EMPTY,
                            .content_type = HX_EMPTY,
                            .payload_hash = HX_EMPTY,
                            .data = e->data};
        if (e->deliver_in > 0) event->deliver_at = SIM_HOUR + e->deliver_in;
    }
    a->publish = (hx_publish){.arena = &a->arena,
                              .events = a->events,
                              .count = count,
                              .principal = HX_LIT("p"),
                              .key = first->number % 2 ? first->id : HX_EMPTY,
                              .done = published};
    hx_engine_publish(node->engine, &a->publish);
}

static void receive_event(ev_node *node, ev_event *e, ask *a)
{
    a->is_other = e->is_accepted && sim_chance(by_actor(e), 300);
    a->receipt = (hx_receipt){.arena = &a->arena,
                              .source = &ev.recipients[EV_ENDPOINTS + e->number % EV_SOURCES].source,
                              .event = {.id = e->id,
                                        .type = HX_EMPTY,
                                        .correlation_id = HX_EMPTY,
                                        .content_type = HX_LIT("text/plain"),
                                        .data = a->is_other ? hx_arena_printf(&a->arena, "other %u", e->number)
                                                            : e->data},
                              .done = received};
    hx_engine_receive(node->engine, &a->receipt);
}

static void tell(void *subject)
{
    ev_event *e = subject;
    ev_node *node = ev_some_node(by_actor(e));
    if (e->is_asking || (e->is_accepted && world.calm)) return;
    if (!node) {
        sim_after(600 * AGAIN, tell, e);
        return;
    }
    ask *a = new_ask();
    a->of = e;
    e->is_asking = true;
    SIM_TRACE("node %u is told of %.*s", node->index, HX_FMT(e->id));
    if (e->is_received)
        receive_event(node, e, a);
    else
        publish_event(node, e, a);
}

void ev_actors_begin(void)
{
    ev.event_count = 2 + sim_choose(SIM_BY_WORLD, EV_EVENTS_MAX - 1);
    for (unsigned i = 0; i < ev.event_count; i++) {
        ev_event *e = &ev.events[i];
        e->number = i;
        e->is_received = !e->is_second && sim_chance(by_actor(e), 400);
        e->id = hx_arena_printf(&world.arena, "event-%u", i);
        e->data = hx_arena_printf(&world.arena, "{\"n\":%u}", i);
        e->key = e->is_received
                     ? hx_arena_printf(&world.arena, "i/%.*s/%.*s",
                                       HX_FMT(ev.recipients[EV_ENDPOINTS + i % EV_SOURCES].source.name), HX_FMT(e->id))
                     : hx_arena_printf(&world.arena, "e//%.*s", HX_FMT(e->id));
        e->repeats = sim_choose(by_actor(e), 3);
        if (!e->is_received && sim_chance(by_actor(e), 200))
            e->deliver_in = sim_span(by_actor(e), HX_SECOND, 2 * HX_DAY);
        e->is_in_stream = !e->is_received && sim_chance(by_actor(e), 600);
        if (e->is_second) continue;
        if (!e->is_received && i + 1 < ev.event_count && sim_chance(by_actor(e), 200)) {
            e->second = &ev.events[i + 1];
            e->second->is_second = true;
        }
        sim_after(sim_span(by_actor(e), 1, 12 * HX_HOUR), tell, e);
    }
}

bool ev_actors_done(void)
{
    for (unsigned i = 0; i < ev.event_count; i++)
        if (!ev.events[i].is_accepted) return false;
    return ev.asking == 0;
}

static void endpoint_changed(hx_endpoint_change *change)
{
    end_ask(HX_OWNER(change, ask, endpoint));
}

static void change_endpoint(ev_node *node, ev_recipient *recipient, hx_endpoint_act act)
{
    if (act == HX_ENDPOINT_DELETE) recipient->may_be_deleted = true;
    ask *a = new_ask();
    a->endpoint = (hx_endpoint_change){.arena = &a->arena,
                                       .act = act,
                                       .tenant = HX_EMPTY,
                                       .id = recipient->id,
                                       .reason = HX_LIT("operator"),
                                       .done = endpoint_changed};
    SIM_TRACE("operator: act %u on %.*s", (unsigned)act, HX_FMT(recipient->id));
    hx_engine_change_endpoint(node->engine, &a->endpoint);
}

static void delivery_changed(hx_delivery_change *change)
{
    ask *a = HX_OWNER(change, ask, delivery);
    ev_delivery *d = a->target;
    bool is_rearm = change->act == HX_DELIVERY_ACT_REARM;
    if (change->result == HX_CHANGE_DONE && is_rearm && d->rearms == a->rearms)
        sim_fail("a re-arm that was acknowledged is durable", "%s", ev_name(d));
    if (is_rearm)
        d->rearm_asks--;
    else
        d->cancel_asks--;
    end_ask(a);
}

static void change_delivery(ev_node *node, ev_delivery *d)
{
    bool is_pending = d->state == HX_DELIVERY_PENDING;
    if (!d->is_known || d->state == HX_DELIVERY_HELD) return;
    ask *a = new_ask();
    a->target = d;
    a->rearms = d->rearms;
    a->delivery = (hx_delivery_change){.arena = &a->arena,
                                       .act = is_pending ? HX_DELIVERY_ACT_CANCEL : HX_DELIVERY_ACT_REARM,
                                       .key = d->key,
                                       .reason = HX_LIT("operator"),
                                       .done = delivery_changed};
    if (is_pending)
        d->cancel_asks++;
    else
        d->rearm_asks++;
    SIM_TRACE("operator: %s %s", is_pending ? "cancels" : "re-arms", ev_name(d));
    hx_engine_change_delivery(node->engine, &a->delivery);
}

void ev_operator_acts(void)
{
    static const hx_endpoint_act acts[] = {HX_ENDPOINT_DISABLE, HX_ENDPOINT_ENABLE, HX_ENDPOINT_ENABLE,
                                           HX_ENDPOINT_DELETE};
    ev_node *node = ev_some_node(SIM_BY_TROUBLES);
    unsigned choice = sim_choose(SIM_BY_TROUBLES, 16);
    if (!node) return;
    if (choice >= 13) {
        ev_consumer_seeks();
        return;
    }
    if (choice < sizeof acts / sizeof acts[0])
        change_endpoint(node, &ev.recipients[sim_choose(SIM_BY_TROUBLES, EV_ENDPOINTS)], acts[choice]);
    else if (ev.delivery_count > 0)
        change_delivery(node, &ev.deliveries[sim_choose(SIM_BY_TROUBLES, ev.delivery_count)]);
}

void ev_enable_all(void)
{
    for (unsigned i = 0; i < ev.node_count * EV_ENDPOINTS; i++) {
        ev_node *node = &ev.nodes[i / EV_ENDPOINTS];
        ev_recipient *recipient = &ev.recipients[i % EV_ENDPOINTS];
        const hx_endpoint *endpoint = node->up ? hx_engine_endpoint(node->engine, HX_EMPTY, recipient->id) : NULL;
        if (endpoint && (endpoint->disabled || recipient->is_disabled))
            change_endpoint(node, recipient, HX_ENDPOINT_ENABLE);
    }
}
