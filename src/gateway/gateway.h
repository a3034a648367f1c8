/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway: serves the requests that the listeners of each worker accept. */
#ifndef HX_GATEWAY_GATEWAY_H
#define HX_GATEWAY_GATEWAY_H

#include "core/retry/retry_budget.h"
#include "gateway/parts/limiter.h"
#include "gateway/parts/store_health.h"
#include "gateway/rules.h"
#include "gateway/parts/token_cache.h"
#include "net/server.h"
#include "net/upstream.h"
#include "store/store.h"

#include <stdatomic.h>

/* Shared by all workers; nothing in it changes while they run. */
typedef struct {
    hx_store *store;
    hx_limiter *limiter;
    hx_store_health *outage;                           /* NULL: not reported */
    void (*want_keys)(void *context, unsigned source); /* a token's key is in none of the sets: fetch them again. May be
                                                         * called on any thread, and often; NULL: none are fetched */
    void *keys_context;
    /* Requests under this path, which ends with a slash, are another part's. It gets them on the worker's loop, answers
     * and releases the stream there, and then calls `ended` with the worker. Empty: there is none. */
    struct {
        hx_slice path;
        void (*request)(void *context, hx_stream *stream, void (*ended)(void *worker), void *worker);
        void *context;
    } aside;
    unsigned worker_count; /* they share the floor of each upstream's retry budget */
    bool dev;
    uint64_t spool_bytes; /* request bodies above this go to an unlinked file */
    const char *spool_directory;
} hx_gateway;

typedef enum {
#define WORKER(name, ...) HX_COUNT_##name,
#include "observe/metrics.def"
    HX_COUNT_END
} hx_count_id;

/* One thread's part: its loop, its connections to the application, its requests. */
typedef struct hx_worker {
    const hx_gateway *gateway;
    hx_rules_use *use; /* what requests begin with */
    hx_loop *loop;
    hx_ms started_at;
    hx_server *server;
    hx_mac *mac;
    hx_token_cache tokens;
    /* The last caller and its MACs: clients send more than one request. */
    struct {
        char bytes[256]; /* principal, proof and Authorization, one after the other */
        size_t principal_len, proof_len, authorization_len;
        hx_digest principal, proof;
        bool known;
    } last;
    hx_upstream *upstreams[HX_UPSTREAMS_MAX];
    hx_retry_budget budgets[HX_UPSTREAMS_MAX]; /* of retries */
    _Atomic uint64_t counts[HX_COUNT_END];     /* written by this worker alone, read by any thread */
    uint64_t memory_used;                      /* by keyed requests, see memory.h */
    uint64_t memory_recording;                 /* by spooled answers while the store writes them */
    hx_ms memory_complained_at;
    hx_link requests;
    uint32_t request_count;
    struct {
        hx_link claims; /* of requests, the next one to renew first */
        hx_timer timer;
        uint32_t busy; /* renewals under way */
    } leases;
    bool draining;
    bool server_drained;
    void (*drained)(struct hx_worker *worker);
} hx_worker;

static inline void hx_worker_count(hx_worker *worker, hx_count_id id)
{
    uint64_t before = atomic_load_explicit(&worker->counts[id], memory_order_relaxed);
    atomic_store_explicit(&worker->counts[id], before + 1, memory_order_relaxed);
}

/* The handler for hx_server_new, with the worker as its app. */
extern const hx_server_handler hx_gateway_handler;

/* What a configuration allows the clients of one server. */
hx_server_limits hx_worker_server_limits(const hx_limits *limits, uint32_t connections_max);

/* Before its loop runs. The server and the upstreams are added by the caller, and freed by hx_worker_clear. */
void hx_worker_init(hx_worker *worker, const hx_gateway *gateway, hx_loop *loop, hx_rules *rules);
/* From now on, on its loop's thread: requests begin under these rules, and those under way keep theirs. */
void hx_worker_use(hx_worker *worker, hx_rules *rules);
/* Lets everything under way end, requests whose clients have gone too, then calls `drained`. */
void hx_worker_drain(hx_worker *worker, void (*drained)(hx_worker *worker));
void hx_worker_clear(hx_worker *worker);

#endif
