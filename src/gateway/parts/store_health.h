/* SPDX-License-Identifier: Apache-2.0 */
/* Says once that requests are refused for the store's sake, and once that they no longer are, however many requests
 * find out. All workers tell it how their calls ended; it costs a load or two as long as all is well. */
#ifndef HX_GATEWAY_PARTS_STORE_HEALTH_H
#define HX_GATEWAY_PARTS_STORE_HEALTH_H

#include "store/store.h"

#include <stdatomic.h>

/* An outage is over when a call succeeds and none has failed for so long: one bad connection among good ones doesn't
 * fill the log. */
#define HX_STORE_HEALTH_QUIET (5 * HX_SECOND)

typedef enum {
#define X(id, begins, ends) HX_STORE_HEALTH_##id,
#include "gateway/parts/store_health_states.def"
#undef X
    HX_STORE_HEALTH_END
} hx_health_id;

typedef struct {
    atomic_bool on;
    _Atomic hx_ms began, last; /* calls that failed */
    _Atomic uint64_t count;
} hx_health_state;

typedef struct {
    hx_health_state states[HX_STORE_HEALTH_END];
    /* RULES: what the claim went by that was refused last. They are compared, never followed. */
    _Atomic(const void *) older_policies, older_policy;
} hx_store_health;

/* `route` is empty where the state is not that of one route. */
void hx_health_failed(hx_store_health *outage, hx_health_id id, hx_slice route, hx_ms now);
/* Ends the state at once, if it is on. */
void hx_health_over(hx_store_health *outage, hx_health_id id, hx_ms now);

static inline void hx_health_succeeded(hx_store_health *outage, hx_health_id id, hx_ms now)
{
    if (now - atomic_load(&outage->states[id].last) >= HX_STORE_HEALTH_QUIET) hx_health_over(outage, id, now);
}

static inline void hx_health_tell(hx_store_health *outage, hx_health_id id, bool failed, hx_ms now)
{
    if (failed)
        hx_health_failed(outage, id, HX_EMPTY, now);
    else if (atomic_load_explicit(&outage->states[id].on, memory_order_relaxed))
        hx_health_succeeded(outage, id, now);
}

/* Any thread. `outage` NULL: not reported. */
static inline void hx_health_note(hx_store_health *outage, const hx_store_call *call, hx_ms now)
{
    hx_store_result result = call->result;
    if (!outage || result == HX_STORE_CANCELLED) return;
    hx_health_tell(outage, HX_STORE_HEALTH_UNAVAILABLE, result == HX_STORE_UNAVAILABLE, now);
    /* Only a claim needs space, so only claims say whether the store is full. */
    if (call->verb == HX_STORE_CLAIM && (result == HX_STORE_FULL || result == HX_STORE_OK))
        hx_health_tell(outage, HX_STORE_HEALTH_FULL, result == HX_STORE_FULL, now);
    if (call->verb == HX_STORE_WATCH) hx_health_tell(outage, HX_STORE_HEALTH_WAITERS, result == HX_STORE_FULL, now);
}

/* A claim succeeded. Of older rules that says something if it is of the route that was refused, or under rules that are
 * not those which were older: other routes of theirs are served all the time. */
static inline void hx_health_note_rules(hx_store_health *outage, const void *policies, const void *policy, hx_ms now)
{
    if (!outage || !atomic_load_explicit(&outage->states[HX_STORE_HEALTH_RULES].on, memory_order_relaxed)) return;
    if (policy == atomic_load(&outage->older_policy) || policies != atomic_load(&outage->older_policies))
        hx_health_succeeded(outage, HX_STORE_HEALTH_RULES, now);
}

#endif
