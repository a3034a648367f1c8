/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/views.h"

#include "core/json/json_writer.h"

/* Times that are not set are left out. */
static void put_time(hx_buf *out, const char *name, hx_ms at)
{
    char text[HX_RFC3339_BYTES];
    if (at > 0) hx_json_put_text(out, name, hx_rfc3339(at, text));
}

void hx_view_record(hx_buf *out, const hx_record *record)
{
    hx_json_open(out, NULL, '{');
    hx_json_put_hex(out, "id", record->op.bytes, sizeof record->op.bytes);
    hx_json_put_number(out, "epoch", record->epoch);
    hx_json_put_text(out, "state", hx_slice_of(hx_state_name(record->state)));
    hx_json_put_text(out, "from_state", hx_slice_of(hx_state_name(record->from_state)));
    hx_json_put_text(out, "route", record->route);
    hx_json_put_number(out, "attempt", record->attempt);
    put_time(out, "created_at", record->created_at);
    put_time(out, "changed_at", record->changed_at);
    put_time(out, "expires_at", record->expires_at);
    put_time(out, "tombstone_until", record->tombstone_until);
    put_time(out, "lease_until", record->lease_until);
    if (record->answer.status != 0) {
        hx_json_put_number(out, "status", record->answer.status);
        hx_json_put_bool(out, "retained", record->answer.retained);
    }
    hx_json_put_text(out, "result", record->result);
    hx_json_put_text(out, "reason", record->reason);
    hx_json_put_text(out, "correlation_id", record->correlation);
    hx_json_put_hex(out, "key", record->key.bytes, sizeof record->key.bytes);
    hx_json_put_hex(out, "principal", record->principal.bytes, sizeof record->principal.bytes);
    hx_json_put_hex(out, "payload_hash", record->fingerprint.bytes, sizeof record->fingerprint.bytes);
    hx_json_close(out, '}');
}

void hx_view_records(hx_buf *out, const char *name, const hx_record *records, size_t count)
{
    hx_json_open(out, name, '[');
    for (size_t i = 0; i < count; i++) {
        if (i > 0) hx_buf_puts(out, ",\n");
        hx_view_record(out, &records[i]);
    }
    hx_json_close(out, ']');
}
