/* SPDX-License-Identifier: Apache-2.0 */
/* The state that a store keeps in a call between its start and its completion, one type for each backend. It is part of
 * hx_store_call, so that a call needs no allocation; nothing outside the backend reads it. */
#ifndef HX_STORE_CALL_STATE_H
#define HX_STORE_CALL_STATE_H

#include "base/memory/arena.h"
#include "core/operation/record.h"

struct hx_store_call;
struct hx_port;
struct hx_sqlite;
struct hx_lane;

typedef struct {
    hx_state state; /* of the operation, when the call was decided */
    hx_ms lease_until;
} hx_memory_call;

typedef struct {
    uintptr_t next[2]; /* messages: links of the call itself and of its cancellation (hx_mailbox) */
    struct hx_port *port;
    hx_slice head;         /* head of the record, encoded by the caller's thread */
    unsigned ends_awaited; /* number of messages under way: the call, and its cancellation */
    hx_state state;        /* watch: the state in which the operation left the watched epoch */
    uint64_t epoch;        /* claim: the epoch drawn. watch: the epoch that ended; 0: the operation had another one */
} hx_journal_call;

typedef struct {
    struct hx_sqlite *store; /* NULL: the call has ended, and can't be cancelled any more */
    struct hx_store_call *next_cancel;
    uint64_t sequence, cancel_sequence;
    bool is_cancelled;
    bool is_notified;                 /* a watch that ends with the commit under way */
    uint64_t history_at, history_end; /* range of rows that a history has yet to read */
    hx_arena read;                    /* what the writer has read for a get or scan */
} hx_sqlite_call;

typedef struct {
    struct hx_lane *lane;
    uint64_t ticket;
    hx_ms since;
    bool was_sent;     /* sent in a round whose result never came: it may have been committed */
    bool is_alone;     /* the call was in a transaction that failed, and is sent alone now */
    bool is_watching;  /* a watch whose operation was found in processing */
    bool is_cancelled; /* a watch that ends with its read */
    bool has_more;     /* sweep: the last step found as many rows as it may */
} hx_remote_call;

#endif
