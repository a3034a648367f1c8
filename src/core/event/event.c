/* SPDX-License-Identifier: Apache-2.0 */
#include "core/event/event.h"

#include "core/event/sequence.h"
#include "core/json/json.h"
#include "core/json/json_writer.h"

#define GIVEN (HX_JSON_GIVEN | HX_JSON_STORED | HX_JSON_SHOWN)
#define OURS (HX_JSON_STORED | HX_JSON_SHOWN)
#define FIELD(name, kind, uses) HX_JSON_FIELD(hx_event, name, kind, uses)
static const hx_json_field fields[] = {
    FIELD(id, TEXT, GIVEN),
    FIELD(type, TEXT, GIVEN),
    FIELD(tenant, TEXT, GIVEN),
    FIELD(source, TEXT, GIVEN),
    FIELD(correlation_id, TEXT, GIVEN),
    FIELD(accepted_at, TIME, OURS),
    FIELD(deliver_at, TIME, GIVEN),
    FIELD(content_type, TEXT, OURS),
    FIELD(headers, TEXTS, HX_JSON_STORED),
    FIELD(recipients, TEXTS, OURS),
    FIELD(payload_hash, TEXT, OURS),
    FIELD(is_received, BOOL, HX_JSON_STORED),
    FIELD(data, RAW, HX_JSON_GIVEN),
    FIELD(stream, TEXT, HX_JSON_GIVEN | HX_JSON_STORED),
    FIELD(position, NUMBER, HX_JSON_STORED),
    FIELD(expected_version, RAW, HX_JSON_GIVEN),
};
#undef FIELD
const hx_json_shape hx_event_shape = HX_JSON_SHAPE(fields);

static const hx_event empty = {.id = {"", 0},
                               .tenant = {"", 0},
                               .type = {"", 0},
                               .source = {"", 0},
                               .correlation_id = {"", 0},
                               .stream = {"", 0},
                               .expected_version = {"", 0},
                               .content_type = {"", 0},
                               .payload_hash = {"", 0},
                               .data = {"", 0}};

bool hx_is_tenant(hx_slice name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = hx_lower(name.ptr[i]);
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-' && c != '_') return false;
    }
    return name.len > 0 && name.len <= HX_TENANT_MAX;
}

static bool is_visible(hx_slice text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] <= ' ' || text.ptr[i] > '~') return false;
    return true;
}

bool hx_is_event_name(hx_slice name)
{
    return name.len > 0 && name.len <= HX_EVENT_NAME_MAX && is_visible(name);
}

static bool name_fits(const char *what, hx_slice name, hx_error_text error)
{
    return name.len == 0 || hx_is_event_name(name) ||
           hx_fail(error, "\"%s\" must have 1 to %u visible ASCII characters", what, HX_EVENT_NAME_MAX);
}

bool hx_event_read(hx_slice object, hx_arena *arena, hx_event *event, hx_error_text error)
{
    *event = empty;
    if (!hx_json_read(&hx_event_shape, HX_JSON_GIVEN, object, arena, event, error)) return false;
    if (event->type.len == 0) return hx_fail(error, "\"type\" is missing: name the event, such as \"refund.created\"");
    if (event->data.len == 0) return hx_fail(error, "\"data\" is missing: the event's contents, any JSON");
    hx_slice given;
    bool is_empty = event->id.len == 0 && hx_json_pointer(object, HX_LIT("/id"), &given) && given.ptr[0] == '"';
    if (is_empty || event->id.len > HX_EVENT_ID_MAX || !is_visible(event->id) ||
        hx_slice_find(event->id, '.') != SIZE_MAX)
        return hx_fail(error, "\"id\" must have 1 to %u visible ASCII characters, and no dot", HX_EVENT_ID_MAX);
    if (hx_slice_starts(event->id, HX_LIT(HX_EVENT_OWN)))
        return hx_fail(error, "\"id\" must not begin with " HX_EVENT_OWN ", as those of Hapax do");
    if (event->tenant.len > 0 && !hx_is_tenant(event->tenant))
        return hx_fail(error, "\"tenant\" must have 1 to %u letters, digits, - and _", HX_TENANT_MAX);
    uint64_t version;
    if (event->stream.len > 0 && !hx_is_stream(event->stream))
        return hx_fail(error, "\"stream\" must have 1 to %u letters, digits, -, _ and .", HX_EVENT_NAME_MAX);
    if (event->expected_version.len > 0 &&
        (event->stream.len == 0 || !hx_slice_to_u64(event->expected_version, &version)))
        return hx_fail(error, "\"expected_version\" must be a whole number, beside \"stream\"");
    return name_fits("type", event->type, error) && name_fits("source", event->source, error) &&
           name_fits("correlation_id", event->correlation_id, error);
}

void hx_event_encode(const hx_event *event, hx_buf *meta)
{
    hx_json_open(meta, NULL, '{');
    hx_json_write(&hx_event_shape, HX_JSON_STORED, event, meta);
    hx_json_close(meta, '}');
}

bool hx_event_decode(hx_slice meta, hx_arena *arena, hx_event *event)
{
    hx_error_text error;
    *event = empty;
    return hx_json_read(&hx_event_shape, HX_JSON_STORED, meta, arena, event, error) && event->id.len > 0;
}

void hx_event_envelope(const hx_event *event, hx_slice data, hx_buf *out)
{
    hx_json_open(out, NULL, '{');
    hx_json_put_text(out, "eventId", event->id);
    hx_json_put_text(out, "eventType", event->type);
    hx_json_put_time(out, "timestamp", event->accepted_at);
    hx_json_put_raw(out, "data", data);
    hx_json_close(out, '}');
}

hx_slice hx_event_key(const hx_event *event, hx_arena *arena)
{
    return event->is_received ? hx_arena_printf(arena, "i/%.*s/%.*s", HX_FMT(event->source), HX_FMT(event->id))
                              : hx_arena_printf(arena, "e/%.*s/%.*s", HX_FMT(event->tenant), HX_FMT(event->id));
}

hx_slice hx_event_queue(const hx_event *event, hx_arena *arena)
{
    return event->is_received
               ? hx_arena_printf(arena, "received/%.*s/%.*s/", HX_FMT(event->tenant), HX_FMT(event->source))
               : hx_arena_printf(arena, "events/%.*s/", HX_FMT(event->tenant));
}

hx_slice hx_delivery_key(hx_slice tenant, hx_slice endpoint, hx_slice event_key, hx_arena *arena)
{
    return hx_arena_printf(arena, "d/%.*s/%.*s/%.*s", HX_FMT(tenant), HX_FMT(endpoint), HX_FMT(event_key));
}
