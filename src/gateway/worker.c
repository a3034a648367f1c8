/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's own work besides requests: it renews the leases of its claims while their exchanges live, and drains. */
#include "gateway/gateway.h"

#include "base/check.h"
#include "base/log.h"
#include "gateway/request.h"
#include "gateway/parts/transactional.h"
#include "gateway/steps/steps.h"

#include <stdlib.h>
#include <string.h>

#define RENEW_AGAIN_MAX HX_SECOND /* after a renewal that failed */

/* One that is under way. */
struct hx_renewal {
    hx_store_call call;
    hx_arena arena;
    hx_worker *worker;
    hx_request *request; /* NULL: it has ended, or doesn't hold its lease any more */
    hx_ms since;
};

static void renew_due(hx_worker *worker);

static void lease_due(hx_timer *timer)
{
    renew_due(HX_OWNER(timer, hx_worker, leases.timer));
}

/* The claim may be another's by now. Half a request can't be executed; its other half, sent late, would make it whole
 * after somebody else was answered that it never happened. */
static void stop_sending(hx_request *r)
{
    /* A response that has begun doesn't mean that the request was sent whole. */
    bool is_open = r->exchange_state == HX_EXCHANGE_OPEN || r->exchange_state == HX_EXCHANGE_ANSWERING;
    if (!is_open || r->pass_kind == HX_PASS_SHADOW || hx_forward_sent_whole(r)) return;
    hx_request_call_off(r, r->exchange.bytes_sent > 0 ? HX_UPSTREAM_CANCELLED : HX_UPSTREAM_CONNECT_TIMEOUT);
}

/* The operation is settled, and its lease not to be renewed any more. Where the application does that itself, that is
 * as it should be. */
static void lost(hx_request *r, const hx_store_call *call)
{
    hx_worker_drop_lease(r);
    if (hx_mark_is_ours(r, &call->found)) return;
    hx_log_begin(HX_EVENT_lease_lost);
    hx_log_hex("operation", call->op.bytes, sizeof call->op.bytes);
    hx_log_int("epoch", (int64_t)call->epoch);
    hx_log_end();
    stop_sending(r);
}

/* Puts r where its renewal falls; most routes have the same lease, so that is the end. */
static void queue(hx_worker *worker, hx_request *r)
{
    hx_list_remove(&r->lease_link);
    hx_link *after = worker->leases.claims.prev;
    while (after != &worker->leases.claims && HX_OWNER(after, hx_request, lease_link)->renew_at > r->renew_at)
        after = after->prev;
    hx_list_append(after->next, &r->lease_link); /* before what follows `after` */
}

static hx_ms renew_again_after(const hx_request *r)
{
    return r->policy->lease / 10 < RENEW_AGAIN_MAX ? r->policy->lease / 10 : RENEW_AGAIN_MAX;
}

static void renew_done(hx_store_call *call)
{
    hx_renewal *renewal = HX_OWNER(call, hx_renewal, call);
    hx_worker *worker = renewal->worker;
    hx_request *r = renewal->request;
    if (r) {
        r->renewal = NULL;
        if (call->result == HX_STORE_STALE) {
            lost(r, call);
        } else {
            bool is_renewed = call->result == HX_STORE_OK;
            if (is_renewed && call->lease_until > r->lease_until) r->lease_until = call->lease_until;
            r->renew_at = renewal->since + (is_renewed ? r->policy->lease / 3 : renew_again_after(r));
            queue(worker, r);
        }
    }
    hx_arena_free(&renewal->arena);
    free(renewal);
    worker->leases.busy--;
    renew_due(worker);
    hx_worker_check_drained(worker);
}

static void renew(hx_request *r, hx_ms now)
{
    hx_worker *worker = r->worker;
    hx_renewal *renewal = calloc(1, sizeof *renewal);
    HX_CHECK(renewal != NULL);
    renewal->worker = worker;
    renewal->request = r;
    renewal->since = now;
    renewal->call = (hx_store_call){.loop = worker->loop, .arena = &renewal->arena, .done = renew_done};
    r->renewal = renewal;
    worker->leases.busy++;
    hx_store_renew(worker->gateway->store, &renewal->call, &r->op, r->record.epoch, now + r->policy->lease);
}

/* All that are due, so that a store that takes many at once gets them at once, and none waits for another's. What is
 * under way is looked at again when the lease ends. */
static void renew_due(hx_worker *worker)
{
    hx_ms now = hx_loop_now(worker->loop);
    while (!hx_list_empty(&worker->leases.claims)) {
        hx_request *r = HX_OWNER(worker->leases.claims.next, hx_request, lease_link);
        if (r->renew_at > now) {
            hx_timer *timer = &worker->leases.timer;
            if (!hx_timer_running(timer) || timer->due > r->renew_at)
                hx_timer_start(worker->loop, timer, r->renew_at - now, lease_due);
            return;
        }
        bool is_over = now >= r->lease_until;
        if (!r->renewal) renew(r, now);
        r->renew_at = is_over ? now + RENEW_AGAIN_MAX : r->lease_until;
        queue(worker, r);
        if (is_over) stop_sending(r);
    }
}

void hx_worker_keep_lease(hx_request *r)
{
    r->renew_at = hx_loop_now(r->worker->loop) + r->policy->lease / 3;
    queue(r->worker, r);
    renew_due(r->worker);
}

void hx_worker_drop_lease(hx_request *r)
{
    hx_list_remove(&r->lease_link);
    if (r->renewal) r->renewal->request = NULL;
    r->renewal = NULL;
}

static void let_go(hx_rules_use *use)
{
    if (use->is_current || use->requests > 0) return;
    hx_rules *rules = use->rules;
    free(use);
    if (atomic_fetch_sub(&rules->users, 1) == 1 && rules->unused) rules->unused(rules);
}

void hx_worker_use(hx_worker *worker, hx_rules *rules)
{
    hx_rules_use *before = worker->use;
    worker->use = malloc(sizeof *worker->use);
    HX_CHECK(worker->use != NULL);
    *worker->use = (hx_rules_use){.rules = rules, .is_current = true};
    if (!before) return;
    before->is_current = false;
    let_go(before);
}

void hx_request_take_rules(hx_request *r)
{
    r->use = r->worker->use;
    r->use->requests++;
}

void hx_request_drop_rules(hx_request *r)
{
    r->use->requests--;
    let_go(r->use);
    r->use = NULL;
}

hx_server_limits hx_worker_server_limits(const hx_limits *limits, uint32_t connections_max)
{
    return (hx_server_limits){.connections_max = connections_max,
                              .head_bytes_max = limits->head_bytes,
                              .fields_max = limits->headers,
                              .chunk_extension_bytes_max = 4096,
                              .head_timeout = limits->head_timeout,
                              .idle_timeout = limits->idle_timeout,
                              .body_rate_min = limits->body_rate_min,
                              .send_timeout = limits->send_timeout,
                              .send_rate_min = limits->send_rate_min};
}

void hx_worker_init(hx_worker *worker, const hx_gateway *gateway, hx_loop *loop, hx_rules *rules)
{
    *worker = (hx_worker){.gateway = gateway, .loop = loop, .started_at = hx_loop_now(loop)};
    hx_worker_use(worker, rules);
    for (size_t i = 0; i < HX_UPSTREAMS_MAX; i++)
        hx_retry_budget_init(&worker->budgets[i], gateway->worker_count ? gateway->worker_count : 1, hx_loop_now(loop));
    hx_list_init(&worker->requests);
    hx_list_init(&worker->leases.claims);
    worker->tokens.mac = worker->mac = hx_mac_new(hx_store_about(gateway->store)->secret);
    (void)hx_mac_short(worker->mac, 'K', HX_EMPTY); /* an OpenSSL that can't compute it ends the start, not a request */
}

void hx_worker_check_drained(hx_worker *worker)
{
    if (!worker->draining || !worker->server_drained || worker->request_count > 0 || worker->leases.busy > 0) return;
    worker->draining = false;
    worker->drained(worker);
}

static void server_drained(void *app)
{
    hx_worker *worker = app;
    worker->server_drained = true;
    hx_worker_check_drained(worker);
}

void hx_worker_drain(hx_worker *worker, void (*drained)(hx_worker *worker))
{
    worker->draining = true;
    worker->drained = drained;
    /* Requests that wait for a retry end now, and so do tunnels, which would never end by themselves. */
    for (hx_link *link = worker->requests.next, *next; link != &worker->requests; link = next) {
        hx_request *r = HX_OWNER(link, hx_request, link);
        next = link->next;
        if (r->step == HX_STEP_retry || hx_pass_is_tunnel(r)) hx_request_run(r);
    }
    hx_server_drain(worker->server, server_drained);
}

void hx_worker_clear(hx_worker *worker)
{
    hx_server_free(&worker->server);
    for (size_t i = 0; i < HX_UPSTREAMS_MAX; i++) hx_upstream_free(&worker->upstreams[i]);
    hx_mac_free(&worker->mac);
    if (worker->use) { /* NULL: it never came to be */
        worker->use->is_current = false;
        worker->use->requests = 0; /* a loop that ended in mid-flight took them along */
        let_go(worker->use);
        worker->use = NULL;
    }
    explicit_bzero(&worker->last, sizeof worker->last);
}
