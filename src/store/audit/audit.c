/* SPDX-License-Identifier: Apache-2.0 */
#include "store/audit/audit.h"

#include "base/hex.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define PROBLEM_BYTES 512u

void hx_audit_problem(hx_audit *audit, const char *format, ...)
{
    char text[PROBLEM_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    audit->problems++;
    audit->problem(audit->context, text);
}

void hx_audit_row(hx_audit *audit, const hx_record *record, uint64_t sequence)
{
    audit->rows++;
    if (audit->first_at == 0) audit->first_at = record->changed_at;
    audit->last_at = record->changed_at;
    if (audit->row) audit->row(audit->context, record, sequence);
}

bool hx_audit_anchor_read(hx_slice text, hx_audit_anchor *out)
{
    size_t colon = hx_slice_find(text, ':');
    if (colon == SIZE_MAX || !hx_slice_to_u64(hx_slice_first(text, colon), &out->sequence)) return false;
    hx_slice digits = hx_slice_from(text, colon + 1);
    return digits.len == 2 * sizeof out->hash && hx_hex_read((char *)out->hash.bytes, digits.ptr, sizeof out->hash);
}

void hx_audit_anchor_text(const hx_audit_anchor *anchor, char out[HX_AUDIT_ANCHOR_BYTES])
{
    int len = snprintf(out, HX_AUDIT_ANCHOR_BYTES, "%" PRIu64 ":", anchor->sequence);
    hx_hex_write(out + len, anchor->hash.bytes, sizeof anchor->hash);
    out[(size_t)len + 2 * sizeof anchor->hash] = '\0';
}

bool hx_audit_read(hx_slice url, hx_audit *audit, hx_error_text error)
{
    const hx_slice journal = HX_LIT("journal:"), sqlite = HX_LIT("sqlite:");
    if (hx_slice_starts(url, journal)) return hx_audit_journal(hx_slice_from(url, journal.len), audit, error);
    if (hx_slice_starts(url, sqlite)) return hx_audit_sqlite(hx_slice_from(url, sqlite.len), audit, error);
    return hx_fail(error, "the audit can be read of journal:DIR and sqlite:FILE");
}
