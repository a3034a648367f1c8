/* SPDX-License-Identifier: Apache-2.0 */
/* Events about ourselves: an endpoint was disabled, a delivery is dead, or may have been processed. Each is part of the
 * commit that makes it true, and goes to the endpoints of the same tenant that name its type. Their ids follow from
 * what they are about, so that none is made twice, and begin with HX_EVENT_OWN, so that none is about another one. */
#include "base/hex.h"
#include "core/json/json_writer.h"
#include "events/fan_out.h"

#define TAG_OWN 'O'
#define ID_BYTES 16u
#define DATA_BYTES_MAX 8192u

typedef struct {
    hx_slice type, tenant;
    hx_slice about; /* an endpoint that doesn't get it; empty: none */
    hx_digest id;
    hx_slice data;
} own_event;

static hx_texts recipients_of(const hx_engine *engine, const own_event *own, hx_arena *arena)
{
    hx_slice name;
    void *value;
    hx_texts found = {0};
    for (size_t cursor = 0; hx_map_next(engine->recipients, &cursor, &name, &value);) {
        const hx_recipient *recipient = value;
        const hx_endpoint *endpoint = &recipient->endpoint;
        if (recipient->source || endpoint->deleted_at > 0 || !hx_slice_eq(endpoint->tenant, own->tenant)) continue;
        if (hx_slice_eq(endpoint->id, own->about) || !hx_endpoint_names(endpoint, own->type, own->data)) continue;
        if (!found.items) found.items = hx_arena_alloc(arena, HX_EVENT_RECIPIENTS_MAX * sizeof *found.items);
        if (found.count < HX_EVENT_RECIPIENTS_MAX) found.items[found.count++] = hx_arena_copy(arena, endpoint->id);
    }
    return found;
}

/* The event, and its deliveries as work to do, so that the commit stays small. */
static size_t add(hx_engine *engine, const own_event *own, hx_item *out, hx_arena *arena)
{
    const hx_engine_settings *settings = &engine->needs.settings;
    hx_ms now = hx_engine_now(engine), least = settings->pause_max + HX_DAY;
    hx_event event = {.tenant = own->tenant,
                      .type = own->type,
                      .source = HX_LIT("hapax"),
                      .correlation_id = HX_EMPTY,
                      .stream = HX_EMPTY,
                      .accepted_at = now,
                      .content_type = HX_EMPTY,
                      .recipients = recipients_of(engine, own, arena),
                      .payload_hash = HX_EMPTY,
                      .data = own->data};
    hx_buf id, meta;
    if (event.recipients.count == 0) return 0;
    hx_buf_init(&id, arena, sizeof HX_EVENT_OWN + 2 * ID_BYTES);
    hx_buf_puts(&id, HX_EVENT_OWN);
    hx_buf_put_hex(&id, own->id.bytes, ID_BYTES);
    event.id = hx_buf_slice(&id);
    hx_buf_init(&meta, arena, HX_ITEM_META_MAX);
    hx_event_encode(&event, &meta);
    hx_slice key = hx_event_key(&event, arena);
    out[0] = (hx_item){.key = key,
                       .queue = hx_event_queue(&event, arena),
                       .due = now,
                       .expires_at = now + (settings->retention > least ? settings->retention : least),
                       .meta = hx_buf_slice(&meta),
                       .body = own->data};
    hx_fan_out work = {.event = key, .tenant = own->tenant, .stream = HX_EMPTY, .recipients = event.recipients};
    out[1] = hx_fan_out_item(&work, now, 0, arena);
    return 2;
}

static hx_digest id_of(const hx_engine *engine, hx_slice type, hx_slice subject, uint64_t number, hx_ms at)
{
    hx_mac_begin(engine->mac, TAG_OWN);
    hx_mac_part(engine->mac, type);
    hx_mac_part(engine->mac, subject);
    hx_mac_part(engine->mac, (hx_slice){(const char *)&number, sizeof number});
    hx_mac_part(engine->mac, (hx_slice){(const char *)&at, sizeof at});
    return hx_mac_end(engine->mac);
}

/* The event's id, in its key. */
static hx_slice event_id_of(const hx_delivery *delivery)
{
    hx_slice key = delivery->event, part;
    (void)hx_slice_next(&key, '/', &part);
    (void)hx_slice_next(&key, '/', &part);
    return key;
}

size_t hx_own_event_of_delivery(hx_engine *engine, const hx_delivery *delivery, hx_slice key, hx_item *out,
                                hx_arena *arena)
{
    bool is_dead = delivery->state == HX_DELIVERY_DEAD;
    hx_slice event_id = event_id_of(delivery);
    if (!is_dead && delivery->state != HX_DELIVERY_UNKNOWN) return 0;
    if (hx_slice_starts(event_id, HX_LIT(HX_EVENT_OWN))) return 0;
    hx_slice type = is_dead ? HX_LIT("delivery.dead") : HX_LIT("unknown.created");
    const hx_attempt *last = delivery->kept_count > 0 ? &delivery->kept[delivery->kept_count - 1] : NULL;
    hx_buf data;
    hx_buf_init(&data, arena, DATA_BYTES_MAX);
    hx_json_open(&data, NULL, '{');
    hx_json_put_text(&data, "endpoint", delivery->endpoint);
    hx_json_put_text(&data, "event", event_id);
    if (delivery->stream.len > 0) hx_json_put_text(&data, "stream", delivery->stream);
    hx_json_put_text(&data, "reason", delivery->reason);
    hx_json_put_number(&data, "attempts", delivery->attempts);
    if (last && last->status > 0) hx_json_put_number(&data, "last_status", last->status);
    if (last && last->error.len > 0) hx_json_put_text(&data, "last_error", last->error);
    hx_json_put_time(&data, "at", delivery->settled_at);
    hx_json_close(&data, '}');
    return add(engine,
               &(own_event){.type = type,
                            .tenant = delivery->tenant,
                            .about = HX_EMPTY,
                            .id = id_of(engine, type, key, delivery->round, delivery->created_at),
                            .data = hx_buf_slice(&data)},
               out, arena);
}

size_t hx_own_event_of_endpoint(hx_engine *engine, const hx_endpoint *endpoint, hx_item *out, hx_arena *arena)
{
    hx_slice type = HX_LIT("endpoint.disabled");
    hx_buf data;
    hx_buf_init(&data, arena, DATA_BYTES_MAX);
    hx_json_open(&data, NULL, '{');
    hx_json_put_text(&data, "endpoint", endpoint->id);
    hx_json_put_text(&data, "url", endpoint->url);
    hx_json_put_text(&data, "reason", endpoint->disabled_reason);
    if (endpoint->failing_since > 0) hx_json_put_time(&data, "failing_since", endpoint->failing_since);
    hx_json_put_time(&data, "at", endpoint->disabled_at);
    hx_json_close(&data, '}');
    return add(engine,
               &(own_event){.type = type,
                            .tenant = endpoint->tenant,
                            .about = endpoint->id,
                            .id = id_of(engine, type, endpoint->id, 0, endpoint->disabled_at),
                            .data = hx_buf_slice(&data)},
               out, arena);
}

static const hx_slice unknown_created = {"unknown.created", 15};

bool hx_own_event_is_named(const hx_engine *engine)
{
    hx_arena arena = {0};
    own_event any = {.type = unknown_created, .tenant = HX_EMPTY, .about = HX_EMPTY, .data = HX_LIT("{}")};
    size_t count = recipients_of(engine, &any, &arena).count;
    hx_arena_free(&arena);
    return count > 0;
}

size_t hx_own_event_of_operation(hx_engine *engine, const hx_record *record, hx_item *out, hx_arena *arena)
{
    hx_buf data, id;
    hx_buf_init(&id, arena, 2 * sizeof record->op.bytes);
    hx_buf_put_hex(&id, record->op.bytes, sizeof record->op.bytes);
    hx_buf_init(&data, arena, DATA_BYTES_MAX);
    hx_json_open(&data, NULL, '{');
    hx_json_put_text(&data, "operation", hx_buf_slice(&id));
    hx_json_put_number(&data, "epoch", record->epoch);
    hx_json_put_text(&data, "route", record->route);
    hx_json_put_text(&data, "reason", record->reason);
    hx_json_put_number(&data, "attempts", record->attempt);
    if (record->correlation.len > 0) hx_json_put_text(&data, "correlation_id", record->correlation);
    hx_json_put_time(&data, "at", record->changed_at);
    hx_json_close(&data, '}');
    return add(engine,
               &(own_event){.type = unknown_created,
                            .tenant = HX_EMPTY,
                            .about = HX_EMPTY,
                            .id = id_of(engine, unknown_created, hx_buf_slice(&id), record->epoch, 0),
                            .data = hx_buf_slice(&data)},
               out, arena);
}
