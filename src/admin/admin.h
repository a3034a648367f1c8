/* SPDX-License-Identifier: Apache-2.0 */
/* An operator's way in: HTTP on a unix socket that only the daemon's own user can open, on the background loop. What
 * it answers is in routes.def; whatever changes something is in the operation's history with who asked and why. */
#ifndef HX_ADMIN_ADMIN_H
#define HX_ADMIN_ADMIN_H

#include "base/memory/buf.h"
#include "gateway/gateway.h"

typedef struct hx_admin hx_admin;

/* An operator's wish to have the configuration read again. */
typedef struct hx_admin_reload {
    /* given */
    bool accept_rescope;
    void (*done)(struct hx_admin_reload *reload); /* once, on the admin's loop, later */
    /* given back; `lines` until `done` returns */
    bool is_in_force;
    uint64_t generation;
    hx_slice lines;               /* what was wrong, or was accepted: one thing a line */
    struct hx_admin_reload *next; /* whose hands it is in */
} hx_admin_reload;

typedef struct {
    hx_loop *loop; /* attached to the store */
    hx_store *store;
    const hx_store_health *outage; /* NULL: nobody knows */
    hx_limiter *limiter;           /* what operators settle and forget changes quotas; NULL: there are none */
    const hx_rules *rules;         /* in force: see hx_admin_use */
    void (*reload)(void *context, hx_admin_reload *reload);
    unsigned (*generations)(void *context); /* of the rules that requests still use */
    void *context;
    const hx_worker *const *workers; /* for their counts */
    size_t worker_count;
} hx_admin_needs;

/* What `needs` points to lives as long as the admin. */
hx_admin *hx_admin_new(const hx_admin_needs *needs);
/* Before the loop runs. False with a sentence in `error`. */
bool hx_admin_listen(hx_admin *admin, hx_slice address, char error[512]) HX_MUST_USE;
/* From now on these are in force; on the loop's thread. */
void hx_admin_use(hx_admin *admin, const hx_rules *rules);
/* Takes no more requests and removes the socket; `stopped` is called once, perhaps at once, when none is under way. */
void hx_admin_stop(hx_admin *admin, void (*stopped)(void *context), void *context);
/* After its loop has ended. */
void hx_admin_free(hx_admin **owned);

/* docs/reference/admin.md */
void hx_admin_reference(hx_buf *out);

#endif
