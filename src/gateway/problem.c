/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/problem.h"

#include "base/check.h"
#include "core/json.h"

static void put_text(hx_buf *out, const char *name, hx_slice value)
{
    bool fits = hx_buf_printf(out, "\"%s\":", name) && hx_json_escape(out, value) && hx_buf_byte(out, ',');
    HX_CHECK(fits);
}

void hx_problem_write(const hx_problem *problem, hx_buf *lines, hx_buf *body)
{
    const hx_error_row *row = hx_error_about(problem->error);
    unsigned status = problem->status ? problem->status : row->status;
    hx_slice detail = hx_slice_first(problem->detail, 1024);
    hx_slice instance = hx_arena_printf(body->arena, "urn:hapax:request:%.*s", HX_FMT(problem->correlation));
    hx_buf_puts(lines, "Content-Type: application/problem+json\r\nContent-Language: en\r\nError-Code: ");
    hx_buf_puts(lines, row->code);
    hx_buf_puts(lines, "\r\n");
    hx_buf_puts(body, "{");
    bool fits = hx_buf_printf(body, "\"type\":\"%.*s%s\",", HX_FMT(problem->docs), row->code);
    put_text(body, "title", hx_slice_of(row->title));
    fits = fits && hx_buf_printf(body, "\"status\":%u,", status);
    put_text(body, "detail", detail.len > 0 ? detail : hx_slice_of(row->title));
    put_text(body, "instance", instance);
    put_text(body, "error_code", hx_slice_of(row->code));
    fits = fits && hx_buf_printf(body, "\"retryable\":%s,", row->retryable ? "true" : "false");
    put_text(body, "hint", hx_slice_of(row->hint));
    HX_CHECK(fits);
    body->data[body->len - 1] = '}'; /* in place of the last comma */
    hx_buf_puts(body, "\n");
}

hx_problem hx_problem_of(const hx_request *r)
{
    return (hx_problem){.error = r->error,
                        .status = r->reply_status,
                        .detail = r->error_detail,
                        .correlation = r->correlation,
                        .docs = hx_request_rules(r)->config->error_docs};
}

void hx_problem_answer(hx_request *r, hx_answer *answer)
{
    hx_buf lines, body;
    hx_buf_init(&lines, r->arena, HX_PROBLEM_LINES_MAX);
    hx_buf_init(&body, r->arena, HX_PROBLEM_BODY_MAX);
    hx_problem problem = hx_problem_of(r);
    hx_problem_write(&problem, &lines, &body);
    char date[HX_HTTP_DATE_BYTES];
    hx_field_write(&lines, HX_LIT("Date"), hx_http_date(hx_loop_now(r->worker->loop), date));
    hx_reply_retry_after(r, &lines);
    *answer = (hx_answer){.status = (uint16_t)r->reply_status,
                          .retained = true,
                          .headers = hx_buf_slice(&lines),
                          .body = hx_buf_slice(&body)};
}
