/* SPDX-License-Identifier: Apache-2.0 */
/* The books of the demo application: charges, refunds, and a double-entry ledger in which every movement is written
 * twice, once for each account. It does not deduplicate: called twice, it moves the money twice. That is the point. */
#ifndef HX_EXAMPLES_REFUNDS_LEDGER_H
#define HX_EXAMPLES_REFUNDS_LEDGER_H

#include "base/memory/buf.h"
#include "base/clock.h"

#define HX_LEDGER_ROWS_MAX 100000u
#define HX_LEDGER_TEXT_BYTES 128u

typedef struct {
    unsigned number; /* "ch_1" */
    int64_t amount;
    int64_t refunded;
    char currency[4];
    char description[HX_LEDGER_TEXT_BYTES];
    bool voided;
    unsigned version; /* its ETag */
    hx_ms created_at;
} hx_charge;

typedef struct {
    unsigned number; /* "rf_1" */
    unsigned charge;
    int64_t amount;
    char key[256]; /* the Idempotency-Key that it came with, for GET /refunds?idempotency_key= */
    bool voided;
    unsigned version;
    hx_ms created_at;
} hx_refund;

typedef struct {
    const char *account;
    int64_t amount;  /* positive: debit, negative: credit */
    char reason[24]; /* "charge ch_1" */
} hx_entry;

typedef struct {
    hx_charge *charges;
    unsigned charge_count;
    hx_refund *refunds;
    unsigned refund_count;
    hx_entry *entries;
    unsigned entry_count;
} hx_ledger;

/* NULL: the books are full. Numbers start at 1 and are places in the arrays plus one. */
hx_charge *hx_ledger_charge(hx_ledger *ledger, int64_t amount, hx_slice currency, hx_ms now);
hx_refund *hx_ledger_refund(hx_ledger *ledger, hx_charge *charge, int64_t amount, hx_slice key, hx_ms now);
/* The reverse of each: false when it was done before, or can't be. */
bool hx_ledger_void_charge(hx_ledger *ledger, hx_charge *charge);
bool hx_ledger_void_refund(hx_ledger *ledger, hx_refund *refund);

hx_charge *hx_ledger_find_charge(hx_ledger *ledger, hx_slice id); /* "ch_1" */
hx_refund *hx_ledger_find_refund(hx_ledger *ledger, hx_slice id);

/* As JSON. */
void hx_ledger_put_charge(hx_buf *out, const hx_charge *charge);
void hx_ledger_put_refund(hx_buf *out, const hx_refund *refund);
void hx_ledger_put_entries(hx_buf *out, const hx_ledger *ledger);

void hx_ledger_free(hx_ledger *ledger);

#endif
