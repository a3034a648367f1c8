/* SPDX-License-Identifier: Apache-2.0 */
/* What the gateway makes of a request that nobody sent: its own parser reads the bytes, its own first step (gateway/
 * admit.c) decides, and everything it decided is left there to look at. Nothing is stored and nothing is sent. The MACs
 * are made under no secret, so that two rehearsals can be compared with each other, and none with a store. */
#ifndef HX_CMD_EXPLAIN_DRY_RUN_H
#define HX_CMD_EXPLAIN_DRY_RUN_H

#include "gateway/parts/natural_key.h"
#include "gateway/parts/caller.h"
#include "gateway/request.h"
#include "jobs/jwks.h"
#include "net/h1/request_parser.h"

typedef enum {
    HX_REHEARSED_MALFORMED, /* what came is no HTTP request: `fault` */
    HX_REHEARSED_REFUSED,   /* request->error and error_detail */
    HX_REHEARSED_PROTECTED,
    HX_REHEARSED_SHADOWED, /* sent as it is; request->shadow says what protecting it would have done */
    HX_REHEARSED_PASSED,
    HX_REHEARSED_PUBLISHED /* the routes' rules are the answer */
} hx_rehearsed;

typedef struct {
    hx_rehearsed end;
    hx_h1_fault fault;
    hx_stream stream; /* with the request's head */
    hx_slice body;
    hx_request *request; /* NULL where malformed */
    hx_caller_result caller_result;
    hx_caller caller;
    bool has_values; /* of its natural key */
    bool has_key;    /* none of them is missing */
    hx_template_values values;
    /* what it is played with */
    hx_loop *loop;
    hx_gateway gateway;
    hx_worker worker;
    hx_rules rules;
    hx_jwks *jwks;
    hx_jwt_keys *keys[HX_JWT_SOURCES_MAX];
} hx_dry_run;

/* `bytes`: head and body as they would come, and nothing behind them. Keys that verify tokens are read and fetched as
 * the daemon does. NULL with a sentence in `error` when they can't be read. */
hx_dry_run *hx_rehearse(const hx_config *config, hx_slice bytes, char error[HX_JWKS_ERROR_BYTES]) HX_MUST_USE;
void hx_dry_run_free(hx_dry_run **owned);

#endif
