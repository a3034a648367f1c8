/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/events/views.h"

#include "core/json/json_writer.h"

#define ESCAPED 6u /* the most bytes that one takes in a JSON text */

static void put_place(hx_buf *out, const hx_event *event)
{
    if (event->stream.len == 0) return;
    hx_json_put_text(out, "stream", event->stream);
    hx_json_put_number(out, "position", event->position);
}

bool hx_view_decode_event(const hx_item *item, hx_arena *arena, hx_event *event)
{
    if (!hx_event_decode(item->meta, arena, event)) return false;
    if (!event->is_received) return true;
    hx_slice *application = hx_arena_alloc(arena, sizeof *application);
    *application = hx_arena_printf(arena, "in_%.*s", HX_FMT(event->source));
    event->recipients = (hx_texts){application, 1};
    event->id = hx_view_event_id(item->key);
    return true;
}

void hx_view_published(hx_buf *out, const hx_event *event)
{
    hx_json_open(out, NULL, '{');
    hx_json_put_text(out, "id", event->id);
    hx_json_put_time(out, "accepted_at", event->accepted_at);
    if (event->deliver_at > 0) hx_json_put_time(out, "deliver_at", event->deliver_at);
    hx_json_put_number(out, "recipients", event->recipients.count);
    put_place(out, event);
    hx_json_close(out, '}');
}

void hx_view_event(hx_buf *out, const hx_event *event, bool with_data)
{
    hx_json_write(&hx_event_shape, HX_JSON_SHOWN, event, out);
    put_place(out, event);
    if (with_data && !event->is_received)
        hx_json_put_raw(out, "data", event->data);
    else if (with_data)
        hx_json_put_text(out, "body", event->data);
}

void hx_view_event_item(hx_buf *out, const hx_item *item, hx_arena *arena)
{
    hx_event event;
    if (!hx_view_decode_event(item, arena, &event)) return;
    hx_json_open(out, NULL, '{');
    hx_view_event(out, &event, false);
    hx_json_close(out, '}');
}

void hx_view_endpoint_item(hx_buf *out, const hx_item *item, hx_arena *arena)
{
    hx_endpoint endpoint;
    if (!hx_endpoint_decode(item->meta, arena, &endpoint) || endpoint.deleted_at > 0) return;
    hx_json_open(out, NULL, '{');
    hx_view_endpoint(out, &endpoint);
    hx_json_close(out, '}');
}

size_t hx_view_endpoint_bytes(const hx_item *item)
{
    return 1024 + 2 * item->meta.len;
}

size_t hx_view_event_bytes(const hx_item *item)
{
    return 1024 + 2 * item->meta.len + ESCAPED * item->body.len;
}

size_t hx_view_delivery_bytes(const hx_item *item)
{
    return 1024 + 3 * item->meta.len + ESCAPED * item->body.len;
}

static void put_attempt(hx_buf *out, const hx_attempt *attempt, hx_slice response)
{
    hx_json_open(out, NULL, '{');
    hx_json_put_time(out, "at", attempt->at);
    hx_json_put_number(out, "ms", attempt->ms);
    if (attempt->status > 0) hx_json_put_number(out, "status", attempt->status);
    if (attempt->error.len > 0) hx_json_put_text(out, "error", attempt->error);
    if (response.len > 0) hx_json_put_text(out, "response", response);
    hx_json_close(out, '}');
}

hx_slice hx_view_event_id(hx_slice key)
{
    hx_slice part;
    (void)hx_slice_next(&key, '/', &part);
    (void)hx_slice_next(&key, '/', &part);
    return key;
}

void hx_view_delivery_item(hx_buf *out, const hx_item *item, hx_arena *arena)
{
    hx_delivery delivery;
    if (hx_slice_starts(item->key, HX_LIT(HX_DELIVERY_MARKS))) return;
    hx_json_open(out, NULL, '{');
    if (item->version == 0 || !hx_delivery_decode(item->meta, item->body, arena, &delivery)) {
        hx_json_put_text(out, "state", item->version == 0 ? HX_LIT("absent") : HX_LIT("unreadable"));
        hx_json_close(out, '}');
        return;
    }
    hx_json_put_text(out, "event", hx_view_event_id(delivery.event));
    hx_json_put_text(out, "endpoint", delivery.endpoint);
    if (delivery.tenant.len > 0) hx_json_put_text(out, "tenant", delivery.tenant);
    if (delivery.stream.len > 0) hx_json_put_text(out, "stream", delivery.stream);
    hx_json_put_text(out, "state", hx_slice_of(hx_delivery_states[delivery.state].name));
    if (delivery.reason.len > 0) hx_json_put_text(out, "reason", delivery.reason);
    hx_json_put_number(out, "attempts", delivery.attempts);
    hx_json_put_number(out, "round", delivery.round);
    hx_json_put_time(out, "created_at", delivery.created_at);
    if (delivery.state == HX_DELIVERY_PENDING) hx_json_put_time(out, "next_attempt_at", delivery.due);
    if (delivery.settled_at > 0) hx_json_put_time(out, "settled_at", delivery.settled_at);
    hx_json_open(out, "tries", '[');
    hx_slice responses = delivery.responses;
    for (size_t i = 0; i < delivery.kept_count; i++) {
        size_t len = (size_t)delivery.kept[i].response;
        put_attempt(out, &delivery.kept[i], hx_slice_first(responses, len < responses.len ? len : responses.len));
        responses = hx_slice_from(responses, len);
    }
    hx_json_close(out, ']');
    hx_json_close(out, '}');
}

void hx_view_endpoint(hx_buf *out, const hx_endpoint *endpoint)
{
    hx_json_write(&hx_endpoint_shape, HX_JSON_SHOWN, endpoint, out);
}
