/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway of `hapax prove`: `hapax serve` in a process of its own, on a free port of loopback, with a store in a
 * temporary folder. It can be killed, and started again on the same store. */
#ifndef HX_CMD_PROVE_GATEWAY_H
#define HX_CMD_PROVE_GATEWAY_H

#include "base/fail.h"
#include "base/loop/loop.h"
#include "base/memory/buf.h"

#include <sys/types.h>

typedef struct {
    hx_loop *loop;
    hx_arena *arena;
    const char *directory, *upstream;
    pid_t pid;
    int log;
    hx_poll *poll;
    hx_buf log_text; /* the beginning of its log, until it listens */
    hx_slice url;    /* "http://127.0.0.1:41234"; empty: it does not listen */
} hx_prove_gateway;

/* Makes the configuration in the folder. The caller has set the first four members. */
bool hx_prove_gateway_configure(hx_prove_gateway *gateway, const char *guarantee, hx_ms timeout,
                                hx_error_text error) HX_MUST_USE;
/* Returns when it listens. False with a sentence. */
bool hx_prove_gateway_start(hx_prove_gateway *gateway, hx_error_text error) HX_MUST_USE;
/* kill -9. */
void hx_prove_gateway_kill(hx_prove_gateway *gateway);

#endif
