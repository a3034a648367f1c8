/* SPDX-License-Identifier: Apache-2.0 */
#include "observe/metrics.h"

#include "base/check.h"
#include "core/json/json_writer.h"

#include <stdio.h>
#include <string.h>

static const hx_metric metrics[] = {
#define ROW(group, id, kind, unit, labels, help) {HX_METRICS_##group, id, HX_METRIC_##kind, unit, labels, help},
#define WORKER(name, ...) ROW(WORKERS, __VA_ARGS__)
#define STORE(name, ...) ROW(STORE, __VA_ARGS__)
#define LIMITER(name, ...) ROW(LIMITS, __VA_ARGS__)
#define LOG(name, ...) ROW(LOG, __VA_ARGS__)
#define EVENTS(name, ...) ROW(EVENTS, __VA_ARGS__)
#include "observe/metrics.def"
};
#define METRIC_COUNT (sizeof metrics / sizeof metrics[0])

static const char *const groups[] = {"workers", "store", "limits", "log", "events"};

/* "shadow" with "would=forward" is shadow_would_forward. */
static void write_member(char *out, size_t bytes, const hx_metric *m)
{
    (void)snprintf(out, bytes, "%s%s%s", m->id, *m->labels ? "_" : "", m->labels);
    for (; *out; out++)
        if (*out == '=') *out = '_';
}

void hx_metrics_json(hx_buf *out, hx_metric_group group, const uint64_t *values)
{
    hx_json_open(out, groups[group], '{');
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        if (metrics[i].group != group) continue;
        char name[128];
        write_member(name, sizeof name, &metrics[i]);
        hx_json_put_number(out, name, *values++);
    }
    hx_json_close(out, '}');
}

/* hapax_shadow_total{would="forward"} */
static void put_name(hx_buf *out, const hx_metric *m)
{
    const char *value = strchr(m->labels, '=');
    bool fits = hx_buf_printf(out, "hapax_%s%s", m->id, m->kind == HX_METRIC_COUNTER ? "_total" : "");
    if (value) fits = fits && hx_buf_printf(out, "{%.*s=\"%s\"}", (int)(value - m->labels), m->labels, value + 1);
    HX_CHECK(fits);
}

void hx_metrics_reference(hx_buf *out)
{
    hx_buf_puts(out, "# Metrics\n\n"
                     "Everything that Hapax counts (a counter, since the start of the process) or measures (a gauge). "
                     "This page is written by `hapax reference metrics`.\n\n"
                     "`GET /v1/counts` of [the admin socket](admin.md) shows all of them. The metric is the name for "
                     "Prometheus.\n\n"
                     "| in `/v1/counts` | metric | kind | unit | what |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        const hx_metric *m = &metrics[i];
        char name[128];
        write_member(name, sizeof name, m);
        hx_buf_puts(out, "| `");
        hx_buf_puts(out, groups[m->group]);
        hx_buf_puts(out, ".");
        hx_buf_puts(out, name);
        hx_buf_puts(out, "` | `");
        put_name(out, m);
        hx_buf_puts(out, m->kind == HX_METRIC_COUNTER ? "` | counter | " : "` | gauge | ");
        hx_buf_puts(out, m->unit);
        hx_buf_puts(out, " | ");
        hx_buf_puts(out, m->help);
        hx_buf_puts(out, " |\n");
    }
}
