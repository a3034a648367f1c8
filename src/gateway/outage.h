/* SPDX-License-Identifier: Apache-2.0 */
/* Says once that the store can't be reached, and once that it can again, however many requests find out. All workers
 * tell it how their calls ended; it costs one load as long as all is well. */
#ifndef HX_GATEWAY_OUTAGE_H
#define HX_GATEWAY_OUTAGE_H

#include "store/store.h"

#include <stdatomic.h>

/* An outage is over when a call succeeds and none has failed for so long: one bad connection among good ones doesn't
 * fill the log. */
#define HX_OUTAGE_QUIET (5 * HX_SECOND)

typedef struct {
    atomic_bool on;
    _Atomic hx_ms began, last; /* calls that failed */
    _Atomic uint64_t count;
} hx_outage;

void hx_outage_failed(hx_outage *outage, hx_ms now);
void hx_outage_succeeded(hx_outage *outage, hx_ms now);

/* Any thread. `outage` NULL: nobody wants to know. */
static inline void hx_outage_note(hx_outage *outage, hx_store_result result, hx_ms now)
{
    if (!outage || result == HX_STORE_CANCELLED) return;
    if (result == HX_STORE_UNAVAILABLE)
        hx_outage_failed(outage, now);
    else if (atomic_load_explicit(&outage->on, memory_order_relaxed))
        hx_outage_succeeded(outage, now);
}

#endif
