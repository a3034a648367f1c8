/* SPDX-License-Identifier: Apache-2.0 */
/* The record of an operation, and its bytes. A store keeps the newest record of each operation; a change of state is
 * a new record. record.c describes the byte format. */
#ifndef HX_CORE_OPERATION_RECORD_H
#define HX_CORE_OPERATION_RECORD_H

#include "base/memory/buf.h"
#include "base/clock.h"
#include "base/memory/extent.h"
#include "core/operation/fingerprint.h"
#include "core/crypto/mac.h"

#define HX_EPOCH_MAX ((UINT64_C(1) << 48) - 1)

/* Names an operation: a MAC over its route, principal and key. */
typedef struct {
    uint8_t bytes[16];
} hx_op;

bool hx_op_eq(const hx_op *a, const hx_op *b);
/* Reads 32 hexadecimal digits. */
bool hx_op_read(hx_slice text, hx_op *op) HX_MUST_USE;

/* The states of contract §2; the numbers are in the byte format. */
#define HX_STATES(X)                                                                                                   \
    X(ABSENT, 0, "absent")                                                                                             \
    X(PROCESSING, 1, "processing")                                                                                     \
    X(COMPLETED, 2, "completed")                                                                                       \
    X(FAILED, 3, "failed")                                                                                             \
    X(UNKNOWN, 4, "unknown")                                                                                           \
    X(EXPIRED, 5, "expired")

typedef enum {
#define X(name, number, text) HX_##name = (number),
    HX_STATES(X)
#undef X
} hx_state;

const char *hx_state_name(hx_state state);

/* The response of the upstream, as every later client gets it. */
typedef struct {
    uint16_t status;  /* 0: no response. Of an unknown operation: see hx_record_is_held */
    bool retained;    /* false: executed, but the response was too large or endless, so headers and body aren't kept */
    hx_slice headers; /* "Name: value\r\n" lines, end-to-end headers only, in their order */
    hx_slice body;
} hx_answer;

#define HX_RECORD_TEXT_MAX 255u /* route, correlation, reason, result */
#define HX_RECORD_HEAD_MAX 2048u

typedef struct {
    hx_op op;
    uint64_t epoch; /* given by the store at the claim */
    hx_state state;
    hx_state from_state;   /* for the audit */
    hx_ms created_at;      /* time of the claim; replays show it as Original-Request-Time */
    hx_ms changed_at;      /* time of this version of the record */
    hx_ms expires_at;      /* completed and failed only; 0 otherwise */
    hx_ms tombstone_until; /* 0: none kept after the expiry */
    hx_ms lease_until;     /* processing only */
    uint64_t owner;        /* the process start that claimed it */
    hx_digest fingerprint;
    uint64_t parts[HX_PART_COUNT];
    hx_digest principal;
    hx_digest proof;
    hx_digest key; /* the MAC of the clear key alone, so that an operator can find it */
    uint32_t rule_version;
    uint16_t attempt;
    bool key_quoted;         /* the application got the key as an RFC 8941 string, and must get it so again */
    hx_slice key_parameters; /* ";v=1" behind it; kept until there is a result */
    hx_slice route;
    hx_slice correlation;
    hx_slice reason; /* an error code, or why it is unknown or released; empty otherwise */
    hx_slice result; /* the result's id, where the route names it */
    hx_answer answer;
    /* In records read back only: the store can't read this record. Its state is HX_UNKNOWN then, and only the
     * operation, and perhaps its epoch, is known. */
    bool unreadable;
    const hx_extent *body_file; /* NULL, or where the body is instead; in records read back only */
    /* For a claim in a store in which the application may complete operations itself; not among the record's bytes. */
    hx_ms lifetime;
    hx_ms tombstone;
} hx_record;

/* Whether the upstream answered an operation that is unknown as if it had been executed: with success, and without the
 * mark that it was to leave, or as a duplicate that it knows already. Such an operation has that response's status, and
 * is not sent again. */
static inline bool hx_record_is_held(const hx_record *record)
{
    return record->state == HX_UNKNOWN && record->answer.status != 0;
}
/* Sets the status of a held operation by its reason, for records written before the status said so. */
void hx_record_hold_by_reason(hx_record *record);

/* The record that a store returns in place of one that it can't read back. */
static inline hx_record hx_record_unreadable(const hx_op *op, uint64_t epoch)
{
    return (hx_record){.op = *op, .epoch = epoch, .state = HX_UNKNOWN, .unreadable = true};
}

/* The head of a record's bytes: everything but the answer's headers and body, which follow it (headers first).
 * `out` needs space for HX_RECORD_HEAD_MAX. The epoch may still be 0: the head is open then, until hx_record_seal. */
void hx_record_encode(const hx_record *record, hx_buf *out);
/* Puts the epoch into an encoded head and closes it with its checksum. */
void hx_record_seal(char *head, size_t head_len, uint64_t epoch);

/* The id of the result in a response body, where `pointer` leads: a number, or a text that fits a line; else empty. */
hx_slice hx_record_result(hx_slice pointer, hx_slice body, hx_arena *arena);

typedef enum { HX_RECORD_OK, HX_RECORD_DAMAGED, HX_RECORD_OLDER, HX_RECORD_NEWER } hx_record_error;

/* Reads a head alone; the answer's slices are left empty with only their lengths noted in *answer_len. The record's
 * slices point into `bytes`. */
hx_record_error hx_record_decode_head(hx_slice bytes, hx_record *out, size_t *head_len, size_t *answer_len) HX_MUST_USE;
/* The rest of a head: what is known of a response that isn't read along. */
typedef struct {
    size_t head_len, headers_len, body_len; /* which follow each other */
    uint32_t answer_crc;                    /* CRC-32C of headers and body */
} hx_record_layout;
hx_record_error hx_record_decode_layout(hx_slice bytes, hx_record *out, hx_record_layout *layout) HX_MUST_USE;
/* Reads head and response and checks both checksums. */
hx_record_error hx_record_decode(hx_slice bytes, hx_record *out) HX_MUST_USE;

#endif
