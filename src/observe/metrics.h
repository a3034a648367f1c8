/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of metrics.def as data. The values are kept where they arise: by the workers, the store, the limiter and the
 * log. */
#ifndef HX_OBSERVE_METRICS_H
#define HX_OBSERVE_METRICS_H

#include "base/memory/buf.h"

typedef enum {
    HX_METRICS_WORKERS,
    HX_METRICS_STORE,
    HX_METRICS_LIMITS,
    HX_METRICS_LOG,
    HX_METRICS_EVENTS
} hx_metric_group;
typedef enum { HX_METRIC_COUNTER, HX_METRIC_GAUGE } hx_metric_kind;

typedef struct {
    hx_metric_group group;
    const char *id;
    hx_metric_kind kind;
    const char *unit;
    const char *labels; /* "NAME=VALUE", or empty: every id with labels is several rows */
    const char *help;
} hx_metric;

/* A JSON member for the group: `"store":{…}`. `values` has one for each row of the group, in the order of the table. */
void hx_metrics_json(hx_buf *out, hx_metric_group group, const uint64_t *values);
/* docs/reference/metrics.md */
void hx_metrics_reference(hx_buf *out);

#endif
