/* SPDX-License-Identifier: Apache-2.0 */
/* A rehearsal in words: what `hapax explain` says, before it is laid out for people or for programs. Credentials are
 * shown by their beginnings only. */
#ifndef HX_CMD_EXPLAIN_COLLECT_H
#define HX_CMD_EXPLAIN_COLLECT_H

#include "cmd/explain/dry_run.h"

#include <stdio.h>

#define HX_NEAR_ROUTES_MAX 5u

/* A route that stands before the one that was found, or after it, and has something to do with the request. */
typedef struct {
    hx_slice name;
    hx_slice match; /* "POST /refunds/{id}" */
    hx_slice why;   /* what doesn't fit */
} hx_near_route;

typedef struct {
    hx_slice text;  /* "{body:/phone}" */
    hx_slice value; /* shortened where it is a credential */
} hx_key_part;

typedef struct {
    hx_slice method, path; /* as it is matched */
    /* The route; number 0: none, so the defaults. */
    hx_slice route, match;
    size_t number, count;
    hx_near_route near[HX_NEAR_ROUTES_MAX];
    size_t near_count;
    hx_near_route behind[HX_NEAR_ROUTES_MAX]; /* these would match too, if it were not for the one that was found */
    size_t behind_count;
    /* The key. */
    const char *key_from; /* "header", "template" or "none" */
    hx_slice key;         /* in clear, or the hexadecimal text of a natural one under no secret */
    hx_slice key_rule;    /* "16 to 255 characters", or the template */
    hx_key_part parts[HX_TEMPLATE_PARTS_MAX];
    size_t part_count;
    /* Who. */
    const char *principal_kind; /* "none": nobody */
    hx_slice principal;
    bool verified;
    hx_slice verified_by; /* "jwks.json", or why not */
    bool has_proof;
    hx_slice proof;
    /* What counts. */
    bool has_fingerprint;
    char fingerprint[65];
    char operation[33];
    hx_slice counted;    /* "method, path, query, …" */
    const char *body_as; /* "canonical JSON" */
    hx_slice body;       /* the beginning */
    size_t body_len;
    char body_sha256[65];
    /* What becomes of it. */
    const char *does; /* "protects", "passes", "refuses", "shadows", "publishes" */
    hx_slice why;
    bool has_error;
    const hx_error_row *error;
    unsigned status;
    hx_slice detail;
} hx_explanation;

/* What it says lives in the rehearsal's arena and in the configuration. */
void hx_explain(hx_dry_run *rehearsal, hx_explanation *out);

void hx_explain_text(const hx_dry_run *rehearsal, const hx_explanation *explanation, FILE *out);
void hx_explain_json(const hx_dry_run *rehearsal, const hx_explanation *explanation, hx_buf *out);

#endif
