/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/outage.h"

#include "base/log.h"

void hx_outage_failed(hx_outage *outage, hx_ms now)
{
    atomic_store(&outage->last, now);
    atomic_fetch_add(&outage->count, 1);
    if (atomic_exchange(&outage->on, true)) return;
    atomic_store(&outage->began, now);
    hx_log_begin(HX_LOG_WARN, "calls to the store fail: requests that need it get 503");
    hx_log_end();
}

void hx_outage_succeeded(hx_outage *outage, hx_ms now)
{
    if (now - atomic_load(&outage->last) < HX_OUTAGE_QUIET || !atomic_exchange(&outage->on, false)) return;
    hx_log_begin(HX_LOG_INFO, "calls to the store succeed again");
    hx_log_int("failed_calls", (int64_t)atomic_exchange(&outage->count, 0));
    hx_log_int("duration_ms", now - atomic_load(&outage->began));
    hx_log_end();
}
