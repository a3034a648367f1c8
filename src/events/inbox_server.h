/* SPDX-License-Identifier: Apache-2.0 */
/* The inbox over HTTP: POST /inbox/SOURCE. It checks the signature, takes the event's id, and answers once the event is
 * durable. */
#ifndef HX_EVENTS_INBOX_SERVER_H
#define HX_EVENTS_INBOX_SERVER_H

#include "events/inbox.h"
#include "net/server.h"

typedef struct hx_inbox_server hx_inbox_server;

/* `sources` live as long as the server. */
hx_inbox_server *hx_inbox_server_new(hx_loop *loop, hx_engine *engine, const hx_source *sources, size_t count);
bool hx_inbox_server_listen(hx_inbox_server *server, hx_slice address, char bound[HX_ADDRESS_BYTES],
                            hx_error_text error) HX_MUST_USE;
/* Calls `stopped`, perhaps at once, when every request is answered. */
void hx_inbox_server_stop(hx_inbox_server *server, void (*stopped)(void *context), void *context);
void hx_inbox_server_free(hx_inbox_server **owned);

#endif
