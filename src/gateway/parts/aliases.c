/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/parts/aliases.h"

#include "gateway/parts/caller.h"
#include "gateway/parts/memory_budget.h"
#include "gateway/parts/natural_key.h"
#include "gateway/parts/fingerprinting.h"

/* How far apart the clocks of two nodes on a shared store may be; within one process, those of two threads. */
#define NODES_APART (30 * HX_SECOND)

static hx_store *store_of(const hx_request *r)
{
    return r->worker->gateway->store;
}

/* The newest moment at which somebody else may have made a natural key by `at`. */
static hx_ms ahead_of(const hx_request *r, hx_ms at)
{
    return at + (hx_store_about(store_of(r))->shared ? NODES_APART : HX_SECOND);
}

static hx_looked ask(hx_request *r, const hx_op *op)
{
    hx_store_read(store_of(r), hx_request_prepare_call(r), op);
    return HX_LOOKED_ASKING;
}

/* Looks at one operation, or at what the store answered about it. `recent`: a settled one counts only as long as the
 * buckets overlap. */
static hx_looked look_at(hx_request *r, const hx_op *op, bool recent)
{
    if (hx_request_take_result(r)) {
        if (r->call->result != HX_STORE_OK) return HX_LOOKED_FAILED;
        r->found = r->call->found;
    } else {
        if (hx_op_eq(op, &r->op)) return HX_LOOKED_NOTHING;
        hx_peek peek = hx_memory_peek(r, op);
        if (peek == HX_PEEK_ASK) return ask(r, op);
        if (peek == HX_PEEK_ABSENT) return HX_LOOKED_NOTHING;
    }
    if (r->found.state == HX_ABSENT) return HX_LOOKED_NOTHING;
    bool counts = !recent || r->found.state == HX_PROCESSING || r->found.state == HX_UNKNOWN ||
                  hx_loop_now(r->worker->loop) - r->found.created_at < r->policy->key.overlap;
    if (!counts) r->found.state = HX_ABSENT; /* it is another operation */
    return counts ? HX_LOOKED_FOUND : HX_LOOKED_NOTHING;
}

/* Looks under the route's names from alias.name on; the first is its identity. */
static hx_looked search_names(hx_request *r, hx_slice key, bool recent, hx_op *found)
{
    const hx_policy *policy = r->policy;
    hx_operation_name name = {.principal = r->principal, .key = key, .host = r->host, .natural = r->natural};
    for (; r->alias.name <= policy->formerly_count; r->alias.name++) {
        size_t i = r->alias.name;
        name.route = i == 0 ? r->identity : i < policy->formerly_count ? policy->formerly[i] : policy->name;
        *found = hx_operation_of(policy, &name, r->worker->mac);
        hx_looked looked = look_at(r, found, recent);
        if (looked != HX_LOOKED_NOTHING) return looked;
    }
    return HX_LOOKED_NOTHING;
}

/* Looks from the bucket of `newest` back to the one that ended `overlap` before our own key was made, except for the
 * operation that r->op is; or goes on from where the store was asked. The configuration keeps the number of buckets
 * small (HX_KEY_BUCKETS_MAX). */
static hx_looked search_buckets(hx_request *r, hx_ms newest, hx_slice *key, hx_op *found)
{
    if (r->call_state != HX_CALL_BACK) {
        r->alias.bucket_at = newest;
        r->alias.name = 0;
    }
    for (;;) {
        hx_ms began = hx_template_bucket_began(r->policy->key.from, r->alias.bucket_at);
        *key = hx_natural_key_at(r->policy, &r->key_fixed, r->alias.bucket_at, r->worker->mac, r->arena);
        hx_looked looked = search_names(r, *key, true, found);
        if (looked == HX_LOOKED_ASKING) return looked;
        bool is_last = r->key_at - began >= r->policy->key.overlap;
        r->alias.name = 0;
        r->alias.bucket_at = looked == HX_LOOKED_NOTHING && !is_last ? began - 1 : 0;
        if (r->alias.bucket_at == 0) return looked;
    }
}

static void adopt(hx_request *r, hx_slice key, hx_op op)
{
    hx_fingerprinting_take_key(r, key);
    r->op = op; /* which may be under a former name */
}

bool hx_aliases_may_collide(const hx_request *r)
{
    return r->natural && r->policy->key.from->has_bucket && r->policy->key.overlap > 0;
}

bool hx_aliases_exist(const hx_request *r)
{
    return r->policy->formerly_count > 0 || hx_aliases_may_collide(r);
}

hx_looked hx_aliases_search(hx_request *r)
{
    hx_slice key = r->key;
    hx_op found;
    hx_looked looked = HX_LOOKED_NOTHING;
    if (r->policy->formerly_count > 0 && r->alias.bucket_at == 0) {
        if (r->call_state != HX_CALL_BACK) r->alias.name = 1;
        looked = search_names(r, key, false, &found);
        if (looked == HX_LOOKED_FOUND) r->op = found;
    }
    if (looked == HX_LOOKED_NOTHING && hx_aliases_may_collide(r)) {
        hx_ms newest = hx_store_about(store_of(r))->shared ? ahead_of(r, r->key_at) : r->key_at;
        looked = search_buckets(r, newest, &key, &found);
        if (looked == HX_LOOKED_FOUND) adopt(r, key, found);
    }
    if (looked == HX_LOOKED_FOUND) r->alias.state = HX_ALIAS_ADOPTED;
    return looked;
}

hx_looked hx_aliases_read_again(hx_request *r)
{
    if (r->call_state == HX_CALL_BACK) return look_at(r, &r->op, false);
    hx_peek peek = hx_memory_peek(r, &r->op);
    if (peek == HX_PEEK_ASK) return ask(r, &r->op);
    return peek == HX_PEEK_FOUND && r->found.state != HX_ABSENT ? HX_LOOKED_FOUND : HX_LOOKED_NOTHING;
}

void hx_aliases_drop(hx_request *r)
{
    r->alias.state = HX_ALIAS_OWN;
    hx_fingerprinting_take_key(r, r->alias.own_key);
}

/* Two requests on the two sides of a boundary may each have claimed before seeing the other. Now that our claim is
 * durable, at least one of us sees the other and gives way, so that at most one goes on. */
hx_looked hx_aliases_find_rival(hx_request *r)
{
    hx_ms newest = ahead_of(r, hx_loop_now(r->worker->loop));
    return search_buckets(r, newest, &r->alias.rival_key, &r->alias.rival_op);
}

void hx_aliases_adopt_rival(hx_request *r)
{
    r->alias.state = HX_ALIAS_YIELDED;
    adopt(r, r->alias.rival_key, r->alias.rival_op);
}
