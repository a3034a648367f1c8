/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/views.h"

#include "core/json/json.h"

static void put_name(hx_buf *out, const char *name)
{
    hx_buf_puts(out, ",\"");
    hx_buf_puts(out, name);
    hx_buf_puts(out, "\":");
}

static void put_text(hx_buf *out, const char *name, hx_slice value)
{
    put_name(out, name);
    hx_json_put(out, "", value);
}

static void put_number(hx_buf *out, const char *name, uint64_t value)
{
    put_name(out, name);
    hx_buf_put_decimal(out, value);
}

/* Times that are not set are left out. */
static void put_time(hx_buf *out, const char *name, hx_ms at)
{
    char text[HX_RFC3339_BYTES];
    if (at > 0) put_text(out, name, hx_rfc3339(at, text));
}

static void put_digest(hx_buf *out, const char *name, const hx_digest *digest)
{
    put_name(out, name);
    hx_buf_puts(out, "\"");
    hx_buf_put_hex(out, digest->bytes, sizeof digest->bytes);
    hx_buf_puts(out, "\"");
}

void hx_view_record(hx_buf *out, const hx_record *record)
{
    hx_buf_puts(out, "{\"id\":\"");
    hx_buf_put_hex(out, record->op.bytes, sizeof record->op.bytes);
    hx_buf_puts(out, "\"");
    put_number(out, "epoch", record->epoch);
    put_text(out, "state", hx_slice_of(hx_state_name(record->state)));
    put_text(out, "from_state", hx_slice_of(hx_state_name(record->from_state)));
    put_text(out, "route", record->route);
    put_number(out, "attempt", record->attempt);
    put_time(out, "created_at", record->created_at);
    put_time(out, "changed_at", record->changed_at);
    put_time(out, "expires_at", record->expires_at);
    put_time(out, "tombstone_until", record->tombstone_until);
    put_time(out, "lease_until", record->lease_until);
    if (record->answer.status != 0) {
        put_number(out, "status", record->answer.status);
        put_name(out, "retained");
        hx_buf_puts(out, record->answer.retained ? "true" : "false");
    }
    put_text(out, "result", record->result);
    put_text(out, "reason", record->reason);
    put_text(out, "correlation_id", record->correlation);
    put_digest(out, "key", &record->key);
    put_digest(out, "principal", &record->principal);
    put_digest(out, "payload_hash", &record->fingerprint);
    hx_buf_puts(out, "}");
}

void hx_view_records(hx_buf *out, const hx_record *records, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (i > 0) hx_buf_puts(out, ",\n");
        hx_view_record(out, &records[i]);
    }
}
