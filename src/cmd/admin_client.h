/* SPDX-License-Identifier: Apache-2.0 */
/* Asking a running daemon on its admin socket: one request, one whole answer. */
#ifndef HX_CMD_ADMIN_CLIENT_H
#define HX_CMD_ADMIN_CLIENT_H

#include "base/arena.h"

typedef struct {
    unsigned status;
    hx_slice body;
} hx_admin_reply;

#define HX_ADMIN_ERROR_BYTES 512u

/* `address`: "unix:/var/lib/hapax/admin.sock". `method` and `target` as they go on the wire; an empty body is none.
 * False when no answer came, with a sentence in `error` that says why and what to do. Waits as long as it takes. */
bool hx_admin_ask(hx_slice address, const char *method, hx_slice target, hx_slice body, hx_arena *arena,
                  hx_admin_reply *reply, char error[HX_ADMIN_ERROR_BYTES]) HX_MUST_USE;

#endif
