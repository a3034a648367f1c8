/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the cases of `hapax prove`: sends the requests of one case, directly ("bare") or through the gateway, and notes
 * what came of them. It blocks; everything is on one loop. */
#ifndef HX_CMD_PROVE_PROVER_H
#define HX_CMD_PROVE_PROVER_H

#include "cmd/prove/gateway.h"
#include "cmd/prove/tap.h"
#include "cmd/prove/verdict.h"

/* What to send, and how to count what it did. All texts live as long as the prover. */
typedef struct {
    hx_slice method, url;
    hx_slice origin, target; /* the parts of the URL: "https://api.example.com" and "/refunds" */
    hx_slice header_lines;   /* each "Name: value\r\n" */
    hx_slice body;
    hx_slice changed;      /* the body of the mismatch; empty: that case is left out */
    const char *id;        /* JSON pointer into a response; NULL: none */
    const char *count_url; /* GET; {key} is replaced by the key. NULL: effects are not counted */
    const char *count_at;  /* JSON pointer into its response: a number, or an array whose elements are counted */
    const char *crash;     /* shell command that kills the API and starts it again; NULL: none */
    const char *guarantee; /* of the API, for the gateway */
    const char *ca_file;
    hx_ms timeout;
} hx_prove_plan;

typedef enum { HX_PROVE_BARE, HX_PROVE_HAPAX, HX_PROVE_WAYS } hx_prove_way;

typedef struct {
    const hx_prove_plan *plan;
    hx_arena *arena;
    hx_loop *loop;
    hx_client *client;
    hx_guard guard;
    hx_network everything[2];
    hx_prove_tap tap;
    hx_prove_gateway gateway;
    const char *directory;            /* of the gateway; NULL: none */
    hx_ms longest;                    /* that a response took */
    const hx_client_request *awaited; /* of which it is waited that it was sent; NULL: none */
} hx_prover;

/* Requests that a case sends at most, one way. */
unsigned hx_prover_requests_max(hx_prove_case which);

/* Starts the gateway, unless only the bare API is wanted. False with a sentence; close it in either case. */
bool hx_prover_open(hx_prover *prover, bool with_gateway, hx_error_text error) HX_MUST_USE;
/* Kills the gateway and removes its folder. */
void hx_prover_close(hx_prover *prover);
/* Runs one case. False with a sentence: nothing more can be found out. */
bool hx_prover_run(hx_prover *prover, hx_prove_way way, hx_prove_case which, hx_prove_seen *seen,
                   hx_error_text error) HX_MUST_USE;

#endif
