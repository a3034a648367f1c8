/* SPDX-License-Identifier: Apache-2.0 */
/* The tap: a listener on loopback, on our own loop, that sends every request on to the API. The gateway of
 * `hapax prove` has it as its upstream, so every request that reaches the API is counted, a gateway can be killed at a
 * chosen moment, and an API behind https can be used. */
#ifndef HX_CMD_PROVE_TAP_H
#define HX_CMD_PROVE_TAP_H

#include "net/client/client.h"
#include "net/server.h"

typedef struct {
    hx_loop *loop;
    hx_client *client;
    hx_slice origin; /* "https://api.example.com" */
    hx_ms timeout;
    hx_server *server;
    char url[HX_ADDRESS_BYTES + sizeof "http://"];
    unsigned received; /* requests that were sent on to the API */
    unsigned in_flight;
    bool loses_next; /* the next response is not passed on; its connection stays open */
    hx_stream *lost; /* the stream of such a response, until its client is gone */
} hx_prove_tap;

/* The caller has set the first four members. False with a sentence. */
bool hx_prove_tap_open(hx_prove_tap *tap, hx_error_text error) HX_MUST_USE;
/* After the client was freed. */
void hx_prove_tap_close(hx_prove_tap *tap);

#endif
