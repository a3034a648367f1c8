/* SPDX-License-Identifier: Apache-2.0 */
/* The inbox over HTTP: POST /inbox/SOURCE on its own listeners, or under another path on those of the gateway. It
 * checks the signature, takes the event's id, and answers once the event is durable. */
#ifndef HX_EVENTS_INBOX_INBOX_SERVER_H
#define HX_EVENTS_INBOX_INBOX_SERVER_H

#include "events/inbox/inbox.h"
#include "net/server.h"

typedef struct hx_inbox_server hx_inbox_server;

/* `sources` live as long as the server. */
hx_inbox_server *hx_inbox_server_new(hx_loop *loop, hx_engine *engine, const hx_source *sources, size_t count);
bool hx_inbox_server_listen(hx_inbox_server *server, hx_slice address, char bound[HX_ADDRESS_BYTES],
                            hx_error_text error) HX_MUST_USE;
/* The path of the requests that a gateway hands over, with a slash at its end; lives as long as the server. Before any
 * is handed over. */
void hx_inbox_server_set_path(hx_inbox_server *server, hx_slice path);
hx_slice hx_inbox_server_path(const hx_inbox_server *server);
/* Takes a request of a gateway (`context` is the server), on the stream's thread. The body is read there; the rest is
 * done on the engine's thread, and the answer is given on the stream's again. `ended` is called there when the stream
 * is released, perhaps at once. The engine must not be stopped before that. */
void hx_inbox_server_take(void *context, hx_stream *stream, void (*ended)(void *of), void *of);
/* Calls `stopped`, perhaps at once, when every request is answered. */
void hx_inbox_server_stop(hx_inbox_server *server, void (*stopped)(void *context), void *context);
void hx_inbox_server_free(hx_inbox_server **owned);

#endif
