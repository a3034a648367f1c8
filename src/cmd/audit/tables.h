/* SPDX-License-Identifier: Apache-2.0 */
/* The tables that `hapax audit export` writes: JSON lines, and three in CSV (RFC 4180). */
#ifndef HX_CMD_AUDIT_TABLES_H
#define HX_CMD_AUDIT_TABLES_H

#include "base/memory/buf.h"
#include "core/operation/record.h"

/* Attempts of one operation. */
#define HX_EXPORT_ATTEMPTS "attempt,delay_ms,status,code,notes\n"
typedef struct {
    unsigned attempt;
    hx_ms delay;   /* since the end of the attempt before; 0 for the first */
    unsigned code; /* HTTP status; 0: none */
    const char *status, *notes;
} hx_export_attempt;
/* What a change of state says of an attempt that has ended. False: none has. `ended_at` is the end of the one before,
 * 0: there was none; `begun_at` the claim. */
bool hx_export_attempt_of(const hx_record *record, hx_ms ended_at, hx_ms begun_at, char notes[HX_RECORD_TEXT_MAX + 1],
                          hx_export_attempt *out);
void hx_export_put_attempt(hx_buf *out, const hx_export_attempt *row);

/* What became of keys. */
#define HX_EXPORT_OUTCOMES "key,payload_hash,status,http_code,result_id,notes\n"
typedef struct {
    hx_slice key, payload_hash, status;
    unsigned http_code; /* 0: none */
    hx_slice result_id, notes;
} hx_export_outcome;
/* `digits` gets the MACs in hexadecimal digits. False: the change is no outcome. */
bool hx_export_outcome_of(const hx_record *record, char digits[4 * sizeof(hx_digest)], hx_export_outcome *out);
void hx_export_put_outcome(hx_buf *out, const hx_export_outcome *row);

/* Events of the inbox. */
#define HX_EXPORT_INBOX "event_id,source,first_seen,processed,result\n"
typedef struct {
    hx_slice event_id, source, first_seen, processed, result;
} hx_export_event;
void hx_export_put_event(hx_buf *out, const hx_export_event *row);

/* A change of state as one line of JSON. */
void hx_export_put_json(hx_buf *out, const hx_record *record, uint64_t sequence);

#endif
