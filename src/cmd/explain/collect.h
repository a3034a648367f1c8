/* SPDX-License-Identifier: Apache-2.0 */
/* The explanation of a dry run, from which text or JSON is printed. Of credentials it has only the beginning. */
#ifndef HX_CMD_EXPLAIN_COLLECT_H
#define HX_CMD_EXPLAIN_COLLECT_H

#include "cmd/explain/dry_run.h"

#include <stdio.h>

#define HX_NEAR_ROUTES_MAX 5u

/* Another route that nearly matches, or that would match if an earlier one didn't. */
typedef struct {
    hx_slice name;
    hx_slice match; /* "POST /refunds/{id}" */
    hx_slice why;   /* the first difference */
} hx_near_route;

typedef struct {
    hx_slice text;  /* "{body:/phone}" */
    hx_slice value; /* cut; masked if it is a credential */
} hx_key_part;

typedef struct {
    hx_slice method, path; /* the path normalised, as routes match it */
    /* The matching route; number 0: none matches, the defaults apply. */
    hx_slice route, match;
    size_t number, count;
    hx_near_route near[HX_NEAR_ROUTES_MAX];
    size_t near_count;
    hx_near_route behind[HX_NEAR_ROUTES_MAX]; /* later routes that match too */
    size_t behind_count;
    /* The key. */
    const char *key_from; /* "header", "template" or "none" */
    hx_slice key;         /* the header's value, or the MAC of a natural key in hexadecimal */
    hx_slice key_rule;    /* "16 to 255 characters", or the template */
    hx_key_part parts[HX_TEMPLATE_PARTS_MAX];
    size_t part_count;
    /* The caller. */
    const char *principal_kind; /* "none": unauthenticated */
    hx_slice principal;
    bool verified;
    hx_slice verified_by; /* "jwks.json (2 keys)" */
    bool has_proof;
    hx_slice proof;
    /* The fingerprint. */
    bool has_fingerprint;
    char fingerprint[65];
    char operation[33];
    hx_slice counted;    /* "method, path, query, …" */
    const char *body_as; /* "canonical JSON" */
    hx_slice body;       /* its beginning */
    size_t body_len;
    char body_sha256[65];
    /* The verdict. */
    const char *does; /* "protects", "passes", "refuses", "shadows", "answers", "publishes" */
    hx_slice why;
    bool has_error;
    const hx_error_row *error;
    unsigned status;
    hx_slice detail;
} hx_explanation;

/* *out points into the dry run's arena and the configuration. */
void hx_explain(hx_dry_run *run, hx_explanation *out);

void hx_explain_text(const hx_dry_run *run, const hx_explanation *explanation, FILE *out);
void hx_explain_json(const hx_dry_run *run, const hx_explanation *explanation, hx_buf *out);
/* Bytes that hx_explain_json can need. */
size_t hx_explain_json_max(const hx_config *config);

#endif
