/* SPDX-License-Identifier: Apache-2.0 */
/* Calls as PostgreSQL gets them, and verdicts as they come back, all in its binary format: numbers big-endian, and an
 * array as its number of dimensions, whether it has NULLs, the type of its elements, their number, the first one's
 * index, and then each element after its length. */
#include "store/postgres/wire.h"

#include "base/check.h"
#include "base/utf8.h"

#include <endian.h>
#include <string.h>

#define ARRAY_HEAD_BYTES 20u
#define COLUMN_BYTES_MAX (64u << 20)

static void put_u32(hx_buf *out, uint32_t number)
{
    uint32_t bytes = htobe32(number);
    hx_buf_put(out, (hx_slice){(const char *)&bytes, sizeof bytes});
}

static void put_u64(hx_buf *out, uint64_t number)
{
    uint64_t bytes = htobe64(number);
    hx_buf_put(out, (hx_slice){(const char *)&bytes, sizeof bytes});
}

static hx_buf *next(hx_parameters *p, Oid type)
{
    HX_CHECK(p->count < HX_PARAMETERS_MAX);
    hx_buf *column = &p->columns[p->count];
    if (!column->max) hx_buf_init(column, NULL, COLUMN_BYTES_MAX);
    column->len = 0;
    p->types[p->count] = type;
    p->values[p->count] = NULL;
    p->count++;
    return column;
}

/* The buffer may have moved while it grew, so its address is taken at the end. */
static void end(hx_parameters *p)
{
    const hx_buf *column = &p->columns[p->count - 1];
    p->values[p->count - 1] = column->data;
    p->lengths[p->count - 1] = (int)column->len;
    p->formats[p->count - 1] = 1;
}

static hx_buf *begin_array(hx_parameters *p, Oid array, Oid element, size_t count)
{
    hx_buf *column = next(p, array);
    put_u32(column, count > 0);
    put_u32(column, 0);
    put_u32(column, element);
    if (count > 0) {
        put_u32(column, (uint32_t)count);
        put_u32(column, 1);
    }
    return column;
}

void hx_put_null(hx_parameters *p, Oid type)
{
    (void)next(p, type);
    p->formats[p->count - 1] = 1;
    p->lengths[p->count - 1] = 0;
}

void hx_put_i64(hx_parameters *p, int64_t number)
{
    put_u64(next(p, HX_OID_INT8), (uint64_t)number);
    end(p);
}

void hx_put_i32(hx_parameters *p, int32_t number)
{
    put_u32(next(p, HX_OID_INT4), (uint32_t)number);
    end(p);
}

void hx_put_bool(hx_parameters *p, bool value)
{
    hx_buf_put(next(p, HX_OID_BOOL), (hx_slice){value ? "\1" : "\0", 1});
    end(p);
}

void hx_put_bytes(hx_parameters *p, hx_slice bytes)
{
    hx_buf *column = next(p, HX_OID_BYTEA);
    if (!column->data) put_u32(column, 0); /* libpq takes NULL for SQL's NULL, so an empty value needs an address */
    column->len = 0;
    hx_buf_put(column, bytes);
    end(p);
}

/* A text column refuses NUL bytes and invalid UTF-8: each such byte becomes a question mark. The record's head has the
 * bytes as they were. */
static void put_text(hx_buf *out, hx_slice text)
{
    const char *at = text.ptr, *after = text.ptr + text.len;
    while (at < after) {
        size_t bytes = *at != '\0' ? hx_utf8_bytes(at, after) : 0;
        hx_buf_put(out, bytes > 0 ? (hx_slice){at, bytes} : HX_LIT("?"));
        at += bytes > 0 ? bytes : 1;
    }
}

void hx_put_text(hx_parameters *p, hx_slice text)
{
    hx_buf *column = next(p, HX_OID_TEXT);
    put_u32(column, 0);
    column->len = 0;
    put_text(column, text);
    end(p);
}

void hx_put_texts(hx_parameters *p, const hx_slice *texts, size_t count)
{
    hx_buf *column = begin_array(p, HX_OID_TEXTS, HX_OID_TEXT, count);
    for (size_t i = 0; i < count; i++) {
        put_u32(column, (uint32_t)texts[i].len);
        put_text(column, texts[i]);
    }
    end(p);
}

void hx_put_i32s(hx_parameters *p, const int32_t *numbers, size_t count)
{
    hx_buf *column = begin_array(p, HX_OID_INT4S, HX_OID_INT4, count);
    for (size_t i = 0; i < count; i++) {
        put_u32(column, 4);
        put_u32(column, (uint32_t)numbers[i]);
    }
    end(p);
}

void hx_put_times_of(hx_parameters *p, const hx_statement *s, int64_t (*of)(const hx_store_call *call), hx_ms shift)
{
    hx_buf *column = begin_array(p, HX_OID_INT8S, HX_OID_INT8, s->count);
    for (size_t i = 0; i < s->count; i++) {
        int64_t time = of(s->calls[i]);
        put_u32(column, 8);
        put_u64(column, (uint64_t)(time == 0 ? 0 : time + shift));
    }
    end(p);
}

void hx_put_i64_of(hx_parameters *p, const hx_statement *s, int64_t (*of)(const hx_store_call *call))
{
    hx_put_times_of(p, s, of, 0);
}

void hx_put_i32_of(hx_parameters *p, const hx_statement *s, int32_t (*of)(const hx_store_call *call))
{
    hx_buf *column = begin_array(p, HX_OID_INT4S, HX_OID_INT4, s->count);
    for (size_t i = 0; i < s->count; i++) {
        put_u32(column, 4);
        put_u32(column, (uint32_t)of(s->calls[i]));
    }
    end(p);
}

void hx_put_i16_of(hx_parameters *p, const hx_statement *s, int16_t (*of)(const hx_store_call *call))
{
    hx_buf *column = begin_array(p, HX_OID_INT2S, HX_OID_INT2, s->count);
    for (size_t i = 0; i < s->count; i++) {
        uint16_t bytes = htobe16((uint16_t)of(s->calls[i]));
        put_u32(column, sizeof bytes);
        hx_buf_put(column, (hx_slice){(const char *)&bytes, sizeof bytes});
    }
    end(p);
}

void hx_put_bool_of(hx_parameters *p, const hx_statement *s, bool (*of)(const hx_store_call *call))
{
    hx_buf *column = begin_array(p, HX_OID_BOOLS, HX_OID_BOOL, s->count);
    for (size_t i = 0; i < s->count; i++) {
        char byte = of(s->calls[i]);
        put_u32(column, 1);
        hx_buf_put(column, (hx_slice){&byte, 1});
    }
    end(p);
}

void hx_put_bytes_of(hx_parameters *p, const hx_statement *s, hx_slice (*of)(const hx_store_call *call))
{
    hx_buf *column = begin_array(p, HX_OID_BYTEAS, HX_OID_BYTEA, s->count);
    for (size_t i = 0; i < s->count; i++) {
        hx_slice bytes = of(s->calls[i]);
        put_u32(column, (uint32_t)bytes.len);
        hx_buf_put(column, bytes);
    }
    end(p);
}

void hx_put_text_of(hx_parameters *p, const hx_statement *s, hx_slice (*of)(const hx_store_call *call))
{
    hx_buf *column = begin_array(p, HX_OID_TEXTS, HX_OID_TEXT, s->count);
    for (size_t i = 0; i < s->count; i++) {
        hx_slice text = of(s->calls[i]);
        put_u32(column, (uint32_t)text.len); /* a replacement has the length of what it replaces */
        put_text(column, text);
    }
    end(p);
}

void hx_put_i64_of_items(hx_parameters *p, const hx_item *const *items, size_t count,
                         int64_t (*of)(const hx_item *item))
{
    hx_buf *column = begin_array(p, HX_OID_INT8S, HX_OID_INT8, count);
    for (size_t i = 0; i < count; i++) {
        put_u32(column, 8);
        put_u64(column, (uint64_t)of(items[i]));
    }
    end(p);
}

void hx_put_bytes_of_items(hx_parameters *p, const hx_item *const *items, size_t count,
                           hx_slice (*of)(const hx_item *item))
{
    hx_buf *column = begin_array(p, HX_OID_BYTEAS, HX_OID_BYTEA, count);
    for (size_t i = 0; i < count; i++) {
        put_u32(column, (uint32_t)of(items[i]).len);
        hx_buf_put(column, of(items[i]));
    }
    end(p);
}

void hx_put_text_of_items(hx_parameters *p, const hx_item *const *items, size_t count,
                          hx_slice (*of)(const hx_item *item))
{
    hx_buf *column = begin_array(p, HX_OID_TEXTS, HX_OID_TEXT, count);
    for (size_t i = 0; i < count; i++) {
        put_u32(column, (uint32_t)of(items[i]).len);
        put_text(column, of(items[i]));
    }
    end(p);
}

/* The head as it was claimed; the row's other columns have what changes later. */
void hx_put_head_of(hx_parameters *p, const hx_statement *s)
{
    hx_buf *column = begin_array(p, HX_OID_BYTEAS, HX_OID_BYTEA, s->count);
    for (size_t i = 0; i < s->count; i++) {
        char head[HX_RECORD_HEAD_MAX];
        hx_buf buf = {.data = head, .cap = sizeof head, .max = sizeof head};
        hx_record bare = *s->calls[i]->record;
        bare.answer.headers = bare.answer.body = HX_EMPTY;
        bare.epoch = 0;
        hx_record_encode(&bare, &buf);
        hx_record_seal(head, buf.len, 1);
        put_u32(column, (uint32_t)buf.len);
        hx_buf_put(column, hx_buf_slice(&buf));
    }
    end(p);
}

void hx_put_ops(hx_parameters *p, const hx_op *ops, size_t count)
{
    hx_buf *column = begin_array(p, HX_OID_BYTEAS, HX_OID_BYTEA, count);
    for (size_t i = 0; i < count; i++) {
        put_u32(column, sizeof ops[i].bytes);
        hx_buf_put(column, (hx_slice){(const char *)ops[i].bytes, sizeof ops[i].bytes});
    }
    end(p);
}

/* Two arrays: operations and tickets. */
void hx_put_abandoned(hx_parameters *p, const hx_abandoned *claims, size_t count)
{
    hx_buf *column = begin_array(p, HX_OID_BYTEAS, HX_OID_BYTEA, count);
    for (size_t i = 0; i < count; i++) {
        put_u32(column, sizeof claims[i].op.bytes);
        hx_buf_put(column, (hx_slice){(const char *)claims[i].op.bytes, sizeof claims[i].op.bytes});
    }
    end(p);
    column = begin_array(p, HX_OID_INT8S, HX_OID_INT8, count);
    for (size_t i = 0; i < count; i++) {
        put_u32(column, 8);
        put_u64(column, claims[i].ticket);
    }
    end(p);
}

static uint64_t number_at(const hx_libpq *pq, const PGresult *result, int row, int column)
{
    const uint8_t *bytes = (const uint8_t *)pq->getvalue(result, row, column);
    uint64_t number = 0;
    for (int i = 0; i < pq->getlength(result, row, column); i++) number = number << 8 | bytes[i];
    return number;
}

int64_t hx_get_i64(const hx_libpq *pq, const PGresult *result, int row, int column)
{
    uint64_t number = number_at(pq, result, row, column);
    switch (pq->getlength(result, row, column)) {
    case 2: return (int16_t)number;
    case 4: return (int32_t)number;
    default: return (int64_t)number;
    }
}

hx_slice hx_get_bytes(const hx_libpq *pq, const PGresult *result, int row, int column)
{
    return (hx_slice){pq->getvalue(result, row, column), (size_t)pq->getlength(result, row, column)};
}

/* The columns of the type hapax.verdict. */
enum {
    PLACE,
    VERDICT,
    EPOCH,
    CHANGED_AT,
    LEASE_UNTIL,
    EXPIRES_AT,
    TOMBSTONE_UNTIL,
    STATE,
    FROM_STATE,
    ATTEMPT,
    STATUS,
    RETAINED,
    REASON,
    RESULT,
    HEAD,
    HEADERS,
    BODY
};

#define EXCESS 7 /* of hapax.excess_many */

hx_remote_verdict hx_get_verdict(const hx_libpq *pq, const PGresult *result, int row)
{
    int64_t verdict = hx_get_i64(pq, result, row, VERDICT);
    return (hx_remote_verdict){.place = (size_t)hx_get_i64(pq, result, row, PLACE) - 1,
                               .result = verdict == EXCESS ? HX_STORE_UNAVAILABLE : (hx_store_result)verdict,
                               .is_excess = verdict == EXCESS,
                               .epoch = (uint64_t)hx_get_i64(pq, result, row, EPOCH),
                               .has_record = !pq->getisnull(result, row, HEAD)};
}

/* An application may have written a text that is longer than a record's may be: it is cut between two characters. */
static hx_slice text_of(const hx_libpq *pq, const PGresult *result, int row, int column, hx_arena *arena)
{
    hx_slice text = hx_get_bytes(pq, result, row, column);
    size_t len = text.len < HX_RECORD_TEXT_MAX ? text.len : HX_RECORD_TEXT_MAX;
    while (len > 0 && len < text.len && ((unsigned char)text.ptr[len] & 0xc0) == 0x80) len--;
    return hx_arena_copy(arena, hx_slice_first(text, len));
}

bool hx_get_record(const hx_libpq *pq, const PGresult *result, int row, hx_ms now, hx_arena *arena, hx_record *out)
{
    size_t head_len, answer_len;
    hx_slice head = hx_arena_copy(arena, hx_get_bytes(pq, result, row, HEAD));
    if (hx_record_decode_head(head, out, &head_len, &answer_len) != HX_RECORD_OK) return false;
    out->epoch = (uint64_t)hx_get_i64(pq, result, row, EPOCH);
    if (!pq->getisnull(result, row, CHANGED_AT)) out->changed_at = hx_get_i64(pq, result, row, CHANGED_AT);
    if (!pq->getisnull(result, row, LEASE_UNTIL)) out->lease_until = hx_get_i64(pq, result, row, LEASE_UNTIL);
    if (!pq->getisnull(result, row, FROM_STATE)) out->from_state = (hx_state)hx_get_i64(pq, result, row, FROM_STATE);
    if (!pq->getisnull(result, row, ATTEMPT)) out->attempt = (uint16_t)hx_get_i64(pq, result, row, ATTEMPT);
    out->expires_at = hx_get_i64(pq, result, row, EXPIRES_AT);
    out->tombstone_until = hx_get_i64(pq, result, row, TOMBSTONE_UNTIL);
    int64_t state = hx_get_i64(pq, result, row, STATE);
    if (state < HX_ABSENT || state > HX_EXPIRED) return false;
    out->state = (hx_state)state;
    out->reason = text_of(pq, result, row, REASON, arena);
    out->result = text_of(pq, result, row, RESULT, arena);
    out->answer = (hx_answer){.status = (uint16_t)hx_get_i64(pq, result, row, STATUS),
                              .retained = hx_get_bytes(pq, result, row, RETAINED).ptr[0] != 0,
                              .headers = hx_arena_copy(arena, hx_get_bytes(pq, result, row, HEADERS)),
                              .body = hx_arena_copy(arena, hx_get_bytes(pq, result, row, BODY))};
    if (out->state == HX_UNKNOWN) hx_record_hold_by_reason(out);
    out->state = hx_store_state_at(out, now);
    if (out->state == HX_EXPIRED || out->state == HX_ABSENT) out->answer = (hx_answer){0};
    return true;
}
