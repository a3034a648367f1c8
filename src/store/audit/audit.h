/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the audit of a store: every change of state that it keeps, in the order of its chain of hashes, whose links
 * are checked on the way. Nothing is locked and nothing is changed, so a gateway may be running. */
#ifndef HX_STORE_AUDIT_AUDIT_H
#define HX_STORE_AUDIT_AUDIT_H

#include "base/fail.h"
#include "core/operation/record.h"

/* A place in the chain, a record of a journal or a link of SQLite, that was written down elsewhere: whoever changes the
 * store can't change that, too. */
typedef struct {
    uint64_t sequence;
    hx_digest hash;
} hx_audit_anchor;

typedef struct {
    /* given by the caller */
    void (*row)(void *context, const hx_record *record, uint64_t sequence); /* NULL: none */
    void (*problem)(void *context, const char *sentence);                   /* called for each broken place */
    void *context;
    const hx_audit_anchor *anchor; /* NULL: none */
    /* given back */
    uint64_t rows;      /* changes of state */
    uint64_t links;     /* everything that the chain has */
    uint64_t problems;  /* places */
    uint64_t unlinked;  /* rows that are not in the chain yet */
    uint64_t kept_from; /* sequence from which on the retention has kept everything; 1: from the beginning */
    hx_ms first_at, last_at;
    hx_audit_anchor head; /* the last link that is durable */
} hx_audit;

/* False with a sentence in `error`: the store can't be read. */
bool hx_audit_read(hx_slice url, hx_audit *audit, hx_error_text error) HX_MUST_USE;
/* Reads "SEQUENCE:HASH", as hx_audit_anchor_text writes it. */
bool hx_audit_anchor_read(hx_slice text, hx_audit_anchor *out) HX_MUST_USE;
#define HX_AUDIT_ANCHOR_BYTES 96u
void hx_audit_anchor_text(const hx_audit_anchor *anchor, char out[HX_AUDIT_ANCHOR_BYTES]);

/* For the readers of each kind of store. */
bool hx_audit_journal(hx_slice path, hx_audit *audit, hx_error_text error) HX_MUST_USE;
bool hx_audit_sqlite(hx_slice path, hx_audit *audit, hx_error_text error) HX_MUST_USE;
void hx_audit_problem(hx_audit *audit, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Counts a row, and hands it on. */
void hx_audit_row(hx_audit *audit, const hx_record *record, uint64_t sequence);

#endif
