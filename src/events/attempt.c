/* SPDX-License-Identifier: Apache-2.0 */
/* One attempt of a delivery, in this order, each step after the one before is durable:
 *
 *     read the event ──► commit the lease ──► send ──► commit the result
 *
 * Attempts that begin within a second share what was read of their event, because one with many recipients is sent to
 * all of them at about the same time, and its list of recipients is long.
 *
 * A commit that another node or an operator got in the way of is decided again on what the store has now. A result is
 * committed again and again while the store can't be reached, until the lease has lapsed: then the attempt counts as
 * interrupted, as if this process had died. */
#include "base/check.h"
#include "base/log.h"
#include "base/rand.h"
#include "core/webhook/webhook.h"
#include "events/recipient.h"

#include <stdlib.h>

#define LEASE_EXTRA (10 * HX_SECOND) /* beyond the time-out of the attempt */
#define SETTLE_AGAIN HX_SECOND
#define LINES_BYTES_MAX (16u << 10)
#define TAG_RECEIVED 'R'
#define SHARED_FOR HX_SECOND

typedef struct {
    hx_engine *engine;
    hx_arena arena;
    hx_store_call call;
    hx_item item;
    hx_event event;
    bool is_read;
    bool is_there;  /* it is kept, and can be read */
    bool is_listed; /* in engine->events: attempts may join */
    hx_ms since;
    unsigned users;  /* attempts, and the call */
    hx_link waiting; /* attempts that began before is_read */
} shared_event;

typedef struct {
    hx_recipient *recipient;
    hx_engine *engine;
    shared_event *shared;
    hx_link link; /* among those that wait for it */
    hx_arena arena;
    hx_delivery delivery;
    hx_event event;                        /* as shared */
    hx_slice key;                          /* of the delivery's item */
    uint64_t version;                      /* of that item */
    hx_item stored;                        /* the event's item */
    uint64_t mark;                         /* version of the mark of its stream; 0: there is none */
    hx_item items[3 + HX_OWN_EVENT_ITEMS]; /* of a commit or a get: the delivery's, the event's, the stream's mark, and
                                            * an event about it */
    hx_store_call call;
    hx_sending sending;
    uint64_t lease;
    hx_ms lease_until;
    hx_timer again;
} attempt;

static void unlist(shared_event *shared)
{
    if (shared->is_listed) (void)hx_map_remove(shared->engine->events, shared->item.key);
    shared->is_listed = false;
}

static void leave_event(shared_event *shared)
{
    if (--shared->users > 0) return;
    unlist(shared);
    hx_arena_free(&shared->arena);
    free(shared);
}

static void free_attempt(attempt *a)
{
    hx_engine *engine = a->engine;
    leave_event(a->shared);
    hx_arena_free(&a->arena);
    free(a);
    hx_engine_end_call(engine);
}

static void end_attempt(attempt *a, const hx_attempt_result *result)
{
    hx_recipient_tried(a->recipient, result);
    free_attempt(a);
}

/* The attempt never began: nothing is known of the recipient. */
static void drop_attempt(attempt *a)
{
    hx_recipient *recipient = a->recipient;
    hx_engine *engine = a->engine;
    recipient->attempts--;
    engine->places[recipient->class]--;
    engine->attempts--;
    if (recipient->attempts == 0) hx_list_remove(&recipient->active);
    hx_recipient_list(recipient);
    hx_recipient_nudge(recipient, hx_engine_now(engine) + HX_SECOND);
    free_attempt(a);
}

static void log_attempt(const attempt *a, hx_delivery_state to)
{
    const hx_attempt_result *result = &a->sending.result;
    hx_log_begin(HX_EVENT_delivery_attempt);
    hx_log_str("event_id", a->event.id);
    hx_log_str("event_type", a->event.type);
    if (a->event.source.len > 0) hx_log_str("source", a->event.source);
    hx_log_str("endpoint", a->delivery.endpoint);
    if (a->delivery.tenant.len > 0) hx_log_str("tenant", a->delivery.tenant);
    hx_log_text("from_state", hx_delivery_states[HX_DELIVERY_LEASED].name);
    hx_log_text("to_state", hx_delivery_states[to].name);
    hx_log_int("attempt", (int64_t)a->delivery.attempts);
    if (result->status > 0) hx_log_int("status", result->status);
    if (result->error) hx_log_text("error", result->error);
    hx_log_int("ms", result->ms);
    if (a->event.correlation_id.len > 0) hx_log_str("correlation_id", a->event.correlation_id);
    hx_log_end();
}

static void settle_read_done(hx_store_call *call);

static void settle_again(hx_timer *timer)
{
    attempt *a = HX_OWNER(timer, attempt, again);
    a->items[0] = (hx_item){.key = a->key};
    a->items[1] = (hx_item){.key = a->delivery.event};
    a->items[2] = (hx_item){.key = hx_delivery_mark_key(&a->delivery, &a->arena)};
    hx_engine_begin_call(a->engine, &a->call, &a->arena, settle_read_done);
    hx_store_get(a->engine->needs.store, &a->call, a->items, 3);
}

/* An event is kept as long as one of its deliveries may need it: for its next attempt, or to be re-driven. */
static hx_ms event_needed_until(const attempt *a)
{
    const hx_engine_settings *settings = &a->engine->needs.settings;
    switch (a->delivery.state) {
    case HX_DELIVERY_PENDING: return a->delivery.due + settings->pause_max;
    case HX_DELIVERY_DELIVERED: /* so that a duplicate is recognised */
        return a->recipient->source ? a->delivery.settled_at + a->recipient->source->window : 0;
    case HX_DELIVERY_DEAD:
    case HX_DELIVERY_UNKNOWN: return a->delivery.settled_at + settings->dead_retention;
    default: return 0;
    }
}

static void count_end(attempt *a)
{
    hx_engine_counts *counts = &a->engine->counts;
    switch (a->delivery.state) {
    case HX_DELIVERY_DELIVERED: counts->delivered++; break;
    case HX_DELIVERY_DEAD: counts->dead++; break;
    case HX_DELIVERY_UNKNOWN: counts->unknown++; break;
    default: counts->failed++; break;
    }
}

static void settle_done(hx_store_call *call)
{
    attempt *a = HX_OWNER(call, attempt, call);
    hx_engine *engine = a->engine;
    bool is_over = hx_engine_now(engine) >= a->lease_until;
    if (call->result == HX_STORE_OK) {
        log_attempt(a, a->delivery.state);
        count_end(a);
        bool is_told = a->delivery.state == HX_DELIVERY_DEAD || a->delivery.state == HX_DELIVERY_UNKNOWN;
        if (is_told) hx_fan_out_nudge(engine, hx_engine_now(engine));
        end_attempt(a, &a->sending.result);
    } else if (call->result == HX_STORE_STALE) {
        settle_again(&a->again);
    } else if (is_over) {
        hx_log_begin(HX_EVENT_delivery_not_recorded);
        hx_log_str("event_id", a->event.id);
        hx_log_str("endpoint", a->delivery.endpoint);
        hx_log_end();
        end_attempt(a, &a->sending.result);
    } else {
        hx_timer_start(engine->needs.loop, &a->again, SETTLE_AGAIN, settle_again);
    }
    hx_engine_end_call(engine);
}

static void settle(attempt *a)
{
    hx_engine *engine = a->engine;
    hx_delivery_rules rules = hx_outbox_rules(a->recipient);
    hx_delivery_settled settled = hx_delivery_settle(&a->delivery, &rules, a->lease, &a->sending.result,
                                                     hx_engine_now(engine), hx_rand_u64(), &a->arena);
    if (settled == HX_SETTLED_BEFORE) {
        end_attempt(a, &a->sending.result);
        return;
    }
    if (settled == HX_SETTLED_DISABLES) a->recipient->is_gone = true;
    size_t count = 0;
    a->items[count++] = hx_outbox_item(engine, a->key, a->version, &a->delivery, &a->arena);
    bool expires = a->stored.version > 0 && a->stored.expires_at > 0;
    if (expires && a->stored.expires_at < event_needed_until(a)) {
        a->items[count] = a->stored;
        a->items[count++].expires_at = event_needed_until(a);
    }
    if (a->delivery.state == HX_DELIVERY_DELIVERED && a->mark > 0)
        count += hx_ordered_add(&a->delivery, a->key, a->mark, HX_ITEM_REMOVE, &a->items[count], &a->arena);
    count += hx_own_event_of_delivery(engine, &a->delivery, a->key, &a->items[count], &a->arena);
    hx_engine_begin_call(engine, &a->call, &a->arena, settle_done);
    hx_store_commit(engine->needs.store, &a->call, a->items, count, true);
}

static void settle_read_done(hx_store_call *call)
{
    attempt *a = HX_OWNER(call, attempt, call);
    hx_engine *engine = a->engine;
    if (call->result != HX_STORE_OK)
        hx_timer_start(engine->needs.loop, &a->again, SETTLE_AGAIN, settle_again);
    else if (a->items[0].version == 0 ||
             !hx_delivery_decode(a->items[0].meta, a->items[0].body, &a->arena, &a->delivery))
        end_attempt(a, &a->sending.result); /* somebody has removed it */
    else {
        a->version = a->items[0].version;
        a->stored = a->items[1];
        a->mark = hx_slice_eq(a->items[2].meta, a->key) ? a->items[2].version : 0;
        settle(a);
    }
    hx_engine_end_call(engine);
}

static void send_done(hx_sending *sending)
{
    attempt *a = HX_OWNER(sending, attempt, sending);
    hx_recipient_told(a->recipient, &sending->result);
    settle(a);
}

static void put_line(hx_buf *lines, const char *name, hx_slice value)
{
    hx_buf_puts(lines, name);
    hx_buf_puts(lines, ": ");
    hx_buf_put(lines, value);
    hx_buf_puts(lines, "\r\n");
}

/* Every secret of the moment signs: the receiver may have either while they rotate. */
static bool sign(attempt *a, hx_slice body, hx_buf *lines)
{
    const hx_endpoint *endpoint = &a->recipient->endpoint;
    const hx_webhook_scheme *scheme = hx_webhook_scheme_named(HX_LIT("standard"));
    hx_webhook_secret secrets[HX_WEBHOOK_SECRETS_MAX];
    size_t count = 0;
    bool retiring = endpoint->retire_at > hx_engine_now(a->engine);
    const hx_texts *sets[] = {&endpoint->secrets, retiring ? &endpoint->retiring : NULL};
    for (size_t set = 0; set < 2 && sets[set]; set++)
        for (size_t i = 0; i < sets[set]->count && count < HX_WEBHOOK_SECRETS_MAX; i++)
            if (hx_webhook_secret_read(scheme, sets[set]->items[i], &a->arena, &secrets[count]) == HX_WEBHOOK_OK)
                count++;
    int64_t seconds = hx_clock_wall() / HX_SECOND;
    put_line(lines, "webhook-id", a->event.id);
    put_line(lines, "webhook-timestamp", hx_arena_printf(&a->arena, "%lld", (long long)seconds));
    if (count == 0) return true;
    hx_slice value;
    if (!hx_webhook_sign(secrets, count, a->event.id, seconds, body, &a->arena, &value)) return false;
    put_line(lines, "webhook-signature", value);
    return true;
}

#define KEY_BYTES 16u

/* The application deduplicates by this key: it is the same for an event however often it is delivered. */
static hx_slice received_key(hx_engine *engine, const hx_delivery *delivery, hx_arena *arena)
{
    hx_buf key;
    hx_mac_begin(engine->mac, TAG_RECEIVED);
    hx_mac_part(engine->mac, delivery->event); /* its source and id; of one that was held, its payload too */
    hx_digest digest = hx_mac_end(engine->mac);
    hx_buf_init(&key, arena, 2 * KEY_BYTES);
    hx_buf_put_hex(&key, digest.bytes, KEY_BYTES);
    return hx_buf_slice(&key);
}

hx_slice hx_outbox_received_lines(hx_engine *engine, const hx_event *event, const hx_delivery *delivery,
                                  hx_arena *arena)
{
    char received[HX_RFC3339_BYTES];
    hx_buf lines;
    hx_buf_init(&lines, arena, LINES_BYTES_MAX + HX_ITEM_META_MAX);
    for (size_t i = 0; i < event->headers.count; i++) {
        hx_buf_put(&lines, event->headers.items[i]);
        hx_buf_puts(&lines, "\r\n");
    }
    if (event->content_type.len > 0) put_line(&lines, "Content-Type", event->content_type);
    put_line(&lines, "Idempotency-Key", received_key(engine, delivery, arena));
    put_line(&lines, "Hapax-Attempt", hx_arena_printf(arena, "%llu", (unsigned long long)delivery->attempts));
    put_line(&lines, "Hapax-Event-Id", event->id);
    put_line(&lines, "Hapax-Received-At", hx_rfc3339(event->accepted_at, received));
    if (event->correlation_id.len > 0) put_line(&lines, "X-Correlation-Id", event->correlation_id);
    return hx_buf_slice(&lines);
}

static hx_slice endpoint_lines(attempt *a, hx_slice body)
{
    const hx_endpoint *endpoint = &a->recipient->endpoint;
    hx_buf lines;
    hx_buf_init(&lines, &a->arena, LINES_BYTES_MAX);
    put_line(&lines, "Content-Type", HX_LIT("application/json"));
    bool is_signed = sign(a, body, &lines);
    HX_CHECK(is_signed); /* hx_endpoint_read has seen that each secret can sign */
    put_line(&lines, "Idempotency-Key", a->event.id);
    put_line(&lines, "Hapax-Attempt", hx_arena_printf(&a->arena, "%llu", (unsigned long long)a->delivery.attempts));
    if (a->event.stream.len > 0) {
        put_line(&lines, "Hapax-Stream", a->event.stream);
        put_line(&lines, "Hapax-Position", hx_arena_printf(&a->arena, "%llu", (unsigned long long)a->event.position));
    }
    if (a->event.correlation_id.len > 0) put_line(&lines, "X-Correlation-Id", a->event.correlation_id);
    for (size_t i = 0; i < endpoint->headers.count; i++) {
        hx_buf_put(&lines, endpoint->headers.items[i]);
        hx_buf_puts(&lines, "\r\n");
    }
    return hx_buf_slice(&lines);
}

static hx_slice envelope(attempt *a)
{
    hx_buf body;
    hx_buf_init(&body, &a->arena, a->event.data.len + HX_ITEM_META_MAX);
    hx_event_envelope(&a->event, a->event.data, &body);
    return hx_buf_slice(&body);
}

static void send_attempt(attempt *a)
{
    const hx_recipient *recipient = a->recipient;
    const hx_sender *sender = recipient->source ? &a->engine->needs.applications : &a->engine->needs.endpoints;
    hx_slice body = recipient->source ? a->event.data : envelope(a);
    a->sending = (hx_sending){.arena = &a->arena,
                              .url = hx_arena_copy(&a->arena, recipient->endpoint.url), /* it may change meanwhile */
                              .header_lines = recipient->source ? hx_outbox_received_lines(a->engine, &a->event,
                                                                                           &a->delivery, &a->arena)
                                                                : endpoint_lines(a, body),
                              .body = body,
                              .timeout = recipient->endpoint.timeout,
                              .response_max = a->engine->needs.settings.response_bytes_max,
                              .done = send_done};
    a->engine->counts.attempts++;
    sender->send(sender->context, &a->sending);
}

static void lease_done(hx_store_call *call)
{
    attempt *a = HX_OWNER(call, attempt, call);
    hx_engine *engine = a->engine;
    /* After a commit that took too long the attempt could outlive its lease, and another begin beside it. */
    bool is_late = hx_engine_now(engine) + a->recipient->endpoint.timeout >= a->lease_until;
    hx_recipient_leased(a->recipient);
    if (call->result == HX_STORE_OK && !is_late) {
        a->version = a->mark = call->version;
        send_attempt(a);
    } else {
        drop_attempt(a); /* another node has it, or the store can't be written to: it stays due, or its lease lapses */
    }
    hx_engine_end_call(engine);
}

static void cancel_done(hx_store_call *call)
{
    attempt *a = HX_OWNER(call, attempt, call);
    hx_engine *engine = a->engine;
    hx_recipient_leased(a->recipient);
    if (call->result == HX_STORE_OK) hx_outbox_log(&a->delivery, HX_DELIVERY_PENDING);
    drop_attempt(a);
    hx_engine_end_call(engine);
}

static void lease(attempt *a)
{
    hx_engine *engine = a->engine;
    hx_ms now = hx_engine_now(engine);
    bool is_there = a->shared->is_there;
    a->stored = a->shared->item;
    if (is_there) {
        a->event = a->shared->event;
        a->lease = hx_rand_u64() & ((UINT64_C(1) << 53) - 1);
        a->lease_until = now + a->recipient->endpoint.timeout + LEASE_EXTRA;
        hx_delivery_lease(&a->delivery, now, a->recipient->endpoint.timeout + LEASE_EXTRA, a->lease);
    } else {
        bool may = hx_delivery_cancel(&a->delivery, now, HX_LIT("the event is not kept any more"));
        HX_CHECK(may);
    }
    a->items[0] = hx_outbox_item(engine, a->key, a->version, &a->delivery, &a->arena);
    size_t count = 1;
    if (is_there) count += hx_ordered_add(&a->delivery, a->key, a->mark, HX_ITEM_PUT, &a->items[1], &a->arena);
    hx_engine_begin_call(engine, &a->call, &a->arena, is_there ? lease_done : cancel_done);
    hx_store_commit(engine->needs.store, &a->call, a->items, count, true);
}

static void event_read(hx_store_call *call)
{
    shared_event *shared = HX_OWNER(call, shared_event, call);
    hx_engine *engine = shared->engine;
    bool is_good = call->result == HX_STORE_OK;
    shared->is_read = true;
    shared->is_there = is_good && shared->item.version > 0 &&
                       hx_event_decode(shared->item.meta, &shared->arena, &shared->event);
    shared->event.data = shared->item.body;
    if (!is_good) unlist(shared);
    HX_EACH(link, &shared->waiting)
    {
        attempt *a = HX_OWNER(link, attempt, link);
        if (is_good) {
            lease(a);
        } else {
            hx_recipient_leased(a->recipient);
            drop_attempt(a);
        }
    }
    leave_event(shared);
    hx_engine_end_call(engine);
}

static void read_event(attempt *a)
{
    hx_engine *engine = a->engine;
    hx_ms now = hx_engine_now(engine);
    shared_event *shared = hx_map_get(engine->events, a->delivery.event);
    if (shared && now - shared->since > SHARED_FOR) {
        unlist(shared);
        shared = NULL;
    }
    if (!shared) {
        shared = calloc(1, sizeof *shared);
        if (!shared) hx_fatal(HX_EXIT_BUG, "out of memory");
        shared->engine = engine;
        shared->since = now;
        shared->users = 1; /* the call */
        hx_list_init(&shared->waiting);
        shared->item = (hx_item){.key = hx_arena_copy(&shared->arena, a->delivery.event)};
        (void)hx_map_put(engine->events, shared->item.key, shared);
        shared->is_listed = true;
        hx_engine_begin_call(engine, &shared->call, &shared->arena, event_read);
        hx_store_get(engine->needs.store, &shared->call, &shared->item, 1);
    }
    shared->users++;
    a->shared = shared;
    if (shared->is_read)
        lease(a);
    else
        hx_list_append(&shared->waiting, &a->link);
}

void hx_attempt_begin(hx_recipient *recipient, const hx_item *item)
{
    hx_engine *engine = recipient->engine;
    attempt *a = calloc(1, sizeof *a);
    if (!a) hx_fatal(HX_EXIT_BUG, "out of memory");
    a->recipient = recipient;
    a->engine = engine;
    hx_slice meta = hx_arena_copy(&a->arena, item->meta), body = hx_arena_copy(&a->arena, item->body);
    if (!hx_delivery_decode(meta, body, &a->arena, &a->delivery) || a->delivery.state != HX_DELIVERY_PENDING) {
        hx_log_begin(HX_EVENT_event_item_malformed);
        hx_log_str("key", item->key);
        hx_log_end();
        hx_arena_free(&a->arena);
        free(a);
        return;
    }
    a->key = hx_arena_copy(&a->arena, item->key);
    a->version = item->version;
    if (a->delivery.place > 0) a->mark = recipient->look.marks[item - recipient->look.page.items];
    if (recipient->attempts++ == 0) {
        recipient->oldest = hx_engine_now(engine);
        hx_list_append(&engine->active, &recipient->active);
    }
    recipient->unleased++;
    engine->attempts++;
    engine->places[recipient->class]++;
    engine->calls++; /* the attempt itself */
    read_event(a);
}
