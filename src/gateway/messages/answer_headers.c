/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/messages/answer_headers.h"

#include "base/log.h"
#include "core/retry/retry_after.h"

/* Fields that only Hapax sends to clients. */
static bool is_ours(const hx_request *r, const hx_field *field)
{
    switch (field->id) {
    case HX_FIELD_IDEMPOTENCY_STATUS:
    case HX_FIELD_IDEMPOTENCY_EXPIRES:
    case HX_FIELD_IDEMPOTENT_REPLAYED:
    case HX_FIELD_ORIGINAL_REQUEST_TIME:
    case HX_FIELD_ERROR_CODE:
    case HX_FIELD_X_CORRELATION_ID:
    case HX_FIELD_HAPAX_OUTCOME: return true;
    case HX_FIELD_OTHER:
        if (hx_slice_starts_nocase(field->name, HX_LIT("hapax-"))) return true;
        return hx_request_is_claimed(r) && r->policy->dialect == HX_DIALECT_STRIPE &&
               hx_slice_eq_nocase(field->name, HX_LIT("stripe-should-retry"));
    default: return false;
    }
}

/* Fields that only the first client gets. */
static bool is_never_kept(const hx_policy *policy, const hx_field *field)
{
    if (field->id == HX_FIELD_SET_COOKIE) return true;
    for (size_t i = 0; i < policy->deny_header_count; i++)
        if (hx_slice_eq_nocase(policy->deny_headers[i], field->name)) return true;
    return false;
}

static size_t lines_len(const hx_fields *fields)
{
    size_t len = HX_OUR_LINES_MAX;
    for (size_t i = 0; i < fields->count; i++) len += fields->items[i].name.len + fields->items[i].value.len + 4;
    return len;
}

hx_buf hx_answer_lines(hx_request *r, const hx_fields *fields, bool whole)
{
    hx_buf lines;
    bool has_date = false;
    hx_buf_init(&lines, r->arena, lines_len(fields));
    for (size_t i = 0; i < fields->count; i++) {
        const hx_field *field = &fields->items[i];
        if ((field->flags & (HX_FIELD_HOP | HX_FIELD_FRAMING)) != 0 || is_ours(r, field)) continue;
        if (!whole && is_never_kept(r->policy, field)) continue;
        if (field->id == HX_FIELD_DATE) has_date = true;
        hx_field_write(&lines, field->name, field->value);
    }
    if (!has_date) {
        char date[HX_HTTP_DATE_BYTES];
        hx_field_write(&lines, HX_LIT("Date"), hx_http_date(hx_clock_wall(), date));
    }
    return lines;
}

/* By the clock of who answered, which is the one that it writes dates by; else by the wall's, for ours doesn't follow
 * when that is set. */
static hx_ms now_of(const hx_fields *fields)
{
    hx_ms wall = hx_clock_wall(), theirs;
    return hx_retry_after_date(hx_fields_get(fields, HX_FIELD_DATE), wall, &theirs) ? theirs : wall;
}

hx_ms hx_answer_retry_after(hx_request *r, const hx_fields *fields)
{
    if (fields->lines[HX_FIELD_RETRY_AFTER] == 0) return HX_RETRY_AFTER_NONE;
    hx_slice value = HX_EMPTY;
    hx_ms after = HX_RETRY_AFTER_NONE, now = now_of(fields);
    for (size_t i = fields->first[HX_FIELD_RETRY_AFTER]; i < fields->count; i++) { /* the latest of several */
        if (fields->items[i].id != HX_FIELD_RETRY_AFTER) continue;
        hx_ms one = hx_retry_after(fields->items[i].value, now, HX_RETRY_AFTER_MAX);
        if (one > after) after = one;
        value = fields->items[i].value;
    }
    if (after != HX_RETRY_AFTER_NONE) return after;
    hx_worker_count(r->worker, HX_COUNT_BAD_RETRY_AFTER);
    hx_log_begin(HX_EVENT_retry_after_invalid);
    hx_log_str("value", value);
    hx_log_str("path", r->path);
    hx_log_end();
    return HX_RETRY_AFTER_NONE;
}

void hx_answer_put_retry_after(const hx_request *r, hx_buf *out)
{
    if (r->retry_after <= 0) return;
    hx_buf_puts(out, "Retry-After: ");
    hx_buf_put_decimal(out, (uint64_t)(r->retry_after + 999) / 1000);
    hx_buf_puts(out, "\r\n");
}
