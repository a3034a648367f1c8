/* SPDX-License-Identifier: Apache-2.0 */
/* An operation may stand under another name than the one that this request would give it:
 *
 *     names    its route was several ones, and it began under the name of another
 *     buckets  its natural key has a date or a window, and it began just before a boundary: a retry that comes just
 *              after it means the same operation
 *
 * Both are looked up before anything is claimed. New operations begin under the route's identity and in the bucket of
 * now, always: what is adopted and then gone is not begun anew where nobody else would look for it. */
#include "gateway/parts/natural_key.h"
#include "gateway/parts/caller.h"
#include "gateway/parts/memory_budget.h"

/* How far the clocks of two nodes may be apart that share a store; within one process it is those of two threads. */
#define NODES_APART (30 * HX_SECOND)

static hx_store *store_of(const hx_request *r)
{
    return r->worker->gateway->store;
}

/* The moment up to which another one's natural key may have been made by now. */
static hx_ms ahead_of(const hx_request *r, hx_ms at)
{
    return at + (hx_store_about(store_of(r))->shared ? NODES_APART : HX_SECOND);
}

static hx_looked ask(hx_request *r, const hx_op *op)
{
    r->elsewhere.is_asking = true;
    r->call = (hx_store_call){0};
    hx_request_prepare_call(r);
    hx_store_read(store_of(r), &r->call, op);
    return HX_LOOKED_ASKING;
}

/* Whether something stands there, or what the store said when it was asked; `recent`: that is under way, unknown or
 * young. */
static hx_looked look_at(hx_request *r, const hx_op *op, bool recent)
{
    if (r->elsewhere.is_asking) {
        r->elsewhere.is_asking = false;
        if (r->call.result != HX_STORE_OK) return HX_LOOKED_IN_VAIN;
        r->found = r->call.found;
    } else {
        if (hx_op_eq(op, &r->op)) return HX_LOOKED_NOTHING;
        hx_peek peek = hx_memory_peek(r, op);
        if (peek == HX_PEEK_ASK) return ask(r, op);
        if (peek == HX_PEEK_ABSENT) return HX_LOOKED_NOTHING;
    }
    if (r->found.state == HX_ABSENT) return HX_LOOKED_NOTHING;
    bool counts = !recent || r->found.state == HX_PROCESSING || r->found.state == HX_UNKNOWN ||
                  hx_loop_now(r->worker->loop) - r->found.created_at < r->policy->key.overlap;
    return counts ? HX_LOOKED_FOUND : HX_LOOKED_NOTHING;
}

/* Under which of the route's names, from the one at which the look is; the first is its identity. */
static hx_looked find_name(hx_request *r, hx_slice key, bool recent, hx_op *found)
{
    const hx_policy *policy = r->policy;
    hx_operation_name name = {.principal = r->who, .key = key, .host = r->host, .natural = r->natural};
    for (; r->elsewhere.name <= policy->formerly_count; r->elsewhere.name++) {
        size_t i = r->elsewhere.name;
        name.route = i == 0 ? r->identity : i < policy->formerly_count ? policy->formerly[i] : policy->name;
        *found = hx_operation_of(policy, &name, r->worker->mac);
        hx_looked looked = look_at(r, found, recent);
        if (looked != HX_LOOKED_NOTHING) return looked;
    }
    return HX_LOOKED_NOTHING;
}

static hx_looked look_under_other_names(hx_request *r)
{
    hx_op found;
    if (r->policy->formerly_count == 0 || r->elsewhere.in_buckets) return HX_LOOKED_NOTHING;
    if (!r->elsewhere.is_asking) r->elsewhere.name = 1;
    hx_looked looked = find_name(r, r->key, false, &found);
    if (looked == HX_LOOKED_FOUND) r->op = found;
    return looked;
}

/* Without an overlap two buckets are two operations. */
static bool has_buckets(const hx_request *r)
{
    return r->natural && r->policy->key.from->has_bucket && r->policy->key.overlap > 0;
}

/* From the bucket of `newest` back to the one that ended `overlap` before our own key was made, but for the operation
 * that is ours by now; or on from where the store was asked. The configuration sees to it that there are few
 * (HX_KEY_BUCKETS_MAX). */
static hx_looked find_bucket(hx_request *r, hx_ms newest, hx_slice *key, hx_op *found)
{
    if (!r->elsewhere.is_asking) {
        r->elsewhere.in_buckets = true;
        r->elsewhere.at = newest;
        r->elsewhere.name = 0;
    }
    for (;;) {
        hx_ms began = hx_template_bucket_began(r->policy->key.from, r->elsewhere.at);
        *key = hx_natural_key_at(r->policy, &r->key_fixed, r->elsewhere.at, r->worker->mac, r->arena);
        hx_looked looked = find_name(r, *key, true, found);
        if (looked == HX_LOOKED_ASKING) return looked;
        bool is_last = r->key_at - began >= r->policy->key.overlap;
        r->elsewhere.in_buckets = looked == HX_LOOKED_NOTHING && !is_last;
        if (!r->elsewhere.in_buckets) return looked;
        r->elsewhere.at = began - 1;
        r->elsewhere.name = 0;
    }
}

static void take(hx_request *r, hx_slice key, hx_op op)
{
    hx_admit_take_key(r, key);
    r->op = op; /* under whichever name */
}

static hx_looked look_in_buckets(hx_request *r)
{
    hx_slice key;
    hx_op found;
    if (!has_buckets(r)) return HX_LOOKED_NOTHING;
    bool is_shared = hx_store_about(store_of(r))->shared;
    hx_looked looked = find_bucket(r, is_shared ? ahead_of(r, r->key_at) : r->key_at, &key, &found);
    if (looked == HX_LOOKED_FOUND) take(r, key, found);
    return looked;
}

hx_looked hx_aliases_look(hx_request *r)
{
    if (r->elsewhere.state != HX_ALIASES_NOT_LOOKED) return HX_LOOKED_NOTHING;
    hx_looked looked = look_under_other_names(r);
    if (looked == HX_LOOKED_NOTHING) looked = look_in_buckets(r);
    if (looked == HX_LOOKED_FOUND) r->elsewhere.state = HX_ALIASES_ADOPTED;
    if (looked == HX_LOOKED_NOTHING) r->elsewhere.state = HX_ALIASES_NOTHING;
    return looked;
}

hx_looked hx_aliases_look_once_more(hx_request *r)
{
    if (!r->elsewhere.is_asking) {
        hx_peek peek = hx_memory_peek(r, &r->op);
        if (peek == HX_PEEK_ASK) return ask(r, &r->op);
        return peek == HX_PEEK_FOUND && r->found.state != HX_ABSENT ? HX_LOOKED_FOUND : HX_LOOKED_NOTHING;
    }
    return look_at(r, &r->op, false);
}

void hx_aliases_come_back(hx_request *r)
{
    r->elsewhere.state = HX_ALIASES_NOT_LOOKED;
    hx_admit_take_key(r, r->elsewhere.own_key);
}

/* Two requests on the two sides of a boundary may each have claimed before seeing the other. Now that our claim is
 * durable, one of us sees the other, or both do: who does gives way, so that at most one goes on. */
hx_looked hx_aliases_must_yield(hx_request *r)
{
    if (!has_buckets(r) || r->taken_over_epoch > 0)
        return HX_LOOKED_NOTHING; /* what may have happened is not given back */
    hx_ms newest = ahead_of(r, hx_loop_now(r->worker->loop));
    return find_bucket(r, newest, &r->elsewhere.other_key, &r->elsewhere.other_op);
}

void hx_aliases_yielded(hx_request *r)
{
    r->elsewhere.state = HX_ALIASES_YIELDED;
    take(r, r->elsewhere.other_key, r->elsewhere.other_op);
}
