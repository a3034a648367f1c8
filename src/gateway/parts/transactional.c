/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/parts/transactional.h"

#include "gateway/messages/answer_headers.h"

#include "base/text.h"

#define LINES_MAX 200u

static bool is_transactional(const hx_request *r)
{
    return r->policy->guarantee == HX_GUARANTEE_TRANSACTIONAL;
}

bool hx_mark_is_due(const hx_request *r)
{
    bool says_success = r->verdict.outcome == HX_OUTCOME_COMPLETED;
    return is_transactional(r) && hx_request_is_claimed(r) && says_success && r->probe_reason.len == 0;
}

bool hx_mark_may_come(const hx_request *r)
{
    return is_transactional(r) && hx_request_is_claimed(r) && r->verdict.outcome == HX_OUTCOME_UNKNOWN;
}

bool hx_mark_is_ours(const hx_request *r, const hx_record *found)
{
    bool is_settled = found->state == HX_COMPLETED || found->state == HX_FAILED;
    return is_transactional(r) && is_settled && found->epoch == r->record.epoch;
}

bool hx_mark_is_withdrawn(const hx_request *r, const hx_record *found)
{
    bool is_error = r->basis != HX_BASIS_SILENCE && r->answer_status >= 300 && r->verdict.outcome != HX_OUTCOME_UNKNOWN;
    return is_transactional(r) && found->state == HX_ABSENT && is_error && r->verdict.outcome != HX_OUTCOME_COMPLETED;
}

hx_slice hx_mark_missing_reason(const hx_request *r)
{
    return hx_arena_printf(r->arena, "answered %u without its mark", (unsigned)r->answer_status);
}

bool hx_mark_is_of_duplicate(const hx_request *r, const hx_record *found)
{
    bool is_its_status = found->answer.status == r->policy->provider_duplicate.status;
    return hx_record_is_held(found) && (is_its_status || !is_transactional(r));
}

bool hx_mark_is_missing(const hx_request *r, const hx_record *found)
{
    return is_transactional(r) && hx_record_is_held(found) && !hx_mark_is_of_duplicate(r, found);
}

static bool is_line(hx_slice name, hx_slice value)
{
    bool fits = hx_slice_is_token(name);
    for (size_t i = 0; fits && i < value.len; i++)
        fits = (unsigned char)value.ptr[i] >= 0x20 ? value.ptr[i] != 0x7f : value.ptr[i] == '\t';
    return fits;
}

/* The lines as hx_answer_lines has them: without what is the connection's, ours, or one client's only. */
static hx_slice clean_lines(hx_request *r, const hx_record *found)
{
    hx_fields fields = {0};
    hx_slice rest = found->answer.headers;
    for (hx_text_header header; hx_text_next_header(&rest, &header);) {
        if (!is_line(header.name, header.value)) continue;
        if (!hx_fields_add(&fields, r->arena, LINES_MAX, header.name, header.value)) break;
    }
    if (fields.lines[HX_FIELD_DATE] == 0) { /* the same for everyone */
        char date[HX_HTTP_DATE_BYTES];
        hx_slice value = hx_arena_copy(r->arena, hx_http_date(found->changed_at, date));
        bool fits = hx_fields_add(&fields, r->arena, LINES_MAX + 1, HX_LIT("Date"), value);
        (void)fits;
    }
    hx_buf lines = hx_answer_lines(r, &fields, false);
    return hx_buf_slice(&lines);
}

/* Cookies go to the client whose attempt it was, and to no other. */
static void put_cookies(const hx_request *r, hx_buf *out)
{
    hx_slice rest = r->lines_first;
    for (hx_text_header header; hx_text_next_header(&rest, &header);)
        if (hx_slice_eq_nocase(header.name, HX_LIT("set-cookie"))) hx_buf_put(out, header.line);
}

hx_answer hx_mark_first_answer(hx_request *r, const hx_record *found)
{
    hx_answer answer = hx_mark_answer(r, found);
    if (r->basis == HX_BASIS_SILENCE || r->lines_first.ptr == r->lines_kept.ptr) return answer;
    hx_buf lines;
    hx_buf_init(&lines, r->arena, answer.headers.len + r->lines_first.len);
    hx_buf_put(&lines, answer.headers);
    put_cookies(r, &lines);
    answer.headers = hx_buf_slice(&lines);
    return answer;
}

hx_answer hx_mark_answer(hx_request *r, const hx_record *found)
{
    hx_answer answer = found->answer;
    if (is_transactional(r)) answer.headers = clean_lines(r, found);
    return answer;
}
