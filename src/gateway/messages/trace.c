/* SPDX-License-Identifier: Apache-2.0 */
/* By which ids a request is found again in logs and traces, ours and the application's. */
#include "gateway/messages/trace.h"

#include "base/hex.h"
#include "base/rand.h"

#include <string.h>

static bool is_lower_hex(hx_slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!((s.ptr[i] >= '0' && s.ptr[i] <= '9') || (s.ptr[i] >= 'a' && s.ptr[i] <= 'f'))) return false;
    return true;
}

static bool is_id(hx_slice s)
{
    static const char none[] = "00000000000000000000000000000000";
    return is_lower_hex(s) && memcmp(s.ptr, none, s.len) != 0;
}

/* The trace id of a valid traceparent, version 00 or later: 00-{32 digits}-{16 digits}-{2 digits}. */
static bool trace_of(hx_slice value, hx_slice *trace)
{
    if (value.len < 55 || (value.len > 55 && value.ptr[55] != '-')) return false;
    hx_slice version = hx_slice_first(value, 2);
    if (value.ptr[2] != '-' || value.ptr[35] != '-' || value.ptr[52] != '-') return false;
    if (!is_lower_hex(version) || hx_slice_eq(version, HX_LIT("ff"))) return false;
    if (hx_slice_eq(version, HX_LIT("00")) && value.len != 55) return false;
    *trace = (hx_slice){value.ptr + 3, 32};
    return is_id(*trace) && is_id((hx_slice){value.ptr + 36, 16}) && is_lower_hex((hx_slice){value.ptr + 53, 2});
}

static bool is_correlation(hx_slice value)
{
    for (size_t i = 0; i < value.len; i++)
        if (value.ptr[i] < 0x21 || value.ptr[i] > 0x7e) return false;
    return value.len > 0 && value.len <= 128;
}

/* The request goes on under the client's trace, or a new one; and under the client's correlation id, or the trace's. */
void hx_trace_choose(hx_request *r)
{
    const hx_fields *fields = &r->stream->request.fields;
    uint8_t random[24];
    hx_slice trace;
    hx_rand_bytes(random, sizeof random);
    memcpy(r->traceparent, "00-", 3);
    hx_hex_write(r->traceparent + 3, random, 16);
    r->traceparent[35] = '-';
    hx_hex_write(r->traceparent + 36, random + 16, 8);
    memcpy(r->traceparent + 52, "-00", 4);
    hx_slice given = hx_fields_get(fields, HX_FIELD_TRACEPARENT);
    r->trace_continues = fields->lines[HX_FIELD_TRACEPARENT] == 1 && trace_of(given, &trace);
    if (r->trace_continues) {
        memcpy(r->traceparent + 3, trace.ptr, 32);
        memcpy(r->traceparent + 53, given.ptr + 53, 2);
    }
    hx_slice correlation = hx_fields_get(fields, HX_FIELD_X_CORRELATION_ID);
    r->correlation = is_correlation(correlation) ? correlation : (hx_slice){r->traceparent + 3, 32};
}
