/* SPDX-License-Identifier: Apache-2.0 */
/* An operation may stand under another name than the one that this request would give it:
 *
 *     names    its route was several ones, and it began under the name of another
 *     buckets  its natural key has a date or a window, and it began just before a boundary: a retry that comes just
 *              after it means the same operation
 *
 * Both are looked up before anything is claimed. New operations begin under the route's identity and in the bucket of
 * now, always: what is adopted and then gone is not begun anew where nobody else would look for it. */
#include "gateway/natural.h"
#include "gateway/principal.h"
#include "gateway/request.h"

/* Whether something stands there; `recent`: that is under way, unknown or young. */
static bool stands(hx_request *r, const hx_op *op, bool recent)
{
    if (hx_op_eq(op, &r->op)) return false;
    if (hx_store_peek(r->worker->gateway->store, op, r->arena, &r->found) != HX_PEEK_FOUND) return false;
    if (r->found.state == HX_ABSENT) return false;
    return !recent || r->found.state == HX_PROCESSING || r->found.state == HX_UNKNOWN ||
           hx_loop_now(r->worker->loop) - r->found.created_at < r->policy->key.overlap;
}

/* Under which of the route's names; the first is its identity. */
static bool find_name(hx_request *r, hx_slice key, size_t first, bool recent, hx_op *found)
{
    const hx_policy *policy = r->policy;
    hx_operation_name name = {.principal = r->who, .key = key, .natural = r->natural};
    for (size_t i = first; i <= policy->formerly_count; i++) {
        name.route = i == 0 ? r->identity : i < policy->formerly_count ? policy->formerly[i] : policy->name;
        *found = hx_operation_of(policy, &name, r->worker->mac);
        if (stands(r, found, recent)) return true;
    }
    return false;
}

static bool look_under_other_names(hx_request *r)
{
    hx_op found;
    if (r->policy->formerly_count == 0 || !find_name(r, r->key, 1, false, &found)) return false;
    r->op = found;
    return true;
}

/* Without an overlap two buckets are two operations. */
static bool has_buckets(const hx_request *r)
{
    return r->natural && r->policy->key.from->has_bucket && r->policy->key.overlap > 0;
}

/* From the bucket of `newest` back to the one that ended `overlap` before our own key was made, but for the operation
 * that is ours by now. The configuration sees to it that there are few (HX_KEY_BUCKETS_MAX). */
static bool find_bucket(hx_request *r, hx_ms newest, hx_slice *key, hx_op *found)
{
    for (hx_ms at = newest;;) {
        hx_ms began = hx_template_bucket_began(r->policy->key.from, at);
        *key = hx_natural_key_at(r->policy, &r->key_fixed, at, r->worker->mac, r->arena);
        if (find_name(r, *key, 0, true, found)) return true;
        if (r->key_at - began >= r->policy->key.overlap) return false;
        at = began - 1;
    }
}

static void take(hx_request *r, hx_slice key, hx_op op)
{
    hx_admit_take_key(r, key);
    r->op = op; /* under whichever name */
}

static bool look_in_buckets(hx_request *r)
{
    hx_slice key;
    hx_op found;
    if (!has_buckets(r) || !find_bucket(r, r->key_at, &key, &found)) return false;
    take(r, key, found);
    return true;
}

bool hx_elsewhere_look(hx_request *r)
{
    if (r->elsewhere.state != HX_ELSEWHERE_NOT_LOOKED) return false;
    bool found = look_under_other_names(r) || look_in_buckets(r);
    r->elsewhere.state = found ? HX_ELSEWHERE_ADOPTED : HX_ELSEWHERE_NOTHING;
    return found;
}

void hx_elsewhere_come_back(hx_request *r)
{
    r->elsewhere.state = HX_ELSEWHERE_NOT_LOOKED;
    hx_admit_take_key(r, r->elsewhere.own_key);
}

/* Two requests on the two sides of a boundary may each have claimed before seeing the other. Now that our claim is
 * durable, one of us sees the other, or both do: who does gives way, so that at most one goes on. */
bool hx_elsewhere_must_yield(hx_request *r)
{
    if (!has_buckets(r) || r->taken_over) return false;   /* what may have happened is not given back */
    hx_ms now = hx_loop_now(r->worker->loop) + HX_SECOND; /* another thread's clock may be ahead of ours */
    return find_bucket(r, now, &r->elsewhere.other_key, &r->elsewhere.other_op);
}

void hx_elsewhere_yielded(hx_request *r)
{
    r->elsewhere.state = HX_ELSEWHERE_YIELDED;
    take(r, r->elsewhere.other_key, r->elsewhere.other_op);
}
