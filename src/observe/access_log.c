/* SPDX-License-Identifier: Apache-2.0 */
#include "observe/access_log.h"

#include "base/log.h"

#define MAC_BYTES_SHOWN 8u
/* A longer path comes last, so that it pushes nothing else out of the line. */
#define PATH_BYTES_FIRST 1024u

static void text(const char *name, const char *value)
{
    if (value) hx_log_text(name, value);
}

static void str(const char *name, hx_slice value)
{
    if (value.len > 0) hx_log_str(name, value);
}

void hx_access_log_failure(const hx_upstream_failure *failure)
{
    str("upstream", failure->upstream);
    text("error", failure->error);
    text("reason", failure->reason);
}

/* Steps that took less than a millisecond are left out. */
static void times(const hx_summary *s)
{
    hx_log_int("duration_ms", s->duration);
    for (unsigned i = 0; i < s->step_count; i++)
        if (s->step_ms[i] > 0) hx_log_int(s->step_names[i], s->step_ms[i]);
}

static void operation(const hx_summary *s)
{
    hx_log_hex("operation", s->op->bytes, sizeof s->op->bytes);
    hx_log_hex("idempotency_key", s->key.bytes, MAC_BYTES_SHOWN);
    hx_log_hex("principal", s->principal.bytes, MAC_BYTES_SHOWN);
    hx_log_text("result", s->result);
    hx_log_int("epoch", s->record ? (int64_t)s->record->epoch : 0);
    hx_log_int("attempt", s->record ? s->record->attempt : 0);
}

void hx_access_log_line(const hx_summary *s)
{
    bool is_long = s->path.len > PATH_BYTES_FIRST;
    hx_log_begin(HX_EVENT_request);
    str("method", s->method);
    if (!is_long) str("path", s->path);
    hx_log_int("status", s->status);
    if (s->is_timed) times(s);
    if (!is_long) str("operation_type", s->route);
    if (s->op) operation(s);
    str("result_id", s->result_id);
    text("shadow", s->shadow);
    text("shadow_error_code", s->shadow_error_code);
    text("error_code", s->error_code);
    text("error", s->error_detail);
    hx_access_log_failure(&s->failure);
    text("remedy", s->remedy);
    str("peer", s->peer);
    hx_log_str("correlation_id", s->correlation);
    if (is_long) str("path", s->path);
    if (is_long) str("operation_type", s->route);
    hx_log_end();
}
