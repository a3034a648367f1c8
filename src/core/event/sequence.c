/* SPDX-License-Identifier: Apache-2.0 */
#include "core/event/sequence.h"

#include "base/hex.h"
#include "core/event/endpoint.h"
#include "core/json/json_writer.h"

#include <inttypes.h>

#define POSITION_DIGITS 16u
#define FIELD(type, name, kind) HX_JSON_FIELD(type, name, kind, HX_JSON_STORED)

static const hx_json_field sequence_fields[] = {FIELD(hx_sequence, last, NUMBER), FIELD(hx_sequence, kept_until, TIME),
                                                FIELD(hx_sequence, is_forever, BOOL)};
static const hx_json_field entry_fields[] = {FIELD(hx_sequence_entry, id, TEXT), FIELD(hx_sequence_entry, type, TEXT),
                                             FIELD(hx_sequence_entry, bytes, NUMBER)};
static const hx_json_field consumer_fields[] = {FIELD(hx_consumer, position, NUMBER),
                                                FIELD(hx_consumer, generation, NUMBER),
                                                FIELD(hx_consumer, changed_at, TIME)};
static const hx_json_shape sequence_shape = HX_JSON_SHAPE(sequence_fields), entry_shape = HX_JSON_SHAPE(entry_fields),
                           consumer_shape = HX_JSON_SHAPE(consumer_fields);

bool hx_is_stream(hx_slice name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = hx_lower(name.ptr[i]);
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-' && c != '_' && c != '.') return false;
    }
    return name.len > 0 && name.len <= HX_EVENT_NAME_MAX;
}

hx_ms hx_sequence_retention(const hx_stream_rule *rules, size_t count, hx_slice stream, hx_ms otherwise)
{
    for (size_t i = 0; i < count; i++)
        if (hx_event_type_matches(rules[i].match, stream)) return rules[i].retention;
    return otherwise;
}

hx_slice hx_sequence_key(hx_slice tenant, hx_slice stream, hx_arena *arena)
{
    return hx_arena_printf(arena, "s/%.*s/%.*s", HX_FMT(tenant), HX_FMT(stream));
}

hx_slice hx_sequence_entry_prefix(hx_slice tenant, hx_slice stream, hx_arena *arena)
{
    return hx_arena_printf(arena, "p/%.*s/%.*s/", HX_FMT(tenant), HX_FMT(stream));
}

hx_slice hx_sequence_entry_key(hx_slice tenant, hx_slice stream, uint64_t position, hx_arena *arena)
{
    return hx_arena_printf(arena, "p/%.*s/%.*s/%016" PRIx64, HX_FMT(tenant), HX_FMT(stream), position);
}

uint64_t hx_sequence_entry_position(hx_slice key)
{
    char bytes[POSITION_DIGITS / 2];
    uint64_t position = 0;
    if (key.len < POSITION_DIGITS || !hx_hex_read(bytes, key.ptr + key.len - POSITION_DIGITS, sizeof bytes)) return 0;
    for (size_t i = 0; i < sizeof bytes; i++) position = position << 8 | (uint8_t)bytes[i];
    return position;
}

hx_slice hx_consumer_prefix(hx_slice tenant, hx_slice stream, hx_arena *arena)
{
    return hx_arena_printf(arena, "c/%.*s/%.*s%s", HX_FMT(tenant), HX_FMT(stream), stream.len > 0 ? "/" : "");
}

hx_slice hx_consumer_key(hx_slice tenant, hx_slice stream, hx_slice name, hx_arena *arena)
{
    return hx_arena_printf(arena, "c/%.*s/%.*s/%.*s", HX_FMT(tenant), HX_FMT(stream), HX_FMT(name));
}

static hx_slice encode(const hx_json_shape *shape, const void *from, hx_arena *arena)
{
    hx_buf meta;
    hx_buf_init(&meta, arena, HX_SEQUENCE_META_MAX);
    hx_json_open(&meta, NULL, '{');
    hx_json_write(shape, HX_JSON_STORED, from, &meta);
    hx_json_close(&meta, '}');
    return hx_buf_slice(&meta);
}

static bool decode(const hx_json_shape *shape, hx_slice meta, hx_arena *arena, void *out)
{
    hx_error_text error;
    return meta.len == 0 || hx_json_read(shape, HX_JSON_STORED, meta, arena, out, error);
}

hx_slice hx_sequence_encode(const hx_sequence *sequence, hx_arena *arena)
{
    return encode(&sequence_shape, sequence, arena);
}

bool hx_sequence_decode(hx_slice meta, hx_arena *arena, hx_sequence *out)
{
    *out = (hx_sequence){0};
    return decode(&sequence_shape, meta, arena, out);
}

hx_slice hx_sequence_entry_encode(const hx_sequence_entry *entry, hx_arena *arena)
{
    return encode(&entry_shape, entry, arena);
}

bool hx_sequence_entry_decode(hx_slice meta, hx_arena *arena, hx_sequence_entry *out)
{
    *out = (hx_sequence_entry){.id = HX_EMPTY, .type = HX_EMPTY};
    return decode(&entry_shape, meta, arena, out) && out->id.len > 0;
}

hx_slice hx_consumer_encode(const hx_consumer *consumer, hx_arena *arena)
{
    return encode(&consumer_shape, consumer, arena);
}

bool hx_consumer_decode(hx_slice meta, hx_arena *arena, hx_consumer *out)
{
    *out = (hx_consumer){.generation = 1};
    return decode(&consumer_shape, meta, arena, out);
}

hx_ms hx_sequence_take(hx_sequence *sequence, hx_ms now, hx_ms retention)
{
    sequence->last++;
    if (retention == HX_STREAM_FOREVER) {
        sequence->is_forever = true;
        return 0;
    }
    if (sequence->kept_until < now + retention) sequence->kept_until = now + retention;
    return sequence->kept_until;
}

hx_ms hx_sequence_expiry(const hx_sequence *sequence)
{
    return sequence->is_forever ? 0 : sequence->kept_until + HX_STREAM_OUTLIVES;
}

hx_ack_result hx_consumer_ack(hx_consumer *consumer, uint64_t last, uint64_t position, uint64_t generation, hx_ms now)
{
    if (generation != consumer->generation) return HX_ACK_GENERATION;
    if (position < consumer->position) return HX_ACK_BACK;
    if (position > last) return HX_ACK_BEYOND;
    consumer->position = position;
    consumer->changed_at = now;
    return HX_ACK_DONE;
}

bool hx_consumer_seek(hx_consumer *consumer, uint64_t last, uint64_t position, hx_ms now)
{
    if (position > last) return false;
    *consumer = (hx_consumer){.position = position, .generation = consumer->generation + 1, .changed_at = now};
    return true;
}
