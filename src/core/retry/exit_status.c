/* SPDX-License-Identifier: Apache-2.0 */
#include "core/retry/exit_status.h"

#include <errno.h>

#define NOT_FOUND 127u /* as shells say it */
#define NOT_STARTED 126u

static bool read_code(hx_slice text, uint64_t *code)
{
    return text.len <= 3 && hx_slice_to_u64(text, code) && *code >= 1 && *code <= 255;
}

bool hx_exit_codes_read(hx_slice text, hx_exit_codes *codes)
{
    hx_slice part, rest = text;
    *codes = (hx_exit_codes){0};
    if (text.len == 0 || text.ptr[text.len - 1] == ',') return false;
    while (hx_slice_next(&rest, ',', &part)) {
        size_t dash = hx_slice_find(part, '-');
        uint64_t first, last;
        if (!read_code(hx_slice_first(part, dash), &first)) return false;
        last = first;
        if (dash != SIZE_MAX && (!read_code(hx_slice_from(part, dash + 1), &last) || last < first)) return false;
        for (uint64_t code = first; code <= last; code++) codes->bits[code / 64] |= UINT64_C(1) << code % 64;
    }
    return true;
}

bool hx_exit_codes_has(const hx_exit_codes *codes, unsigned code)
{
    return code < 256 && (codes->bits[code / 64] >> code % 64 & 1) != 0;
}

const char *hx_exit_outcome_name(hx_exit_outcome outcome)
{
    static const char *const names[] = {
#define X(id, name) name,
        HX_EXIT_OUTCOMES(X)
#undef X
    };
    return names[outcome];
}

static hx_exit_verdict unknown(const char *reason)
{
    return (hx_exit_verdict){.outcome = HX_EXITED_UNKNOWN, .reason = reason};
}

hx_exit_verdict hx_exit_judge(const hx_exit_rules *rules, const hx_exit_report *report)
{
    hx_exit_verdict verdict = {.reason = "", .code = report->code};
    if (report->is_lost) return unknown("claim_lost");
    if (report->is_orphan) return unknown("supervisor_died");
    if (report->start_error != 0)
        return (hx_exit_verdict){.outcome = HX_EXITED_RELEASED,
                                 .reason = "not_started",
                                 .code = report->start_error == ENOENT ? NOT_FOUND : NOT_STARTED};
    if (report->has_left) return unknown("left_session");
    if (report->signal != 0 || (hx_exit_is_signal(report->code) && !rules->plain_codes)) return unknown("signal");
    if (report->code == 0) {
        verdict.outcome = HX_EXITED_COMPLETED;
        return verdict;
    }
    verdict.outcome = HX_EXITED_FAILED;
    if (rules->releases_failures) verdict.outcome = HX_EXITED_RELEASED;
    if (hx_exit_codes_has(&rules->retry_on, report->code)) verdict.outcome = HX_EXITED_AGAIN;
    if (verdict.outcome != HX_EXITED_FAILED) verdict.reason = "exit_code";
    return verdict;
}
