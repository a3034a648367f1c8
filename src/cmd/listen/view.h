/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what `hapax listen` received, as text or as one JSON object a line. Nothing that came from the network reaches
 * standard output as it is: characters that a terminal would obey are written as \u001b, in JSON too. */
#ifndef HX_CMD_LISTEN_VIEW_H
#define HX_CMD_LISTEN_VIEW_H

#include "base/clock.h"
#include "net/http/message.h"

typedef struct {
    bool as_json;
    bool bodies;
    const char *scheme; /* of the signatures; NULL: none are verified */
} hx_received_view;

/* One request. */
typedef struct {
    hx_ms at;
    const hx_request_head *head; /* may be incomplete if the request was refused */
    hx_slice body;
    hx_slice id;        /* of the event; empty: it has none */
    uint32_t attempt;   /* how often this id was seen; 0: it has none */
    bool is_duplicate;  /* an earlier delivery of this id was acknowledged */
    bool is_refused;    /* it could not be read */
    const char *error;  /* a word: "refused", or why the signature is not verified; NULL: nothing is wrong */
    const char *detail; /* a sentence about it */
    uint32_t status;    /* of the response; 0: the sender left before it */
} hx_received;

typedef struct {
    uint64_t requests, ids, duplicates, verified, not_verified, refused;
} hx_received_counts;

void hx_received_begin(const hx_received_view *view, const char *url, unsigned status, unsigned fail);
void hx_received_show(const hx_received_view *view, const hx_received *received);
void hx_received_end(const hx_received_view *view, const hx_received_counts *counts);

#endif
