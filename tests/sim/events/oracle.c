/* SPDX-License-Identifier: Apache-2.0 */
/* The promises. Each commit of a delivery is compared with what may follow its last state; nothing here asks
 * core/event/delivery.c, whose rules are on trial. */
#include "events.h"

#include "core/event/event.h"

#include <stdio.h>
#include <string.h>

#define OVERDUE (20 * HX_MINUTE) /* in calm times: what is due by then and wasn't attempted is forgotten */

/* A success that a node was told, until the delivery is settled or the node is excused. */
typedef struct {
    const ev_node *node;
    unsigned life;
    ev_delivery *delivery;
    hx_link link;
} promise;

static const hx_ms places[] = {0,       5 * HX_SECOND, 30 * HX_SECOND, 2 * HX_MINUTE, 10 * HX_MINUTE, 30 * HX_MINUTE,
                               HX_HOUR, 6 * HX_HOUR,   12 * HX_HOUR,   24 * HX_HOUR};
#define STEPS (sizeof places / sizeof places[0])

const char *ev_name(const ev_delivery *delivery)
{
    static char name[256];
    (void)snprintf(name, sizeof name, "%.*s", HX_FMT(delivery->key));
    return name;
}

static bool has_ended(hx_delivery_state state)
{
    return state != HX_DELIVERY_PENDING && state != HX_DELIVERY_LEASED;
}

static void begin_round(ev_delivery *d)
{
    d->round_attempts = 0;
    d->first_at = d->last_at = d->not_before = 0;
}

static bool may_have_happened(const ev_try *try)
{
    return try->is_sent && (!try->is_told || (try->status == 0 && !try->nothing_sent));
}

static void leased(const ev_node *node, ev_delivery *d, const hx_delivery *new, hx_ms now)
{
    uint64_t step = d->round_attempts;
    if (new->attempts != d->attempts + 1 || new->round != d->round || new->round_attempts != step + 1)
        sim_fail("every attempt counts, once", "%s", ev_name(d));
    if (step >= STEPS) sim_fail("a round has ten attempts", "%s begins another", ev_name(d));
    if (now < d->due || now < d->not_before)
        sim_fail("an attempt is never early", "%s begins %lld ms before it is due", ev_name(d),
                 (long long)((d->due > d->not_before ? d->due : d->not_before) - now));
    if (step > 0 && now < d->first_at + places[step])
        sim_fail("an attempt is never early", "%s, step %llu, %lld ms after the first", ev_name(d),
                 (unsigned long long)step, (long long)(now - d->first_at));
    /* Where steps were merged into Retry-After, the places are later ones, with wider jitter. */
    if (step > 0 && new->step <= step && now - d->last_at < places[step] - places[step - 1] - places[step - 1] / 10)
        sim_fail("steps are not burnt", "%s: step %llu is only %lld ms after the one before", ev_name(d),
                 (unsigned long long)step, (long long)(now - d->last_at));
    if (new->due <= now + EV_TIMEOUT) sim_fail("a lease is longer than its attempt", "%s", ev_name(d));
    for (uint64_t i = new->attempts - step; d->recipient->source.is_once &&i < new->attempts; i++)
        if (may_have_happened(&d->tries[i]))
            sim_fail("what may have happened is not repeated by itself", "%s, attempt %llu", ev_name(d),
                     (unsigned long long)i);
    if (new->attempts >= EV_TRIES_MAX) sim_fail("every run ends", "%s has too many attempts", ev_name(d));
    if (step == 0) d->first_at = now;
    d->last_at = now;
    d->tries[new->attempts] = (ev_try){.node = node->index, .life = node->life};
}

/* A lease ended without a success: under its own failure, or because it lapsed. */
static bool is_own_failure(const ev_node *node, const ev_delivery *d, const hx_delivery *new, hx_ms now)
{
    const ev_try *try = &d->tries[d->attempts];
    const hx_attempt *kept = &new->kept[new->kept_count - 1];
    bool holder_died = ev.nodes[try->node].life != try->life || !ev.nodes[try->node].up;
    if (new->kept_count == 0) sim_fail("every attempt counts, once", "%s has none", ev_name(d));
    if (hx_slice_eq(kept->error, HX_LIT("interrupted"))) {
        ev_count(EV_COUNT_INTERRUPTED);
        if (now < d->due && (world.shared || !holder_died))
            sim_fail("a lease holds until it lapses", "%s was taken %lld ms early", ev_name(d),
                     (long long)(d->due - now));
        return false;
    }
    if (!try->is_told || try->node != node->index || try->life != node->life || try->status != kept->status)
        sim_fail("a failure under a lost lease changes nothing", "%s, attempt %llu", ev_name(d),
                 (unsigned long long)d->attempts);
    return true;
}

static void died(const ev_node *node, ev_delivery *d, const hx_delivery *new, hx_ms now)
{
    const ev_recipient *recipient = d->recipient;
    ev_count(EV_COUNT_DEAD);
    if (d->state == HX_DELIVERY_PENDING) {
        if (!recipient->is_disabled || now - recipient->disabled_at <= EV_PAUSE_MAX)
            sim_fail("nothing is dead before ten attempts", "%s was given up on", ev_name(d));
        return;
    }
    unsigned status = is_own_failure(node, d, new, now) ? d->tries[d->attempts].status : 0;
    bool is_refused = status == 410 || (recipient->is_dead_on_4xx && status == 404);
    if (!is_refused && d->round_attempts < STEPS)
        sim_fail("nothing is dead before ten attempts", "%s after %llu", ev_name(d),
                 (unsigned long long)d->round_attempts);
}

static void delivered(const ev_delivery *d)
{
    for (uint64_t i = 1; i <= d->attempts; i++)
        if (d->tries[i].is_told && d->tries[i].status == 200) return;
    sim_fail("delivered is what was answered with success", "%s was not", ev_name(d));
}

static void rearmed(ev_delivery *d, const hx_delivery *new)
{
    bool by_duplicate = d->recipient->source.name.len > 0 && d->state == HX_DELIVERY_DEAD;
    if (new->round != d->round + 1 || new->round_attempts != 0 || new->attempts != d->attempts)
        sim_fail("a re-armed delivery gets a new round", "%s", ev_name(d));
    if (d->rearm_asks == 0 && !by_duplicate)
        sim_fail("what has ended stays ended", "%s was %s and is pending again", ev_name(d),
                 hx_delivery_states[d->state].name);
    d->rearms++;
    ev_count(EV_COUNT_REARMED);
    begin_round(d);
}

static void pause(ev_recipient *recipient, hx_ms span)
{
    if (span > 0 && recipient->paused_until < world.boot + span) recipient->paused_until = world.boot + span;
}

static void change(const ev_node *node, ev_delivery *d, const hx_delivery *new, hx_ms now)
{
    bool was_leased = d->state == HX_DELIVERY_LEASED;
    bool is_late = d->state == HX_DELIVERY_UNKNOWN && new->state == HX_DELIVERY_DELIVERED;
    if (has_ended(d->state) && new->state != HX_DELIVERY_PENDING && !is_late)
        sim_fail("what has ended stays ended", "%s: %s, then %s", ev_name(d), hx_delivery_states[d->state].name,
                 hx_delivery_states[new->state].name);
    switch (new->state) {
    case HX_DELIVERY_LEASED:
        if (was_leased) sim_fail("one lease at a time", "%s", ev_name(d));
        leased(node, d, new, now);
        break;
    case HX_DELIVERY_PENDING:
        if (has_ended(d->state))
            rearmed(d, new);
        else if (!was_leased)
            sim_fail("only an attempt changes what is pending", "%s", ev_name(d));
        else if (is_own_failure(node, d, new, now)) {
            d->not_before = d->tries[d->attempts].told_until;
            pause(d->recipient, d->tries[d->attempts].pause); /* it ends, for the node, with its commit */
        }
        break;
    case HX_DELIVERY_DELIVERED: delivered(d); break;
    case HX_DELIVERY_DEAD: died(node, d, new, now); break;
    case HX_DELIVERY_CANCELLED:
        ev_count(EV_COUNT_CANCELLED);
        if (was_leased) (void)is_own_failure(node, d, new, now);
        if (!d->recipient->is_deleted && (was_leased || d->cancel_asks == 0))
            sim_fail("every accepted event is attempted", "%s was cancelled: %.*s", ev_name(d), HX_FMT(new->reason));
        break;
    case HX_DELIVERY_UNKNOWN:
        ev_count(EV_COUNT_UNKNOWN);
        if (!was_leased || !d->recipient->source.is_once ||
            (is_own_failure(node, d, new, now) && !may_have_happened(&d->tries[d->attempts])))
            sim_fail("unknown is what may have happened", "%s", ev_name(d));
        break;
    default: sim_fail("a delivery takes its way", "%s is %s", ev_name(d), hx_delivery_states[new->state].name);
    }
}

/* After a failure of a handler that was waited for nothing is kept: the sender's next attempt is a new one. */
static void forget_delivery(ev_delivery *d)
{
    const ev_try *try = &d->tries[d->attempts];
    bool is_failure = !try->is_sent || (try->is_told && try->status != 200);
    if (!d->recipient->source.waits || d->state != HX_DELIVERY_LEASED || d->round_attempts != 1 || !is_failure ||
        (d->recipient->source.is_once && may_have_happened(try)))
        sim_fail("a delivery is kept", "%s was removed", ev_name(d));
    ev_count(EV_COUNT_FORGOTTEN);
    d->is_known = false;
    d->state = HX_DELIVERY_PENDING;
    d->attempts = 0;
    d->due = 0;
}

static void commit_delivery(const ev_node *node, const hx_item *item, hx_ms now)
{
    hx_delivery new;
    ev_delivery *d = ev_delivery_at(item->key);
    if (item->act == HX_ITEM_REMOVE) {
        forget_delivery(d);
        return;
    }
    if (item->act != HX_ITEM_PUT || !hx_delivery_decode(item->meta, item->body, &world.arena, &new))
        sim_fail("a delivery is kept", "%s was removed or is malformed", ev_name(d));
    SIM_TRACE("node %u: %s is %s, attempt %llu, round %llu, due in %lld ms", node->index, ev_name(d),
              hx_delivery_states[new.state].name, (unsigned long long)new.attempts, (unsigned long long)new.round,
              (long long)(new.due - now));
    if (item->version == 0) {
        bool is_held = new.state == HX_DELIVERY_HELD && d->recipient->source.name.len > 0;
        if (d->is_known && (d->expires_at == 0 || d->expires_at > now + HX_SECOND))
            sim_fail("a delivery is kept", "%s was made twice", ev_name(d));
        bool is_gone = new.state == HX_DELIVERY_CANCELLED && d->recipient->is_deleted;
        bool is_waited_for = d->recipient->source.waits && new.state == HX_DELIVERY_LEASED;
        if (new.attempts != is_waited_for ||
            (new.state != HX_DELIVERY_PENDING && !is_held && !is_gone && !is_waited_for))
            sim_fail("a delivery begins pending", "%s", ev_name(d));
        if (is_held) ev_count(EV_COUNT_HELD);
        for (unsigned i = 0; i < ev.event_count; i++)
            if (hx_slice_eq(ev.events[i].key, d->event_key) && now < ev.events[i].deliver_at)
                sim_fail("an attempt is never early", "%s is due before deliver_at", ev_name(d));
        d->is_orphan = d->recipient->is_deleted && new.state == HX_DELIVERY_PENDING;
        if (d->is_orphan && world.shared)
            sim_fail("recipients are fixed by what all nodes have acknowledged", "%s was deleted before", ev_name(d));
        begin_round(d);
        d->attempts = 0;
        if (is_waited_for) {
            d->round = new.round;
            leased(node, d, &new, now);
        }
    } else {
        change(node, d, &new, now);
    }
    d->is_known = true;
    d->state = new.state;
    d->due = new.due;
    d->expires_at = item->expires_at;
    d->attempts = new.attempts;
    d->round = new.round;
    d->round_attempts = new.round_attempts;
}

static void commit_endpoint(const hx_item *item)
{
    hx_endpoint endpoint;
    for (unsigned i = 0; i < EV_ENDPOINTS; i++) {
        ev_recipient *recipient = &ev.recipients[i];
        if (!hx_slice_eq(hx_slice_from(item->key, 3), recipient->id)) continue;
        if (item->act == HX_ITEM_REMOVE) {
            recipient->is_deleted = true;
        } else if (hx_endpoint_decode(item->meta, &world.arena, &endpoint)) {
            if (recipient->is_disabled && !endpoint.disabled && recipient->paused_until < world.boot)
                recipient->paused_until = world.boot;
            recipient->is_disabled = endpoint.disabled;
            recipient->disabled_at = endpoint.disabled_at;
            recipient->is_deleted = endpoint.deleted_at > 0;
        }
    }
}

static void check_recipients(const ev_event *e)
{
    for (unsigned k = 0; k < EV_ENDPOINTS; k++) {
        bool is_named = ev.recipients[k].may_be_deleted;
        for (size_t n = 0; n < e->recipient_count; n++)
            is_named = is_named || hx_slice_eq(e->recipients[n], ev.recipients[k].id);
        if (!is_named)
            sim_fail("an event goes to each endpoint that wants it", "%.*s does not name %.*s", HX_FMT(e->key),
                     HX_FMT(ev.recipients[k].id));
    }
}

static void commit_event(const hx_item *item)
{
    hx_event event;
    for (unsigned i = 0; i < ev.event_count; i++) {
        ev_event *e = &ev.events[i];
        if (!hx_slice_eq(e->key, item->key)) continue;
        if (item->act == HX_ITEM_REMOVE) e->is_durable = false; /* with its delivery, which is looked at */
        if (item->act == HX_ITEM_REMOVE || e->is_durable) continue;
        e->is_durable = true;
        if (!hx_event_decode(item->meta, &world.arena, &event) || !hx_slice_eq(e->data, item->body))
            sim_fail("an event never changes", "%.*s", HX_FMT(e->key));
        for (size_t k = 0; k < event.recipients.count; k++)
            e->recipients[e->recipient_count++] = hx_arena_copy(&world.arena, event.recipients.items[k]);
        e->deliver_at = event.deliver_at;
        e->position = event.position;
        if (!e->is_received) check_recipients(e);
    }
}

void ev_oracle_commit(const ev_node *node, hx_ms decided_at, const hx_item *items, size_t count)
{
    if (decided_at > ev.stamp) ev.stamp = decided_at;
    for (size_t i = 0; i < count; i++) { /* an event before its deliveries: "e/" and "i/" are not their order */
        if (hx_slice_starts(items[i].key, HX_LIT("e/")) || hx_slice_starts(items[i].key, HX_LIT("i/")))
            commit_event(&items[i]);
        if (hx_slice_starts(items[i].key, HX_LIT("n/"))) commit_endpoint(&items[i]);
        if (hx_slice_starts(items[i].key, HX_LIT("p/"))) ev_oracle_entry(&items[i], items, count);
        if (hx_slice_starts(items[i].key, HX_LIT("c/"))) ev_oracle_consumer(&items[i]);
    }
    for (size_t i = 0; i < count; i++)
        if (hx_slice_starts(items[i].key, HX_LIT("s/"))) ev_oracle_stream(&items[i]);
    for (size_t i = 0; i < count; i++)
        if (hx_slice_starts(items[i].key, HX_LIT("d/"))) commit_delivery(node, &items[i], decided_at);
}

static uint64_t header_hash(const hx_sending *sending)
{
    const char *name = "Idempotency-Key: ";
    size_t at = 0;
    while (!hx_slice_starts(hx_slice_from(sending->header_lines, at), hx_slice_of(name))) at++;
    return sim_hash(hx_slice_first(hx_slice_from(sending->header_lines, at), strlen(name) + 8));
}

ev_try *ev_oracle_sends(const ev_node *node, ev_delivery *d, uint64_t attempt, const hx_sending *sending)
{
    ev_try *try = &d->tries[attempt < EV_TRIES_MAX ? attempt : 0];
    SIM_TRACE("node %u sends %s, attempt %llu", node->index, ev_name(d), (unsigned long long)attempt);
    ev_count(EV_COUNT_ATTEMPT);
    if (attempt == 0 || attempt > d->attempts || try->node != node->index || try->life != node->life || try->is_sent)
        sim_fail("an attempt begins only when its lease is durable", "%s, attempt %llu", ev_name(d),
                 (unsigned long long)attempt);
    if (d->state == HX_DELIVERY_PENDING && d->attempts == attempt && !world.shared)
        sim_fail("an attempt begins only when its lease is durable", "%s is not leased", ev_name(d));
    uint64_t body = sim_hash(sending->body), key = header_hash(sending);
    if (d->body_hash != 0 && (d->body_hash != body || d->key_hash != key))
        sim_fail("ids stay the same", "%s was sent with another body or key", ev_name(d));
    d->body_hash = body;
    d->key_hash = key;
    try->is_sent = true;
    return try;
}

void ev_oracle_told(const ev_node *node, ev_delivery *d, ev_try *try, const hx_attempt_result *result)
{
    bool is_own = d->state == HX_DELIVERY_LEASED && try == &d->tries[d->attempts];
    SIM_TRACE("node %u is told %u of %s%s", node->index, result->status, ev_name(d), is_own ? "" : ", its lease lost");
    try->is_told = true;
    try->status = result->status;
    try->nothing_sent = result->nothing_sent;
    if (!is_own) ev_count(EV_COUNT_LOST_LEASE);
    if (result->retry_after > 0) {
        try->pause = result->retry_after < HX_DAY ? result->retry_after : HX_DAY;
        try->told_until = ev_now(node) + try->pause;
        pause(d->recipient, try->pause);
    }
    if (result->status != 200) return;
    ev_count(is_own ? EV_COUNT_SUCCESS : EV_COUNT_LATE_SUCCESS);
    promise *p = hx_arena_zalloc(&world.arena, sizeof *p);
    *p = (promise){.node = node, .life = node->life, .delivery = d};
    hx_list_append(&ev.promised, &p->link);
}

void ev_oracle_unavailable(const ev_node *node, const hx_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) HX_EACH(link, &ev.promised)
        {
            const promise *p = HX_OWNER(link, promise, link);
            if (p->node == node && hx_slice_eq(p->delivery->key, items[i].key)) hx_list_remove(link);
        }
}

static hx_ms due_in_boot(const ev_delivery *d)
{
    hx_ms due = d->due - world.clock_offset;
    return due > d->recipient->paused_until || d->state == HX_DELIVERY_LEASED ? due : d->recipient->paused_until;
}

static bool is_waiting(const ev_delivery *d)
{
    return !has_ended(d->state) && !d->is_orphan && (d->state == HX_DELIVERY_LEASED || !d->recipient->is_disabled);
}

void ev_oracle_step(void)
{
    HX_EACH(link, &ev.promised)
    {
        const promise *p = HX_OWNER(link, promise, link);
        const ev_delivery *d = p->delivery;
        if (!p->node->up || p->node->life != p->life || has_ended(d->state))
            hx_list_remove(link);
        else if (!ev_store_is_busy(p->node, d->key))
            sim_fail("a success settles its delivery, whatever its lease", "%s is %s", ev_name(d),
                     hx_delivery_states[d->state].name);
    }
    for (unsigned i = 0; world.calm && i < ev.delivery_count; i++) {
        const ev_delivery *d = &ev.deliveries[i];
        hx_ms due = due_in_boot(d) > ev.calm_since ? due_in_boot(d) : ev.calm_since;
        if (d->is_known && is_waiting(d) && world.boot - due > OVERDUE)
            sim_fail("no due delivery is forgotten", "%s has been %s for %lld s beyond its time", ev_name(d),
                     hx_delivery_states[d->state].name, (long long)((world.boot - due) / HX_SECOND));
    }
}

hx_ms ev_oracle_next(void)
{
    hx_ms next = INT64_MAX;
    for (unsigned i = 0; i < ev.delivery_count; i++) {
        const ev_delivery *d = &ev.deliveries[i];
        hx_ms due = due_in_boot(d);
        bool is_late = due < world.boot - OVERDUE && !world.calm; /* a node that could attempt it may be down */
        if (d->is_known && is_waiting(d) && !is_late && due < next) next = due;
    }
    for (unsigned i = 0; i < ev.event_count; i++) {
        const ev_event *e = &ev.events[i];
        hx_ms at = e->deliver_at - world.clock_offset;
        bool is_late = at < world.boot - OVERDUE && !world.calm;
        if (!e->is_durable || e->recipient_count == 0 || at >= next || is_late) continue;
        if (!ev_delivery_at(hx_delivery_key(HX_EMPTY, e->recipients[0], e->key, &world.arena))->is_known) next = at;
    }
    return next;
}

bool ev_oracle_is_done(void)
{
    for (unsigned i = 0; i < ev.delivery_count; i++)
        if (ev.deliveries[i].is_known && !has_ended(ev.deliveries[i].state) && !ev.deliveries[i].is_orphan)
            return false;
    for (unsigned i = 0; i < ev.event_count; i++) {
        const ev_event *e = &ev.events[i];
        for (size_t k = 0; k < e->recipient_count; k++) {
            hx_slice key = hx_delivery_key(HX_EMPTY, e->recipients[k], e->key, &world.arena);
            if (ev_delivery_at(key)->is_known) continue;
            if (e->deliver_at - world.clock_offset > world.boot - OVERDUE || world.boot - ev.calm_since < OVERDUE)
                return false;
            sim_fail("every accepted event is attempted", "%.*s has no delivery to %.*s", HX_FMT(e->key),
                     HX_FMT(e->recipients[k]));
        }
    }
    return true;
}
