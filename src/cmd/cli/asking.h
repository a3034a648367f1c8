/* SPDX-License-Identifier: Apache-2.0 */
/* One request to a daemon, on the caller's loop: its admin socket, or its API with a token. */
#ifndef HX_CMD_CLI_ASKING_H
#define HX_CMD_CLI_ASKING_H

#include "cmd/cli/ask_daemon.h"
#include "net/upstream.h"

typedef struct hx_asking {
    /* given by the caller, who has zeroed the rest */
    hx_arena *arena; /* lives until `done`; gets the response */
    hx_slice token;  /* empty: none */
    void (*done)(struct hx_asking *call);
    /* given back */
    bool is_whole; /* the response came; else `error` or `is_too_large` says why not */
    bool is_too_large;
    hx_upstream_error error;
    unsigned status;
    hx_buf body;
    /* its own */
    hx_exchange exchange;
} hx_asking;

/* The connections to the daemon at `address`, "unix:PATH" or "http://HOST:PORT". NULL with a sentence in `error`. */
hx_upstream *hx_asking_connect(hx_loop *loop, hx_slice address, hx_error_text error);
/* hx_exchange_cancel(&call->exchange) ends it early. */
void hx_asking_start(hx_upstream *daemon, hx_asking *call, const hx_admin_request *request);

#endif
