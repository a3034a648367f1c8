/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints and applications: hx_sender, played. What they answer is their mood's choice, and when. */
#include "events.h"

#include "base/text.h"
#include "core/retry/retry_after.h"

typedef struct {
    hx_sending *sending;
    ev_node *node;
    ev_delivery *delivery;
    ev_try *try;
    hx_link link;
    hx_ms began_at;
    hx_attempt_result result;
} ev_sending;

static hx_slice header(hx_slice lines, const char *name)
{
    hx_text_header found;
    while (hx_text_next_header(&lines, &found))
        if (hx_slice_eq(found.name, hx_slice_of(name))) return found.value;
    return HX_EMPTY;
}

static void answer(void *subject)
{
    ev_sending *s = subject;
    hx_sending *sending = s->sending;
    if (!sending) return;
    if (s->node->stalled_until > world.boot && !ev.ghost_now) {
        sim_after(s->node->stalled_until - world.boot, answer, s);
        return;
    }
    s->sending = NULL;
    hx_list_remove(&s->link);
    s->result.ms = world.boot - s->began_at;
    sending->result = s->result;
    if (!ev.ghost_now) ev_oracle_told(s->node, s->delivery, s->try, &s->result);
    sending->done(sending);
}

/* When the response is there, from now. */
static hx_ms choose_answer(const ev_delivery *delivery, hx_attempt_result *result)
{
    unsigned by = SIM_BY_APP + (unsigned)(delivery - ev.deliveries) % SIM_OPS_MAX;
    *result = (hx_attempt_result){.status = 200, .retry_after = HX_RETRY_AFTER_NONE, .response = HX_LIT("said")};
    if (world.calm || delivery->recipient->mood == EV_GOOD) return world.calm ? 1 : sim_span(by, 1, HX_SECOND);
    unsigned choice = sim_choose(by, 100);
    bool is_failing = delivery->recipient->mood == EV_FAILING;
    if (choice < 40 && !is_failing) return sim_span(by, 1, EV_TIMEOUT - 1);
    if (choice < 70) {
        result->status = 500;
    } else if (choice < 78) {
        result->status = choice % 2 ? 429 : 503;
        result->retry_after = sim_span(by, HX_SECOND, 30 * HX_HOUR);
    } else if (choice < 84) {
        result->status = 404;
    } else if (choice < 86 && !is_failing) {
        result->status = 410;
    } else {
        *result = (hx_attempt_result){.error = choice < 93 ? "timeout" : "refused",
                                      .nothing_sent = choice >= 93,
                                      .retry_after = HX_RETRY_AFTER_NONE,
                                      .response = HX_EMPTY};
        return choice < 93 ? EV_TIMEOUT : sim_span(by, 1, HX_SECOND);
    }
    return sim_span(by, 1, EV_TIMEOUT - 1);
}

static void send_it(void *context, hx_sending *sending)
{
    ev_node *node = context;
    ev_sending *s = hx_arena_zalloc(&world.arena, sizeof *s);
    s->sending = sending;
    s->node = node;
    s->began_at = world.boot;
    hx_list_append(&ev.sendings, &s->link);
    if (ev.ghost_now) return;
    hx_slice id = header(sending->header_lines, "webhook-id");
    bool is_received = id.len == 0;
    if (is_received) id = header(sending->header_lines, "Hapax-Event-Id");
    uint64_t attempt = 0;
    if (!hx_slice_to_u64(header(sending->header_lines, "Hapax-Attempt"), &attempt))
        sim_fail("ids stay the same", "an attempt without its number");
    for (unsigned i = 0; i < ev.delivery_count && !s->delivery; i++) {
        ev_delivery *delivery = &ev.deliveries[i];
        hx_slice prefix = is_received
                              ? hx_arena_printf(&world.arena, "i/%.*s/", HX_FMT(delivery->recipient->source.name))
                              : HX_LIT("e//");
        if (hx_slice_eq(delivery->recipient->url, sending->url) && hx_slice_starts(delivery->event_key, prefix) &&
            hx_slice_eq(hx_slice_from(delivery->event_key, prefix.len), id))
            s->delivery = delivery;
    }
    if (!s->delivery)
        sim_fail("an attempt begins only when its lease is durable", "nothing is known of %.*s", HX_FMT(id));
    HX_EACH(link, &ev.sendings)
    {
        const ev_sending *other = HX_OWNER(link, ev_sending, link);
        if (other != s && other->node == node && other->delivery == s->delivery)
            sim_fail("attempts of a delivery never overlap on one node", "%s", ev_name(s->delivery));
    }
    unsigned stall = ev.store.node_stall *
                     (s->delivery->recipient->source.waits ? 6 : 1); /* there are fewer of these */
    if (!world.calm && sim_chance(SIM_BY_TROUBLES, stall)) {
        node->stalled_until = world.boot + sim_span(SIM_BY_TROUBLES, HX_SECOND, 3 * HX_MINUTE);
        ev_count(EV_COUNT_STALLED);
    }
    s->try = ev_oracle_sends(node, s->delivery, attempt, sending);
    sim_after(choose_answer(s->delivery, &s->result), answer, s);
}

hx_sender ev_sender(ev_node *node)
{
    return (hx_sender){.send = send_it, .context = node};
}

void ev_receiver_end_ghosts(const ev_node *node)
{
    for (hx_link *link = ev.sendings.next; link != &ev.sendings;) {
        ev_sending *s = HX_OWNER(link, ev_sending, link);
        link = link->next;
        if (s->node != node) continue;
        s->result = (hx_attempt_result){.error = "crashed", .retry_after = HX_RETRY_AFTER_NONE, .response = HX_EMPTY};
        answer(s);
        link = ev.sendings.next;
    }
}
