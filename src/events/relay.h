/* SPDX-License-Identifier: Apache-2.0 */
/* The relay: publishes what applications have written to a transactional outbox in PostgreSQL (store/postgres/feed.h)
 * in their own transactions. */
#ifndef HX_EVENTS_RELAY_H
#define HX_EVENTS_RELAY_H

#include "events/engine.h"

typedef struct hx_relay hx_relay;

typedef struct {
    hx_loop *loop;
    hx_engine *engine;
    hx_slice name; /* for logs; lives as long as the relay */
    hx_slice url;  /* of the database that has the outbox */
} hx_relay_needs;

/* NULL with a sentence in `error`: the URL can't be used. Whether the database can be reached is logged later. */
hx_relay *hx_relay_new(const hx_relay_needs *needs, hx_error_text error) HX_MUST_USE;
void hx_relay_start(hx_relay *relay);
/* Calls `stopped`, perhaps at once, when nothing is under way any more. Before the engine is stopped. */
void hx_relay_stop(hx_relay *relay, void (*stopped)(void *context), void *context);
void hx_relay_free(hx_relay **owned);

#endif
