/* SPDX-License-Identifier: Apache-2.0 */
/* The admin API: HTTP on the background loop, by two ways. The unix socket, which only the daemon's own user and root
 * can open, grants every right; on the API's listeners each request needs a token. routes.def lists the requests; a
 * change of an operation is in its history, with the name of the user or the token, and the reason. */
#ifndef HX_ADMIN_ADMIN_H
#define HX_ADMIN_ADMIN_H

#include "base/fail.h"
#include "base/memory/buf.h"
#include "events/engine.h"
#include "gateway/gateway.h"

typedef struct hx_admin hx_admin;

/* A request to reload the configuration. */
typedef struct hx_admin_reload {
    /* given */
    bool accept_rescope;
    void (*done)(struct hx_admin_reload *reload); /* called once, on the admin's loop, never inside `reload` */
    /* results, valid until `done` returns */
    bool is_in_force;
    uint64_t generation;
    hx_slice lines;               /* the errors, or the changes that were accepted: one per line */
    struct hx_admin_reload *next; /* link of the queue of reloads */
} hx_admin_reload;

typedef struct {
    hx_loop *loop; /* attached to the store */
    hx_store *store;
    const hx_store_health *outage; /* NULL: not shown */
    hx_limiter *limiter;           /* quotas, which resolving and forgetting change; NULL: there are none */
    const hx_rules *rules;         /* the active rules; hx_admin_use replaces them */
    void (*reload)(void *context, hx_admin_reload *reload);
    unsigned (*generations)(void *context); /* number of generations of rules that requests still use */
    void *context;
    const hx_worker *const *workers; /* read for their metrics */
    size_t worker_count;
    uint32_t api_connections;
    hx_engine *engine; /* NULL: events are off */
    uint32_t payload_bytes_max;
    hx_ms schedule_max; /* how far ahead `deliver_at` may be */
} hx_admin_needs;

/* The pointers of `needs` must outlive the admin. */
hx_admin *hx_admin_new(const hx_admin_needs *needs);
/* Before the loop runs. False with a sentence in `error`. */
bool hx_admin_listen(hx_admin *admin, hx_slice address, hx_error_text error) HX_MUST_USE;
/* The same for the API, on TCP or a unix socket; more than once for several addresses. The store must keep items. */
bool hx_admin_listen_api(hx_admin *admin, hx_slice address, char bound[HX_ADDRESS_BYTES],
                         hx_error_text error) HX_MUST_USE;
/* These rules are active from now on; on the loop's thread. */
void hx_admin_use(hx_admin *admin, const hx_rules *rules);
/* Accepts no more requests and removes the socket; `stopped` is called once, perhaps inside this call, when none is in
 * flight. */
void hx_admin_stop(hx_admin *admin, void (*stopped)(void *context), void *context);
/* After its loop has ended. */
void hx_admin_free(hx_admin **owned);

/* docs/reference/admin.md */
void hx_admin_reference(hx_buf *out);
/* docs/reference/openapi.json: up to HX_ADMIN_OPENAPI_BYTES. */
void hx_admin_openapi(hx_buf *out);
#define HX_ADMIN_OPENAPI_BYTES (256u * 1024u)

#endif
