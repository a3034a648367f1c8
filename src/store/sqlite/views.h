/* SPDX-License-Identifier: Apache-2.0 */
/* Views for people and reports, which nothing in Hapax reads. They take fields out of a record's bytes by the places in
 * core/operation/record.c. Keys, callers and payloads are MACs. */
#ifndef HX_STORE_SQLITE_VIEWS_H
#define HX_STORE_SQLITE_VIEWS_H

/* The formatter would break the strings between their letters. */
/* clang-format off */
/* The byte at a place, which counts from 1, of the BLOB `head`. A digit that instr doesn't find is 0. */
#define HX_VIEW_DIGIT(at, which) "instr('123456789ABCDEF', substr(hex(substr(head, " #at ", 1)), " #which ", 1))"
#define HX_VIEW_BYTE(at) "(" HX_VIEW_DIGIT(at, 1) " * 16 + " HX_VIEW_DIGIT(at, 2) ")"
#define HX_VIEW_PAIR(a, b) "(" HX_VIEW_BYTE(a) " + 256 * " HX_VIEW_BYTE(b) ")"
#define HX_VIEW_RFC3339(ms) "strftime('%Y-%m-%dT%H:%M:%fZ', nullif(" ms ", 0) / 1000.0, 'unixepoch')"
/* Milliseconds, of which six bytes are enough. */
#define HX_VIEW_TIME(a, b, c, d, e, f) \
    HX_VIEW_RFC3339(HX_VIEW_PAIR(a, b) " + 65536 * " HX_VIEW_PAIR(c, d) " + 4294967296 * " HX_VIEW_PAIR(e, f))
#define HX_VIEW_HEX(at, bytes) "lower(hex(substr(head, " #at ", " #bytes ")))"
#define HX_VIEW_STATE(value) \
    "CASE " value " WHEN 0 THEN 'absent' WHEN 1 THEN 'processing' WHEN 2 THEN 'completed' WHEN 3 THEN 'failed'" \
    " WHEN 4 THEN 'unknown' ELSE 'expired' END"
/* The four texts, each behind the ones before it; r, c, e and i are their lengths. */
#define HX_VIEW_ROUTE "CAST(substr(head, 305, r) AS TEXT)"
#define HX_VIEW_CORRELATION "CAST(substr(head, 305 + r, c) AS TEXT)"
#define HX_VIEW_REASON "CAST(substr(head, 305 + r + c, e) AS TEXT)"
#define HX_VIEW_RESULT "iif(" HX_VIEW_BYTE(4) " & 4, '', CAST(substr(head, 305 + r + c + e, i) AS TEXT))"
#define HX_VIEW_FROM(table) \
    " FROM (SELECT *, " HX_VIEW_BYTE(293) " AS r, " HX_VIEW_BYTE(294) " AS c, " HX_VIEW_BYTE(295) " AS e, " \
    HX_VIEW_BYTE(296) " AS i FROM " table ")"

static const char *const hx_sqlite_views[] = {
    "CREATE VIEW IF NOT EXISTS hapax_idempotency_keys AS SELECT"
    " " HX_VIEW_HEX(233, 32) " AS key,"
    " " HX_VIEW_HEX(73, 32) " AS payload_hash,"
    " " HX_VIEW_STATE("state") " AS status,"
    " nullif(" HX_VIEW_PAIR(279, 280) ", 0) AS http_code,"
    " " HX_VIEW_RESULT " AS result_ref,"
    " " HX_VIEW_TIME(49, 50, 51, 52, 53, 54) " AS expires_at"
    HX_VIEW_FROM("hapax_operations"),

    "CREATE VIEW IF NOT EXISTS hapax_idempotency_audit AS SELECT"
    " id AS sequence,"
    " " HX_VIEW_TIME(41, 42, 43, 44, 45, 46) " AS timestamp,"
    " " HX_VIEW_ROUTE " AS operation_type,"
    " " HX_VIEW_HEX(233, 32) " AS idempotency_key,"
    " " HX_VIEW_HEX(169, 32) " AS principal,"
    " " HX_VIEW_RESULT " AS result,"
    " " HX_VIEW_STATE(HX_VIEW_BYTE(3)) " AS from_state,"
    " " HX_VIEW_STATE(HX_VIEW_BYTE(2)) " AS to_state,"
    " " HX_VIEW_PAIR(277, 278) " AS attempt,"
    " " HX_VIEW_REASON " AS error_code,"
    " " HX_VIEW_CORRELATION " AS correlation_id"
    HX_VIEW_FROM("hapax_history"),

    "CREATE VIEW IF NOT EXISTS hapax_inbox_events AS SELECT"
    " e.meta ->> 'id' AS event_id,"
    " e.meta ->> 'source' AS source,"
    " e.meta ->> 'payload_hash' AS payload_hash,"
    " " HX_VIEW_RFC3339("e.meta ->> 'accepted_at'") " AS received_at,"
    " " HX_VIEW_RFC3339("d.meta ->> 'settled_at'") " AS processed_at,"
    " d.meta ->> 'state' AS result"
    " FROM hapax_items e LEFT JOIN hapax_items d ON d.key = CAST('d/' || coalesce(e.meta ->> 'tenant', '')"
    " || '/in_' || (e.meta ->> 'source') || '/' || CAST(e.key AS TEXT) AS BLOB)"
    " WHERE e.key >= x'692f' AND e.key < x'6930'", /* "i/…" */
};
/* clang-format on */

#endif
