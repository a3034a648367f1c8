/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of a statement, and the rows of its result, in PostgreSQL's binary format. */
#ifndef HX_STORE_POSTGRES_WIRE_H
#define HX_STORE_POSTGRES_WIRE_H

#include "base/memory/buf.h"
#include "store/postgres/libpq.h"
#include "store/remote/lane.h"

#define HX_PARAMETERS_MAX 24

/* From pg_type.dat; these never change. */
enum {
    HX_OID_BOOL = 16,
    HX_OID_BYTEA = 17,
    HX_OID_INT8 = 20,
    HX_OID_INT2 = 21,
    HX_OID_INT4 = 23,
    HX_OID_TEXT = 25,
    HX_OID_BOOLS = 1000,
    HX_OID_BYTEAS = 1001,
    HX_OID_INT2S = 1005,
    HX_OID_INT4S = 1007,
    HX_OID_TEXTS = 1009,
    HX_OID_INT8S = 1016,
};

typedef struct hx_parameters {
    int count;
    Oid types[HX_PARAMETERS_MAX];
    const char *values[HX_PARAMETERS_MAX];
    int lengths[HX_PARAMETERS_MAX];
    int formats[HX_PARAMETERS_MAX];
    hx_buf columns[HX_PARAMETERS_MAX]; /* kept from one statement to the next */
} hx_parameters;

/* Each of these adds a parameter. */
void hx_put_null(hx_parameters *p, Oid type);
void hx_put_i64(hx_parameters *p, int64_t number);
void hx_put_i32(hx_parameters *p, int32_t number);
void hx_put_bool(hx_parameters *p, bool value);
void hx_put_bytes(hx_parameters *p, hx_slice bytes);
void hx_put_text(hx_parameters *p, hx_slice text);
void hx_put_texts(hx_parameters *p, const hx_slice *texts, size_t count);
void hx_put_i32s(hx_parameters *p, const int32_t *numbers, size_t count);
/* Each of these adds an array, with the value that `of` returns for each call. */
void hx_put_i64_of(hx_parameters *p, const hx_statement *s, int64_t (*of)(const hx_store_call *call));
/* Times are moved by `shift`; 0 stays 0. */
void hx_put_times_of(hx_parameters *p, const hx_statement *s, int64_t (*of)(const hx_store_call *call), hx_ms shift);
void hx_put_i32_of(hx_parameters *p, const hx_statement *s, int32_t (*of)(const hx_store_call *call));
void hx_put_i16_of(hx_parameters *p, const hx_statement *s, int16_t (*of)(const hx_store_call *call));
void hx_put_bool_of(hx_parameters *p, const hx_statement *s, bool (*of)(const hx_store_call *call));
void hx_put_bytes_of(hx_parameters *p, const hx_statement *s, hx_slice (*of)(const hx_store_call *call));
void hx_put_text_of(hx_parameters *p, const hx_statement *s, hx_slice (*of)(const hx_store_call *call));
void hx_put_head_of(hx_parameters *p, const hx_statement *s);
void hx_put_ops(hx_parameters *p, const hx_op *ops, size_t count);
/* Each of these adds an array, with the value that `of` returns for each item. */
void hx_put_i64_of_items(hx_parameters *p, const hx_item *const *items, size_t count,
                         int64_t (*of)(const hx_item *item));
void hx_put_bytes_of_items(hx_parameters *p, const hx_item *const *items, size_t count,
                           hx_slice (*of)(const hx_item *item));
void hx_put_text_of_items(hx_parameters *p, const hx_item *const *items, size_t count,
                          hx_slice (*of)(const hx_item *item));
void hx_put_abandoned(hx_parameters *p, const hx_abandoned *claims, size_t count);

int64_t hx_get_i64(const hx_libpq *pq, const PGresult *result, int row, int column);
hx_slice hx_get_bytes(const hx_libpq *pq, const PGresult *result, int row, int column);

/* A row of the type hapax.verdict. */
hx_remote_verdict hx_get_verdict(const hx_libpq *pq, const PGresult *result, int row);
/* Its record, in the state that it has at `now`. False: its bytes are damaged. */
bool hx_get_record(const hx_libpq *pq, const PGresult *result, int row, hx_ms now, hx_arena *arena,
                   hx_record *out) HX_MUST_USE;

#endif
