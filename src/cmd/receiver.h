/* SPDX-License-Identifier: Apache-2.0 */
/* An HTTP listener for commands that answer every request themselves: it reads whole bodies into memory, with a limit
 * for each and for all of them together, until SIGINT, SIGTERM or hx_receiver_end. Everything runs on the thread that
 * calls hx_receiver_run. */
#ifndef HX_CMD_RECEIVER_H
#define HX_CMD_RECEIVER_H

#include "net/server.h"

typedef struct hx_receiver hx_receiver;

/* Implemented by the command. */
typedef struct {
    hx_server_limits limits;
    size_t body_max;   /* bytes of one body */
    bool drops_rest;   /* bytes beyond body_max are read and dropped; else the request is refused with 413 */
    uint64_t held_max; /* bytes of all bodies in memory; a request beyond it is refused with 503 */
    /* A request and its whole body, which lives as long as the stream: to be answered and released. */
    void (*request)(void *app, hx_stream *stream, hx_slice body);
    /* A request that can't be read, to be answered with `status` and released, as `malformed` of net/server.h. With
     * status 0 the client left in the middle of its body. */
    void (*refused)(void *app, hx_stream *stream, unsigned status, const char *detail);
} hx_receiver_handler;

/* Listens, and from then on holds SIGINT and SIGTERM back for hx_receiver_run: call it before other threads exist. NULL
 * after a message on standard error: the address is malformed or in use. */
hx_receiver *hx_receiver_open(const char *command, const char *address) HX_MUST_USE;
/* "http://127.0.0.1:8090" or "unix:/path", with the real port. */
const char *hx_receiver_url(const hx_receiver *receiver);
/* Returns when it has ended, with every stream released. */
void hx_receiver_run(hx_receiver *receiver, const hx_receiver_handler *handler, void *app);
/* Ends it after the responses to requests that were read. Connections that are still open a second later are cut. */
void hx_receiver_end(hx_receiver *receiver);
void hx_receiver_free(hx_receiver **owned);

#endif
