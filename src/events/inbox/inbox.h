/* SPDX-License-Identifier: Apache-2.0 */
/* The inbox: events of others, each stored once before its sender gets 200, and delivered to the application as any
 * delivery is.
 *
 *     new                                event and delivery, one commit ──► RECEIVED
 *     known, the same payload            nothing; if it is dead, it is armed again ──► DUPLICATE
 *     known, another payload             stored beside it, not delivered ──► HELD
 *     new id, a payload known lately,    stored, not delivered ──► HELD
 *       and the id isn't signed
 *
 * A source that `waits` gets the handler's own response, and only a success is kept. */
#ifndef HX_EVENTS_INBOX_INBOX_H
#define HX_EVENTS_INBOX_INBOX_H

#include "core/event/source.h"
#include "events/engine.h"

typedef enum {
    HX_INBOX_RECEIVED,
    HX_INBOX_DUPLICATE,
    HX_INBOX_HELD,
    HX_INBOX_BUSY,     /* the handler is at work on the same event */
    HX_INBOX_ANSWERED, /* a source that waits: `response` is the handler's */
    HX_INBOX_FULL,
    HX_INBOX_UNAVAILABLE /* it may have been stored or not */
} hx_inbox_result;

typedef struct hx_receipt {
    /* given by the caller; lives until `done` */
    hx_arena *arena;
    const hx_source *source;
    hx_event event; /* id, type, headers, content_type, correlation_id and data */
    bool id_is_signed;
    void (*done)(struct hx_receipt *receipt);
    /* given back */
    hx_inbox_result result;
    hx_attempt_result response;
    bool is_replay; /* HELD: the payload came before under another id, not another payload under this one */
    /* the engine's own */
    hx_engine *engine;
    hx_store_call call;
    hx_item items[3];
    hx_slice event_key, delivery_key, guard_key; /* an empty guard_key: there is none */
    hx_delivery delivery;
    hx_sending sending;
    hx_timer again;
    hx_ms wait_until;
    bool is_holding;
} hx_receipt;

/* Makes the source's application a recipient. `source` lives as long as the engine. Before hx_engine_start. */
void hx_engine_add_source(hx_engine *engine, const hx_source *source);
void hx_engine_receive(hx_engine *engine, hx_receipt *receipt);
/* Counts a request that was refused before it got here; on any thread. */
void hx_engine_note_refused(hx_engine *engine);

#endif
