/* SPDX-License-Identifier: Apache-2.0 */
#include "config/describe/source_fields.h"

#include "config/describe/policy_fields.h"
#include "config/options.h"
#include "core/json/json_writer.h"
#include "core/operation/template.h"

#include <string.h>

static const char *size_text(uint32_t bytes, hx_arena *arena)
{
    return hx_option_write(hx_option_find(HX_PLACE_SOURCE, HX_LIT("body_max")), bytes, arena);
}

static bool has_timestamp(const hx_source *source)
{
    return strstr(source->scheme.signed_text, "{timestamp}") != NULL;
}

const char *hx_describe_verified(const hx_source *source, hx_arena *arena)
{
    const hx_webhook_scheme *scheme = &source->scheme;
    if (source->place_count == 0) return "nothing: anyone may send";
    hx_slice by = hx_slice_of(scheme->name), age = HX_EMPTY, secrets = HX_EMPTY;
    if (strcmp(scheme->name, "hmac") == 0)
        by = hx_arena_printf(arena, "hmac (%s in %s, of %s)", scheme->encoding == HX_WEBHOOK_HEX ? "hex" : "base64",
                             scheme->signature_header, scheme->signed_text);
    if (has_timestamp(source))
        age = hx_arena_printf(arena, ", at most %s ago", hx_describe_duration(source->tolerance, arena));
    if (source->place_count > 1) secrets = hx_arena_printf(arena, ", with one of %zu secrets", source->place_count);
    return hx_arena_printf(arena, "signed by %.*s%.*s%.*s", HX_FMT(by), HX_FMT(secrets), HX_FMT(age)).ptr;
}

/* The place of an event's id: "header" and its name, "pointer" and where it points, or "template" and its text. */
static const char *id_place(const hx_source *source, hx_slice *where)
{
    const hx_webhook_scheme *scheme = &source->scheme;
    if (source->dedupe_key) {
        *where = source->dedupe_key->text;
        return "template";
    }
    bool is_header = source->id_header.len > 0 || (source->id_pointer.len == 0 && scheme->id_header);
    if (is_header)
        *where = source->id_header.len > 0 ? source->id_header : hx_slice_of(scheme->id_header);
    else
        *where = source->id_pointer.len > 0 ? source->id_pointer : hx_slice_of(scheme->id_pointer);
    return is_header ? "header" : "pointer";
}

const char *hx_describe_source(const hx_source *source, hx_arena *arena)
{
    hx_slice where, guard = HX_EMPTY, tenant = HX_EMPTY;
    const char *place = id_place(source, &where);
    const char *known = strcmp(place, "header") == 0    ? "in header "
                        : strcmp(place, "pointer") == 0 ? "at "
                                                        : "made of ";
    if (source->replay_guard > 0)
        guard = hx_arena_printf(arena, "\nthe same payload under another id is held for %s",
                                hx_describe_duration(source->replay_guard, arena));
    if (source->tenant.len > 0) tenant = hx_arena_printf(arena, "\ntenant %.*s", HX_FMT(source->tenant));
    return hx_arena_printf(arena,
                           "event id %s%.*s; duplicates answered with 200 for %s after it was processed\n"
                           "another payload under the same id is held and answered with %s%.*s\n"
                           "%s %.*s (%llu at a time, %s each, bodies up to %s)\n%s%.*s",
                           known, HX_FMT(where), hx_describe_duration(source->window, arena),
                           source->is_strict ? "409" : "200", HX_FMT(guard),
                           source->waits ? "answered by the handler itself:"
                                         : "answered once it is stored, then delivered to",
                           HX_FMT(source->deliver), (unsigned long long)source->concurrency,
                           hx_describe_duration(source->timeout, arena), size_text(source->body_bytes_max, arena),
                           source->is_once
                               ? "a call that may have been processed becomes unknown, and is not repeated"
                               : "a call that may have been processed is repeated with the same Idempotency-Key",
                           HX_FMT(tenant))
        .ptr;
}

const char *hx_describe_events(const hx_config_events *events, hx_arena *arena)
{
    hx_slice disabled = HX_LIT("an endpoint that fails is never disabled"), roots = HX_EMPTY;
    if (events->disable_after > 0)
        disabled = hx_arena_printf(arena, "an endpoint that fails for %s is disabled",
                                   hx_describe_duration(events->disable_after, arena));
    if (events->ca_file.len > 0)
        roots = hx_arena_printf(arena, "\ncertificates of endpoints checked by %.*s", HX_FMT(events->ca_file));
    return hx_arena_printf(arena,
                           "kept for %s, dead letters for %s; up to %u attempts at a time\n"
                           "%.*s; deliveries of a disabled one wait for %s\n"
                           "payloads up to %s, scheduled up to %s ahead; of a response %s are kept%.*s",
                           hx_describe_duration(events->retention, arena),
                           hx_describe_duration(events->dead_retention, arena), events->attempts, HX_FMT(disabled),
                           hx_describe_duration(events->pause_max, arena), size_text(events->payload_bytes_max, arena),
                           hx_describe_duration(events->schedule_max, arena),
                           size_text(events->response_bytes_max, arena), HX_FMT(roots))
        .ptr;
}

static void put_word(hx_buf *out, const char *name, bool value)
{
    hx_json_put_text(out, name, hx_option_word(hx_option_find(HX_PLACE_SOURCE, hx_slice_of(name)), value));
}

static void put_signature(const hx_source *source, hx_buf *out)
{
    const hx_webhook_scheme *scheme = &source->scheme;
    hx_json_put_text(out, "scheme", hx_slice_of(scheme->name));
    if (strcmp(scheme->name, "hmac") == 0) {
        hx_json_put_text(out, "signature_header", hx_slice_of(scheme->signature_header));
        put_word(out, "encoding", scheme->encoding == HX_WEBHOOK_BASE64);
        hx_json_put_text(out, "prefix", hx_slice_of(scheme->prefix));
        hx_json_put_text(out, "timestamp_header",
                         hx_slice_of(scheme->timestamp_header ? scheme->timestamp_header : ""));
        hx_json_put_text(out, "signed", hx_slice_of(scheme->signed_text));
    }
    hx_json_open(out, "secrets", '[');
    for (size_t i = 0; i < source->place_count; i++) {
        hx_json_open(out, NULL, '{');
        hx_json_put_text(out, source->places[i].is_variable ? "env" : "file", source->places[i].name);
        hx_json_close(out, '}');
    }
    hx_json_close(out, ']');
    if (has_timestamp(source)) hx_json_put_number(out, "tolerance_ms", (uint64_t)source->tolerance);
}

void hx_describe_source_json(const hx_source *source, hx_buf *out)
{
    hx_slice where;
    const char *place = id_place(source, &where);
    hx_json_open(out, NULL, '{');
    hx_json_put_text(out, "name", source->name);
    put_signature(source, out);
    hx_json_open(out, "id", '{');
    hx_json_put_text(out, place, where);
    hx_json_put_bool(out, "signed", hx_id_is_signed(source));
    hx_json_close(out, '}');
    hx_json_put_number(out, "replay_guard_ms", (uint64_t)source->replay_guard);
    hx_json_put_number(out, "window_ms", (uint64_t)source->window);
    hx_json_put_bool(out, "strict", source->is_strict);
    hx_json_put_text(out, "deliver", source->deliver);
    hx_json_put_text(out, "tenant", source->tenant);
    hx_json_put_number(out, "timeout_ms", (uint64_t)source->timeout);
    hx_json_put_number(out, "concurrency", source->concurrency);
    hx_json_put_number(out, "body_max", source->body_bytes_max);
    put_word(out, "ack", source->waits);
    put_word(out, "guarantee", source->is_once);
    hx_json_close(out, '}');
}
