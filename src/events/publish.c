/* SPDX-License-Identifier: Apache-2.0 */
/* Publishing: events, their positions in their streams, the deliveries to their recipients, and the key of the request
 * are one commit. A repeated request finds its key, or its events, in the store and gets the answer of the first.
 *
 *     take turns ──► commit ──► done          the stream's version is known and expected
 *          │          │ STALE
 *          └──────────┴───► read back ──► commit again, or the answer of the first, or a conflict */
#include "base/check.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/rand.h"
#include "core/json/json.h"
#include "core/json/json_writer.h"
#include "events/fan_out.h"
#include "events/streams/gate.h"

#include <string.h>

#define KEY_LIFETIME HX_DAY
#define TRIES_MAX 5u        /* while other nodes change endpoints */
#define DIRECT_MAX 2000u    /* deliveries that are written with their events; of more, the rest follows */
#define RECIPIENT_BYTES 32u /* of one that is named in an event */
#define STREAM_TRIES 64u    /* against other processes */
#define TAG_KEY 'k'
#define TAG_ID 'i'
#define TAG_DATA 'd'
#define TAG_REQUEST 'r'

static hx_slice hex_of(const hx_digest *digest, size_t bytes, hx_arena *arena)
{
    hx_buf out;
    hx_buf_init(&out, arena, 2 * bytes);
    hx_buf_put_hex(&out, digest->bytes, bytes);
    return hx_buf_slice(&out);
}

static hx_digest hash_data(hx_engine *engine, hx_slice data, hx_arena *arena)
{
    hx_buf canonical;
    hx_buf_init(&canonical, arena, HX_JSON_CANONICAL_BYTES(data.len));
    bool is_clean = hx_json_canonical(data, arena, &canonical);
    hx_mac_begin(engine->mac, TAG_DATA);
    hx_mac_part(engine->mac, is_clean ? hx_buf_slice(&canonical) : data);
    return hx_mac_end(engine->mac);
}

static hx_slice new_id(hx_publish *publish, size_t number)
{
    hx_digest digest;
    if (publish->key.len > 0) { /* the same request makes the same ids, wherever it is repeated */
        hx_mac_begin(publish->engine->mac, TAG_ID);
        hx_mac_part(publish->engine->mac, publish->principal);
        hx_mac_part(publish->engine->mac, publish->key);
        hx_mac_part(publish->engine->mac, (hx_slice){(const char *)&number, sizeof number});
        digest = hx_mac_end(publish->engine->mac);
    } else {
        hx_rand_bytes(digest.bytes, sizeof digest.bytes);
    }
    return hx_arena_printf(publish->arena, "evt_%.*s", HX_FMT(hex_of(&digest, 16, publish->arena)));
}

static bool find_recipients(hx_publish *publish, hx_event *event)
{
    const hx_recipient_tenant *tenant = hx_map_get(publish->engine->tenants, event->tenant);
    event->recipients = (hx_texts){0};
    if (!tenant) return true;
    size_t most = tenant->count < HX_EVENT_RECIPIENTS_MAX ? tenant->count : HX_EVENT_RECIPIENTS_MAX;
    HX_EACH(link, &tenant->recipients)
    {
        const hx_recipient *recipient = HX_OWNER(link, hx_recipient, of_tenant);
        const hx_endpoint *endpoint = &recipient->endpoint;
        if (recipient->source || endpoint->deleted_at > 0) continue;
        bool is_wanted = publish->only.len > 0 ? hx_slice_eq(endpoint->id, publish->only)
                                               : hx_endpoint_wants(endpoint, event->type, event->data);
        if (!is_wanted) continue;
        if (event->recipients.count == HX_EVENT_RECIPIENTS_MAX) return false;
        if (!event->recipients.items)
            event->recipients.items = hx_arena_alloc(publish->arena, most * sizeof *event->recipients.items);
        event->recipients.items[event->recipients.count++] = hx_arena_copy(publish->arena, endpoint->id);
    }
    return true;
}

static void identify(hx_publish *publish, size_t number)
{
    hx_event *event = &publish->events[number];
    if (event->id.len == 0) event->id = new_id(publish, number);
    hx_digest hash = hash_data(publish->engine, event->data, publish->arena);
    event->payload_hash = hex_of(&hash, sizeof hash.bytes, publish->arena);
}

static hx_item event_item(const hx_publish *publish, const hx_event *event, hx_ms expires_at)
{
    hx_buf meta;
    hx_buf_init(&meta, publish->arena, HX_ITEM_META_MAX);
    hx_event_encode(event, &meta);
    return (hx_item){.key = hx_event_key(event, publish->arena),
                     .queue = hx_event_queue(event, publish->arena),
                     .due = event->accepted_at,
                     .expires_at = expires_at,
                     .meta = hx_buf_slice(&meta),
                     .body = event->data};
}

static hx_fan_out fan_out_of(const hx_publish *publish, const hx_event *event)
{
    return (hx_fan_out){.event = hx_event_key(event, publish->arena),
                        .tenant = event->tenant,
                        .stream = event->stream,
                        .is_beside = publish->only.len > 0,
                        .recipients = event->recipients};
}

/* Items of the commit but for deliveries: of each event itself and what is left to do of it, of its place in its
 * stream, of the streams, the key's, and the one that changes with every endpoint. */
static size_t other_items(const hx_publish *publish)
{
    return 2 * publish->count + (publish->gate_count > 0 ? publish->count : 0) + publish->gate_count + 2;
}

/* Whether its deliveries are written with it, beside those of the events before. */
static bool is_direct(const hx_publish *publish, const hx_event *event, size_t deliveries)
{
    size_t count = event->recipients.count, most = HX_COMMIT_ITEMS_MAX - other_items(publish);
    if (most > DIRECT_MAX) most = DIRECT_MAX;
    return event->deliver_at == 0 && count <= HX_FAN_OUT_PART && deliveries + count <= most;
}

static hx_digest fingerprint_of(hx_publish *publish)
{
    hx_mac *mac = publish->engine->mac;
    hx_mac_begin(mac, TAG_REQUEST);
    for (size_t i = 0; i < publish->count; i++) {
        const hx_event *event = &publish->events[i];
        const hx_slice parts[] = {event->id,     event->tenant,         event->type,        event->source,
                                  event->stream, event->correlation_id, event->payload_hash};
        for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++) hx_mac_part(mac, parts[part]);
    }
    return hx_mac_end(mac);
}

static hx_slice key_of_request(const hx_publish *publish)
{
    hx_mac *mac = publish->engine->mac;
    hx_mac_begin(mac, TAG_KEY);
    hx_mac_part(mac, publish->principal);
    hx_mac_part(mac, publish->key);
    hx_digest digest = hx_mac_end(mac);
    return hx_arena_printf(publish->arena, "k/%.*s", HX_FMT(hex_of(&digest, 16, publish->arena)));
}

static hx_item key_item(const hx_publish *publish, hx_ms now)
{
    return (hx_item){.key = publish->key_item,
                     .queue = HX_EMPTY,
                     .expires_at = now + KEY_LIFETIME,
                     .meta = hex_of(&publish->fingerprint, sizeof publish->fingerprint.bytes, publish->arena),
                     .body = HX_EMPTY};
}

/* A commit whose end was not known may have made the deliveries: then nobody has looked for them yet. */
static void wake_all(const hx_publish *publish)
{
    hx_engine *engine = publish->engine;
    for (size_t i = 0; i < publish->count; i++) {
        hx_fan_out work = fan_out_of(publish, &publish->events[i]);
        hx_fan_out_nudge_recipients(engine, &work, work.recipients.count, hx_engine_now(engine));
    }
    hx_fan_out_nudge(engine, hx_engine_now(engine));
}

static void end(hx_publish *publish, hx_publish_result result)
{
    hx_engine *engine = publish->engine;
    publish->result = result;
    hx_gates_release(publish);
    if (result == HX_PUBLISHED_BEFORE || result == HX_PUBLISH_UNAVAILABLE) wake_all(publish);
    publish->done(publish);
    hx_engine_end_call(engine);
}

static void published(hx_publish *publish)
{
    hx_engine *engine = publish->engine;
    size_t deliveries = 0;
    for (size_t i = 0; i < publish->count; i++) {
        const hx_event *event = &publish->events[i];
        hx_fan_out work = fan_out_of(publish, event);
        hx_log_begin(HX_EVENT_event_accepted);
        hx_log_str("event_id", event->id);
        hx_log_str("event_type", event->type);
        if (event->source.len > 0) hx_log_str("source", event->source);
        if (event->tenant.len > 0) hx_log_str("tenant", event->tenant);
        if (event->stream.len > 0) {
            hx_log_str("stream", event->stream);
            hx_log_int("position", (int64_t)event->position);
        }
        hx_log_int("recipients", (int64_t)event->recipients.count);
        if (event->correlation_id.len > 0) hx_log_str("correlation_id", event->correlation_id);
        hx_log_end();
        engine->counts.published++;
        if (is_direct(publish, event, deliveries)) {
            hx_fan_out_nudge_recipients(engine, &work, event->recipients.count, event->accepted_at);
            deliveries += event->recipients.count;
        } else {
            hx_fan_out_nudge(engine, event->deliver_at);
        }
    }
    end(publish, HX_PUBLISHED);
}

/* Whether a stored event is the one that is published now. */
static bool is_same(hx_publish *publish, const hx_item *item, hx_event *event)
{
    hx_event stored;
    if (!hx_event_decode(item->meta, publish->arena, &stored)) return false;
    bool same = hx_slice_eq(stored.type, event->type) && hx_slice_eq(stored.stream, event->stream) &&
                hx_slice_eq(stored.payload_hash, event->payload_hash);
    stored.data = item->body;
    if (same) *event = stored;
    return same;
}

static void commit(hx_publish *publish);

/* Not all events are there: they were removed meanwhile, or never there. `items` are those of the streams. */
static void try_again(hx_publish *publish, const hx_item *items, size_t found)
{
    hx_engine *engine = publish->engine;
    bool is_known = hx_gates_learn(publish, items);
    const hx_event *misfit = hx_gates_misfit(publish);
    unsigned most = publish->gate_count > 0 && found == 0 ? STREAM_TRIES : 1;
    if (!is_known) {
        end(publish, HX_PUBLISH_UNAVAILABLE);
    } else if (found == 0 && misfit) {
        publish->version = hx_gate_of(engine, misfit->tenant, misfit->stream)->head.last;
        publish->detail = hx_arena_printf(publish->arena, "the stream %.*s has the version %llu, not %.*s",
                                          HX_FMT(misfit->stream), (unsigned long long)publish->version,
                                          HX_FMT(misfit->expected_version));
        end(publish, HX_PUBLISH_VERSION);
    } else if (publish->tries++ < most) {
        commit(publish);
        hx_engine_end_call(engine);
    } else if (found == 0 && publish->gate_count > 0) {
        end(publish, HX_PUBLISH_BUSY);
    } else {
        publish->detail = HX_LIT("some of these events were published before, and some were not: a batch is all or "
                                 "none");
        end(publish, HX_PUBLISH_CONFLICT);
    }
}

static void read_back_done(hx_store_call *call)
{
    hx_publish *publish = HX_OWNER(call, hx_publish, call);
    const hx_item *items = publish->items;
    if (call->result != HX_STORE_OK) {
        end(publish, HX_PUBLISH_UNAVAILABLE);
        return;
    }
    if (publish->key_item.len > 0 && items[publish->count].version > 0) {
        hx_slice wanted = hex_of(&publish->fingerprint, sizeof publish->fingerprint.bytes, publish->arena);
        if (!hx_slice_eq(items[publish->count].meta, wanted)) {
            publish->detail = HX_LIT("the key was used for other events");
            end(publish, HX_PUBLISH_CONFLICT);
            return;
        }
    }
    size_t found = 0;
    for (size_t i = 0; i < publish->count; i++) {
        hx_event *event = &publish->events[i];
        if (items[i].version == 0) continue;
        found++;
        if (is_same(publish, &items[i], event)) continue;
        publish->detail = hx_arena_printf(publish->arena, "the event %.*s was published before, with another %s",
                                          HX_FMT(event->id), "type, stream or data");
        end(publish, HX_PUBLISH_CONFLICT);
        return;
    }
    if (found == publish->count)
        end(publish, HX_PUBLISHED_BEFORE);
    else
        try_again(publish, items + publish->count + (publish->key_item.len > 0), found);
}

/* Something was there already: the events of this very request, or others. */
static void read_back(hx_publish *publish)
{
    hx_engine *engine = publish->engine;
    size_t count = publish->count;
    publish->items = hx_arena_alloc(publish->arena, (count + 1 + publish->gate_count) * sizeof *publish->items);
    for (size_t i = 0; i < count; i++)
        publish->items[i] = (hx_item){.key = hx_event_key(&publish->events[i], publish->arena)};
    if (publish->key_item.len > 0) publish->items[count++] = (hx_item){.key = publish->key_item};
    count += hx_gates_items(publish, publish->items + count, false);
    hx_engine_begin_call(engine, &publish->call, publish->arena, read_back_done);
    hx_store_get(engine->needs.store, &publish->call, publish->items, count);
}

static void endpoints_read(hx_nodes_wait *wait, bool is_read)
{
    hx_publish *publish = HX_OWNER(wait, hx_publish, wait);
    hx_engine *engine = publish->engine;
    if (!is_read || publish->reads > TRIES_MAX) {
        end(publish, HX_PUBLISH_UNAVAILABLE);
        return;
    }
    commit(publish);
    hx_engine_end_call(engine);
}

/* Another node has changed an endpoint: the recipients are decided again. */
static void read_endpoints(hx_publish *publish)
{
    publish->reads++;
    hx_nodes_read_again(publish->engine, &publish->wait, endpoints_read);
}

static void commit_done(hx_store_call *call)
{
    hx_publish *publish = HX_OWNER(call, hx_publish, call);
    hx_engine *engine = publish->engine;
    switch (call->result) {
    case HX_STORE_OK:
        hx_gates_advance(publish, call->version);
        published(publish);
        return;
    case HX_STORE_STALE:
        if (hx_nodes_went_ahead(call)) {
            read_endpoints(publish);
            return;
        }
        read_back(publish);
        hx_engine_end_call(engine);
        return;
    case HX_STORE_FULL: end(publish, HX_PUBLISH_FULL); return;
    default:
        hx_gates_forget(publish);
        end(publish, HX_PUBLISH_UNAVAILABLE);
        return;
    }
}

static void refused(hx_task *task)
{
    hx_publish *publish = HX_OWNER(task, hx_publish, call.own.task);
    end(publish, HX_PUBLISH_TOO_MANY);
}

static void refuse(hx_publish *publish, hx_slice detail)
{
    publish->detail = detail;
    publish->call.own.task.run = refused;
    hx_loop_defer(publish->engine->needs.loop, &publish->call.own.task);
}

static size_t bytes_of(const hx_item *items, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += items[i].key.len + items[i].queue.len + items[i].meta.len + items[i].body.len;
    return bytes;
}

/* Gives the event its position. Returns when its item expires. */
static hx_ms place(hx_publish *publish, hx_event *event, hx_item *entry)
{
    const hx_engine_settings *settings = &publish->engine->needs.settings;
    hx_ms least = settings->pause_max + HX_DAY; /* a delivery may wait so long for its first attempt */
    hx_ms span = settings->retention > least ? settings->retention : least;
    hx_ms until = span + (event->deliver_at > 0 ? event->deliver_at : event->accepted_at);
    if (event->stream.len == 0) return until;
    hx_ms kept = hx_sequence_retention(settings->streams, settings->stream_count, event->stream, span);
    hx_gate *gate = hx_gate_of(publish->engine, event->tenant, event->stream);
    hx_ms expires_at = hx_sequence_take(&gate->next, event->accepted_at, kept);
    hx_sequence_entry content = {.id = event->id,
                                 .type = event->type,
                                 .bytes = event->data.len + RECIPIENT_BYTES * event->recipients.count};
    event->position = gate->next.last;
    *entry = (hx_item){.key = hx_sequence_entry_key(event->tenant, event->stream, event->position, publish->arena),
                       .queue = HX_EMPTY,
                       .expires_at = expires_at,
                       .meta = hx_sequence_entry_encode(&content, publish->arena),
                       .body = HX_EMPTY};
    return expires_at == 0 || expires_at > until ? expires_at : until;
}

static void commit(hx_publish *publish)
{
    hx_engine *engine = publish->engine;
    hx_ms now = hx_engine_now(engine);
    hx_engine_begin_call(engine, &publish->call, publish->arena, commit_done);
    if (!engine->started) {
        read_endpoints(publish);
        return;
    }
    hx_item *items = hx_arena_alloc(publish->arena, (other_items(publish) + DIRECT_MAX) * sizeof *items);
    size_t count = 0, deliveries = 0;
    for (size_t i = 0; i < publish->gate_count; i++) publish->gates[i]->next = publish->gates[i]->head;
    for (size_t i = 0; i < publish->count; i++) {
        hx_event *event = &publish->events[i];
        event->accepted_at = now;
        if (event->deliver_at < now) event->deliver_at = 0;
        if (!find_recipients(publish, event)) {
            refuse(publish, hx_arena_printf(publish->arena, "the event %.*s has more than %u recipients",
                                            HX_FMT(event->id), HX_EVENT_RECIPIENTS_MAX));
            return;
        }
        hx_fan_out work = fan_out_of(publish, event);
        hx_ms expires_at = place(publish, event, &items[count]);
        if (event->stream.len > 0) count++;
        items[count++] = event_item(publish, event, expires_at);
        if (is_direct(publish, event, deliveries)) {
            count += hx_fan_out_add(engine, &work, event->recipients.count, now, items + count, publish->arena);
            deliveries += event->recipients.count;
        } else {
            items[count++] = hx_fan_out_item(&work, event->deliver_at, 0, publish->arena);
        }
    }
    count += hx_gates_items(publish, items + count, true);
    if (publish->key.len > 0) items[count++] = key_item(publish, now);
    count += hx_nodes_add(engine, HX_ITEM_CHECK, items + count);
    if (bytes_of(items, count) > HX_COMMIT_BYTES_MAX)
        refuse(publish, HX_LIT("the events, with the lists of their recipients, are too long for one request"));
    else
        hx_store_commit(engine->needs.store, &publish->call, items, count, false);
}

/* It is its turn. */
static void begin(hx_publish *publish)
{
    hx_engine *engine = publish->engine;
    if (hx_gates_misfit(publish))
        read_back(publish);
    else
        commit(publish);
    hx_engine_end_call(engine); /* of the wait */
}

void hx_engine_publish(hx_engine *engine, hx_publish *publish)
{
    publish->engine = engine;
    publish->detail = HX_EMPTY;
    HX_CHECK(publish->count > 0 && publish->count <= HX_PUBLISH_MAX);
    for (size_t i = 0; i < publish->count; i++) identify(publish, i);
    publish->fingerprint = fingerprint_of(publish);
    publish->key_item = publish->key.len > 0 ? key_of_request(publish) : HX_EMPTY;
    engine->calls++;
    hx_gates_take(publish, begin);
}
