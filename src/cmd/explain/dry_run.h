/* SPDX-License-Identifier: Apache-2.0 */
/* A dry run: the gateway's own parser and its own first step (gateway/steps/admit.c) decide about a request, and their
 * decisions are kept to be explained. Nothing is stored and nothing is forwarded. MACs are made under an all-zero
 * secret, so that two dry runs can be compared with each other, and none with a store. */
#ifndef HX_CMD_EXPLAIN_DRY_RUN_H
#define HX_CMD_EXPLAIN_DRY_RUN_H

#include "gateway/parts/natural_key.h"
#include "gateway/parts/caller.h"
#include "gateway/request.h"
#include "jobs/jwks.h"
#include "net/h1/request_parser.h"

typedef enum {
    HX_DRY_MALFORMED, /* not an HTTP request that is served: `fault` */
    HX_DRY_REFUSED,   /* request->error and error_detail */
    HX_DRY_PROTECTED,
    HX_DRY_SHADOWED, /* forwarded unprotected; request->shadow says what protection would have done */
    HX_DRY_PASSED,
    HX_DRY_PREFLIGHT, /* answered by `cors` */
    HX_DRY_PUBLISHED  /* answered with the published policy */
} hx_dry_run_end;

typedef struct {
    hx_dry_run_end end;
    hx_h1_fault fault;
    hx_stream stream; /* holds the request's head; it has no connection */
    hx_slice body;
    hx_request *request; /* NULL for HX_DRY_MALFORMED */
    hx_caller_result caller_result;
    hx_caller caller;
    bool has_values; /* `values` has the parts of the natural key */
    bool has_key;    /* no part is missing */
    hx_template_values values;
    /* The gateway that the request runs in. */
    hx_loop *loop;
    hx_gateway gateway;
    hx_worker worker;
    hx_rules rules;
    hx_jwt_keys *keys[HX_JWT_SOURCES_MAX];
} hx_dry_run;

/* Reads and fetches the keys that verify tokens, as the daemon does. *jwks is NULL if the configuration has none; free
 * it with hx_jwks_free. On false `error` is a sentence. */
bool hx_dry_run_open_keys(const hx_config *config, hx_jwks **jwks, hx_error_text error) HX_MUST_USE;

/* `bytes`: one whole HTTP/1.1 request, head and body. */
hx_dry_run *hx_dry_run_bytes(const hx_config *config, hx_jwks *jwks, hx_slice bytes) HX_MUST_USE;
/* A request that was parsed already. `head` and `body` must outlive the dry run. A body longer than
 * hx_dry_run_body_max may be cut after that many bytes: the result is the same. */
hx_dry_run *hx_dry_run_parsed(const hx_config *config, hx_jwks *jwks, const hx_request_head *head,
                              hx_slice body) HX_MUST_USE;
/* A request that the parser refused. */
hx_dry_run *hx_dry_run_malformed(const hx_config *config, hx_h1_fault fault) HX_MUST_USE;
void hx_dry_run_free(hx_dry_run **owned);

/* One byte more than the longest body that any route protects and a dry run can take. */
size_t hx_dry_run_body_max(const hx_config *config);

#endif
