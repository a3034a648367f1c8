/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/parts/store_health.h"

#include "base/log.h"

static const struct {
    hx_log_event begins, ends;
} rows[] = {
#define X(id, begins, ends) {HX_EVENT_##begins, HX_EVENT_##ends},
#include "gateway/parts/store_health_states.def"
#undef X
};

void hx_health_failed(hx_store_health *outage, hx_health_id id, hx_slice route, hx_ms now)
{
    hx_health_state *state = &outage->states[id];
    atomic_store(&state->last, now);
    atomic_fetch_add(&state->count, 1);
    if (atomic_exchange(&state->on, true)) return;
    atomic_store(&state->began, now);
    hx_log_begin(rows[id].begins);
    if (route.len > 0) hx_log_str("route", route);
    hx_log_end();
}

void hx_health_over(hx_store_health *outage, hx_health_id id, hx_ms now)
{
    hx_health_state *state = &outage->states[id];
    if (!atomic_exchange(&state->on, false)) return;
    hx_log_begin(rows[id].ends);
    hx_log_int("failed_calls", (int64_t)atomic_exchange(&state->count, 0));
    hx_log_int("duration_ms", now - atomic_load(&state->began));
    hx_log_end();
}
