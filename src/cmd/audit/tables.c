/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/audit/tables.h"

#include "base/hex.h"
#include "core/json/json_writer.h"

#include <stdio.h>
#include <string.h>

/* A field, quoted where it must be, and what ends it. */
static void put_field(hx_buf *out, hx_slice field, const char *end)
{
    bool is_plain = true;
    for (size_t i = 0; i < field.len; i++) is_plain = is_plain && !strchr("\",\r\n", field.ptr[i]);
    if (!is_plain) hx_buf_puts(out, "\"");
    for (size_t i = 0; i < field.len; i++) {
        if (field.ptr[i] == '"') hx_buf_puts(out, "\"");
        hx_buf_put(out, (hx_slice){field.ptr + i, 1});
    }
    hx_buf_puts(out, is_plain ? end : "\"");
    if (!is_plain) hx_buf_puts(out, end);
}

static void put_number(hx_buf *out, uint64_t number, bool is_empty)
{
    char digits[24] = "";
    if (!is_empty) (void)snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
    put_field(out, hx_slice_of(digits), ",");
}

void hx_export_put_attempt(hx_buf *out, const hx_export_attempt *row)
{
    put_number(out, row->attempt, false);
    put_number(out, (uint64_t)row->delay, false);
    put_field(out, hx_slice_of(row->status), ",");
    put_number(out, row->code, row->code == 0);
    put_field(out, hx_slice_of(row->notes), "\n");
}

/* The status of the response. Of one that is not stored, the reason says it: "answered 502". */
static unsigned code_of(const hx_record *record)
{
    const hx_slice answered = HX_LIT("answered ");
    uint64_t code;
    if (record->answer.status > 0) return record->answer.status;
    if (!hx_slice_starts(record->reason, answered)) return 0;
    return hx_slice_to_u64(hx_slice_from(record->reason, answered.len), &code) && code < 1000 ? (unsigned)code : 0;
}

/* The words of the playbook for how an attempt ended: `timeout`, a class of statuses, or 200 for any success. */
static const char *attempt_status(const hx_record *record)
{
    static const char *const classes[] = {"", "1xx", "2xx", "3xx", "4xx", "5xx"};
    unsigned class = code_of(record) / 100;
    if (record->state == HX_COMPLETED) return "200";
    if (class > 0 && class < sizeof classes / sizeof classes[0]) return classes[class];
    if (hx_slice_ends(record->reason, HX_LIT("timeout"))) return "timeout";
    return record->state == HX_ABSENT ? "released" : hx_state_name(record->state);
}

bool hx_export_attempt_of(const hx_record *record, hx_ms ended_at, hx_ms begun_at, char notes[HX_RECORD_TEXT_MAX + 1],
                          hx_export_attempt *out)
{
    if (record->state == HX_PROCESSING || record->state == HX_EXPIRED || record->from_state != HX_PROCESSING)
        return false;
    *out = (hx_export_attempt){.attempt = record->attempt,
                               .delay = ended_at > 0 && begun_at > ended_at ? begun_at - ended_at : 0,
                               .code = code_of(record),
                               .status = attempt_status(record),
                               .notes = "success"};
    if (record->state == HX_COMPLETED && record->reason.len == 0) return true;
    (void)snprintf(notes, HX_RECORD_TEXT_MAX + 1, "%.*s", HX_FMT(record->reason));
    out->notes = notes;
    return true;
}

void hx_export_put_outcome(hx_buf *out, const hx_export_outcome *row)
{
    put_field(out, row->key, ",");
    put_field(out, row->payload_hash, ",");
    put_field(out, row->status, ",");
    put_number(out, row->http_code, row->http_code == 0);
    put_field(out, row->result_id, ",");
    put_field(out, row->notes, "\n");
}

bool hx_export_outcome_of(const hx_record *record, char digits[4 * sizeof(hx_digest)], hx_export_outcome *out)
{
    static const char *const words[] = {[HX_ABSENT] = "released",
                                        [HX_COMPLETED] = "complete",
                                        [HX_FAILED] = "failed",
                                        [HX_UNKNOWN] = "unknown",
                                        [HX_EXPIRED] = "expired"};
    const size_t half = 2 * sizeof(hx_digest);
    if (record->state == HX_PROCESSING) return false;
    hx_hex_write(digits, record->key.bytes, sizeof record->key);
    hx_hex_write(digits + half, record->fingerprint.bytes, sizeof record->fingerprint);
    bool is_new = record->reason.len == 0 && record->from_state == HX_PROCESSING;
    *out = (hx_export_outcome){.key = {digits, half},
                               .payload_hash = {digits + half, half},
                               .status = hx_slice_of(words[record->state]),
                               .http_code = code_of(record),
                               .result_id = record->result,
                               .notes = is_new ? HX_LIT("created") : record->reason};
    return true;
}

void hx_export_put_event(hx_buf *out, const hx_export_event *row)
{
    put_field(out, row->event_id, ",");
    put_field(out, row->source, ",");
    put_field(out, row->first_seen, ",");
    put_field(out, row->processed, ",");
    put_field(out, row->result, "\n");
}

void hx_export_put_json(hx_buf *out, const hx_record *record, uint64_t sequence)
{
    char at[HX_RFC3339_BYTES];
    hx_json_open(out, NULL, '{');
    hx_json_put_text(out, "timestamp", hx_rfc3339(record->changed_at, at));
    hx_json_put_number(out, "sequence", sequence);
    hx_json_put_text(out, "operation_type", record->route);
    hx_json_put_hex(out, "idempotency_key", record->key.bytes, sizeof record->key);
    hx_json_put_hex(out, "principal", record->principal.bytes, sizeof record->principal);
    hx_json_put_text(out, "result", record->result);
    hx_json_put_text(out, "from_state", hx_slice_of(hx_state_name(record->from_state)));
    hx_json_put_text(out, "to_state", hx_slice_of(hx_state_name(record->state)));
    hx_json_put_number(out, "attempt", record->attempt);
    hx_json_put_text(out, "error_code", record->reason);
    hx_json_put_text(out, "correlation_id", record->correlation);
    hx_json_put_hex(out, "operation", record->op.bytes, sizeof record->op);
    hx_json_put_number(out, "epoch", record->epoch);
    if (record->answer.status > 0) hx_json_put_number(out, "http_code", record->answer.status);
    hx_json_put_hex(out, "payload_hash", record->fingerprint.bytes, sizeof record->fingerprint);
    hx_json_close(out, '}');
    hx_buf_puts(out, "\n");
}
